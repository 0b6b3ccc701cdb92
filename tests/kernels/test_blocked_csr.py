"""Products from both sides without a stored transpose, against the plain product in float64."""

import tracemalloc

import numpy as np
import pytest
import reference_kernels as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import CSRWithTranspose, DenseFeatures, blocked_csr
from tagwise.kernels.blocked_csr import BlockedCSR
from tagwise.kernels.products import row_range
from tagwise.parallel import work_chunks

EVERYTHING = 1e12


def random_csr(rng, n_rows, n_columns, density, dtype=np.float32, index=np.int32):
    matrix = sp.random(n_rows, n_columns, density, format="csr", dtype=dtype, random_state=rng)
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    return matrix


@given(
    n_rows=st.integers(1, 60),
    n_features=st.integers(1, 20),
    width=st.integers(1, 40),
    density=st.floats(0, 1),
    group_rows=st.integers(1, 60),
    dtype=st.sampled_from([np.float32, np.float64]),
    index=st.sampled_from([np.int32, np.int64]),
    scaled=st.booleans(),
    keep_bytes=st.sampled_from([0, 300, EVERYTHING]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_both_products_are_those_of_the_scaled_matrix(
    n_rows, n_features, width, density, group_rows, dtype, index, scaled, keep_bytes, threads, seed
):
    rng = np.random.RandomState(seed)
    matrix = random_csr(rng, n_rows, n_features, density, dtype, index)
    scale = rng.uniform(0.5, 2, n_rows).astype(dtype) if scaled else None
    dense = matrix.toarray().astype(np.float64) * (1 if scale is None else scale[:, None].astype(np.float64))
    left, right = (
        rng.standard_normal((n_rows, width)).astype(dtype),
        rng.standard_normal((n_features, width)).astype(dtype),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocked_csr, "_MOST_GROUP_ROWS", group_rows)  # so that few rows make several groups
        patch.setattr(blocked_csr, "_CACHED_BYTES", 1)
        patch.setattr(blocked_csr, "_STRIPE", 8)
        X = BlockedCSR(matrix, width=width, row_scale=scale, keep_bytes=keep_bytes, n_threads=threads)
        transposed = X.rmatmul(left)
    assert X.shape == (n_rows, n_features)
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    for found, expected in ((transposed, dense.T @ left), (X.matmul(right), dense @ right)):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    start, stop = sorted(rng.randint(0, n_rows + 1, 2))
    np.testing.assert_array_equal(X.matmul_rows(right, start, stop), X.matmul(right)[start:stop])


def test_the_transposed_product_is_the_reference_twin_s():
    matrix = random_csr(np.random.RandomState(0), 50, 12, 0.3)
    left = np.random.default_rng(0).standard_normal((50, 9)).astype(np.float32)
    expected = reference.csr_matmul(sp.csr_matrix(matrix.T), left)
    np.testing.assert_allclose(BlockedCSR(matrix, width=9).rmatmul(left), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keep_bytes", [0, 200_000, EVERYTHING])
def test_threads_change_no_bit(keep_bytes):
    matrix = random_csr(np.random.RandomState(0), 8000, 300, 0.15)
    left = np.random.default_rng(0).standard_normal((8000, 200)).astype(np.float32)
    matrices = [BlockedCSR(matrix, width=200, keep_bytes=keep_bytes, n_threads=threads) for threads in (1, 2, 5)]
    assert len(work_chunks(sp.csr_matrix(matrix[: matrices[0]._group_rows].T).indptr)) > 1
    first, *others = (X.rmatmul(left) for X in matrices)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_keeping_some_groups_changes_no_bit():
    matrix = random_csr(np.random.RandomState(0), 5000, 300, 0.05)
    left = np.random.default_rng(0).standard_normal((5000, 20)).astype(np.float32)
    first, *others = (BlockedCSR(matrix, width=20, keep_bytes=keep).rmatmul(left) for keep in (0, 100_000, 200_000))
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [33, 36, 64, 65, 71, 72, 100, 129, 136, 150, 200])
@pytest.mark.parametrize("cached_bytes", [1, blocked_csr._CACHED_BYTES], ids=["stripes", "one stripe"])
def test_every_width_is_added_once(width, dtype, cached_bytes, monkeypatch):
    """Where columns don't fill their vectors some are summed twice, which must not show in sums that go on."""
    monkeypatch.setattr(blocked_csr, "_CACHED_BYTES", cached_bytes)
    matrix = random_csr(np.random.RandomState(0), 90, 7, 0.4, dtype)
    left = np.random.default_rng(0).standard_normal((90, width)).astype(dtype)
    found = BlockedCSR(matrix, width=width, keep_bytes=EVERYTHING).rmatmul(left)
    np.testing.assert_allclose(found, matrix.T.toarray().astype(np.float64) @ left, rtol=0, atol=1e-5)


def test_groups_are_blocks_where_all_can_be_kept():
    matrix = random_csr(np.random.RandomState(0), 1600, 300, 0.2)
    assert BlockedCSR(matrix, width=4, keep_bytes=EVERYTHING)._group_rows == 1600 / blocked_csr.N_BLOCKS
    assert BlockedCSR(matrix, width=4, keep_bytes=EVERYTHING, n_blocks=16)._group_rows == 100
    assert BlockedCSR(matrix, width=4, keep_bytes=0)._group_rows < 1600 / blocked_csr.N_BLOCKS


def test_long_sums_keep_their_digits():
    """300,000 equal terms of float32: one running sum would be off in the fourth digit."""
    matrix = sp.csr_matrix(np.full((300_000, 1), 0.1, dtype=np.float32))
    left = np.full((300_000, 2), 1.1, dtype=np.float32)
    expected = 300_000 * float(np.float32(0.1)) * float(np.float32(1.1))
    found = BlockedCSR(matrix, width=2).rmatmul(left)
    np.testing.assert_allclose(found, expected, rtol=3e-6)


def test_sums_over_many_small_groups_keep_their_digits():
    """Long rows beside a narrow factor make groups of 16 rows, 1,200 of them."""
    matrix = sp.csr_matrix(np.full((19_200, 100), 0.1, dtype=np.float32))
    left = np.full((19_200, 1), 1.1, dtype=np.float32)
    X = BlockedCSR(matrix, width=1)
    assert len(X._groups) > 1000
    expected = 19_200 * float(np.float32(0.1)) * float(np.float32(1.1))
    np.testing.assert_allclose(X.rmatmul(left), expected, rtol=1e-5)


def test_rows_of_the_dense_factor_are_asked_for_once_in_order_and_never_all():
    matrix = random_csr(np.random.RandomState(0), 1000, 30, 0.2)
    left = np.random.default_rng(0).standard_normal((1000, 5)).astype(np.float32)
    asked = []

    def rows_of(start, stop):
        asked.append((start, stop))
        return left[start:stop]

    X = BlockedCSR(matrix, width=5)
    product = X.rmatmul_blocks(rows_of)
    np.testing.assert_array_equal(product, X.rmatmul(left))
    assert [start for start, _ in asked] == [0, *(stop for _, stop in asked[:-1])]
    assert asked[-1][1] == 1000
    assert max(stop - start for start, stop in asked) <= 1000 / blocked_csr.N_BLOCKS
    asked.clear()
    np.testing.assert_allclose(CSRWithTranspose(matrix).rmatmul_blocks(rows_of), product, rtol=1e-5, atol=1e-5)
    assert asked == [(0, 1000)]


def test_memory_is_a_share_of_the_matrix_and_what_may_be_kept():
    matrix = random_csr(np.random.RandomState(0), 20_000, 1000, 0.05)  # 12 MB
    left = np.zeros((20_000, 16), dtype=np.float32)
    BlockedCSR(matrix[:50], width=16, keep_bytes=EVERYTHING).rmatmul(left[:50])  # compiles
    size = matrix.data.nbytes + matrix.indices.nbytes
    for keep_bytes in (0, 2_000_000):
        tracemalloc.start()
        BlockedCSR(matrix, width=16, keep_bytes=keep_bytes).rmatmul(left)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert keep_bytes * 0.7 < peak < keep_bytes + size / 8


def test_row_range_shares_the_entries():
    matrix = random_csr(np.random.RandomState(0), 20, 7, 0.4)
    part = row_range(matrix, 3, 11)
    np.testing.assert_array_equal(part.toarray(), matrix[3:11].toarray())
    assert np.shares_memory(part.data, matrix.data)
    assert np.shares_memory(part.indices, matrix.indices)
    assert row_range(matrix, 0, 20) is matrix


def test_what_does_not_fit_is_refused():
    X = BlockedCSR(random_csr(np.random.RandomState(0), 20, 7, 0.4), width=3)
    with pytest.raises(InvalidInputError, match="left must have 20 rows"):
        X.rmatmul(np.zeros((7, 3), dtype=np.float32))
    for shape, dtype in ((2, np.float32), (3, np.float64)):
        with pytest.raises(InvalidInputError, match="rows 5 to 10 must have the shape"):
            X.rmatmul_blocks(
                lambda start, stop, shape=shape, dtype=dtype: np.zeros(
                    (stop - start, 3 if start == 0 else shape), dtype=np.float32 if start == 0 else dtype
                )
            )
    with pytest.raises(InvalidInputError, match="matrix must have rows"):
        BlockedCSR(sp.csr_matrix((0, 4), dtype=np.float32), width=3)


def test_rows_of_the_products_of_other_forms():
    matrix = random_csr(np.random.RandomState(0), 20, 7, 0.4)
    right = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    np.testing.assert_array_equal(
        CSRWithTranspose(matrix).matmul_rows(right, 4, 9), CSRWithTranspose(matrix).matmul(right)[4:9]
    )
    dense = DenseFeatures(matrix.toarray())
    np.testing.assert_allclose(dense.matmul_rows(right, 4, 9), dense.matmul(right)[4:9], rtol=1e-5, atol=1e-6)
