"""LEML: what it learns, losses, closed form, starts, kernels, early stopping, warm starts, and real data."""

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagwise import LEML, load
from tagwise.data import hide_labels, load_dataset, make_low_rank_plus_sparse
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, InvalidTypeError, TagwiseWarning
from tagwise.losses import LOSSES
from tagwise.metrics import average_auc, precision_at_k
from tagwise.models.leml import leml as leml_module
from tagwise.models.leml import steps
from tagwise.problem import Known, Problem
from tagwise.progress import FitProgress

MARGIN_LOSSES = ["logistic", "squared_hinge"]


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def random_problem(seed=0, n=60, d=10, n_labels=8):
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, 0.5, format="csr", random_state=seed)
    return X, sp.csr_matrix(X @ rng.standard_normal((d, n_labels)) > 0.5).astype(float)


# ---------------------------------------------------------------------------- what it learns


def test_reaches_the_trace_norm_optimum_at_full_rank():
    """At full rank the factored problem has no bad optima: its value is the convex trace-norm problem's."""
    X, Y = random_problem(5, n=30, d=5, n_labels=4)
    dense, reg = X.toarray(), 0.5
    model = LEML(4, reg=reg, max_iter=5000, inner_iter=50, tol=1e-14, normalize=False, fit_intercept=False)
    model.fit(X, Y)
    Z = np.zeros((5, 4))
    step = 1 / np.linalg.norm(dense, 2) ** 2
    for _ in range(20_000):  # proximal gradient on ½‖Y − XZ‖² + λ‖Z‖_*
        U, s, V = np.linalg.svd(Z - step * dense.T @ (dense @ Z - Y.toarray()), full_matrices=False)
        Z = U @ np.diag(np.maximum(s - step * reg, 0)) @ V
    convex = 0.5 * np.sum((Y.toarray() - dense @ Z) ** 2) + reg * np.linalg.norm(Z, "nuc")
    assert model.objective_[-1] == pytest.approx(convex, rel=1e-6)


def test_recovers_a_planted_low_rank_truth():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 20))
    scores = X @ rng.standard_normal((20, 3)) @ rng.standard_normal((3, 15))
    Y = (scores > np.quantile(scores, 0.8, axis=1, keepdims=True)).astype(int)
    model = LEML(3, max_iter=30).fit(X[:300], Y[:300])
    labels, _ = model.predict_topk(X[300:], 3)
    assert precision_at_k(Y[300:], labels, 3) > 0.75  # chance is 0.2


def test_unknown_is_not_negative():
    """With half of the positives hidden, a mask that says so ranks better than taking them for negatives."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((500, 15))
    truth = (X @ rng.standard_normal((15, 3)) @ rng.standard_normal((3, 12)) > 1.5).astype(int)
    observed = rng.random(truth.shape) < 0.15
    masked = LEML(3, max_iter=20).fit(X[:400], truth[:400], observed[:400])
    as_negative = LEML(3, max_iter=20).fit(X[:400], truth[:400] * observed[:400])
    kept = truth[400:].sum(axis=1) > 0
    reached, naive = (
        precision_at_k(truth[400:][kept], model.predict_topk(X[400:][kept], 1)[0], 1) for model in (masked, as_negative)
    )
    assert reached > naive


def test_positive_weight_raises_recall_of_positives():
    X, Y = random_problem(2)
    on = [LEML(3, positive_weight=weight).fit(X, Y).predict(X).nnz for weight in (0.5, 1.0, 4.0)]
    assert on[0] < on[1] < on[2]


def test_too_large_a_rank_and_stopping_early_warn_and_stopping_in_time_does_not():
    X, Y = random_problem(0)
    with pytest.warns(TagwiseWarning, match="rank=50 is more than 10 features and 8 labels allow; using 8"):
        assert LEML(50, tol=0.5).fit(X, Y).feature_factors_.shape == (10, 8)
    with pytest.warns(TagwiseWarning, match="rank=8 is more than 6 features"):
        LEML(8, kernel="linear").fit(X[:6], Y[:6])
    with pytest.warns(
        ConvergenceWarning, match=r"max_iter=1 rounds; .* above tol=1e-09; raise max_iter or tol"
    ) as caught:
        LEML(3, max_iter=1, tol=1e-9).fit(X, Y)
    assert caught[0].filename == __file__
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 rounds; .* tol counts from round 3 on; raise max_iter"):
        LEML(3, max_iter=2, tol=1.0).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LEML(3, max_iter=500, tol=1e-3).fit(X, Y)
    assert model.n_iter_ < 500


# ---------------------------------------------------------------------------- losses


@settings(max_examples=60)
@given(
    st.integers(0, 9999),
    st.sampled_from([*LOSSES]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1.0, 3.0, "propensity"]),
    st.integers(1, 5),
)
def test_the_objective_falls_in_every_round(seed, loss, masked, fit_intercept, positive_weight, rank):
    X, Y = random_problem(seed)
    observed = (np.random.default_rng(seed).random(Y.shape) < 0.6) if masked else None
    settings = {"positive_weight": positive_weight, "fit_intercept": fit_intercept, "reg": 0.3}
    model = LEML(rank, loss=loss, **settings, max_iter=6, tol=0).fit(X, Y, observed)
    assert (np.diff(model.objective_) <= 1e-9 * model.objective_[0]).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_objective_is_the_value_of_the_stated_problem(loss):
    X, Y = random_problem(3)
    model = LEML(3, loss=loss, reg=0.4, max_iter=3, tol=0, normalize=False).fit(X, Y)
    function = LOSSES[loss]
    losses = function.value(function.targets(Y.toarray()), model.decision_function(X) + function.threshold)
    penalty = 0.2 * (np.sum(model.feature_factors_**2) + np.sum(model.label_factors_**2))
    assert model.objective_[-1] == pytest.approx(losses.sum() + penalty, rel=1e-9)


@pytest.mark.parametrize("loss", ["squared", *MARGIN_LOSSES])
def test_everything_known_through_the_masked_path_equals_no_mask(loss):
    """``fit`` turns a full mask into none, so the masked path is called directly."""
    X, Y = random_problem(8)
    full = LEML(4, loss=loss, max_iter=5).fit(X, Y)
    masked = LEML(4, loss=loss, max_iter=5)
    everything = Known(sp.csr_matrix(np.ones(Y.shape)), np.zeros(Y.shape[0], dtype=bool))
    progress = FitProgress("LEML", 5)
    masked._fit(Problem(X, Y, everything), progress)
    np.testing.assert_allclose([info["objective"] for info in progress.history], full.objective_, rtol=1e-9)
    np.testing.assert_allclose(masked.feature_factors_, full.feature_factors_, atol=1e-8)
    np.testing.assert_allclose(masked.label_factors_, full.label_factors_, atol=1e-8)


@pytest.mark.parametrize("loss", MARGIN_LOSSES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weight", [1.0, pytest.param(10.0, marks=pytest.mark.slow)])
def test_a_converged_fit_is_stationary(loss, masked, weight):
    """A rejected Newton step once ended a fit as if it had converged, far above the minimum."""
    converged = 0
    for seed in range(6):
        X, Y = random_problem(seed, n=40)
        observed = hide_labels(Y, 0.5, random_state=seed) if masked else None
        settings = {"loss": loss, "positive_weight": weight, "reg": 0.3, "normalize": False}
        model = LEML(3, **settings, max_iter=400, tol=1e-6).fit(X, Y, observed)
        assert min(info["fall"] for info in model.history_) > 0
        if model.n_iter_ == 400:
            continue
        converged += 1
        further = LEML(3, **settings, max_iter=100, tol=0, warm_start=True)
        further.__dict__.update({name: value for name, value in model.__dict__.items() if name.endswith("_")})
        further.fit(X, Y, observed)
        assert further.objective_[-1] > 0.99 * model.objective_[-1]
    # Weighted hinge problems creep for thousands of rounds; that none of them stops is what matters there.
    assert converged > 0 or weight > 1


def test_weights_too_small_to_add_to_one():
    X, Y = random_problem(1)
    observed = hide_labels(Y, 0.5, random_state=0)
    for loss in ("squared", *MARGIN_LOSSES):
        for dtype in (np.float32, np.float64):
            model = LEML(2, loss=loss, positive_weight=1e-20, max_iter=2).fit(X.astype(dtype), Y, observed)
            assert np.isfinite(model.decision_function(X.astype(dtype))).all()


@pytest.mark.parametrize("loss", ["squared", *MARGIN_LOSSES])
@pytest.mark.parametrize("masked", [False, True])
def test_a_positive_weight_is_so_many_copies_of_the_positives(loss, masked):
    """For one label, a weight of 3 is the same as two more copies of its positive rows."""
    X, Y = random_problem(4)
    Y = Y[:, :1]
    observed = sp.csr_matrix(np.ones(Y.shape)) if not masked else hide_labels(Y, 0.7, random_state=0)
    positive = np.flatnonzero(Y.toarray().ravel())
    copies = np.r_[np.arange(60), positive, positive]
    weighted = LEML(1, loss=loss, positive_weight=3.0, max_iter=300, tol=1e-12).fit(X, Y, observed)
    copied = LEML(1, loss=loss, max_iter=300, tol=1e-12).fit(X[copies], Y[copies], observed[copies])
    np.testing.assert_allclose(weighted.decision_function(X), copied.decision_function(X), atol=2e-3)


@pytest.mark.parametrize("loss", MARGIN_LOSSES)
@pytest.mark.parametrize("known", [None, 0.001])
def test_no_fit_allocates_rows_times_labels(loss, known, monkeypatch):
    """1,500 rows × 20,000 labels are 120 MB as float32; the contract asks the same of squared loss."""
    monkeypatch.setattr(steps, "_LABEL_STEPS", 1)
    rng = np.random.default_rng(0)
    X = sp.random(1500, 40, 0.1, format="csr", dtype=np.float32, random_state=0)
    pairs = (np.arange(3000) % 1500, rng.integers(0, 20_000, 3000))
    Y = sp.csr_matrix((np.ones(3000, np.float32), pairs), (1500, 20_000))
    Y.data[:] = 1
    observed = None if known is None else hide_labels(Y, known, random_state=0)
    model = LEML(2, loss=loss, max_iter=1, inner_iter=1)
    model.fit(X[:60], Y[:60, :50])  # compiles before memory is measured
    tracemalloc.start()
    model.fit(X, Y, observed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1500 * 20_000 * 4 / 5


# ---------------------------------------------------------------------------- closed form


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_closed_form_has_its_rank_and_states_its_objective(fit_intercept):
    X, Y = random_problem(1)
    model = LEML(3, solver="closed_form", reg=0.5, normalize=False, fit_intercept=fit_intercept).fit(X, Y)
    scores = model.decision_function(X) + 0.5
    Z = model.feature_factors_ @ model.label_factors_.T
    assert model.objective_[0] == pytest.approx(0.5 * np.sum((Y.toarray() - scores) ** 2) + 0.25 * np.sum(Z**2))
    assert np.linalg.matrix_rank(Z) == 3


def test_closed_form_without_penalty_is_the_limit_of_the_alternation():
    X, Y = random_problem(1)
    closed = LEML(3, solver="closed_form", reg=0.0, normalize=False).fit(X, Y)
    alternating = LEML(3, reg=1e-7, normalize=False, max_iter=2000, inner_iter=50, tol=1e-13).fit(X, Y)
    np.testing.assert_allclose(alternating.decision_function(X), closed.decision_function(X), atol=1e-3)


# ---------------------------------------------------------------------------- starts


def test_spectral_start_needs_fewer_rounds_than_a_random_one():
    X, Y, *_ = load_dataset("debtags-sample")
    spectral, random = (LEML(40, init=init, max_iter=4, tol=0, n_jobs=-1).fit(X, Y) for init in ("spectral", "random"))
    assert spectral.objective_[1] < random.objective_[2]


# ---------------------------------------------------------------------------- kernels


@pytest.mark.parametrize("loss", ["squared", *MARGIN_LOSSES])
def test_linear_kernel_is_no_kernel(loss):
    X, Y = random_problem(n=40)
    plain, kernel = (LEML(4, loss=loss, kernel=kernel, max_iter=8, tol=0).fit(X, Y) for kernel in (None, "linear"))
    np.testing.assert_allclose(kernel.decision_function(X), plain.decision_function(X), atol=1e-3)
    assert kernel.objective_[-1] == pytest.approx(plain.objective_[-1], rel=1e-5)


def test_rbf_kernel_learns_what_a_linear_model_cannot():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    Y = np.column_stack([X[:, 0] * X[:, 1] > 0, X[:, 0] * X[:, 1] <= 0]).astype(int)
    shares = {}
    for kernel in (None, "rbf", "poly"):
        model = LEML(2, kernel=kernel, gamma=2.0, degree=2, normalize=False, reg=0.1).fit(X[:200], Y[:200])
        shares[kernel] = precision_at_k(Y[200:], model.predict_topk(X[200:], 1)[0], 1)
    assert shares[None] < 0.7
    assert shares["rbf"] > 0.9
    assert shares["poly"] > 0.8


def test_callable_kernel_is_the_named_one():
    X, Y = random_problem()
    named = LEML(3, kernel="linear").fit(X, Y)
    called = LEML(3, kernel=lambda a, b: (a @ b.T).toarray()).fit(X, Y)
    np.testing.assert_allclose(called.decision_function(X), named.decision_function(X), atol=1e-8)
    with pytest.raises(InvalidInputError, match="model folder cannot hold"):
        called.save("never-written")


def test_memory_limit_turns_the_gram_matrix_into_landmarks(tmp_path):
    X, Y = random_problem(n=80)
    exact = LEML(3, kernel="rbf", gamma=1.0).fit(X, Y)
    landmarks = LEML(3, kernel="rbf", gamma=1.0, memory_limit=24 * 40**2).fit(X, Y)
    assert exact.landmarks_.shape == (80, 10)
    assert landmarks.landmarks_.shape == (40, 10)
    assert landmarks.feature_factors_.shape == (40, 3)
    landmarks.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").decision_function(X), landmarks.decision_function(X))


# ---------------------------------------------------------------------------- early stopping and warm starts


def noisy_problem(n=400):
    """Few signal features among many of noise: a fit that goes on too long ranks worse."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 60))
    scores = X[:, :3] @ rng.standard_normal((3, 10)) + rng.standard_normal((n, 10))
    return X, (scores > 1.5).astype(int)


@pytest.mark.parametrize("known", [None, 0.5])
def test_early_stopping_keeps_the_best_round(known, tmp_path):
    X, Y = noisy_problem()
    observed = None if known is None else hide_labels(Y, known, random_state=0)
    model = LEML(8, reg=1e-3, early_stopping=True, patience=2, max_iter=30, tol=0, inner_iter=2).fit(X, Y, observed)
    scores = [info["validation"] for info in model.history_]
    best = int(np.argmax(scores)) + 1
    assert (model.n_iter_, model.best_iter_) == (best + 2, best)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").best_iter_ == best
    shorter = LEML(8, reg=1e-3, early_stopping=True, max_iter=best, tol=0, inner_iter=2).fit(X, Y, observed)
    np.testing.assert_array_equal(shorter.feature_factors_, model.feature_factors_)


@pytest.mark.parametrize("loss", ["squared", *MARGIN_LOSSES])
def test_warm_start_continues_where_the_last_fit_ended(loss):
    X, Y = random_problem()
    model = LEML(3, loss=loss, max_iter=3, tol=0, warm_start=True).fit(X, Y)
    after_three = model.objective_[-1]
    model.fit(X, Y)
    straight = LEML(3, loss=loss, max_iter=6, tol=0).fit(X, Y)
    assert model.objective_[0] < after_three
    np.testing.assert_allclose(model.objective_, straight.objective_[3:], rtol=1e-6)


def test_a_warm_start_may_follow_a_closed_form():
    X, Y = random_problem()
    model = LEML(3, solver="closed_form").fit(X, Y)
    model.set_params(solver="alternating", warm_start=True, max_iter=2).fit(X, Y)
    assert model.history_[0]["fall"] > 0


def test_warm_start_with_other_shapes_is_refused():
    X, Y = random_problem()
    model = LEML(3, warm_start=True).fit(X, Y)
    with pytest.raises(InvalidInputError, match="warm_start needs the features, labels and rank of the last fit"):
        model.fit(X, Y[:, :5])
    with pytest.raises(InvalidInputError, match="warm_start needs"):
        model.set_params(rank=2).fit(X, Y)


def test_a_warm_start_from_a_converged_model_has_converged():
    X, Y = random_problem()
    model = LEML(3, max_iter=200, tol=1e-3, warm_start=True).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.fit(X, Y).n_iter_ <= 2


def test_what_y_says_outside_the_mask_does_not_decide_which_rows_are_for_validation():
    X, Y = random_problem(6)
    observed = hide_labels(Y, 0.5, random_state=0).tolil()
    observed[:, 3] = 0
    observed = sp.csr_matrix(observed)
    expected = LEML(2, early_stopping=True, max_iter=3).fit(X, Y, observed)
    for row in range(0, 60, 6):
        changed = Y.tolil()
        changed[:, 3] = 0
        changed[row, 3] = 1
        other = LEML(2, early_stopping=True, max_iter=3).fit(X, sp.csr_matrix(changed), observed)
        np.testing.assert_array_equal(other.feature_factors_, expected.feature_factors_)


@pytest.mark.parametrize("shape", [(400, 300), (300, 400)])
def test_closed_form_stays_within_its_memory_limit(shape):
    n, d = shape
    X, Y = random_problem(0, n=n, d=d, n_labels=50)
    needed = 8 * (3 * 300**2 + 2 * 300 * 50 + 50**2)
    model = LEML(3, solver="closed_form", memory_limit=needed)
    model.fit(X, Y)
    tracemalloc.start()
    model.fit(X, Y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The rows as float64 and their transpose are the data's, not the method's.
    assert peak < needed + 40 * X.nnz + 500_000


# ---------------------------------------------------------------------------- when the rounds end


def test_a_small_fall_ends_the_rounds_from_the_third_on_and_those_of_a_warm_start_at_once():
    for falls, tol, rounds, last in (
        ([10, 1, 1, 1], 0.15, 3, True),  # not before the third
        ([10, 9, 8, 1, 1], 0.15, 4, True),
        ([10, 9, 8], 0.15, 3, False),
        ([10, 0, 5], 0.0, 2, True),  # nothing is left to gain
        ([0, 1], 0.15, 1, True),
    ):
        history = [{"fall": fall} for fall in falls]
        ended = [LEML(tol=tol)._has_ended(history[:done]) for done in range(1, rounds + 1)]
        assert ended == [False] * (rounds - 1) + [last], falls
    warm = LEML(tol=0.15, warm_start=True)  # measured against the fit before
    warm.feature_factors_, warm.history_ = np.ones((2, 1)), [{"fall": 10.0}]
    assert [warm._has_ended([{"fall": fall}]) for fall in (3.0, 1.4)] == [False, True]


def test_patience_ends_the_rounds_and_the_best_is_kept(monkeypatch):
    made, seen = make_low_rank_plus_sparse(200, 30, 12, rank=3, random_state=0), []

    def score(rows, factors):
        seen.append((factors.W.copy(), factors.H.copy()))
        return (0.5, 0.7, 0.6, 0.7)[len(seen) - 1]

    monkeypatch.setattr(leml_module, "validation_score", score)
    model = LEML(rank=3, tol=0.0, early_stopping=True, patience=2, max_iter=9).fit(made.X, made.Y)
    assert (model.n_iter_, model.best_iter_) == (4, 2)
    np.testing.assert_array_equal(model.feature_factors_, seen[1][0])
    np.testing.assert_array_equal(model.label_factors_, seen[1][1])
    assert model.history_[1]["validation"] == pytest.approx(0.7)


# ---------------------------------------------------------------------------- bad parameters


def test_bad_parameters():
    closed = {"solver": "closed_form"}
    stopping = {"early_stopping": True}
    for changes, words in (
        ({"rank": 0}, "rank must be at least 1; found 0"),
        ({"rank": 2.5}, "rank must be a whole number; found 2.5"),
        ({"loss": "hinge"}, "loss must be one of"),
        ({"reg": 0}, "reg must be finite above 0; found 0"),
        ({"reg": float("nan")}, "reg must be finite"),
        ({"reg": "1"}, "reg must be a number"),
        ({"memory_limit": 0}, "memory_limit must be finite above 0; found 0"),
        ({"memory_limit": "1GB"}, "memory_limit must be a number; found '1GB'"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"inner_iter": 0}, "inner_iter must be at least 1"),
        ({"tol": -1}, "tol must be finite at least 0"),
        ({"positive_weight": 0}, "positive_weight must be finite above 0"),
        ({"positive_weight": "rare"}, "positive_weight must be a number, an array or 'propensity'"),
        ({"positive_weight": np.ones(3)}, "one per label"),
        ({"positive_weight": -np.ones(8)}, "above 0 for every label"),
        ({"kernel": "cosine"}, "kernel"),
        ({"kernel": "rbf", "gamma": -1.0}, "gamma"),
        ({"kernel": "rbf", "warm_start": True}, "warm_start cannot continue a kernel model"),
        (closed | {"loss": "logistic"}, "needs loss=squared; found 'logistic'"),
        (closed | {"positive_weight": 2.0}, "needs positive_weight=1"),
        (closed | stopping, "needs early_stopping=False"),
        (closed | {"warm_start": True}, "needs warm_start=False"),
        (closed | {"memory_limit": 10}, "above memory_limit"),
        (stopping | {"validation_fraction": 0}, "validation_fraction must be finite above 0"),
        (stopping | {"validation_fraction": 0.95}, "at most 0.9"),
        (stopping | {"patience": 0}, "patience must be at least 1"),
    ):
        with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
            LEML(**{"rank": 3, **changes}).fit(*random_problem())


def test_data_that_a_solver_cannot_use():
    with pytest.raises(InvalidInputError, match="every label to be known"):
        LEML(3, solver="closed_form").fit(*random_problem(), observed=np.eye(60, 8))
    X = sp.random(30, 10, 0.5, format="csr", random_state=0)
    with pytest.raises(InvalidInputError, match="holds no row out"):
        LEML(2, early_stopping=True).fit(X, np.eye(30))
    mask = np.zeros((60, 8))
    mask[0] = 1
    with pytest.raises(InvalidInputError, match="none of the validation rows has a known label"):
        LEML(2, early_stopping=True).fit(*random_problem(), observed=mask)


# ---------------------------------------------------------------------------- real data

# Parameters, share of labels that are known, and P@1, P@3, … that are reached at least; those of the margin losses are
# the paper's.
FIGURES = [
    ("bibtex", {"rank": 64}, None, [0.61, 0.365, 0.27]),
    ("bibtex", {"rank": 64}, 0.2, [0.53, 0.30]),
    ("bibtex", {"rank": 64, "loss": "logistic", "max_iter": 6}, None, [0.5078]),
    ("bibtex", {"rank": 64, "loss": "squared_hinge", "max_iter": 6}, None, [0.4068]),
    ("bibtex", {"rank": 64, "loss": "logistic", "max_iter": 6}, 0.2, [0.4740]),
    ("bibtex", {"rank": 64, "loss": "squared_hinge", "max_iter": 6}, 0.2, [0.3205]),
    ("debtags", {"rank": 100, "reg": 3.0}, 0.2, [0.80]),
    ("delicious", {"rank": 196}, None, [0.66, 0.60, 0.555]),
]


@pytest.mark.parametrize(("dataset", "parameters", "share", "floors"), FIGURES, ids=str)
def test_published_figures(data_folder, dataset, parameters, share, floors):
    X, Y, X_test, Y_test = load_dataset(dataset)
    observed = None if share is None else hide_labels(Y, share, random_state=0)
    model = LEML(**parameters, n_jobs=-1).fit(X, Y, observed)
    places = [1, 3, 5][: len(floors)]
    assert (np.array(precision_at_k(Y_test, model.predict_topk(X_test, 5)[0], places)) >= floors).all()
    if (dataset, share, len(floors)) == ("bibtex", 0.2, 2):
        assert average_auc(Y_test, model.decision_function(X_test)) >= 0.85
