"""The loop of a service: train, serve, take answers, train again into the served folder, and answer accordingly."""

import httpx
from commands import ok
from serving import ServerProcess, until

TEXT = "a zeppelin simulator for the desktop"


def test_what_people_answer_comes_back_as_suggestions(tmp_path):
    sample, rows, folder, kept = (tmp_path / name for name in ("all.jsonl", "rows.jsonl", "packages", "feedback.jsonl"))
    ok("sample", sample)
    rows.write_text("\n".join(sample.read_text(encoding="utf-8").splitlines()[:300]) + "\n", encoding="utf-8")
    train = ("train", rows, "--out", folder, "--model", "binary-relevance")
    ok(*train)
    with ServerProcess(f"packages={folder}", "--feedback", kept, log=tmp_path / "log.txt") as server:
        tagger = f"{server.url}/v1/taggers/packages"

        def suggested():
            answer = httpx.post(f"{tagger}/suggest", json={"text": TEXT, "top": 100}, timeout=60)
            assert answer.status_code == 200, answer.text
            found = answer.json()
            return found["version"], {one["tag"]: one["score"] for one in found["suggestions"]}

        version, before = suggested()
        wrong = next(iter(before))
        assert "flight::zeppelin" not in before
        for number in range(12):
            answer = {"text": f"{TEXT}, part {number}", "accepted": ["flight::zeppelin"], "rejected": [wrong]}
            assert httpx.post(f"{tagger}/feedback", json=answer, timeout=60).status_code == 204
        ok(*train, "--feedback", kept, "--overwrite")
        until(lambda: suggested()[0] != version, "the swap")
        _, after = suggested()
        assert next(iter(after)) == "flight::zeppelin"
        assert after.get(wrong, -1.0) < before[wrong]
    assert "Traceback" not in (tmp_path / "log.txt").read_text()
