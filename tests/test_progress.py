"""The bar of a fit, and how text is shown to people."""

import io
import json
import os
import re
import sys
from contextlib import suppress

import pytest

from tagwise import progress as progress_module
from tagwise.progress import FitProgress, echo_err, visible


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, steps, error=None):
    monkeypatch.setattr(sys, "stderr", Terminal())
    try:
        with FitProgress("LEML", 10, verbose=1) as progress:
            for step in range(steps):
                progress.step(100.0 - step)
            if error is not None:
                raise error
    except KeyboardInterrupt:
        pass
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sys.stderr.getvalue())
    return re.findall(r"\d+/\d+", plain)[-1]


def test_only_a_fit_that_ended_by_itself_ends_with_a_full_bar(monkeypatch):
    assert [shown(monkeypatch, steps) for steps in (1, 3)] == ["1/1", "3/3"]
    assert shown(monkeypatch, 3, KeyboardInterrupt()) == "3/10"


def test_the_bar_says_that_something_is_compiled(monkeypatch):
    from tagwise.kernels import compiled

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(compiled, "n_compiled", lambda: 17)
    for compiling in (False, True):
        monkeypatch.setattr(compiled, "is_compiling", lambda now=compiling: now)
        with FitProgress("LEML", 10, verbose=1) as progress:
            progress.step(1.0)
        assert ("compiling: 17 functions" in sys.stderr.getvalue()) == compiling


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [
        (3, 10, [1, 2, 3]),
        (20, 20, list(range(1, 21))),
        (123, 123, [1, 2, 3, 4, 5, *range(7, 123, 7), 123]),
        (9, 123, [1, 2, 3, 4, 5, 7, 9]),
    ],
)
def test_without_a_terminal_many_iterations_get_few_lines(capsys, monkeypatch, done, total, shown):
    """BinaryRelevance printed 123 lines, one for each block of labels, and called them iterations."""
    monkeypatch.setattr(progress_module, "_QUIET_SECONDS", 1e9)
    with FitProgress("BinaryRelevance", total, steps="block", verbose=1) as progress:
        for _ in range(done):
            progress.step(1.0)
    lines = capsys.readouterr().err.splitlines()
    assert [int(re.match(r"BinaryRelevance: block (\d+)/", line)[1]) for line in lines] == shown
    assert len(progress.history) == done


def test_without_a_terminal_slow_iterations_get_a_line_each(capsys, monkeypatch):
    monkeypatch.setattr(progress_module, "_QUIET_SECONDS", 0.0)
    with FitProgress("LEML", 1000, verbose=1) as progress:
        for _ in range(8):
            progress.step(1.0)
    assert len(capsys.readouterr().err.splitlines()) == 8


def test_what_a_terminal_heeds_is_escaped_and_all_else_stays():
    assert visible("a\x1b[2J\x00\x9b\x7fb") == r"a\u001b[2J\u0000\u009b\u007fb"
    assert visible("a\tb\r\nc\u2028") == r"a\tb\r\nc\u2028"
    assert visible("\u202eabc\u2066\ud800") == r"\u202eabc\u2066\ud800"
    assert visible("a\tb\n\x1b", keep="\t\n") == "a\tb\n\\u001b"
    usual = "Löwe שלום مرحبا क्‍ष 👩‍💻 “x” \\n 100 %"
    assert visible(usual) == usual
    odd = {"a\x7f\u202e\ud800\n": ["\x9b"]}
    assert json.loads(visible(json.dumps(odd, ensure_ascii=False, indent=1), keep="\n")) == odd


@pytest.mark.parametrize("stream", ["none", "closed", "full"])
def test_a_fit_goes_on_when_nobody_can_be_told(monkeypatch, stream):
    """Standard error that is closed, or on a full disk."""
    device = "/dev/full" if stream == "full" else os.devnull
    if not os.path.exists(device):
        pytest.skip(f"there is no {device}")
    with suppress(OSError), open(device, "w", buffering=1) as target:
        if stream == "closed":
            target.close()
        monkeypatch.setattr(sys, "stderr", None if stream == "none" else target)
        echo_err("a sentence")
        with FitProgress("LEML", 1, verbose=1) as progress:
            done = progress.step(1.0)
            progress.note("a note")
    assert done is False
