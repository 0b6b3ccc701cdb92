"""Fit a model, score test rows, and take the metrics that a study asks for."""

from __future__ import annotations

import time
import warnings
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
from tagwise.reproduction.label_averages import label_accuracy, label_precision, label_recall

__all__ = ["fitted", "metric_values", "metrics_on_known"]

_SETS = {
    "precision": example_precision,
    "recall": example_recall,
    "F1": example_f1,
    "accuracy": example_accuracy,
    "hamming": hamming_loss,
    "label precision": label_precision,
    "label recall": label_recall,
    "label accuracy": label_accuracy,
    "micro F1": micro_f1,
}
_PLACES = (1, 3, 5)
# Rows scored at once where every label's score is needed; about 4 million scores.
_BLOCK_SCORES = 1 << 22


def fitted(model: Any, X: Any, Y: sp.csr_matrix, observed: sp.csr_matrix | None) -> tuple[dict[str, float], list[str]]:
    """Fit; returns seconds (wall and processor), and the warnings, which belong to the result."""
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
    top = model.predict_topk(X, min(max(_PLACES), Y.shape[1]))[0] if ranked else None
    seconds = {"predict": time.perf_counter() - wall, "predict CPU": time.process_time() - cpu}
    values |= {name: float(_SETS[name](Y, predicted)) for name in sets}
    if ranked:
        weights = inverse_propensity(Y_train) if any(name.startswith("PSP") for name in metrics) else None
        report = ranking_report(Y, top, ks=_PLACES, inverse_propensity=weights)
        values |= {name: report[name] for name in metrics if "@" in name}
    if "AUC" in metrics:
        rows = max(1, _BLOCK_SCORES // Y.shape[1])
        values["AUC"] = float(
            average_auc(Y, lambda start, stop: model.decision_function(X[start:stop]), block_rows=rows)
        )
    return values, seconds


def metrics_on_known(model: Any, metric: str, X: Any, Y: sp.csr_matrix, observed: sp.csr_matrix) -> float:
    """A ranking metric among the known labels of each row only: what is unknown can neither help nor hurt."""
    known = sp.csr_matrix(observed, dtype=np.float32, copy=True)
    scores = model.decision_function(X)
    rows = np.repeat(np.arange(known.shape[0]), np.diff(known.indptr))
    known.data = scores[rows, known.indices].astype(np.float32)
    truth = sp.csr_matrix(Y.multiply(observed))
    return float(ranking_report(truth, known, ks=_PLACES)[metric])
