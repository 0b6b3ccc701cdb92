"""Votes of nearest neighbors: stored rows, the search in them, and sparse votes for labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.answers import finite_scores
from tagwise.baselines.sparse_score_model import SparseScoreModel
from tagwise.exceptions import InvalidInputError
from tagwise.fields import Fields, csr, matrix
from tagwise.kernels.neighbors import half_squared_norms, inverted_index, nearest_dense_rows, nearest_sparse_rows
from tagwise.parallel import even_chunks, run_chunks
from tagwise.validation import Features, check_real

__all__ = [
    "OFF",
    "Power",
    "SearchableRows",
    "StoredRows",
    "centered_votes",
    "sum_neighbor_labels",
    "vote_weights",
]

OFF = -0.5
"""The score of a label that no neighbor has: a share of 0, minus ½."""
Power = Annotated[float, partial(check_real, minimum=0, maximum=1000.0)]
"""A power of cosines: these may be above 1 by rounding, and larger powers of them overflow."""
# Shares this close to ½ or 1 are ½ or 1: sums of weights whose total is 1 round to either side of them.
_EVEN = 1e-12

# Rows whose votes are held at a time: some megabytes per thread with a few hundred votes per row.
_BLOCK_ROWS = 1024


def sum_neighbor_labels(ids: np.ndarray, weights: np.ndarray, labels: sp.csr_matrix, n_threads: int) -> sp.csr_matrix:
    """Σ_j w_ij·y_{ids_ij} as CSR (m, L) in float64, from ids and weights (m, k) and labels (n, L).

    A row may name a neighbor twice. Sums of 0 are not stored.
    """
    votes_per_row = ids.shape[1]
    values = labels.astype(np.float64)

    def block(start: int, stop: int) -> sp.csr_matrix:
        indptr = np.arange(stop - start + 1) * votes_per_row
        chosen = (weights[start:stop].ravel().astype(np.float64), ids[start:stop].ravel(), indptr)
        return sp.csr_matrix(chosen, shape=(stop - start, labels.shape[0])) @ values

    parts = run_chunks(block, even_chunks(len(ids), _BLOCK_ROWS), n_threads)
    return sp.csr_matrix(parts[0] if len(parts) == 1 else sp.vstack(parts, format="csr"))


def centered_votes(shares: sp.csr_matrix) -> sp.csr_matrix:
    """Scores from shares of votes, in place: minus ½, and exactly 0, which is on, for a share within 1e-12 of ½.

    A share within 1e-12 of 1 is 1.
    """
    shares.data += OFF
    shares.data[np.abs(shares.data) <= _EVEN] = 0
    shares.data[np.abs(shares.data + OFF) <= _EVEN] = -OFF
    return shares


def vote_weights(cosines: np.ndarray, power: float) -> np.ndarray:
    """max(0, cosine)^power of each neighbor (m, k), divided by the row's sum; equal where that is 0."""
    weights = np.maximum(cosines, 0).astype(np.float64) ** power
    totals = weights.sum(axis=1, keepdims=True)
    equal = np.full_like(weights, 1 / max(1, weights.shape[1]))
    return np.where(totals > 0, weights / np.where(totals > 0, totals, 1), equal)


class SearchableRows:
    """Rows of features, searched by cosine where rows have unit length, else by Euclidean distance.

    ``stored`` are sparse rows as inverted index, CSR (d, n), or dense rows (n, d), as :meth:`stored_form` makes them.
    With ``by_cosine``, rows and queries have unit length (or are 0), and inner products are compared.

    Rows are compared in float64, for which dense ones are copied in each search: differences of squares would lose the
    digits that tell near rows apart. Equal rows are equally near, and a query's neighbors do not depend on its block.
    """

    def __init__(self, stored: Features, *, by_cosine: bool) -> None:
        self.stored = stored
        self.half_squares = None if by_cosine else half_squared_norms(stored)
        if self.half_squares is not None and not np.isfinite(self.half_squares).all():
            raise InvalidInputError(
                "distances overflow: X holds numbers whose squares are infinite; scale X down or set normalize=True."
            )

    @staticmethod
    def stored_form(rows: Features) -> Features:
        """The form in which rows are kept in a model."""
        return rows if isinstance(rows, np.ndarray) else inverted_index(rows)

    @property
    def n_rows(self) -> int:
        """Number of stored rows."""
        return int(self.stored.shape[0 if isinstance(self.stored, np.ndarray) else 1])

    def nearest(
        self, queries: Features, k: int, *, own_from: int | None = None, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids (m, k) of the nearest rows, nearest first, and their cosines (rows of zeros have cosine 0).

        With ``own_from`` the queries are the stored rows from there on, and none is its own neighbor. ``k`` must
        not exceed the number of other rows.
        """
        hidden = None if own_from is None else sp.eye(queries.shape[0], self.n_rows, k=own_from, format="csr")
        nearest: Callable[..., tuple[np.ndarray, np.ndarray]]
        if isinstance(self.stored, np.ndarray):
            nearest, asked = nearest_dense_rows, queries if isinstance(queries, np.ndarray) else queries.toarray()
        else:
            nearest, asked = nearest_sparse_rows, sp.csr_matrix(queries)
        if self.half_squares is not None:
            largest = float(np.abs(asked.data if sp.issparse(asked) else asked).max(initial=0))
            with np.errstate(over="ignore"):
                bound = largest * np.sqrt(2 * self.half_squares.max()) * np.sqrt(asked.shape[1])
            if not np.isfinite(bound):
                raise InvalidInputError("distances overflow: X holds numbers that are too large; scale X down.")
        ids, measures = nearest(
            asked, self.stored, k, half_squares=self.half_squares, exclude=hidden, n_threads=n_threads
        )
        measures = finite_scores(measures)
        if self.half_squares is None:
            return ids, measures
        # Divide by one length after the other: their product could overflow.
        own = np.sqrt(2 * half_squared_norms(self.stored_form(asked)))
        theirs, inner = np.sqrt(2 * self.half_squares)[ids], measures + self.half_squares[ids]
        return ids, inner / np.where(theirs > 0, theirs, 1) / np.where(own > 0, own, 1)[:, None]


class StoredRows(SparseScoreModel):
    """Keeps the training rows and their labels: ``rows_`` (inverted index d×n, or array n×d) and ``labels_``."""

    fields: ClassVar[Fields] = Fields(
        rows_=matrix(
            "n", "d", meaning="The training rows as they are compared; an inverted index (d, n) where X was sparse."
        ),
        labels_=csr("n", "L", meaning="Their labels.", numbers="ones"),
    )

    rows_: Features

    def _compared(self, X: Features) -> Features:
        """Rows in the form in which they are compared."""
        return self._prepared(X)

    def _store(self, rows: Features, Y: sp.csr_matrix) -> SearchableRows:
        self.rows_, self.labels_ = SearchableRows.stored_form(rows), Y
        return self._search()

    def _search(self) -> SearchableRows:
        return SearchableRows(self.rows_, by_cosine=self.normalize)

    def _fields(self) -> Fields:
        if isinstance(self.__dict__.get("rows_"), np.ndarray):
            return self.fields
        return self.fields | Fields(rows_=csr("d", "n", meaning="The training rows as an inverted index."))

    def _check_fitted(self) -> None:
        if not self.labels_.shape[0]:
            raise ValueError("labels_ must have a row")
