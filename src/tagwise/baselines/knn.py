"""k nearest neighbours: a row gets the labels of the training rows that are most like it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.baselines.listed_score_model import ListedScoreModel
from tagwise.baselines.neighbour_labels import (
    OFF,
    SearchableRows,
    centre_votes,
    check_label_rows,
    sum_neighbour_labels,
)
from tagwise.parallel import thread_count
from tagwise.persistence.array_checks import require_finite_floats
from tagwise.progress import FitProgress
from tagwise.validation import check_integer, check_real

__all__ = ["KNN", "StoredRows", "vote_weights"]


def vote_weights(cosines: np.ndarray, power: float) -> np.ndarray:
    """max(0, cosine)^power of each neighbour (m, k), divided by the row's sum; equal where that is 0."""
    weights = np.maximum(cosines, 0).astype(np.float64) ** power
    totals = weights.sum(axis=1, keepdims=True)
    equal = np.full_like(weights, 1 / max(1, weights.shape[1]))
    return np.where(totals > 0, weights / np.where(totals > 0, totals, 1), equal)


class StoredRows(ListedScoreModel):
    """Keeps the training rows and their labels: ``rows_`` (inverted index d×n, or array n×d) and ``labels_``."""

    _saved_arrays: ClassVar[tuple[str, ...]] = ("rows_", "labels_")

    rows_: sp.csr_matrix | np.ndarray
    labels_: sp.csr_matrix

    def _store(self, rows: sp.csr_matrix | np.ndarray, Y: sp.csr_matrix) -> SearchableRows:
        self.rows_, self.labels_ = SearchableRows.stored_form(rows), Y
        return self._search()

    def _search(self) -> SearchableRows:
        return SearchableRows(self.rows_, by_cosine=self.normalize)

    def _width(self) -> int:
        """How many numbers a stored row has."""
        return int(self.n_features_in_)

    def _check_restored(self) -> None:
        rows = self.rows_
        if rows.ndim != 2:
            raise ValueError(f"rows_ must be a matrix; found {rows.ndim} dimensions")
        width, n_rows = rows.shape[::-1] if isinstance(rows, np.ndarray) else rows.shape
        if width != self._width() or n_rows < 1:
            raise ValueError(f"rows_ of shape {rows.shape} where rows of {self._width()} numbers are expected")
        require_finite_floats(rows_=rows)
        check_label_rows(self.labels_, n_rows, self.n_labels_)


class KNN(StoredRows):
    r"""A label's score is the share of the k nearest training rows that have it, weighted by their cosine.

    With N(x) the k training rows nearest to x,

    .. math:: s_j(x) = \frac{\sum_{i\in N(x)} w_i\,Y_{ij}}{\sum_{i\in N(x)} w_i} - \tfrac12, \qquad
              w_i = \max(0, \cos(x, x_i))^p .

    A label is on when at least half of the votes are for it (shares within 1e-12 of ½ are half). Where no neighbour has
    a positive weight, all votes count the same. Rows of equal distance are taken in the order of their ids.

    Parameters
    ----------
    n_neighbors : int
        k; all rows where there are fewer.
    similarity_power : float
        p ≥ 0. 0 is the plain vote.
    normalize : bool
        Compare rows by their cosine. False: by Euclidean distance (weights are cosines all the same).
    n_jobs : int or None
        Threads, as in joblib. The result is bit-identical for every number.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    rows_ : CSR (d, n) or array (n, d)
        The training rows, scaled as they are compared: as inverted index where X was sparse.
    labels_ : CSR (n, L)
        Their labels.
    objective_, history_, n_iter_
        There is nothing to optimise: one step of objective 0.

    Notes
    -----
    The defaults are a compromise of what was best on a fifth of the training rows, held out, of bibtex and delicious
    (k from 5 to 200, p from 0 to 6). The model is as large as its training data. A prediction costs one addition for
    every training entry that shares a feature with the row, and memory for the votes: n×L is never allocated. Unknown
    labels have no meaning here, so ``observed`` is refused.

    The vote of the k nearest neighbours goes back to Fix and Hodges (1951); as a baseline for very many labels it
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
        check_real(self.similarity_power, "similarity_power", minimum=0)

    def _fit(
        self, X: sp.csr_matrix | np.ndarray, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress
    ) -> None:
        self._store(self._prepared(X), Y)
        progress.step(0.0)

    def _listed_scores(self, X: sp.csr_matrix | np.ndarray) -> sp.csr_matrix:
        threads, search = thread_count(self.n_jobs), self._search()
        k = min(self.n_neighbors, search.n_rows)
        ids, cosines = search.nearest(self._prepared(X), k, n_threads=threads)
        weights = vote_weights(cosines, self.similarity_power)
        return centre_votes(sum_neighbour_labels(ids, weights, self.labels_, threads))

    def _base_scores(self) -> np.ndarray:
        return np.full(self.n_labels_, OFF, dtype=self.rows_.dtype)
