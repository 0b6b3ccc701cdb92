"""``--dask``: train and predict on a cluster give the files that they give here; and what is refused."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from commands import COMMAND, failed, lines_of, on_terminal, run, some_rows, write_jsonl
from dask.distributed import LocalCluster
from systems import needs_signals

from tagwise import load


@pytest.fixture(scope="module")
def address():
    """The address of a scheduler with two workers."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table in one file and in four, one of them empty and one in a folder of its own."""
    folder = tmp_path_factory.mktemp("table")
    rows = [{**row, "text": row["text"] if number % 30 else ""} for number, row in enumerate(some_rows(95), 1)]
    write_jsonl(folder / "all.jsonl", rows)
    (folder / "parts" / "more").mkdir(parents=True)
    for name, part in {"a": rows[:50], "b": [], "more/c": rows[50:53], "more/d": rows[53:]}.items():
        with gzip.open(folder / "parts" / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in part)
    assert train(folder / "all.jsonl", folder / "local").returncode == 0
    return folder


def train(files, out, *more):
    options = ("--model", "leml", "--set", "rank=3", "--validation", "0.2", "--skip-faulty", "--json")
    return run("train", files, "--out", out, *options, *more)


def predict(folder, out, *more, files="parts/**/*.gz"):
    return run("predict", folder / "local", folder / files, "--out", out, *more)


def test_train_gives_the_tagger_of_the_same_rows(folder, address, tmp_path):
    local = json.loads(train(folder / "all.jsonl", tmp_path / "local").stdout)
    done = train(folder / "parts/**/*.gz", tmp_path / "tagger", "--dask", address)
    assert done.returncode == 0, done.stderr
    assert "4 files: 92 rows read, 3 refused: 95 lines." in done.stderr
    assert "left out: 3 faulty rows; the first:" in done.stderr
    found = json.loads(done.stdout)
    for name in ("rows", "features", "tags", "assignments", "calibrated", "validation", "rows_without_words"):
        assert found[name] == pytest.approx(local[name]), name
    mine, theirs = load(tmp_path / "tagger"), load(tmp_path / "local")
    assert mine.tags_ == theirs.tags_
    assert mine.n_jobs == theirs.n_jobs
    assert "n_jobs" not in done.stderr, "workers that cannot have all cores say nothing about it"
    assert mine.features_.idf_.tobytes() == theirs.features_.idf_.tobytes()
    assert mine.calibration_ is not None


def test_predict_writes_what_it_would_show(folder, address, tmp_path):
    options = ["--top", "2", "--id", "id"]
    done = predict(folder, tmp_path / "out", "--dask", address, *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"95 rows of 4 files answered; all answers are in {tmp_path / 'out'}.\n"
    assert "warning: 3 of 95 rows without text got no tags." in done.stderr
    written = sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.name[0] != ".")
    assert [str(path.relative_to(tmp_path / "out")) for path in written] == [
        f"{name}.txt" for name in ("a", "b", "more/c", "more/d")
    ]
    shown = "".join(
        run("predict", folder / "local", folder / "parts" / f"{name}.jsonl.gz", *options).stdout
        for name in ("a", "more/c", "more/d")
    )
    assert "".join(path.read_text() for path in written) == shown


def test_predict_resumes_where_it_was_cut_off(folder, address, tmp_path):
    out = tmp_path / "out"
    assert predict(folder, out, "--dask", address).returncode == 0
    before = {name: (out / name).read_text() for name in ("a.txt", "more/c.txt")}
    (out / "a.txt").write_text("kept")
    (out / "more/c.txt").unlink()
    code, shown = on_terminal("predict", folder / "local", folder / "parts/**/*.gz", "--out", out, "--dask", address)
    assert code == 0
    assert any(re.match(r"files .* 1/1", line) for line in lines_of(shown))
    (out / "more/c.txt").unlink()
    done = predict(folder, out, "--dask", address)
    assert f"{out}: 3 files of 4 answered by an earlier run; kept as they are." in done.stderr
    assert done.stdout == f"3 rows of 1 file answered; all answers are in {out}.\n"
    assert (out / "a.txt").read_text() == "kept"
    assert (out / "more/c.txt").read_text() == before["more/c.txt"]
    assert failed(predict(folder, out, "--dask", address, "--top", "3"), 1, "of another tagger, or to other options")


def test_a_faulty_file_costs_its_own_answers_alone(folder, address, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", some_rows(3))
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n{\n')
    out = tmp_path / "out"
    done = run("predict", folder / "local", tmp_path / "*.jsonl", "--dask", address, "--out", out)
    assert failed(done, 1, f"tagwise: {tmp_path / 'b.jsonl'}, line 2, column 2: invalid JSON")
    assert sorted(os.listdir(out)) == [".tagwise-predict.json", "a.txt"]


def test_what_is_refused(folder, address, tmp_path):
    files, out, tagger = folder / "parts/**/*.gz", tmp_path / "out", folder / "local"
    twins = tmp_path / "twins"
    twins.mkdir()
    for name in ("a.jsonl", "a.ndjson"):
        write_jsonl(twins / name, some_rows(3))
    to, dask = ("--out", out), ("--dask", address)
    for arguments, code, words in (
        (("predict", tagger, files, *to), 2, "--out needs --dask"),
        (("predict", tagger, files, *dask), 2, "--dask needs --out"),
        (("predict", tagger, files, *to, *dask, "--line-by-line"), 2, "leave --line-by-line out"),
        (("predict", tagger, files, *to, *dask, "--group-by", "id"), 1, 'keep all rows apart with --group-by ""'),
        (("predict", tagger, files, "--out", folder, *dask), 1, "is not empty, and not of an earlier run"),
        (("predict", tagger, folder / "nothing-*", *to, *dask), 1, "none matches it as a pattern"),
        (("predict", tagger, twins / "*", *to, *dask), 1, "would both be answered in"),
        (("predict", tagger, files, *to, "--dask", "local:0"), 1, "a number of processes from 1"),
        (("predict", tagger, files, *to, "--dask", "elsewhere"), 1, "is not the address of a Dask scheduler"),
        (("train", files, *to, *dask, "--feedback", "answers.jsonl"), 2, "read apart"),
        (("train", files, *to, *dask, "--id", "id"), 2, "read apart"),
        (("train", files, *to, *dask, "--group-by", "id"), 1, "read apart"),
        (("train", files, *to, *dask, "--model", "sleec"), 1, "SLEEC does not learn on a cluster"),
    ):
        assert failed(run(*arguments), code, words)
        assert not out.exists()


def test_a_missing_extra_is_named(folder, tmp_path):
    code = "import sys; sys.modules['dask'] = None; from tagwise.cli import run; run(sys.argv[1:])"
    arguments = ["train", folder / "all.jsonl", "--out", tmp_path / "out", "--dask", "local:2"]
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert failed(
        done, 1, 'tagwise: --dask: tagwise.distributed needs Dask; install it by pip install "tagwise[dask]".'
    )


@needs_signals
def test_processes_of_its_own_end_with_the_command(folder, tmp_path):
    """Also after Ctrl-C, which all of them get."""
    options = ("--out", tmp_path / "out", "--dask", "local:2", "--model", "leml", "--skip-faulty")
    running = subprocess.Popen(
        [*COMMAND, "train", "parts/**/*.gz", *options],
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert "guessed" in running.stderr.readline()
    os.killpg(running.pid, signal.SIGINT)
    shown = running.communicate(timeout=600)[1]
    assert running.returncode == 130
    assert shown.rstrip().endswith("interrupted")
    assert "Traceback" not in shown
    # The last of them are gone a moment after the command.
    assert any(is_empty(running.pid) or time.sleep(0.1) for _ in range(100))


def is_empty(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False
