"""Bilateral random projections: a fast low-rank approximation from one random projection of each side (MSE, 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import FeatureMatrix, feature_matrix
from tagwise.parallel import single_threaded_blas
from tagwise.randomness import RandomState, random_generator
from tagwise.validation import check_features, check_integer, shape_text

__all__ = ["BilateralProjection", "average_error_bound", "bilateral_random_projection", "project_bilaterally"]


@dataclass(frozen=True)
class BilateralProjection:
    """X ≈ left · rightᵀ.

    Attributes
    ----------
    left : array (m, k)
        X · right.
    right : array (n, k)
        Orthonormal columns: a basis of the row space that was found.
    """

    left: np.ndarray
    right: np.ndarray

    def dense(self) -> np.ndarray:
        """The approximation as an array (m, n)."""
        return np.asarray(self.left @ self.right.T)


def bilateral_random_projection(
    X: sp.csr_matrix | np.ndarray,
    rank: int,
    *,
    oversampling: int = 0,
    random_state: RandomState = 0,
    n_threads: int = 1,
) -> BilateralProjection:
    r"""Approximate a matrix by one of low rank, from random projections of its rows and of its columns.

    With A₁ (n×k) Gaussian, k = rank + oversampling, and the adaptive choice A₂ := XA₁, then A₁ := XᵀA₂, equation 14 of
    Zhou and Tao (Multi-label Subspace Ensemble, AISTATS 2012) is

    .. math:: L = Y_1 (A_2^\top Y_1)^{-1} Y_2^\top, \qquad Y_2 = X^\top A_2, \quad Y_1 = X Y_2 .

    Parameters
    ----------
    X : CSR or array (m, n)
    rank : int
        r ≥ 1.
    oversampling : int
        Further random directions. They stay in the result, as in the theorems: it has rank r + oversampling (or
        min(m, n), if that is less).
    random_state : int, Generator, RandomState or None
        Seeds A₁.
    n_threads : int
        Threads for the products; the result has the same bits for any number.

    Returns
    -------
    BilateralProjection

    Notes
    -----
    As A₂ᵀY₁ = A₂ᵀXY₂ = Y₂ᵀY₂, the formula says L = X·Y₂(Y₂ᵀY₂)⁻¹Y₂ᵀ: X projected onto the columns of Y₂ = XᵀXA₁. It
    is computed in this way, with an orthonormal basis of Y₂ in place of the inverse, whose condition number is the
    fourth power of that of X. Three products with X, O(nnz(X)·k) each, and O(nk²); memory O((m + n)k).
    :func:`average_error_bound` says how large the error is on average.
    """
    matrix = check_features(X)
    rank = check_integer(rank, "rank", minimum=1)
    width = min(rank + check_integer(oversampling, "oversampling", minimum=0), *matrix.shape)
    start = random_generator(random_state).standard_normal((matrix.shape[1], width)).astype(matrix.dtype)
    left, right = project_bilaterally(feature_matrix(matrix, n_threads=n_threads), start)
    return BilateralProjection(left, right)


def project_bilaterally(X: FeatureMatrix, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One bilateral projection from a given A₁ (n×k): left (m×k) and orthonormal right (n×k), in the type of ``start``.

    The projection of X that it gives keeps at least what projecting onto the columns of ``start`` would keep: a step
    with XᵀX never loses energy from a subspace. So a good ``start`` (the last round's) can only get better.
    """
    if start.shape[0] != X.shape[1] or start.shape[1] > min(X.shape):
        raise InvalidInputError(
            f"start of shape {shape_text(start.shape)} does not fit a matrix of shape {shape_text(X.shape)}."
        )
    with single_threaded_blas():
        # Scaling a column of Y1 scales the same column of Y2 and changes no subspace, but keeps X³ from overflowing.
        left = unit_columns(X.matmul(start))
        right = np.linalg.qr(unit_columns(X.rmatmul(left)).astype(np.float64))[0]
    right = np.ascontiguousarray(right.astype(start.dtype))
    return X.matmul(right), right


def unit_columns(columns: np.ndarray) -> np.ndarray:
    """Columns of length 1; those of zeros stay zero."""
    largest = np.abs(columns).max(axis=0, initial=0)
    scaled = columns / np.where(largest > 0, largest, 1)
    length = np.sqrt(np.einsum("ij,ij->j", scaled, scaled))
    return scaled / np.where(length > 0, length, 1)


def average_error_bound(singular_values: np.ndarray, rank: int, oversampling: int) -> float:
    r"""Bound on the mean spectral norm of X − L over the draws of A₁ (Theorem 3).

    .. math::
        \mathbb E\lVert X - L\rVert \le
        \Bigl(\sqrt{\tfrac{1}{p-1} \sum_{i\le r} \tfrac{\lambda_{r+1}^2}{\lambda_i^2}} + 1\Bigr) \lambda_{r+1}
        + \frac{e\sqrt{r+p}}{p} \sqrt{\sum_{i>r} \frac{\lambda_i^4}{\lambda_r^2}},

    p the oversampling. The paper prints λ_i² where λ_i⁴ stands here: then the two terms would not have the unit of X
    together, and the step from its Theorem 2, whose term is ‖Λ₂²‖_F·‖Λ₁⁻¹‖, gives the fourth power.

    Parameters
    ----------
    singular_values : array
        All singular values of X.
    rank : int
        r, at least 1 and below their number.
    oversampling : int
        p ≥ 2.
    """
    values = np.sort(np.asarray(singular_values, dtype=np.float64).ravel())[::-1]
    rank = check_integer(rank, "rank", minimum=1)
    extra = check_integer(oversampling, "oversampling", minimum=2)
    if rank >= len(values) or values[rank - 1] <= 0:
        raise InvalidInputError(
            f"rank={rank} needs {rank} positive singular values and one more; found {np.count_nonzero(values > 0)} "
            f"positive ones of {len(values)}."
        )
    following = values[rank]
    near = np.sqrt(((following / values[:rank]) ** 2).sum() / (extra - 1)) + 1
    far = np.e * np.sqrt(rank + extra) / extra * np.sqrt((values[rank:] ** 4).sum()) / values[rank - 1]
    return float(near * following + far)
