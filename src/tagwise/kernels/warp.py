"""One pass of stochastic gradient descent on the WARP loss of low-rank scores (Weston, Bengio, Usunier 2010)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tagwise.kernels.compiled import compiled
from tagwise.kernels.random_stream import next_below, random_stream

__all__ = ["WarpFactors", "WarpSteps", "warp_pass"]

# Keeps the first step of a variable that has seen no gradient yet finite.
_SMALLEST_SQUARE = 1e-12


class WarpFactors(NamedTuple):
    """W (d+1×k, the last row a constant feature) and H (L×k), and sums of squared gradients, which scale the steps."""

    W: np.ndarray
    H: np.ndarray
    W_squares: np.ndarray
    H_squares: np.ndarray


class WarpSteps(NamedTuple):
    """``rank_loss[r]`` is the loss of r labels above a positive; rows of W and H stay in a ball of ``radius``."""

    rank_loss: np.ndarray
    rate: float
    radius: float
    trials: int


@compiled(fastmath={"contract", "reassoc"})
def warp_pass(rows, labels, visited_rows, factors, steps, seed, number):
    """Visit rows in the given order and change the factors in place.

    ``rows`` and ``labels`` are (indptr, indices, data) and (indptr, indices) of X and Y; ``seed`` and ``number`` those
    of the random stream. Returns the sum of the estimated losses and the number of positives visited.
    """
    W, H, W_squares, H_squares = factors
    rank_loss, rate, radius, trials = steps
    indptr, indices, data = rows
    label_indptr, label_indices = labels
    n_labels, rank = H.shape
    constant = W.shape[0] - 1
    embedded = np.empty(rank, dtype=W.dtype)
    slope = np.empty(rank, dtype=W.dtype)
    owner = np.full(n_labels, -1, dtype=np.int64)
    stream = random_stream(seed, number)
    loss, visited = 0.0, 0
    for row in visited_rows:
        first, last = label_indptr[row], label_indptr[row + 1]
        n_negatives = n_labels - (last - first)
        if first == last or n_negatives == 0:
            continue
        for position in range(first, last):
            owner[label_indices[position]] = row
        embedded[:] = W[constant]
        for position in range(indptr[row], indptr[row + 1]):
            source, value = W[indices[position]], data[position]
            for column in range(rank):
                embedded[column] += value * source[column]
        slope[:] = 0
        moved = False
        for position in range(first, last):
            positive = label_indices[position]
            above, count = _find_violator(embedded, H, positive, owner, row, trials, stream)
            visited += 1
            if above < 0:
                continue
            moved = True
            weight = rank_loss[max(1, n_negatives // count)]
            gap = embedded.dtype.type(0)
            for column in range(rank):
                gap += embedded[column] * (H[above, column] - H[positive, column])
            loss += weight * (1 + gap)
            for column in range(rank):
                slope[column] += weight * (H[above, column] - H[positive, column])
            _step(H, H_squares, positive, embedded, -weight, rate, radius)
            _step(H, H_squares, above, embedded, weight, rate, radius)
        if moved:
            for position in range(indptr[row], indptr[row + 1]):
                _step(W, W_squares, indices[position], slope, data[position], rate, radius)
            _step(W, W_squares, constant, slope, 1.0, rate, radius)
    return loss, visited


@compiled(inner=True, fastmath={"contract", "reassoc"})
def _find_violator(embedded, H, positive, owner, row, trials, stream):
    """A random negative whose score is above the positive's less 1, and the draws it took; −1 where none was found."""
    n_labels, rank = H.shape
    score = embedded.dtype.type(0)
    for column in range(rank):
        score += embedded[column] * H[positive, column]
    count = 0
    while count < trials:
        other = next_below(stream, n_labels)
        if owner[other] == row:
            continue
        count += 1
        rival = embedded.dtype.type(0)
        for column in range(rank):
            rival += embedded[column] * H[other, column]
        if rival > score - 1:
            return other, count
    return -1, count


@compiled(inner=True, fastmath={"contract", "reassoc"})
def _step(factors, squares, which, slope, factor, rate, radius):
    """One step of a row of factors along −factor·slope, then back into the ball of the given radius."""
    rank = factors.shape[1]
    size = 0.0
    for column in range(rank):
        size += np.float64(slope[column]) * np.float64(slope[column])
    squares[which] += factor * factor * size / rank
    scale = factors.dtype.type(rate * factor / np.sqrt(squares[which] + _SMALLEST_SQUARE))
    length = 0.0
    for column in range(rank):
        factors[which, column] -= scale * slope[column]
        length += np.float64(factors[which, column]) * np.float64(factors[which, column])
    if length > radius * radius:
        shrink = factors.dtype.type(radius / np.sqrt(length))
        for column in range(rank):
            factors[which, column] *= shrink
