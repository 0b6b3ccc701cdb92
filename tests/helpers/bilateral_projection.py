"""Bilateral random projections on their own, and the bound on their error (MSE, section 3.2)."""

from dataclasses import dataclass

import numpy as np

from tagwise.kernels import feature_matrix
from tagwise.solvers.subspace_decomposition import project_bilaterally


@dataclass(frozen=True)
class BilateralProjection:
    """X ≈ left · rightᵀ; right has orthonormal columns."""

    left: np.ndarray
    right: np.ndarray

    def dense(self):
        return self.left @ self.right.T


def bilateral_random_projection(X, rank, *, oversampling=0, random_state=0, n_threads=1):
    """Equation 14 of MSE from a Gaussian A₁; the oversampling stays in the result, as in the theorems."""
    width = min(rank + oversampling, *X.shape)
    start = np.random.default_rng(random_state).standard_normal((X.shape[1], width)).astype(X.dtype)
    return BilateralProjection(*project_bilaterally(feature_matrix(X, n_threads=n_threads), start))


def average_error_bound(singular_values, rank, oversampling):
    r"""Bound on the mean spectral norm of X − L over the draws of A₁ (Theorem 3).

    .. math::
        \mathbb E\lVert X - L\rVert \le
        \Bigl(\sqrt{\tfrac{1}{p-1} \sum_{i\le r} \tfrac{\lambda_{r+1}^2}{\lambda_i^2}} + 1\Bigr) \lambda_{r+1}
        + \frac{e\sqrt{r+p}}{p} \sqrt{\sum_{i>r} \frac{\lambda_i^4}{\lambda_r^2}},

    p the oversampling. The paper prints λ_i² where λ_i⁴ stands here: then the two terms would not have the unit of X
    together, and the step from its Theorem 2, whose term is ‖Λ₂²‖_F·‖Λ₁⁻¹‖, gives the fourth power.

    Needs rank positive singular values and one more, and an oversampling of at least 2.
    """
    values = np.sort(np.asarray(singular_values, dtype=np.float64).ravel())[::-1]
    assert oversampling >= 2
    assert 1 <= rank < len(values)
    assert values[rank - 1] > 0
    following = values[rank]
    near = np.sqrt(((following / values[:rank]) ** 2).sum() / (oversampling - 1)) + 1
    far = np.e * np.sqrt(rank + oversampling) / oversampling * np.sqrt((values[rank:] ** 4).sum()) / values[rank - 1]
    return float(near * following + far)
