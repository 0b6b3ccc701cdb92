"""Hyper-parameters by the rule of the configuration, from training rows only."""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import ParameterGrid

from reproduction.configuration import Cell, Selection
from reproduction.methods import METHOD_CLASSES, make_model
from reproduction.metrics import fitted, metric_values, metrics_on_known, weighted_mean
from tagwise.data.splits import fold_numbers, split_rows
from tagwise.exceptions import ConvergenceWarning, InvalidInputError
from tagwise.models.mse.selection import select_parameters
from tagwise.parameters import random_generator
from tagwise.solvers.search import Outcome, search

__all__ = ["choose"]

# Points of MSE's own selection that are stored, best first; with thresholds in the grid there are hundreds.
_KEPT = 60


def choose(
    cell: Cell, fixed: dict[str, Any], X: Any, Y: sp.csr_matrix, observed: sp.csr_matrix | None, *, threads: int
) -> dict[str, Any]:
    """Try the grid of the cell's method.

    Parameters
    ----------
    cell : Cell
    fixed : dict
        The parameters that are not chosen.
    X, Y, observed : training rows
    threads : int

    Returns
    -------
    dict
        ``chosen`` (parameters), ``tried`` (each point's parameters and ``value``), ``rows`` and ``seconds``. Of equal
        values the first point wins.
    """
    start = time.perf_counter()
    rule = cell.study.selection_of(cell.method)
    assert rule is not None, "a choice is planned only where there is a rule"
    if rule.rows is not None and Y.shape[0] > rule.rows:
        rows = np.sort(random_generator(cell.seed).permutation(Y.shape[0])[: rule.rows])
        X, Y, observed = X[rows], Y[rows], None if observed is None else observed[rows]
    grid = cell.method.grid_for(cell.dataset)
    if rule.rule == "mse":
        tried = _by_mse(cell, {**fixed, "n_jobs": threads}, grid, rule, X, Y)
        chosen = tried[0]
    else:
        validation = _validation_rows(rule, Y, observed, cell.seed)

        def evaluate(point: dict[str, Any], _: None) -> Outcome:
            total = 0.0
            for mask in validation:
                model = make_model(str(cell.method.kind), {**fixed, **point}, seed=cell.seed, threads=threads)
                total += mask.sum() * _value(model, cell, rule, X, Y, observed, mask)
            # Every validation row counts the same, and values that differ by rounding only are equal.
            value = float(total / sum(mask.sum() for mask in validation))
            return Outcome(round(value, 12), value)

        found = search(list(ParameterGrid(grid)), evaluate)
        tried = [{**trial.candidate, "value": trial.details} for trial in found.trials]
        chosen = found.best.candidate
    return {
        "chosen": {name: value for name, value in chosen.items() if name != "value"},
        "tried": tried,
        "metric": rule.metric,
        "rows": int(Y.shape[0]),
        "seconds": {"choice": time.perf_counter() - start},
    }


def _validation_rows(rule: Selection, Y: sp.csr_matrix, observed: sp.csr_matrix | None, seed: int) -> list[np.ndarray]:
    """Boolean masks of the validation rows: one for a validation split, one per fold otherwise."""
    if rule.rule == "folds":
        fold = fold_numbers(Y.shape[0], rule.folds, seed)
        return [fold == k for k in range(rule.folds)]
    # The split keeps a row of every label in training; hidden labels must not take part in that.
    seen = Y if observed is None else sp.csr_matrix(Y.shape, dtype=np.float32)
    _, rows = split_rows(seen, rule.fraction, random_state=seed, keep_labels=True)
    mask = np.zeros(Y.shape[0], dtype=bool)
    mask[rows] = True
    return [mask]


def _value(
    model: Any,
    cell: Cell,
    rule: Selection,
    X: Any,
    Y: sp.csr_matrix,
    observed: sp.csr_matrix | None,
    mask: np.ndarray,
) -> float:
    """The metric on the rows of the mask, after a fit on the others."""
    train, metric = ~mask, rule.metric
    fitted(model, X[train], Y[train], None if observed is None else observed[train])
    if not isinstance(metric, str):
        if observed is not None:
            raise InvalidInputError("A weighted metric cannot be measured on labels of which some are unknown.")
        return weighted_mean(cell.study.weights_for(cell.method), Y[mask], model.predict(X[mask]))
    if observed is None:
        return metric_values(model, (metric,), Y[train], X[mask], Y[mask])[0][metric]
    return metrics_on_known(model, metric, X[mask], Y[mask], observed[mask])


def _by_mse(
    cell: Cell, fixed: dict[str, Any], grid: Any, rule: Selection, X: Any, Y: sp.csr_matrix
) -> list[dict[str, Any]]:
    """What MSE's own selection tried, best first."""
    kind = METHOD_CLASSES[str(cell.method.kind)].load_class()
    with warnings.catch_warnings():
        # A point that needs more rounds is a point like any other: its validation value decides.
        warnings.simplefilter("ignore", ConvergenceWarning)
        weights = cell.study.weights_for(cell.method)
        value = partial(weighted_mean, weights) if weights else None
        found = select_parameters(
            kind, X, Y, grid, n_folds=rule.folds, random_state=cell.seed, fixed=fixed, value=value
        )
    # The cell knows what is fixed (and the seed); only what was chosen is reported.
    left_out = {*fixed, "random_state", "f1"}
    return [
        {**{name: given for name, given in entry.items() if name not in left_out}, "value": float(entry["f1"])}
        for entry in found[:_KEPT]
    ]
