"""Answers: always the latest counts, whichever process wrote it; and texts to work through, over the API."""

import asyncio
import json
import threading

import pytest
from commands import failed, run, some_rows, write_jsonl
from hypothesis import given
from hypothesis import strategies as st

from tagwise import Tagger
from tagwise.data.feedback import FeedbackFile, Place, feedback_line, read_feedback
from tagwise.exceptions import InvalidInputError
from tagwise.serving.batches import BusyError
from tagwise.serving.feedback import FeedbackStore, Tally, key_of, read_queue

TAGS = st.lists(st.sampled_from("xyz"), unique=True, max_size=3)


def append(file, *records):
    file.append([feedback_line(record) for record in records])


@st.composite
def records(draw):
    kinds = draw(st.permutations(["accepted", "rejected", "withdrawn"]))
    tags = draw(TAGS)
    given_ones = {kind: [tag for place, tag in enumerate(tags) if place % 3 == n] for n, kind in enumerate(kinds)}
    subject = draw(st.sampled_from([{"text": "a"}, {"text": "b"}, {"id": "a"}, {"id": "a", "text": "b"}]))
    return {"tagger": draw(st.sampled_from(["one", "two"])), **subject, **given_ones}


@given(st.lists(records(), max_size=12))
def test_counts_are_those_of_the_latest_answers(given_records):
    tally, latest = Tally(), {}
    for record in given_records:
        tally.add(record)
        subject = (record["tagger"], record.get("id"), None if "id" in record else record["text"])
        for name in ("accepted", "rejected", "withdrawn"):
            for tag in record[name]:
                latest[(*subject, tag)] = {"accepted": True, "rejected": False}.get(name)
    for tagger in ("one", "two"):
        mine = {key: answer for key, answer in latest.items() if key[0] == tagger and answer is not None}
        assert tally.counts(tagger) == {
            "texts": len({key[:3] for key in mine}),
            "accepted": sum(mine.values()),
            "rejected": len(mine) - sum(mine.values()),
        }
        for identifier, text in (("a", None), (None, "a"), (None, "b")):
            answers = {key[3]: answer for key, answer in mine.items() if key[1:3] == (identifier, text)}
            assert (tally.on(tagger, key_of(identifier, text)) or {}) == answers


def test_the_store_counts_what_others_write_too(tmp_path):
    path = tmp_path / "feedback.jsonl"
    other = FeedbackFile(path)
    append(other, {"tagger": "t", "text": "a", "accepted": ["x"]})
    with path.open("ab") as stream:
        stream.write(b'no record\n{"tagger": "t"}\n[1]\n')

    async def work():
        store = FeedbackStore(str(path))
        counts = [await store.look(lambda tally: tally.counts("t"))]
        await store.keep({"tagger": "t", "text": "a", "rejected": ["x"]})
        counts.append(await store.look(lambda tally: tally.counts("t")))
        append(other, {"tagger": "t", "text": "b", "accepted": ["y"]})
        with path.open("ab") as stream:
            stream.write(b'{"tagger": "t", "text": "c", "accep')  # being written, or never to be finished
        counts.append(await store.look(lambda tally: tally.counts("t")))
        await store.keep({"tagger": "t", "text": "c", "accepted": ["z"]})
        counts.append(await store.look(lambda tally: tally.counts("t")))
        path.rename(tmp_path / "moved")
        counts.append(await store.look(lambda tally: tally.counts("t")))
        await store.keep({"tagger": "t", "text": "d", "accepted": ["z"]})
        counts.append(await store.look(lambda tally: tally.counts("t")))
        store.close()
        return [(one["texts"], one["accepted"], one["rejected"]) for one in counts]

    assert asyncio.run(work()) == [(1, 1, 0), (1, 0, 1), (2, 1, 1), (3, 2, 1), (0, 0, 0), (1, 1, 0)]
    other.close()
    assert path.read_bytes().endswith(b"\n")


def test_answers_that_come_together_are_flushed_together_and_too_many_are_turned_away(tmp_path, monkeypatch):
    appended, own = [], FeedbackFile.append

    def noted(self, lines):
        appended.append(len(lines))
        own(self, lines)

    monkeypatch.setattr(FeedbackFile, "append", noted)
    path = tmp_path / "feedback.jsonl"

    async def work():
        store = FeedbackStore(str(path), most_waiting=40)
        for _ in range(2):
            records = [{"tagger": "t", "text": str(number), "accepted": ["x"]} for number in range(50)]
            ends = await asyncio.gather(*map(store.keep, records), return_exceptions=True)
            refused = [str(end) for end in ends if isinstance(end, BusyError)]
            assert refused == ["Too many answers wait to be stored"] * 10
            assert ends.count(None) == 40
        store.close()

    asyncio.run(work())
    assert sum(appended) == read_feedback(path).records == 80 > len(appended)


def test_nobodys_answer_waits_until_a_long_file_is_read(tmp_path, monkeypatch):
    path, entered, opened, own = tmp_path / "feedback.jsonl", threading.Event(), threading.Event(), Tally.add
    append(FeedbackFile(path), {"tagger": "t", "text": "a", "accepted": ["x"]})

    def slow(self, record):
        entered.set()
        opened.wait(60)
        own(self, record)

    monkeypatch.setattr(Tally, "add", slow)

    async def work():
        store = FeedbackStore(str(path))
        looks = [asyncio.create_task(store.look(lambda tally: tally.counts("t"))) for _ in range(3)]
        await asyncio.to_thread(entered.wait, 60)
        await store.keep({"tagger": "t", "text": "b", "rejected": ["x"]})
        opened.set()
        found = [(one["accepted"], one["rejected"]) for one in await asyncio.gather(*looks)]
        store.close()
        return found

    assert asyncio.run(work()) == [(1, 0), (1, 1), (1, 1)]


def test_the_tally_says_what_training_reads(tmp_path):
    path = tmp_path / "feedback.jsonl"
    file = FeedbackFile(path)
    append(file, {"tagger": "t", "text": "a", "accepted": ["x", "y"]}, {"tagger": "t", "text": "a", "rejected": ["y"]})
    tally = Tally()
    for record, _ in file.read(file.place(Place())):
        tally.add(record)
    read = {tag: answer.right for tag, answer in read_feedback(path).by_text["a"].tags.items()}
    assert tally.on("t", key_of(None, " a\n")) == read == {"x": True, "y": False}
    file.close()


# ---------------------------------------------------------------------- texts to work through


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    rows = some_rows()
    folder = tmp_path_factory.mktemp("queue") / "tagger"
    Tagger("binary-relevance").fit([row["text"] for row in rows], [row["labels"] for row in rows]).save(folder)
    return folder


def test_texts_with_their_ids(tmp_path):
    path = write_jsonl(
        tmp_path / "queue.jsonl",
        [{"id": 7, "text": "a"}, {"id": "x", "text": " "}, {"id": "", "text": "b"}, {"text": "c"}],
    )
    assert [(one.id, one.text) for one in read_queue(str(path))] == [("7", "a"), (None, "b"), (None, "c")]
    (tmp_path / "queue.csv").write_text("title,body\nA,a b c d e\nB,f g h\n", encoding="utf-8")
    assert [one.text for one in read_queue(str(tmp_path / "queue.csv"), ("title",))] == ["A", "B"]
    (tmp_path / "queue.txt").write_text("a text\nanother\n", encoding="utf-8")
    assert [one.text for one in read_queue(str(tmp_path / "queue.txt"))] == ["a text", "another"]


def test_a_queue_that_cannot_be_used_is_refused(tmp_path, tagger):
    path = write_jsonl(tmp_path / "queue.jsonl", [{"text": " "}])
    with pytest.raises(InvalidInputError, match="holds no text"):
        read_queue(str(path))
    (tmp_path / "bad.jsonl").write_text("nonsense\n")
    assert failed(run("serve", tagger, "--queue", tmp_path / "bad.jsonl"), 1, "bad.jsonl, line 1", "invalid JSON")
    assert failed(
        run("serve", tagger, "--queue", tmp_path / "none.jsonl"), 1, "--queue", "none.jsonl", "cannot be read"
    )
    write_jsonl(tmp_path / "two.jsonl", [{"p": 1, "q": 2}])
    assert failed(run("serve", tagger, "--queue", tmp_path / "two.jsonl"), 1, "--text", "two.jsonl")


def test_the_queue_knows_what_is_answered(tmp_path, tagger, client_of):
    queue = write_jsonl(tmp_path / "queue.jsonl", [{"id": "r", "text": "dog"}, {"id": "s", "text": "wine"}])
    kept = tmp_path / "feedback.jsonl"
    with client_of({"t": tagger, "u": tagger}, feedback=str(kept), queue=str(queue)) as client:
        base = "/v1/taggers/t"
        assert client.get(f"{base}/queue").json() == {"texts": 2, "answered": 0, "next": 1}
        answer = {"id": "r", "text": "dog", "accepted": ["pets"], "rejected": ["food", "drinks"]}
        assert client.post(f"{base}/feedback", json=answer).status_code == 204
        assert client.get(f"{base}/queue").json() == {"texts": 2, "answered": 1, "next": 2}
        assert client.get(f"{base}/queue/1").json() == {"number": 1, "asked": [], **answer}
        assert client.get(f"{base}/feedback").json() == {
            "kept": True,
            "texts": 1,
            "accepted": 1,
            "rejected": 2,
        }
        assert client.get("/v1/taggers/u/queue").json()["answered"] == 0
        for number in ("0", "3", "-1"):
            missing = client.get(f"{base}/queue/{number}")
            assert missing.status_code == 404
            assert f"There is no text {number} in the queue; it has 2 texts." in missing.json()["detail"]
        assert client.get(f"{base}/queue/x").status_code == 422
        client.post(f"{base}/feedback", json={"id": "r", "withdrawn": ["pets", "food", "drinks"]})
        assert client.get(f"{base}/queue").json()["next"] == 1
    # The file is read again when a server starts.
    with kept.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"tagger": "t", "id": "s", "accepted": ["drinks"]}) + "\n")
    with client_of({"t": tagger}, feedback=str(kept), queue=str(queue)) as client:
        assert client.get("/v1/taggers/t/queue").json() == {"texts": 2, "answered": 1, "next": 1}
    with client_of({"t": tagger}) as client:
        assert client.get("/v1/taggers/t/queue").json() == {"texts": 0, "answered": 0, "next": None}
        assert client.get("/v1/taggers/t/feedback").json()["kept"] is False


def test_suggestions_say_where_their_words_are(tagger, client_of):
    with client_of({"t": tagger}) as client:
        text = "İ 😀 the DOG, a dog; Wine"
        body = {"texts": [text, "x"], "explain": 5, "places": True}
        first, second = client.post("/v1/taggers/t/suggest", json=body).json()["results"]
        assert {word["word"] for word in first["suggestions"][0]["words"]} == {"dog", "wine"}
        assert {word: [text[start:end] for start, end in places] for word, places in first["places"].items()} == {
            "dog": ["DOG", "dog"],
            "wine": ["Wine"],
        }
        assert second["places"] == {}
        assert all(one["words"] == [] for one in second["suggestions"])
        plain = client.post("/v1/taggers/t/suggest", json={"text": text, "explain": 5}).json()
        assert "places" not in plain
        many = {"text": "dog " * 500, "explain": 5, "places": True}
        found = client.post("/v1/taggers/t/suggest", json=many).json()["places"]
        assert found == {"dog": [[4 * place, 4 * place + 3] for place in range(200)]}
