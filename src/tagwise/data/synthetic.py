"""Synthetic problems: one with a planted low-rank plus sparse truth, and one of any shape for benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.parameters import RandomState, random_generator
from tagwise.validation import check_integer, check_real

__all__ = ["SyntheticProblem", "make_low_rank_plus_sparse", "make_power_law"]

_BLOCK_SCORES = 1 << 22
# Rows are made in blocks, so that temporary arrays stay small beside the result.
_BLOCK_ENTRIES = 1 << 21


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticProblem:
    """Data with the model that made it: row i's labels are the best by x_iᵀ(W Hᵀ + S) plus noise.

    Attributes
    ----------
    X, Y : csr_matrix of float32, shapes (n, d) and (n, L)
        Features, rows of unit length; labels, of which every stored entry is 1.
    W, H : arrays of float32, shapes (d, k) and (L, k)
        Planted factors of features and labels.
    S : csr_matrix of float32, shape (d, L)
        Planted sparse part.
    """

    X: sp.csr_matrix
    Y: sp.csr_matrix
    W: np.ndarray
    H: np.ndarray
    S: sp.csr_matrix

    def __iter__(self) -> Iterator[sp.csr_matrix]:
        yield from (self.X, self.Y)

    def __repr__(self) -> str:
        (n_rows, n_features), n_labels = self.X.shape, self.Y.shape[1]
        return (
            f"SyntheticProblem({n_rows:,} rows, {n_features:,} features, {n_labels:,} labels, "
            f"rank {self.W.shape[1]}, {self.S.nnz:,} sparse weights)"
        )


def make_low_rank_plus_sparse(
    n_rows: int,
    n_features: int,
    n_labels: int,
    *,
    rank: int = 10,
    features_per_row: float = 20.0,
    labels_per_row: float = 3.0,
    tail_features: int = 3,
    noise: float = 0.0,
    random_state: RandomState = None,
) -> SyntheticProblem:
    """Make a problem whose truth is a low-rank matrix plus a sparse one, with long-tailed labels.

    The scores are X(W Hᵀ + S) + ε. Labels get a random popularity order; the norm of a label's row of H falls
    with its place q (of L) as (1 + 20 q/L)^(−1/2), so that the low-rank part is about the head. Labels past
    the first tenth also get ``tail_features`` own features in S, strong enough that a row with one of them
    can have the label. Row i has 1 + Poisson(``labels_per_row`` − 1) labels, those with its highest scores.

    Parameters
    ----------
    n_rows, n_features, n_labels : int
        n, d and L.
    rank : int, default 10
        k, at most min(d, L).
    features_per_row, labels_per_row : float
        Means per row, from 1 to d and L.
    tail_features : int, default 3
        Entries of S for each tail label, at most d; 0 gives a purely low-rank truth.
    noise : float, default 0.0
        Standard deviation of ε, Gaussian, relative to that of the low-rank part for a head label.
    random_state : int, numpy.random.Generator or None, default None
        Seed.

    Returns
    -------
    SyntheticProblem
        X, Y and the planted W, H and S.

    Notes
    -----
    Time O(nLk); memory that of the result plus a block of scores: never n×L.
    """
    rows, features, labels, mean_features, mean_labels = _checked_shape(
        n_rows, n_features, n_labels, features_per_row, labels_per_row
    )
    k = check_integer(rank, "rank", minimum=1)
    if k > min(features, labels):
        raise InvalidInputError(f"rank must be at most min(n_features, n_labels) = {min(features, labels)}; found {k}.")
    own = check_integer(tail_features, "tail_features", minimum=0)
    if own > features:
        raise InvalidInputError(f"tail_features must be at most n_features = {features}; found {own}.")
    deviation = check_real(noise, "noise", minimum=0)
    rng = random_generator(random_state)

    X = _power_law_rows(rng, _row_lengths(rng, rows, mean_features, features), features, 1.0, unit_rows=True)
    W = rng.standard_normal((features, k), dtype=np.float32)
    place = rng.permutation(labels)
    strength = (1 / np.sqrt(1 + 20 * place / labels)).astype(np.float32)
    # For a unit row x, xᵀW has unit variance in each of its k parts; with this scale a head score has it too.
    H = rng.standard_normal((labels, k), dtype=np.float32) * (strength / np.sqrt(np.float32(k)))[:, None]
    S = _own_features(rng, features, np.flatnonzero(place >= labels // 10), labels, own, mean_features)
    Y = _best_labels(rng, X, W, H, S, _row_lengths(rng, rows, mean_labels, labels), deviation)
    return SyntheticProblem(X=X, Y=Y, W=W, H=H, S=S)


def _own_features(
    rng: np.random.Generator, n_features: int, tail: np.ndarray, n_labels: int, own: int, features_per_row: float
) -> sp.csr_matrix:
    chosen = _power_law_rows(rng, np.full(len(tail), own), n_features, 0.0, unit_rows=False)
    # A feature's value in a unit row is about 1/√features_per_row; times this weight it is 3 to 5 deviations
    # of a head label's score, which is where the best of many labels lie.
    weights = rng.uniform(3, 5, size=chosen.nnz) * np.sqrt(features_per_row)
    columns = np.repeat(tail, own)
    return sp.csr_matrix((weights.astype(np.float32), (chosen.indices, columns)), shape=(n_features, n_labels))


def _best_labels(
    rng: np.random.Generator,
    X: sp.csr_matrix,
    W: np.ndarray,
    H: np.ndarray,
    S: sp.csr_matrix,
    counts: np.ndarray,
    noise: float,
) -> sp.csr_matrix:
    n_rows, n_labels = X.shape[0], H.shape[0]
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    indices = np.empty(indptr[-1], dtype=np.int32)
    height = max(1, _BLOCK_SCORES // n_labels)
    for start in range(0, n_rows, height):
        stop = min(start + height, n_rows)
        block = X[start:stop]
        scores = (block @ W) @ H.T
        sparse = (block @ S).tocoo()
        scores[sparse.row, sparse.col] += sparse.data
        if noise:
            scores += np.float32(noise) * rng.standard_normal(scores.shape, dtype=np.float32)
        wanted = counts[start:stop]
        width = int(wanted.max())
        best = np.argpartition(scores, n_labels - width, axis=1)[:, n_labels - width :]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, axis=1)
        indices[indptr[start] : indptr[stop]] = best[np.arange(width) < wanted[:, None]]
    Y = sp.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(n_rows, n_labels))
    Y.sort_indices()
    return Y


def make_power_law(
    n_rows: int,
    n_features: int,
    n_labels: int,
    *,
    features_per_row: float,
    labels_per_row: float,
    feature_exponent: float = 1.0,
    label_exponent: float = 1.0,
    n_topics: int = 0,
    topic_share: float = 0.5,
    own_features: int = 0,
    own_share: float = 0.25,
    random_state: RandomState = None,
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Make random features and labels of a given shape and sparsity, for benchmarks.

    The popularity of features and of labels falls by a power law, as in text. With neither topics nor own features,
    labels are independent of features: there is nothing to learn, but every size, sparsity and skew that decides a
    program's speed is there. With topics, a row's topic shows in its features and in its labels, so that a model
    whose rank is about the number of topics can predict them. With features of their own, such as the words of
    a product's name, rare labels can be told from others of their topic too.

    Parameters
    ----------
    n_rows, n_features, n_labels : int
        n, d and L.
    features_per_row, labels_per_row : float
        Means per row, from 1 to d and L; a row has 1 + Poisson(mean − 1) entries.
    feature_exponent, label_exponent : float, default 1.0
        How steeply popularity falls with the rank; 0 makes all columns equally popular.
    n_topics : int, default 0
        Topics of rows; their popularity falls as 1 over their place. Columns of about equal popularity are dealt to
        the topics in turn.
    topic_share : float, default 0.5
        The share of a row's entries that are of its topic, where there are topics.
    own_features : int, default 0
        Number of features that are a label's own, at most d; popular features are those of many labels.
    own_share : float, default 0.25
        The share of a row's features that are drawn from its labels' own ones, where labels have some. One that is
        drawn twice counts once, which makes rows a little shorter than ``features_per_row``.
    random_state : int, numpy.random.Generator or None, default None
        Seed.

    Returns
    -------
    X, Y : csr_matrix of float32, shapes (n, d) and (n, L)
        Rows of unit length; labels, of which every stored entry is 1.

    Notes
    -----
    Time is linear in the number of entries; memory is that of the result plus one block of rows, or three times the
    result where labels have features of their own.
    """
    rows, features, labels, mean_features, mean_labels = _checked_shape(
        n_rows, n_features, n_labels, features_per_row, labels_per_row
    )
    feature_fall = check_real(feature_exponent, "feature_exponent", minimum=0)
    label_fall = check_real(label_exponent, "label_exponent", minimum=0)
    topic_number = check_integer(n_topics, "n_topics", minimum=0)
    share = check_real(topic_share, "topic_share", minimum=0, maximum=1)
    own = check_integer(own_features, "own_features", minimum=0)
    if own > features:
        raise InvalidInputError(f"own_features must be at most n_features = {features}; found {own}.")
    from_labels = check_real(own_share, "own_share", minimum=0, maximum=1)
    rng = random_generator(random_state)
    feature_counts = _row_lengths(rng, rows, mean_features, features)
    label_counts = _row_lengths(rng, rows, mean_labels, labels)
    topics = None
    if topic_number:  # their popularity falls as 1 over their place
        topics = _Topics(topic_number, _rank_at(rng.random(rows), topic_number, 1.0), share)
    if own == 0:
        X = _power_law_rows(rng, feature_counts, features, feature_fall, unit_rows=True, topics=topics)
        return X, _power_law_rows(rng, label_counts, labels, label_fall, unit_rows=False, topics=topics)
    Y = _power_law_rows(rng, label_counts, labels, label_fall, unit_rows=False, topics=topics)
    drawn_from_labels = rng.binomial(feature_counts, from_labels)
    # The labels' own features are further rows, so that a feature is as popular with labels as it is with rows.
    lengths = np.concatenate([feature_counts - drawn_from_labels, np.full(labels, own)])
    if topics is not None:
        topics = replace(topics, of_row=np.concatenate([topics.of_row, rng.integers(topic_number, size=labels)]))
    both = _power_law_rows(rng, lengths, features, feature_fall, unit_rows=False, topics=topics)
    X = sp.csr_matrix(both[:rows] + _drawn_from_labels(rng, Y, both[rows:], drawn_from_labels))
    X.data = _unit_values(rng, X.indptr)
    return X, Y


def _drawn_from_labels(
    rng: np.random.Generator, Y: sp.csr_matrix, own: sp.csr_matrix, counts: np.ndarray
) -> sp.csr_matrix:
    """Rows of ``counts`` (n) features, each an ``own`` one (L, d) of a label that Y (n, L) has in the row."""
    row = np.repeat(np.arange(len(counts)), counts)
    label = Y.indices[Y.indptr[row] + (rng.random(len(row)) * np.diff(Y.indptr)[row]).astype(np.int64)]
    feature = own.indices[own.indptr[label] + (rng.random(len(row)) * np.diff(own.indptr)[label]).astype(np.int64)]
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    drawn = sp.csr_matrix((np.ones(len(row), dtype=np.float32), feature, indptr), shape=(len(counts), own.shape[1]))
    drawn.sum_duplicates()
    return drawn


def _checked_shape(
    n_rows: int, n_features: int, n_labels: int, features_per_row: float, labels_per_row: float
) -> tuple[int, int, int, float, float]:
    rows = check_integer(n_rows, "n_rows", minimum=1)
    features = check_integer(n_features, "n_features", minimum=1)
    labels = check_integer(n_labels, "n_labels", minimum=1)
    mean_features = check_real(features_per_row, "features_per_row", minimum=1, maximum=features)
    mean_labels = check_real(labels_per_row, "labels_per_row", minimum=1, maximum=labels)
    return rows, features, labels, mean_features, mean_labels


# ---------------------------------------------------------------------- columns of power-law popularity


@dataclass(frozen=True)
class _Topics:
    """The topic of each row; an entry belongs to its row's topic with probability ``share``, else to no topic.

    Columns of about equal popularity are dealt to the ``number`` topics in turn, so that each has some popular ones.
    """

    number: int
    of_row: np.ndarray
    share: float


def _row_lengths(rng: np.random.Generator, n_rows: int, mean: float, maximum: int) -> np.ndarray:
    """Entries per row: 1 + Poisson(mean − 1), at most ``maximum``."""
    return np.minimum(1 + rng.poisson(mean - 1, size=n_rows), maximum)


def _power_law_rows(
    rng: np.random.Generator,
    lengths: np.ndarray,
    n_columns: int,
    exponent: float,
    *,
    unit_rows: bool,
    topics: _Topics | None = None,
) -> sp.csr_matrix:
    """Rows of distinct columns; the r-th most popular is drawn in proportion to (r + offset)^(−exponent).

    A row of t entries draws one from each of t equally probable parts of the distribution. That gives each column the
    frequency it would have with independent draws, and ranks that are already sorted; the few equal neighbours among
    popular columns are moved to the next free rank. Which column has which rank is random. Values are random and
    positive, of unit length per row, or all 1.
    """
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    index_type = np.int32 if max(int(indptr[-1]), n_columns) <= np.iinfo(np.int32).max else np.int64
    indices = np.empty(indptr[-1], dtype=index_type)
    values = np.empty(indptr[-1], dtype=np.float32)
    column_of_rank = rng.permutation(n_columns).astype(index_type)
    start = 0
    while start < len(lengths):
        stop = int(np.searchsorted(indptr, indptr[start] + _BLOCK_ENTRIES, side="right")) - 1
        stop = max(stop, start + 1)
        part = slice(int(indptr[start]), int(indptr[stop]))
        offsets = indptr[start : stop + 1] - indptr[start]
        ranks = _distinct_ranks(rng, offsets, n_columns, exponent, topics)
        if topics is not None:
            # Rotate each group of equally popular columns by the topic, so that the first becomes the topic's own.
            place = ranks % topics.number
            group = ranks - place
            topic = np.repeat(topics.of_row[start:stop], np.diff(offsets))
            ranks = group + (place + topic) % np.minimum(topics.number, n_columns - group)
        indices[part] = column_of_rank[ranks]
        values[part] = _unit_values(rng, offsets) if unit_rows else 1
        start = stop
    matrix = sp.csr_matrix((values, indices, indptr.astype(index_type)), shape=(len(lengths), n_columns))
    matrix.sort_indices()
    return matrix


def _distinct_ranks(
    rng: np.random.Generator, offsets: np.ndarray, n_columns: int, exponent: float, topics: _Topics | None
) -> np.ndarray:
    lengths = np.diff(offsets)
    row = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(offsets[-1]) - offsets[row]
    length = lengths[row]
    drawn = _rank_at((place + rng.random(len(place))) / length, n_columns, exponent)
    if topics is not None:
        # Entries of the topic take the first of each group of equally popular columns.
        own = rng.random(len(drawn)) < topics.share
        drawn -= np.where(own, drawn % topics.number, 0)
    # Strictly rising ranks: r_k ← k + max over i ≤ k of (r_i − i). Adding a multiple of the row number that
    # exceeds any difference lets one running maximum serve all rows.
    step = 2 * n_columns
    shifted = np.maximum.accumulate(drawn - place + row * step) - row * step
    # Rising from 0 they could leave the range at its end; the second bound rises strictly too, so the minimum does.
    return np.asarray(np.minimum(shifted + place, n_columns - length + place))


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
    return np.asarray(raw / np.repeat(norms, np.diff(offsets)))
