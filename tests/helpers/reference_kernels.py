"""Slow, obvious numpy twins of the kernels: what each one must compute. Tests compare against these."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse as sp


def csr_matmul(matrix: sp.csr_matrix, dense: np.ndarray) -> np.ndarray:
    """``matrix @ dense``, one stored entry after the other, in float64."""
    out = np.zeros((matrix.shape[0], dense.shape[1]))
    for row in range(matrix.shape[0]):
        for position in range(matrix.indptr[row], matrix.indptr[row + 1]):
            out[row] += float(matrix.data[position]) * dense[matrix.indices[position]].astype(np.float64)
    return out


def unit_rows(indptr: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Each row over its Euclidean length, in extended precision."""
    out = np.zeros(len(data), dtype=np.longdouble)
    for begin, end in pairwise(indptr):
        row = data[begin:end].astype(np.longdouble)
        length = np.sqrt(np.sum(row**2))
        out[begin:end] = row / length if length > 0 else 0
    return out


def sampled_product(pattern: sp.csr_matrix, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``left_i · right_j`` per stored entry (i, j), in float64."""
    out = np.zeros(pattern.nnz)
    for row in range(pattern.shape[0]):
        for position in range(pattern.indptr[row], pattern.indptr[row + 1]):
            out[position] = left[row].astype(np.float64) @ right[pattern.indices[position]].astype(np.float64)
    return out


def pair_curvature_product(
    pattern: sp.csr_matrix, weights: np.ndarray, left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """Σ_j w_ij (left_i · right_j) right_j over the stored pairs of row i, in float64."""
    weighted = weights * sampled_product(pattern, left, right)
    return csr_matmul(sp.csr_matrix((weighted, pattern.indices, pattern.indptr), shape=pattern.shape), right)


def solve_row_systems(
    pattern: sp.csr_matrix, weights: np.ndarray, right: np.ndarray, features: np.ndarray, base: np.ndarray
) -> np.ndarray:
    """One dense system per row of the pattern, made and solved in float64."""
    out = np.empty_like(right)
    for label in range(pattern.shape[0]):
        stored = slice(pattern.indptr[label], pattern.indptr[label + 1])
        rows = features[pattern.indices[stored]].astype(np.float64)
        system = base + rows.T @ (weights[stored, None].astype(np.float64) * rows)
        out[label] = np.linalg.solve(system, right[label])
    return out


def gram(left: np.ndarray, right: np.ndarray | None = None) -> np.ndarray:
    """``leftᵀ @ right`` in float64."""
    right = left if right is None else right
    return np.asarray(left.astype(np.float64).T @ right.astype(np.float64))


def dense_matmul(tall: np.ndarray, small: np.ndarray) -> np.ndarray:
    """``tall @ small`` in float64."""
    return np.asarray(tall.astype(np.float64) @ small.astype(np.float64))


def top_k_of_scores(block: np.ndarray, k: int, exclude: sp.csr_matrix | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Sort each row by falling score, then rising label; -1 and -inf fill the places beyond the last label."""
    labels = np.full((len(block), k), -1, dtype=np.int64)
    scores = np.full((len(block), k), -np.inf, dtype=block.dtype)
    for row, values in enumerate(block):
        hidden = set() if exclude is None else set(exclude.indices[exclude.indptr[row] : exclude.indptr[row + 1]])
        order = sorted((-value, label) for label, value in enumerate(values) if label not in hidden)[:k]
        for place, (negated, label) in enumerate(order):
            labels[row, place], scores[row, place] = label, -negated
    return labels, scores


def top_k_of_factors(
    left: np.ndarray,
    right: np.ndarray,
    k: int,
    intercept: np.ndarray | None = None,
    exclude: sp.csr_matrix | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The whole n×L product, then :func:`top_k_of_scores`."""
    block = left @ right.T
    if intercept is not None:
        block = block + intercept
    return top_k_of_scores(block, k, exclude)


def nearest_rows(
    queries: np.ndarray, rows: np.ndarray, k: int, *, by_distance: bool, exclude: sp.csr_matrix | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """All m×n measures in float64, then the best of each query."""
    measures = queries.astype(np.float64) @ rows.astype(np.float64).T
    if by_distance:
        measures -= 0.5 * np.sum(rows.astype(np.float64) ** 2, axis=1)
    return top_k_of_scores(measures, k, exclude)


def scores_of_listed(listed: sp.csr_matrix, base: np.ndarray) -> np.ndarray:
    """Entry by entry."""
    out = np.empty(listed.shape, dtype=base.dtype)
    for row in range(listed.shape[0]):
        out[row] = base
        for position in range(listed.indptr[row], listed.indptr[row + 1]):
            out[row, listed.indices[position]] = listed.data[position]
    return out


def top_k_of_listed(
    listed: sp.csr_matrix, base: np.ndarray, k: int, exclude: sp.csr_matrix | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The whole n×L array, then the best of each row."""
    return top_k_of_scores(scores_of_listed(listed, base), k, exclude)


def scores_of_factors_and_sparse(
    left: np.ndarray, right: np.ndarray, intercept: np.ndarray | None, rows: sp.csr_matrix, sparse: sp.csr_matrix
) -> np.ndarray:
    """The whole n×L array, in float64."""
    block = left.astype(np.float64) @ right.astype(np.float64).T
    block += rows.toarray().astype(np.float64) @ sparse.toarray().astype(np.float64)
    return block if intercept is None else block + intercept


def top_k_of_factors_and_sparse(
    left: np.ndarray,
    right: np.ndarray,
    k: int,
    intercept: np.ndarray | None,
    rows: sp.csr_matrix,
    sparse: sp.csr_matrix,
    exclude: sp.csr_matrix | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The whole n×L array, then the best of each row."""
    block = scores_of_factors_and_sparse(left, right, intercept, rows, sparse)
    return top_k_of_scores(block.astype(left.dtype), k, exclude)


def support_least_squares(
    X: np.ndarray,
    Y: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    reg: float,
    support: int,
    weights: np.ndarray,
    intercept: np.ndarray,
    known: np.ndarray | None = None,
) -> np.ndarray:
    """Weighted least squares on the residual of each label over its known rows, on dense arrays: S (d×L), float64."""
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    if known is None:
        known = np.ones(Y.shape)
    frequency = np.count_nonzero(X, axis=0)
    S = np.zeros((X.shape[1], Y.shape[1]))
    for label, y in enumerate(Y.T):
        weight = np.where(y == 1, weights[label], 1.0) * known[:, label]
        residual = y - X @ U @ V[label] - intercept[label]
        right = X.T @ (weight * residual)
        system = X.T @ (weight[:, None] * X) + reg * np.eye(X.shape[1])
        candidates = np.flatnonzero(np.count_nonzero(X[(y == 1) & (known[:, label] > 0)], axis=0))
        gain = right[candidates] ** 2 / system[candidates, candidates]
        worth_it = gain >= 0.002 * gain.max(initial=0)
        candidates, gain = candidates[worth_it], gain[worth_it]
        chosen = candidates[np.lexsort((candidates, frequency[candidates], -gain))[:support]]
        S[chosen, label] = np.linalg.solve(system[np.ix_(chosen, chosen)], right[chosen])
    return S


def dual_coordinate_descent(
    X: np.ndarray, y: np.ndarray, cost: np.ndarray, *, squared: bool, constant: float, n_passes: int
) -> tuple[np.ndarray, float]:
    """Solve one label (w and b) from dense rows, signs and costs: full passes, no shrinking."""
    rows = np.column_stack([X, np.full(len(X), constant)]) * y[:, None]
    dual, w = np.zeros(len(X)), np.zeros(rows.shape[1])
    diagonal = 0.5 / cost if squared else np.zeros(len(X))
    upper = np.full(len(X), np.inf) if squared else cost
    for _ in range(n_passes):
        for i, row in enumerate(rows):
            curvature = row @ row + diagonal[i]
            if curvature == 0:
                continue
            before = dual[i]
            dual[i] = np.clip(before - (row @ w - 1 + diagonal[i] * before) / curvature, 0, upper[i])
            w += (dual[i] - before) * row
    return w[:-1], float(w[-1] * constant)


def group_lasso_objective(
    X: np.ndarray, atoms: np.ndarray, starts: np.ndarray, reg: float, coefficients: np.ndarray
) -> np.ndarray:
    """½‖x − βC‖² + λ Σ_g ‖β_g‖ of each row."""
    residual = X - coefficients @ atoms
    lengths = np.sqrt(np.add.reduceat(coefficients**2, starts[:-1], axis=1))
    return np.asarray(0.5 * (residual**2).sum(axis=1) + reg * lengths.sum(axis=1))


def group_lasso_gap(
    X: np.ndarray, atoms: np.ndarray, starts: np.ndarray, reg: float, coefficients: np.ndarray
) -> np.ndarray:
    """The objective of each row less the value of the best dual point along its residual."""
    residual = X - coefficients @ atoms
    largest = np.sqrt(np.add.reduceat((residual @ atoms.T) ** 2, starts[:-1], axis=1)).max(axis=1)
    squared = (residual**2).sum(axis=1)
    against_row = (residual * X).sum(axis=1)
    border = np.divide(reg, largest, out=np.full(len(X), np.inf), where=largest > 0)
    scale = np.clip(np.divide(against_row, squared, out=np.ones(len(X)), where=squared > 0), -border, border)
    dual = scale * against_row - 0.5 * scale**2 * squared
    return np.asarray(group_lasso_objective(X, atoms, starts, reg, coefficients) - dual)


def proximal_group_lasso(
    X: np.ndarray, atoms: np.ndarray, starts: np.ndarray, reg: float, *, tol: float, max_iter: int
) -> np.ndarray:
    """Proximal gradient steps on all rows at once until every gap is at most ``tol`` · ½‖x‖²: β (n×R)."""
    return _proximal(X, atoms, starts, reg, tol=tol, max_iter=max_iter, accelerated=False)


def accelerated_group_lasso(
    X: np.ndarray, atoms: np.ndarray, starts: np.ndarray, reg: float, *, tol: float, max_iter: int
) -> np.ndarray:
    """The same with Nesterov's momentum."""
    return _proximal(X, atoms, starts, reg, tol=tol, max_iter=max_iter, accelerated=True)


def _proximal(
    X: np.ndarray,
    atoms: np.ndarray,
    starts: np.ndarray,
    reg: float,
    *,
    tol: float,
    max_iter: int,
    accelerated: bool,
) -> np.ndarray:
    gram, c = atoms @ atoms.T, X @ atoms.T
    step = 1 / np.linalg.eigvalsh(gram)[-1]
    sizes = np.diff(starts)
    beta = point = np.zeros_like(c)
    momentum = 1.0
    wanted = tol * 0.5 * (X**2).sum(axis=1)
    for iteration in range(max_iter):
        # A gap costs a few steps, so it is not looked at after every one.
        if iteration % 10 == 0 and (group_lasso_gap(X, atoms, starts, reg, beta) <= wanted).all():
            break
        moved = point + step * (c - point @ gram)
        lengths = np.sqrt(np.add.reduceat(moved**2, starts[:-1], axis=1))
        shrink = np.maximum(0, 1 - step * reg / np.maximum(lengths, np.finfo(float).tiny))
        new = moved * np.repeat(shrink, sizes, axis=1)
        if accelerated:
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            point = new + (momentum - 1) / following * (new - beta)
            momentum = following
        else:
            point = new
        beta = new
    return beta
