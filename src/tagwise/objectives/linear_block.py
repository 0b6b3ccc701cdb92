r"""One linear model per label, for a batch of labels and any loss, label by label.

For label j of the batch

.. math:: f_j(z, b) = \sum_i \omega_{ij}\,\ell(y_{ij}, x_i^\top z + b) + \tfrac\lambda2\|z\|^2 .

The solvers see other variables V ((d+1)×B, or d×B without an intercept), in which the problem is better conditioned:

.. math:: z = D v, \qquad b = b_0 + e\,v_{d+1} - \mu^\top z,

with μ the mean row of X (so that moving z hardly moves the mean score: an unpenalised intercept beside features that
are never negative is otherwise the slowest direction of all), D and e the inverse roots of the Hessian's diagonal at
the start, averaged over the batch, and b₀ the best constant. V = 0 is the start. On debtags this takes less than half
of the conjugate-gradient steps that z and b take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from tagwise.feature_blocks import column_sums
from tagwise.kernels import FeatureMatrix, feature_matrix
from tagwise.losses import Loss
from tagwise.objectives.labels import LabelBatch
from tagwise.parallel import even_chunks, run_chunks
from tagwise.validation import Features

__all__ = ["Design", "LinearBlock"]

# Scores that one pass of the losses handles at a time: half a megabyte of float32, which stays in the L2 cache.
_BLOCK_SCORES = 1 << 17

_OfPairs: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Design:
    """The features (n×d), and what all batches need to know of them.

    ``mean`` (d) is μ, None where there is no intercept; ``mean_square`` (d) is (1/n) Σ_i (x_if − μ_f)², float64.
    """

    X: FeatureMatrix
    mean: np.ndarray | None
    mean_square: np.ndarray
    n_threads: int

    @classmethod
    def build(cls, X: Features, *, fit_intercept: bool, n_threads: int) -> Design:
        """From rows as the model sees them (scaled to unit length already, where they are to be)."""
        mean, squares = (sums / X.shape[0] for sums in column_sums(X))
        features = feature_matrix(X, n_threads=n_threads)
        if not fit_intercept:
            return cls(features, None, squares, n_threads)
        return cls(features, mean.astype(X.dtype), np.maximum(squares - mean**2, 0), n_threads)


class LinearBlock:
    """The problem above for one batch.

    A product costs O(nnz(X)·B); the block holds at most five arrays of n×B, and none of n×L. The Hessian's diagonal at
    the start is Σ_i ω ℓ'' of a label, on average over the batch, times the mean squares, plus λ.
    """

    def __init__(self, design: Design, batch: LabelBatch, loss: Loss, reg: float) -> None:
        self.design, self.batch, self.loss = design, batch, loss
        shape, dtype = batch.targets.shape, batch.targets.dtype
        self._chunks = even_chunks(shape[0], max(1, _BLOCK_SCORES // shape[1]))
        scores, total = np.broadcast_to(batch.start.astype(dtype), shape), 0.0
        for first, last in self._chunks:
            second = loss.second(batch.targets[first:last], scores[first:last])
            if batch.weights is not None:
                second = second * batch.weights[first:last]
            total += float(second.sum(dtype=np.float64))
        curvature = total / shape[1]
        scale = 1 / np.sqrt(curvature * design.mean_square + reg)
        self.n_features = len(scale)
        self.scale, self.penalty = scale[:, None].astype(dtype), (reg * scale**2)[:, None].astype(dtype)
        self.intercept_scale = dtype.type(1 / np.sqrt(curvature) if curvature > 0 else 1)
        self._curvature: np.ndarray | None = None  # ω ℓ'' at the point (n×B), made when first asked for

    def start(self) -> np.ndarray:
        """V = 0."""
        return np.zeros((self.n_features + (self.design.mean is not None), len(self.batch.start)), self.scale.dtype)

    def coefficients(self, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Z (d×B) and b (B, float64) of the solvers' variables."""
        Z = self.scale * V[: self.n_features]
        b = self.batch.start.astype(np.float64)
        if self.design.mean is not None:
            b = b + (self.intercept_scale * V[-1] - self.design.mean @ Z)
        return Z, b

    def move_to(self, V: np.ndarray) -> None:
        """Score all rows at V."""
        self._V = V
        self._scores = self._linear(V)
        self._scores += self.batch.start.astype(V.dtype)
        self._curvature = None

    def value(self) -> np.ndarray:
        """F of each label, shape (1, B), float64."""
        sums = self._weighted(self.loss.value, lambda losses, _: _column_sums(losses))
        total = sum(sums, start=np.zeros(self._V.shape[1]))
        weights = self._V[: self.n_features]
        like_weights = np.broadcast_to(self.penalty, weights.shape)
        penalty = 0.5 * np.einsum("ij,ij,ij->j", weights, weights, like_weights, dtype=np.float64)
        return (total + penalty)[None, :]

    def gradient(self) -> np.ndarray:
        """∇f at the point, shaped like V."""
        return self._pulled_back(self._of_all(self.loss.first), self._V)

    def hessian_vector(self, direction: np.ndarray) -> np.ndarray:
        """∇²f · direction at the point, shaped like V."""
        moved = self._linear(direction)
        if self._curvature is None and not self.loss.quadratic:
            self._curvature = self._of_all(self.loss.second)
        curvature = self.batch.weights if self.loss.quadratic else self._curvature
        if curvature is not None:

            def chunk(start: int, stop: int) -> None:
                moved[start:stop] *= curvature[start:stop]

            run_chunks(chunk, self._chunks, self.design.n_threads)
        return self._pulled_back(moved, direction)

    # ------------------------------------------------------------------ inside

    def _linear(self, V: np.ndarray) -> np.ndarray:
        """Scores at V less those at the start, n×B."""
        Z = self.scale * V[: self.n_features]
        scores = self.design.X.matmul(Z)
        if self.design.mean is not None:
            scores += self.intercept_scale * V[-1] - self.design.mean @ Z
        return scores

    def _pulled_back(self, slope: np.ndarray, V: np.ndarray) -> np.ndarray:
        """The transpose of :meth:`_linear` on an n×B array, plus the penalty's part at V."""
        out = np.empty_like(V)
        inner = out[: self.n_features]
        inner[:] = self.design.X.rmatmul(slope)
        if self.design.mean is not None:
            sums = _column_sums(slope).astype(V.dtype)
            inner -= self.design.mean[:, None] * sums
            out[-1] = self.intercept_scale * sums
        inner *= self.scale
        inner += self.penalty * V[: self.n_features]
        return out

    def _of_all(self, function: _OfPairs) -> np.ndarray:
        """ω·function(y, s) of all pairs at the point (n×B)."""
        out = np.empty_like(self._scores)
        self._weighted(function, lambda values, rows: np.copyto(out[rows], values))
        return out

    def _weighted(self, function: _OfPairs, use: Callable[[np.ndarray, slice], _T]) -> list[_T]:
        """``use`` of ω·function(y, s) at the point, a chunk of rows at a time."""

        def chunk(start: int, stop: int) -> _T:
            rows = slice(start, stop)
            values = function(self.batch.targets[rows], self._scores[rows])
            if self.batch.weights is not None:
                values = values * self.batch.weights[rows]
            return use(values, rows)

        return run_chunks(chunk, self._chunks, self.design.n_threads)


def _column_sums(block: np.ndarray) -> np.ndarray:
    return np.einsum("ij->j", block, dtype=np.float64)
