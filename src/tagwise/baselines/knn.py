"""k nearest neighbors: a row gets the labels of the most similar training rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.baselines.neighbor_votes import (
    MOST_POWER,
    OFF,
    StoredRows,
    centered_votes,
    sum_neighbor_labels,
    vote_weights,
)
from tagwise.parallel import thread_count
from tagwise.progress import FitProgress
from tagwise.validation import Features, check_integer, check_real

__all__ = ["KNN"]


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
    n_jobs : int or None
        Threads, as in joblib. The result is bit-identical for every number.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    rows_ : CSR (d, n) or array (n, d)
        The training rows as they are compared; an inverted index where X was sparse.
    labels_ : CSR (n, L)
        Their labels.
    objective_, history_, n_iter_
        There is nothing to optimize: one step of objective 0.

    Notes
    -----
    The model is as large as its training data. A prediction costs one addition per training entry that shares a feature
    with the row, and memory for the votes. The method has no notion of unknown labels: ``observed`` is refused.

    The vote of the k nearest neighbors goes back to Fix and Hodges (1951); as a baseline for very many labels it
    appears in Bhatia et al. (NIPS 2015). Weights are this implementation's choice.

    Examples
    --------
    >>> from tagwise.baselines import KNN
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> labels, scores = KNN().fit(data.X_train, data.Y_train).predict_topk(data.X_test, k=3)
    >>> labels.shape == (data.X_test.shape[0], 3)
    True
    """

    def __init__(
        self,
        n_neighbors: int = 30,
        similarity_power: float = 4.0,
        normalize: bool = True,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.similarity_power = similarity_power
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_integer(self.n_neighbors, "n_neighbors", minimum=1)
        check_real(self.similarity_power, "similarity_power", minimum=0, maximum=MOST_POWER)

    def _fit(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress) -> None:
        self._store(self._compared(X), Y)
        progress.step(0.0)

    def _sparse_scores(self, X: Features) -> sp.csr_matrix:
        threads, search = thread_count(self.n_jobs), self._search()
        k = min(self.n_neighbors, search.n_rows)
        ids, cosines = search.nearest(self._compared(X), k, n_threads=threads)
        weights = vote_weights(cosines, self.similarity_power)
        return centered_votes(sum_neighbor_labels(ids, weights, self.labels_, threads))

    def _base_scores(self) -> np.ndarray:
        return np.full(self.n_labels_, OFF, dtype=self.rows_.dtype)
