"""Models whose scores are low-rank factors plus a sparse matrix: xᵀ(WHᵀ + S) + b. Prediction and folders for them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import csr_matmul, scores_of_factors_and_sparse, top_k_of_factors_and_sparse
from tagwise.kernels.norm_pruned import norm_bounds, top_k_within_bounds
from tagwise.models.factor_model import FactorModel
from tagwise.persistence.loading import require_finite_floats, require_sparse

__all__ = ["SparseFactorModel"]

# From more rows on, one product by BLAS for all of them is faster than looking at each row's bounds.
_FEW_ROWS = 16


class SparseFactorModel(FactorModel):
    """Scores xᵀ(WHᵀ + S) + b: beside the factors of a :class:`FactorModel`, ``sparse_weights_`` S (d×L), CSR.

    A row costs O(L·k) by BLAS and one addition for every stored weight of its features; scores of a tile of labels are
    looked through for the best before the next tile is made, so that n×L is never allocated.
    """

    _saved_arrays: ClassVar[tuple[str, ...]] = (*FactorModel._saved_arrays, "sparse_weights_")

    sparse_weights_: sp.csr_matrix
    _lengths: np.ndarray

    def _check_restored(self) -> None:
        super()._check_restored()
        S = self.sparse_weights_
        require_sparse(sparse_weights_=S)
        if S.shape != (self.n_features_in_, self.n_labels_):
            raise ValueError(f"sparse weights must be CSR of shape {(self.n_features_in_, self.n_labels_)}")
        require_finite_floats(feature_factors_=self.feature_factors_, sparse_weights_=S)

    def _label_weights(self, labels: np.ndarray) -> np.ndarray | sp.csr_matrix:
        return super()._label_weights(labels) + self.sparse_weights_[:, labels].toarray().T

    def _rows_and_embedding(self, X: sp.csr_matrix | np.ndarray) -> tuple[sp.csr_matrix, np.ndarray]:
        """The rows as they were at fit (n×d, CSR), and XW (n×k)."""
        threads = self._threads_for(X)
        rows = self._prepared(X)
        rows = rows if sp.issparse(rows) else sp.csr_matrix(rows)
        return rows, csr_matmul(rows, self.feature_factors_, n_threads=threads)

    def _score_rows(self, X: sp.csr_matrix | np.ndarray) -> np.ndarray:
        rows, embedded = self._rows_and_embedding(X)
        return scores_of_factors_and_sparse(
            embedded,
            self.label_factors_,
            intercept=self.intercept_,
            rows=rows,
            sparse=self.sparse_weights_,
            n_threads=self._threads_for(X),
        )

    def _answers_without_blas(self, X: sp.csr_matrix | np.ndarray) -> bool:
        return X.shape[0] <= _FEW_ROWS

    def _build_prediction_cache(self) -> None:
        self._lengths = norm_bounds(self.label_factors_)

    def _top_k(
        self, X: sp.csr_matrix | np.ndarray, k: int, exclude: sp.csr_matrix | None
    ) -> tuple[np.ndarray, np.ndarray]:
        return self._best_of_rows(*self._rows_and_embedding(X), k, exclude)

    def _best_of_rows(
        self, rows: sp.csr_matrix, embedded: np.ndarray, k: int, exclude: sp.csr_matrix | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels and scores of rows (n×d) and their XW (n×k)."""
        parts = {"intercept": self.intercept_, "rows": rows, "sparse": self.sparse_weights_, "exclude": exclude}
        if len(embedded) <= _FEW_ROWS:
            return top_k_within_bounds(embedded, self.label_factors_, self._lengths, k, **parts)
        threads = self._threads_for(embedded)
        return top_k_of_factors_and_sparse(embedded, self.label_factors_, k, **parts, n_threads=threads)
