"""ML-kNN: neighbors' votes, turned into probabilities per label (Zhang & Zhou, Pattern Recognition 40, 2007)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.baselines.neighbor_votes import SearchableRows, StoredRows, sum_neighbor_labels
from tagwise.fields import Fields, dense
from tagwise.parallel import even_chunks, thread_count
from tagwise.parameters import Count, Positive, parameters
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.validation import Features

__all__ = ["MLKNN"]

# Training rows whose neighbors are searched at a time.
_BLOCK_ROWS = 4096


@parameters
class MLKNN(StoredRows):
    r"""Neighbors' votes as evidence: how likely a label is when so many of the k neighbors have it.

    With C_j(x) the number of x's k nearest training rows that have label j, the score is the log odds

    .. math:: s_j(x) = \log\frac{P(H_j=1)\,P(C_j = C_j(x)\mid H_j=1)}{P(H_j=0)\,P(C_j = C_j(x)\mid H_j=0)} ,

    where H_j says whether the label is on. Both factors are smoothed frequencies over the n training rows, each with
    its k neighbors among the others: with n_j rows of label j, of which c_j[t] have t neighbors with it,

    .. math:: P(H_j=1) = \frac{s + n_j}{2s + n}, \qquad
              P(C_j = t\mid H_j=1) = \frac{s + c_j[t]}{s(k+1) + \sum_u c_j[u]} ,

    and likewise for rows without the label.

    Parameters
    ----------
    n_neighbors : int
        k; all other rows if there are fewer.
    smoothing : float
        s > 0; 1 is Laplace's rule.
    normalize : bool
        Compare rows by their cosine. False: by Euclidean distance, as published.

    Attributes
    ----------
    objective_ : array (rounds,)
        One step: the mean of −log P(Y_ij | its neighbors) over the training rows.

    Notes
    -----
    Training searches the k neighbors of all rows: one addition per pair of entries with one feature, memory for a block
    of 4,096 rows. The model is as large as its training data and L·(k+1) numbers.

    Deviations: scores are log odds, which rank and decide as the published posterior does; a tie of both hypotheses is
    on; neighbors are compared by cosine unless ``normalize=False``, ties by id.
    """

    fields: ClassVar[Fields] = StoredRows.fields | Fields(
        log_odds_=dense("L", "v", meaning="s_j for 0, …, k votes: the first where no neighbor has the label.")
    )

    n_neighbors: Count = 10
    smoothing: Positive = 1.0

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        rows = self._compared(X)
        search = self._store(rows, Y)
        n_rows, n_labels = Y.shape
        k = min(self.n_neighbors, n_rows - 1)
        # Per label and number of votes, the training rows that have the label and all of them.
        on, every = np.zeros((n_labels, k + 1), dtype=np.int64), np.zeros((n_labels, k + 1), dtype=np.int64)
        for start, stop in even_chunks(n_rows, _BLOCK_ROWS):
            votes = self._votes(search, rows[start:stop], k, own_from=start)
            on += _rows_by_votes(votes.multiply(Y[start:stop]), k)
            every += _rows_by_votes(votes, k)
        # Rows without a vote are the rest.
        on[:, 0] = np.bincount(Y.indices, minlength=n_labels) - on[:, 1:].sum(axis=1)
        every[:, 0] = n_rows - every[:, 1:].sum(axis=1)
        off = every - on
        log_odds = _log_odds(on, off, self.smoothing)
        loss = float(np.sum(on * np.logaddexp(0, -log_odds)) + np.sum(off * np.logaddexp(0, log_odds)))
        progress.step(loss / (n_rows * n_labels))
        self.log_odds_ = log_odds.astype(rows.dtype)

    def _votes(self, search: SearchableRows, rows: Features, k: int, own_from: int | None = None) -> sp.csr_matrix:
        """Number of the k neighbors of each row that have a label, CSR (m, L)."""
        if k == 0:
            return sp.csr_matrix((rows.shape[0], self.labels_.shape[1]))
        threads = thread_count(self.n_jobs)
        ids, _ = search.nearest(rows, k, own_from=own_from, n_threads=threads)
        return sum_neighbor_labels(ids, np.ones(ids.shape), self.labels_, threads)

    def _sparse_scores(self, X: Features) -> sp.csr_matrix:
        votes = self._votes(self._search(), self._compared(X), self.log_odds_.shape[1] - 1)
        votes.data = self.log_odds_[votes.indices, votes.data.astype(np.int64)]
        return votes

    def _base_scores(self) -> np.ndarray:
        return np.ascontiguousarray(self.log_odds_[:, 0])

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if not 1 <= self.log_odds_.shape[1] <= self.labels_.shape[0]:
            raise ValueError(f"log_odds_ has {self.log_odds_.shape[1]} columns for {self.labels_.shape[0]} rows")


def _rows_by_votes(votes: sp.spmatrix, k: int) -> np.ndarray:
    """Per label, how many rows have 1, …, k votes (L, k+1), from votes (m, L); column 0 is 0."""
    votes = sp.csr_matrix(votes)
    cells = votes.indices.astype(np.int64) * (k + 1) + votes.data.astype(np.int64)
    return np.bincount(cells, minlength=votes.shape[1] * (k + 1)).reshape(-1, k + 1)


def _log_odds(on: np.ndarray, off: np.ndarray, smoothing: float) -> np.ndarray:
    """Log P(on | votes) − log P(off | votes) from the rows with and without each label by number of votes (L, k+1)."""
    positives, negatives = on.sum(axis=1), off.sum(axis=1)
    prior_on = (smoothing + positives) / (2 * smoothing + positives + negatives)
    likelihood_on, likelihood_off = (
        (smoothing + counts) / (smoothing * counts.shape[1] + counts.sum(axis=1, keepdims=True)) for counts in (on, off)
    )
    odds = np.log(prior_on) - np.log1p(-prior_on)
    return np.asarray(odds[:, None] + np.log(likelihood_on) - np.log(likelihood_off))
