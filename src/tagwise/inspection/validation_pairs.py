"""The best labels of validation rows, their scores, and which of them are right: the data of a calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.models.factor_model import LOWEST_SCORE
from tagwise.parallel import even_chunks
from tagwise.validation import check_labels, check_observed

__all__ = ["ValidationPairs", "are_listed", "known_ranking"]

# Unknown pairs that are excluded at a time: all labels of a block of rows but the observed ones.
_BLOCK_PAIRS = 1 << 22


@dataclass(frozen=True, eq=False)
class ValidationPairs:
    """Pairs of a row and one of its k best labels: never all n×L.

    Attributes
    ----------
    rows, labels : int64 arrays (P,)
    scores : float64 array (P,)
    on : bool array (P,)
        Whether the row has the label. Unknown pairs are left out.
    true_sizes : int64 array (n,)
        Number of labels that each row is known to have, whether or not among its k best.
    label_sizes : int64 array (L,)
        Number of rows that are known to have each label, whether or not among their k best.
    k : int
    """

    rows: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    on: np.ndarray
    true_sizes: np.ndarray
    label_sizes: np.ndarray
    k: int

    @classmethod
    def of(cls, labels: Any, scores: Any, Y: Any, observed: Any = None) -> ValidationPairs:
        """Pairs from ``predict_topk``'s two arrays (n, k), the true labels (n, L) and the mask of known ones."""
        truth = check_labels(Y)
        ids, values = np.asarray(labels), np.asarray(scores)
        _check_ranking(ids, values, truth.shape)
        listed = are_listed(ids, values)
        if observed is not None:
            mask = check_observed(observed, shape=truth.shape)
            truth = sp.csr_matrix(truth.multiply(mask))
            truth.sort_indices()
            listed &= contains_pairs(mask, ids)
        rows = np.nonzero(listed)[0]
        return cls(
            rows=rows.astype(np.int64),
            labels=ids[listed].astype(np.int64),
            scores=values[listed].astype(np.float64),
            on=contains_pairs(truth, ids)[listed],
            true_sizes=np.diff(truth.indptr).astype(np.int64),
            label_sizes=np.bincount(truth.indices, minlength=truth.shape[1]).astype(np.int64),
            k=ids.shape[1],
        )

    @property
    def n_labels(self) -> int:
        """L."""
        return len(self.label_sizes)


def are_listed(labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Whether each place of a ranking holds a label: not −1, nor an unfitted one, recognised by its minimal score."""
    return np.asarray((labels >= 0) & (scores > LOWEST_SCORE / 2))


def known_ranking(
    model: MultiLabelModel, X: sp.csr_matrix, k: int, observed: sp.csr_matrix | None
) -> tuple[np.ndarray, np.ndarray]:
    """The k best labels of each row among the observed ones, with their scores; block by block."""
    if observed is None:
        return model.predict_topk(X, k)
    labels, scores = [], []
    for start, stop in even_chunks(X.shape[0], max(1, _BLOCK_PAIRS // observed.shape[1])):
        part = observed[start:stop]
        hidden = np.ones(part.shape, dtype=bool)
        hidden[np.repeat(np.arange(stop - start), np.diff(part.indptr)), part.indices] = False
        best, values = model.predict_topk(X[start:stop], k, exclude=sp.csr_matrix(hidden))
        labels.append(best)
        scores.append(values)
    return np.concatenate(labels), np.concatenate(scores)


def _check_ranking(labels: np.ndarray, scores: np.ndarray, shape: tuple[int, int]) -> None:
    if labels.dtype.kind not in "iu" or scores.dtype.kind != "f":
        raise InvalidTypeError(
            "labels and scores must be the arrays of predict_topk, integers and floats; found entries of type "
            f"{labels.dtype} and {scores.dtype}."
        )
    if labels.ndim != 2 or labels.shape != scores.shape or labels.shape[0] != shape[0]:
        raise InvalidInputError(
            f"labels and scores must be the arrays of predict_topk for the {shape[0]:,} rows of Y; found shapes "
            f"{labels.shape} and {scores.shape}."
        )
    if labels.size and (labels.min() < -1 or labels.max() >= shape[1]):
        raise InvalidInputError(f"labels must hold ids from 0 to {shape[1] - 1:,}, or -1 for none.")
    if np.isnan(scores).any():
        raise InvalidInputError("scores hold NaN.")
