"""k nearest neighbors: a row gets the labels of the most similar training rows."""

from __future__ import annotations

import scipy.sparse as sp

from tagwise.baselines.neighbor_votes import OFF, Power, StoredRows, centered_votes, sum_neighbor_labels, vote_weights
from tagwise.parallel import thread_count
from tagwise.parameters import Count, parameters
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.validation import Features

__all__ = ["KNN"]


@parameters
class KNN(StoredRows):
    r"""A label's score is the share of the k nearest training rows that have it, weighted by their cosine.

    With N(x) the k training rows nearest to x,

    .. math:: s_j(x) = \frac{\sum_{i\in N(x)} w_i\,Y_{ij}}{\sum_{i\in N(x)} w_i} - \tfrac12, \qquad
              w_i = \max(0, \cos(x, x_i))^p .

    A label is on when at least half of the votes are for it (shares within 1e-12 of ½ are half). Where no neighbor has
    a positive weight, all votes count the same. Rows at equal distance are taken in the order of their ids.

    Parameters
    ----------
    n_neighbors : int
        k; all rows if there are fewer.
    similarity_power : float
        p, from 0, the plain vote, to 1,000.
    normalize : bool
        Compare rows by their cosine. False: by Euclidean distance (weights are still cosines).

    Attributes
    ----------
    objective_ : array (rounds,)
        There is nothing to optimize: one step of objective 0.

    Notes
    -----
    The model is as large as its training data. A prediction costs one addition per training entry that shares a feature
    with the row, and memory for the votes.

    The vote of the k nearest neighbors goes back to Fix and Hodges (1951); as a baseline for very many labels it
    appears in Bhatia et al. (NIPS 2015). Weights are this implementation's choice.
    """

    base_score = OFF

    n_neighbors: Count = 30
    similarity_power: Power = 4.0

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        self._store(self._compared(X), Y)
        progress.step(0.0)

    def _sparse_scores(self, X: Features) -> sp.csr_matrix:
        threads, search = thread_count(self.n_jobs), self._search()
        k = min(self.n_neighbors, search.n_rows)
        ids, cosines = search.nearest(self._compared(X), k, n_threads=threads)
        weights = vote_weights(cosines, self.similarity_power)
        return centered_votes(sum_neighbor_labels(ids, weights, self.labels_, threads))
