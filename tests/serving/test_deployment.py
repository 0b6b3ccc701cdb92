"""The commands of the Dockerfile and of the systemd unit in docs/serving.md are ones that run."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from copy import copy
from pathlib import Path

import httpx
import pytest
from serving import ServerProcess

from tagwise.cli.serve import command

ROOT = Path(__file__).parents[2]


def words_of(instruction):
    found = re.search(rf"^\s*{instruction} (\[.*\])$", (ROOT / "Dockerfile").read_text(), flags=re.M)
    return json.loads(found[1])


def test_the_container_serves_what_is_mounted(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys.txt").write_text("a-key-of-16-letters-or-more\n")
    start = re.search(r"^ENTRYPOINT (\[.*\])\nCMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), flags=re.M)
    assert json.loads(start[1]) == ["tagwise", "serve"]
    with ServerProcess(*json.loads(start[2]), log=tmp_path / "log.txt") as server:
        port = server.url.rpartition(":")[2]
        body = {"text": "a web server", "accepted": ["web::server"]}
        url = f"http://127.0.0.1:{port}/v1/taggers/packages/feedback"
        assert httpx.post(url, json=body).status_code == 401
        assert httpx.post(url, json=body, headers={"X-API-Key": "a-key-of-16-letters-or-more"}).status_code == 204
        python, dash_c, program = words_of("CMD")
        assert (python, dash_c) == ("python", "-c")
        subprocess.run([sys.executable, "-c", program.replace(":8000", f":{port}")], check=True, timeout=60)
    assert (tmp_path / "feedback.jsonl").read_text().count("\n") == 1


def test_the_context_of_the_image_is_what_it_copies():
    copied = re.findall(r"^COPY (.*) \./?\S*$", (ROOT / "Dockerfile").read_text(), flags=re.M)
    names = {name for line in copied for name in line.split()}
    assert all((ROOT / name).exists() for name in names)
    assert names == {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}


def test_hadolint_has_nothing_to_say():
    hadolint = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_image_is_built_by_commands_that_run(tmp_path):
    """What RUN says, in an environment of its own, but for the user, whom only root can make."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    for line in re.findall(r"^COPY (.*) \./?\S*$", text, flags=re.M):
        for name in line.split():
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, tmp_path)
    install, warm_up = re.findall(r"^RUN (.*)$", text, flags=re.M)
    install, makes_user = install.split("&& ", 1)
    assert makes_user.startswith("useradd")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "python"], check=True)
    kept = re.search(r"^ENV NUMBA_CACHE_DIR=(\S+)$", text, flags=re.M)[1]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"PATH": f"{tmp_path}/python/bin:{env['PATH']}", "NUMBA_CACHE_DIR": f"{tmp_path}{kept}"}
    for step in (install, warm_up, "tagwise serve --help"):
        subprocess.run(["sh", "-ec", step], cwd=tmp_path, env=env, check=True)
    assert shutil.which("tagwise", path=env["PATH"]) == f"{tmp_path}/python/bin/tagwise"
    assert any(Path(env["NUMBA_CACHE_DIR"]).rglob("*.nbc"))


def test_the_unit_starts_a_command_that_exists():
    unit = re.search(r"^ExecStart=(.*)$", (ROOT / "docs" / "serving.md").read_text(), flags=re.M)[1]
    program, verb, *arguments = shlex.split(unit)
    assert program.endswith("/tagwise")
    assert verb == "serve"
    # A copy: click keeps in a command how it was asked for help.
    found = copy(command).make_context("serve", arguments).params
    assert found["workers"] == 2
    assert found["folders"] == ("packages=/srv/tagwise/packages",)
