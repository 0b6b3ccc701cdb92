"""Ridge regression of many columns on one matrix, from one Cholesky factor of the smaller Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import csr_matmul, dense_matmul
from tagwise.kernels.products import as_dense
from tagwise.parallel import even_chunks, single_threaded_blas

__all__ = ["RidgeFactor", "RidgeSolution", "gram_of_rows"]

# Numbers of a dense stripe of the matrix: 32 MB of float64.
_STRIPE = 1 << 22


@dataclass(frozen=True)
class RidgeSolution:
    """Coefficients Z (d×B), intercepts b (B), and each column's ½‖y − Xz − b‖² + ½λ‖z‖²; float64."""

    coefficients: np.ndarray
    intercept: np.ndarray
    value: np.ndarray


class RidgeFactor:
    r"""Solves min ½‖Y − XZ − 1bᵀ‖² + ½λ‖Z‖² for any number of sparse columns Y, exactly.

    With centred rows X_c (not stored; only where there is an intercept) either of

    .. math:: Z = (X_c^\top X_c + \lambda I)^{-1} X_c^\top Y = X_c^\top (X_c X_c^\top + \lambda I)^{-1} (Y - \bar Y)

    is solved, whichever system is smaller; b = ȳ − Zᵀμ.

    Parameters
    ----------
    X : CSR or array (n, d)
    reg : float
        λ > 0.
    fit_intercept : bool
    n_threads : int
        For the Gram matrix; the factorisation itself is one BLAS thread's, so that its rounding is always the same.

    Notes
    -----
    In float64 throughout. With m = min(n, d): O(nnz(X)·m + m³/3) time to build, O(m²) a column to solve; memory 8·m²
    bytes, twice that while it is built (and two copies of a dense X).
    """

    def __init__(self, X: sp.csr_matrix | np.ndarray, reg: float, *, fit_intercept: bool, n_threads: int = 1) -> None:
        n_rows, n_features = X.shape
        self.X = X if isinstance(X, np.ndarray) else sp.csr_matrix(X)
        self.dual = n_rows < n_features
        self.mean = _column_sums(self.X) / n_rows if fit_intercept else np.zeros(n_features)
        self.fit_intercept = fit_intercept
        system = gram_of_rows(self.X if self.dual else self.X.T, n_threads)
        if fit_intercept and self.dual:
            means = system.mean(axis=0)
            system -= means[:, None] + means[None, :] - means.mean()
        elif fit_intercept:
            system -= n_rows * self.mean[:, None] * self.mean[None, :]
        system[np.diag_indices(len(system))] += reg
        try:
            with single_threaded_blas():
                # The transpose of a symmetric matrix in C order is the same matrix in the order that LAPACK overwrites.
                self.factor = scipy.linalg.cho_factor(system.T, lower=True, overwrite_a=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            raise InvalidInputError(
                f'reg={reg:g} is too small beside the features to solve for directly; raise reg, or use solver="cg".'
            ) from None

    def solve(self, columns: sp.csr_matrix) -> RidgeSolution:
        """For the columns of Y given as rows: CSR (B, n)."""
        columns = columns.astype(np.float64)
        n_rows = columns.shape[1]
        squares = np.asarray(columns.multiply(columns).sum(axis=1)).ravel()
        means = np.asarray(columns.mean(axis=1)).ravel() if self.fit_intercept else np.zeros(columns.shape[0])
        # Row j is y_jᵀX; centring the rows of X or the columns of Y comes to the same here.
        cross = (as_dense(columns @ self.X) - n_rows * means[:, None] * self.mean[None, :]).T
        with single_threaded_blas():
            if self.dual:
                centred = columns.toarray().T - means
                weights = scipy.linalg.cho_solve(self.factor, centred, overwrite_b=True, check_finite=False)
                # Centring X here would subtract μ·1ᵀα, and 1ᵀα = 0.
                Z = np.asarray(self.X.T @ weights)
            else:
                Z = scipy.linalg.cho_solve(self.factor, cross, check_finite=False)
            intercept = means - self.mean @ Z
        # At the minimum, ½‖residual‖² + ½λ‖z‖² = ½‖y − ȳ‖² − ½⟨X_cᵀy, z⟩.
        value = 0.5 * (squares - n_rows * means**2) - 0.5 * np.einsum("ij,ij->j", cross, Z)
        return RidgeSolution(Z, intercept, value)


def gram_of_rows(rows: sp.spmatrix | np.ndarray, n_threads: int) -> np.ndarray:
    """M Mᵀ in float64 for M (m×p)."""
    if isinstance(rows, np.ndarray):
        wide = np.ascontiguousarray(rows, dtype=np.float64)
        return dense_matmul(wide, wide.T, n_threads=n_threads)
    matrix = sp.csr_matrix(rows)
    size, length = matrix.shape
    out = np.empty((size, size))
    for start, stop in even_chunks(size, max(1, min(256, _STRIPE // length))):
        stripe = np.ascontiguousarray(matrix[start:stop].toarray().T, dtype=np.float64)
        out[:, start:stop] = csr_matmul(matrix, stripe, n_threads=n_threads)
    return out


def _column_sums(matrix: sp.csr_matrix | np.ndarray) -> np.ndarray:
    if isinstance(matrix, np.ndarray):
        return matrix.sum(axis=0, dtype=np.float64)
    # scipy would add float32 values in float32, whatever type is asked for.
    return np.bincount(matrix.indices, weights=matrix.data, minlength=matrix.shape[1])
