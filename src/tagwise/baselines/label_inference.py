"""Variational inference of a row's unknown labels from its predicted measurements, under a sparse prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.compiled import compiled
from tagwise.parallel import even_chunks, run_chunks

__all__ = ["SparseLabelModel"]

# E[y²] of an unknown label before its first update, and for how many sweeps precisions stay there: were they updated
# from the first sweep on, the labels that happen to be visited first would explain away all others.
_START_SQUARE = 0.05
_FIXED_SWEEPS = 3
_ROWS = 64


@dataclass(frozen=True)
class SparseLabelModel:
    r"""The model of one row's compressed labels z (m) and labels y (L), given predicted measurements p (m).

    .. math:: z \sim N(p, \sigma^2 I), \quad z \mid y \sim N(\Phi y, \chi^2 I), \quad
              y_j \sim N(0, 1/\alpha_j), \quad \alpha_j \sim \mathrm{Gamma}(a, b)

    The two densities of z are multiplied as potentials, and known y_j are fixed. The posterior is approximated by
    q(z)∏_j q(y_j)q(α_j) over the unknown j, whose factors are updated in turn, to the following optima:

    .. math:: q(y_j) = N(\mu_j, s_j), \quad s_j = (E\alpha_j + \|\phi_j\|^2/\chi^2)^{-1}, \quad
              \mu_j = s_j\,\phi_j^\top(E z - \Phi_{-j}\mu_{-j})/\chi^2

    .. math:: E\alpha_j = (a + \tfrac12) / (b + \tfrac12(\mu_j^2 + s_j)), \quad
              E z = (p/\sigma^2 + \Phi\mu/\chi^2) / (1/\sigma^2 + 1/\chi^2).

    Attributes
    ----------
    codes : float64 array (L, m)
        Φᵀ. Labels with a code of zeros take no part: their μ is 0.
    feature_noise, code_noise : float
        σ², χ².
    prior_shape, prior_rate : float
        a, b.
    sweeps : int
        How often all factors are updated.
    n_threads : int

    Notes
    -----
    Time O(m) a label and sweep; memory O(m + L) a thread and the result.
    """

    codes: np.ndarray
    feature_noise: float
    code_noise: float
    prior_shape: float
    prior_rate: float
    sweeps: int
    n_threads: int = 1

    def labels(self, predicted: np.ndarray) -> np.ndarray:
        """μ (n×L) of rows of which nothing is known, from p (n×m)."""
        nothing = sp.csr_matrix((len(predicted), len(self.codes)))
        out = np.empty((len(predicted), len(self.codes)))
        self._run(predicted, nothing, np.zeros(0), out, np.empty((0, 0)))
        return out

    def measurements(self, predicted: np.ndarray, known: sp.csr_matrix, values: np.ndarray) -> tuple[np.ndarray, float]:
        """E z (n×m), and the sum over all rows of the negative lower bound, but for constants.

        Parameters
        ----------
        predicted : array (n, m)
            p.
        known : CSR (n, L)
            The known pairs.
        values : array (nnz,)
            Their labels, in storage order.
        """
        out = np.empty_like(predicted)
        bound = self._run(predicted, known, values, np.empty((0, 0)), out)
        return out, bound

    def _run(
        self, predicted: np.ndarray, known: sp.csr_matrix, values: np.ndarray, labels: np.ndarray, means: np.ndarray
    ) -> float:
        predicted = np.ascontiguousarray(predicted, dtype=np.float64)
        norms = np.einsum("ij,ij->i", self.codes, self.codes)
        indptr, indices, values = known.indptr, known.indices, np.asarray(values, dtype=np.float64)

        def rows(start: int, stop: int) -> float:
            return float(
                _infer(
                    predicted,
                    self.codes,
                    norms,
                    indptr,
                    indices,
                    values,
                    self.feature_noise,
                    self.code_noise,
                    self.prior_shape,
                    self.prior_rate,
                    self.sweeps,
                    labels,
                    means,
                    start,
                    stop,
                )
            )

        return sum(run_chunks(rows, even_chunks(len(predicted), _ROWS), self.n_threads))


@compiled(fastmath={"contract", "reassoc"})
def _infer(
    predicted: np.ndarray,
    codes: np.ndarray,
    norms: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    feature_noise: float,
    code_noise: float,
    shape: float,
    rate: float,
    sweeps: int,
    labels: np.ndarray,
    means: np.ndarray,
    start: int,
    stop: int,
) -> float:
    n_labels, size = codes.shape
    mu, precision, alpha = np.zeros(n_labels), np.ones(n_labels), np.empty(n_labels)
    free = np.empty(n_labels, dtype=np.bool_)
    z, left, explained = np.empty(size), np.empty(size), np.empty(size)  # E z, E z − Φμ and Φμ
    weight = code_noise / (feature_noise + code_noise)  # of p in E z
    bound = 0.0
    for row in range(start, stop):
        p = predicted[row]
        explained[:] = 0
        for j in range(n_labels):
            free[j] = norms[j] > 0
            mu[j] = 0
            alpha[j] = (shape + 0.5) / (rate + 0.5 * _START_SQUARE)
        for position in range(indptr[row], indptr[row + 1]):
            j = indices[position]
            free[j] = False
            mu[j] = values[position]
            if mu[j] != 0:
                for c in range(size):
                    explained[c] += mu[j] * codes[j, c]
        for c in range(size):
            z[c] = weight * p[c] + (1 - weight) * explained[c]
            left[c] = z[c] - explained[c]
        for sweep in range(sweeps):
            for j in range(n_labels):
                if not free[j]:
                    continue
                code = codes[j]
                along = 0.0
                for c in range(size):
                    along += code[c] * left[c]
                precision[j] = alpha[j] + norms[j] / code_noise
                step = (along + norms[j] * mu[j]) / (code_noise * precision[j]) - mu[j]
                mu[j] += step
                for c in range(size):
                    left[c] -= step * code[c]
                if sweep >= _FIXED_SWEEPS:
                    alpha[j] = (shape + 0.5) / (rate + 0.5 * (mu[j] ** 2 + 1 / precision[j]))
            for c in range(size):
                explained[c] = z[c] - left[c]
                z[c] = weight * p[c] + (1 - weight) * explained[c]
                left[c] = z[c] - explained[c]
        for c in range(size):
            bound += 0.5 * left[c] ** 2 / code_noise + 0.5 * (z[c] - p[c]) ** 2 / feature_noise
            if means.size:
                means[row, c] = z[c]
        for j in range(n_labels):
            if free[j]:
                variance = 1 / precision[j]
                bound += 0.5 * variance * norms[j] / code_noise - 0.5 * np.log(variance)
                # With q(α) at its optimum, all of its terms come to this.
                bound += (shape + 0.5) * np.log(rate + 0.5 * (mu[j] ** 2 + variance))
            if labels.size:
                labels[row, j] = mu[j]
    return bound
