"""Figures on validation rows are what other rows will show, also where most tags are rare."""

import json

import numpy as np
import pytest
from commands import ok, run, write_jsonl

from tagwise import Tagger, load
from tagwise.text.tags import split_texts

METRICS = ("P@1", "nDCG@5", "PSP@5")
N_TRAINING, N_TEST = 4000, 6000


def long_tail():
    """Rows with one to four of 4,000 tags; the frequency of a tag is about 1 / rank, a word names it, others do not."""
    rng = np.random.default_rng(0)
    chances = 1 / np.arange(5, 4005)
    chances /= chances.sum()
    rows = []
    for n_tags in rng.integers(1, 5, size=N_TRAINING + N_TEST):
        tags = rng.choice(4000, size=n_tags, replace=False, p=chances).tolist()
        named = [f"word{tag}" for tag in tags if rng.random() < 0.7]
        noise = [f"noise{rng.integers(300)}" for _ in range(5)]
        rows.append({"text": " ".join([*named, *noise]), "labels": [f"tag{tag}" for tag in tags]})
    return rows


@pytest.fixture(scope="module")
def rows():
    return long_tail()


def estimated(tagger, rows):
    """The metrics on some rows."""
    return tagger.evaluate([row["text"] for row in rows], [row["labels"] for row in rows]).metrics


def standard_errors(tagger, rows, n_rows):
    """Of the metrics on ``n_rows`` random rows minus those on all ``rows``: from the spread over parts of 50 rows."""
    parts = [estimated(tagger, rows[start : start + 50]) for start in range(0, len(rows), 50)]
    scale = np.sqrt(50 / n_rows + 50 / len(rows))
    return {name: scale * np.std([part[name] for part in parts], ddof=1) for name in METRICS}


def test_validation_rows_estimate_what_a_random_test_file_shows(rows, tmp_path):
    training = write_jsonl(tmp_path / "training.jsonl", rows[:N_TRAINING])
    result = ok("train", training, "--out", tmp_path / "m", "--validation", "0.2", "--json", "--quiet")
    estimate = json.loads(result.stdout)["validation"]
    tagger, test = load(tmp_path / "m"), rows[N_TRAINING:]
    true, error = estimated(tagger, test), standard_errors(tagger, test, estimate["rows"])
    for name in METRICS:
        assert abs(estimate[name] - true[name]) < 2 * error[name], name
    # Tags that have validation rows only are missed, and people are told.
    assert estimate["unseen_tags"] > 100
    assert f"counted as missed: {estimate['unseen_tags']:,} tags not seen in training" in result.stderr
    assert "train without --validation to learn them too" in result.stderr
    assert "The calibration ignores" not in result.stderr


def test_compare_and_tune_judge_by_random_rows_too(tmp_path):
    rows = long_tail()[:500]
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    training, validation = split_texts([row["text"] for row in rows], [row["labels"] for row in rows], 0.2, 0)
    seen, judging = ({tag for row in part for tag in rows[row]["labels"]} for part in (training, validation))
    unseen = len(judging - seen)
    assert unseen > 20
    compared = run("compare", file, "--model", "knn", "--quiet")
    assert compared.stdout.startswith(
        "Trained on 400 rows, measured on 100 others, drawn at random, metrics in percent"
    )
    assert f"counted as missed: {unseen} tags not seen in training" in compared.stderr
    tagger = Tagger("knn").fit([rows[row]["text"] for row in training], [rows[row]["labels"] for row in training])
    true = estimated(tagger, [rows[row] for row in validation])["nDCG@5"]
    out = tmp_path / "knn.json"
    tuned = ok("tune", file, "--model", "knn", "--budget", "1", "--min-rows", "400", "--quiet", "--out", out)
    assert "fitted on all 400 rows, scored on 100 validation rows drawn at random" in tuned.stdout
    assert f"{unseen} tags without a training row count as missed." in tuned.stdout
    result = json.loads(out.read_text(encoding="utf-8"))["result"]
    assert (result["validation_rows"], result["unseen_labels"]) == (100, unseen)
    # Tags that no settings can find lower the score, as they do in evaluate.
    assert result["default_score"] == pytest.approx(true)
