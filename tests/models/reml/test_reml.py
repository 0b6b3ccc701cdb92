"""REML: equation 5 as one reads it, rounds that never raise it, both forms of the sparse part, parts, real data."""

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reml_problem import equation_5, problem

from tagwise import LEML, REML
from tagwise.data import hide_labels, load_dataset, make_low_rank_plus_sparse
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, InvalidTypeError, TagwiseWarning
from tagwise.metrics import inverse_propensity, ndcg_at_k, precision_at_k, psp_at_k
from tagwise.models.reml.sparse_part import pruned
from tagwise.problem import Problem

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 30),
    st.integers(1, 12),
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from(["admm", "support"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1.0, 3.0]),
    st.floats(0.05, 5),
    st.floats(0, 2),
)
def test_the_objective_is_equation_5_and_no_round_ever_raises_it(
    seed, n, d, n_labels, rank, part, masked, intercept, weight, reg, sparsity
):
    X, Y, known = problem(seed, n, d, n_labels)
    known = known if masked else np.ones_like(known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TagwiseWarning)
        model = REML(
            rank=rank, reg_low_rank=0.7 * reg, reg_sparse=reg, sparsity=sparsity, sparse_part=part, support=3, tol=0,
            prune=0, fit_intercept=intercept, positive_weight=weight, max_iter=5,
        ).fit(X, Y, observed=known if masked else None)  # fmt: skip
    assert model.objective_[-1] == pytest.approx(equation_5(model, X, Y, known, weight), rel=1e-8)
    assert (np.diff(model.objective_) <= 1e-9 * np.abs(model.objective_[:-1])).all()


@pytest.mark.parametrize("part", ["admm", "support"])
@pytest.mark.parametrize(("reg_low_rank", "reg_sparse"), [(10, 100), (100, 1000), (0.1, 0.1)])
def test_the_end_is_never_worse_than_constant_scores(part, reg_low_rank, reg_sparse):
    """A start whose own penalty is left out makes the first round look like a rise, and the fit end there."""
    X, _, _ = problem(n=60)
    Y = (np.random.default_rng(0).random((60, 8)) < 0.1).astype(float)
    model = REML(rank=3, reg_low_rank=reg_low_rank, reg_sparse=reg_sparse, sparse_part=part, max_iter=60, tol=1e-4)
    constants = 4 * np.sum((Y - Y.mean(axis=0)) ** 2)
    assert model.fit(X, Y).objective_[-1] <= constants * 1.001


@pytest.mark.parametrize("part", [{"sparse_part": "support", "support": 100}, {"sparse_part": "admm", "sparsity": 0}])
def test_with_a_hopeless_low_rank_the_sparse_part_is_ridge_regression(part, monkeypatch):
    monkeypatch.setattr("tagwise.solvers.support.LEAST_SHARE", 0.0)  # features are used however little they say
    X, Y, _ = problem(n=80)
    Y[:2] = 1
    X[:2] = 1  # every feature occurs in a positive row of every label
    model = REML(rank=1, reg_low_rank=1e9, reg_sparse=2.0, fit_intercept=False, normalize=False, prune=0, **part)
    expected = np.linalg.solve(X.T @ X + 2 * np.eye(15), X.T @ (2 * Y - 1))
    np.testing.assert_allclose(2 * model.fit(X, Y).decision_function(X), X @ expected, atol=1e-5)


@pytest.mark.parametrize("weights", [None, np.linspace(0.1, 3, 200)], ids=["", "weights"])
@pytest.mark.parametrize("masked", [False, True])
def test_some_labels_learnt_again_from_the_same_rows_are_as_they_were(masked, weights):
    X, Y, _ = problem(n=200)
    observed = hide_labels(Y, 0.7, random_state=0) if masked else None
    model = REML(rank=2, sparse_part="support", support=6, max_iter=1, tol=1.0, positive_weight=2.0)
    model.fit(X, Y, observed, sample_weight=weights)
    labels = np.array([0, 3, 5])
    again = model.with_sparse_part_of(labels, Problem.of(sp.csr_matrix(X), sp.csr_matrix(Y), observed, weights))
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), atol=1e-10)
    assert again.of_labels(labels).sparse_weights_.nnz


def test_without_a_sparse_part_worth_its_price_it_is_leml():
    """λ1 so large that H = 0: LEML with reg = λ2/2, the same steps from the same start."""
    X, Y, _ = problem()
    ours = REML(rank=3, reg_low_rank=2.0, reg_sparse=1e12, sparse_part="support", max_iter=4, inner_iter=5, tol=0)
    theirs = LEML(rank=3, reg=1.0, max_iter=4, inner_iter=5, tol=0)
    np.testing.assert_allclose(ours.fit(X, Y).decision_function(X), theirs.fit(X, Y).decision_function(X), atol=1e-8)
    np.testing.assert_allclose(ours.objective_, 8 * theirs.objective_, rtol=1e-9)


def test_a_strong_sparsity_makes_fitted_values_zero():
    X, Y, _ = problem()
    model = REML(rank=2, sparsity=1e4, sparse_part="admm").fit(X, Y)
    assert np.abs(X @ model.sparse_weights_.toarray()).max() < 1e-3


def test_tail_labels_need_the_sparse_part():
    """Labels that are a low rank, beside rare ones that hang on a word of their own."""
    data = make_low_rank_plus_sparse(800, 200, 60, rank=3, random_state=0)
    X, Y = data.X, data.Y
    train, test = slice(0, 600), slice(600, None)
    low = LEML(rank=3, max_iter=20).fit(X[train], Y[train])
    both = REML(rank=3).fit(X[train], Y[train])
    ours, theirs = (precision_at_k(Y[test], model.predict_topk(X[test], 3)[0], k=3) for model in (both, low))
    assert ours > theirs + 0.02


def test_auto_takes_admm_where_it_fits_and_support_elsewhere():
    X, Y, _ = problem()
    assert REML(rank=2).fit(X, Y).sparse_part_ == "admm"
    assert REML(rank=2, memory_limit=2**14).fit(X, Y).sparse_part_ == "support"


def test_admm_in_blocks_of_labels_gives_the_same():
    X, Y, _ = problem(n=60, n_labels=12)
    whole = REML(rank=2, sparse_part="admm", sparsity=0.2).fit(X, Y)
    blocks = REML(rank=2, sparse_part="admm", sparsity=0.2, memory_limit=2**15).fit(X, Y)
    np.testing.assert_allclose(blocks.decision_function(X), whole.decision_function(X), atol=1e-3)


def test_pruning_drops_what_is_small_beside_the_largest_of_its_label():
    H = np.array([[1.0, 0.5, 0.0], [0.01, -10.0, 0.0], [-0.2, 0.99, 0.0]])
    np.testing.assert_array_equal(pruned(H, 0.1).toarray(), [[1.0, 0.0, 0.0], [0.0, -10.0, 0.0], [-0.2, 0.0, 0.0]])
    assert pruned(H, 0).nnz == 6
    X, Y, _ = problem()
    sizes = [REML(rank=2, sparse_part="admm", prune=prune).fit(X, Y).sparse_weights_.nnz for prune in (0, 0.1, 1)]
    assert sizes[0] > sizes[1] > sizes[2] == Y.shape[1]


# ---------------------------------------------------------------------- memory and threads


@pytest.mark.parametrize(
    ("weight", "masked"),
    [(1.0, False), pytest.param(3.0, False, marks=pytest.mark.slow), pytest.param(1.0, True, marks=pytest.mark.slow)],
)
def test_admm_keeps_within_its_memory_limit(weight, masked):
    """20,000 rows and 300 labels: Z and μ alone would be 48 MB each; blocks of labels take their place."""
    rng = np.random.default_rng(0)
    X = sp.random(20_000, 40, 0.1, "csr", random_state=0, dtype=np.float32)
    Y = sp.random(20_000, 300, 0.01, "csr", random_state=1, dtype=np.float32)
    Y.data[:] = 1
    known = sp.csr_matrix((rng.random((20_000, 300)) < 0.02).astype(np.int8)) if masked else None
    limit = 2**25
    model = REML(rank=2, sparse_part="admm", positive_weight=weight, memory_limit=limit, max_iter=2, tol=0)
    model.fit(X[:50], Y[:50])  # compiles before memory is measured
    tracemalloc.start()
    model.fit(X, Y, observed=known)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    data = 6 * X.data.nbytes + 12 * Y.data.nbytes + (0 if known is None else 16 * known.nnz)
    assert peak < limit + data + 2**23


def test_a_factorisation_of_many_rows_keeps_within_its_memory_limit():
    X = sp.random(200_000, 256, 0.005, "csr", random_state=0, dtype=np.float32)
    Y = sp.random(200_000, 2, 0.1, "csr", random_state=1, dtype=np.float32)
    Y.data[:] = 1
    model = REML(rank=1, sparse_part="admm", memory_limit=2**26, max_iter=1)
    model.fit(X[:50], Y[:50])
    tracemalloc.start()
    model.fit(X, Y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26 + 12 * X.data.nbytes + 2**25


def test_bit_identical_for_every_number_of_threads_where_memory_binds():
    X = sp.random(3000, 400, 0.1, "csr", random_state=0, dtype=np.float32)
    Y = sp.random(3000, 60, 0.05, "csr", random_state=1, dtype=np.float32)
    Y.data[:] = 1
    models = [REML(rank=4, sparse_part="support", memory_limit=1_320_000, n_jobs=jobs).fit(X, Y) for jobs in (1, 2, 3)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.decision_function(X), models[0].decision_function(X))


# ---------------------------------------------------------------------- behaviour at the edges


@pytest.mark.filterwarnings("default::tagwise.exceptions.ConvergenceWarning")
def test_labels_that_admm_could_not_solve_are_counted():
    X, Y, _ = problem()
    model = REML(rank=3, sparse_part="admm", positive_weight=1e8)
    with pytest.warns(ConvergenceWarning, match="ADMM did not reach its tolerance for"):
        model.fit(X, Y)
    assert model.history_[-1]["unsolved"] > 0


def test_a_label_without_positives_has_no_sparse_weights_with_support():
    X, Y, _ = problem()
    Y[:, 2] = 0
    model = REML(rank=2, sparse_part="support").fit(X, Y)
    assert model.sparse_weights_[:, 2].nnz == 0
    assert (model.decision_function(X)[:, 2] < 0).all()


def test_bad_parameters_are_named():
    X, Y, _ = problem()
    bad = {
        "rank": 0, "reg_low_rank": 0, "reg_sparse": -1, "sparsity": -0.1, "partitions": 1.5, "sparse_part": "tree",
        "support": 0, "prune": 2, "inner_iter": 0, "tol": -1, "memory_limit": 0, "positive_weight": -1,
        "random_state": "x",
    }  # fmt: skip
    for name, value in bad.items():
        with pytest.raises((InvalidInputError, InvalidTypeError), match=name):
            REML(**{"rank": 2, name: value}).fit(X, Y)
    for part, words in (("admm", "memory of .* MiB"), ("support", "memory_limit")):
        with pytest.raises(InvalidInputError, match=words):
            REML(rank=2, sparse_part=part, memory_limit=100).fit(X, Y)


@pytest.mark.filterwarnings("default::tagwise.exceptions.ConvergenceWarning")
def test_a_fit_that_is_cut_short_warns_and_a_converged_one_does_not():
    X, Y, _ = problem()
    with pytest.warns(ConvergenceWarning, match="REML stopped after max_iter=1"):
        REML(rank=2, max_iter=1).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        REML(rank=2, max_iter=100, tol=0.5).fit(X, Y)


# ---------------------------------------------------------------------- real data


def test_bibtex_reaches_the_figures_of_the_paper(data_folder):
    X, Y, X_test, Y_test = load_dataset("bibtex")
    model = REML(rank=127, reg_low_rank=1, reg_sparse=1, sparsity=0.01, max_iter=5, tol=0, n_jobs=-1).fit(X, Y)
    assert model.sparse_part_ == "admm"
    labels, _ = model.predict_topk(X_test, 5)
    assert precision_at_k(Y_test, labels, k=1) >= 0.645
    assert precision_at_k(Y_test, labels, k=3) >= 0.395
    assert precision_at_k(Y_test, labels, k=5) >= 0.29
    assert ndcg_at_k(Y_test, labels, k=3) >= 0.60


def test_bibtex_with_a_fifth_of_admms_weights_stays_close(data_folder):
    X, Y, X_test, Y_test = load_dataset("bibtex")
    model = REML(rank=127, sparse_part="support", n_jobs=-1).fit(X, Y)
    assert model.sparse_weights_.nnz < 0.2 * X.shape[1] * Y.shape[1]
    assert precision_at_k(Y_test, model.predict_topk(X_test, 5)[0], k=3) >= 0.385


def figures(model, name):
    """P@1, P@3 and P@5, and PSP@5."""
    X, Y, X_test, Y_test = load_dataset(name)
    labels, _ = model.fit(X, Y).predict_topk(X_test, 5)
    tail = psp_at_k(Y_test, labels, inverse_propensity(Y), k=5)
    return np.array([precision_at_k(Y_test, labels, k=k) for k in (1, 3, 5)]), tail


def test_debtags_beats_leml_and_parts_lose_little(data_folder):
    low, low_tail = figures(LEML(rank=100, reg=3, n_jobs=-1), "debtags")
    both, both_tail = figures(REML(rank=100, reg_low_rank=6, n_jobs=-1), "debtags")
    assert (both > low).all()
    assert both_tail >= low_tail + 0.03
    parts, _ = figures(REML(rank=100, reg_low_rank=6, partitions=4, n_jobs=-1), "debtags")
    assert parts[1] >= both[1] - 0.03


@pytest.mark.slow
def test_yso_is_beyond_a_low_rank(data_folder):
    both, tail = figures(REML(rank=100, n_jobs=-1), "yso-finna-en-min4")
    low, low_tail = figures(LEML(rank=100, n_jobs=-1), "yso-finna-en-min4")
    assert (both > [0.375, 0.29, 0.24]).all()
    assert (both > low).all()
    assert tail >= low_tail + 0.03


def test_debtags_with_a_fifth_of_the_labels_known(data_folder):
    X, Y, X_test, Y_test = load_dataset("debtags")
    known = hide_labels(Y, 0.2, random_state=0)
    labels, _ = REML(rank=100, reg_low_rank=6, n_jobs=-1).fit(X, Y, observed=known).predict_topk(X_test, 1)
    assert precision_at_k(Y_test, labels, k=1) >= 0.81
