"""What a cascade knows of labels beside its proposer: rankers, prototypes, which occur together, and how often.

:class:`Opinions` are what these say about the labels of a shortlist, :class:`LabelFacts` what is known of the labels
themselves, :class:`CascadeRows` the training rows that all of it is learnt from, wherever they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from tagwise.feature_blocks import FeatureBlocks
from tagwise.kernels import csr_matmul, scaled_rows, unit_rows
from tagwise.kernels.compiled import compiled
from tagwise.kernels.dual_coordinate_descent import Descent, Numbered, train_sparse_svms
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.kernels.shortlists import Lookup
from tagwise.models.cascade.names import rows_with_name
from tagwise.models.reml.reml import REML
from tagwise.parallel import even_chunks, run_chunks, thread_count, work_chunks
from tagwise.persistence.fit_state import State, array, model, real, sparse
from tagwise.problems.labels import known_positives, per_row
from tagwise.progress import FitProgress

__all__ = [
    "PAIR_SHRINKAGE",
    "CascadeRows",
    "FittedProposer",
    "LabelFacts",
    "LocalRows",
    "Opinions",
    "RankerOptions",
    "Rankers",
    "cooccurrence_counts",
    "dense_prototypes",
    "label_prototypes",
    "learn_rankers",
    "rows_by_label",
    "search_depth",
    "weights_of",
    "wrong_proposals",
]

# A pair of labels is taken to occur as if independent in so many rows more.
PAIR_SHRINKAGE = 5.0
# A usual number of rows of a label: what the frequency is measured from.
_USUAL_ROWS = 30.0
# Rows with more labels than this say little about which labels belong together, and have many pairs.
_MOST_LABELS_OF_A_ROW = 300
# Rows whose shortlists are made together.
_BLOCK_ROWS = 1 << 14
# Rankers that are solved further cost a quarter more time and rank validation rows no better.
_TOL = 0.3
# Twice and four times as many rank validation rows of five sets no better.
_MOST_WEIGHTS = 50


class Opinions(NamedTuple):
    """What is known of N labels per row; the first M ≤ N of them are the shortlist, in any order."""

    labels: np.ndarray
    """int (n, N); −1 for none."""
    proposed: np.ndarray
    """s (n, N): the proposer's centred scores."""
    margins: np.ndarray
    """m (n, M): the rankers' margins."""
    cosines: np.ndarray
    """c (n, M): of the row with the label's prototype."""
    names: np.ndarray
    """(n, M): how much of the label's name the row has; (n, 0) where labels have no names."""
    meanings: np.ndarray = np.zeros((0, 0), dtype=np.float32)
    """(n, M): the cosine of the row with the label's prototype by the dense block; (…, 0) where there is none."""
    name_meanings: np.ndarray = np.zeros((0, 0), dtype=np.float32)
    """(n, M): the cosine of the row with the label's name by the dense block; (…, 0) where names have no embedding."""


class LabelFacts(NamedTuple):
    """What is known of the labels themselves."""

    has_ranker: np.ndarray
    """bool (L,); labels without a ranker have the margin 2s."""
    frequency: np.ndarray
    """f (L,): known positive rows, float64."""
    n_rows: float
    """n: training rows."""
    pairs: Lookup
    """c (L, L), symmetric."""
    often: np.ndarray
    """½ log((f + ½)/30) (L,): the opinion by frequency."""
    log_rows: np.ndarray
    """log(f + 5) (L,)."""
    rarity: np.ndarray
    """1/π (L,)."""
    log_named: np.ndarray
    """log(1 + c) (L,) for the c training rows that have the label's whole name."""
    whole_name: np.ndarray
    """What ``Opinions.names`` is for a row that has the label's whole name (L,)."""

    @classmethod
    def of(
        cls,
        has_ranker: np.ndarray,
        frequency: np.ndarray,
        n_rows: int,
        pairs: sp.csr_matrix,
        name_rows: np.ndarray | None = None,
        name_weights: sp.csr_matrix | None = None,
    ) -> LabelFacts:
        """From the fitted attributes of a cascade; ``pairs`` are those (j, t) with j < t. None: no names."""
        both = sp.csr_matrix(pairs + pairs.T)
        f = np.asarray(frequency, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):  # the numbers of a forged folder are checked later
            often, log_rows = 0.5 * np.log((f + 0.5) / _USUAL_ROWS), np.log(f + PAIR_SHRINKAGE)
            rarity, named = (n_rows + 1) / (f + 0.5), np.log1p(np.zeros_like(f) if name_rows is None else name_rows)
        whole = np.zeros_like(f)
        if name_weights is not None:
            whole = np.asarray(name_weights.sum(axis=1), dtype=np.float64).ravel() ** 2
        return cls(has_ranker, f, float(n_rows), Lookup.of(both), often, log_rows, rarity, named, whole)

    def check(self) -> None:
        """Raise ValueError unless all are what a fit can count."""
        limits = (
            (self.frequency, self.n_rows),
            (self.pairs.values, self.n_rows),
            (self.log_named, math.log1p(self.n_rows)),
        )
        for counts, most in limits:
            if not ((counts >= 0) & (counts <= most)).all():
                raise ValueError(f"labels, names and pairs of labels must occur in 0 to {self.n_rows:.0f} rows")


def cooccurrence_counts(positives: sp.csr_matrix) -> sp.csr_matrix:
    """In how many rows of ``positives`` (n, L) two labels occur together: int32 CSR (L, L), the pairs (j, t), j < t.

    Rows with more than 300 labels are left out. Time and memory O(Σ l²) for rows of l labels.
    """
    few = positives[np.diff(positives.indptr) <= _MOST_LABELS_OF_A_ROW]
    ones = sp.csr_matrix((np.ones(few.nnz, dtype=np.int32), few.indices, few.indptr), shape=few.shape)
    pairs = sp.csr_matrix(sp.triu(ones.T @ ones, k=1))
    pairs.sort_indices()
    return pairs


# ---------------------------------------------------------------------- learn


@dataclass(frozen=True, eq=False)
class FittedProposer(State):
    """The finished first stage of a cascade's fit."""

    model: REML = model()


@dataclass(frozen=True, eq=False)
class Rankers(State):
    """Margins xᵀw_j + β_j: ``weights`` CSR (L, d), ``intercept`` (L,), and which labels are ``trained`` (L,).

    ``dense`` (L, q) are the weights of a dense block.
    """

    weights: sp.csr_matrix = sparse("L", "d")
    dense: np.ndarray = array("L", "q")
    intercept: np.ndarray = array("L")
    trained: np.ndarray = array("L", dtype=np.bool_)
    objective: float = real()

    @staticmethod
    def none(n_labels: int, n_features: int, n_dense: int, dtype: Any) -> Rankers:
        """No ranker for any label."""
        empty = sp.csr_matrix((n_labels, n_features), dtype=dtype)
        return Rankers(
            empty,
            np.zeros((n_labels, n_dense), dtype=dtype),
            np.zeros(n_labels, dtype=dtype),
            np.zeros(n_labels, dtype=bool),
            0.0,
        )


def wrong_proposals(
    proposer: REML,
    X: sp.csr_matrix,
    positives: sp.csr_matrix,
    observed: sp.csr_matrix | None,
    many: int,
    *,
    depth: int | None = None,
) -> sp.csr_matrix:
    """The up to ``many`` best labels of each row of X that are known to be off: (n, L) as CSR of ones, best first.

    They are looked for among the ``depth`` best labels, by default ``many`` and as many more as a row has positives on
    average. Memory: 5 bytes per pair, ``many`` pairs per row, and the shortlists of a block of rows.
    """
    threads = thread_count(proposer.n_jobs)
    width = min(search_depth(positives.nnz, X.shape[0], many) if depth is None else depth, positives.shape[1])
    indices = np.empty(X.shape[0] * min(many, width), dtype=np.int32)
    indptr, filled = np.zeros(X.shape[0] + 1, dtype=np.int64), 0
    for start, stop in even_chunks(X.shape[0], _BLOCK_ROWS):
        labels, _ = proposer.predict_topk(X[start:stop], width)
        wrong = (labels >= 0) & ~contains_pairs(positives[start:stop], labels, n_threads=threads)
        if observed is not None:
            wrong &= contains_pairs(observed[start:stop], labels, n_threads=threads)
        wrong &= np.cumsum(wrong, axis=1, dtype=np.int32) <= many
        indptr[start + 1 : stop + 1] = filled + np.cumsum(wrong.sum(axis=1))
        indices[filled : indptr[stop]] = labels[wrong]
        filled = indptr[stop]
    return sp.csr_matrix((np.ones(filled, dtype=np.int8), indices[:filled], indptr), shape=positives.shape)


def search_depth(n_positives: int, n_rows: int, many: int) -> int:
    """Among how many of a row's best labels ``many`` wrong ones are looked for."""
    return many + -(-n_positives // n_rows)


def learn_rankers(
    rows: sp.csr_matrix | FeatureBlocks,
    positives: sp.csr_matrix,
    negatives: sp.csr_matrix,
    *,
    C: float | np.ndarray,
    prune: float,
    seed: int,
    numbered: Numbered = (0, None),
    n_threads: int,
) -> Rankers:
    """A ranker for each label that has positive and negative rows, both by label (L, n); C may be one per row (n,).

    Where labels and rows are some of several, ``numbered`` is the first label and the rows (n,).
    """
    descent = Descent(tol=_TOL, seed=seed)
    weights, intercept, objective = train_sparse_svms(
        rows,
        positives,
        negatives,
        descent,
        C=C,
        prune=prune,
        numbered=numbered,
        n_threads=n_threads,
    )
    trained = (np.diff(positives.indptr) > 0) & (np.diff(negatives.indptr) > 0)
    words, dense = weights_of(weights)
    return Rankers(words, dense, intercept.astype(rows.dtype), trained, float(objective.sum()))


def weights_of(features: sp.csr_matrix | FeatureBlocks) -> tuple[sp.csr_matrix, np.ndarray]:
    """The words (m, d), and the dense block (m, q), where q = 0 if there is none."""
    if isinstance(features, FeatureBlocks):
        return features.words, features.dense
    return features, np.zeros((features.shape[0], 0), dtype=features.dtype)


def dense_prototypes(
    dense: np.ndarray, positives: sp.csr_matrix, weight: np.ndarray | None, *, n_threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    r"""The mean μ (q,) of the dense block's rows, and for each label the direction (L, q) of its rows from there.

    .. math:: c_j = \sum_{i \in P_j} (d_i - \mu) \Big/ \Big\lVert\sum_{i \in P_j} (d_i - \mu)\Big\rVert

    Embeddings of texts have much in common, which says nothing about their labels. Time O(nnz(Y)·q).
    """
    if not dense.shape[1]:
        return np.zeros(0, dtype=dense.dtype), np.zeros((positives.shape[1], 0), dtype=dense.dtype)
    mean = np.average(dense, axis=0, weights=weight)
    by_label = sp.csr_matrix(per_row(positives, weight).T).astype(dense.dtype)
    totals = csr_matmul(by_label, dense, n_threads=n_threads)
    totals -= np.outer(np.asarray(by_label.sum(axis=1)).ravel(), mean).astype(dense.dtype)
    return mean.astype(dense.dtype), unit_rows(totals, n_threads=n_threads)


def rows_by_label(pairs: sp.csr_matrix) -> sp.csr_matrix:
    """The rows of each label: of pairs (n, L) the transpose, CSR (L, n) of ones in int8; 5 bytes per pair."""
    n_rows, n_labels = pairs.shape
    counts, rows = np.zeros(n_labels, dtype=np.int64), np.empty(pairs.nnz, dtype=np.int32)
    _count_labels(pairs.indices, counts)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    _sort_by_label(pairs.indptr, pairs.indices, indptr[:-1].copy(), rows)
    return sp.csr_matrix((np.ones(len(rows), dtype=np.int8), rows, indptr), shape=(n_labels, n_rows))


@compiled()
def _count_labels(indices: np.ndarray, counts: np.ndarray) -> None:
    """``numpy.bincount`` without its copy of the indices."""
    for label in indices:
        counts[label] += 1


@compiled()
def _sort_by_label(indptr: np.ndarray, indices: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> None:
    """Put each row behind those that its labels have already; ``ends`` (L,) are where the lists of labels end."""
    for row in range(len(indptr) - 1):
        for label in indices[indptr[row] : indptr[row + 1]]:
            rows[ends[label]] = row
            ends[label] += 1


def label_prototypes(
    rows: sp.csr_matrix, positives: sp.csr_matrix, *, most: int = _MOST_WEIGHTS, n_threads: int = 1
) -> sp.csr_matrix:
    r"""The mean of each label's rows, scaled to unit length, of which the ``most`` largest weights are kept.

    .. math:: c_j = \sum_{i \in P_j} x_i \Big/ \Big\lVert\sum_{i \in P_j} x_i\Big\rVert

    From ``rows`` (n, d) of unit length and the known ``positives`` (n, L), CSR (L, d) with sorted indices. Time: one
    addition for every stored entry of every positive row of every label.
    """
    by_label = rows_by_label(positives)
    entries = np.concatenate([[0], np.cumsum(np.diff(rows.indptr)[by_label.indices], dtype=np.int64)])[by_label.indptr]
    features, rows_of_labels = (rows.indptr, rows.indices, rows.data), (by_label.indptr, by_label.indices)
    counts = np.zeros(len(entries) - 1, dtype=np.int64)
    found = run_chunks(
        lambda start, stop: _prototypes(features, rows.shape[1], rows_of_labels, entries, most, counts, start, stop),
        work_chunks(entries),
        n_threads,
    )
    indices, data = (np.concatenate(part) for part in zip(*found))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_matrix((data, indices, indptr), shape=(len(counts), rows.shape[1]))


@compiled()
def _prototypes(
    features: tuple[np.ndarray, np.ndarray, np.ndarray],
    n_features: int,
    rows_of_labels: tuple[np.ndarray, np.ndarray],
    entries: np.ndarray,
    most: int,
    counts: np.ndarray,
    start: int,
    stop: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The prototypes of labels ``start`` to ``stop``: features and weights, one label after the other."""
    indptr, indices, data = features
    label_indptr, label_rows = rows_of_labels
    total, seen = np.zeros(n_features), np.zeros(n_features, dtype=np.bool_)
    touched = np.empty(n_features, dtype=np.int32)
    room = 0
    for label in range(start, stop):
        room += min(most, entries[label + 1] - entries[label])
    chosen, weights = np.empty(room, dtype=np.int32), np.empty(room, dtype=data.dtype)
    filled = 0
    for label in range(start, stop):
        count = 0
        for row in label_rows[label_indptr[label] : label_indptr[label + 1]]:
            for position in range(indptr[row], indptr[row + 1]):
                feature = indices[position]
                if not seen[feature]:
                    seen[feature], touched[count] = True, feature
                    count += 1
                total[feature] += data[position]
        own = touched[:count]
        own.sort()
        sizes = np.abs(total[own])
        # In two steps: squares of sums of the largest or smallest floating numbers are not finite, or nothing.
        largest = sizes.max() if count > 0 else 0.0
        length = largest * np.sqrt(np.sum((sizes / largest) ** 2)) if largest > 0 else 1.0
        least, equal = -1.0, 0
        if count > most:
            least = np.partition(sizes, count - most)[count - most]
            equal = most - np.sum(sizes > least)
        before = filled
        for i in range(count):
            if sizes[i] > least or (sizes[i] == least and equal > 0):
                equal -= sizes[i] == least
                chosen[filled], weights[filled] = own[i], total[own[i]] / length
                filled += 1
            total[own[i]], seen[own[i]] = 0, False
        counts[label] = filled - before
    return chosen[:filled].copy(), weights[:filled].copy()


# ---------------------------------------------------------------------- the rows


class RankerOptions(NamedTuple):
    """How rankers are learnt: what a mistake costs, the least weight, the seed, and hard negatives per row."""

    C: float
    prune: float
    seed: int
    hard_negatives: int


class CascadeRows(Protocol):
    """Rows (n) with features (d) and known labels (L)."""

    @property
    def n_rows(self) -> int:
        """How many."""
        ...

    @property
    def positives(self) -> sp.csr_matrix:
        """The pairs (n, L) that are known to be on."""
        ...

    def known_per_row(self) -> np.ndarray | None:
        """How many labels are known of each row (n,); None where all are."""
        ...

    def of(self, rows: np.ndarray) -> LocalRows:
        """Some rows, in memory."""
        ...

    def without(self, rows: np.ndarray) -> CascadeRows:
        """All other rows."""
        ...

    def head(self, many: int) -> sp.csr_matrix | FeatureBlocks:
        """Features of the first rows."""
        ...

    def feature_counts(self) -> np.ndarray:
        """How many rows have each feature (d)."""
        ...

    def fit_proposer(self, proposer: REML, progress: FitProgress) -> None:
        """Fit it to all rows, as a stage of a fit."""
        ...

    def relearnt(self, proposer: REML, labels: np.ndarray) -> REML:
        """A proposer of some labels alone, their sparse part learnt from these rows."""
        ...

    def learn_rankers(
        self,
        proposer: REML,
        options: RankerOptions,
        labels: np.ndarray | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> Rankers:
        """Rankers of all labels, or of those that the proposer has, on the mistakes that it makes."""
        ...

    def prototypes(self) -> sp.csr_matrix:
        """The mean of each label's rows (L, d)."""
        ...

    def dense_prototypes(self) -> tuple[np.ndarray, np.ndarray]:
        """Of a dense block (q columns, or none), the mean (q,) and each label's direction (L, q)."""
        ...

    def cooccurrence(self) -> sp.csr_matrix:
        """In how many rows two labels occur together (L, L)."""
        ...

    def rows_with_name(self, names: sp.csr_matrix) -> np.ndarray:
        """How many rows have each label's whole name (L,)."""
        ...


@dataclass(frozen=True)
class LocalRows:
    """Rows in memory; mask and weights may be None. What each method gives is said in :class:`CascadeRows`."""

    X: sp.csr_matrix | FeatureBlocks
    Y: sp.csr_matrix
    observed: sp.csr_matrix | None
    weight: np.ndarray | None
    normalize: bool
    n_threads: int
    dense_weight: float = 1.0

    @property
    def n_rows(self) -> int:
        """N."""
        return self.Y.shape[0]

    @cached_property
    def positives(self) -> sp.csr_matrix:
        """The pairs that are known to be on."""
        return known_positives(self.Y, self.observed)

    @cached_property
    def scaled(self) -> sp.csr_matrix | FeatureBlocks:
        """X as rankers read it."""
        return scaled_rows(self.X, normalize=self.normalize, dense_weight=self.dense_weight, n_threads=self.n_threads)

    @property
    def words(self) -> sp.csr_matrix:
        """The sparse features of X."""
        return weights_of(self.X)[0]

    def known_per_row(self) -> np.ndarray | None:
        """Stored pairs of the mask."""
        return None if self.observed is None else np.diff(self.observed.indptr)

    def of(self, rows: np.ndarray) -> LocalRows:
        """Some of them."""
        observed = None if self.observed is None else self.observed[rows]
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, X=self.X[rows], Y=self.Y[rows], observed=observed, weight=weight)

    def without(self, rows: np.ndarray) -> LocalRows:
        """The others."""
        return self.of(np.setdiff1d(np.arange(self.n_rows), rows))

    def head(self, many: int) -> sp.csr_matrix | FeatureBlocks:
        """The first rows."""
        return self.X[:many]

    def feature_counts(self) -> np.ndarray:
        """Stored entries of each column."""
        return np.bincount(self.words.indices, minlength=self.X.shape[1])

    def fit_proposer(self, proposer: REML, progress: FitProgress) -> None:
        """Fit it."""
        proposer._fit_stage(self.X, self.Y, self.observed, self.weight, progress)

    def relearnt(self, proposer: REML, labels: np.ndarray) -> REML:
        """Learn some labels again."""
        return proposer._relearnt(labels, self.X, self.Y, self.observed, self.weight)

    def learn_rankers(
        self,
        proposer: REML,
        options: RankerOptions,
        labels: np.ndarray | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> Rankers:
        """A support vector machine per label."""
        positives, known = self.positives, self.observed
        if labels is not None:
            positives = sp.csr_matrix(positives[:, labels])
            known = None if known is None else sp.csr_matrix(known[:, labels])
        off = rows_by_label(wrong_proposals(proposer, self.X, positives, known, options.hard_negatives))
        note(f"rankers of {positives.shape[1]:,} labels")
        C = options.C if self.weight is None else options.C * self.weight
        return learn_rankers(
            self.scaled,
            rows_by_label(positives),
            off,
            C=C,
            prune=options.prune,
            seed=options.seed,
            n_threads=self.n_threads,
        )

    def prototypes(self) -> sp.csr_matrix:
        """Of rows of unit length, each counted as it weighs."""
        words = weights_of(self.scaled)[0]
        unit = words if self.normalize else sp.csr_matrix(unit_rows(words, n_threads=self.n_threads))
        return label_prototypes(per_row(unit, self.weight), self.positives, n_threads=self.n_threads)

    def dense_prototypes(self) -> tuple[np.ndarray, np.ndarray]:
        """Of rows of unit length, likewise."""
        dense = weights_of(self.X)[1]
        unit = unit_rows(dense, n_threads=self.n_threads) if dense.shape[1] else dense
        return dense_prototypes(unit, self.positives, self.weight, n_threads=self.n_threads)

    def cooccurrence(self) -> sp.csr_matrix:
        """Counts of pairs."""
        return cooccurrence_counts(self.positives)

    def rows_with_name(self, names: sp.csr_matrix) -> np.ndarray:
        """Counts of rows."""
        return rows_with_name(names, self.words, self.observed)
