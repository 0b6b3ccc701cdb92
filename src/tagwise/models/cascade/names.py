"""What labels are called, as an opinion on rows that say or mean it, and as the one way to labels without rows."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.compiled import compiled
from tagwise.kernels.products import unit_rows
from tagwise.kernels.sampled_pairs import contains_pair
from tagwise.kernels.top_k import hidden_pairs, keep, top_k_of_factors
from tagwise.parallel import run_chunks, work_chunks

__all__ = ["UnseenLabels", "name_directions", "name_weights", "rows_with_name"]

# indptr and indices of a CSR or CSC, and its data too.
_Indices: TypeAlias = tuple[np.ndarray, np.ndarray]
_Lists: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]

# So many labels without rows are proposed to a row by the words of their names, and as many by their meaning.
_MOST_UNSEEN = 5


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


def name_directions(embeddings: np.ndarray) -> np.ndarray:
    r"""The direction of each label's name from the mean of all names, from their embeddings (L, q): (L, q) again.

    .. math:: v_j = (e_j - \nu) / \lVert e_j - \nu\rVert , \qquad \nu = \mathrm{mean}_j\ e_j

    for e of unit length. Zeros are no name, and stay; (L, 0) where all are.
    """
    unit = np.asarray(unit_rows(embeddings))
    named = (embeddings != 0).any(axis=1)
    if not named.any():
        return np.zeros((len(embeddings), 0), dtype=embeddings.dtype)
    mean = unit[named].mean(axis=0, dtype=np.float64).astype(unit.dtype)
    return np.asarray(unit_rows((unit - mean) * named[:, None]))


def rows_with_name(names: sp.csr_matrix, X: sp.csr_matrix, observed: sp.csr_matrix | None) -> np.ndarray:
    """How many rows of X (n, d) have all features of each label's name (L, d): int64 (L,); 0 for labels without one.

    With a mask ``observed`` (n, L), only rows for which the label is known count. Time O(Σ over labels of the rows that
    have the name's rarest feature).
    """
    if not names.nnz:
        return np.zeros(names.shape[0], dtype=np.int64)
    by_feature = sp.csc_matrix(X)
    rows = X if X.has_sorted_indices else X.sorted_indices()
    counts = np.zeros(names.shape[0], dtype=np.int64)
    known = hidden_pairs(observed, (X.shape[0], names.shape[0]))
    lists = (names.indptr, names.indices), (by_feature.indptr, by_feature.indices), (rows.indptr, rows.indices)
    _count_rows(*lists, known, counts)
    return counts


class UnseenLabels(NamedTuple):
    """Labels that have a name and no training row."""

    labels: np.ndarray
    """int (U,), increasing."""
    names: sp.csr_matrix
    """CSR (d, U): the weights of their names."""
    meanings: np.ndarray
    """(U, q): the directions of their names; q = 0 where names have none."""

    @classmethod
    def of(cls, name_weights: sp.csr_matrix, frequency: np.ndarray, meanings: np.ndarray) -> UnseenLabels:
        """From N (L, d), the known positive rows of each label (L,), and directions (L, q)."""
        named = (np.diff(name_weights.indptr) > 0) | (meanings != 0).any(axis=1)
        labels = np.flatnonzero((frequency == 0) & named)
        return cls(labels, sp.csr_matrix(name_weights[labels].T), np.ascontiguousarray(meanings[labels]))

    def propose(
        self, rows: sp.csr_matrix, labels: np.ndarray, proposed: np.ndarray, width: int, *, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """The proposer's lists (n, N) with five places for unseen labels after the first ``width``, and the new width.

        Those are the labels of whose names the row has most, −1 where there are fewer; one that the proposer lists
        behind its first ``width`` labels moves forward, and −1 takes its place there. ``rows`` (n, d) say by a stored
        1 which features there are. Time O(Σ names with the row's features).
        """
        wider, scores = _with_places(labels, proposed, width)
        features, names = (
            (rows.indptr, rows.indices, rows.data),
            (self.names.indptr, self.names.indices, self.names.data),
        )

        def part(start: int, stop: int) -> None:
            _propose(features, names, self.labels, wider, width, _MOST_UNSEEN, start, stop)

        run_chunks(part, work_chunks(rows.indptr.astype(np.int64)), n_threads)
        return wider, scores, width + _MOST_UNSEEN

    def propose_by_meaning(
        self, directions: np.ndarray, labels: np.ndarray, proposed: np.ndarray, width: int, *, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Five more places, as in :meth:`propose`, for labels whose names are nearest to the ``directions`` (n, q).

        Time O(n·U·q) by BLAS.
        """
        wider, scores = _with_places(labels, proposed, width)
        if len(self.labels):
            nearest, cosines = top_k_of_factors(directions, self.meanings, _MOST_UNSEEN, n_threads=n_threads)
            # A row or a name without a direction has nothing to say about the other.
            _insert_all(wider, self.labels, np.where(cosines != 0, nearest, -1), width)
        return wider, scores, width + _MOST_UNSEEN


def _with_places(labels: np.ndarray, proposed: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Lists of labels and scores (n, N) with places for unseen ones after the first ``width``: −1, and 0."""
    # As many places whatever labels are unseen, so that lessons of several cascades have the same width.
    gap = np.full((len(labels), _MOST_UNSEEN), -1, dtype=labels.dtype)
    nothing = np.zeros(gap.shape, dtype=proposed.dtype)
    wider = np.concatenate([labels[:, :width], gap, labels[:, width:]], axis=1)
    return wider, np.concatenate([proposed[:, :width], nothing, proposed[:, width:]], axis=1)


@compiled()
def _count_rows(names: _Indices, by_feature: _Indices, by_row: _Indices, known: _Indices, counts: np.ndarray) -> None:
    name_indptr, name_features = names
    feature_indptr, rows_of = by_feature
    indptr, indices = by_row
    for label in range(len(counts)):
        features = name_features[name_indptr[label] : name_indptr[label + 1]]
        if len(features) == 0:
            continue
        rarest = features[0]
        for feature in features:
            if (
                feature_indptr[feature + 1] - feature_indptr[feature]
                < feature_indptr[rarest + 1] - feature_indptr[rarest]
            ):
                rarest = feature
        for at in range(feature_indptr[rarest], feature_indptr[rarest + 1]):
            row = indices[indptr[rows_of[at]] : indptr[rows_of[at] + 1]]
            whole = len(known[0]) == 0 or contains_pair(known, rows_of[at], label)
            for feature in features if whole else features[:0]:
                place = np.searchsorted(row, feature)
                if place == len(row) or row[place] != feature:
                    whole = False
                    break
            counts[label] += whole


@compiled()
def _propose(
    features: _Lists,
    names: _Lists,
    unseen: np.ndarray,
    labels: np.ndarray,
    width: int,
    many: int,
    start: int,
    stop: int,
) -> None:
    indptr, indices, present = features
    name_indptr, name_ids, weights = names
    share = np.zeros(len(unseen), dtype=weights.dtype)
    touched = np.empty(len(unseen), dtype=np.int64)
    best, found = np.empty(many, dtype=weights.dtype), np.empty(many, dtype=np.int64)
    for row in range(start, stop):
        n_touched = 0
        for entry in range(indptr[row], indptr[row + 1]):
            if present[entry] == 0:
                continue
            for at in range(name_indptr[indices[entry]], name_indptr[indices[entry] + 1]):
                name = name_ids[at]
                if share[name] == 0:
                    touched[n_touched] = name
                    n_touched += 1
                share[name] += weights[at]
        best[:], found[:] = -np.inf, -1
        for each in range(n_touched):
            keep(best, found, share[touched[each]], touched[each])
            share[touched[each]] = 0
        for place in range(many):
            if found[place] >= 0:
                _insert(labels[row], unseen[found[place]], width, width + place, width + many)


@compiled()
def _insert_all(labels: np.ndarray, unseen: np.ndarray, found: np.ndarray, width: int) -> None:
    """The ``found`` (n, m) of the ``unseen`` labels, −1 for none, to the m places after the first ``width``."""
    for row in range(len(labels)):
        for place in range(found.shape[1]):
            if found[row, place] >= 0:
                _insert(labels[row], unseen[found[row, place]], width, width + place, width + found.shape[1])


@compiled()
def _insert(labels: np.ndarray, label: int, width: int, place: int, behind: int) -> None:
    """``label`` goes to ``place`` unless it is among the first ``width``; from ``behind`` on it is taken away."""
    for at in range(width):
        if labels[at] == label:
            return
    labels[place] = label
    for at in range(behind, len(labels)):
        if labels[at] == label:
            labels[at] = -1
