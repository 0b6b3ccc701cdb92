"""A dense block beside a sparse one: what models make of it, against one matrix, closed forms and brute force."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from training_labels import training_labels

from tagwise import LEML, REML, BinaryRelevance, Cascade
from tagwise.data import FeatureBlocks, hide_labels
from tagwise.inspection import explain_labels
from tagwise.kernels import DenseFeatures, scaled_rows
from tagwise.kernels.dual_coordinate_descent import Descent, train_sparse_svms
from tagwise.models.cascade.meaning import dense_prototypes
from tagwise.models.reml.dense_start import dense_rank, start_of_dense
from tagwise.solvers.support import SupportFeatures, SupportRidge
from tagwise.tuning.tuner import tune

N_ROWS, N_WORDS, N_DENSE, N_LABELS = 300, 60, 40, 25


@pytest.fixture(scope="module")
def problem():
    """Words and an embedding that each know a part of the labels."""
    rng = np.random.default_rng(0)
    words = sp.random(N_ROWS, N_WORDS, 0.1, format="csr", random_state=1, dtype=np.float64)
    dense = rng.standard_normal((N_ROWS, N_DENSE)) + 0.5
    truth = words @ rng.standard_normal((N_WORDS, N_LABELS)) * 2 + dense @ rng.standard_normal((N_DENSE, N_LABELS)) / 2
    return FeatureBlocks([words, dense]), sp.csr_matrix((truth > np.quantile(truth, 0.9, axis=0)).astype(np.float64))


def joined(X, weight=1.0):
    """The same rows as one matrix, scaled as models scale blocks."""
    return scaled_rows(X, normalize=True, dense_weight=weight).tocsr()


@pytest.mark.parametrize("weight", [1.0, 0.4])
@pytest.mark.parametrize(
    "make",
    [
        lambda **more: LEML(rank=5, tol=1e-6, max_iter=30, inner_iter=30, **more),
        lambda **more: LEML(rank=5, loss="logistic", max_iter=3, **more),
        lambda **more: LEML(rank=5, solver="closed_form", **more),
        lambda **more: LEML(rank=5, kernel="rbf", gamma=1.0, **more),
        lambda **more: BinaryRelevance(**more),
        lambda **more: BinaryRelevance(solver="cg", tol=1e-8, **more),
        lambda **more: BinaryRelevance(loss="hinge", tol=1e-3, **more),
    ],
    ids=["leml", "logistic", "closed form", "kernel", "direct", "cg", "hinge"],
)
@pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")
def test_two_blocks_are_one_matrix(make, weight, problem):
    X, Y = problem
    blocks = make(dense_weight=weight).fit(X, Y)
    one = make(normalize=False).fit(joined(X, weight), Y)
    assert_allclose(blocks.decision_function(X), one.decision_function(joined(X, weight)), rtol=1e-4, atol=1e-4)


def test_direct_ridge_of_few_rows_is_that_of_one_matrix(problem):
    X, Y = problem[0][:70], problem[1][:70]
    weights = np.random.default_rng(1).random(70) + 0.5
    blocks = BinaryRelevance(solver="direct").fit(X, Y, sample_weight=weights)
    one = BinaryRelevance(solver="direct", normalize=False).fit(joined(X), Y, sample_weight=weights)
    assert_allclose(blocks.feature_weights_, one.feature_weights_, atol=1e-8)


def test_rankers_of_both_blocks_are_those_of_one_matrix(problem):
    X, Y = problem
    on, off = sp.csr_matrix(Y.T), sp.csr_matrix((1 - Y.toarray()).T)
    descent = Descent(tol=1e-8, max_iter=2000)
    weights, intercept, objective = train_sparse_svms(X, on, off, descent, C=0.5, n_threads=2)
    expected = train_sparse_svms(X.tocsr(), on, off, descent, C=0.5)
    assert_allclose(weights.tocsr().toarray(), expected[0].toarray(), atol=1e-6)
    assert_allclose(intercept, expected[1], atol=1e-6)
    assert_allclose(objective, expected[2], rtol=1e-6)


@pytest.mark.parametrize("positive_weight", [None, 3.0])
@pytest.mark.parametrize("masked", [False, True])
def test_supports_fit_what_both_blocks_leave(positive_weight, masked, problem):
    """Normal equations of each label's features, for the residual that low rank and dense block leave."""
    X, Y = problem
    rng = np.random.default_rng(3)
    W, H = rng.standard_normal((X.shape[1], 4)) / 4, rng.standard_normal((N_LABELS, 4)) / 4
    b, weight = rng.random(N_LABELS) / 4, rng.random(N_ROWS) + 0.5
    known = hide_labels(Y, 0.5, random_state=0) if masked else None
    positives = Y if known is None else sp.csr_matrix(Y.multiply(known))
    c = np.ones(N_LABELS) if positive_weight is None else np.full(N_LABELS, positive_weight)
    features = SupportFeatures.build(X.words, support=8, with_gram=known is None, row_weight=weight)
    ridge = SupportRidge(features, positives, known=known, reg=0.7, support=8, positive_weight=c)
    S = ridge.solve(W, H, b, beside=X.dense @ W[-N_DENSE:]).weights.toarray()
    assert S.any()
    assert not S[N_WORDS:].any()
    rows, on = X.tocsr().toarray(), positives.toarray()
    scores = rows @ (W @ H.T + S) + b
    counts = weight[:, None] * np.where(on > 0, c, 1) * (1 if known is None else known.toarray())
    slopes = rows.T @ (counts * (scores - on)) + 0.7 * S
    assert_allclose(np.where(S != 0, slopes, 0), 0, atol=1e-8)


def start(X, Y, rank, observed=None, weights=None):
    labels = training_labels(Y, observed, None, dtype=np.dtype(float), n_threads=1, row_weight=weights)
    rates = labels.rates()
    return start_of_dense(DenseFeatures(X.dense), labels, rates, 2.0, rank), rates


def test_the_low_rank_starts_at_least_squares_of_the_dense_block(problem):
    X, Y = problem
    weights = np.random.default_rng(1).random(N_ROWS) + 0.5
    found, rates = start(X, Y, N_LABELS, weights=weights)
    D, R = X.dense, Y.toarray() - rates
    exact = np.linalg.solve(D.T @ (weights[:, None] * D) + 2 * np.eye(N_DENSE), D.T @ (weights[:, None] * R))
    assert_allclose(found[0] @ found[1].T, exact, atol=1e-10)

    # Of lower rank, no other matrix of that rank is better: neither by other columns nor by other rows.
    (coefficients, labels), rates = start(X, Y, 3)
    R, B = Y.toarray() - rates, coefficients @ labels.T
    slope = D.T @ (D @ B - R) + 2 * B
    assert np.linalg.matrix_rank(B) == 3
    assert_allclose(coefficients.T @ slope, 0, atol=1e-9)
    assert_allclose(slope @ labels, 0, atol=1e-9)


def test_unknown_pairs_say_nothing_about_the_start(problem):
    X, Y = problem
    known = hide_labels(Y, 0.4, random_state=0)
    inside = sp.csr_matrix(Y.multiply(known))
    found, _ = start(X, inside, N_LABELS, observed=known)
    everything, _ = start(X, Y, N_LABELS)
    one, other = (coefficients @ labels.T for coefficients, labels in (found, everything))
    # The same in expectation: neither shrunk by what is unknown, nor turned.
    assert 0.7 < np.sum(one * other) / np.sum(other**2) < 1.3


def test_dense_rank_bounds_what_a_row_costs():
    assert dense_rank(384, 736) == 384
    assert dense_rank(384, 27_754) == 75
    assert dense_rank(384, 10**6) == 16
    assert dense_rank(5, 10**6) == 5
    assert dense_rank(384, 6) == 6


def test_reml_falls_from_round_to_round_and_stays_on_words(problem):
    X, Y = problem
    known = hide_labels(Y, 0.6, random_state=0)
    for observed in (None, known):
        model = REML(rank=3, tol=0, max_iter=4, sparse_part="support").fit(X, Y, observed=observed)
        assert (np.diff(model.objective_) <= 1e-9 * model.objective_[0]).all()
        assert not model.sparse_weights_[N_WORDS:].nnz
        assert model.rank_ == 3 + N_LABELS


def test_a_dense_block_without_weight_changes_nothing(problem):
    X, Y = problem
    parameters = {"rank": 3, "sparse_part": "support", "tol": 1.0}
    words = REML(**parameters).fit(X.sparse, Y).decision_function(X.sparse)
    assert_allclose(REML(dense_weight=0.0, **parameters).fit(X, Y).decision_function(X), words, atol=1e-6)


def test_reml_answers_of_few_and_of_many_rows_agree(problem):
    X, Y = problem
    model = REML(rank=3, sparse_part="support", tol=1.0).fit(X, Y)
    labels, scores = model.predict_topk(X, k=4)
    for row in range(5):
        few = model.predict_topk(X[row : row + 1], k=4)
        assert_array_equal(few[0][0], labels[row])
        assert_allclose(few[1][0], scores[row], rtol=1e-6)


def test_cascade_ranks_better_with_both_than_with_either(problem):
    X, Y = problem
    train, test = np.arange(200), np.arange(200, N_ROWS)
    empty = sp.csr_matrix((N_ROWS, 0))

    def score(rows):
        return Cascade().fit(rows[train], Y[train]).score(rows[test], Y[test])

    both = score(X)
    assert both > score(X.sparse) + 0.05
    assert both > score(FeatureBlocks([empty, X.dense])) + 0.02


@pytest.mark.parametrize("make", [lambda: LEML(5), lambda: REML(5, sparse_part="support"), BinaryRelevance])
def test_dense_columns_behind_sparse_ones_are_a_block(make, problem):
    X, Y = problem
    blocks, stacked = make().fit(X, Y), make().fit(sp.hstack([X.sparse, X.dense], format="csr"), Y)
    assert stacked.n_dense_features_in_ == N_DENSE
    assert_array_equal(stacked.predict_topk(X.tocsr())[1], blocks.predict_topk(X)[1])
    assert make().fit(X.tocsr().toarray(), Y).n_dense_features_in_ == N_DENSE
    # Too few of them, alone, or in a model that keeps its rows: features like all others.
    for one in (X.tocsr()[:, : N_WORDS + 31], sp.csr_matrix(X.dense), X.dense):
        assert make().fit(one, Y).n_dense_features_in_ == 0
    assert make().set_params(updatable=True).fit(X.tocsr(), Y).n_dense_features_in_ == 0


@pytest.mark.parametrize("chunk", [1, 1000, 1 << 18])
def test_dense_columns_are_counted_in_any_chunks_and_order(chunk, problem, monkeypatch):
    monkeypatch.setattr("tagwise.feature_blocks._CHUNK", chunk)
    X = problem[0][:40]
    stacked = X.tocsr()
    assert FeatureBlocks.recognised(stacked).n_dense == N_DENSE
    backwards = stacked.copy()
    for row in range(40):
        part = slice(*backwards.indptr[row : row + 2])
        backwards.indices[part], backwards.data[part] = stacked.indices[part][::-1], stacked.data[part][::-1]
    backwards.has_sorted_indices = False
    assert FeatureBlocks.recognised(backwards).n_dense == N_DENSE
    zeros = stacked.copy()
    zeros.data[zeros.indices == N_WORDS] = 0  # stored, and not dense for that
    assert FeatureBlocks.recognised(zeros).n_dense == N_DENSE - 1


def test_cascade_finds_a_dense_block(problem):
    X, Y = problem
    blocks = Cascade().fit(X, Y)
    for one in (X.tocsr(), X.tocsr().toarray()):
        model = Cascade().fit(one, Y)
        assert model.n_dense_features_in_ == N_DENSE
        assert_array_equal(model.predict_topk(one)[1], blocks.predict_topk(X)[1])
    assert Cascade().fit(X.tocsr()[:, : N_WORDS + 31], Y).n_dense_features_in_ == 0
    alike = Cascade(updatable=True).fit(X.tocsr(), Y)
    assert alike.n_dense_features_in_ == alike.proposer_.n_dense_features_in_ == 0
    assert FeatureBlocks.recognised(X.dense).sparse.shape == (N_ROWS, 0)


def test_cascade_explains_words_and_the_block(problem):
    X, Y = problem
    model = Cascade().fit(X, Y)
    labels, _ = model.predict_topk(X[:20], k=3)
    found = explain_labels(model, X[:20], labels)
    assert_allclose(
        found.scores(),
        np.take_along_axis(
            joined(X[:20]) @ model.label_weights(np.arange(N_LABELS)).T + model.label_intercepts(np.arange(N_LABELS)),
            labels,
            axis=1,
        ),
        rtol=1e-6,
    )
    assert set(np.unique(found.contributions.indices)) <= set(range(N_WORDS + 1))
    words = np.diff(X.sparse[:20].indptr)
    assert_array_equal(np.diff(found.contributions.indptr), np.repeat(words + 1, 3))


def test_prototypes_are_directions_from_the_mean():
    dense = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    Y = sp.csr_matrix(np.array([[1.0, 0, 0], [1, 1, 0], [0, 1, 0]]))
    by_label = sp.csr_matrix(Y.T)
    directions = dense_prototypes(by_label, dense, dense.mean(axis=0), None)
    assert_allclose(directions, [[2**-0.5, -(2**-0.5)], [-(2**-0.5), 2**-0.5], [0, 0]])
    X = FeatureBlocks([sp.csr_matrix(np.eye(3)), dense])
    assert_allclose(Cascade(rank=1, shortlist=3).fit(X, Y).dense_mean_, [1 / 3, 2 / 3])
    weighted = Cascade(rank=1, shortlist=3).fit(X, Y, sample_weight=[2.0, 1, 1])
    assert_allclose(weighted.dense_mean_, [1 / 2, 1 / 2])


def test_cascade_resumes_with_blocks(problem, tmp_path):
    from tagwise.store import Checkpoint

    X, Y = problem
    expected = Cascade().fit(X, Y).predict_topk(X)[1]
    checkpoint = Checkpoint(tmp_path / "state")

    def stop(iteration, info):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Cascade().fit(X, Y, checkpoint=checkpoint, callback=stop)
    assert_array_equal(Cascade().fit(X, Y, checkpoint=checkpoint).predict_topk(X)[1], expected)


def test_tuning_searches_the_weight_of_a_dense_block(problem):
    X, Y = problem
    found = tune("leml", X, Y, budget=2, min_rows=50, random_state=0)
    drawn = [trial.candidate["dense_weight"] for trial in found.trials if trial.candidate]
    assert drawn
    assert all(0.3 <= weight <= 3 for weight in drawn)
    words = tune("leml", X.sparse, Y, budget=2, min_rows=50, random_state=0)
    assert all("dense_weight" not in trial.candidate for trial in words.trials)
