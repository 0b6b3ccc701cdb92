r"""Explanations: the exact share of every feature in a linear score.

The score of label j for a row x is :math:`s_j(x) = \sum_f x_f w_{jf} + b_j`. The products :math:`x_f w_{jf}` are the
contributions of the features; with the intercept :math:`b_j` they add up to the score of ``decision_function``, up to
rounding. If the model scales rows to unit length, x is the scaled row. Scores are centred so that 0 separates off from
on: under squared loss, :math:`b_j` includes the −½ that does so.

The features of a dense block (:class:`tagwise.data.FeatureBlocks`), such as an embedding, mean nothing individually:
the block contributes one number, :math:`\sum_{f \in D} x_f w_{jf}`, stored at its first feature.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.kernels import top_k_of_scores
from tagwise.parallel import even_chunks, single_threaded_blas
from tagwise.validation import canonical_csr, check_integer

__all__ = [
    "LEAST_SHARE",
    "Explanations",
    "explain_labels",
    "heaviest_features",
    "heaviest_features_of_each",
    "nearest_labels",
]

LEAST_SHARE = 0.005
"""Least share of the absolute contributions for a word to be shown individually."""

# Weights of one block of labels, whatever the number of features: 4 million numbers, 16 MB as float32.
_BLOCK_WEIGHTS = 1 << 22


@dataclass(frozen=True, eq=False)
class Explanations:
    """Contributions of features to scores, for k labels of each of n rows.

    Attributes
    ----------
    contributions : CSR (n·k, d), float64
        Row ``i·k + p`` belongs to row i and its p-th label, and stores one number per feature that is stored in row i,
        and one for all of a dense block, at its first feature. Empty where there is no label (−1).
    intercepts : float64 array (n, k)
        The score without any feature; 0 where there is no label.
    explained : str
        Name of the sum of contributions and intercept: ``explained_score`` of the model.
    """

    contributions: sp.csr_matrix
    intercepts: np.ndarray
    explained: str

    def of(self, row: int, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Feature ids and contributions of one pair, largest absolute value first, ties by id."""
        pair = row * self.intercepts.shape[1] + place
        start, stop = self.contributions.indptr[pair], self.contributions.indptr[pair + 1]
        features, values = self.contributions.indices[start:stop], self.contributions.data[start:stop]
        order = np.argsort(-np.abs(values), kind="stable")
        return features[order], values[order]

    def scores(self) -> np.ndarray:
        """Contributions and intercept added up (n, k)."""
        sums = np.asarray(self.contributions.sum(axis=1)).reshape(self.intercepts.shape)
        return sums + self.intercepts


def explain_labels(model: MultiLabelModel, X: Any, labels: Any) -> Explanations:
    """Contributions of each feature of each row to the scores of some labels of the row.

    Parameters
    ----------
    model : fitted model
        With linear scores: LEML without a kernel, REML, BinaryRelevance, PLST, CPLST, MLCSSP, WSABIE; or with a linear
        margin that decides: Cascade.
    X : CSR or array (n, d)
    labels : int array (n, k)
        Labels of each row, as ``predict_topk`` returns them; −1 for none.

    Returns
    -------
    Explanations

    Raises
    ------
    ExplanationError
        The model's scores are not a sum of one part per feature.

    Notes
    -----
    Time O(nnz(X)·k), plus the d weights of each distinct label once. Memory O(nnz(X)·k) and a block of weights.
    """
    model.label_weights([])  # raises, if there are no weights, before any work
    scored = model.scored_rows(X)
    dense = np.zeros((scored.shape[0], 0))
    if isinstance(scored, FeatureBlocks):
        # 1 at the first feature of the dense block: the place of all that it contributes.
        n_rows, dense = scored.shape[0], scored.dense
        place = (np.ones(n_rows, scored.dtype), np.zeros(n_rows, np.int32), np.arange(n_rows + 1))
        scored = sp.csr_matrix(sp.hstack([scored.sparse, sp.csr_matrix(place, (n_rows, scored.n_dense))], format="csr"))
    rows = canonical_csr(scored)
    pairs = _checked_labels(labels, rows.shape[0], model.n_labels_)
    wanted = np.unique(pairs[pairs >= 0])
    n_rows, per_row = pairs.shape
    flat = pairs.ravel()
    owner = np.repeat(np.arange(n_rows), per_row)
    sizes = np.where(flat >= 0, np.diff(rows.indptr)[owner], 0)
    indptr = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    # Positions of each pair's entries among those of X.
    source = np.arange(indptr[-1]) + np.repeat(rows.indptr[owner] - indptr[:-1], sizes)
    indices = rows.indices[source]
    data = np.empty(len(source))
    intercepts = np.zeros(len(flat))
    label_of_entry = np.repeat(flat, sizes)
    with single_threaded_blas():
        for start, stop in even_chunks(len(wanted), max(1, _BLOCK_WEIGHTS // rows.shape[1])):
            block = wanted[start:stop]
            weights = model.label_weights(block)
            entries = np.flatnonzero((label_of_entry >= block[0]) & (label_of_entry <= block[-1]))
            of_block = np.searchsorted(block, label_of_entry[entries])
            mine = np.flatnonzero((flat >= block[0]) & (flat <= block[-1]))
            values = weights[of_block, indices[entries]]
            if dense.shape[1]:
                first = rows.shape[1] - dense.shape[1]
                of_dense = weights[:, first:].astype(np.float64)[np.searchsorted(block, flat[mine])]
                totals = np.einsum("pq,pq->p", dense[owner[mine]], of_dense)
                values = np.where(indices[entries] == first, np.repeat(totals, sizes[mine]), values)
            data[entries] = rows.data[source[entries]].astype(np.float64) * values
            intercepts[mine] = model.label_intercepts(flat[mine])
    contributions = sp.csr_matrix((data, indices, indptr), shape=(len(flat), rows.shape[1]))
    return Explanations(contributions, intercepts.reshape(pairs.shape), model.explained_score)


def heaviest_features(model: MultiLabelModel, label: int, top: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The features with the largest positive weights of a label, and the weights, largest first, ties by id.

    Fewer than ``top`` if fewer have a weight above 0. Features of a dense block are ignored.
    """
    return next(heaviest_features_of_each(model, _checked_label(model, label), top))


def heaviest_features_of_each(
    model: MultiLabelModel, labels: np.ndarray, top: int = 10
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """:func:`heaviest_features` for each of many labels in turn; weights are looked up in blocks of labels.

    Time O(d) per label, memory that of a block of weights.
    """
    top = check_integer(top, "top", minimum=1)
    for start, stop in even_chunks(len(labels), max(1, _BLOCK_WEIGHTS // model.n_features_in_)):
        with single_threaded_blas():
            weights = model.label_weights(labels[start:stop])
        weights = np.ascontiguousarray(weights[:, : weights.shape[1] - model.n_dense_features_in_])
        if not weights.shape[1]:
            yield from ((np.zeros(0, dtype=np.int64), np.zeros(0)) for _ in range(stop - start))
            continue
        features, values = top_k_of_scores(weights, min(top, weights.shape[1]))
        for place in range(stop - start):
            some = int(np.count_nonzero(values[place] > 0))
            yield features[place, :some], values[place, :some]


def nearest_labels(model: MultiLabelModel, label: int, top: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The labels most similar to one label, by the cosine w_j·w_l / (‖w_j‖ ‖w_l‖) of their weights.

    The model must have linear scores, as for :func:`explain_labels`; otherwise an ExplanationError is raised.

    Returns
    -------
    labels : int array
        Most similar first, ties by id; never ``label`` itself, nor one without weights.
    cosines : float array

    Notes
    -----
    Time O(d·L), memory that of a block of weights.
    """
    top = check_integer(top, "top", minimum=1)
    wanted = _checked_label(model, label)
    own = model.label_weights(wanted)[0].astype(np.float64)
    cosines = np.full(model.n_labels_, -np.inf)
    with single_threaded_blas():
        for start, stop in even_chunks(model.n_labels_, max(1, _BLOCK_WEIGHTS // model.n_features_in_)):
            weights = model.label_weights(np.arange(start, stop)).astype(np.float64)
            lengths = np.linalg.norm(weights, axis=1) * np.linalg.norm(own)
            np.divide(weights @ own, lengths, out=cosines[start:stop], where=lengths > 0)
    cosines[wanted] = -np.inf
    order = np.argsort(-cosines, kind="stable")[:top]
    order = order[np.isfinite(cosines[order])]
    return order, cosines[order]


def _checked_label(model: MultiLabelModel, label: Any) -> np.ndarray:
    """An array of the one label id."""
    model.label_weights([])  # raises if the model is not fitted or has no weights
    number = check_integer(label, "label", minimum=0)
    if number >= model.n_labels_:
        raise InvalidInputError(f"label must be below {model.n_labels_:,}, the number of labels; found {number}.")
    return np.array([number])


def _checked_labels(labels: Any, n_rows: int, n_labels: int) -> np.ndarray:
    array = np.asarray(labels)
    if array.dtype.kind not in "iu":
        raise InvalidTypeError(f"labels must hold label ids as integers; found entries of type {array.dtype}.")
    if array.ndim != 2 or array.shape[0] != n_rows:
        raise InvalidInputError(
            f"labels must have one row of label ids for each of the {n_rows:,} rows of X; found shape {array.shape}."
        )
    if array.size and (array.min() < -1 or array.max() >= n_labels):
        raise InvalidInputError(f"labels must hold ids from 0 to {n_labels - 1:,}, or -1 for none.")
    return array.astype(np.int64)
