"""Arguments that people get wrong or invent: a sentence and a documented exit code, before any work."""

import click
import pytest
from commands import failed, run, some_rows, write_jsonl

from tagwise.cli.main import VERBS, tagwise

ODD = ["", "abc", "0", "-1", "nan", "inf", "-inf", "1e400", "9" * 25]
# Where such a value may be taken, the work is small.
WORK = {
    "train": "{rows} --out {out} --model leml --set rank=2 --quiet",
    "predict": "{tagger} dog",
    "evaluate": "{tagger} {rows}",
    "compare": "{rows} --model binary-relevance --quiet",
    "tune": "{rows} --model leml --budget 0.1 --min-rows 60 --jobs 1 --out {out} --quiet",
    "explain": "{tagger} dog",
    "inspect": "{tagger} --tag pets",
    "convert": "{rows} {out}.xmc",
    "ask": "{tagger} {rows}",
    "drift": "{tagger} {rows}",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of rows, a tagger trained on it, one that is not calibrated, and a matrix."""
    folder = tmp_path_factory.mktemp("arguments")
    files = {"tagger": folder / "tagger", "plain": folder / "plain", "matrix": folder / "X.npz"}
    files["rows"] = write_jsonl(folder / "rows.jsonl", some_rows())
    for name, more in (("tagger", ["--validation", "0.25"]), ("plain", [])):
        options = ["--out", files[name], "--model", "binary-relevance", "--quiet", *more]
        assert run("train", files["rows"], *options).returncode == 0
    assert run("convert", files["rows"], files["matrix"]).returncode == 0
    return files


def numeric_options(verb):
    command = tagwise.get_command(click.Context(tagwise), verb)
    numbers = (click.types.IntParamType, click.types.FloatParamType)
    return [option.opts[0] for option in command.params if isinstance(option.type, numbers)]


@pytest.mark.parametrize(("verb", "option"), [(verb, option) for verb in WORK for option in numeric_options(verb)])
def test_odd_numbers_are_a_sentence_or_taken(verb, option, files, tmp_path):
    for number, value in enumerate(ODD):
        words = WORK[verb].format(**files, out=tmp_path / f"out{number}").split()
        result = run(verb, *words, option, value)  # raises what is not an error of the command line
        assert result.returncode in (0, 1, 2), result.stderr
        if result.returncode:
            assert result.stderr.rstrip().endswith("."), result.stderr
            assert not list(tmp_path.glob(f"out{number}*")), "nothing is left of what was refused"


def test_every_verb_is_tried():
    without_numbers = {"sample", "warmup", "completion", "help", "labels"}
    assert not any(numeric_options(verb) for verb in without_numbers)
    assert set(VERBS) - set(WORK) == {"demo", "reproduce", "serve", "update"} | without_numbers


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("predict {tagger} dog --top 1000000000000", 0, ""),
        ("predict {tagger} dogs --text body", 2, "'dogs' is not a file, so it is read as a text"),
        ("predict {tagger} - --format parquet", 1, "--format parquet cannot be read from standard input"),
        ("predict {tagger} - --format npz", 1, "--format npz cannot be read from standard input"),
        ("predict {plain} dog --threshold calibrated", 1, "needs a calibrated tagger"),
        ("predict {plain} dog --min-probability 0.5", 1, "min_probability needs probabilities, but the scores of"),
        ("predict {tagger} dog --min-probability nan", 2, "'nan' is not a number"),
        ("predict {tagger} dog --threshold nan", 1, "threshold must be finite; found nan."),
        ("evaluate {tagger} nothing", 1, "nothing: No such file or directory."),
        ("evaluate {tagger} {rows} --labels 3", 1, "--labels is for matrices"),
        ("evaluate {tagger} {rows} --k 1000000000000", 2, "1000000000000 is not in the range 1<=x<=10000."),
        ("evaluate {tagger} {rows} --k 10000", 0, ""),
        ("compare {rows} --model knn --test nothing", 1, "nothing: No such file or directory."),
        ("compare {rows} --model leml:rank", 2, "Invalid value for --model: must be NAME=VALUE"),
        ("compare {rows} --model leml:positive_weight=[1,2]", 1, "positive_weight has shape (2,)"),
        ("train {rows} --out {out} --model leml --set rank=2 --set rank=3", 2, "--set: rank is given twice."),
        ("train {rows} --out {out} --jobs 0", 2, "must be a number of threads, or -1 for all cores."),
        ("tune {rows} --out {out} --budget 1e12", 2, "is not in the range 0<x<=10000."),
        ("convert {rows} - --to xmc", 1, "OUT: convert writes a file, not standard output"),
        ("convert {rows} {out}.csv", 1, "it cannot make csv of"),
        ("convert {matrix} {out}.xmc --model {tagger}", 2, "--model is for texts, but"),
        ("convert {matrix} {out}.xmc --bigrams", 2, "--bigrams is for texts, but"),
        ("train {rows} --out {out} --max-df 1.5", 2, "is not in the range 0<x<=1."),
    ],
)
def test_what_makes_no_sense_is_refused_and_what_does_is_done(line, code, words, files, tmp_path):
    given = [part.format(**files, out=tmp_path / "out") for part in line.split()]
    result = run(*given)
    assert result.returncode == code, result.stderr
    assert words in result.stderr
    assert code == 0 or not list(tmp_path.iterdir())


def test_a_report_where_nothing_may_be_written_is_refused_before_any_work(files, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    result = run("evaluate", files["tagger"], files["rows"], "--report", tmp_path / "out.html")
    assert failed(result, 1, "may not be written to")
    out = run("tune", files["rows"], "--out", tmp_path / "out.json")
    assert failed(out, 1, "does not exist or may not be written to")
