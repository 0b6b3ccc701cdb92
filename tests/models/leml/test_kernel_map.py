import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import laplacian_kernel, pairwise_kernels
from threadpoolctl import threadpool_limits

import tagwise.models.leml.kernel_map as kernel_map
from tagwise import LEML
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.models.leml.kernel_map import KernelMap

PARAMETERS = {
    "linear": {},
    "rbf": {"gamma": 0.4},
    "poly": {"gamma": 0.2, "degree": 2, "coef0": 0.5},
}
KERNELS = ["linear", "rbf", "poly", laplacian_kernel]


def rows(seed=0, n=40, d=7):
    return sp.random(n, d, 0.6, format="csr", random_state=seed)


def build(X, kernel="rbf", **options):
    if isinstance(kernel, str):
        options = PARAMETERS[kernel] | options
    return KernelMap.build(X, kernel=kernel, **{"random_state": 0} | options)


def kernel_rows(mapped, X):
    return mapped.embed(X, np.eye(mapped.landmarks.shape[0]))


def expected_kernel(A, B, kernel):
    if not isinstance(kernel, str):
        return kernel(A, B)
    return pairwise_kernels(A, B, metric=kernel, **PARAMETERS[kernel])


def limit_for(n, m, itemsize=8):
    """Bytes that m landmarks take, as the documentation of memory_limit states them."""
    return max(3 * 8 * m * m, 8 * m * m + itemsize * n * m)


# ---------------------------------------------------------------------------------------------- the Gram-matrix method


@settings(max_examples=40)
@given(st.integers(0, 9999), st.sampled_from(KERNELS), st.integers(1, 30), st.integers(1, 6), st.booleans())
def test_inner_products_are_the_kernel_for_any_rows(seed, kernel, n, d, sparse):
    X = rows(seed, n, d)
    if kernel == "linear" and X.nnz == 0:
        return
    X = X if sparse else X.toarray()
    mapped = build(X, kernel)
    phi = mapped.features(X)
    assert mapped.landmarks.shape == X.shape
    assert sp.issparse(mapped.landmarks) == sparse
    assert phi.shape == (n, mapped.projection.shape[1])
    K = expected_kernel(X, X, kernel)
    np.testing.assert_allclose(phi @ phi.T, K, atol=1e-8 * np.abs(K).max())


def test_ridge_on_features_is_kernel_ridge():
    """(K + λI)α = y: the weights' norm is that of the Hilbert space and the folded weights are α."""
    X, new = rows(5), rows(6)
    y = np.random.default_rng(0).standard_normal((40, 2))
    mapped = build(X, "rbf")
    K, K_new = expected_kernel(X, X, "rbf"), expected_kernel(new, X, "rbf")
    phi = mapped.features(X)
    W = np.linalg.solve(phi.T @ phi + 0.1 * np.eye(phi.shape[1]), phi.T @ y)
    alpha = np.linalg.solve(K + 0.1 * np.eye(40), y)
    np.testing.assert_allclose(mapped.fold(W), alpha, atol=1e-7)
    np.testing.assert_allclose(mapped.features(new) @ W, K_new @ alpha, atol=1e-8)
    np.testing.assert_allclose(np.diag(W.T @ W), np.diag(alpha.T @ K @ alpha), rtol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_sparse_and_dense_rows_agree_in_every_mixture(kernel):
    X, new = rows(7), rows(8, n=12)
    from_sparse, from_dense = build(X, kernel), build(X.toarray(), kernel)
    inner = [m.features(a) @ m.features(X).T for m in (from_sparse, from_dense) for a in (new, new.toarray())]
    for other in inner[1:]:
        np.testing.assert_allclose(other, inner[0], atol=1e-9)
    np.testing.assert_allclose(kernel_rows(from_sparse, new.toarray()), kernel_rows(from_dense, new), atol=1e-12)


def test_default_gamma_is_one_over_the_number_of_features():
    X = rows()
    for kernel in ("rbf", "poly"):
        mapped = KernelMap.build(X, kernel=kernel, random_state=0)
        assert mapped.gamma == 1 / 7
        np.testing.assert_allclose(kernel_rows(mapped, X), pairwise_kernels(X, metric=kernel), atol=1e-12)
    assert KernelMap.build(X, kernel="linear", random_state=0).gamma is None


# ---------------------------------------------------------------------------------------------- products with the map


def test_blocks_of_any_size_give_the_same(monkeypatch):
    X, new = rows(9), rows(10, n=23)
    expected = expected_kernel(new, X, "poly")
    for block_values in (1, 100, 1 << 22):
        monkeypatch.setattr(kernel_map, "_BLOCK_VALUES", block_values)
        mapped = build(X, "poly")
        np.testing.assert_allclose(mapped.features(new), expected @ mapped.projection, atol=1e-9)
        np.testing.assert_allclose(mapped.embed(new, np.eye(40)), expected, rtol=1e-12)


def test_temporary_memory_of_products_is_a_few_blocks(monkeypatch):
    monkeypatch.setattr(kernel_map, "_BLOCK_VALUES", 20_000)
    X = np.random.default_rng(0).random((4000, 3))
    mapped = build(X[:200])
    dual = np.ones((200, 2))
    mapped.embed(X[:10], dual)
    tracemalloc.start()
    mapped.embed(X, dual)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 4000 * 200 / 4  # a quarter of K(X, Z)


# ---------------------------------------------------------------------------------------------- Nyström


@pytest.mark.parametrize("kernel", KERNELS)
def test_agrees_with_nystroem_of_scikit_learn_on_the_same_landmarks(kernel):
    X = rows(13, d=30)
    mapped = build(X, kernel, memory_limit=limit_for(40, 12))
    options = PARAMETERS[kernel] if isinstance(kernel, str) else {}
    metric = kernel if isinstance(kernel, str) else "laplacian"
    theirs = Nystroem(metric, n_components=12, random_state=0, **options).fit(mapped.landmarks).transform(X)
    ours = mapped.features(X)
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-9)
    dual = mapped.fold(np.eye(ours.shape[1]))
    np.testing.assert_allclose(mapped.embed(X, dual), ours, atol=1e-9)


# ---------------------------------------------------------------------------------------------- memory_limit


@given(st.integers(10, 200), st.integers(10, 200), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=30)
def test_as_many_landmarks_as_the_memory_limit_allows(n, m, dtype):
    X = np.random.default_rng(0).random((n, 2)).astype(dtype)
    needed = limit_for(n, min(m, n), X.dtype.itemsize)
    assert build(X, memory_limit=needed).landmarks.shape == (min(m, n), 2)
    if 10 < m <= n:
        assert build(X, memory_limit=needed - 1).landmarks.shape == (m - 1, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_stays_within_its_memory_limit(dtype, monkeypatch):
    monkeypatch.setattr(kernel_map, "_BLOCK_VALUES", 10_000)
    X = np.random.default_rng(0).standard_normal((1000, 20)).astype(dtype)
    for limit in (3e6, 10e6, 24e6):
        build(X[:10]).features(X[:10])
        tracemalloc.start()
        build(X, memory_limit=limit).features(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 0.6 * limit < peak < limit + 1e6


def test_too_small_a_memory_limit_says_what_is_needed():
    for n, fewest in ((40, 10), (3, 3)):
        needed = limit_for(n, fewest)
        with pytest.raises(InvalidInputError, match=rf"memory_limit=.* at least {needed:,} \({fewest} landmarks\)"):
            build(rows(n=n), memory_limit=needed - 1)
        assert build(rows(n=n), memory_limit=needed).landmarks.shape[0] == fewest


# ---------------------------------------------------------------------------------------------- determinism, types


def test_the_seed_decides_the_landmarks():
    X, limit = rows(16, n=200), limit_for(200, 20)
    first, again, other = (build(X, memory_limit=limit, random_state=seed) for seed in (1, 1, 2))
    numbers = build(np.arange(200.0)[:, None], memory_limit=limit).landmarks[:, 0]
    assert len(numbers) == 20
    assert (np.diff(numbers) > 0).all()  # distinct rows, in their order
    np.testing.assert_array_equal(first.projection, again.projection)
    np.testing.assert_array_equal(first.features(X), again.features(X))
    assert (first.landmarks != again.landmarks).nnz == 0
    assert (first.landmarks != other.landmarks).nnz > 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_bits_do_not_depend_on_the_threads_of_blas(kernel):
    X = np.random.default_rng(0).standard_normal((300, 40))
    results = []
    for threads in (1, 4):
        with threadpool_limits(limits=threads, user_api="blas"):
            mapped = build(X, kernel)
            W = np.linspace(-1, 1, 2 * mapped.projection.shape[1]).reshape(-1, 2)
            dual = mapped.fold(W)
            results.append((mapped.projection, mapped.features(X), dual, mapped.embed(X, dual)))
    for one, four in zip(*results, strict=True):
        np.testing.assert_array_equal(one, four)


@pytest.mark.parametrize("sparse", [True, False])
def test_float32_stays_float32_and_is_computed_in_float64(sparse):
    X = rows(17).astype(np.float32)
    X = X if sparse else X.toarray()
    mapped = build(X)
    assert mapped.landmarks.dtype == np.float32
    assert mapped.projection.dtype == np.float64
    phi, W = mapped.features(X.astype(np.float64)), np.ones((mapped.projection.shape[1], 2), dtype=np.float32)
    assert {a.dtype for a in (phi, mapped.fold(W), mapped.embed(X, mapped.fold(W)))} == {W.dtype}
    wide = build(X.astype(np.float64))
    np.testing.assert_array_equal(mapped.projection, wide.projection)
    np.testing.assert_array_equal(phi, wide.features(X.astype(np.float64)).astype(np.float32))


def test_float32_keeps_what_tells_the_rows_of_a_flat_kernel_apart():
    """All values lie within 1e-4 of 1; the differences must survive to single precision nevertheless."""
    X = np.random.default_rng(0).random((80, 100)).astype(np.float32)
    phi = build(X, gamma=1e-6).features(X).astype(np.float64)
    K = pairwise_kernels(X.astype(np.float64), metric="rbf", gamma=1e-6)
    centre = np.eye(80) - 1 / 80
    np.testing.assert_allclose(centre @ phi @ phi.T @ centre, centre @ K @ centre, atol=1e-5 * np.ptp(K))


def test_duplicated_and_dependent_rows_drop_features_not_accuracy():
    X = sp.vstack([rows(18, n=15), rows(18, n=15), rows(18, n=15)[:4]]).tocsr()
    mapped = build(X, "rbf")
    distinct = len(np.unique(X.toarray(), axis=0))
    assert mapped.projection.shape == (34, distinct)
    phi = mapped.features(X)
    np.testing.assert_allclose(phi @ phi.T, expected_kernel(X, X, "rbf"), atol=1e-10)
    np.testing.assert_array_equal(phi[:15], phi[15:30])


def test_a_function_that_returns_float32_has_its_rounding_dropped():
    X = np.random.default_rng(0).standard_normal((50, 4))
    mapped = build(X, lambda A, B: (A @ B.T).astype(np.float32))
    assert mapped.projection.shape == (50, 4)
    assert np.abs(mapped.projection).max() < 10


def test_a_map_does_not_follow_changes_of_the_rows():
    X = rows(19).toarray()
    mapped, new = build(X), rows(20)
    before = mapped.features(new)
    X[:] = 0
    np.testing.assert_array_equal(mapped.features(new), before)


# ---------------------------------------------------------------------------------------------- bad input


def test_bad_parameters_are_named():
    for name, values in {
        "kernel": ("gaussian", 3),
        "gamma": (0, -1.0, np.nan, "scale"),
        "degree": (0, 2.5),
        "coef0": (-0.1, np.inf, "1"),
    }.items():
        for value in values:
            with pytest.raises((InvalidInputError, InvalidTypeError), match=name):
                LEML(**{"kernel": "rbf", name: value}).fit(rows(), np.eye(40, 3))
    for seed in ("x", -1):
        with pytest.raises((InvalidInputError, InvalidTypeError), match="random_state"):
            build(rows(), memory_limit=limit_for(40, 12), random_state=seed)


NO_KERNELS = [
    (lambda A, B: np.ones((len(B), len(A) + 1)), r"must return an array of shape \(40, 40\).*found \(40, 41\)"),
    (lambda A, B: 1.0, r"must return .* found \(\)"),
    (lambda A, B: np.full((len(A), len(B)), np.nan), "gave NaN or infinity"),
    (lambda A, B: A[:, :1] @ np.ones((1, len(B))), "is not symmetric"),
    (lambda A, B: A @ B.T - 0.5 * pairwise_kernels(A, B, metric="rbf"), "is not positive semi-definite.*eigenvalue -"),
    (lambda A, B: -(A @ B.T), "is not positive semi-definite"),
    (lambda A, B: (A @ B.T) * 1j, "must return an array of real numbers.*complex"),
    (lambda A, B: sp.csr_matrix(A @ B.T), "must return an array of real numbers.*object"),
    (lambda A, B: np.zeros((len(A), len(B))), "is 0 for every pair"),
]


def test_functions_that_are_no_kernels():
    for kernel, message in NO_KERNELS:
        with pytest.raises((InvalidInputError, InvalidTypeError), match=f"kernel=<lambda> {message}"):
            build(rows().toarray(), kernel)
    with pytest.raises(InvalidInputError, match="kernel='linear' is 0 for every pair of rows of X"):
        build(sp.csr_matrix((12, 3)), "linear")


def test_overflow_of_a_kernel_is_an_error():
    with pytest.raises(InvalidInputError, match="kernel='poly' gave NaN or infinity"):
        build(rows().toarray() * 1e100, "poly", degree=9)


def test_a_function_is_checked_on_new_rows_too():
    def finite_on_training_rows(A, B):
        return np.where(A[:, :1] > 5, np.inf, pairwise_kernels(A, B, metric="rbf"))

    mapped = build(rows().toarray(), finite_on_training_rows)
    with pytest.raises(InvalidInputError, match="kernel=finite_on_training_rows gave NaN or infinity"):
        mapped.features(np.full((2, 7), 6.0))
