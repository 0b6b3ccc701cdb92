"""The k best labels of each row, from what peers answer with. Needs only numpy and scipy."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

LOWEST = -np.inf


def of_dense_scores(scores: np.ndarray, k: int) -> np.ndarray:
    """Of all scores (rows, L): label numbers (rows, k), best first; a score of -inf is no answer."""
    places = min(k, scores.shape[1])
    best = np.argpartition(-scores, places - 1, axis=1)[:, :places]
    values = np.take_along_axis(scores, best, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    best, values = np.take_along_axis(best, order, axis=1), np.take_along_axis(values, order, axis=1)
    return _filled(np.where(values > LOWEST, best, -1), k)


def of_sparse_scores(scores: sp.csr_matrix, k: int) -> np.ndarray:
    """Of the scores that are stored (rows, L): label numbers (rows, k), best first, -1 where a row has fewer."""
    scores = sp.csr_matrix(scores)
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, rows))
    place = np.arange(len(rows)) - scores.indptr[rows]
    kept = place < k
    labels = np.full((scores.shape[0], k), -1, dtype=np.int64)
    labels[rows[kept], place[kept]] = scores.indices[order][kept]
    return labels


def of_pairs(rows: list[list[tuple[int, float]]], k: int) -> np.ndarray:
    """Of a list of (label, score) a row, in any order: label numbers (rows, k), best first, -1 = none."""
    labels = np.full((len(rows), k), -1, dtype=np.int64)
    for row, pairs in enumerate(rows):
        best = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:k]
        labels[row, : len(best)] = [label for label, _ in best]
    return labels


def _filled(labels: np.ndarray, k: int) -> np.ndarray:
    missing = k - labels.shape[1]
    return labels if missing == 0 else np.pad(labels, ((0, 0), (0, missing)), constant_values=-1)
