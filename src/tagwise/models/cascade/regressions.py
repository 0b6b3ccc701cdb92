"""Logistic regressions with a normal prior, at their posterior mode: of pairs by themselves, and of pairs in rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tagwise.losses import sigmoid

__all__ = ["Prior", "curvature", "map_listwise", "map_logistic"]

# Newton's steps, and the relative fall that is not worth another.
_MOST_STEPS, _TOL = 50, 1e-9

Prior = np.ndarray
"""(2, p): mean and standard deviation of each coefficient."""

# w ↦ value, gradient (p,) and Hessian (p, p) of a negative log likelihood.
_Loss = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


def map_logistic(terms: np.ndarray, on: np.ndarray, prior: Prior) -> np.ndarray:
    r"""The coefficients w (p,) that minimise Σ log(1 + e^z) − y z + ½ Σ ((w − mean)/deviation)², z = terms·w.

    Parameters
    ----------
    terms : (m, p)
    on : (m,)
        y: 0 or 1, or a number that one positive counts for.

    Notes
    -----
    Newton steps with halving; p is a dozen or two. Time O(m·p²) per step.
    """
    return _mode(_logistic(terms, on), prior)


def map_listwise(terms: np.ndarray, on: np.ndarray, known: np.ndarray, prior: Prior) -> np.ndarray:
    r"""The coefficients w (p,) by which the positives of a row come before its negatives.

    .. math:: \min_w\ \sum_i \frac1{|P_i|} \sum_{j \in P_i} y_{ij}
              \Big(\log\Big(e^{z_{ij}} + \sum_{t \in N_i} e^{z_{it}}\Big) - z_{ij}\Big)
              + \tfrac12 \sum \Big(\frac{w - \text{mean}}{\text{deviation}}\Big)^2

    P and N are the known positives and negatives of row i: each row counts the same, however many positives it has, and
    what all labels of a row have in common does not count.

    Parameters
    ----------
    terms : (n, M, p)
    on : (n, M)
        As in :func:`map_logistic`.
    known : bool (n, M)

    Notes
    -----
    As :func:`map_logistic`, with m = n·M.
    """
    return _mode(_listwise(terms, on, known), prior)


def curvature(terms: np.ndarray, on: np.ndarray, w: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
    """The Hessian (p, p) of the likelihood at w: that of :func:`map_listwise` with ``known``, else the logistic one."""
    loss = _logistic(terms, on) if known is None else _listwise(terms, on, known)
    return loss(w)[2]


def _logistic(terms: np.ndarray, on: np.ndarray) -> _Loss:
    def loss(w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        z = terms @ w
        p = sigmoid(z)
        value = float(np.logaddexp(0, z).sum() - on @ z)
        return value, terms.T @ (p - on), terms.T @ (terms * (p * (1 - p))[:, None])

    return loss


def _listwise(terms: np.ndarray, on: np.ndarray, known: np.ndarray) -> _Loss:
    positive = known & (on > 0)
    # Rows without both kinds say nothing about order.
    telling = positive.any(axis=1) & (known & ~positive).any(axis=1)
    terms, positive, negative = terms[telling], positive[telling], (known & ~positive)[telling]
    n_terms = terms.shape[-1]
    row, _ = np.nonzero(positive)
    weight = on[telling][positive] / np.repeat(positive.sum(axis=1), positive.sum(axis=1))
    flat, of_positives = terms.reshape(-1, n_terms), terms[positive]

    def loss(w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        z = terms @ w
        largest = np.where(negative, z, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
        e = np.exp(np.where(negative, z - largest, -np.inf))
        total = e.sum(axis=1)
        share = e / total[:, None]
        at = (z - largest)[positive]
        both = np.logaddexp(at, np.log(total)[row])
        missed = -np.expm1(at - both)
        value = float(weight @ (both - at))

        # Each positive is one choice among itself and the negatives: q for itself, 1 − q times their shares.
        left = np.bincount(row, weights=weight * missed, minlength=len(z))
        pull = share * left[:, None]
        gradient = flat.T @ pull.ravel() - of_positives.T @ (weight * missed)
        spread = pull
        spread[positive] = weight * (1 - missed)
        of_negatives = np.einsum("nm,nmp->np", share, terms)[row]
        expected = of_positives * (1 - missed)[:, None] + of_negatives * missed[:, None]
        hessian = flat.T @ (flat * spread.ravel()[:, None]) - expected.T @ (expected * weight[:, None])
        return value, gradient, hessian

    return loss


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
