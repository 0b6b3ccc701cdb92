"""Successive halving: finds what was planted, is the same every time, and resumes where it was killed."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.tuning import Choice, LogRange, tune
from tagwise.tuning.tuner import rungs_for


class Killed(BaseException):
    """The end of a search from outside."""


@pytest.fixture(scope="module")
def problem():
    """Six pairs of labels, one of each pair on: five by a direction each, one by the length of the row.

    Rows of unit length, the model's default, do not tell the length; and a rank below six cannot tell all pairs apart.
    """
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(400, 5))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    length = rng.uniform(1, 9, size=(400, 1))
    X = np.hstack([length, length * directions]).astype(np.float32)
    on = np.hstack([length > 5, directions > 0])
    return sp.csr_matrix(X), sp.csr_matrix(np.hstack([on, ~on]).astype(np.float32))


SPACE = {"rank": Choice((1, 3, 6)), "normalize": Choice((True, False))}


def search(problem, **options):
    X, Y = problem
    return tune("leml", X, Y, space=SPACE, metric="P@6", budget=2, min_rows=30, **options)


def untimed(result):
    return [(trial.rung, trial.budget, trial.candidate, trial.score, trial.details) for trial in result.trials]


def test_rungs():
    rungs = rungs_for(2700, budget=4, factor=3, min_rows=100)
    assert rungs == [(27, 100), (9, 300), (3, 900), (1, 2700)]
    assert sum(count * rows for count, rows in rungs) / 2700 == pytest.approx(4)
    assert rungs_for(90, budget=5, factor=3, min_rows=100) == [(5, 90)]
    assert rungs_for(90, budget=0.5, factor=3, min_rows=100) == [(1, 90)]


def test_finds_the_planted_settings_every_time(problem):
    result = search(problem)
    assert result.settings == {"rank": 6, "normalize": False}
    assert result.default_score < 0.92 < 0.93 < result.score
    assert [rung.budget for rung in result.rungs] == [36, 107, 320]
    assert [trial.budget for trial in result.trials] == sorted(trial.budget for trial in result.trials)
    finals = [trial for trial in result.trials if trial.budget == 320]
    assert result.score == max(trial.score for trial in finals)
    assert {} in [trial.candidate for trial in finals]
    assert untimed(search(problem, n_jobs=2)) == untimed(result)
    assert untimed(search(problem, random_state=1)) != untimed(result)


@pytest.mark.parametrize("killed_after", [1, 4])
def test_a_killed_search_resumes_to_the_same_result(problem, tmp_path, killed_after):
    whole = search(problem, state=tmp_path / "whole.json")

    def kill(trial, done, total):
        if done == killed_after:
            raise Killed

    path = tmp_path / "state.json"
    with pytest.raises(Killed):
        search(problem, state=path, callback=kill)
    half = json.loads(path.read_text())
    assert not half["finished"]
    assert len(half["trials"]) == killed_after
    again = search(problem, state=path)
    assert again.resumed == killed_after
    assert untimed(again) == untimed(whole)
    assert again.settings == whole.settings
    content, expected = json.loads(path.read_text()), json.loads((tmp_path / "whole.json").read_text())
    assert content["result"] == expected["result"]
    assert content["finished"]
    assert [t["seconds"] for t in content["trials"]][:killed_after] == [t["seconds"] for t in half["trials"]]
    fits = []
    finished = search(problem, state=path, callback=lambda trial, done, total: fits.append(trial))
    assert finished.resumed == len(finished.trials) == len(fits)
    assert json.loads(path.read_text()) == content


def test_files_of_other_searches_are_left_alone(problem, tmp_path):
    path = tmp_path / "state.json"
    search(problem, state=path)
    before = path.read_bytes()
    X, Y = problem
    with pytest.raises(InvalidInputError, match="holds another search: random_state is 1 and was 0"):
        search(problem, state=path, random_state=1)
    with pytest.raises(InvalidInputError, match="X has other values"):
        search((X * 2, Y), state=path)
    with pytest.raises(InvalidInputError, match="the model is plst and was leml"):
        tune("plst", X, Y, state=path)
    assert path.read_bytes() == before
    contents = [b"{}", b"[1]", b"\xff", b'{"format": "tagwise tuning 1", "search": {}, "trials": []}']
    settings = {"rank": 99}
    forged = {"rung": "0", "rows": None, "score": "high", "seconds": "1", "problem": 3, "settings": settings}
    for name, value in forged.items():
        content = json.loads(before)
        content["trials"][1][name] = value
        contents.append(json.dumps(content).encode())
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match="was not written by a search"):
            pytest.fail(f"{content[:200]}: {search(problem, state=path)}")
        assert path.read_bytes() == content


def test_settings_that_cannot_be_fitted_rank_last(problem):
    X, Y = problem
    result = tune("leml", X, Y, space={"reg": Choice((-1.0,))}, budget=1)
    failed = [trial for trial in result.trials if trial.candidate]
    assert failed
    assert all(trial.score is None and "reg must be" in trial.details for trial in failed)
    assert result.settings == {}
    assert result.score == result.default_score


def test_unknown_labels_never_matter(problem):
    X, Y = problem
    observed = sp.csr_matrix((np.random.default_rng(3).random(Y.shape) < 0.7).astype(np.float32))
    changed = Y.toarray()
    changed[observed.toarray() == 0] = 1 - changed[observed.toarray() == 0]
    space = {"reg": LogRange(0.01, 10)}
    held = (X[:80], Y[:80], observed[:80])
    wrong = (X[:80], sp.csr_matrix(changed)[:80], observed[:80])
    options = {"space": space, "budget": 1, "min_rows": 100}
    one = tune("leml", X[80:], Y[80:], observed[80:], validation=held, **options)
    other = tune("leml", X[80:], sp.csr_matrix(changed)[80:], observed[80:], validation=wrong, **options)
    assert untimed(one) == untimed(other)


def test_bad_arguments(problem):
    X, Y = problem
    for options, message in [
        ({"metric": "accuracy"}, "metric must be one of P@k"),
        ({"metric": "P@0"}, "metric must be"),
        ({"budget": 0}, "budget must be finite above 0"),
        ({"factor": 1}, "factor must be at least 2"),
        ({"min_rows": 0}, "min_rows must be at least 1"),
        ({"validation": (X[:, :3], Y, None)}, "validation must have the features"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            tune("leml", X, Y, **options)
    with pytest.raises(InvalidTypeError, match="callback must be callable"):
        tune("leml", X, Y, callback=3)
    with pytest.raises(InvalidInputError, match="model must be auto or one of"):
        tune("lemon", X, Y)
    with pytest.raises(InvalidInputError, match="wsabie does not support unknown labels"):
        tune("wsabie", X, Y, sp.csr_matrix(np.eye(*Y.shape)))


def test_names_and_unlisted_labels_reach_the_models():
    """A model that cannot use them says so."""
    random = np.random.default_rng(3)
    X = sp.csr_matrix((random.random((60, 8)) < 0.4).astype(np.float32))
    Y = sp.csr_matrix((random.random((60, 4)) < 0.4).astype(np.float32))
    names = sp.csr_matrix(np.eye(4, 8, dtype=np.float32))
    with pytest.raises(InvalidInputError, match="label_features: leml does not learn from names"):
        tune("leml", X, Y, label_features=names)
    with pytest.raises(InvalidInputError, match="unlisted"):
        tune("leml", X, Y, unlisted="maybe")
    with pytest.raises(InvalidInputError, match="unlisted: KNN takes every label that is not listed as off"):
        tune("knn", X, Y, unlisted="unknown", budget=1, space={"n_neighbors": Choice((3, 5))})
