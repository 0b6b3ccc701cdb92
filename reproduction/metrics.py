"""The metrics of the studies: how they are measured, how the papers print them, and how near counts as reproduced."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import ConvergenceWarning
from tagwise.metrics import (
    average_auc,
    example_accuracy,
    example_f1,
    example_precision,
    example_recall,
    hamming_loss,
    inverse_propensity,
    micro_f1,
    ranking_report,
)

__all__ = ["SET_METRICS", "SHOWN", "ShownMetric", "fitted", "metric_values", "metrics_on_known", "weighted_mean"]

_KS = (1, 3, 5)
# Scores computed at once where every label's score is needed.
_BLOCK_SCORES = 1 << 22


@dataclass(frozen=True)
class ShownMetric:
    """How a metric is shown.

    Attributes
    ----------
    scale : float
        Factor from our value to the unit that the paper prints.
    decimals : int
    better : int
        1 where higher is better, -1 where lower is, 0 where it is not compared (seconds on another machine).
    near : float
        How far below the paper still counts as reproduced, in the paper's unit: one percentage point, or as much of a
        share; a tenth of a point of Hamming loss, whose values are about one point.
    """

    scale: float
    decimals: int
    better: int
    near: float

    def value(self, ours: float) -> float:
        """Our value in the paper's unit."""
        return self.scale * ours

    def text(self, ours: float) -> str:
        """Our value as it is printed."""
        return f"{self.value(ours):.{self.decimals}f}"

    def reproduces(self, ours: float, paper: float) -> bool:
        """Within ``near`` of the paper's value, or better."""
        return self.better * (self.value(ours) - paper) >= -self.near - 1e-9


_PERCENT = ShownMetric(100, 2, 1, 1.0)
_WHOLE_PERCENT = ShownMetric(100, 1, 1, 1.0)
_SECONDS = ShownMetric(1, 2, 0, 0)
_COUNT = ShownMetric(1, 0, 0, 0)

SHOWN = {
    **{f"{name}@{k}": _PERCENT for name in ("P", "nDCG", "PSP", "R") for k in _KS},
    "AUC": ShownMetric(1, 4, 1, 0.01),
    "hamming": ShownMetric(1, 4, -1, 0.001),
    **dict.fromkeys(("precision", "recall", "F1", "accuracy"), _WHOLE_PERCENT),
    **dict.fromkeys(("precision over all rows", "precision of predicted rows"), _WHOLE_PERCENT),
    **dict.fromkeys(("label precision", "label recall", "micro F1", "label accuracy"), _WHOLE_PERCENT),
    "CPU seconds": _SECONDS,
    "fit seconds": _SECONDS,
    **dict.fromkeys(("one thread", "longest part", "before and after the parts", "a process per part"), _SECONDS),
    "gradient seconds": ShownMetric(1, 4, 0, 0),
    "product seconds": ShownMetric(1, 4, 0, 0),
    "excess risk": ShownMetric(1, 5, 0, 0),
    "excess squared error": ShownMetric(1, 4, 0, 0),
    "angle": ShownMetric(1, 3, 0, 0),
    **dict.fromkeys(("labels", "in at most 2 rows", "in at most 10 rows", "most rows"), _COUNT),
}


def fitted(model: Any, X: Any, Y: sp.csr_matrix, observed: sp.csr_matrix | None) -> tuple[dict[str, float], list[str]]:
    """Fit; returns seconds (wall and processor) and the kinds of convergence warnings, which belong to the result."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit(X, Y) if observed is None else model.fit(X, Y, observed)
        seconds = {"fit": time.perf_counter() - wall, "fit CPU": time.process_time() - cpu}
    kinds = {type(entry.message).__name__ for entry in caught if issubclass(entry.category, ConvergenceWarning)}
    return seconds, sorted(kinds)


def metric_values(
    model: Any, metrics: tuple[str, ...], Y_train: sp.csr_matrix, X: Any, Y: sp.csr_matrix
) -> tuple[dict[str, float], dict[str, float]]:
    """The metrics on the given rows, in [0, 1], and the seconds that predicting took."""
    values: dict[str, float] = {}
    wall, cpu = time.perf_counter(), time.process_time()
    sets = [name for name in metrics if name in _SETS]
    predicted = model.predict(X) if sets else None
    ranked = any("@" in name for name in metrics)
    top = model.predict_topk(X, min(max(_KS), Y.shape[1]))[0] if ranked else None
    seconds = {"predict": time.perf_counter() - wall, "predict CPU": time.process_time() - cpu}
    values |= {name: float(_SETS[name](Y, predicted)) for name in sets}
    if ranked:
        weights = inverse_propensity(Y_train) if any(name.startswith("PSP") for name in metrics) else None
        report = ranking_report(Y, top, ks=_KS, inverse_propensity=weights)
        values |= {name: report[name] for name in metrics if "@" in name}
    if "AUC" in metrics:
        rows = max(1, _BLOCK_SCORES // Y.shape[1])
        values["AUC"] = float(
            average_auc(Y, lambda start, stop: model.decision_function(X[start:stop]), block_rows=rows)
        )
    return values, seconds


def weighted_mean(weights: dict[str, float], Y: sp.csr_matrix, predicted: sp.csr_matrix) -> float:
    """The weighted mean of metrics of label sets, in [0, 1]."""
    return sum(weight * _SETS[name](Y, predicted) for name, weight in weights.items()) / sum(weights.values())


def metrics_on_known(model: Any, metric: str, X: Any, Y: sp.csr_matrix, observed: sp.csr_matrix) -> float:
    """A ranking metric among the known labels of each row only: unknown labels neither help nor hurt."""
    known = sp.csr_matrix(observed, dtype=np.float32, copy=True)
    scores = model.decision_function(X)
    rows = np.repeat(np.arange(known.shape[0]), np.diff(known.indptr))
    known.data = scores[rows, known.indices].astype(np.float32)
    truth = sp.csr_matrix(Y.multiply(observed))
    return float(ranking_report(truth, known, ks=_KS)[metric])


def _label_average(Y_true: Any, Y_pred: Any, kind: str) -> float:
    r"""Precision, recall or accuracy per label over the rows, averaged over the labels for which it is defined.

    .. math:: \frac{1}{|D|} \sum_{l \in D} \frac{|y^l \cap \hat y^l|}{m_l}, \quad D = \{l : m_l > 0\}

    with :math:`m_l = |\hat y^l|` for precision, :math:`|y^l|` for recall and :math:`|y^l \cup \hat y^l|` for accuracy.
    MSE's equations 21-24 average over rows, but its printed values of ML-kNN and MDDM only fit together as averages
    over labels, with which mse/prediction.toml compares them.
    """
    truth, predicted = sp.csr_matrix(Y_true), sp.csr_matrix(Y_pred)
    n_true, n_predicted, n_both = (
        np.asarray((matrix != 0).sum(axis=0)).ravel() for matrix in (truth, predicted, truth.multiply(predicted))
    )
    whole = {"precision": n_predicted, "recall": n_true, "accuracy": n_true + n_predicted - n_both}[kind]
    defined = whole > 0
    return float((n_both[defined] / whole[defined]).mean()) if defined.any() else 0.0


def _precision_of_predicted_rows(Y_true: Any, Y_pred: Any) -> float:
    """Example precision over the rows for which a label is predicted, 0/0 in the others; 0 where there are none."""
    truth, predicted = sp.csr_matrix(Y_true), sp.csr_matrix(Y_pred)
    some = np.asarray((predicted != 0).sum(axis=1)).ravel() > 0
    return float(example_precision(truth[some], predicted[some])) if some.any() else 0.0


# Metrics of predicted label sets.
_SETS: dict[str, Callable[[Any, Any], float]] = {
    "precision": example_precision,
    # The same again, for tables whose column “precision” is another one for some methods.
    "precision over all rows": example_precision,
    "precision of predicted rows": _precision_of_predicted_rows,
    "recall": example_recall,
    "F1": example_f1,
    "accuracy": example_accuracy,
    "hamming": hamming_loss,
    **{f"label {kind}": partial(_label_average, kind=kind) for kind in ("precision", "recall", "accuracy")},
    "micro F1": micro_f1,
}
SET_METRICS = tuple(_SETS)
"""Metrics of predicted label sets, of which a selection may take a weighted mean."""
