"""The API of tagwise: answers of the tagger, feedback that is kept, counts that add up, and logs without texts."""

import asyncio
import json
import logging
import re
import threading

import httpx
import pytest
from serving import served, until

from tagwise import Tagger
from tagwise.data import read_feedback
from tagwise.serving import ServingOptions, create_app
from tagwise.serving.batches import Batches
from tagwise.serving.taggers import ServedTagger

TEXT = "a fast web server with plugins"
SUGGEST, FEEDBACK = "/v1/taggers/packages/suggest", "/v1/taggers/packages/feedback"


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "feedback.jsonl"


@pytest.fixture
def client(two, kept, client_of):
    with client_of(two, feedback=str(kept)) as client:
        yield client


@pytest.fixture
def gate(monkeypatch):
    """Holds the answers of models until it is opened."""
    opened, own = threading.Event(), ServedTagger.answer

    def slow(self, *given):
        found = own(self, *given)
        opened.wait(60)
        return found

    monkeypatch.setattr(ServedTagger, "answer", slow)
    return opened


def counts(client):
    """Every sample of /metrics: name and labels → value."""
    page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    found = re.findall(r"^(\w+)\{?(.*?)\}? (\S+)$", page.text, flags=re.M)
    return {(name, frozenset(re.findall(r'(\w+)="(.*?)"', labels))): float(value) for name, labels, value in found}


# ---------------------------------------------------------------------- suggestions


def test_the_answers_are_those_of_the_tagger(client, tagger, rows):
    texts = rows[0][:40]
    many = client.post(SUGGEST, json={"texts": texts, "top": 7}).json()
    assert many["tagger"] == "packages"
    for text, found, right in zip(texts, many["results"], tagger.suggest(texts, 7)):
        assert [(one["tag"], one["probability"]) for one in found["suggestions"]] == [
            (one.tag, one.probability) for one in right
        ]
        single = client.post(SUGGEST, json={"text": text, "top": 7}).json()
        assert single == {"tagger": "packages", "version": many["version"], "suggestions": found["suggestions"]}
    asked = {"text": TEXT, "top": 50, "threshold": 0.3, "explain": 3}
    found = client.post(SUGGEST, json=asked).json()["suggestions"]
    right = tagger.suggest([TEXT], 50, explain=3, min_probability=0.3)[0]
    assert [one["tag"] for one in found] == [one.tag for one in right]
    assert [[word["word"] for word in one["words"]] for one in found] == [
        [word.word for word in one.why] for one in right
    ]
    assert all(one["probability"] >= 0.3 for one in found)


def test_any_text_gets_an_answer(client):
    for text in ("", " ", "\0", "\ud800", "😀" * 1000, "a\u202eb", "xqzzv"):
        content = json.dumps({"text": text})
        found = client.post(SUGGEST, content=content, headers={"Content-Type": "application/json"})
        assert found.status_code == 200
        assert len(found.json()["suggestions"]) == 5


def test_thresholds_and_words_need_a_model_that_has_them(client, client_of, problem, rows, tmp_path):
    plain = "/v1/taggers/plain/suggest"
    problem(client.post(plain, json={"text": TEXT, "threshold": 0.5}), 422, "the scores of plain are not probabilities")
    assert client.post(plain, json={"text": TEXT}).status_code == 200
    Tagger("knn").fit(rows[0][:100], rows[1][:100]).save(tmp_path / "neighbours")
    with client_of({"packages": str(tmp_path / "neighbours")}) as other:
        assert other.post(SUGGEST, json={"text": TEXT}).status_code == 200
        problem(other.post(SUGGEST, json={"text": TEXT, "explain": 3}), 422, "cannot say which words speak for a tag")


def test_tags_that_are_numbers_are_written_as_text(rows, client_of, kept, tmp_path):
    texts, tags = rows[0][:200], [[len(row), len(row) + 100] for row in rows[1][:200]]
    Tagger("binary-relevance", vocabulary={7: "seven", 3: "three"}).fit(texts, tags).save(tmp_path / "packages")
    with client_of({"packages": str(tmp_path / "packages")}, feedback=str(kept)) as client:
        found = client.post(SUGGEST, json={"text": texts[0], "top": 100}).json()["suggestions"]
        assert {"7", "3"} < {one["tag"] for one in found}
        assert next(one["name"] for one in found if one["tag"] == "7") == "seven"
        assert {"tag": "7", "name": "seven"} in client.get("/v1/taggers/packages/tags?q=SEV").json()["tags"]
        assert client.post(FEEDBACK, json={"text": texts[0], "accepted": [found[0]["tag"]]}).status_code == 204
        form = {"text": texts[0], "limit": "1000"}
        subjects = client.post("/v1/projects/packages/suggest", data=form).json()["results"]
        assert [one["label"] for one in subjects if one["uri"] == "urn:tagwise:7"] == ["seven"]


def test_served_taggers_are_described(client, tagger):
    found = client.get("/v1/taggers").json()["taggers"]
    assert [one["name"] for one in found] == ["packages", "plain"]
    assert found[0]["tags"] == len(tagger.tags_)
    assert [one["probabilities"] for one in found] == [True, False]
    assert client.get("/v1/taggers/packages").json() == found[0]
    tags = client.get("/v1/taggers/packages/tags", params={"q": "web", "limit": 3}).json()["tags"]
    assert len(tags) == 3
    assert all("web" in one["tag"] for one in tags)


# ---------------------------------------------------------------------- feedback


def test_an_answer_is_in_the_file_when_it_is_acknowledged(client, kept):
    given = {"text": TEXT, "id": "7", "accepted": ["web::server"], "rejected": ["game::arcade"], "withdrawn": ["a"]}
    assert client.post(FEEDBACK, json=given).status_code == 204
    record = json.loads(kept.read_text())
    assert {name: record[name] for name in given} == given
    assert record["tagger"] == "packages"
    assert record["version"] == client.get("/v1/taggers/packages").json()["version"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", record["time"])
    assert read_feedback(kept).records == 1


def test_an_answer_that_cannot_be_kept_is_refused(client, client_of, kept, two, problem):
    for body, words in (
        ({"accepted": ["x"]}, "Give text, id or both"),
        ({"text": "a"}, "accepted, rejected and withdrawn are all empty"),
        ({"text": "a", "accepted": ["x"], "rejected": ["x", "y"]}, "'x' is in two of accepted, rejected and withdrawn"),
        ({"text": "a", "accepted": [""]}, "accepted[0]: string should have at least 1 character"),
        ({"text": "a", "accepted": ["x" * 1001]}, "accepted[0]: string should have at most 1000 characters"),
        ({"text": "a", "accepted": ["x"] * 1001}, "accepted: list should have at most 1000 items"),
        ({"text": "a", "accepted": "x"}, "accepted: input should be a valid list; found 'x'"),
        ({"text": "\ud800", "accepted": ["x"]}, "half of a surrogate pair"),
    ):
        answer = client.post(FEEDBACK, content=json.dumps(body), headers={"Content-Type": "application/json"})
        problem(answer, 422, words)
    assert kept.read_bytes() == b""
    with client_of(two) as other:
        problem(other.post(FEEDBACK, json={"text": TEXT, "accepted": ["x"]}), 403, "--feedback FILE")


# ---------------------------------------------------------------------- limits


def test_too_many_texts_at_once_are_turned_away_and_may_come_again(two, gate):
    async def main(url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            ask = lambda: client.post(SUGGEST, json={"texts": [TEXT] * 4})  # noqa: E731
            pending = [asyncio.create_task(ask()) for _ in range(6)]
            while sum(one.done() for one in pending) < 4:
                await asyncio.sleep(0.01)
            gate.set()
            return await asyncio.gather(*pending), await ask()

    with served(create_app(two, most_texts=4, most_waiting=8, watch_seconds=0)) as url:
        answers, later = asyncio.run(main(url))
    assert sorted(one.status_code for one in answers) == [200] * 2 + [503] * 4
    refused = next(one for one in answers if one.status_code == 503)
    assert refused.headers["retry-after"] == "1"
    assert "Too many texts wait" in refused.json()["detail"]
    assert later.status_code == 200


def test_long_texts_count_as_several(two, client_of):
    sizes, asked = [], Batches.ask
    with client_of(two) as client:

        async def noted(self, key, items, size=None):
            sizes.append(size)
            return await asked(self, key, items, size)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Batches, "ask", noted)
            assert client.post(SUGGEST, json={"texts": ["x" * 40_000, "y"]}).status_code == 200
    assert sizes == [4]


def test_an_answer_that_takes_too_long_ends_with_a_sentence(two, client_of, gate, problem):
    with client_of(two, seconds=0.2) as client:
        late = client.post(SUGGEST, json={"texts": ["xqzzv", TEXT]})
        gate.set()
        found = counts(client)
        until(lambda: client.post(SUGGEST, json={"text": TEXT}).status_code == 200)
    problem(late, 503, "more than 0.2 seconds")
    assert late.headers["retry-after"] == "5"
    # Both counts are there, or the share of texts without a known word would grow with the load.
    labels = frozenset({("tagger", "packages")})
    assert found["tagwise_texts_total", labels] == 2
    assert found["tagwise_texts_without_known_word_total", labels] == 1


def test_options_that_make_no_sense_are_refused(two):
    for options, words in (
        ({"most_waiting": 10}, "most_waiting is 10, which is less than the 256 texts"),
        ({"seconds": 0}, "seconds must be above 0"),
        ({"most_bytes": -1}, "most_bytes must be above 0"),
    ):
        with pytest.raises(ValueError, match=words):
            ServingOptions(two, **options)
    for name in ("", "a/b", "a b", "..", "a" * 101, "a?b"):
        with pytest.raises(ValueError, match="address"):
            create_app({name: "folder"})


# ---------------------------------------------------------------------- counts and logs


def test_counts(client):
    for _ in range(3):
        client.post(SUGGEST, json={"texts": [TEXT, "xqzzv", TEXT]})
    client.post(SUGGEST, json={"text": 3})
    client.post(FEEDBACK, json={"text": TEXT, "accepted": ["a", "b"], "rejected": ["c"]})
    client.post("/v1/taggers/made-up/suggest", json={"text": TEXT})
    client.get("/nowhere")
    found = counts(client)
    for name, labels, value in (
        ("tagwise_requests_total", {"tagger": "packages", "kind": "suggest", "status": "200"}, 3),
        ("tagwise_requests_total", {"tagger": "packages", "kind": "suggest", "status": "422"}, 1),
        ("tagwise_requests_total", {"tagger": "packages", "kind": "feedback", "status": "204"}, 1),
        ("tagwise_requests_total", {"tagger": "", "kind": "suggest", "status": "404"}, 1),
        ("tagwise_requests_total", {"tagger": "", "kind": "none", "status": "404"}, 1),
        ("tagwise_request_seconds_count", {"tagger": "packages", "kind": "suggest"}, 4),
        ("tagwise_texts_total", {"tagger": "packages"}, 9),
        ("tagwise_texts_without_known_word_total", {"tagger": "packages"}, 3),
        ("tagwise_batch_texts_sum", {"tagger": "packages"}, 9),
        ("tagwise_feedback_tags_total", {"tagger": "packages", "answer": "accepted"}, 2),
        ("tagwise_feedback_tags_total", {"tagger": "packages", "answer": "rejected"}, 1),
    ):
        assert found[name, frozenset(labels.items())] == value, (name, labels)
    version = client.get("/v1/taggers/packages").json()["version"]
    labels = frozenset({("tagger", "packages"), ("version", version)})
    assert found["tagwise_model_loaded_timestamp_seconds", labels] > 1e9
    assert "made-up" not in client.get("/metrics").text


@pytest.mark.parametrize("wanted", [False, True])
def test_texts_are_logged_only_where_that_is_wanted(two, client_of, kept, wanted, problem, monkeypatch, caplog, capfd):
    """Everything that can go well or wrong is asked for, with words in it that must not be logged."""
    caplog.set_level(logging.DEBUG, logger="tagwise")
    caplog.set_level(logging.INFO)
    secrets = ("Zanzibar", "Ouagadougou")
    text, tag = (f"a secret of {name}" for name in secrets)

    def broken(self, texts):
        raise RuntimeError(f"a fault that shows {texts}")

    with client_of(two, feedback=str(kept), log_texts=wanted) as client:
        assert client.post(SUGGEST, json={"text": text}).status_code == 200
        assert client.post(SUGGEST, json={"text": text, "top": 0}).status_code == 422
        assert client.post(SUGGEST, content=f'{{"text": "{text}').status_code == 415
        assert client.post(FEEDBACK, json={"text": text, "accepted": [tag]}).status_code == 204
        assert client.get("/v1/taggers/packages/tags", params={"q": text}).status_code == 200
        assert client.get(f"/{tag}").status_code == 404
        with monkeypatch.context() as patched:
            patched.setattr(Tagger, "transform", broken)
            failed = client.post(SUGGEST, json={"text": text})
        problem(failed, 500, "Internal server error; see the server's log.")
        assert client.post(SUGGEST, json={"text": "two\nlines"}).status_code == 200
    said = caplog.text + "".join(capfd.readouterr())
    ours = "\n".join(line for line in said.splitlines() if "httpx" not in line)
    assert "suggest ended with RuntimeError" in ours
    assert "in broken" in ours
    assert any(secret in ours for secret in secrets) is wanted
    assert (f"packages was asked for tags of {text!r}" in ours) is wanted
    assert (r"'two\nlines'" in ours) is wanted
