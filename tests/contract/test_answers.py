"""What every model answers: scores, top-k and labels that agree with one another."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.baselines.sparse_score_model import SparseScoreModel
from tagwise.exceptions import InvalidInputError
from tagwise.metrics.purposes import PURPOSES
from tagwise.registry import info_of

N_ROWS, N_FEATURES, N_LABELS = 60, 12, 7


def test_top_k_is_the_head_of_the_sorted_scores(fitted, problem):
    X, _ = problem
    scores = fitted.decision_function(X)
    labels, best = fitted.predict_topk(X, 3)
    assert labels.dtype.kind == "i"
    np.testing.assert_array_equal(labels, np.argsort(-scores, axis=1, kind="stable")[:, :3])
    np.testing.assert_allclose(best, np.take_along_axis(scores, labels, axis=1), rtol=1e-6)
    assert (np.diff(best, axis=1) <= 0).all()
    np.testing.assert_array_equal(fitted.predict(X).toarray(), scores >= 0)
    alone = np.concatenate([fitted.decision_function(X[row : row + 1]) for row in range(N_ROWS)])
    np.testing.assert_allclose(alone, scores, atol=1e-10)


def test_more_labels_than_there_are_and_excluded_pairs(fitted, problem):
    X, Y = problem
    labels, scores = fitted.predict_topk(X, 1000)
    assert labels.shape == scores.shape == (N_ROWS, 1000)
    assert (np.sort(labels[:, :N_LABELS], axis=1) == np.arange(N_LABELS)).all()
    assert (labels[:, N_LABELS:] == -1).all()
    assert np.isneginf(scores[:, N_LABELS:]).all()
    for found, best in zip((labels, scores), fitted.predict_topk(X, N_LABELS)):
        np.testing.assert_array_equal(found[:, :N_LABELS], best)
    labels, _ = fitted.predict_topk(X, N_LABELS, exclude=Y)
    for row, on in zip(labels, Y.toarray()):
        kept = row[row >= 0]
        assert on[kept].sum() == 0
        assert len(kept) == N_LABELS - on.sum()


def test_labels_are_chosen_for_a_purpose_where_scores_are_probabilities(fitted, problem):
    X, Y = problem
    with pytest.raises(InvalidInputError, match=r"optimise must be one of 'precision', 'recall'.*found 'f1'"):
        fitted.predict_topk(X, 3, optimise="f1")
    if not info_of(type(fitted)).probabilistic:
        with pytest.raises(
            InvalidInputError, match=r"optimise needs probabilities.*Use Cascade, or a Tagger after cal"
        ):
            fitted.predict_topk(X, 3, optimise="psp")
        return
    width = min(fitted.shortlist, N_LABELS)
    scores = fitted.decision_function(X)
    for purpose in PURPOSES:
        labels, best = fitted.predict_topk(X, 2, optimise=purpose)
        np.testing.assert_allclose(best, np.take_along_axis(scores, labels, axis=1), rtol=1e-6)
        assert (np.diff(best, axis=1) <= 0).all()
        # The k labels of a row are among those that have probabilities; all of these are the same as ever.
        labels, best = fitted.predict_topk(X, width, optimise=purpose)
        np.testing.assert_array_equal(labels, fitted.predict_topk(X, width)[0])
        np.testing.assert_array_equal(best, fitted.predict_topk(X, width)[1])
        # More labels than have probabilities, more than there are, and excluded ones.
        labels, best = fitted.predict_topk(X, N_LABELS + 2, exclude=Y, optimise=purpose)
        plain = fitted.predict_topk(X, N_LABELS + 2, exclude=Y)
        np.testing.assert_array_equal(labels, plain[0])
        np.testing.assert_array_equal(best, plain[1])
        threads = fitted.set_params(n_jobs=2).predict_topk(X, 2, optimise=purpose)
        one = fitted.set_params(n_jobs=1).predict_topk(X, 2, optimise=purpose)
        for found, expected in zip(threads, one):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.of_base
def test_predictions_come_in_the_type_of_the_labels(make, problem):
    X, Y = problem
    for dtype in (np.int64, np.float32, bool):
        for form, kind in (
            (sp.csr_matrix, sp.csr_matrix),
            (sp.csr_array, sp.csr_array),
            (sp.csc_matrix, sp.csr_matrix),
            (lambda labels: labels.toarray(), np.ndarray),
        ):
            prediction = make().fit(X, form(Y.astype(dtype))).predict(X)
            assert isinstance(prediction, kind)
            assert prediction.dtype == dtype
            assert prediction.shape == Y.shape


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_repeated_float32_rows_are_scored_the_same_alone_and_in_company(make, form):
    """40 rows 20 times: ties everywhere, which votes, leaves and parts must break in one way, whatever the block."""
    rng = np.random.default_rng(0)
    order = rng.permutation(np.repeat(np.arange(40), 20))
    rows = (rng.random((40, 100)) * (rng.random((40, 100)) < 0.7)).astype(np.float32)[order]
    Y = (rng.random((800, 20)) < 0.2 + 0.4 * (rows[:, :20] > 0.4)).astype(np.float32)
    X = form(rows)
    model = make(n_neighbors=7, rank=10).fit(X, Y)
    together = model.decision_function(X)
    some = range(0, 800, 20)
    alone = np.concatenate([model.decision_function(X[row : row + 1]) for row in some])
    if isinstance(model, SparseScoreModel):
        np.testing.assert_array_equal(alone, together[some])
        first = np.unique(order, return_index=True)[1]
        np.testing.assert_array_equal(together, together[first][order])
    else:
        np.testing.assert_allclose(alone, together[some], atol=1e-5)


def test_it_learns(make, problem):
    X, Y = problem
    labels, _ = make(max_iter=10).fit(X, Y).predict_topk(X, 1)
    dense = Y.toarray()
    hits = dense[np.arange(N_ROWS), labels[:, 0]].mean()
    assert hits > dense.mean(axis=0).max() + 0.1
