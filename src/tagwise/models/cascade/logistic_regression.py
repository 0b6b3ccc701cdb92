"""Logistic regressions with a normal prior, at their posterior mode: of pairs by themselves, and of pairs in rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tagwise.losses import sigmoid

__all__ = ["Prior", "curvature", "map_listwise", "map_logistic"]

# Newton's steps, and the relative fall that is not worth another.
_MOST_STEPS, _TOL = 50, 1e-9
_BLOCK = 1 << 13

Prior = np.ndarray
"""(2, p): mean and standard deviation of each coefficient."""

# w ↦ value, gradient (p,) and Hessian (p, p) of a negative log likelihood.
_Loss = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


def map_logistic(
    terms: np.ndarray, on: np.ndarray, known: np.ndarray, prior: Prior, weight: np.ndarray | None = None
) -> np.ndarray:
    r"""The coefficients w (p,) that minimise Σ v(log(1 + e^z) − y z) + ½ Σ ((w − mean)/deviation)², z = terms·w.

    Parameters
    ----------
    terms : array (n, M, p)
    on : array (n, M)
        y: 0 or 1, or a number that one positive counts for.
    known : bool array (n, M)
        The pairs that count.
    weight : array (n,), optional
        v: how often each row counts, once where it is None.

    Notes
    -----
    Newton steps with halving; p is a dozen or two. Time O(m·p²) per step for m known pairs; memory m·p numbers.
    """
    return _mode(_logistic(terms, on, known, weight), prior)


def map_listwise(
    terms: np.ndarray, on: np.ndarray, known: np.ndarray, prior: Prior, weight: np.ndarray | None = None
) -> np.ndarray:
    r"""The coefficients w (p,) by which the positives of a row come before its negatives.

    .. math:: \min_w\ \sum_i \frac{v_i}{|P_i|} \sum_{j \in P_i} y_{ij}
              \Big(\log\Big(e^{z_{ij}} + \sum_{t \in N_i} e^{z_{it}}\Big) - z_{ij}\Big)
              + \tfrac12 \sum \Big(\frac{w - \text{mean}}{\text{deviation}}\Big)^2

    P and N are the known positives and negatives of row i: each row counts as it weighs, however many positives it has,
    and what all labels of a row have in common does not count.

    Parameters
    ----------
    terms, on, known, weight
        As in :func:`map_logistic`.

    Notes
    -----
    As :func:`map_logistic`, for all pairs of the rows that have both known positives and negatives.
    """
    return _mode(_listwise(terms, on, known, weight), prior)


def curvature(terms: np.ndarray, on: np.ndarray, known: np.ndarray, w: np.ndarray, *, listwise: bool) -> np.ndarray:
    """The Hessian (p, p) of the likelihood of :func:`map_listwise` or of :func:`map_logistic` at w."""
    return (_listwise if listwise else _logistic)(terms, on, known)(w)[2]


def _logistic(terms: np.ndarray, on: np.ndarray, known: np.ndarray, weight: np.ndarray | None = None) -> _Loss:
    pairs, y = terms[known], on[known]
    v = np.repeat(np.ones(len(on)) if weight is None else weight, known.sum(axis=1))

    def loss(w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        z = pairs @ w
        p = sigmoid(z)
        value = float(v @ (np.logaddexp(0, z) - y * z))
        return value, pairs.T @ (v * (p - y)), _gram(pairs, v * p * (1 - p))

    return loss


def _listwise(terms: np.ndarray, on: np.ndarray, known: np.ndarray, weight: np.ndarray | None = None) -> _Loss:
    # Rows without both kinds say nothing about order.
    telling = (known & (on > 0)).any(axis=1) & (known & ~(on > 0)).any(axis=1)
    rows, on, known = terms[telling], on[telling], known[telling]
    positive, negative = known & (on > 0), known & ~(on > 0)
    sizes = positive.sum(axis=1)
    row = np.repeat(np.arange(len(rows)), sizes)
    share_of_row = (1 if weight is None else weight[telling]) / sizes
    worth = on[positive] * np.repeat(share_of_row, sizes)
    flat, of_positives = rows.reshape(-1, rows.shape[-1]), rows[positive]

    def loss(w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        z = rows @ w
        largest = np.where(negative, z, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
        e = np.exp(np.where(negative, z - largest, -np.inf))
        total = e.sum(axis=1)
        share = e / total[:, None]
        at = (z - largest)[positive]
        both = np.logaddexp(at, np.log(total)[row])
        missed = -np.expm1(at - both)
        value = float(worth @ (both - at))

        # Each positive is one choice among itself and the negatives: q for itself, 1 − q times their shares.
        left = np.bincount(row, weights=worth * missed, minlength=len(z))
        pull = share * left[:, None]
        gradient = flat.T @ pull.ravel() - of_positives.T @ (worth * missed)
        spread = pull
        spread[positive] = worth * (1 - missed)
        of_negatives = np.einsum("nm,nmp->np", share, rows)[row]
        expected = of_positives * (1 - missed)[:, None] + of_negatives * missed[:, None]
        hessian = _gram(flat, spread.ravel()) - _gram(expected, worth)
        return value, gradient, hessian

    return loss


def _gram(terms: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Σ weight·t tᵀ over the rows t of ``terms`` (m, p), in memory for a block of them."""
    total = np.zeros((terms.shape[1],) * 2)
    for start in range(0, len(terms), _BLOCK):
        block = terms[start : start + _BLOCK]
        total += block.T @ (block * weights[start : start + _BLOCK, None])
    return total


def _mode(loss: _Loss, prior: Prior) -> np.ndarray:
    mean, precision = prior[0], prior[1] ** -2.0

    def posterior(w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        value, gradient, hessian = loss(w)
        away = w - mean
        return value + 0.5 * precision @ away**2, gradient + precision * away, hessian + np.diag(precision)

    w = mean.copy()
    reached, gradient, hessian = posterior(w)
    for _ in range(_MOST_STEPS):
        step = np.linalg.solve(hessian, gradient)
        before, size = reached, 1.0
        while True:
            moved = w - size * step
            reached, gradient, hessian = posterior(moved)
            if reached <= before or size < 1e-6:
                break
            size /= 2
        if reached > before:
            break
        w = moved
        if before - reached <= _TOL * abs(before):
            break
    return w
