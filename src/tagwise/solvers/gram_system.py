"""(sXᵀX + λI)H = right for many right sides, each with its own scale s: the H-step of ADMM, three ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

import numpy as np
import scipy.linalg

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import DenseFeatures, FeatureMatrix
from tagwise.kernels.vectors import dot_columns
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas
from tagwise.solvers.cg import conjugate_gradient

__all__ = ["CGSystem", "CholeskySystem", "EigenSystem", "GramSystem", "cholesky_factor", "is_single"]

_CG_TOL, _CG_MAX_ITER = 1e-2, 50
_SOLVE_COLUMNS = 128
# Numbers of a stripe of the Gram matrix's making: 32 MB of float64.
_STRIPE_NUMBERS = 1 << 22


class _Direct(ABC):
    """The smaller of two systems, solved by a factorisation: d×d, or n×n with Woodbury's identity."""

    def __init__(self, X: FeatureMatrix, reg: float, n_threads: int) -> None:
        self.twin = X.shape[0] < X.shape[1]
        # A sparse product has the type of its dense side; a dense one has that of X.
        if self.twin and isinstance(X, DenseFeatures) and is_single(X):
            X = DenseFeatures(X.matrix.astype(np.float64), n_threads=X.n_threads)
        self.X = X
        self.reg, self.n_threads = reg, n_threads

    @abstractmethod
    def inverse(self, right: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """(sG + λ1 I)⁻¹ right, G = XᵀX or XXᵀ."""

    def solve(self, right: np.ndarray, scale: np.ndarray, H: np.ndarray, gram_H: np.ndarray) -> np.ndarray:
        """Exactly, in float64; the last step is not needed."""
        if not self.twin:
            return self._in_column_chunks(right, scale)
        # (b − sXᵀ(sXXᵀ + λ1 I)⁻¹Xb) / λ1
        weights = self._in_column_chunks(self.X.matmul(right.astype(np.float64)), scale)
        weights *= scale
        out = self.X.rmatmul(weights)
        np.subtract(right, out, out=out)
        out /= self.reg
        return out

    def _in_column_chunks(self, right: np.ndarray, scale: np.ndarray) -> np.ndarray:
        out = np.empty(right.shape)

        def chunk(start: int, stop: int) -> None:
            out[:, start:stop] = self.inverse(right[:, start:stop].astype(np.float64), scale[start:stop])

        with single_threaded_blas():
            run_chunks(chunk, even_chunks(right.shape[1], _SOLVE_COLUMNS), self.n_threads)
        return out


class CholeskySystem(_Direct):
    """One Cholesky factor, for the scale it was made with."""

    adaptive = False

    def __init__(self, X: FeatureMatrix, reg: float, scale: float, n_threads: int) -> None:
        super().__init__(X, reg, n_threads)
        system = _small_gram(self.X)
        system *= scale
        system[np.diag_indices(len(system))] += reg
        self.factor = cholesky_factor(
            system, f'reg={reg:g} is too small beside X to factorise the system; raise reg, or use method="cg".'
        )

    def inverse(self, right: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Two triangular solves."""
        return scipy.linalg.cho_solve(self.factor, right, check_finite=False)


class EigenSystem(_Direct):
    """One eigendecomposition, in which every scale is a change of the diagonal."""

    adaptive = True

    def __init__(self, X: FeatureMatrix, reg: float, n_threads: int) -> None:
        super().__init__(X, reg, n_threads)
        with single_threaded_blas():
            values, self.vectors = scipy.linalg.eigh(_small_gram(self.X).T, overwrite_a=True, check_finite=False)
        self.values = np.maximum(values, 0)[:, None]

    def inverse(self, right: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """A diagonal division in the eigenbasis."""
        inside = self.vectors.T @ right
        inside /= scale * self.values + self.reg
        return np.asarray(self.vectors @ inside)


class CGSystem:
    """Conjugate gradients from the last solution: no factorisation, any scale."""

    adaptive = True

    def __init__(self, X: FeatureMatrix, reg: float, tol: float = _CG_TOL, max_iter: int = _CG_MAX_ITER) -> None:
        self.X, self.reg, self.tol, self.max_iter = X, reg, tol, max_iter

    def solve(self, right: np.ndarray, scale: np.ndarray, H: np.ndarray, gram_H: np.ndarray) -> np.ndarray:
        """From the last H on."""
        scale, reg = scale.astype(right.dtype), right.dtype.type(self.reg)

        def system(columns: np.ndarray) -> np.ndarray:
            product = self.X.rmatmul(self.X.matmul(columns))
            product *= scale
            product += reg * columns
            return product

        missing = right - scale * gram_H
        missing -= reg * H
        return H + conjugate_gradient(system, missing, tol=self.tol, max_iter=self.max_iter, inner=dot_columns).solution


GramSystem: TypeAlias = CholeskySystem | EigenSystem | CGSystem
"""Its ``solve`` takes H and XᵀXH of the last step beside the right sides; ``adaptive`` says whether s may change."""


def cholesky_factor(system: np.ndarray, too_small: str) -> tuple[np.ndarray, bool]:
    """The factor of a symmetric matrix, in its place; raises ``too_small`` if it is not positive definite."""
    try:
        with single_threaded_blas():
            # The transpose of a symmetric matrix in C order is the same matrix in the order that LAPACK overwrites.
            return scipy.linalg.cho_factor(system.T, lower=True, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        raise InvalidInputError(too_small) from None


def _small_gram(X: FeatureMatrix) -> np.ndarray:
    """XXᵀ where n < d, else XᵀX, in float64, a stripe of columns at a time."""
    size = min(X.shape)
    out = np.empty((size, size))
    # Each stripe passes through products of n (or d) rows in float64, at most twice.
    width = max(1, min(256, _STRIPE_NUMBERS // max(X.shape)))
    for start, stop in even_chunks(size, width):
        unit = np.zeros((size, stop - start))
        unit[np.arange(start, stop), np.arange(stop - start)] = 1
        if X.shape[0] < X.shape[1]:
            out[:, start:stop] = X.matmul(X.rmatmul(unit))
        else:
            # Times unit vectors, even a product in float32 is exact.
            out[:, start:stop] = X.rmatmul(X.matmul(unit).astype(np.float64, copy=False))
    return out


def is_single(X: FeatureMatrix) -> bool:
    """Whether products with X are in float32 whatever they are multiplied by."""
    return isinstance(X, DenseFeatures) and X.matrix.dtype != np.float64
