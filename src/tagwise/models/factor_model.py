"""What linear models share: the weight of positives, and prediction and folders of low-rank factors, xᵀWHᵀ + b."""

from __future__ import annotations

import math
from typing import Any, ClassVar, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.base import MultiLabelModel, require_finite
from tagwise.exceptions import ExplanationError, InvalidInputError, TagwiseWarning, warn
from tagwise.interrupts import deferred_interrupts
from tagwise.kernels import matmul, top_k_of_factors
from tagwise.kernels.norm_pruned import FEW_ROWS, NormSorted, norm_pruned_topk
from tagwise.metrics import inverse_propensity
from tagwise.parallel import single_threaded_blas
from tagwise.persistence.loading import require_dense, require_finite_floats
from tagwise.problems.labels import known_positives
from tagwise.validation import Features, check_real

__all__ = [
    "LOWEST_SCORE",
    "FactorModel",
    "PositiveWeight",
    "check_positive_weight",
    "may_be_added",
    "resolve_positive_weight",
    "usable_rank",
]

# A label of which nothing is known must rank below every other, yet stay a finite number.
LOWEST_SCORE = -1e30

_LARGEST = {np.dtype(kind): float(np.finfo(kind).max) for kind in (np.float32, np.float64)}

PositiveWeight: TypeAlias = Any
"""A number, an array with one number per label, or ``"propensity"``."""


def usable_rank(rank: int, largest: int, reason: str) -> int:
    """``rank``, or with a warning the largest that the data allows."""
    if rank > largest:
        warn(f"rank={rank} is more than {reason}; using {largest}.", TagwiseWarning)
    return min(rank, largest)


def check_positive_weight(positive_weight: PositiveWeight) -> None:
    """Raise for what can never be a weight, before any data is seen."""
    if isinstance(positive_weight, str):
        if positive_weight != "propensity":
            raise InvalidInputError(
                f"positive_weight must be a number, an array or 'propensity'; found {positive_weight!r}."
            )
    elif np.isscalar(positive_weight) or positive_weight is None:
        check_real(positive_weight, "positive_weight", minimum=0, open_minimum=True)
    else:
        _as_array(positive_weight)


def resolve_positive_weight(
    positive_weight: PositiveWeight, Y: sp.csr_matrix, observed: sp.csr_matrix | None
) -> np.ndarray | None:
    """The weight of each label's positives (L), or None where all are 1."""
    n_labels = Y.shape[1]
    if isinstance(positive_weight, str):
        return inverse_propensity(known_positives(Y, observed))
    if np.isscalar(positive_weight):
        return None if positive_weight == 1 else np.full(n_labels, positive_weight, dtype=np.float64)
    weights = _as_array(positive_weight)
    if weights.shape != (n_labels,):
        raise InvalidInputError(
            f"positive_weight has shape {weights.shape}; give one number or one per label ({n_labels})."
        )
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise InvalidInputError("positive_weight must be finite and above 0 for every label.")
    return weights


def _as_array(positive_weight: Any) -> np.ndarray:
    try:
        return np.asarray(positive_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            "positive_weight must be a number, 'propensity', or an array of one number per label; found "
            f"{positive_weight!r:.60}."
        ) from None


def may_be_added(left: np.ndarray, length: float) -> bool:
    """Whether no sum of products of a row of ``left`` with numbers of this Euclidean length can overflow.

    Time: one product for each number of ``left``; its rows are taken together.
    """
    return math.sqrt(np.vdot(left, left)) * length < _LARGEST[left.dtype]


class FactorModel(MultiLabelModel):
    """Scores xᵀWHᵀ + b: fitted ``feature_factors_`` W (d×k), ``label_factors_`` H (L×k), ``intercept_`` b (L)."""

    _saved_arrays: ClassVar[tuple[str, ...]] = ("feature_factors_", "label_factors_", "intercept_")

    feature_factors_: np.ndarray
    label_factors_: np.ndarray
    intercept_: np.ndarray
    _norm_sorted: NormSorted

    def _check_restored(self) -> None:
        self._check_factors(self.n_features_in_)

    def _check_factors(self, n_rows: int) -> None:
        """Raise ValueError unless W (``n_rows``×k), H (L×k) and b (L) fit together."""
        W, H, b = self.feature_factors_, self.label_factors_, self.intercept_
        require_dense(2, feature_factors_=W, label_factors_=H)
        require_dense(1, intercept_=b)
        rank = W.shape[1]
        expected = ((n_rows, rank), (self.n_labels_, rank), (self.n_labels_,))
        if (W.shape, H.shape, b.shape) != expected or rank < 1:
            raise ValueError(f"factors of shapes {W.shape}, {H.shape}, {b.shape} where {expected} are expected")
        require_finite_floats(feature_factors_=W, label_factors_=H, intercept_=b)

    def _label_weights(self, labels: np.ndarray) -> Features:
        if getattr(self, "kernel", None) is not None:
            raise ExplanationError(
                f"{type(self).__name__} with a kernel has no exact explanations: a kernel compares whole rows, and no "
                "part of a score belongs to one feature. Use kernel=None."
            )
        return self.label_factors_[labels] @ self.feature_factors_.T

    def embed(self, X: Any) -> np.ndarray:
        """XW (n×k), in which scores are inner products with ``label_factors_``; rows are scaled as at fit."""
        features = self._fitted_features(X)
        if self._answers_without_blas(features):
            return self._embed(features)
        with deferred_interrupts(), single_threaded_blas():
            return self._embed(features)

    def _embed(self, X: Features) -> np.ndarray:
        """XW (n×k), rows of X scaled to unit length first where the model was fitted so."""
        threads = self._threads_for(X)
        rows = self._prepared(X)
        return matmul(rows, self.feature_factors_, n_threads=threads)

    def _score_rows(self, X: Features) -> np.ndarray:
        return np.asarray(self._embed(X) @ self.label_factors_.T + self.intercept_)

    def _build_prediction_cache(self) -> None:
        self._norm_sorted = NormSorted.of(self.label_factors_, self.intercept_)

    def _norm_sorted_labels(self) -> NormSorted:
        """What :meth:`_build_prediction_cache` made, made again where factors or intercept have been replaced since."""
        known = self._norm_sorted
        if known.factors is not self.label_factors_ or known.intercept is not self.intercept_:
            self._build_prediction_cache()
        return self._norm_sorted

    def _answers_without_blas(self, X: Features) -> bool:
        few = X.shape[0] <= FEW_ROWS and sp.issparse(X)
        return few and getattr(self, "kernel", None) is None and self._norm_sorted_labels().rule_out_others

    def _top_k(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        embedded, known, threads = self._embed(X), self._norm_sorted_labels(), self._threads_for(X)
        if not may_be_added(embedded, float(known.lengths[0])):
            require_finite(lambda start, stop: embedded[start:stop] @ known.factors.T, self._row_blocks(X))
        if known.rule_out_others and embedded.dtype == known.factors.dtype:
            return norm_pruned_topk(embedded, known, k, exclude=exclude, n_threads=threads)
        return top_k_of_factors(
            embedded, known.factors, k, intercept=known.intercept, exclude=exclude, n_threads=threads
        )
