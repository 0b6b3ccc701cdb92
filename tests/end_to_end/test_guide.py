"""The guide does what it says: its commands run in their order, and its server answers."""

import csv
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import COMMAND, run

GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
TEXT = "how to prune an apple tree"
WORDS = {
    "gardening": ["prune", "tree", "soil", "winter", "spade"],
    "fruit": ["apple", "pear", "cherry", "ripe", "orchard"],
    "baking": ["sourdough", "oven", "scale", "flour", "crust"],
    "travel": ["train", "ticket", "coast", "hotel", "map"],
}


def write_articles(path, n_rows, seed):
    chance = random.Random(seed)
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["id", "body", "subjects"])
        for number in range(n_rows):
            tags = chance.sample(sorted(WORDS), chance.choice([1, 2]))
            body = "how to, " + " ".join(chance.choice(WORDS[tag]) for tag in tags for _ in range(4))
            table.writerow([f"a{number}", body, ";".join(tags)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which all commands of the guide have run, with what each of them answered."""
    folder = tmp_path_factory.mktemp("guide")
    write_articles(folder / "articles.csv", 120, seed=0)
    write_articles(folder / "other-articles.csv", 40, seed=1)
    write_articles(folder / "new.csv", 10, seed=2)
    (folder / "incoming.txt").write_text(f"{TEXT}\nthe train along the coast\n", encoding="utf-8")
    before = os.getcwd()
    os.chdir(folder)
    try:
        for command in re.findall(r"^    tagwise (.*)$", GUIDE, flags=re.MULTILINE):
            if set(command) & set("<>|"):
                shell = f"{shlex.join(COMMAND)} {command}"
                result = subprocess.run(shell, shell=True, capture_output=True, encoding="utf-8", timeout=600)
            else:
                result = run(*shlex.split(command))
            assert result.returncode == 0, f"{command}\n{result.stderr}"
    finally:
        os.chdir(before)
    return folder


def test_the_commands_leave_what_the_guide_promises(folder):
    assert (folder / "tagger" / "manifest.json").is_file()
    assert "measured on other-articles.csv" in (folder / "report.html").read_text(encoding="utf-8")
    assert json.loads((folder / "leml.json").read_text(encoding="utf-8"))["finished"]
    answers = [json.loads(line) for line in (folder / "suggestions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [answer["id"] for answer in answers] == [f"a{number}" for number in range(10)]


@pytest.fixture(scope="module")
def server(folder):
    """The address of the guide's server, which runs in the folder of its tagger."""
    script = re.search(r"^```python\n(# serve\.py\n.*?)^```", GUIDE, flags=re.MULTILINE | re.DOTALL).group(1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "8000" in script
    (folder / "serve.py").write_text(script.replace("8000", str(port)), encoding="utf-8")
    process = subprocess.Popen([sys.executable, "serve.py"], cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 300
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < end
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=600)


def ask(address, content):
    with urllib.request.urlopen(address, data=content, timeout=300) as response:
        assert response.headers["Content-Type"] == "application/json"
        return json.loads(response.read())


def test_the_server_suggests_what_the_command_does(folder, server):
    sent = re.search(r"^    curl --data '(.*)' http://127\.0\.0\.1:8000$", GUIDE, flags=re.MULTILINE).group(1)
    answer = ask(server, sent.encode())
    expected = json.loads(run("predict", folder / "tagger", TEXT, "--json").stdout)["suggestions"]
    assert [(found["tag"], found["probability"]) for found in answer] == [
        (found["tag"], found["probability"]) for found in expected
    ]
    assert {found["tag"] for found in answer[:2]} == {"gardening", "fruit"}
    assert set(answer[0]["words"]) <= {"how", "to", "prune", "apple", "tree"}


def test_the_server_answers_many_at_once(server):
    texts = [json.dumps({"text": " ".join(WORDS[tag])}).encode() for tag in sorted(WORDS)] * 6
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda content: ask(server, content), texts))
    assert [answer[0]["tag"] for answer in answers] == sorted(WORDS) * 6


@pytest.mark.parametrize("content", [b"no JSON", b"{}", b'{"text": 3}', b"[]", b""])
def test_the_server_refuses_what_it_cannot_read(server, content):
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(server, content)
    assert caught.value.code == 400
