"""Logistic regression with a 1-norm penalty on columns: proximal Newton steps over a working set of columns.

Minimises F(w) = ‖w‖₁ + Σ_i c_i·log(1 + exp(−y_i·(Xw)_i)). Each outer step takes the columns that violate optimality or
carry a weight, lowers the quadratic model of F over them by cyclic coordinate descent with exact soft-threshold steps,
and moves along the direction found as far as a backtracking line search allows (the scheme of newGLMNET: Yuan, Ho, Lin
2012).
"""

from __future__ import annotations

import numpy as np

from tagwise.kernels.compiled import compiled

__all__ = ["l1_logistic"]

_SUFFICIENT_FALL = 0.01
_MOST_HALVINGS = 20
_MOST_SWEEPS = 10
# The quadratic model is solved to this share of the outer violation: steps get more exact as they get smaller.
_INNER_SHARE = 0.1
# Keeps the curvature of a column whose rows are all decided above 0.
_LEAST_CURVATURE = 1e-12


@compiled()
def l1_logistic(indptr, rows, data, y, cost, tol, max_iter, w, margins):
    """Change ``w`` (columns) and ``margins`` = Xw (rows) in place, from any start; returns the steps taken.

    X is given by columns (``indptr``, ``rows``, ``data``), y is ±1, ``cost`` is c. Ends when the sum of the violations
    of optimality is at most ``tol`` times that at the start, or after ``max_iter`` steps.
    """
    n_rows, n_columns = len(y), len(w)
    slope = np.empty(n_rows)
    weight = np.empty(n_rows)
    change = np.empty(n_rows)
    gradient = np.empty(n_columns)
    curvature = np.empty(n_columns)
    direction = np.zeros(n_columns)
    working = np.empty(n_columns, dtype=np.int64)
    at_start = -1.0
    for step in range(max_iter):
        for i in range(n_rows):
            probability = _probability(-y[i] * margins[i])
            slope[i] = -cost[i] * y[i] * probability
            weight[i] = cost[i] * probability * (1 - probability)
        violation, n_working = 0.0, 0
        for column in range(n_columns):
            total = 0.0
            for position in range(indptr[column], indptr[column + 1]):
                total += slope[rows[position]] * data[position]
            gradient[column] = total
            excess = _violation(total, w[column])
            violation += excess
            if excess > 0 or w[column] != 0:
                working[n_working] = column
                n_working += 1
                squares = 0.0
                for position in range(indptr[column], indptr[column + 1]):
                    squares += weight[rows[position]] * np.float64(data[position]) ** 2
                curvature[column] = max(squares, _LEAST_CURVATURE)
        if at_start < 0:
            at_start = violation
        if violation <= tol * at_start:
            return step
        change[:] = 0
        _lower_model(
            indptr, rows, data, gradient, curvature, weight, working[:n_working], w, direction, change, violation
        )
        moved = _search(y, cost, margins, change, gradient, working[:n_working], w, direction)
        for at in range(n_working):
            direction[working[at]] = 0
        if not moved:
            return step + 1
    return max_iter


@compiled()
def _probability(score):
    """1 / (1 + e^{−score}), without overflow."""
    if score >= 0:
        return 1 / (1 + np.exp(-score))
    small = np.exp(score)
    return small / (1 + small)


@compiled()
def _log_loss(score):
    """log(1 + e^{score}), without overflow."""
    return max(score, 0.0) + np.log1p(np.exp(-abs(score)))


@compiled()
def _violation(gradient, weight):
    """How far 0 is from the subgradient of F in one column."""
    if weight > 0:
        return abs(gradient + 1)
    if weight < 0:
        return abs(gradient - 1)
    return max(0.0, abs(gradient) - 1)


@compiled()
def _lower_model(indptr, rows, data, gradient, curvature, weight, working, w, direction, change, violation):
    """Coordinate descent on the quadratic model; ``direction`` and ``change`` = X·direction start at 0."""
    for _ in range(_MOST_SWEEPS):
        moved = 0.0
        for column in working:
            slope = gradient[column]
            for position in range(indptr[column], indptr[column + 1]):
                row = rows[position]
                slope += weight[row] * change[row] * data[position]
            here = w[column] + direction[column]
            target = here - slope / curvature[column]
            shrunk = max(abs(target) - 1 / curvature[column], 0.0)
            step = (shrunk if target > 0 else -shrunk) - here
            if step != 0:
                moved += abs(step) * curvature[column]
                direction[column] += step
                for position in range(indptr[column], indptr[column + 1]):
                    change[rows[position]] += step * data[position]
        if moved <= _INNER_SHARE * violation:
            return


@compiled()
def _search(y, cost, margins, change, gradient, working, w, direction):
    """Halve the step until F falls enough, and take it; returns False where rounding leaves no step that falls."""
    expected = 0.0
    for column in working:
        expected += gradient[column] * direction[column] + abs(w[column] + direction[column]) - abs(w[column])
    if expected >= 0:
        return False
    share = 1.0
    for _ in range(_MOST_HALVINGS):
        fall = 0.0
        for i in range(len(y)):
            if change[i] != 0:
                before = _log_loss(-y[i] * margins[i])
                fall += cost[i] * (_log_loss(-y[i] * (margins[i] + share * change[i])) - before)
        for column in working:
            fall += abs(w[column] + share * direction[column]) - abs(w[column])
        if fall <= _SUFFICIENT_FALL * share * expected:
            for column in working:
                w[column] += share * direction[column]
            for i in range(len(y)):
                margins[i] += share * change[i]
            return True
        share *= 0.5
    return False
