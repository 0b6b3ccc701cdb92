"""The command as a person runs it, in this process or as one of its own, and small files to run it on."""

import io
import json
import os
import random
import re
import sys
import threading
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
    """Exit code and output of a run of the command in this process."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments, stdin="", encoding="utf-8"):
    """``tagwise`` with these arguments, in this process, which spares the two seconds of a start."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) for _ in range(2)]
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    return Finished(
        _run_with(arguments, given, *streams), *(stream.buffer.getvalue().decode(encoding) for stream in streams)
    )


def _run_with(arguments, stdin, stdout, stderr):
    """The exit code of ``tagwise`` in this process with these standard streams."""
    from tagwise.cli import run as tagwise

    with redirect_stdout(stdout), redirect_stderr(stderr), mock.patch.object(sys, "stdin", stdin):
        try:
            tagwise([str(argument) for argument in arguments])
        except SystemExit as end:
            return end.code or 0
    return 0


def ok(*arguments, **options):
    """As :func:`run`, for what must succeed."""
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


def on_terminal(*arguments, columns=100, stdout_too=False):
    """``tagwise`` with standard error (and output) on a terminal: the exit code, and what the terminal was sent."""
    import pty

    terminal, end = pty.openpty()
    shown = []

    def read():
        with suppress(OSError), open(terminal, "rb", buffering=0) as screen:  # an error where the other end is closed
            while part := screen.read(1 << 16):
                shown.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    size = {"COLUMNS": str(columns), "LINES": "40", "TERM": "xterm-256color"}
    with (
        open(end, "w", encoding="utf-8", buffering=1) as screen,
        open(os.devnull, "w+", encoding="utf-8") as nowhere,
        mock.patch.dict(os.environ, size),
    ):
        code = _run_with(arguments, nowhere, screen if stdout_too else nowhere, screen)
    reader.join(timeout=600)
    return code, b"".join(shown).decode()


def lines_of(shown):
    """Lines that a terminal was sent, without colours; a bar that is drawn again is a line again."""
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
