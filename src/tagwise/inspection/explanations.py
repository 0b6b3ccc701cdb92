r"""Why a label: the exact share of every feature in a linear score.

The score of label j for a row x is :math:`s_j(x) = \sum_f x_f w_{jf} + b_j`, with :math:`w_j = W h_j + s_j` for a model
of low rank and a sparse part. The products :math:`x_f w_{jf}` are what the features contribute; with the intercept
:math:`b_j` they add up to the score of ``decision_function``, but for rounding. Where the model scales rows to unit
length, x is the scaled row. Scores are centred, so that 0 is the border between off and on: under squared loss,
:math:`b_j` holds the −½ that does so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.base import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.models.factor_model import unit_rows
from tagwise.parallel import even_chunks, single_threaded_blas, thread_count
from tagwise.validation import canonical_csr, check_integer

__all__ = ["Explanations", "explain_labels", "heaviest_features"]

# Weights of one block of labels, whatever the number of features: 4 million numbers, 16 MB as float32.
_BLOCK_WEIGHTS = 1 << 22


@dataclass(frozen=True, eq=False)
class Explanations:
    """Contributions of features to scores, for each of n rows and k labels of it.

    Attributes
    ----------
    contributions : CSR (n·k, d), float64
        Row ``i·k + p`` belongs to row i and its label at place p, and stores one number for each feature that is
        stored in row i. Empty where there is no label (−1).
    intercepts : float64 array (n, k)
        What the score is without any feature; 0 where there is no label.
    explained : str
        What contributions and intercept add up to, in words: "the score", unless the model says otherwise.
    """

    contributions: sp.csr_matrix
    intercepts: np.ndarray
    explained: str

    def of(self, row: int, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Feature ids and contributions of one pair, the largest in size first, equal ones by id."""
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
    """What each feature of each row contributes to the scores of some labels of the row.

    Parameters
    ----------
    model : fitted model
        With linear scores: LEML without a kernel, REML, BinaryRelevance, PLST, CPLST, MLCSSP, WSABIE; or with a linear
        margin that decides: Cascade.
    X : CSR or array (n, d)
    labels : int array (n, k)
        Labels of each row, as ``predict_topk`` gives them; −1 for none.

    Returns
    -------
    Explanations

    Raises
    ------
    ExplanationError
        The model's scores are no sum of one part a feature.

    Notes
    -----
    Time O(nnz(X)·k), and for each of the different labels its d weights, once. Memory O(nnz(X)·k) and a block of
    weights.
    """
    rows = canonical_csr(_rows_as_read(model, X))
    pairs = _checked_labels(labels, rows.shape[0], model.n_labels_)
    wanted = np.unique(pairs[pairs >= 0])
    model._label_weights(wanted[:1])  # raises, where there are none, before anything is built
    n_rows, per_row = pairs.shape
    flat = pairs.ravel()
    owner = np.repeat(np.arange(n_rows), per_row)
    sizes = np.where(flat >= 0, np.diff(rows.indptr)[owner], 0)
    indptr = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    # Where the entries of each pair lie among those of X.
    source = np.arange(indptr[-1]) + np.repeat(rows.indptr[owner] - indptr[:-1], sizes)
    indices = rows.indices[source]
    data = np.empty(len(source))
    intercepts = np.zeros(len(flat))
    label_of_entry = np.repeat(flat, sizes)
    with single_threaded_blas():
        for start, stop in even_chunks(len(wanted), max(1, _BLOCK_WEIGHTS // rows.shape[1])):
            block = wanted[start:stop]
            weights = _dense_weights(model, block)
            entries = np.flatnonzero((label_of_entry >= block[0]) & (label_of_entry <= block[-1]))
            places = np.searchsorted(block, label_of_entry[entries])
            data[entries] = rows.data[source[entries]].astype(np.float64) * weights[places, indices[entries]]
            mine = np.flatnonzero((flat >= block[0]) & (flat <= block[-1]))
            intercepts[mine] = model._label_intercepts(flat[mine])
    contributions = sp.csr_matrix((data, indices, indptr), shape=(len(flat), rows.shape[1]))
    return Explanations(contributions, intercepts.reshape(pairs.shape), model._explained_score)


def heaviest_features(model: MultiLabelModel, label: int, top: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The features with the largest weights of a label, and the weights: what speaks for it most, largest first.

    Features of equal weight come in the order of their ids. Fewer than ``top`` where fewer have a weight above 0.
    """
    top = check_integer(top, "top", minimum=1)
    model._require_fitted()
    wanted = _checked_labels(np.array([[check_integer(label, "label", minimum=0)]]), 1, model.n_labels_)[0]
    weights = _dense_weights(model, wanted)[0]
    order = np.argsort(-weights, kind="stable")[:top]
    order = order[weights[order] > 0]
    return order, weights[order]


def _dense_weights(model: MultiLabelModel, labels: np.ndarray) -> np.ndarray:
    weights = model._label_weights(labels)
    return weights if isinstance(weights, np.ndarray) else weights.toarray()


def _rows_as_read(model: MultiLabelModel, X: Any) -> sp.csr_matrix | np.ndarray:
    features = model._fitted_features(X)
    if not getattr(model, "normalize", False):
        return features
    return unit_rows(features, n_threads=thread_count(model.n_jobs))


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
