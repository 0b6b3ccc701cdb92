"""Singular value projection for a symmetric matrix that is known on a sparse set of pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.kernels import csr_matmul, dense_matmul, gram, sampled_product
from tagwise.parallel import single_threaded_blas

__all__ = ["SVPResult", "singular_value_projection"]

# A step that lowers the value lets the next be longer, one that raises it is undone and halves the step.
_LONGER, _SHORTER, _LEAST_STEP = 1.3, 0.5, 1.0
# Ritz steps that turn the random basis towards the leading eigenvectors of the known entries.
_FIRST_STEPS = 4
# Directions with a smaller share of the largest squared length are rounding.
_NEGLIGIBLE = 1e-18


@dataclass(frozen=True)
class SVPResult:
    """The factor Z (n×r), Σ_Ω(G − ZZᵀ)² over Σ_Ω G² at the end, how it ended and after how many steps."""

    factor: np.ndarray
    relative_value: float
    status: Literal["converged", "max_iter"]
    n_iter: int


def singular_value_projection(
    known: sp.csr_matrix, rank: int, *, rng: np.random.Generator, tol: float, max_iter: int, n_threads: int = 1
) -> SVPResult:
    r"""Minimise ‖P_Ω(G − M)‖² over positive semi-definite M = ZZᵀ of rank at most r.

    Gradient steps followed by the projection onto that set (Jain, Meka, Dhillon 2010),

    .. math:: M \leftarrow P_r\big(M + \eta\,P_\Omega(G - M)\big),

    with M kept as ZZᵀ. The leading eigenvectors of A = ZZᵀ + ηS (S sparse) are the Rayleigh-Ritz vectors in the span of
    Q and AQ, Q being those of the last M. (A power step would drift to eigenvalues that are large but negative.) η
    grows while the value falls; a step that raises it is taken back and halves η; at η = 1, where an exact projection
    cannot raise the value, that ends the run.

    ``known`` (n×n, symmetric) holds G on Ω; a stored 0 is a known 0. ``rng`` draws the first basis. The run ends when a
    step lowers the value by less than ``tol`` times the value at M = 0.

    Notes
    -----
    In float64. A step costs O(nnz(Ω)·r + n·r²); memory some ten arrays of n×r.
    """
    n_rows = known.shape[0]
    rank = min(rank, n_rows)
    scale = float(np.sum(known.data.astype(np.float64) ** 2))
    if scale == 0:
        return SVPResult(np.zeros((n_rows, rank)), 0.0, "converged", 0)
    residual = sp.csr_matrix((known.data.astype(np.float64), known.indices, known.indptr), shape=known.shape)
    target = residual.data.copy()
    with single_threaded_blas():
        basis = np.linalg.qr(rng.standard_normal((n_rows, rank)))[0]
        factor, value, step = np.zeros((n_rows, 1)), 1.0, _LEAST_STEP
        for _ in range(_FIRST_STEPS):
            basis, _ = _projected_step(factor, residual, step, basis, rank, n_threads)
        status: Literal["converged", "max_iter"] = "max_iter"
        iteration = 0
        while iteration < max_iter:
            iteration += 1
            new_basis, new_factor = _projected_step(factor, residual, step, basis, rank, n_threads)
            left = target - sampled_product(residual, new_factor, new_factor, n_threads=n_threads)
            new_value = float(left @ left) / scale
            if new_value > value:
                if step == _LEAST_STEP:
                    status = "converged"
                    break
                step = max(_LEAST_STEP, step * _SHORTER)
                continue
            fall, value = value - new_value, new_value
            basis, factor, residual.data = new_basis, new_factor, left
            step *= _LONGER
            if fall <= tol:
                status = "converged"
                break
    out = np.zeros((n_rows, rank))
    out[:, : factor.shape[1]] = factor
    return SVPResult(out, value, status, iteration)


def _projected_step(
    factor: np.ndarray, residual: sp.csr_matrix, step: float, basis: np.ndarray, rank: int, n_threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """A basis of the leading eigenvectors of A = ZZᵀ + ηS, and the new Z."""

    def matmul(V: np.ndarray) -> np.ndarray:
        product = csr_matmul(residual, V, n_threads=n_threads)
        product *= step
        product += dense_matmul(factor, gram(factor, V, n_threads=n_threads), n_threads=n_threads)
        return product

    image = matmul(basis)
    fresh = _orthonormal_beside(basis, image, n_threads)
    image_of_fresh = matmul(fresh)
    old, mixed, new = (
        gram(left, right, n_threads=n_threads)
        for left, right in ((basis, image), (basis, image_of_fresh), (fresh, image_of_fresh))
    )
    inner = np.block([[old, mixed], [mixed.T, new]])
    values, vectors = scipy.linalg.eigh(0.5 * (inner + inner.T))
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    rotated = dense_matmul(basis, vectors[: basis.shape[1]], n_threads=n_threads)
    rotated += dense_matmul(fresh, vectors[basis.shape[1] :], n_threads=n_threads)
    return rotated, rotated * np.sqrt(np.maximum(values, 0))


def _orthonormal_beside(basis: np.ndarray, V: np.ndarray, n_threads: int) -> np.ndarray:
    """An orthonormal basis of the part of V's columns that is orthogonal to ``basis``.

    By Gram matrices, twice: several times faster than QR, and as exact.
    """
    least = _NEGLIGIBLE * max(float(np.einsum("ij,ij->j", V, V).max()), np.finfo(np.float64).tiny)
    for _ in range(2):
        V = V - dense_matmul(basis, gram(basis, V, n_threads=n_threads), n_threads=n_threads)
        values, vectors = scipy.linalg.eigh(gram(V, n_threads=n_threads))
        # What is short beside all of V is rounding; so is, beside the rest, what is dependent on it.
        kept = values > max(least, 1e-14 * float(values[-1]))
        V = dense_matmul(V, vectors[:, kept] / np.sqrt(values[kept]), n_threads=n_threads)
        if V.shape[1] == 0:
            break
        least = 0.5
    return V
