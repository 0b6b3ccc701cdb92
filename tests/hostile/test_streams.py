"""Standard streams that are closed, full or gone, for every verb: success, or a sentence and a documented exit code."""

import io
import os
import shlex
import subprocess
import sys
from contextlib import suppress

import pytest
from commands import COMMAND, failed, run, some_rows, write_jsonl

from tagwise.cli import run as tagwise
from tagwise.cli.main import VERBS

# Small work for every verb; {out} is a new name.
WORK = {
    "train": "{rows} --out {out} --model binary-relevance",
    "predict": "{tagger} {rows} --top 1",
    "evaluate": "{tagger} {rows}",
    "compare": "{rows} --model binary-relevance",
    "tune": "{rows} --model leml --budget 1 --min-rows 60 --jobs 1 --out {out}",
    "explain": "{tagger} dog",
    "inspect": "{tagger}",
    "convert": "{rows} {out}.xmc --json",
    "demo": "--rank 1 --max-iter 1",
    "reproduce": "mse --list",
    "sample": "{out}.jsonl",
    "completion": "bash",
    "help": "train",
    "ask": "{tagger} {rows} --strategy top",
    "drift": "{tagger} {rows} --reference {rows}",
    "labels": "{tagger} --rename pets=animals --out {out}",
    "update": "{updatable} {rows} --out {out}",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of rows, a tagger trained on it, and one that can be updated."""
    folder = tmp_path_factory.mktemp("streams")
    rows = write_jsonl(folder / "rows.jsonl", some_rows())
    result = run("train", rows, "--out", folder / "tagger", "--model", "binary-relevance", "--quiet")
    assert result.returncode == 0, result.stderr
    result = run("train", rows, "--out", folder / "updatable", "--model", "binary-relevance", "--updatable", "--quiet")
    assert result.returncode == 0, result.stderr
    return {"rows": rows, "tagger": folder / "tagger", "updatable": folder / "updatable"}


def arguments(verb, files, tmp_path):
    return [verb, *(part.format(**files, out=tmp_path / "out") for part in WORK[verb].split())]


def run_with(monkeypatch, given, **streams):
    """Run the command in this process with other standard streams: exit code, and what it said if that was kept."""
    kept = io.TextIOWrapper(io.BytesIO(), write_through=True)
    with monkeypatch.context() as patched:
        for name, stream in {"stderr": kept, **streams}.items():
            patched.setattr(sys, name, stream)
        try:
            tagwise(given)
            code = 0
        except SystemExit as end:
            code = end.code
        for name in streams:
            if streams[name] is None:
                getattr(sys, name).close()
    return code, kept.buffer.getvalue().decode()


@pytest.fixture
def full():
    """A stream onto a disk that is full."""
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    with suppress(OSError), open("/dev/full", "w", encoding="utf-8", buffering=1) as stream:
        yield stream


def test_every_verb_has_work_here():
    assert set(VERBS) - set(WORK) == {
        "warmup",
        "serve",
    }  # one fits four models and says a line, the other has tests of its own


@pytest.mark.parametrize("verb", WORK)
def test_closed_streams_are_no_error(verb, files, tmp_path, monkeypatch):
    """In 0.1.0 they were a traceback: Python has None in the place of a stream that was closed before it started."""
    given = arguments(verb, files, tmp_path)
    assert run_with(monkeypatch, given, stdin=None, stdout=None, stderr=None)[0] == 0
    if verb == "train":
        assert run("predict", tmp_path / "out", "dog").stdout.startswith("pets ")


@pytest.mark.parametrize("verb", WORK)
def test_a_full_disk_behind_standard_output_is_1_and_a_sentence(verb, files, tmp_path, monkeypatch, full):
    code, said = run_with(monkeypatch, arguments(verb, files, tmp_path), stdout=full)
    assert code == 1, said
    assert said.splitlines()[-1].endswith("No space left on device.")
    if verb == "train":
        assert f"The model is saved in {tmp_path / 'out'}." in said
        assert run("predict", tmp_path / "out", "dog").returncode == 0


def test_a_full_disk_behind_standard_error_stops_nothing(files, tmp_path, monkeypatch, full):
    given = arguments("train", files, tmp_path)
    assert run_with(monkeypatch, given, stderr=full)[0] == 0
    assert run_with(monkeypatch, given, stderr=full)[0] == 1  # the folder exists now
    assert run_with(monkeypatch, ["nonsense"], stderr=full)[0] == 2


@pytest.mark.skipif(sys.platform == "win32", reason="shells close streams in other ways")
@pytest.mark.parametrize(
    ("line", "code"), [("train {rows} --out {out} --quiet >&- 2>&- <&-", 0), ("predict {tagger} - <&-", 1)]
)
def test_streams_as_a_shell_closes_them(line, code, files, tmp_path):
    """The same in processes of their own."""
    shell = f"{shlex.join(COMMAND)} {line.format(**files, out=tmp_path / 'out')}"
    result = subprocess.run(shell, shell=True, capture_output=True, encoding="utf-8", timeout=600)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr
    if code == 0:
        assert run("predict", tmp_path / "out", "dog").returncode == 0


def test_standard_input_that_is_no_utf_8(files, monkeypatch):
    given = io.TextIOWrapper(io.BytesIO(b"dog\xe9"), encoding="utf-8")
    code, said = run_with(monkeypatch, ["explain", str(files["tagger"]), "-"], stdin=given)
    assert code == 1
    assert "standard input is not UTF-8 at byte 4" in said


def test_an_end_of_input_inside_the_library_is_no_interrupt(files, monkeypatch):
    """click takes every EOFError for Ctrl-C."""

    def ends_early(path):
        raise EOFError("Ran out of input")

    monkeypatch.setattr("tagwise.cli.inspect.load", ends_early)
    with pytest.raises(EOFError, match="Ran out of input"):
        tagwise(["inspect", str(files["tagger"])])


def test_memory_that_runs_out_is_a_sentence(files, monkeypatch):
    def too_large(path):
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr("tagwise.cli.inspect.load", too_large)
    assert failed(run("inspect", files["tagger"]), 1, "tagwise: not enough memory. Unable to allocate 7.28 TiB")
