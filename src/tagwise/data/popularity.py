"""Sparse rows whose columns differ in popularity by a power law, as words and labels do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

__all__ = ["Topics", "draw_topics", "power_law_rows", "row_lengths"]

# Rows are made a block at a time, so that temporary arrays stay small beside the result.
_BLOCK_ENTRIES = 1 << 21


@dataclass(frozen=True)
class Topics:
    """What each row is about.

    Columns of about equal popularity are dealt to the topics in turn, one each, so that every topic has popular columns
    and rare ones. An entry of a row belongs to the row's topic with probability ``share``, else to no topic.

    Attributes
    ----------
    number : int
        How many topics there are, at least 1.
    of_row : array of int, shape (n,)
        The topic of each row.
    share : float
        From 0 to 1.
    """

    number: int
    of_row: np.ndarray
    share: float


def draw_topics(rng: np.random.Generator, n_rows: int, number: int, share: float) -> Topics:
    """A topic for every row; the popularity of topics falls as 1 over their place."""
    return Topics(number, _rank_at(rng.random(n_rows), number, 1.0), share)


def row_lengths(rng: np.random.Generator, n_rows: int, mean: float, maximum: int) -> np.ndarray:
    """Entries per row: 1 + Poisson(mean − 1), at most ``maximum``."""
    return np.minimum(1 + rng.poisson(mean - 1, size=n_rows), maximum)


def power_law_rows(
    rng: np.random.Generator,
    lengths: np.ndarray,
    n_columns: int,
    exponent: float,
    *,
    unit_rows: bool,
    topics: Topics | None = None,
) -> sp.csr_matrix:
    """Rows of distinct columns; the r-th most popular is drawn in proportion to (r + offset)^(−exponent).

    A row of t entries draws one from each of t equally probable parts of the distribution. That gives each
    column the frequency it would have with independent draws, and ranks that are already sorted; the few
    equal neighbours among popular columns are moved to the next free rank. Which column has which rank is
    random.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    lengths : array of int, shape (n,)
        Entries per row, from 1 to ``n_columns``.
    n_columns : int
        Number of columns.
    exponent : float
        How steeply popularity falls; 0 makes all columns alike.
    unit_rows : bool
        Random positive values, each row of unit Euclidean length; otherwise all values are 1.
    topics : Topics, optional
        What ties the columns of a row together; without topics they are independent.

    Returns
    -------
    csr_matrix of float32
        Sorted indices. Peak memory is that of the result plus a block.
    """
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    index_type = np.int32 if max(int(indptr[-1]), n_columns) <= np.iinfo(np.int32).max else np.int64
    indices = np.empty(indptr[-1], dtype=index_type)
    values = np.empty(indptr[-1], dtype=np.float32)
    column_of_rank = rng.permutation(n_columns).astype(index_type)
    for start, stop in _row_blocks(indptr):
        part = slice(int(indptr[start]), int(indptr[stop]))
        offsets = indptr[start : stop + 1] - indptr[start]
        ranks = _distinct_ranks(rng, offsets, n_columns, exponent, topics)
        if topics is not None:
            ranks = _turned_to(topics.number, np.repeat(topics.of_row[start:stop], np.diff(offsets)), ranks, n_columns)
        indices[part] = column_of_rank[ranks]
        values[part] = _unit_values(rng, offsets) if unit_rows else 1
    matrix = sp.csr_matrix((values, indices, indptr.astype(index_type)), shape=(len(lengths), n_columns))
    matrix.sort_indices()
    return matrix


def _row_blocks(indptr: np.ndarray) -> list[tuple[int, int]]:
    blocks = []
    start, last = 0, len(indptr) - 1
    while start < last:
        stop = int(np.searchsorted(indptr, indptr[start] + _BLOCK_ENTRIES, side="right")) - 1
        stop = max(stop, start + 1)
        blocks.append((start, stop))
        start = stop
    return blocks


def _distinct_ranks(
    rng: np.random.Generator, offsets: np.ndarray, n_columns: int, exponent: float, topics: Topics | None
) -> np.ndarray:
    lengths = np.diff(offsets)
    row = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(offsets[-1]) - offsets[row]
    length = lengths[row]
    drawn = _rank_at((place + rng.random(len(place))) / length, n_columns, exponent)
    if topics is not None:
        # Entries of the topic take the first place of their hand of equally popular columns.
        own = rng.random(len(drawn)) < topics.share
        drawn -= np.where(own, drawn % topics.number, 0)
    # Strictly rising ranks: r_k ← k + max over i ≤ k of (r_i − i). Adding a multiple of the row number that
    # exceeds any difference lets one running maximum serve all rows.
    step = 2 * n_columns
    shifted = np.maximum.accumulate(drawn - place + row * step) - row * step
    # Rising from 0 they could leave the range at its end; the second bound rises strictly too, so the minimum
    # does.
    distinct: np.ndarray = np.minimum(shifted + place, n_columns - length + place)
    return distinct


def _turned_to(number: int, topic: np.ndarray, ranks: np.ndarray, n_columns: int) -> np.ndarray:
    """Places within each hand moved on by the topic, round and round, so that its first becomes the topic's own."""
    place = ranks % number
    hand = ranks - place
    turned: np.ndarray = hand + (place + topic) % np.minimum(number, n_columns - hand)
    return turned


def _rank_at(share: np.ndarray, n_columns: int, exponent: float) -> np.ndarray:
    """Rank where cumulative popularity reaches ``share``: the inverse of ∫ (r + offset)^(−exponent) dr."""
    # Without an offset, the most popular column alone would take a share that no real word or label has.
    offset = 1 + n_columns / 1000
    low, high = offset, offset + n_columns
    if abs(exponent - 1) < 1e-9:
        rank = low * (high / low) ** share - offset
    else:
        power = 1 - exponent
        rank = (low**power + share * (high**power - low**power)) ** (1 / power) - offset
    return np.clip(rank.astype(np.int64), 0, n_columns - 1)


def _unit_values(rng: np.random.Generator, offsets: np.ndarray) -> np.ndarray:
    raw = rng.random(offsets[-1], dtype=np.float32) + np.float32(0.25)
    norms = np.sqrt(np.add.reduceat(raw * raw, offsets[:-1]))
    scaled: np.ndarray = raw / np.repeat(norms, np.diff(offsets))
    return scaled
