"""Choosing the parameters of MSE on the training rows alone: folds, a grid, and the threshold of highest F1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import ParameterGrid

from tagwise.data.splits import fold_numbers
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.metrics import example_f1
from tagwise.solvers.search import Outcome, search
from tagwise.validation import Features, check_features, check_integer, check_labels

__all__ = ["DEFAULT_GRID", "Grid", "best_threshold", "select_parameters"]

Grid: TypeAlias = dict[str, Sequence[Any]] | Sequence[dict[str, Sequence[Any]]]
"""As scikit-learn's ``ParameterGrid`` takes it."""

DEFAULT_GRID = {"decomposition": ("brp", "svd"), "subspace_rank": (1, 3, 6, 0.05, 0.1), "reg": (0.1, 0.2, 0.3, 0.45)}
# Used at prediction only, so one fit serves all of their values.
_OF_PREDICTION = ("reg", "threshold", "gap_tol")
_EQUAL_F1 = 1e-12


def select_parameters(
    model_class: type[Any],
    X: Any,
    Y: Any,
    grid: Grid | None,
    *,
    n_folds: int,
    random_state: Any,
    fixed: dict[str, Any],
    value: Callable[[sp.csr_matrix, sp.csr_matrix], float] | None = None,
) -> list[dict[str, Any]]:
    """The trials of :meth:`tagwise.MSE.select`, best first: parameters, ``threshold`` and ``f1``.

    ``value`` of the true and the predicted labels (CSR) stands in for F1 where the grid gives the threshold; without a
    threshold in the grid, F1 finds it.
    """
    features = check_features(X)
    labels = check_labels(Y, n_rows=features.shape[0])
    n_folds = check_integer(n_folds, "n_folds", minimum=2)
    if features.shape[0] < n_folds:
        raise InvalidInputError(f"n_folds={n_folds} needs as many rows; X has {features.shape[0]}.")
    points = _points(grid, fixed, model_class, random_state)
    folds = fold_numbers(features.shape[0], n_folds, random_state)
    group_of = {member: group for group in _by_fit(points) for member in group[1]}
    results: dict[int, tuple[float, float]] = {}

    def evaluate(number: int, _: None) -> Outcome:
        """Threshold and F1 of a point; the fits of the first point of a group serve the whole group."""
        if number not in results:
            parameters, members = group_of[number]
            group = [points[member] for member in members]
            scores = _validation_scores(model_class, features, labels, folds, parameters, group)
            for member, found in zip(members, scores):
                given = points[member].get("threshold")
                if given is None:
                    results[member] = best_threshold(labels, found)
                elif value is None:
                    results[member] = given, example_f1(labels, found, threshold=given)
                else:
                    results[member] = given, value(labels, _predicted(found, given))
        threshold, f1 = results[number]
        # Sums in another order differ in the last digits; such values are equal.
        return Outcome(round(f1, 12), {"threshold": threshold, "f1": f1})

    ranked = search(range(len(points)), evaluate).ranked
    return [{**points[trial.candidate], **trial.details} for trial in ranked]


def _predicted(scores: sp.csr_matrix, threshold: float) -> sp.csr_matrix:
    """1 where a score is at least the threshold."""
    on = scores.copy()
    on.data = (scores.data >= threshold).astype(np.float32)
    on.eliminate_zeros()
    return on


def best_threshold(Y: sp.csr_matrix, scores: sp.csr_matrix) -> tuple[float, float]:
    """The δ > 0 whose predictions ``scores >= δ`` have the highest example-F1, and this F1.

    ``scores`` stores positive scores only; all others are 0 and never predicted. Exact: F1 changes only where δ passes
    a score. Labels enter by falling score; the change that each makes to its row's F1 follows from its rank in the row,
    and the running sum of the changes is the F1 at every cut. Of cuts with equal F1 the highest is taken; δ is half-way
    between the cut's last score and the next one below. Time O(nnz log nnz).
    """
    n_rows = Y.shape[0]
    if scores.nnz == 0:
        return 1.0, float((np.diff(Y.indptr) == 0).mean())
    rows = np.repeat(np.arange(n_rows), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, rows))
    values, rows = scores.data[order].astype(np.float64), rows[order]
    true = np.asarray(Y[rows, scores.indices[order]]).ravel()
    rank = np.arange(len(rows)) - scores.indptr[rows] + 1
    hits = np.cumsum(true)
    hits -= (hits - true)[scores.indptr[rows]]
    n_true = np.diff(Y.indptr)
    f1 = 2 * hits / (n_true[rows] + rank)
    nothing = (n_true == 0).astype(np.float64)
    before = np.where(rank == 1, nothing[rows], np.concatenate([[0.0], f1[:-1]]))
    falling = np.argsort(-values, kind="stable")
    values = values[falling]
    mean = (nothing.sum() + np.cumsum((f1 - before)[falling])) / n_rows
    # Equal scores enter together: only the last of them is a cut.
    cuts = np.flatnonzero(np.concatenate([values[1:] < values[:-1], [True]]))
    # The first of equal cuts is the highest δ; a running sum makes them differ in the last digits.
    best = cuts[np.argmax(mean[cuts] >= mean[cuts].max() - _EQUAL_F1)]
    below = values[best + 1] if best + 1 < len(values) else 0.0
    threshold = (values[best] + below) / 2
    return float(threshold if threshold > below else values[best]), float(mean[best])


def _points(grid: Any, fixed: dict[str, Any], model_class: type[Any], random_state: Any) -> list[dict[str, Any]]:
    """Every combination, checked before any work."""
    try:
        combinations = list(ParameterGrid(DEFAULT_GRID if grid is None else grid))
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"grid must be a dict of lists, or a list of such dicts: {error}") from None
    seed = {"random_state": random_state} if isinstance(random_state, (int, np.integer)) else {}
    points = []
    for combination in combinations:
        point = {**seed, **fixed, **combination}
        unknown = sorted(set(point) - set(model_class().get_params()))
        if unknown:
            raise InvalidInputError(f"grid: MSE has no parameter {unknown[0]!r}.")
        model_class(**point)._check_all_parameters()
        points.append(point)
    if not points:
        raise InvalidInputError("grid is empty; leave it out to try the default grid.")
    return points


def _by_fit(points: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[int]]]:
    """The points in groups that share a fit (its parameters, members), ordered by first member."""
    groups: dict[str, tuple[dict[str, Any], list[int]]] = {}
    for i, point in enumerate(points):
        shared = {name: value for name, value in point.items() if name not in _OF_PREDICTION}
        groups.setdefault(joblib.hash(shared), (shared, []))[1].append(i)
    return list(groups.values())


def _validation_scores(
    model_class: type[Any],
    X: Features,
    Y: sp.csr_matrix,
    folds: np.ndarray,
    parameters: dict[str, Any],
    points: list[dict[str, Any]],
) -> list[sp.csr_matrix]:
    """Per point, the positive 1-norms of every row by the model that has not seen it."""
    # 1-norms do not depend on δ: points that differ in nothing else share them.
    alike = [joblib.hash({name: point.get(name) for name in _OF_PREDICTION if name != "threshold"}) for point in points]
    parts: dict[str, list[sp.csr_matrix]] = {kind: [] for kind in alike}
    first = {kind: points[alike.index(kind)] for kind in parts}
    for fold in range(int(folds.max()) + 1):
        model = model_class(**parameters).fit(X[folds != fold], Y[folds != fold])
        for kind, part in parts.items():
            model.set_params(**{name: first[kind][name] for name in _OF_PREDICTION if name in first[kind]})
            part.append(model.one_norms(X[folds == fold]))
    back = np.argsort(np.argsort(folds, kind="stable"), kind="stable")
    scores = {kind: sp.csr_matrix(sp.vstack(part, format="csr")[back]) for kind, part in parts.items()}
    return [scores[kind] for kind in alike]
