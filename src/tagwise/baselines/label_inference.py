"""Inference of a row's labels from predicted measurements and known labels, as BayesianCS alternates it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.compiled import compiled
from tagwise.parallel import even_chunks, run_chunks

__all__ = ["JointLabelModel", "LabelPrior", "SparseLabelModel"]

# E[y²] of an unknown label before its first update, and for how many sweeps precisions stay there: updated from the
# first sweep on, the labels that happen to be visited first would explain away all others.
_START_SQUARE = 0.05
_FIXED_SWEEPS = 3
_ROWS = 64
_JOINT_ROWS = 32


class LabelPrior(NamedTuple):
    """σ², χ², a, b and the number of sweeps of a :class:`SparseLabelModel` or :class:`JointLabelModel`."""

    feature_noise: float
    code_noise: float
    shape: float
    rate: float
    n_sweeps: int


@dataclass(frozen=True)
class LabelModel:
    """Inference of labels with ``codes`` Φᵀ (L×m, float64); labels with a code of zeros take no part: their μ is 0."""

    codes: np.ndarray
    prior: LabelPrior
    n_threads: int = 1


class SparseLabelModel(LabelModel):
    r"""The model of one row's compressed labels z (m) and labels y (L), given predicted measurements p (m).

    .. math:: z \sim N(p, \sigma^2 I), \quad z \mid y \sim N(\Phi y, \chi^2 I), \quad
              y_j \sim N(0, 1/\alpha_j), \quad \alpha_j \sim \mathrm{Gamma}(a, b)

    The two densities of z are multiplied as potentials, and known y_j are fixed. The posterior is approximated by
    q(z)∏_j q(y_j)q(α_j) over the unknown j, whose factors are updated in turn, to the following optima:

    .. math:: q(y_j) = N(\mu_j, s_j), \quad s_j = (E\alpha_j + \|\phi_j\|^2/\chi^2)^{-1}, \quad
              \mu_j = s_j\,\phi_j^\top(E z - \Phi_{-j}\mu_{-j})/\chi^2

    .. math:: E\alpha_j = (a + \tfrac12) / (b + \tfrac12(\mu_j^2 + s_j)), \quad
              E z = (p/\sigma^2 + \Phi\mu/\chi^2) / (1/\sigma^2 + 1/\chi^2).

    All factors are updated ``n_sweeps`` times. Time O(m) per label and sweep; memory O(m + L) per thread and the
    result.
    """

    @property
    def target_noise(self) -> float:
        """σ², the noise between p and :meth:`measurements`."""
        return self.prior.feature_noise

    def labels(self, predicted: np.ndarray) -> np.ndarray:
        """μ (n×L) of rows of which nothing is known, from p (n×m)."""
        nothing = sp.csr_matrix((len(predicted), len(self.codes)))
        out = np.empty((len(predicted), len(self.codes)))
        self._run(predicted, nothing, np.zeros(0), out, np.empty((0, 0)))
        return out

    def measurements(self, predicted: np.ndarray, known: sp.csr_matrix, values: np.ndarray) -> tuple[np.ndarray, float]:
        """E z (n×m), and the sum over all rows of the negative lower bound, up to constants.

        From p (n×m), the known pairs (CSR, n×L) and their labels (nnz) in storage order.
        """
        out = np.empty_like(predicted)
        bound = self._run(predicted, known, values, np.empty((0, 0)), out)
        return out, bound

    def _run(
        self, predicted: np.ndarray, known: sp.csr_matrix, values: np.ndarray, labels: np.ndarray, means: np.ndarray
    ) -> float:
        predicted = np.ascontiguousarray(predicted, dtype=np.float64)
        norms = np.einsum("ij,ij->i", self.codes, self.codes)
        pairs = (known.indptr, known.indices, np.asarray(values, dtype=np.float64))

        def rows(start: int, stop: int) -> float:
            part = slice(start, stop)
            return float(_infer(predicted[part], self.codes, norms, pairs, self.prior, labels, means, start))

        return sum(run_chunks(rows, even_chunks(len(predicted), _ROWS), self.n_threads))


class JointLabelModel(LabelModel):
    r"""The same model as :class:`SparseLabelModel` with z eliminated and q(y)∏_j q(α_j) over the unknown labels.

    With v = σ² + χ², r = p − Φ_K y_K what the known labels leave, D = diag(1/Eα) and S = vI + Φ_U D Φ_Uᵀ (m×m),

    .. math:: q(y_U) = N(\mu, \Sigma), \quad \mu = D\Phi_U^\top S^{-1} r, \quad
              \Sigma = D - D\Phi_U^\top S^{-1}\Phi_U D, \quad
              E\alpha_j = (a + \tfrac12) / (b + \tfrac12(\mu_j^2 + \Sigma_{jj})).

    Labels that the codes cannot tell apart keep the variance of their prior, where the factored posterior, which looks
    at one label at a time, takes them for known. Sums in float32, whose rounding is far below v. Time O(m²L + m³) per
    row and sweep; memory O(m(m + L)) per row of a block of 32 and thread.
    """

    @property
    def target_noise(self) -> float:
        """σ² + χ², the noise between p and :meth:`measurements`."""
        return self.prior.feature_noise + self.prior.code_noise

    def labels(self, predicted: np.ndarray) -> np.ndarray:
        """μ (n×L) of rows of which nothing is known, from p (n×m)."""
        nothing = np.zeros((_JOINT_ROWS, len(self.codes)), dtype=np.float32)
        out = np.empty((len(predicted), len(self.codes)))

        def rows(start: int, stop: int) -> None:
            none = nothing[: stop - start]
            out[start:stop] = self._infer(predicted[start:stop], none != 0, none, with_bound=False)[0]

        run_chunks(rows, even_chunks(len(predicted), _JOINT_ROWS), self.n_threads)
        return out

    def measurements(self, predicted: np.ndarray, known: sp.csr_matrix, values: np.ndarray) -> tuple[np.ndarray, float]:
        """Φ E y (n×m), and the sum over all rows of the negative lower bound, up to constants.

        From p (n×m), the known pairs (CSR, n×L) and their labels (nnz) in storage order.
        """
        out = np.empty_like(predicted, dtype=np.float64)

        def rows(start: int, stop: int) -> float:
            pairs = slice(known.indptr[start], known.indptr[stop])
            row = np.repeat(np.arange(stop - start), np.diff(known.indptr[start : stop + 1]))
            fixed = np.zeros((stop - start, len(self.codes)), dtype=bool)
            fixed[row, known.indices[pairs]] = True
            labels = np.zeros(fixed.shape, dtype=np.float32)
            labels[row, known.indices[pairs]] = values[pairs]
            means, bound = self._infer(predicted[start:stop], fixed, labels, with_bound=True)
            out[start:stop] = means.astype(np.float64) @ self.codes
            return bound

        return out, sum(run_chunks(rows, even_chunks(len(predicted), _JOINT_ROWS), self.n_threads))

    def _infer(
        self, predicted: np.ndarray, fixed: np.ndarray, labels: np.ndarray, *, with_bound: bool
    ) -> tuple[np.ndarray, float]:
        """E y of a block of rows, known labels included, and the negative bound where it is asked for."""
        codes, prior, noise = self.codes.astype(np.float32), self.prior, np.float32(self.target_noise)
        size = codes.shape[1]
        free = ~fixed & (np.einsum("ij,ij->i", codes, codes) > 0)
        left = (predicted - labels @ codes).astype(np.float32)[:, :, None]
        variance = np.where(free, np.float32((prior.rate + 0.5 * _START_SQUARE) / (prior.shape + 0.5)), np.float32(0))
        mean, bound = labels, 0.0
        for sweep in range(prior.n_sweeps):
            system = np.matmul(codes.T * variance[:, None, :], codes)
            system[:, np.arange(size), np.arange(size)] += noise
            last = sweep == prior.n_sweeps - 1
            if last and not with_bound:
                mean = labels + variance * (np.linalg.solve(system, left)[:, :, 0] @ codes.T)
                break
            inverse = np.linalg.inv(system)
            along = np.matmul(inverse, left)[:, :, 0]
            mean = labels + variance * (along @ codes.T)
            explained = np.einsum("bml,lm->bl", np.matmul(inverse, codes.T), codes)
            square = mean**2 + np.maximum(variance - variance**2 * explained, 0)
            if last:
                trace = np.trace(inverse, axis1=1, axis2=2, dtype=np.float64)
                terms = (prior.shape + 0.5) * np.log(prior.rate + 0.5 * square[free]) - 0.5 * np.log(variance[free])
                bound = float(
                    0.5 * noise * np.sum(along.astype(np.float64) ** 2)
                    + 0.5 * np.sum(size - noise * trace + np.linalg.slogdet(system)[1])
                    + np.sum(terms, dtype=np.float64)
                )
            else:
                variance = np.where(free, (prior.rate + 0.5 * square) / (prior.shape + 0.5), 0).astype(np.float32)
        return mean, bound


@compiled(fastmath={"contract", "reassoc"})
def _infer(
    predicted: np.ndarray,
    codes: np.ndarray,
    norms: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray, np.ndarray],
    prior: LabelPrior,
    labels: np.ndarray,
    means: np.ndarray,
    first: int,
) -> float:
    """Infer rows ``first``, ``first`` + 1, …; write their labels or their E z where these arrays are not empty."""
    indptr, indices, values = pairs
    feature_noise, code_noise, shape, rate, n_sweeps = prior
    n_labels, size = codes.shape
    mu, precision, alpha = np.zeros(n_labels), np.ones(n_labels), np.empty(n_labels)
    free = np.empty(n_labels, dtype=np.bool_)
    z, left, explained = np.empty(size), np.empty(size), np.empty(size)  # E z, E z − Φμ and Φμ
    weight = code_noise / (feature_noise + code_noise)  # of p in E z
    bound = 0.0
    for row in range(first, first + len(predicted)):
        p = predicted[row - first]
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
        for sweep in range(n_sweeps):
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
                    alpha[j] = (shape + 0.5) / (rate + 0.5 * (mu[j] * mu[j] + 1 / precision[j]))
            for c in range(size):
                explained[c] = z[c] - left[c]
                z[c] = weight * p[c] + (1 - weight) * explained[c]
                left[c] = z[c] - explained[c]
        for c in range(size):
            moved = z[c] - p[c]
            bound += 0.5 * left[c] * left[c] / code_noise + 0.5 * moved * moved / feature_noise
            if means.size:
                means[row, c] = z[c]
        for j in range(n_labels):
            if free[j]:
                variance = 1 / precision[j]
                bound += 0.5 * variance * norms[j] / code_noise - 0.5 * np.log(variance)
                # With q(α) at its optimum, all of its terms come to this.
                bound += (shape + 0.5) * np.log(rate + 0.5 * (mu[j] * mu[j] + variance))
            if labels.size:
                labels[row, j] = mu[j]
    return bound
