"""Live swap: no request fails while models change, and whatever happens to a folder, the model in memory stays."""

import asyncio
import gc
import json
import os
import shutil
import threading
import time
import urllib.request
from contextlib import ExitStack
from itertools import count

import httpx
import pytest
from serving import ServerProcess, record, served, until

from tagwise.serving import create_app
from tagwise.serving.taggers import ServedTagger, manifest_version

TEXT = "a fast web server with plugins"
LOOK = 0.05  # seconds between two looks at a folder


@pytest.fixture(params=["alone", "shared"])
def server(request, folder, tmp_path):
    """A server that looks at its folder all the time, with the model for itself or shared with other processes."""
    shared = tmp_path / "shared"
    shared.mkdir()
    app = create_app(
        {"packages": str(folder)}, watch_seconds=LOOK, shared=str(shared) if request.param == "shared" else None
    )
    with served(app) as url:
        yield url


def described(url):
    """With a connection of its own, and next to no time: tests ask while others are to be answered."""
    with urllib.request.urlopen(f"{url}/v1/taggers/packages", timeout=60) as answer:
        return json.load(answer)


def ask(url):
    answer = httpx.post(f"{url}/v1/taggers/packages/suggest", json={"text": TEXT}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tags(answer):
    return [one["tag"] for one in answer["suggestions"]]


def test_a_new_model_in_the_folder_is_served(server, folder, tagger, other_tagger, caplog):
    caplog.set_level("INFO", logger="tagwise.serving")
    old, new = ([one.tag for one in each.suggest([TEXT])[0]] for each in (tagger, other_tagger))
    assert old != new
    before = ask(server)
    assert tags(before) == old
    other_tagger.save(folder)
    until(lambda: described(server)["version"] == manifest_version(folder))
    assert tags(ask(server)) == new
    assert "serving version" in caplog.text
    page, name = httpx.get(f"{server}/metrics").text, "tagwise_model_loaded_timestamp_seconds"
    assert f'{name}{{tagger="packages",version="{before["version"]}"}} 0.0' in page
    assert f'version="{described(server)["version"]}"}} 1.' in page
    tagger.save(folder)
    until(lambda: tags(ask(server)) == old)


def test_a_folder_that_was_deleted_is_told_and_the_model_stays(server, folder, tagger, caplog):
    before = ask(server)
    shutil.rmtree(folder)
    # A look while the files go one by one finds one of them missing; the next one finds no folder.
    until(lambda: "does not exist" in (described(server)["error"] or ""))
    error = described(server)["error"]
    assert error == f"{folder}: the folder does not exist."
    refused = httpx.post(f"{server}/v1/taggers/packages/reload", timeout=60)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "5"
    assert refused.json()["detail"] == f"The model does not load; the old one stays in use: {error}"
    ready = httpx.get(f"{server}/readyz")
    assert ready.status_code == 200
    assert ready.json()["taggers"][0]["error"] == error
    assert ask(server) == before
    assert f"version {before['version']} stays" in caplog.text
    assert caplog.text.count("does not exist") == 1
    tagger.save(folder)
    until(lambda: described(server)["error"] is None)
    assert ask(server)["suggestions"] == before["suggestions"]


def test_a_model_that_is_copied_bit_by_bit_is_served_when_it_is_whole(server, folder, other_tagger, tmp_path, caplog):
    """As ``cp`` does: the manifest comes first, then the tensors, in parts and into the folder itself."""
    before = ask(server)
    other_tagger.save(tmp_path / "other")
    tensors = next((tmp_path / "other").glob("*.safetensors"))
    shutil.copy(tmp_path / "other" / "manifest.json", folder)
    until(lambda: described(server)["error"])
    content = tensors.read_bytes()
    with open(folder / tensors.name, "wb") as target:
        for part in (content[: len(content) // 2], content[len(content) // 2 :]):
            assert ask(server) == before
            target.write(part)
            target.flush()
    until(lambda: described(server)["version"] == manifest_version(folder))
    assert described(server)["error"] is None
    assert tags(ask(server)) == [one.tag for one in other_tagger.suggest([TEXT])[0]]
    assert "stays" in caplog.text


def test_files_that_are_damaged_in_place_do_not_reach_the_model(server, folder, other_tagger, caplog):
    before = ask(server)
    tensors = next(folder.glob("*.safetensors"))
    content = tensors.read_bytes()
    with open(tensors, "r+b") as stream:
        stream.truncate(100)
    assert ask(server) == before
    with open(tensors, "r+b") as stream:
        stream.write(b"\xff" * len(content))
    assert ask(server) == before
    manifest = (folder / "manifest.json").read_bytes()
    for damaged in (b"", b"nonsense", b"{}"):
        # In one step: a server that looks between the truncation and the content tells of both.
        (folder / "damaged").write_bytes(damaged)
        os.replace(folder / "damaged", folder / "manifest.json")
        assert until(lambda: described(server)["error"])
        assert ask(server) == before
    refused = httpx.post(f"{server}/v1/taggers/packages/reload", timeout=60)
    assert refused.status_code == 503
    assert "the folder does not load" in caplog.text
    tensors.write_bytes(content)
    (folder / "manifest.json").write_bytes(manifest)
    until(lambda: described(server)["error"] is None)
    assert ask(server) == before
    other_tagger.model_.save(folder)
    until(lambda: "takes features, not texts" in (described(server)["error"] or ""))
    assert ask(server) == before


def test_a_reload_loads_at_once_and_other_processes_follow(folder, tagger, other_tagger, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    with ExitStack() as stack:
        first, *others = (
            stack.enter_context(
                served(create_app({"packages": str(folder)}, watch_seconds=seconds, shared=str(shared)))
            )
            for seconds in (0, LOOK, LOOK)
        )
        for model in (other_tagger, tagger, other_tagger):
            old = described(first)["version"]
            model.save(folder)
            assert described(first)["version"] == old
            done = httpx.post(f"{first}/v1/taggers/packages/reload", timeout=60)
            assert done.status_code == 200
            assert described(first)["version"] == done.json()["version"] == manifest_version(folder) != old
            until(lambda done=done: {described(url)["version"] for url in others} == {done.json()["version"]})
        assert [path.name for path in shared.iterdir()] == [manifest_version(folder)]


def test_a_server_without_a_model_waits_for_one(folder, tagger, caplog):
    shutil.rmtree(folder)
    with served(create_app({"packages": str(folder)}, watch_seconds=LOOK)) as url:
        assert httpx.get(f"{url}/healthz").status_code == 200
        ready = httpx.get(f"{url}/readyz")
        assert ready.status_code == 503
        assert "does not exist" in ready.json()["taggers"][0]["error"]
        refused = httpx.post(f"{url}/v1/taggers/packages/suggest", json={"text": TEXT})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "5"
        assert "packages has no model yet" in refused.json()["detail"]
        assert "nothing is served" in caplog.text
        tagger.save(folder)
        until(lambda: httpx.get(f"{url}/readyz").status_code == 200)
        assert ask(url)


def test_requests_under_way_end_with_the_old_model(folder, other_tagger, monkeypatch):
    """The answer and the version that it names are of one model, even if another has come meanwhile."""
    entered, opened, own = threading.Event(), threading.Event(), ServedTagger.answer

    def slow(self, *given):
        entered.set()
        opened.wait(60)
        return own(self, *given)

    monkeypatch.setattr(ServedTagger, "answer", slow)
    with served(create_app({"packages": str(folder)}, watch_seconds=0)) as url:
        opened.set()
        expected = ask(url)
        opened.clear()
        entered.clear()
        found = []
        asking = threading.Thread(target=lambda: found.append(ask(url)))
        asking.start()
        assert entered.wait(60)
        other_tagger.save(folder)
        assert httpx.post(f"{url}/v1/taggers/packages/reload", timeout=60).json()["version"] != expected["version"]
        opened.set()
        asking.join(60)
    assert found == [expected]


def swaps_under_load(url, folder, taggers, *, swaps, per_second, looks=1):
    """Who answered a steady stream of requests, and how many per second, while the model was replaced; none fails.

    Every answer must be that of the model whose version it names.
    """
    expected = {}
    for one in taggers:
        one.save(folder)
        until(lambda: described(url)["version"] == manifest_version(folder))
        expected[manifest_version(folder)] = [each.tag for each in one.suggest([TEXT])[0]]
    ended = threading.Event()

    def swap():
        try:
            for number in range(swaps):
                if ended.is_set():
                    return
                taggers[number % len(taggers)].save(folder)
                version = manifest_version(folder)
                # Several times, each with a connection of its own: every process must have swapped.
                until(
                    lambda version=version: all(described(url)["version"] == version for _ in range(looks)), "the swap"
                )
        finally:
            ended.set()

    async def main():
        answered, due = [], count(1)
        start = time.monotonic()

        async def ask_when_due(client):
            while not ended.is_set():
                await asyncio.sleep(max(0, start + next(due) / per_second - time.monotonic()))
                answer = await client.post("/v1/taggers/packages/suggest", json={"text": TEXT})
                assert answer.status_code == 200, answer.text
                found = answer.json()
                assert tags(found) == expected[found["version"]]
                answered.append(found["version"])

        swapping = threading.Thread(target=swap)
        swapping.start()
        try:
            async with httpx.AsyncClient(base_url=url, timeout=60) as client:
                await asyncio.gather(*(ask_when_due(client) for _ in range(16)))
        finally:
            ended.set()
            swapping.join()
        return answered, len(answered) / (time.monotonic() - start)

    return asyncio.run(main())


def test_no_request_fails_during_swaps(server, folder, tagger, other_tagger):
    answered, _ = swaps_under_load(server, folder, [tagger, other_tagger], swaps=4, per_second=50)
    assert len(set(answered)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_no_request_fails_during_20_swaps_at_200_requests_per_second(folder, tagger, other_tagger, tmp_path, workers):
    """With several processes, each swaps when it has looked."""
    log = tmp_path / "log.txt"
    with ServerProcess(f"packages={folder}", "--workers", workers, log=log) as server:
        answered, rate = swaps_under_load(
            server.url, folder, [tagger, other_tagger], swaps=20, per_second=200, looks=6 * workers - 5
        )
        assert len(set(answered)) == 2
        if workers == 1:
            page = httpx.get(f"{server.url}/metrics").text
            failed = [line for line in page.splitlines() if 'status="5' in line]
            assert not failed
    assert "Traceback" not in log.read_text()
    record(
        f"requests during 20 swaps, {workers} process{'es' * (workers > 1)}",
        {"answered": len(answered)},
        f"{rate:.0f} per second",
    )


def test_the_garbage_collector_does_not_walk_over_a_loaded_model(folder):
    """Its walks over all words of a model stopped the answers for a tenth of a second, several times a minute."""
    gc.unfreeze()
    with served(create_app({"packages": str(folder)})):
        assert gc.get_freeze_count() > 1000
    gc.unfreeze()
