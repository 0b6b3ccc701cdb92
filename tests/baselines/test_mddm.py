"""MDDM: its projection solves the published eigenproblem, and votes are ML-kNN's on projected rows."""

import tracemalloc

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

from tagwise import load
from tagwise.baselines import MDDM, MLKNN, mddm
from tagwise.baselines.mddm import completed, dependence_projection, projection_memory
from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError
from tagwise.metrics import precision_at_k
from tagwise.persistence import read_model, write_model


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = rng.random((80, 9)) * (rng.random((80, 9)) < 0.6)
    return X, (X @ rng.standard_normal((9, 4)) > 0.2).astype(float)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_the_projection_solves_the_generalised_eigenproblem(problem, correlation, form):
    X, Y = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mddm, "_BATCH", 3)
        P, values = dependence_projection(form(X), sp.csr_matrix(Y), correlation)
    X_c, Y_c = X - X.mean(axis=0), Y - Y.mean(axis=0)
    A, B = X_c.T @ Y_c @ Y_c.T @ X_c, correlation * X_c.T @ X_c + (1 - correlation) * np.eye(9)
    np.testing.assert_allclose(values, scipy.linalg.eigh(A, B, eigvals_only=True)[::-1][:4], rtol=1e-8)
    np.testing.assert_allclose(P.T @ B @ P, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(A @ P, B @ P * values, atol=1e-9 * values[0])


def test_no_dependence_no_directions(problem):
    X, _ = problem
    P, values = dependence_projection(X, sp.csr_matrix((80, 3)), 0.5)
    assert P.shape == (9, 0)
    assert len(values) == 0
    model = MDDM().fit(X, np.zeros((80, 3)))
    assert model.projection_.shape == (9, 1)
    assert (model.projection_ == 0).all()


def test_votes_are_those_of_ml_knn_on_projected_rows(problem):
    X, Y = problem
    model = MDDM(n_components=3, n_neighbors=5, smoothing=0.5, normalize=False).fit(X, Y)
    inside = MLKNN(n_neighbors=5, smoothing=0.5, normalize=False).fit(X @ model.projection_, Y)
    np.testing.assert_allclose(model.decision_function(X), inside.decision_function(X @ model.projection_))
    np.testing.assert_allclose(model.rows_, X @ model.projection_)


def test_how_many_directions_are_kept(problem):
    X, Y = problem
    whole = MDDM(kept=1.0).fit(X, Y)
    assert whole.projection_.shape[1] == 4
    shares = np.cumsum(whole.eigenvalues_) / whole.eigenvalues_.sum()
    for kept in (0.5, float(shares[1]) - 1e-9, float(shares[1]) + 1e-9):
        expected = int(np.sum(shares < kept)) + 1
        assert MDDM(kept=kept).fit(X, Y).projection_.shape[1] == expected
    assert MDDM(n_components=2).fit(X, Y).projection_.shape[1] == 2
    assert MDDM(n_components=50).fit(X, Y).projection_.shape[1] == 4


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_random_directions_complete_the_constraint(problem, correlation, form):
    X, Y = problem
    P, _ = dependence_projection(form(X), sp.csr_matrix(Y), correlation)
    whole = completed(P, 7, form(X), correlation, np.random.default_rng(0))
    X_c = X - X.mean(axis=0)
    B = correlation * X_c.T @ X_c + (1 - correlation) * np.eye(9)
    np.testing.assert_array_equal(whole[:, :4], P)
    np.testing.assert_allclose(whole.T @ B @ whole, np.eye(7), atol=1e-9)
    assert completed(P, 3, form(X), correlation, np.random.default_rng(0)) is P
    assert completed(P, 50, form(X), correlation, np.random.default_rng(0)).shape == (9, 9)


def test_directions_beyond_the_dependent_ones(problem):
    X, Y = problem
    model = MDDM(n_components=7, beyond="random").fit(X, Y)
    assert model.projection_.shape == (9, 7)
    assert (model.eigenvalues_[4:] == 0).all()
    again = MDDM(n_components=7, beyond="random", n_jobs=2).fit(X, Y)
    np.testing.assert_array_equal(model.projection_, again.projection_)
    other = MDDM(n_components=7, beyond="random", random_state=1).fit(X, Y)
    assert (model.projection_[:, :4] == other.projection_[:, :4]).all()
    assert (model.projection_[:, 4:] != other.projection_[:, 4:]).all()
    with pytest.raises(InvalidInputError, match="beyond must be one of"):
        MDDM(beyond="none").fit(X, Y)


def test_all_orthonormal_directions_are_the_original_distances(problem):
    """With μ = 0 and as many directions as features P is a rotation: ML-kNN's votes on the rows themselves."""
    X, Y = problem
    model = MDDM(n_components=9, correlation=0.0, beyond="random", n_neighbors=5, normalize=False).fit(X, Y)
    plain = MLKNN(n_neighbors=5, normalize=False).fit(X, Y)
    assert (model.predict(X) != plain.predict(X)).sum() <= 2


def test_what_does_not_fit_into_memory_is_refused_before_any_work(problem):
    X, Y = problem
    needed = projection_memory(X, 4)
    MDDM(memory_limit=needed).fit(X, Y)
    with pytest.raises(InvalidInputError, match=r"memory of .* GiB .* 9 features × 4 labels"):
        MDDM(memory_limit=needed - 1).fit(X, Y)
    wide = sp.csr_matrix((80, 100_000))
    with pytest.raises(InvalidInputError, match="memory of 224 GiB"):
        MDDM().fit(X, wide)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"n_components": 0}, InvalidInputError),
        ({"n_components": 1.5}, InvalidTypeError),
        ({"kept": 0}, InvalidInputError),
        ({"kept": 1.1}, InvalidInputError),
        ({"correlation": -0.1}, InvalidInputError),
        ({"correlation": 1}, InvalidInputError),
        ({"memory_limit": 0}, InvalidInputError),
        ({"n_neighbors": 0}, InvalidInputError),
        ({"smoothing": 0}, InvalidInputError),
    ],
    ids=str,
)
def test_bad_parameters(problem, change, error):
    with pytest.raises(error, match=next(iter(change))):
        MDDM(**change).fit(*problem)


@pytest.mark.parametrize(
    ("name", "forged"),
    [
        ("projection_", np.ones((8, 2))),
        ("projection_", np.ones((9, 3))),
        ("projection_", np.ones(9)),
        ("projection_", np.full((9, 2), np.nan)),
        ("eigenvalues_", np.ones(3)),
        ("eigenvalues_", np.ones(2, dtype=np.float32)),
        ("rows_", np.ones((80, 3))),
        ("rows_", sp.csr_matrix(np.ones((2, 80)))),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{type(value).__name__}{value.shape}{value.dtype}",
)
def test_forged_folders(problem, tmp_path, name, forged):
    MDDM(n_components=2).fit(*problem).save(tmp_path / "model")
    record = read_model(tmp_path / "model")
    record.tensors[name] = forged
    write_model(tmp_path / "model", record)
    with pytest.raises(ModelFormatError):
        load(tmp_path / "model")


def test_bibtex(data_folder):
    data = load_dataset("bibtex")
    labels, _ = MDDM().fit(data.X_train, data.Y_train).predict_topk(data.X_test, 1)
    assert precision_at_k(data.Y_test, labels, 1) > 0.60


@pytest.mark.parametrize("shape", [(900, 300, 400), (300, 900, 50), (500, 60, 500)], ids=str)
@pytest.mark.parametrize("form", [np.asarray, lambda X: sp.csr_matrix(X * (X > 0.9))], ids=["dense", "sparse"])
@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_the_memory_that_is_asked_for_is_the_peak(shape, form, correlation):
    n, d, n_labels = shape
    rng = np.random.default_rng(0)
    X, Y = form(rng.random((n, d))), sp.csr_matrix((rng.random((n, n_labels)) < 0.05).astype(float))
    dependence_projection(X[:20], Y[:20, :5], correlation)  # compiles
    tracemalloc.start()
    P, _ = dependence_projection(X, Y, correlation, how_many=lambda values: 7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert P.shape == (d, 7)
    assert 0.2 * projection_memory(X, n_labels) < peak < projection_memory(X, n_labels)


def test_directions_are_chosen_before_they_are_made(problem):
    X, Y = problem
    whole, values = dependence_projection(X, sp.csr_matrix(Y), 0.5)
    first, largest = dependence_projection(X, sp.csr_matrix(Y), 0.5, how_many=lambda found: len(found) - 2)
    np.testing.assert_allclose(first, whole[:, :2])
    np.testing.assert_allclose(largest, values[:2])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_repeated_float32_rows_have_one_place(form):
    """BLAS in float32 projects a row alone and in company to different places, and ties between copies are lost."""
    rng = np.random.default_rng(0)
    copy_of = rng.permutation(np.repeat(np.arange(40), 20))
    rows = (rng.random((40, 100)) * (rng.random((40, 100)) < 0.7)).astype(np.float32)[copy_of]
    Y = (rng.random((800, 20)) < 0.2 + 0.4 * (rows[:, :20] > 0.4)).astype(np.float32)
    model = MDDM(n_neighbors=7).fit(form(rows), Y)
    assert len(np.unique(model.rows_, axis=0)) == 40
    together = model.decision_function(form(rows))
    alone = np.concatenate([model.decision_function(form(rows[row : row + 1])) for row in range(0, 800, 8)])
    np.testing.assert_array_equal(alone, together[::8])
