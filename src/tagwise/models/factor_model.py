"""Shared by linear models: data of a fit, the weight of positives, and prediction by low-rank factors, xᵀWHᵀ + b."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse as sp

from tagwise.answers import require_finite
from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import ExplanationError, InvalidInputError, TagwiseWarning, warn
from tagwise.executor import Block
from tagwise.fields import Fields, dense, put
from tagwise.interrupts import deferred_interrupts
from tagwise.kernels import FeatureMatrix, feature_matrix, matmul, top_k_of_factors
from tagwise.kernels.norm_pruned import FEW_ROWS, NormSorted, norm_pruned_topk
from tagwise.losses import Loss
from tagwise.metrics import inverse_propensity
from tagwise.metrics.propensity import inverse_propensity_of_counts
from tagwise.objectives.labels import TrainingLabels
from tagwise.parallel import single_threaded_blas, thread_count
from tagwise.problem import Problem
from tagwise.validation import Features, check_real

__all__ = [
    "LOWEST_SCORE",
    "FactorModel",
    "FitData",
    "PositiveWeight",
    "check_positive_weight",
    "factors",
    "may_be_added",
    "resolve_positive_weight",
    "usable_rank",
]

T = TypeVar("T")

# A label of which nothing is known must rank below every other, yet stay a finite number.
LOWEST_SCORE = -1e30

_LARGEST = {np.dtype(kind): float(np.finfo(kind).max) for kind in (np.float32, np.float64)}


def usable_rank(rank: int, largest: int, reason: str, *, name: str = "rank") -> int:
    """``rank``, or with a warning the largest that the data allows."""
    if rank > largest:
        warn(f"{name}={rank} is more than {reason}; using {largest}.", TagwiseWarning)
    return min(rank, largest)


def check_positive_weight(positive_weight: Any, name: str = "positive_weight") -> None:
    """Raise for what can never be a weight, before any data is seen."""
    if isinstance(positive_weight, str):
        if positive_weight != "propensity":
            raise InvalidInputError(f"{name} must be a number, an array or 'propensity'; found {positive_weight!r}.")
    elif np.isscalar(positive_weight) or positive_weight is None:
        check_real(positive_weight, name, minimum=0, open_minimum=True)
    else:
        _as_array(positive_weight)


PositiveWeight = Annotated[Any, check_positive_weight]
"""A number, an array with one number per label, or ``"propensity"``."""


def resolve_positive_weight(
    positive_weight: PositiveWeight, Y: sp.csr_matrix, row_weight: np.ndarray | None = None
) -> np.ndarray | None:
    """The weight of each label's positives (L), or None where all are 1; ``Y`` has the known ones.

    For propensities, rows count as they weigh.
    """
    n_labels = Y.shape[1]
    if isinstance(positive_weight, str):
        if row_weight is None:
            return inverse_propensity(Y)
        counts = np.bincount(Y.indices, np.repeat(row_weight, np.diff(Y.indptr)), minlength=n_labels)
        return inverse_propensity_of_counts(counts, float(row_weight.sum()))
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


@dataclass(frozen=True, eq=False, kw_only=True)
class FitData(Problem):
    """A problem where the steps of its fit run: in this process, or on a worker of a cluster; rows are scaled.

    Products with shards of rows, blocks of labels, and whatever else is made of it are made when a step first asks for
    them, and kept.
    """

    loss: Loss
    positive_weight: np.ndarray | None
    n_jobs: int | None

    @classmethod
    def build(cls, problem: Problem, loss: Loss, positive_weight: PositiveWeight, n_jobs: int | None) -> FitData:
        """Resolves ``positive_weight``."""
        weight = resolve_positive_weight(positive_weight, problem.Y, problem.row_weight)
        data = problem.X, problem.Y, problem.known, problem.row_weight
        return cls(*data, loss=loss, positive_weight=weight, n_jobs=n_jobs)

    @cached_property
    def _made(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def _made_of_features(self) -> dict[Hashable, Any]:
        return {}

    def once(self, key: Hashable, make: Callable[[], T], *, of_features: bool = False) -> T:
        """The result of ``make``, computed once per process; ``of_features`` if labels do not matter."""
        made = self._made_of_features if of_features else self._made
        if key not in made:
            made[key] = make()
        found: T = made[key]
        return found

    @property
    def n_threads(self) -> int:
        """Threads of one process."""
        return thread_count(self.n_jobs)

    @cached_property
    def targets(self) -> TrainingLabels:
        """Known labels, with their weights."""
        Y = self.Y.astype(self.X.dtype, copy=False)
        return TrainingLabels(Y, self.known, self.positive_weight, self.n_threads, self.row_weight)

    def targets_of(self, block: Block) -> TrainingLabels:
        """Targets of labels ``start`` to ``stop``."""
        if block == (0, self.n_labels):
            return self.targets
        return self.once(("labels", block), lambda: self.targets.of(np.arange(*block)))

    def labels(self, ids: np.ndarray) -> FitData:
        """Some labels alone; what was made of the features is shared."""
        alone = super().labels(ids)
        if self.positive_weight is not None:
            alone = replace(alone, positive_weight=self.positive_weight[ids])
        vars(alone)["_made_of_features"] = self._made_of_features
        return alone

    def shard(self, block: Block) -> FitData:
        """Rows ``start`` to ``stop``."""
        return self if block == (0, self.n_rows) else self.rows(np.arange(*block))

    def features(self, block: Block | None = None) -> FeatureMatrix:
        """Products with rows ``start`` to ``stop``, or with all rows."""
        rows = (0, self.n_rows) if block is None else block
        threads = self.n_threads
        return self.once(("X", rows), lambda: feature_matrix(self.shard(rows).X, n_threads=threads), of_features=True)


def may_be_added(left: np.ndarray, length: float) -> bool:
    """Whether no sum of products of a row of ``left`` with numbers of this Euclidean length can overflow.

    Time: one product for each number of ``left``; its rows are taken together.
    """
    return math.sqrt(np.vdot(left, left)) * length < _LARGEST[left.dtype]


def factors(of_features: str = "W.", of_labels: str = "H.", intercept: str = "b.") -> Fields:
    """The fields of a factor model, with their meanings."""
    return Fields(
        feature_factors_=dense("d", "k", meaning=of_features),
        label_factors_=dense("L", "k", meaning=of_labels),
        intercept_=dense("L", meaning=intercept),
    )


class FactorModel(MultiLabelModel):
    """Scores xᵀWHᵀ + b."""

    fields: ClassVar[Fields] = factors()

    feature_factors_: np.ndarray
    label_factors_: np.ndarray
    intercept_: np.ndarray
    _norm_sorted: NormSorted

    def _take_factors(
        self, W: np.ndarray, H: np.ndarray, b: np.ndarray, dtype: np.dtype, unknown: np.ndarray | None = None
    ) -> None:
        """The outcome of a fit, b counted from the border between off and on; ``unknown`` labels rank last."""
        if unknown is not None:
            H[unknown], b[unknown] = 0, LOWEST_SCORE
        self.feature_factors_, self.label_factors_ = W.astype(dtype, copy=False), H.astype(dtype, copy=False)
        self.intercept_ = b.astype(dtype)

    def _put_labels(self, labels: np.ndarray, H: np.ndarray, b: np.ndarray, unknown: np.ndarray) -> None:
        """The same for some labels."""
        H[unknown], b[unknown] = 0, LOWEST_SCORE
        self.label_factors_ = put(self.label_factors_, labels, H)
        self.intercept_ = put(self.intercept_, labels, b)

    def _check_fitted(self) -> None:
        if not self.feature_factors_.shape[1]:
            raise ValueError("feature_factors_ and label_factors_ must have a rank of at least 1")

    def _label_weights(self, labels: np.ndarray) -> Features:
        if self.kernel is not None:
            raise ExplanationError(
                f"{type(self).__name__} with a kernel has no exact explanations: a kernel compares whole rows, and no "
                "part of a score belongs to one feature. Use kernel=None."
            )
        return self.label_factors_[labels] @ self.feature_factors_.T

    def embed(self, X: Any) -> np.ndarray:
        """XW (n×k), in which scores are inner products with ``label_factors_``; rows are scaled as at fit."""
        features = self.fitted_features(X)
        if self.answers_without_blas(features):
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
        """The prediction cache, rebuilt if factors or intercept have been replaced since."""
        known = self._norm_sorted
        if known.factors is not self.label_factors_ or known.intercept is not self.intercept_:
            self._build_prediction_cache()
        return self._norm_sorted

    def answers_without_blas(self, X: Features) -> bool:
        """Prediction for few sparse rows, where bounds rule out most labels."""
        few = X.shape[0] <= FEW_ROWS and sp.issparse(X)
        return few and self.kernel is None and self._norm_sorted_labels().rule_out_others

    def _top_k(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        embedded, known, threads = self._embed(X), self._norm_sorted_labels(), self._threads_for(X)
        if not may_be_added(embedded, float(known.lengths[0])):
            require_finite(lambda start, stop: embedded[start:stop] @ known.factors.T, self._row_blocks(X))
        if known.rule_out_others and embedded.dtype == known.factors.dtype:
            return norm_pruned_topk(embedded, known, k, exclude=exclude, n_threads=threads)
        return top_k_of_factors(
            embedded, known.factors, k, intercept=known.intercept, exclude=exclude, n_threads=threads
        )
