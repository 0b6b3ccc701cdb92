"""The command as a person runs it, in this process or as one of its own, and small files to run it on."""

import io
import json
import os
import random
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

# The command as it is installed beside this Python; another name of it is `python -m tagwise`.
_SCRIPT = Path(sys.executable).with_name("tagwise")
COMMAND = [str(_SCRIPT)] if _SCRIPT.exists() else [sys.executable, "-m", "tagwise"]

WORDS = {
    "pets": ["cat", "dog", "tail", "fur"],
    "drinks": ["wine", "beer", "glass", "bar"],
    "food": ["bread", "cheese", "plate", "oven"],
    "garden": ["tree", "apple", "prune", "soil"],
}


@dataclass
class Finished:
    """What a run of the command in this process left behind."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments, stdin=""):
    """``tagwise`` with these arguments, in this process: the same as :func:`run_process`, without its start."""
    from tagwise.cli import run as tagwise

    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for name in ("out", "err")}
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    code = 0
    with redirect_stdout(streams["out"]), redirect_stderr(streams["err"]), mock.patch.object(sys, "stdin", given):
        try:
            tagwise([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code or 0
    return Finished(code, *(stream.buffer.getvalue().decode() for stream in streams.values()))


def run_process(*arguments, cwd=None, stdin=None, **options):
    """The installed ``tagwise`` with these arguments, as a process; standard output and error as text."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        input=stdin,
        timeout=600,
        cwd=cwd,
        **options,
    )


def on_terminal(*arguments, columns=100, stdout_too=False):
    """``tagwise`` with standard error (and output) on a terminal: the exit code, and what the terminal was sent."""
    import fcntl
    import pty
    import struct
    import termios

    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=end if stdout_too else subprocess.DEVNULL,
        stderr=end,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm-256color"},
    )
    os.close(end)
    shown = b""
    with suppress(OSError), open(terminal, "rb", buffering=0) as screen:  # an error where the other end is closed
        while part := screen.read(1 << 16):
            shown += part
    return process.wait(timeout=600), shown.decode()


def lines_of(shown):
    """What a terminal was sent, as lines without colours; a bar that is drawn again is a line again."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown))


def failed(result, code, *words):
    """The command ended with this code and one sentence that holds these words."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr, result.stderr
    for word in words:
        assert word in result.stderr, result.stderr
    return True


def some_rows(n_rows=80, seed=0):
    """Rows whose texts give their tags away."""
    chance = random.Random(seed)
    rows = []
    for number in range(n_rows):
        tags = chance.sample(sorted(WORDS), chance.choice([1, 1, 2]))
        text = " ".join(chance.choice(WORDS[tag]) for tag in tags for _ in range(5))
        rows.append({"id": f"r{number}", "text": text, "labels": tags, "year": 2000 + number})
    return rows


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
