"""A matrix that is multiplied from both sides: X·B and Xᵀ·A, for CSR and for dense storage."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.dense import gram, rows_times
from tagwise.kernels.products import csr_times_dense

__all__ = ["DenseTwoWay", "SparseTwoWay", "TwoWayMatrix", "two_way"]


class TwoWayMatrix(Protocol):
    """What the problems need of a data matrix (n×d)."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        ...

    def times(self, right: np.ndarray) -> np.ndarray:
        """X @ right: n×d by d×k."""
        ...

    def transposed_times(self, left: np.ndarray) -> np.ndarray:
        """Xᵀ @ left: d×n by n×k, in the type of ``left``."""
        ...


class SparseTwoWay:
    """CSR beside the CSR of its transpose, so that both products read rows and write rows.

    Costs the memory of the matrix once more; a scattered transposed product would need a private d×k copy per thread.
    """

    def __init__(self, matrix: sp.csr_matrix, *, n_threads: int = 1) -> None:
        self.matrix = matrix
        self.transpose = sp.csr_matrix(matrix.T)
        self.n_threads = n_threads

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def times(self, right: np.ndarray) -> np.ndarray:
        """X @ right."""
        return csr_times_dense(self.matrix, right, n_threads=self.n_threads)

    def transposed_times(self, left: np.ndarray) -> np.ndarray:
        """Xᵀ @ left."""
        return csr_times_dense(self.transpose, left, n_threads=self.n_threads)


class DenseTwoWay:
    """A dense array; both products are BLAS calls on fixed row blocks."""

    def __init__(self, matrix: np.ndarray, *, n_threads: int = 1) -> None:
        self.matrix = matrix
        self.n_threads = n_threads

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def times(self, right: np.ndarray) -> np.ndarray:
        """X @ right."""
        return rows_times(self.matrix, right, n_threads=self.n_threads)

    def transposed_times(self, left: np.ndarray) -> np.ndarray:
        """Xᵀ @ left."""
        return gram(self.matrix, left, n_threads=self.n_threads).astype(left.dtype)


def two_way(matrix: sp.csr_matrix | np.ndarray, *, n_threads: int = 1) -> TwoWayMatrix:
    """The two-way form of a CSR matrix or of a dense array."""
    if sp.issparse(matrix):
        return SparseTwoWay(matrix, n_threads=n_threads)
    return DenseTwoWay(matrix, n_threads=n_threads)
