"""Fixed scores of a linear model, F = XS + offset, beside which a low-rank model is learnt."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import CSRWithTranspose, DenseFeatures, FeatureMatrix, sampled_sparse_product
from tagwise.parallel import even_chunks

__all__ = ["LinearScores"]

# Scores of a block of labels, where S is dense and its product with X has to be made to be read: 4 MB of float32.
_BLOCK_SCORES = 1 << 20


class LinearScores(FeatureMatrix):
    """F = XS + offset (n×L) as products: X (n×d) CSR, S (d×L) CSR or dense, one offset for all pairs.

    A product with F costs O((nnz X + nnz S)k); single entries cost what :func:`sampled_sparse_product` says, or, for a
    dense S, XS in blocks of labels. n×L is never allocated.
    """

    def __init__(
        self, X: CSRWithTranspose, S: sp.csr_matrix | np.ndarray, *, offset: float = 0.0, n_threads: int = 1
    ) -> None:
        self.X, self.offset, self.n_threads = X, offset, n_threads
        self.S: CSRWithTranspose | DenseFeatures
        self.S = (
            DenseFeatures(S, n_threads=n_threads)
            if isinstance(S, np.ndarray)
            else CSRWithTranspose(S, n_threads=n_threads)
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, L)."""
        return self.X.shape[0], self.S.shape[1]

    def matmul(self, right: np.ndarray) -> np.ndarray:
        """F @ right: n×k."""
        return self.matmul_rows(right, 0, self.shape[0])

    def matmul_rows(self, right: np.ndarray, start: int, stop: int) -> np.ndarray:
        """The rows ``start`` to ``stop`` of F @ right."""
        product = self.X.matmul_rows(self.S.matmul(right), start, stop)
        product += (self.offset * right.sum(axis=0, dtype=np.float64)).astype(product.dtype)
        return product

    def rmatmul(self, left: np.ndarray) -> np.ndarray:
        """Fᵀ @ left: L×k."""
        product = self.S.rmatmul(self.X.rmatmul(left))
        product += (self.offset * left.sum(axis=0, dtype=np.float64)).astype(product.dtype)
        return product

    def on(self, pairs: sp.csr_matrix) -> np.ndarray:
        """F_ij for every stored pair of ``pairs`` (n×L), in storage order."""
        if isinstance(self.S, CSRWithTranspose):
            found = sampled_sparse_product(pairs, self.X.matrix, self.S.matrix, n_threads=self.n_threads)
        else:
            found = self._on_dense(pairs, self.S.matrix)
        found += found.dtype.type(self.offset)
        return found

    def _on_dense(self, pairs: sp.csr_matrix, S: np.ndarray) -> np.ndarray:
        found = np.empty(pairs.nnz, dtype=self.X.matrix.dtype)
        rows = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
        by_label = np.argsort(pairs.indices, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(pairs.indices, minlength=pairs.shape[1]))])
        for start, stop in even_chunks(S.shape[1], max(1, _BLOCK_SCORES // self.X.shape[0])):
            scores = self.X.matmul(np.ascontiguousarray(S[:, start:stop]))
            here = by_label[ends[start] : ends[stop]]
            found[here] = scores[rows[here], pairs.indices[here] - start]
        return found
