"""What methods that vote by neighbours share: the search for them, and their votes, stored sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.neighbours import half_squared_norms, inverted_index, nearest_dense_rows, nearest_sparse_rows
from tagwise.parallel import even_chunks, run_chunks

__all__ = ["OFF", "SearchableRows", "centre_votes", "check_label_rows", "sum_neighbour_labels"]

OFF = -0.5
"""The score of a label that no neighbour has: a share of 0, less ½."""
# Shares this near to ½ are ½: sums of weights whose total is 1 round to either side of it.
_EVEN = 1e-12

# Rows whose votes are held at a time: with a few hundred votes a row some megabytes a thread.
_BLOCK_ROWS = 1024


def sum_neighbour_labels(ids: np.ndarray, weights: np.ndarray, labels: sp.csr_matrix, n_threads: int) -> sp.csr_matrix:
    """Σ_j w_ij·y_{ids_ij} as CSR (m, L) in float64, from ids and weights (m, k) and labels (n, L).

    A row may name a neighbour twice. Sums of 0 are not stored.
    """
    votes_a_row = ids.shape[1]
    values = labels.astype(np.float64)

    def block(start: int, stop: int) -> sp.csr_matrix:
        indptr = np.arange(stop - start + 1) * votes_a_row
        chosen = (weights[start:stop].ravel().astype(np.float64), ids[start:stop].ravel(), indptr)
        return sp.csr_matrix(chosen, shape=(stop - start, labels.shape[0])) @ values

    parts = run_chunks(block, even_chunks(len(ids), _BLOCK_ROWS), n_threads)
    return sp.csr_matrix(parts[0] if len(parts) == 1 else sp.vstack(parts, format="csr"))


def centre_votes(shares: sp.csr_matrix) -> sp.csr_matrix:
    """Scores from shares of votes, in place: less ½, and exactly 0, which is on, for a share within 1e-12 of ½."""
    shares.data += OFF
    shares.data[np.abs(shares.data) <= _EVEN] = 0
    return shares


def check_label_rows(labels: Any, n_rows: int, n_labels: int) -> None:
    """Raise ValueError unless these are the 0/1 labels (CSR, n×L) of the rows of a loaded model."""
    if not sp.issparse(labels) or labels.shape != (n_rows, n_labels):
        raise ValueError(f"labels_ must be a sparse matrix of {n_rows} rows and {n_labels} labels")
    if not (labels.data == 1).all() or not labels.has_canonical_format:
        raise ValueError("labels_ must store ones only, each once and in the order of the labels")


class SearchableRows:
    """Rows of features and how near others are to them: by cosine where rows have unit length, else by distance.

    Parameters
    ----------
    stored : CSR (d, n) or array (n, d)
        Sparse rows as inverted index (:meth:`stored_form`), dense rows as they are.
    by_cosine : bool
        Rows and queries have unit length (or are 0), and the inner product measures.

    Notes
    -----
    Rows are compared in float64, for which dense ones are copied in each search: differences of squares would lose the
    digits that tell near rows apart. Equal rows are equally near, and a query has the same neighbours in any company.
    """

    def __init__(self, stored: sp.csr_matrix | np.ndarray, *, by_cosine: bool) -> None:
        self.stored = stored
        self.half_squares = None if by_cosine else half_squared_norms(stored)
        if self.half_squares is not None and not np.isfinite(self.half_squares).all():
            raise InvalidInputError(
                "distances overflow: X holds numbers whose squares are infinite; scale X down or set normalize=True."
            )

    @staticmethod
    def stored_form(rows: sp.csr_matrix | np.ndarray) -> sp.csr_matrix | np.ndarray:
        """The form in which rows are kept in a model."""
        return rows if isinstance(rows, np.ndarray) else inverted_index(rows)

    @property
    def n_rows(self) -> int:
        """How many rows are stored."""
        return int(self.stored.shape[0 if isinstance(self.stored, np.ndarray) else 1])

    def nearest(
        self, queries: sp.csr_matrix | np.ndarray, k: int, *, own_from: int | None = None, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids (m, k) of the nearest rows, nearest first, and their cosines (rows of zeros have cosine 0).

        With ``own_from`` the queries are the stored rows from there on, and none is a neighbour of its own. ``k`` must
        not exceed the number of other rows.
        """
        hidden = None
        if own_from is not None:
            own = np.arange(own_from, own_from + queries.shape[0])
            shape = (queries.shape[0], self.n_rows)
            hidden = sp.csr_matrix((np.ones(len(own)), own, np.arange(len(own) + 1)), shape=shape)
        if isinstance(self.stored, np.ndarray):
            asked: sp.csr_matrix | np.ndarray = queries if isinstance(queries, np.ndarray) else queries.toarray()
            self._require_finite_products(asked)
            ids, measures = nearest_dense_rows(
                asked, self.stored, k, half_squares=self.half_squares, exclude=hidden, n_threads=n_threads
            )
        else:
            asked = sp.csr_matrix(queries)
            self._require_finite_products(asked)
            ids, measures = nearest_sparse_rows(
                asked, self.stored, k, half_squares=self.half_squares, exclude=hidden, n_threads=n_threads
            )
        return ids, self._cosines(asked, ids, measures)

    def _require_finite_products(self, queries: sp.csr_matrix | np.ndarray) -> None:
        if self.half_squares is None:
            return
        largest = float(np.abs(queries.data if sp.issparse(queries) else queries).max(initial=0))
        with np.errstate(over="ignore"):
            bound = largest * np.sqrt(2 * self.half_squares.max()) * np.sqrt(queries.shape[1])
        if not np.isfinite(bound):
            raise InvalidInputError("distances overflow: X holds numbers that are too large; scale X down.")

    def _cosines(self, queries: sp.csr_matrix | np.ndarray, ids: np.ndarray, measures: np.ndarray) -> np.ndarray:
        if self.half_squares is None:
            return measures
        # Divided by one length after the other: the product of two could overflow.
        own = np.sqrt(2 * half_squared_norms(queries if isinstance(queries, np.ndarray) else inverted_index(queries)))
        theirs = np.sqrt(2 * self.half_squares)[ids]
        inner = measures + self.half_squares[ids]
        return inner / np.where(theirs > 0, theirs, 1) / np.where(own > 0, own, 1)[:, None]
