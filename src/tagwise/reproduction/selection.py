"""Hyper-parameters by the rule of the configuration, from training rows alone."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import ParameterGrid

from tagwise.data import split_rows
from tagwise.exceptions import ConvergenceWarning
from tagwise.models.mse.selection import select_parameters
from tagwise.randomness import random_generator
from tagwise.reproduction.configuration import Selection
from tagwise.reproduction.measuring import fitted, metric_values, metrics_on_known
from tagwise.reproduction.methods import make_model, method_class

__all__ = ["choose"]


def choose(
    kind: str,
    fixed: dict[str, Any],
    grid: Any,
    rule: Selection,
    X: Any,
    Y: sp.csr_matrix,
    observed: sp.csr_matrix | None,
    *,
    seed: int,
    threads: int,
) -> dict[str, Any]:
    """Try the grid.

    Returns
    -------
    dict
        ``chosen`` (parameters), ``tried`` (each point's parameters and ``value``), ``rows`` and ``seconds``. Of equal
        values the first point wins.
    """
    start = time.perf_counter()
    X, Y, observed = _fewer_rows(rule, X, Y, observed, seed)
    if rule.rule == "mse":
        tried = _by_mse(kind, fixed, grid, rule, X, Y, seed, threads)
    else:
        held_out = _held_out_rows(rule, Y, observed, seed)
        tried = [
            {**point, "value": _value(kind, {**fixed, **point}, rule, X, Y, observed, held_out, seed, threads)}
            for point in ParameterGrid(grid)
        ]
    best = max(tried, key=lambda entry: round(entry["value"], 12))
    return {
        "chosen": {name: value for name, value in best.items() if name != "value"},
        "tried": tried,
        "metric": rule.metric,
        "rows": int(Y.shape[0]),
        "seconds": {"choice": time.perf_counter() - start},
    }


def _fewer_rows(
    rule: Selection, X: Any, Y: sp.csr_matrix, observed: sp.csr_matrix | None, seed: int
) -> tuple[Any, sp.csr_matrix, sp.csr_matrix | None]:
    if rule.rows is None or Y.shape[0] <= rule.rows:
        return X, Y, observed
    rows = np.sort(random_generator(seed).permutation(Y.shape[0])[: rule.rows])
    return X[rows], Y[rows], None if observed is None else observed[rows]


def _held_out_rows(rule: Selection, Y: sp.csr_matrix, observed: sp.csr_matrix | None, seed: int) -> list[np.ndarray]:
    """Masks of the rows that are held out: one for a validation split, one a fold otherwise."""
    if rule.rule == "folds":
        fold = random_generator(seed).permutation(Y.shape[0]) % rule.folds
        return [fold == k for k in range(rule.folds)]
    # The split keeps a row of every label in training; what is hidden must not take part in that.
    seen = Y if observed is None else sp.csr_matrix(Y.shape, dtype=np.float32)
    _, rows = split_rows(seen, rule.fraction, random_state=seed)
    mask = np.zeros(Y.shape[0], dtype=bool)
    mask[rows] = True
    return [mask]


def _value(
    kind: str,
    parameters: dict[str, Any],
    rule: Selection,
    X: Any,
    Y: sp.csr_matrix,
    observed: sp.csr_matrix | None,
    held_out: list[np.ndarray],
    seed: int,
    threads: int,
) -> float:
    """The metric on the held-out rows, each row counting the same."""
    total = 0.0
    for mask in held_out:
        model = make_model(kind, parameters, seed=seed, threads=threads)
        train = ~mask
        fitted(model, X[train], Y[train], None if observed is None else observed[train])
        if observed is None:
            value = metric_values(model, (rule.metric,), Y[train], X[mask], Y[mask])[0][rule.metric]
        else:
            value = metrics_on_known(model, rule.metric, X[mask], Y[mask], observed[mask])
        total += mask.sum() * value
    return float(total / sum(mask.sum() for mask in held_out))


def _by_mse(
    kind: str, fixed: dict[str, Any], grid: Any, rule: Selection, X: Any, Y: sp.csr_matrix, seed: int, threads: int
) -> list[dict[str, Any]]:
    fixed = {**fixed, "n_jobs": threads}
    with warnings.catch_warnings():
        # A point that needs more rounds is a point like others: its held-out value decides.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = select_parameters(method_class(kind), X, Y, grid, n_folds=rule.folds, random_state=seed, fixed=fixed)
    # What is fixed (and the seed) is known to the cell; only what was chosen is reported.
    left_out = {*fixed, "random_state", "f1"}
    return [
        {**{name: value for name, value in entry.items() if name not in left_out}, "value": float(entry["f1"])}
        for entry in found
    ]
