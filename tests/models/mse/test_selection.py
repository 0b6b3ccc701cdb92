"""Choice of parameters: the exact threshold, folds, grids."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise import MSE
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, InvalidTypeError
from tagwise.metrics import example_f1
from tagwise.models.mse.selection import _by_fit, best_threshold

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")
GRID = {"subspace_rank": [1, 2], "reg": [0.1, 0.3]}


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = sp.random(90, 20, 0.3, format="csr", random_state=1)
    return X, (X @ rng.standard_normal((20, 4)) > 0.5).astype(int)


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 5), st.integers(2, 8))
def test_the_threshold_is_the_best_of_all(seed, rows, labels, levels):
    rng = np.random.default_rng(seed)
    Y = sp.csr_matrix((rng.random((rows, labels)) < 0.4).astype(np.float32))
    scores = sp.csr_matrix(rng.integers(0, levels, (rows, labels)) / levels)
    threshold, f1 = best_threshold(Y, scores)
    assert threshold > 0
    assert example_f1(Y, (scores.toarray() >= threshold).astype(int)) == pytest.approx(f1)
    for cut in np.unique(scores.data):
        assert f1 >= example_f1(Y, (scores.toarray() >= cut).astype(int)) - 1e-12


def test_select_is_deterministic_and_says_what_it_tried(problem):
    one, two = MSE.select(*problem, GRID), MSE.select(*problem, GRID)
    assert one.get_params() == two.get_params()
    np.testing.assert_array_equal(one.subspaces_, two.subspaces_)
    assert one.selection_ == two.selection_
    assert len(one.selection_) == 4
    f1 = [entry["f1"] for entry in one.selection_]
    assert f1 == sorted(f1, reverse=True)
    best = {name: value for name, value in one.selection_[0].items() if name != "f1"}
    assert best.items() <= one.get_params().items()
    fresh = MSE(**best).fit(*problem)
    np.testing.assert_array_equal(fresh.subspaces_, one.subspaces_)


def test_fits_are_shared_between_values_of_reg(problem, monkeypatch):
    fits = []
    fit = MSE.fit
    monkeypatch.setattr(MSE, "fit", lambda self, *args, **more: fits.append(self) or fit(self, *args, **more))
    MSE.select(*problem, {"subspace_rank": [1, 2], "reg": [0.1, 0.2, 0.3]}, n_folds=2)
    assert len(fits) == 2 * 2 + 1


def test_long_arrays_of_ranks_that_differ_in_the_middle_do_not_share_a_fit():
    """The text of an array of more than 1,000 numbers leaves out the middle."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 8)), np.zeros((30, 1001), dtype=int)
    Y[:, 500], Y[:15, 499], Y[15:, 501] = 1, 1, 1
    one, other = np.ones(1001, dtype=int), np.ones(1001, dtype=int)
    other[499:502] = 4
    tried = MSE.select(X, Y, {"subspace_rank": [one, other], "reg": [0.1]}, tol=0.5).selection_
    alone = MSE.select(X, Y, {"subspace_rank": [other], "reg": [0.1]}, tol=0.5).selection_[0]
    of_other = next(entry for entry in tried if entry["subspace_rank"][500] == 4)
    assert (of_other["f1"], of_other["threshold"]) == (alone["f1"], alone["threshold"])
    groups = [
        {"subspace_rank": one},
        {"subspace_rank": one.copy()},
        {"subspace_rank": one.astype(np.int32)},
        {"subspace_rank": list(one)},
        {"subspace_rank": other},
    ]
    assert [members for _, members in _by_fit(groups)] == [[0, 1], [2], [3], [4]]


def test_thresholds_at_the_edges():
    above = np.nextafter(0.5, 1)
    for Y, scores, threshold, f1 in (
        ([[1, 0], [0, 0]], [[0.0, 0], [0, 0]], 1.0, 0.5),  # no positive score at all
        ([[1, 0]], [[above, 0.5]], above, 1.0),  # next to one another, and still separated
        # F1 is 2/3 with the three highest scores, and again with the six highest: but not as sums of changes.
        ([[0, 0, 1, 1], [1, 0, 1, 0], [0, 0, 1, 1]], [[2.0, 5, 11, 7], [0, 8, 12, 6], [0, 9, 10, 3]], 9.5, 2 / 3),
    ):
        found = best_threshold(sp.csr_matrix(np.array(Y, dtype=np.float32)), sp.csr_matrix(np.array(scores)))
        assert found == (threshold, pytest.approx(f1))


def test_scores_of_a_row_come_from_models_that_have_not_seen_it():
    """With noise for features nothing can be learnt: an honest F1 is that of guessing, far below the one in sample."""
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((120, 60)), np.eye(6)[rng.integers(0, 6, 120)]
    model = MSE.select(X, Y, {"subspace_rank": [10], "reg": [0.1]})
    assert model.selection_[0]["f1"] < 0.4
    in_sample = best_threshold(sp.csr_matrix(Y.astype(np.float32)), model.one_norms(X))[1]
    assert in_sample > 0.8


def test_a_given_threshold_is_kept(problem):
    model = MSE.select(*problem, {"reg": [0.1], "threshold": [0.05, 0.2]}, subspace_rank=2)
    assert model.threshold in (0.05, 0.2)
    assert {entry["threshold"] for entry in model.selection_} == {0.05, 0.2}
    assert MSE.select(*problem, {"reg": [0.1, 0.2]}, threshold=0.07, subspace_rank=2).threshold == 0.07


def test_equal_f1_goes_to_the_first_of_the_grid(problem):
    model = MSE.select(
        *problem, [{"max_iter": [7], "subspace_rank": [1]}, {"max_iter": [9], "subspace_rank": [1]}], tol=0.5
    )
    assert model.selection_[0]["f1"] == model.selection_[1]["f1"]
    assert model.max_iter == 7


def test_labels_without_any_row_and_no_label_at_all(problem):
    X, Y = problem
    empty = Y.copy()
    empty[:, 2] = 0
    assert (MSE.select(X, empty, GRID).decision_function(X)[:, 2] == -1e30).all()
    nothing = MSE.select(X, 0 * Y, {"reg": [0.1]})
    assert nothing.predict(X).sum() == 0


def test_the_default_grid_tries_both_decompositions(problem):
    X, Y = problem
    model = MSE.select(X[:40], Y[:40], n_folds=2, n_jobs=2)
    assert {entry["decomposition"] for entry in model.selection_} == {"brp", "svd"}
    assert len(model.selection_) == 40
    assert model.n_jobs == 2


def test_bad_input(problem):
    X, Y = problem
    for grid, options, words in [
        ({"rank": [1]}, {}, "MSE has no parameter 'rank'"),
        (GRID, {"width": 3}, "MSE has no parameter 'width'"),
        (5, {}, "grid must be a dict of lists"),
        ({"reg": 0.1}, {}, "grid must be a dict of lists"),
        ([], {}, "grid is empty"),
        ({"reg": [0.1, -1]}, {}, "reg must be finite above 0"),
        (GRID, {"n_folds": 1}, "n_folds must be at least 2"),
        (GRID, {"n_folds": 100}, "n_folds=100 needs as many rows"),
    ]:
        with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
            MSE.select(X, Y, grid, **options)


def test_warnings_of_the_fits_are_not_hidden(problem):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        MSE.select(*problem, {"max_iter": [2], "tol": [1e-9], "subspace_rank": [2]})
    assert any(issubclass(warning.category, ConvergenceWarning) for warning in seen)
