"""X as the sparse part needs it: by falling rarity of its features, both ways, with the costly part of XᵀX kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.products import csr_matmul
from tagwise.kernels.supports import IndexedCSR, gram_of_last, walk_lengths
from tagwise.validation import check_features, check_integer

__all__ = ["SupportFeatures"]

# Gathering a feature's entries from the dense block costs up to ``support`` cache misses; walking over this many stored
# entries for each of them costs about the same. Walks below the second figure are not worth a block, however few the
# misses: zeroing and paging it in would cost more.
_WALK_PER_GATHER = 4
_LEAST_WALK = 400
# XU is made for so many columns at a time, so that it takes n×32 numbers rather than n×k.
_FACTOR_COLUMNS = 32


@dataclass(frozen=True)
class SupportFeatures:
    """What all labels share, of every fit on the same X.

    Attributes
    ----------
    order : int array (d,)
        Ids of the features from the rarest to the most frequent; all below is in this order.
    rows : IndexedCSR
        X.
    walks : int array (d,)
        w_f: stored entries at or after a feature in the rows that hold it.
    block : array (t, t)
        XᵀX of the t most frequent features; 0×0 where it is not needed.
    diagonal, column_sums : arrays (d,)
        Of XᵀX, and Xᵀ1.
    """

    order: np.ndarray
    rows: IndexedCSR
    walks: np.ndarray
    block: np.ndarray
    diagonal: np.ndarray
    column_sums: np.ndarray

    @classmethod
    def build(
        cls,
        X: sp.csr_matrix | np.ndarray,
        *,
        support: int,
        with_gram: bool = True,
        memory_limit: float = 2**31,
        n_threads: int = 1,
    ) -> SupportFeatures:
        """Time Σ w_f over the t kept features (see :class:`SupportRidge`), memory t² numbers and two copies of X.

        ``with_gram=False`` leaves XᵀX out: for labels that are known on rows of their own.
        """
        check_integer(support, "support", minimum=1)
        features = check_features(X)
        order, rows = _by_rising_frequency(features if sp.issparse(features) else sp.csr_matrix(features))
        walks = walk_lengths(rows)
        kept = _features_kept(walks, support, memory_limit, rows.data.dtype.itemsize)
        n_features = len(order)
        return cls(
            order=order,
            rows=rows,
            walks=walks,
            block=gram_of_last(rows, kept if with_gram else 0, n_threads=n_threads),
            diagonal=np.bincount(rows.indices, weights=rows.data.astype(np.float64) ** 2, minlength=n_features),
            column_sums=np.bincount(rows.indices, weights=rows.data, minlength=n_features),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self.rows.indptr) - 1, len(self.order)

    def matrix(self) -> sp.csr_matrix:
        """X with its features in this order; shares the arrays."""
        return sp.csr_matrix((self.rows.data, self.rows.indices, self.rows.indptr), shape=self.shape)

    def gram_times(self, U: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
        """XᵀXU (d×k) in the type of U, which is in this order."""
        rows, X = self.rows, self.matrix()
        transpose = sp.csr_matrix(
            (rows.data[rows.feature_positions], rows.feature_rows, rows.feature_indptr), shape=self.shape[::-1]
        )
        out = np.empty_like(U)
        for first in range(0, U.shape[1], _FACTOR_COLUMNS):
            columns = slice(first, first + _FACTOR_COLUMNS)
            embedded = csr_matmul(X, U[:, columns], n_threads=n_threads)
            out[:, columns] = csr_matmul(transpose, embedded, n_threads=n_threads)
        return out


def _by_rising_frequency(X: sp.csr_matrix) -> tuple[np.ndarray, IndexedCSR]:
    """The ids of the features from the rarest to the most frequent, and X with its features in that order."""
    if X.nnz and not X.data.all():
        X = X.copy()
        X.eliminate_zeros()
    order = np.argsort(np.bincount(X.indices, minlength=X.shape[1]), kind="stable")
    rank = np.empty(len(order), dtype=X.indices.dtype)
    rank[order] = np.arange(len(order), dtype=X.indices.dtype)
    rows = sp.csr_matrix((X.data.copy(), rank[X.indices], X.indptr), shape=X.shape)
    rows.sort_indices()
    # Transposing the storage positions in place of the values tells where in its row each occurrence stands.
    positions = sp.csr_matrix((np.arange(rows.nnz), rows.indices, rows.indptr), shape=X.shape)
    by_feature = sp.csr_matrix(positions.T)
    return order, IndexedCSR(
        rows.indptr, rows.indices, rows.data, by_feature.indptr, by_feature.indices, by_feature.data
    )


def _features_kept(walks: np.ndarray, support: int, memory_limit: float, itemsize: int) -> int:
    """t: how many of the most frequent features have their part of XᵀX stored.

    One thread's workspace is set aside, however many there are: stored and gathered entries are rounded differently,
    and t must not depend on the number of threads.
    """
    side = min(support, len(walks))
    left = memory_limit - (16 * side**2 + 48 * len(walks))
    if left < 0:
        raise InvalidInputError(
            f"memory_limit is {memory_limit:,.0f} bytes, but systems of {side:,} features need "
            f"{memory_limit - left:,.0f}; raise it, or lower support."
        )
    worth_it = int(np.count_nonzero(walks > max(_LEAST_WALK, _WALK_PER_GATHER * side)))
    return min(worth_it, int(np.sqrt(left / itemsize)))
