"""Which labels a part of the rows needs: those that put the most true labels into the first places of its rows."""

from __future__ import annotations

import numpy as np

from tagwise.parallel import even_chunks

__all__ = ["choose_labels", "relaxed_precision"]

_MOST_ROUNDS = 20
_BLOCK_ROWS = 512


def relaxed_precision(
    chosen: np.ndarray, ranked: np.ndarray, relevant: np.ndarray, places: int
) -> tuple[float, np.ndarray]:
    r"""The objective of Weston et al. for precision at the top, and its gradient.

    .. math:: F(\alpha) = \sum_t \frac{1}{|y_t|} \sum_{y\in y_t} \alpha_y \Bigl(1 - \Phi\bigl(
              \textstyle\sum_{i\in R_{t,y}} \alpha_i\bigr)\Bigr), \qquad \Phi(r) = \frac{1}{1 + e^{k - 1/2 - r}}

    with R_{t,y} the labels that row t lacks and the base scorer ranks above y: about the share of true labels that are
    chosen and have fewer than k chosen wrong labels above them.

    Parameters
    ----------
    chosen : array (L,)
        α, 0 to 1.
    ranked : int array (m, T)
        The labels of each row as the base scorer ranks them, best first; −1 where there are no more.
    relevant : bool array (m, T)
        Whether the row has them.
    places : int
        k.

    Notes
    -----
    Time O(m·T), memory O(L) and some arrays of 512×T.
    """
    value, gradient = 0.0, np.zeros(len(chosen))
    for start, stop in even_chunks(len(ranked), _BLOCK_ROWS):
        part, slope = _of_rows(chosen, ranked[start:stop], relevant[start:stop], places)
        value += part
        gradient += slope
    return value, gradient


def _of_rows(chosen: np.ndarray, ranked: np.ndarray, relevant: np.ndarray, places: int) -> tuple[float, np.ndarray]:
    alpha = np.where(ranked >= 0, chosen[ranked], 0.0)
    wrong = np.where(relevant, 0.0, alpha)
    above = np.cumsum(wrong, axis=1) - wrong
    # Beyond 30 the exponential is far below the rounding of 1.
    late = 1 / (1 + np.exp(np.clip(places - 0.5 - above, -30, 30)))
    share = relevant / np.maximum(relevant.sum(axis=1, keepdims=True), 1)
    gain = share * (1 - late)
    # A wrong label lowers the terms of all true labels behind it.
    harm = share * alpha * late * (1 - late)
    behind = harm[:, ::-1].cumsum(axis=1)[:, ::-1] - harm
    slope = np.where(relevant, gain, -behind)
    held = ranked >= 0
    gradient = np.bincount(ranked[held], weights=slope[held], minlength=len(chosen))
    return float((gain * alpha).sum()), gradient


def choose_labels(
    ranked: np.ndarray, relevant: np.ndarray, n_labels: int, *, most: int, places: int
) -> tuple[np.ndarray, float]:
    """At most ``most`` labels with a large :func:`relaxed_precision`, in rising order, and its value.

    Starts from the labels that the most rows have (each row counting once over its labels), then takes the best labels
    of the linearised objective again and again while that helps. Only labels that some row has are ever taken.
    """
    held = relevant & (ranked >= 0)
    sizes = held.sum(axis=1)
    counts = np.bincount(ranked[held], weights=np.repeat(1 / np.maximum(sizes, 1), sizes), minlength=n_labels)
    gradient = counts
    best, best_value = np.empty(0, dtype=np.int64), 0.0
    for _ in range(_MOST_ROUNDS):
        order = np.lexsort((np.arange(n_labels), -counts, -gradient))
        picked = order[counts[order] > 0][:most]
        chosen = np.zeros(n_labels)
        chosen[picked] = 1.0
        value, gradient = relaxed_precision(chosen, ranked, relevant, places)
        if value <= best_value:
            break
        best, best_value = np.sort(picked), value
    return best, best_value
