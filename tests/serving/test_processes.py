"""``tagwise serve`` as a process, or several: where it listens, what they share, and what a kill leaves."""

import asyncio
import math
import os
import random
import signal
import socket
import subprocess
import sys
from itertools import count
from pathlib import Path

import httpx
import pytest
from commands import failed, run
from serving import ServerProcess, record, until

from tagwise.cli.serve import _is_loopback
from tagwise.data import read_feedback

resource = pytest.importorskip("resource", reason="this system has no groups and limits of processes")

TEXT = "a fast web server with plugins"
KEY = "a-key-of-16-letters-or-more"


# ---------------------------------------------------------------------- what is refused before it starts


def test_other_machines_may_reach_it_only_with_a_key(folder):
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org", ""):
        assert failed(run("serve", folder, "--host", host), 1, "can be reached from other machines", "--key-file")
    assert all(map(_is_loopback, ("127.0.0.1", "127.0.0.2", "::1", "localhost")))


def test_what_is_not_a_tagger_is_refused_before_the_port_is_opened(folder, tmp_path, other_tagger):
    assert failed(run("serve", tmp_path / "nowhere"), 1, "is not a folder")
    (tmp_path / "empty").mkdir()
    assert failed(run("serve", tmp_path / "empty"), 1, "no manifest.json")
    assert failed(run("serve", folder, folder), 2, "two taggers are called 'packages'")
    assert failed(run("serve", f"a/b={folder}"), 1, "cannot be part of an address")
    assert failed(
        run("serve", folder, "--feedback", tmp_path / "no" / "where.jsonl"), 1, "is not a folder; create it first"
    )
    assert failed(run("serve", folder, "--key-file", tmp_path / "no-keys"), 1, "--key-file", "no-keys")
    limited = run("serve", folder, "--most-per-minute", 5)
    assert failed(limited, 1, "--most-per-minute", "add --key-file FILE")
    (tmp_path / "notes").write_text("my notes\n")
    for workers in (1, 2):
        refused = run("serve", folder, "--workers", workers, "--feedback", tmp_path / "notes")
        assert failed(refused, 1, "something else than feedback")
    other_tagger.model_.save(tmp_path / "model")
    assert failed(run("serve", tmp_path / "model"), 1, "takes features, not texts")
    assert failed(run("serve"), 2, "FOLDER")


def test_an_address_that_is_taken_is_refused_before_a_model_is_loaded(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run("serve", folder, "--port", port)
    assert failed(refused, 1, f"cannot bind to 127.0.0.1, port {port}: address already in use; choose another")


def test_without_the_extra_it_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert failed(run("serve", folder), 1, "uvicorn", "pip install 'tagwise[server]'")


def test_the_library_and_the_other_verbs_import_nothing_of_a_server():
    program = (
        "import sys, tagwise, tagwise.cli.main, tagwise.cli.serve, tagwise.cli.train, tagwise.data.feedback\n"
        "from tagwise.data import read_feedback\n"
        "found = {'fastapi', 'starlette', 'uvicorn', 'prometheus_client', 'pydantic', 'anyio'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)


# ---------------------------------------------------------------------- processes


def children(pid):
    """The processes below one."""
    own = [int(one) for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]
    return own + [deeper for one in own for deeper in children(one)]


async def post_all(url, path, bodies, *, headers=None, answered=lambda: None):
    """The status of each, eight at a time; 0 where the connection broke, None for what was not sent after that."""
    found = [None] * len(bodies)
    numbers = iter(range(len(bodies)))

    async def worker():
        async with httpx.AsyncClient(base_url=url, timeout=120, headers=headers) as client:
            for number in numbers:
                try:
                    found[number] = (await client.post(path, json=bodies[number])).status_code
                except httpx.TransportError:
                    found[number] = 0
                    return
                answered()

    await asyncio.gather(*(worker() for _ in range(8)))
    return found


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads /proc")
def test_several_processes_share_a_model_their_counts_and_the_file_of_feedback(folder, tmp_path, other_tagger):
    (tmp_path / "keys").write_text(KEY + "\n")
    given = (f"packages={folder}", "--workers", 2, "--feedback", tmp_path / "feedback.jsonl", "--most-per-minute", 9999)
    headers = {"Authorization": f"Bearer {KEY}"}
    with ServerProcess(*given, "--key-file", tmp_path / "keys", log=tmp_path / "log.txt") as server:
        bodies = [{"text": f"secret Zanzibar {number}", "accepted": ["x"]} for number in range(200)]
        base = "/v1/taggers/packages"
        assert asyncio.run(post_all(server.url, f"{base}/feedback", bodies, headers=headers)) == [204] * 200
        asked = post_all(server.url, f"{base}/suggest", [{"text": TEXT}] * 100, headers=headers)
        assert asyncio.run(asked) == [200] * 100
        # Both processes have loaded the model when both have said so.
        until(lambda: (tmp_path / "log.txt").read_text().count("serving version") == 2)
        # Whoever has a key may use any name.
        assert httpx.get(f"{server.url}/v1/taggers", headers={**headers, "Host": "any.example"}).status_code == 200
        maps = [Path(f"/proc/{one}/maps").read_text() for one in children(server.process.pid)]
        mapped = [{line.split()[-1] for line in one.splitlines() if line.endswith(".safetensors")} for one in maps]
        mapped = [one for one in mapped if one]
        assert len(mapped) == 2
        assert mapped[0] == mapped[1] != set()
        for _ in range(20):  # whichever answers, it answers for all
            page = httpx.get(f"{server.url}/metrics", headers=headers).text
            assert 'tagwise_feedback_tags_total{answer="accepted",tagger="packages"} 200.0' in page
            assert 'tagwise_requests_total{kind="suggest",status="200",tagger="packages"} 100.0' in page
            assert 'tagwise_texts_total{tagger="packages"} 100.0' in page
        other_tagger.save(folder)
        done = httpx.post(f"{server.url}/v1/taggers/packages/reload", headers=headers, timeout=60).json()
        # The other process follows within two looks.
        until(
            lambda: all(
                httpx.get(f"{server.url}/v1/taggers/packages", headers=headers).json()["version"] == done["version"]
                for _ in range(20)
            )
        )
        shared = Path(next(iter(mapped[0]))).parents[2]
        assert oct(shared.stat().st_mode)[-3:] == "700"
        assert not any(KEY in Path(f"/proc/{one}/environ").read_text() for one in children(server.process.pid))
    assert set(read_feedback(tmp_path / "feedback.jsonl").by_text) == {
        f"secret Zanzibar {number}" for number in range(200)
    }
    assert not shared.exists()
    assert "Zanzibar" not in (tmp_path / "log.txt").read_text()


def test_a_process_that_is_killed_is_replaced_and_all_end_with_the_one_that_started_them(folder, tmp_path):
    """They would keep its port, and the keys in the folder that they share."""
    log, temporary = tmp_path / "log.txt", tmp_path / "temporary"
    temporary.mkdir()
    given = (f"packages={folder}", "--workers", 2)
    with ServerProcess(*given, log=log, env={"TMPDIR": str(temporary)}) as server:
        until(lambda: log.read_text().count("serving version") == 2)
        workers = [
            one for one in children(server.process.pid) if "spawn_main" in Path(f"/proc/{one}/cmdline").read_text()
        ]
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: log.read_text().count("serving version") == 3, "the new process")
        until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
        # A name that is not allowed without keys, and the beginning of a websocket, whose address nobody logs.
        assert httpx.get(f"{server.url}/v1/taggers", headers={"Host": "any.example"}).status_code == 421
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        upgrade["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
        assert httpx.get(f"{server.url}/v1/taggers/packages/tags?q=Zanzibar", headers=upgrade).status_code == 200
        left = children(server.process.pid)
        assert list(temporary.glob("tagwise-serve-*"))
        server.process.kill()
        server.process.wait(60)
        until(lambda: not any(Path(f"/proc/{one}").exists() for one in left), "the end of the workers")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/healthz")
    assert not list(temporary.glob("tagwise-serve-*"))
    assert "Zanzibar" not in log.read_text()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux sets limits of another process")
def test_a_disk_that_is_full_loses_nothing_and_the_server_goes_on(folder, tmp_path):
    """A file that may not grow fails as on a full disk, in the midst of a record."""
    workers = 2
    path = tmp_path / "feedback.jsonl"
    given = (f"packages={folder}", "--feedback", path, "--workers", workers)
    with ServerProcess(*given, log=tmp_path / "log.txt") as server:
        until(lambda: (tmp_path / "log.txt").read_text().count("serving version") == workers)

        def post(text):
            body = {"text": text, "accepted": ["x"]}
            return httpx.post(f"{server.url}/v1/taggers/packages/feedback", json=body, timeout=60)

        long = "first " * 50_000  # so that the log is shorter than the file
        assert post(long).status_code == 204
        for one in (server.process.pid, *children(server.process.pid)):
            _, most = resource.prlimit(one, resource.RLIMIT_FSIZE)
            resource.prlimit(one, resource.RLIMIT_FSIZE, (path.stat().st_size + 50, most))
        for number in range(4):
            refused = post(f"lost {number}")
            assert refused.status_code == 507
            assert refused.json()["detail"] == "The answer could not be stored: File too large. Send it again later."
        assert httpx.post(f"{server.url}/v1/taggers/packages/suggest", json={"text": TEXT}).status_code == 200
        assert list(read_feedback(path).by_text) == [long]
        for one in (server.process.pid, *children(server.process.pid)):
            _, most = resource.prlimit(one, resource.RLIMIT_FSIZE)
            resource.prlimit(one, resource.RLIMIT_FSIZE, (most, most))
        assert post("later").status_code == 204
    assert list(read_feedback(path).by_text) == [long, "later"]
    assert "feedback could not be stored: File too large" in (tmp_path / "log.txt").read_text()


# ---------------------------------------------------------------------- kills


def feedback_with_kills(folder, path, log, *, posts, kills, workers=1, seed=0):
    """Posts answers, kills the server with all its processes at random moments, and checks what the file holds."""
    chance = random.Random(seed)
    waiting = [f"text {number} ärger" for number in range(posts)]
    acknowledged, sent = set(), set()
    for left in range(kills, -1, -1):
        with ServerProcess(f"packages={folder}", "--feedback", path, "--workers", workers, log=log) as server:
            enough = chance.randint(1, 1 + 2 * len(waiting) // (left + 1)) if left else math.inf
            answers = count(1)

            def kill_in_time(server=server, enough=enough, answers=answers):
                if next(answers) == enough:
                    os.killpg(server.process.pid, signal.SIGKILL)

            rejected = [["y" * chance.randint(1, 900)] for _ in waiting]
            bodies = [{"text": text, "accepted": ["x"], "rejected": tags} for text, tags in zip(waiting, rejected)]
            posted = post_all(server.url, "/v1/taggers/packages/feedback", bodies, answered=kill_in_time)
            statuses = asyncio.run(posted)
            assert set(statuses) <= {204, 0, None} if left else set(statuses) <= {204}
            acknowledged.update(text for text, status in zip(waiting, statuses) if status == 204)
            sent.update(text for text, status in zip(waiting, statuses) if status is not None)
            waiting = [text for text, status in zip(waiting, statuses) if status is None]
            if left:
                server.kill(signal.SIGKILL)
    found = read_feedback(path)
    there = set(found.by_text)
    assert acknowledged <= there, f"lost: {len(acknowledged - there)} of {len(acknowledged)}"
    assert there <= sent
    assert found.records == len(there)
    assert all(len(answers.tags) == 2 for answers in found.by_text.values())
    return len(acknowledged), len(there)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_kill_loses_no_answer_that_was_acknowledged(folder, tmp_path, workers):
    paths = tmp_path / "feedback.jsonl", tmp_path / "log.txt"
    assert feedback_with_kills(folder, *paths, posts=200, kills=1, workers=workers)[0] >= 150


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_50_kills_lose_none_of_10_000_answers(folder, tmp_path, workers):
    paths = tmp_path / "feedback.jsonl", tmp_path / "log.txt"
    kept, there = feedback_with_kills(folder, *paths, posts=10_500, kills=50, workers=workers)
    assert kept >= 10_000
    record(
        f"answers around 50 kills, {workers} process{'es' * (workers > 1)}",
        {"acknowledged and kept": kept, "not acknowledged and kept": there - kept},
    )
