"""help, completion, sample and warmup: what people try first, through the installed command."""

import csv
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from click.shell_completion import ShellComplete
from commands import COMMAND, failed, ok, run

from tagwise._version import __version__
from tagwise.cli.main import VERBS, tagwise
from tagwise.data import load_dataset, read_table


def test_help_is_the_overview_and_help_of_a_verb_is_its_help():
    overview = ok("help")
    assert overview.stdout == run("--help").stdout
    assert all(f"\n  {verb} " in overview.stdout for verb in VERBS)
    assert run("help", "train").stdout == run("train", "--help").stdout
    assert run("-V").stdout == run("--version").stdout == f"tagwise, version {__version__}\n"


def test_a_completion_script_is_one_that_the_shell_reads(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        script = ok("completion", shell)
        assert f"_TAGWISE_COMPLETE={shell}_complete" in script.stdout
        if shutil.which(shell):  # bash is everywhere; the others are read where they are to be had
            (tmp_path / "script").write_text(script.stdout)
            subprocess.run([shell, "-n", tmp_path / "script"], check=True, timeout=60)


def test_what_the_shell_is_offered():
    words = {"COMP_WORDS": "tagwise train --v", "COMP_CWORD": "2", "_TAGWISE_COMPLETE": "bash_complete"}
    answer = subprocess.run(
        COMMAND, check=True, capture_output=True, text=True, timeout=120, env={**os.environ, **words}
    )
    assert [line.split(",")[1] for line in answer.stdout.splitlines()] == ["--vocabulary", "--validation"]
    complete = ShellComplete(tagwise, {}, "tagwise", "_TAGWISE_COMPLETE")
    assert [one.value for one in complete.get_completions([], "e")] == ["evaluate", "explain"]
    assert [one.value for one in complete.get_completions(["completion"], "f")] == ["fish"]


def test_the_sample_trains_a_tagger(tmp_path):
    rows, others = tmp_path / "packages.jsonl", tmp_path / "others.jsonl"
    result = ok("sample", rows, "--test", others)
    assert f"{rows}: 4,875 packages, 7.1 tags per package" in result.stdout
    first = json.loads(rows.read_text().splitlines()[0])
    assert first["text"].startswith("0ad: Real-time strategy game")
    assert "game::strategy" in first["tags"]
    ok("train", rows, "--out", tmp_path / "tagger", "--model", "leml", "--set", "max_iter=1", "--quiet")
    measured = json.loads(run("evaluate", tmp_path / "tagger", others, "--json").stdout)
    assert measured["rows"] == 1625
    assert measured["metrics"]["P@1"] > 0.6


def test_the_sample_is_what_its_name_says_and_replaces_no_file_unasked(tmp_path):
    rows = tmp_path / "packages.jsonl"
    rows.write_text("mine")
    assert failed(run("sample", rows), 1, "packages.jsonl exists; name another file, or pass --overwrite")
    assert failed(run("sample", rows, "--test", rows, "--overwrite"), 1, "is FILE itself")
    assert rows.read_text() == "mine"
    ok("sample", rows, "--overwrite")
    plain = read_table(rows)
    assert len(plain.texts) == 4875
    for name in ("packages.csv", "packages.tsv", "packages.csv.gz"):
        ok("sample", tmp_path / name)
        found = read_table(tmp_path / name)
        assert (found.texts, found.tags) == (plain.texts, plain.tags)
    for name in ("packages.parquet", "packages.xyz", "packages"):
        for arguments in ([tmp_path / name], [tmp_path / "a.jsonl", "--test", tmp_path / name]):
            assert failed(run("sample", *arguments), 1, "sample writes JSONL, CSV and TSV")
        assert not (tmp_path / "a.jsonl").exists()


def test_demo_is_the_same_for_every_number_of_threads():
    first, second = (run("demo", "--rank", "20", "--max-iter", "2", "--jobs", jobs) for jobs in ("1", "2"))
    for words in ("nDCG", "PSP", "predicted tags", "true tags", "in all"):
        assert words in first.stdout
    assert float(re.search(r"P: precision of the first k tags\s+([\d.]+)", first.stdout)[1]) > 70
    assert first.stdout.count("├─") >= 9
    assert "iteration 1/2" in first.stderr
    assert first.stdout.rpartition("Features")[0] == second.stdout.rpartition("Features")[0]
    found = json.loads(run("demo", "--rank", "20", "--max-iter", "2", "--json").stdout)
    assert found["rounds"] == 2
    assert found["metrics"]["P@1"] > 0.7


def test_bad_calls_say_what_is_wrong():
    for arguments, code, *words in (
        (["train-everything"], 2, "No such command"),
        (["help", "trian"], 2, "No such command 'trian'; tagwise help lists them."),
        (["completion"], 2, "Missing argument", "Choose from:\n  bash,\n  zsh,\n  fish\n"),
        (["demo", "--rank", "0"], 1, "tagwise: rank must be at least 1; found 0."),
        (["demo", "--rank", "many"], 2, "not a valid integer"),
    ):
        assert failed(run(*arguments), code, *words)


@pytest.mark.slow
def test_after_a_warm_up_nothing_is_left_to_compile(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def said(*arguments):
        command = [*COMMAND, *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=environment)
        assert result.returncode == 0, result.stderr
        return result.stderr

    assert said("warmup").count("Compiling for this machine") == 1
    assert "warning" not in said("warmup")
    again = subprocess.run([*COMMAND, "warmup"], capture_output=True, text=True, timeout=1800, env=environment)
    assert again.stdout == "Nothing had to be compiled: it was, for this machine and this version.\n"
    said("sample", tmp_path / "rows.jsonl", "--test", tmp_path / "others.jsonl")
    tagger = tmp_path / "tagger"
    for command in (
        ("train", tmp_path / "rows.jsonl", "--out", tagger, "--validation", "0.1"),
        ("evaluate", tagger, tmp_path / "others.jsonl", "--report", tmp_path / "report.html"),
        ("predict", tagger, tmp_path / "others.jsonl"),
        ("explain", tagger, "a fast web server with plugins"),
    ):
        assert "Compiling" not in said(*command)
    # Few rows and few tags, as most first tables have them.
    data = load_dataset("debtags-sample")
    labels = np.argsort(-data.Y_train.getnnz(axis=0), kind="stable")[20:35]
    lines = [["text", *(data.label_names[label] for label in labels)]]
    on = data.Y_train[:, labels].toarray().astype(int).tolist()
    lines += [[data.texts_train[row], *on[row]] for row in range(1000, 1770)]
    with (tmp_path / "wide.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(lines)
    for model in ("auto", "binary-relevance", "leml", "reml"):
        train = ("train", tmp_path / "wide.csv", "--model", model, "--out", tmp_path / model, "--validation", "0.1")
        assert "Compiling" not in said(*train)
        assert "Compiling" not in said("predict", tmp_path / model, "a fast web server")
