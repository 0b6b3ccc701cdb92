"""Compressed sensing of labels: the regression, the decoding, limits and real data."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from linear_labels import linear_labels
from sklearn.linear_model import Ridge

from tagwise import load
from tagwise.baselines import CompressedSensing
from tagwise.baselines.compressed_sensing import cosamp, orthogonal_matching_pursuit
from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError, ModelFormatError
from tagwise.metrics import precision_at_k
from tagwise.persistence import read_model, write_model

N, D, L = 60, 9, 8


def data(seed=0):
    return linear_labels(N, D, L, 0.8, seed)


@pytest.mark.parametrize(("recovery", "method"), [("omp", orthogonal_matching_pursuit), ("cosamp", cosamp)])
def test_measurements_are_ridge_regressions_and_scores_are_recovered_labels(recovery, method):
    X, Y = data()
    model = CompressedSensing(n_measurements=12, n_nonzero=3, recovery=recovery, reg=0.5, normalize=False).fit(X, Y)
    codes = model.label_codes_
    peer = Ridge(alpha=0.5, solver="svd").fit(X.toarray(), Y.toarray() @ codes)
    np.testing.assert_allclose(model.feature_factors_, peer.coef_.T, atol=1e-8)
    expected = method(peer.predict(X.toarray()), codes, 3) - 0.5
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-7)
    residual = Y.toarray() @ codes - peer.predict(X.toarray())
    assert model.objective_[0] == pytest.approx(0.5 * np.sum(residual**2) + 0.25 * np.sum(peer.coef_**2), rel=1e-8)


def test_labels_that_the_features_give_away_come_back():
    """Each row is one of 40 kinds with three labels; far fewer measurements than labels tell them apart."""
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(np.tile(np.eye(40), (5, 1)))
    kinds = np.zeros((40, 100))
    for kind in kinds:
        kind[rng.choice(100, 3, replace=False)] = 1
    Y = sp.csr_matrix(np.tile(kinds, (5, 1)))
    model = CompressedSensing(n_measurements=50, n_nonzero=3, reg=1e-6).fit(X, Y)
    assert (model.predict(X) != Y).nnz == 0


def test_codes_have_unit_length_on_average_and_follow_the_seed():
    X, Y = data()
    one, two = (CompressedSensing(n_measurements=400, random_state=seed).fit(X, Y).label_codes_ for seed in (0, 1))
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1, atol=0.15)
    assert not np.array_equal(one, two)


def test_defaults_follow_the_labels():
    X, Y = data()
    model = CompressedSensing().fit(X, Y)
    assert model.feature_factors_.shape == (D, L // 2)
    assert model.n_nonzero_ == 5
    many = sp.csr_matrix(np.ones((N, 1000)))
    wide = CompressedSensing().fit(X, many)
    assert wide.feature_factors_.shape == (D, 400)
    assert wide.n_nonzero_ == 1000


def test_constant_labels_keep_their_constant_and_take_no_part():
    X, Y = data()
    with_constants = sp.csr_matrix(sp.hstack([Y, np.ones((N, 1)), np.zeros((N, 1))]))
    model = CompressedSensing(n_measurements=6).fit(X, with_constants)
    scores = model.decision_function(X)
    np.testing.assert_array_equal(scores[:, L], np.full(N, 0.5))
    np.testing.assert_array_equal(scores[:, L + 1], np.full(N, -0.5))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_measurements": 0}, "n_measurements must be at least 1"),
        ({"n_nonzero": 0}, "n_nonzero must be at least 1"),
        ({"recovery": "lasso"}, "recovery must be one of 'omp', 'cosamp'"),
        ({"reg": 0}, "reg must be finite above 0"),
        ({"random_state": -1}, "random_state must be from 0"),
    ],
)
def test_bad_parameters(parameters, words):
    with pytest.raises(InvalidInputError, match=words):
        CompressedSensing(**parameters).fit(*data())


@pytest.mark.parametrize(
    "change",
    [
        {"label_codes_": np.ones((L, 3))},
        {"base_score_": np.ones(3)},
        {"measurement_intercept_": np.full(4, np.inf)},
        {"feature_factors_": np.ones((D, 4), dtype=np.float32)},
        {"feature_factors_": np.ones(D)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_forged_folders_are_refused(tmp_path, change):
    CompressedSensing(n_measurements=4).fit(*data()).save(tmp_path / "model")
    record = read_model(tmp_path / "model")
    write_model(tmp_path / "model", replace(record, tensors={**record.tensors, **change}))
    with pytest.raises(ModelFormatError, match=r"arrays of shapes|feature_factors_|measurement_intercept_"):
        load(tmp_path / "model")


def test_a_forged_n_nonzero_is_refused(tmp_path):
    CompressedSensing(n_measurements=4).fit(*data()).save(tmp_path / "model")
    record = read_model(tmp_path / "model")
    write_model(tmp_path / "model", replace(record, values={**record.values, "n_nonzero_": -3}))
    with pytest.raises(ModelFormatError, match="n_nonzero_"):
        load(tmp_path / "model")


@pytest.mark.parametrize("recovery", ["omp", "cosamp"])
@pytest.mark.parametrize(
    ("name", "published"), [("bibtex", 0.589), pytest.param("delicious", 0.614, marks=pytest.mark.slow)]
)
def test_real_data(data_folder, name, published, recovery):
    real = load_dataset(name)
    model = CompressedSensing(recovery=recovery).fit(real.X_train, real.Y_train)
    assert precision_at_k(real.Y_test, model.predict_topk(real.X_test, 1)[0], 1) > published - 0.01


# ------------------------------------------------------------------ sparse recovery

METHODS = {"omp": orthogonal_matching_pursuit, "cosamp": cosamp}


def codes_of(n_codes, size, seed=0):
    return np.random.default_rng(seed).standard_normal((n_codes, size)) / np.sqrt(size)


def slow_omp(z, codes, n_nonzero):
    support, y = [], np.zeros(len(codes))
    for _ in range(n_nonzero):
        correlation = codes @ (z - y @ codes)
        correlation[support] = 0
        if correlation.max() <= 0:
            break
        support.append(int(correlation.argmax()))
        y[:] = 0
        y[support] = np.linalg.lstsq(codes[support].T, z, rcond=None)[0]
    return y


def slow_cosamp(z, codes, n_nonzero, rounds=10):
    best = np.zeros(len(codes))
    for _ in range(rounds):
        correlation = codes @ (z - best @ codes)
        added = [j for j in np.argsort(-correlation, kind="stable")[: 2 * n_nonzero] if correlation[j] > 0]
        merged = sorted(set(np.flatnonzero(best)) | set(added))
        fit = np.zeros(len(codes))
        fit[merged] = np.linalg.lstsq(codes[merged].T, z, rcond=None)[0]
        fit[np.argsort(-np.abs(fit), kind="stable")[n_nonzero:]] = 0
        if np.linalg.norm(z - fit @ codes) >= np.linalg.norm(z - best @ codes):
            break
        best = fit
    return best


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
@given(seed=st.integers(0, 10_000), n_nonzero=st.integers(1, 3))
def test_planted_labels_come_back(method, seed, n_nonzero):
    """Guaranteed of matching pursuit when no two codes have a correlation above 1/(2s − 1)."""
    rng = np.random.default_rng(seed)
    codes = codes_of(60, 1000, seed=1)
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    assert np.abs(codes @ codes.T - np.eye(60)).max() < 1 / 5
    truth = np.zeros((5, 60))
    for row in truth:
        row[rng.choice(60, n_nonzero, replace=False)] = 1
    np.testing.assert_allclose(method(truth @ codes, codes, n_nonzero), truth, atol=1e-8)


@pytest.mark.parametrize(("method", "slow"), [(orthogonal_matching_pursuit, slow_omp), (cosamp, slow_cosamp)])
@pytest.mark.parametrize("n_nonzero", [1, 3, 5])
def test_it_equals_its_twin_on_noise(method, slow, n_nonzero):
    codes, Z = codes_of(40, 20), np.random.default_rng(2).standard_normal((300, 20))
    found = method(Z, codes, n_nonzero, n_threads=2)
    np.testing.assert_allclose(found, [slow(z, codes, n_nonzero) for z in Z], atol=1e-7)
    assert (np.count_nonzero(found, axis=1) <= n_nonzero).all()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_nothing_is_picked_that_does_not_point_the_way(method):
    np.testing.assert_array_equal(method(np.array([[-1.0, 0.0], [0.0, 0.0]]), np.eye(2), 2), np.zeros((2, 2)))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_equal_codes_and_codes_of_zeros_do_no_harm(method):
    codes = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    found = method(np.array([[1.0, 1.0, 0.0]]), codes, 3)
    np.testing.assert_allclose(found @ codes, [[1, 1, 0]], atol=1e-6)
    assert found[0, 2] == 0


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_more_entries_than_measurements_or_codes(method):
    Z = np.random.default_rng(0).standard_normal((4, 3))
    for codes in (codes_of(9, 3), codes_of(2, 3)):
        assert np.isfinite(method(Z, codes, 20)).all()
