"""The API of tagwise: answers of the tagger, feedback that is kept, counts that add up, and logs without texts."""

import asyncio
import errno
import json
import logging
import os
import re
import threading
import time

import httpx
import pytest
from serving import served, until

from tagwise.data import read_feedback
from tagwise.data.feedback import FeedbackFile
from tagwise.serving import ServingOptions, create_app
from tagwise.serving.taggers import Loaded
from tagwise.text.tagger import Tagger

TEXT = "a fast web server with plugins"


@pytest.fixture(scope="module")
def two(tagger, other_tagger, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    tagger.save(folder / "packages")
    other_tagger.save(folder / "plain")
    return {"packages": str(folder / "packages"), "plain": str(folder / "plain")}


@pytest.fixture
def server(two, tmp_path):
    with served(create_app(two, feedback=str(tmp_path / "feedback.jsonl"), watch_seconds=0)) as url:
        yield url


def post(url, path, body, **options):
    return httpx.post(f"{url}/v1/taggers/packages/{path}", json=body, timeout=60, **options)


def counts(url):
    """Every sample of /metrics: name and labels → value."""
    page = httpx.get(f"{url}/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    found = re.findall(r"^(\w+)\{?(.*?)\}? (\S+)$", page.text, flags=re.M)
    return {(name, tuple(sorted(re.findall(r'(\w+)="(.*?)"', labels)))): float(value) for name, labels, value in found}


def count(url, name, **labels):
    return counts(url).get((name, tuple(sorted(labels.items()))), 0)


# ---------------------------------------------------------------------- suggestions


def test_the_answers_are_those_of_the_tagger(server, tagger, rows):
    texts = rows[0][:40]
    many = post(server, "suggest", {"texts": texts, "top": 7}).json()
    assert many["tagger"] == "packages"
    expected = tagger.suggest(texts, 7)
    for text, found, right in zip(texts, many["results"], expected):
        assert [(one["tag"], one["probability"]) for one in found["suggestions"]] == [
            (one.tag, one.probability) for one in right
        ]
        single = post(server, "suggest", {"text": text, "top": 7}).json()
        assert single == {"tagger": "packages", "version": many["version"], "suggestions": found["suggestions"]}


def test_thresholds_and_words(server, tagger):
    found = post(server, "suggest", {"text": TEXT, "top": 50, "threshold": 0.3, "explain": 3}).json()["suggestions"]
    right = tagger.suggest([TEXT], 50, explain=3, min_probability=0.3)[0]
    assert [one["tag"] for one in found] == [one.tag for one in right]
    assert [[word["word"] for word in one["words"]] for one in found] == [
        [word.word for word in one.why] for one in right
    ]
    assert all(one["probability"] >= 0.3 for one in found)


def test_a_threshold_needs_probabilities(server):
    refused = httpx.post(f"{server}/v1/taggers/plain/suggest", json={"text": TEXT, "threshold": 0.5})
    assert refused.status_code == 422
    assert "the scores of plain are not probabilities" in refused.json()["detail"]
    assert httpx.post(f"{server}/v1/taggers/plain/suggest", json={"text": TEXT}).status_code == 200


@pytest.mark.parametrize("text", ["", " ", "\0", "\ud800", "😀" * 1000, "a\u202eb", "xqzzv"])
def test_any_text_gets_an_answer(server, text):
    found = post(server, "suggest", {"text": text}) if text != "\ud800" else post_raw(server, b'{"text": "\\ud800"}')
    assert found.status_code == 200
    assert len(found.json()["suggestions"]) == 5


def post_raw(url, content, path="suggest"):
    headers = {"Content-Type": "application/json"}
    return httpx.post(f"{url}/v1/taggers/packages/{path}", content=content, headers=headers)


def test_tags_that_are_numbers_are_written_as_text(rows, tmp_path):
    texts, tags = rows[0][:200], [[len(row), len(row) + 100] for row in rows[1][:200]]
    Tagger("binary-relevance", vocabulary={7: "seven", 3: "three"}).fit(texts, tags).save(tmp_path / "packages")
    with served(create_app({"packages": str(tmp_path / "packages")}, feedback=str(tmp_path / "f.jsonl"))) as url:
        found = post(url, "suggest", {"text": texts[0], "top": 100}).json()["suggestions"]
        assert {"7", "3"} < {one["tag"] for one in found}
        assert next(one["name"] for one in found if one["tag"] == "7") == "seven"
        assert {"tag": "7", "name": "seven"} in httpx.get(f"{url}/v1/taggers/packages/tags?q=SEV").json()["tags"]
        assert post(url, "feedback", {"text": texts[0], "accepted": [found[0]["tag"]]}).status_code == 204
        form = {"text": texts[0], "limit": "1000"}
        subjects = httpx.post(f"{url}/v1/projects/packages/suggest", data=form).json()["results"]
        assert {"uri": "urn:tagwise:7", "label": "seven", "notation": None} in [
            {key: value for key, value in one.items() if key != "score"} for one in subjects
        ]


def test_what_is_served(server, tagger):
    found = httpx.get(f"{server}/v1/taggers").json()["taggers"]
    assert [one["name"] for one in found] == ["packages", "plain"]
    assert found[0]["tags"] == len(tagger.tags_)
    assert [one["probabilities"] for one in found] == [True, False]
    assert httpx.get(f"{server}/v1/taggers/packages").json() == found[0]
    tags = httpx.get(f"{server}/v1/taggers/packages/tags", params={"q": "web", "limit": 3}).json()["tags"]
    assert len(tags) == 3
    assert all("web" in one["tag"] for one in tags)


# ---------------------------------------------------------------------- feedback


def test_an_answer_is_in_the_file_when_it_is_acknowledged(server, tmp_path):
    given = {"text": TEXT, "id": "7", "accepted": ["web::server"], "rejected": ["game::arcade"], "withdrawn": ["a"]}
    assert post(server, "feedback", given).status_code == 204
    record = json.loads((tmp_path / "feedback.jsonl").read_text())
    assert {name: record[name] for name in given} == given
    assert record["tagger"] == "packages"
    assert record["version"] == httpx.get(f"{server}/v1/taggers/packages").json()["version"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", record["time"])
    assert read_feedback(tmp_path / "feedback.jsonl").records == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"accepted": ["x"]}, "Give text, id or both"),
        ({"text": "a"}, "accepted, rejected and withdrawn are all empty"),
        ({"text": "a", "accepted": ["x"], "rejected": ["x", "y"]}, "'x' is in two of accepted, rejected and withdrawn"),
        ({"text": "a", "accepted": [""]}, "accepted[0] must not be empty"),
        ({"text": "a", "accepted": ["x" * 1001]}, "accepted[0] has 1,001 characters; at most 1,000"),
        ({"text": "a", "accepted": ["x"] * 1001}, "accepted has 1,001 entries; at most 1,000"),
        ({"text": "a", "accepted": "x"}, "accepted must be a list; found 'x'"),
        ({"text": "\ud800", "accepted": ["x"]}, "half of a surrogate pair"),
    ],
)
def test_an_answer_that_cannot_be_kept_is_refused(server, tmp_path, body, words):
    refused = post_raw(server, json.dumps(body).encode(), "feedback")
    assert refused.status_code == 422
    assert words in refused.json()["detail"]
    assert (tmp_path / "feedback.jsonl").read_bytes() == b""


def test_without_a_file_answers_are_refused(two):
    with served(create_app(two, watch_seconds=0)) as url:
        refused = post(url, "feedback", {"text": TEXT, "accepted": ["web::server"]})
    assert refused.status_code == 403
    assert "--feedback FILE" in refused.json()["detail"]


def test_on_a_full_device_the_sender_hears_so_and_later_answers_are_kept(server, tmp_path, monkeypatch, caplog):
    path = tmp_path / "feedback.jsonl"
    assert post(server, "feedback", {"text": "first", "accepted": ["x"]}).status_code == 204

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        refused = post(server, "feedback", {"text": "lost", "accepted": ["x"]})
    assert refused.status_code == 507
    assert "No space left on device" in refused.json()["detail"]
    assert "No space left on device" in caplog.text
    assert post(server, "suggest", {"text": TEXT}).status_code == 200
    assert post(server, "feedback", {"text": "later", "accepted": ["x"]}).status_code == 204
    assert list(read_feedback(path).by_text) == ["first", "later"]
    assert count(server, "tagwise_feedback_tags_total", tagger="packages", answer="accepted") == 2


def test_answers_that_come_together_are_flushed_together_and_none_is_lost(server, tmp_path, monkeypatch):
    appended = []
    own = FeedbackFile.append
    monkeypatch.setattr(
        FeedbackFile, "append", lambda self, lines: (appended.append(len(lines)), time.sleep(0.02), own(self, lines))[2]
    )

    async def main():
        async with httpx.AsyncClient(base_url=server, timeout=60) as client:
            posts = (
                client.post("/v1/taggers/packages/feedback", json={"text": str(number), "rejected": ["x"]})
                for number in range(100)
            )
            return [one.status_code for one in await asyncio.gather(*posts)]

    assert asyncio.run(main()) == [204] * 100
    assert set(read_feedback(tmp_path / "feedback.jsonl").by_text) == {str(number) for number in range(100)}
    assert sum(appended) == 100
    assert len(appended) < 100


def test_where_the_device_hangs_answers_are_turned_away(two, tmp_path, monkeypatch):
    opened, own = threading.Event(), FeedbackFile.append
    monkeypatch.setattr(FeedbackFile, "append", lambda self, lines: (opened.wait(60), own(self, lines))[1])

    async def main(url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            posts = [
                asyncio.create_task(
                    client.post("/v1/taggers/packages/feedback", json={"text": str(number), "rejected": ["x"]})
                )
                for number in range(20)
            ]
            while not any(one.done() for one in posts):
                await asyncio.sleep(0.01)
            opened.set()
            return await asyncio.gather(*posts)

    path = tmp_path / "f.jsonl"
    with served(create_app(two, feedback=str(path), most_texts=4, most_waiting=4, watch_seconds=0)) as url:
        answers = asyncio.run(main(url))
    refused = [one for one in answers if one.status_code != 204]
    assert {one.status_code for one in refused} == {503}
    assert refused[0].json()["detail"] == "Too many answers wait to be stored; try again in a second."
    assert len(read_feedback(path).by_text) == 20 - len(refused)


# ---------------------------------------------------------------------- limits


def test_too_many_texts_at_once_are_turned_away_and_may_come_again(two, monkeypatch):
    opened, own = threading.Event(), Loaded.answer

    def slow(self, texts, question, **options):
        opened.wait(60)
        return own(self, texts, question, **options)

    monkeypatch.setattr(Loaded, "answer", slow)

    async def main(url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            ask = lambda: client.post("/v1/taggers/packages/suggest", json={"texts": [TEXT] * 4})  # noqa: E731
            pending = [asyncio.create_task(ask()) for _ in range(6)]
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            turned_away = [one for one in pending if one.done()]
            while len(turned_away) < 4:
                await asyncio.sleep(0.01)
                turned_away = [one for one in pending if one.done()]
            opened.set()
            answers = await asyncio.gather(*pending)
            return answers, await ask()

    with served(create_app(two, most_texts=4, most_waiting=8, watch_seconds=0)) as url:
        answers, later = asyncio.run(main(url))
    assert sorted(one.status_code for one in answers) == [200] * 2 + [503] * 4
    refused = next(one for one in answers if one.status_code == 503)
    assert refused.headers["retry-after"] == "1"
    assert "Too many texts wait" in refused.json()["detail"]
    assert later.status_code == 200


def test_an_answer_that_takes_too_long_ends_with_a_sentence(two, monkeypatch):
    opened, own = threading.Event(), Loaded.answer

    def slow(self, texts, question, **options):
        opened.wait(60)
        return own(self, texts, question, **options)

    monkeypatch.setattr(Loaded, "answer", slow)
    with served(create_app(two, seconds=0.2, watch_seconds=0)) as url:
        late = post(url, "suggest", {"text": TEXT})
        opened.set()
        until(lambda: post(url, "suggest", {"text": TEXT}).status_code == 200)
    assert late.status_code == 503
    assert "more than 0.2 seconds" in late.json()["detail"]
    assert late.headers["retry-after"] == "5"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"most_waiting": 10}, "most_waiting is 10, which is less than the 256 texts"),
        ({"seconds": 0}, "seconds must be above 0"),
        ({"most_bytes": -1}, "most_bytes must be above 0"),
    ],
)
def test_limits_that_make_no_sense_are_refused(two, options, words):
    with pytest.raises(ValueError, match=words):
        ServingOptions(two, **options)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "..", "a" * 101, "a?b"])
def test_a_name_must_fit_an_address(name):
    with pytest.raises(ValueError, match="address"):
        create_app({name: "folder"})


# ---------------------------------------------------------------------- counts and logs


def test_counts(server):
    before = counts(server)
    for _ in range(3):
        post(server, "suggest", {"texts": [TEXT, "xqzzv", TEXT]})
    post(server, "suggest", {"text": 3})
    post(server, "feedback", {"text": TEXT, "accepted": ["a", "b"], "rejected": ["c"]})
    httpx.post(f"{server}/v1/taggers/made-up/suggest", json={"text": TEXT})
    httpx.get(f"{server}/nowhere")
    after = counts(server)

    def grown(name, **labels):
        key = (name, tuple(sorted(labels.items())))
        return after.get(key, 0) - before.get(key, 0)

    assert grown("tagwise_requests_total", tagger="packages", kind="suggest", status="200") == 3
    assert grown("tagwise_requests_total", tagger="packages", kind="suggest", status="422") == 1
    assert grown("tagwise_requests_total", tagger="packages", kind="feedback", status="204") == 1
    assert grown("tagwise_requests_total", tagger="", kind="suggest", status="404") == 1
    assert grown("tagwise_requests_total", tagger="", kind="none", status="404") == 1
    assert grown("tagwise_request_seconds_count", tagger="packages", kind="suggest") == 4
    assert grown("tagwise_texts_total", tagger="packages") == 9
    assert grown("tagwise_texts_without_known_word_total", tagger="packages") == 3
    assert grown("tagwise_batch_texts_sum", tagger="packages") == 9
    assert grown("tagwise_feedback_tags_total", tagger="packages", answer="accepted") == 2
    assert grown("tagwise_feedback_tags_total", tagger="packages", answer="rejected") == 1
    version = httpx.get(f"{server}/v1/taggers/packages").json()["version"]
    assert after["tagwise_model_loaded_timestamp_seconds", (("tagger", "packages"), ("version", version))] > 1e9
    assert "made-up" not in httpx.get(f"{server}/metrics").text


def test_texts_whose_answer_came_too_late_count_alike(folder, monkeypatch):
    """Else the share of texts without a known word would grow with the load."""
    own, opened = Loaded.answer, threading.Event()

    def slow(self, texts, question, **options):
        found = own(self, texts, question, **options)
        opened.wait(60)
        return found

    monkeypatch.setattr(Loaded, "answer", slow)
    with served(create_app({"packages": str(folder)}, watch_seconds=0, seconds=0.2)) as url:
        assert post(url, "suggest", {"texts": ["xqzzv", TEXT]}).status_code == 503
        opened.set()
        found = counts(url)
    labels = (("tagger", "packages"),)
    assert found["tagwise_texts_total", labels] == 2
    assert found["tagwise_texts_without_known_word_total", labels] == 1


SECRETS = ("Zanzibar", "Ouagadougou")


def ask_about_secrets(url, monkeypatch):
    """Everything that can go well or wrong, with a word in it that must not be logged."""
    text, tag = (f"a secret of {name}" for name in SECRETS)
    assert post(url, "suggest", {"text": text}).status_code == 200
    assert post(url, "suggest", {"text": text, "top": 0}).status_code == 422
    assert post_raw(url, f'{{"text": "{text}'.encode()).status_code == 400
    assert post(url, "feedback", {"text": text, "accepted": [tag]}).status_code == 204
    assert httpx.get(f"{url}/v1/taggers/packages/tags", params={"q": text}).status_code == 200
    assert httpx.get(f"{url}/{tag}").status_code == 404

    def broken(self, texts):
        raise RuntimeError(f"a fault that shows {texts}")

    with monkeypatch.context() as patched:
        patched.setattr(Tagger, "transform", broken)
        failed = post(url, "suggest", {"text": text})
    assert failed.status_code == 500
    assert failed.headers["content-type"] == "application/problem+json"
    assert failed.json()["detail"] == "Something went wrong in the server; its log says where."
    assert post(url, "suggest", {"text": text}).status_code == 200


def test_nothing_of_a_request_is_logged(server, monkeypatch, caplog, capfd):
    caplog.set_level(logging.DEBUG, logger="tagwise")
    caplog.set_level(logging.INFO)
    ask_about_secrets(server, monkeypatch)
    said = caplog.text.replace("HTTP Request", "") + "".join(capfd.readouterr())
    ours = "\n".join(line for line in said.splitlines() if "httpx" not in line)
    assert "suggest ended with RuntimeError" in ours
    assert "in broken" in ours
    assert not any(secret in ours for secret in SECRETS)


def test_texts_are_logged_where_that_is_wanted(two, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="tagwise.serving")
    with served(create_app(two, feedback=str(tmp_path / "f.jsonl"), log_texts=True, watch_seconds=0)) as url:
        ask_about_secrets(url, monkeypatch)
        post(url, "suggest", {"text": "two\nlines"})
    assert f"packages was asked for tags of 'a secret of {SECRETS[0]}'" in caplog.text
    assert r"'two\nlines'" in caplog.text


def test_words_need_a_model_that_has_them(rows, tmp_path):
    texts, tags = rows
    Tagger("knn").fit(texts[:100], tags[:100]).save(tmp_path / "neighbours")
    with served(create_app({"packages": str(tmp_path / "neighbours")}, watch_seconds=0)) as url:
        assert post(url, "suggest", {"text": TEXT}).status_code == 200
        refused = post(url, "suggest", {"text": TEXT, "explain": 3})
    assert refused.status_code == 422
    assert "cannot say which words speak for a tag" in refused.json()["detail"]
