"""Ridge regression from the features to any number of dense targets: what every label compression learns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import ConvergenceWarning, warn
from tagwise.feature_blocks import column_sums
from tagwise.kernels import feature_matrix, matmul
from tagwise.kernels.vectors import dot_columns
from tagwise.parallel import even_chunks
from tagwise.solvers.cg import conjugate_gradient
from tagwise.solvers.ridge import RidgeFactor
from tagwise.validation import Features

__all__ = ["LARGEST_DIRECT", "LinearMap", "MappedTargets"]

# Up to here a factorization, m³/3 with m = min(n, d), takes seconds; beyond, conjugate gradients are faster.
LARGEST_DIRECT = 4000
# Targets solved together: products with X gain nothing beyond, and an n×B array stays small.
_BATCH = 128
_MAX_ITER = 1000


@dataclass(frozen=True)
class MappedTargets:
    """Coefficients W (d×k), intercepts c (k), and the objective summed over all targets; float64."""

    coefficients: np.ndarray
    intercept: np.ndarray
    value: float


class LinearMap:
    r"""Minimises ½‖T − XW − 1cᵀ‖² + ½λ‖W‖² for any targets T (n×k), with one preparation of X.

    ``X`` (n×d) are the rows as the model sees them, scaled where asked for; ``reg`` is λ > 0; ``tol`` is the relative
    residual of conjugate gradients, where they are used.

    Everything in float64. With m = min(n, d) ≤ 4,000 exactly, by :class:`tagwise.solvers.ridge.RidgeFactor`: O(nnz(X)·m
    + m³/3) once and O(m²·k). Otherwise by conjugate gradients in the variables D⁻¹W, D = diag(X_cᵀX_c + λI)^{-1/2},
    with X_c the centered rows (never formed): O(nnz(X)·k) per step, memory a few arrays of n×B and d×B, B ≤ 128.
    """

    def __init__(self, X: Features, reg: float, *, n_threads: int = 1, tol: float = 1e-6) -> None:
        self.reg, self.tol = reg, tol
        self._rows, self._threads = X, n_threads
        self._factor: RidgeFactor | None = None
        if min(X.shape) <= LARGEST_DIRECT:
            self._factor = RidgeFactor(X, reg, fit_intercept=True, n_threads=n_threads)
            return
        if isinstance(X, np.ndarray):
            self._rows = X = X.astype(np.float64)
        self._X = feature_matrix(X, n_threads=n_threads)
        total, squares = column_sums(X)
        self._mean = total / X.shape[0]
        centered_squares = np.maximum(squares - X.shape[0] * self._mean**2, 0)
        self._scale = (1 / np.sqrt(centered_squares + reg))[:, None]

    def fit(self, targets: np.ndarray) -> MappedTargets:
        """For the targets T (n×k)."""
        parts = []
        for start, stop in even_chunks(targets.shape[1], _BATCH):
            some = np.ascontiguousarray(targets[:, start:stop], dtype=np.float64)
            if self._factor is None:
                parts.append(self._iterative(some))
            else:
                solved = self._factor.solve(sp.csr_matrix(some.T))
                parts.append(MappedTargets(solved.coefficients, solved.intercept, float(solved.value.sum())))
        return MappedTargets(
            np.concatenate([part.coefficients for part in parts], axis=1),
            np.concatenate([part.intercept for part in parts]),
            sum(part.value for part in parts),
        )

    def predict(self, mapped: MappedTargets) -> np.ndarray:
        """XW + 1cᵀ (n×k) of the rows that the map was made with."""
        product = matmul(self._rows, mapped.coefficients, n_threads=self._threads)
        product += mapped.intercept
        return product

    def _iterative(self, targets: np.ndarray) -> MappedTargets:
        means = targets.mean(axis=0)
        centered = targets - means
        # With T centered, X need not be; and below X_cᵀ(X_c B) = Xᵀ(X_c B), as the columns of X_c B sum to 0.
        right = self._scale * self._X.rmatmul(centered)

        def system(V: np.ndarray) -> np.ndarray:
            W = self._scale * V
            scores = self._X.matmul(W)
            scores -= self._mean @ W
            return self._scale * (self._X.rmatmul(scores) + self.reg * W)

        result = conjugate_gradient(system, right, tol=self.tol, max_iter=_MAX_ITER, inner=dot_columns)
        if result.status == "max_iter":
            warn(
                f"the ridge regression stopped after {_MAX_ITER} steps of conjugate gradients with a relative residual "
                f"of {result.relative_residual:.2g}, above {self.tol:g}; raise reg.",
                ConvergenceWarning,
            )
        W = self._scale * result.solution
        # Of every iterate s of conjugate gradients from 0: ⟨s, As⟩ = ⟨right, s⟩, so the objective needs no residual.
        value = 0.5 * float(np.sum(centered**2)) - 0.5 * float(np.sum(right * result.solution))
        return MappedTargets(W, means - self._mean @ W, value)
