"""Votes of neighbors, and the search for them in stored rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.baselines import neighbor_votes
from tagwise.baselines.neighbor_votes import SearchableRows, sum_neighbor_labels
from tagwise.exceptions import InvalidInputError
from tagwise.kernels import unit_rows


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 4), st.integers(1, 3))
def test_votes_are_the_weighted_sums_of_the_neighbors_labels(seed, n_queries, k, n_threads):
    rng = np.random.default_rng(seed)
    labels = sp.csr_matrix((rng.random((6, 5)) < 0.4).astype(np.float32))
    ids, weights = rng.integers(0, 6, (n_queries, k)), rng.random((n_queries, k))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbor_votes, "_BLOCK_ROWS", 2)
        votes = sum_neighbor_labels(ids, weights, labels, n_threads)
    expected = np.einsum("ij,ijl->il", weights, labels.toarray()[ids])
    assert votes.dtype == np.float64
    np.testing.assert_allclose(votes.toarray(), expected, atol=1e-12)


@pytest.mark.parametrize("by_cosine", [True, False])
@pytest.mark.parametrize("stored_sparse", [True, False])
@pytest.mark.parametrize("asked_sparse", [True, False])
def test_neighbors_and_cosines_of_every_form(by_cosine, stored_sparse, asked_sparse):
    rng = np.random.default_rng(0)
    rows, queries = rng.random((30, 5)) * (rng.random((30, 5)) < 0.7), rng.random((8, 5))
    rows[3] = 0
    queries[2] = 0
    if by_cosine:
        rows, queries = unit_rows(rows), unit_rows(queries)
    stored = SearchableRows.stored_form(sp.csr_matrix(rows) if stored_sparse else rows)
    search = SearchableRows(stored, by_cosine=by_cosine)
    assert search.n_rows == 30
    ids, cosines = search.nearest(sp.csr_matrix(queries) if asked_sparse else queries, 4)
    products = queries @ rows.T
    order = -products if by_cosine else np.linalg.norm(queries[:, None] - rows[None], axis=2)
    np.testing.assert_array_equal(ids, np.argsort(np.round(order, 12), axis=1, kind="stable")[:, :4])
    lengths = np.maximum(np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(rows, axis=1)[None], 1e-300)
    np.testing.assert_allclose(cosines, np.take_along_axis(products / lengths, ids, axis=1), atol=1e-12)


def test_a_row_is_no_neighbor_of_its_own():
    rows = unit_rows(sp.random(20, 6, 0.5, format="csr", random_state=0))
    search = SearchableRows(SearchableRows.stored_form(rows), by_cosine=True)
    ids, _ = search.nearest(rows[5:15], 19, own_from=5)
    for query, found in enumerate(ids):
        np.testing.assert_array_equal(np.sort(found), np.delete(np.arange(20), 5 + query))


def test_distances_that_overflow_are_refused():
    rows = np.array([[1.0, 2.0]])
    with pytest.raises(InvalidInputError, match="distances overflow: X holds numbers whose squares are infinite"):
        SearchableRows(1e200 * rows, by_cosine=False)
    search = SearchableRows(1e150 * rows, by_cosine=False)
    with pytest.raises(InvalidInputError, match="distances overflow: X holds numbers that are too large"):
        search.nearest(1e200 * rows, 1)
    assert SearchableRows(1e200 * rows, by_cosine=True).half_squares is None
