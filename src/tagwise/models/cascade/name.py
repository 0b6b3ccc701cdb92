"""Opinion: the share of a label's name that a row contains."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.answers import finite_scores
from tagwise.estimator import MultiLabelModel
from tagwise.executor import Executor
from tagwise.fields import Fields, csr, dense
from tagwise.kernels.compiled import compiled
from tagwise.kernels.sampled_pairs import contains_pair, first_from
from tagwise.kernels.shortlists import shortlist_margins
from tagwise.kernels.top_k import hidden_pairs
from tagwise.models.cascade.opinion import LabelSide, Opinion, Rows, blocks_of, both_blocks
from tagwise.parallel import even_chunks
from tagwise.problem import Problem

__all__ = ["Name", "name_weights", "rows_with_name"]

# indptr and indices of a CSR or CSC.
_Indices: TypeAlias = tuple[np.ndarray, np.ndarray]


class Name(Opinion):
    """The information of the name times the squared share of it that the row has, where labels have names."""

    name = "name"
    fields = Fields(
        name_weights_=csr(
            "L", "d", meaning="What the features of a label's name say; empty without ``label_features``."
        ),
        name_rows_=dense(
            "L",
            numbers="count",
            meaning="Training rows that have all features of a label's name, and for which the label is known.",
        ),
    )

    @classmethod
    def fit(cls, side: LabelSide) -> dict[str, Any]:
        """Weights by the features' frequencies, and counts of rows."""
        n_labels, X = side.problem.n_labels, both_blocks(side.problem.X)[0]
        if side.problem.names is None:
            weights = sp.csr_matrix((n_labels, X.shape[1]), dtype=side.dtype)
            return {"name_weights_": weights, "name_rows_": np.zeros(n_labels, dtype=np.int64)}
        frequency = np.bincount(X.indices, minlength=X.shape[1])
        names = sp.csr_matrix(both_blocks(side.problem.names)[0])
        weights = name_weights(names, frequency, X.shape[0]).astype(side.dtype)
        return {"name_weights_": weights, "name_rows_": _total_rows(weights, side.problem, side.executor)}

    @classmethod
    def is_there(cls, model: MultiLabelModel) -> bool:
        """Whether any label has a name."""
        return bool(model.name_weights_.nnz)

    def __init__(self, model: MultiLabelModel) -> None:
        self.weights, self.no_shift = model.name_weights_, np.zeros(model.n_labels_, model.name_weights_.dtype)

    def write(self, rows: Rows, labels: np.ndarray, proposed: np.ndarray, out: np.ndarray) -> None:
        """The square of the shares that add up."""
        shares = shortlist_margins(rows.present, labels, self.weights, self.no_shift, n_threads=rows.n_threads)
        with np.errstate(over="ignore"):
            np.square(shares, out=out)
        finite_scores(out)


def name_weights(label_features: sp.csr_matrix, frequency: np.ndarray, n_rows: int) -> sp.csr_matrix:
    r"""Weights N (L, d) such that (Σ over the features of a row of N_jf)² says how much of j's name the row has.

    .. math:: N_{jf} = \mathrm{idf}_f \Big/ \Big(10 \sum_{g \in j} \mathrm{idf}_g\Big)^{1/2} , \qquad
              \mathrm{idf}_f = 1 + \log\frac{n + 1}{n_f + 1} ,

    with ``frequency`` n_f (d) of the n rows having the feature f. The square is the information of the name times the
    squared share of it that the row has: a long name of rare words that a row has in full says most.
    """
    information = 1 + np.log((n_rows + 1) / (frequency + 1))
    names = label_features.copy()
    names.eliminate_zeros()
    names.data = information[names.indices]
    whole = np.asarray(names.sum(axis=1)).ravel()
    names.data /= np.sqrt(10 * np.repeat(whole, np.diff(names.indptr)))
    return sp.csr_matrix(names)


def _total_rows(names: sp.csr_matrix, problem: Problem, executor: Executor) -> np.ndarray:
    """:func:`rows_with_name` of rows in shards."""
    if not names.nnz:
        return np.zeros(names.shape[0], dtype=np.int64)
    X, known = both_blocks(problem.X)[0], problem.known
    parts = [(X, None)]
    if known is not None:  # complete rows need no mask
        parts = [(X[known.complete], None), (X[~known.complete], known.pairs[~known.complete])]
    shards: list[tuple[Any, Any]] = []
    for rows, mask in parts:
        bounds = even_chunks(rows.shape[0], max(1, -(-rows.shape[0] // executor.n_blocks)))
        shards += zip(blocks_of(rows, bounds), blocks_of(mask, bounds))
    return np.asarray(executor.sum(rows_with_name, shards, executor.share(names)))


def rows_with_name(shard: tuple[sp.csr_matrix, sp.csr_matrix | None], names: sp.csr_matrix) -> np.ndarray:
    """Number of rows of X (n, d) with all features of each label's name (L, d): int64 (L,); 0 for labels without one.

    ``shard`` is X and a mask (n, L) or None; with a mask, only rows for which the label is known count. Time O(Σ over
    labels of the rows that have the name's rarest feature).
    """
    X, observed = shard
    by_feature = sp.csc_matrix(X)
    rows = X if X.has_sorted_indices else X.sorted_indices()
    counts = np.zeros(names.shape[0], dtype=np.int64)
    known = hidden_pairs(observed, (X.shape[0], names.shape[0]))
    lists = (names.indptr, names.indices), (by_feature.indptr, by_feature.indices), (rows.indptr, rows.indices)
    _count_rows(*lists, known, counts)
    return counts


@compiled()
def _count_rows(names: _Indices, by_feature: _Indices, by_row: _Indices, known: _Indices, counts: np.ndarray) -> None:
    name_indptr, name_features = names
    feature_indptr, rows_of = by_feature
    indptr, indices = by_row
    sizes = np.diff(feature_indptr)
    for label in range(len(counts)):
        features = name_features[name_indptr[label] : name_indptr[label + 1]]
        if len(features) == 0:
            continue
        rarest = features[np.argmin(sizes[features])]
        for at in range(feature_indptr[rarest], feature_indptr[rarest + 1]):
            begin, end = indptr[rows_of[at]], indptr[rows_of[at] + 1]
            whole = len(known[0]) == 0 or contains_pair(known, rows_of[at], label)
            for feature in features if whole else features[:0]:
                place = first_from(indices, begin, end, feature)
                if place == end or indices[place] != feature:
                    whole = False
                    break
            counts[label] += whole
