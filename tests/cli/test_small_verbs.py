"""help, completion, sample and warmup: what people try first, through the installed command."""

import csv
import json
import os
import shutil
import subprocess

import numpy as np
import pytest
from commands import COMMAND, failed, run

from tagwise._version import __version__
from tagwise.cli.main import VERBS
from tagwise.data import load_dataset, read_table


def test_help_is_the_overview_and_help_of_a_verb_is_its_help():
    overview = run("help")
    assert overview.returncode == 0
    assert overview.stdout == run("--help").stdout
    assert all(f"\n  {verb} " in overview.stdout for verb in VERBS)
    assert run("help", "train").stdout == run("train", "--help").stdout


def test_help_of_something_else_is_a_usage_error():
    assert failed(run("help", "trian"), 2, "No such command 'trian'; tagwise help lists them.")


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version(option):
    assert run(option).stdout == f"tagwise, version {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_one_that_the_shell_reads(shell, tmp_path):
    script = run("completion", shell)
    assert script.returncode == 0, script.stderr
    assert f"_TAGWISE_COMPLETE={shell}_complete" in script.stdout
    if shutil.which(shell):  # bash is everywhere; the others are read where they are to be had
        (tmp_path / "script").write_text(script.stdout)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True, timeout=60)


def test_choices_of_a_usage_error_are_legible():
    result = run("completion")
    assert failed(result, 2, "Missing argument", "Choose from:\n  bash,\n  zsh,\n  fish\n")
    assert "\\t" not in result.stderr


def test_what_the_shell_is_offered():
    def offered(*words):
        environment = {
            **os.environ,
            "_TAGWISE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["tagwise", *words]),
            "COMP_CWORD": str(len(words)),
        }
        answer = subprocess.run(COMMAND, check=True, capture_output=True, text=True, timeout=120, env=environment)
        return [line.split(",")[1] for line in answer.stdout.splitlines()]

    assert offered("e") == ["evaluate", "explain"]
    assert offered("completion", "f") == ["fish"]
    assert "--validation" in offered("train", "--v")


def test_the_sample_trains_a_tagger(tmp_path):
    rows, others = tmp_path / "packages.jsonl", tmp_path / "others.jsonl"
    result = run("sample", rows, "--test", others)
    assert result.returncode == 0, result.stderr
    assert f"{rows}: 4,875 packages, 7.1 tags per package" in result.stdout
    first = json.loads(rows.read_text().splitlines()[0])
    assert first["text"].startswith("0ad: Real-time strategy game")
    assert "game::strategy" in first["tags"]
    trained = run("train", rows, "--out", tmp_path / "tagger", "--model", "leml", "--set", "max_iter=1", "--quiet")
    assert trained.returncode == 0, trained.stderr
    measured = json.loads(run("evaluate", tmp_path / "tagger", others, "--json").stdout)
    assert measured["rows"] == 1625
    assert measured["metrics"]["P@1"] > 0.6


def test_the_sample_replaces_no_file_unasked(tmp_path):
    rows = tmp_path / "packages.jsonl"
    rows.write_text("mine")
    assert failed(run("sample", rows), 1, "packages.jsonl exists; name another file, or pass --overwrite")
    assert failed(run("sample", rows, "--test", rows, "--overwrite"), 1, "is FILE itself")
    assert rows.read_text() == "mine"
    assert run("sample", rows, "--overwrite").returncode == 0
    assert len(rows.read_text().splitlines()) == 4875


@pytest.mark.parametrize("name", ["packages.csv", "packages.tsv", "packages.csv.gz"])
def test_the_sample_is_what_its_name_says(tmp_path, name):
    run("sample", tmp_path / "packages.jsonl")
    assert run("sample", tmp_path / name).returncode == 0
    rows, plain = read_table(tmp_path / name), read_table(tmp_path / "packages.jsonl")
    assert (rows.texts, rows.tags) == (plain.texts, plain.tags)


@pytest.mark.parametrize("name", ["packages.parquet", "packages.xyz", "packages"])
def test_the_sample_in_another_format_is_refused(tmp_path, name):
    assert failed(run("sample", tmp_path / name), 1, "sample writes JSONL, CSV and TSV", "tagwise convert makes others")
    assert failed(run("sample", tmp_path / "a.jsonl", "--test", tmp_path / name), 1, "sample writes JSONL")
    assert not list(tmp_path.iterdir())


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
