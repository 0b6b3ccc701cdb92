"""LPSR: only the labels of a row's part of the feature space are scored."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from tagwise.answers import finite_scores
from tagwise.baselines.sparse_score_model import SparseScoreModel
from tagwise.baselines.wsabie import WSABIE
from tagwise.fields import Fields, csr, dense, inner
from tagwise.kernels import csr_matmul, unit_rows
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.losses import sigmoid
from tagwise.models.binary_relevance import BinaryRelevance
from tagwise.models.factor_model import LOWEST_SCORE
from tagwise.parallel import even_chunks, run_chunks, thread_count
from tagwise.parameters import Count, Positive, Seed, parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.solvers.spherical_k_means import spherical_k_means
from tagwise.validation import Features, canonical_csr

__all__ = ["LPSR", "choose_labels", "relaxed_precision"]

# Labels of the base scorer's ranking of a training row that are considered, and the k of precision at k.
_RANKED = 100
_K = 5
# Rows ranked at a time: some megabytes of labels and scores.
_ROWS_RANKED = 2048
_KMEANS_ROUNDS = 30
# Rows that the base scorer gets wrong hardly shape the partitions, yet belong to one.
_LEAST_WEIGHT = 0.1
_ASSIGNMENT_ROUNDS = 20
_BLOCK_ROWS = 512


@parameters
class LPSR(SparseScoreModel):
    r"""Label partitioning for sublinear ranking: a base scorer that scores only a few labels per row.

    The feature space is split into P partitions around centers c_p. Each has a set of at most C labels; a row is scored
    by the base scorer on the labels of its nearest partitions, and all other labels rank last. The labels of a
    partition maximize a relaxed precision at 5 of its training rows (:func:`relaxed_precision`).

    Parameters
    ----------
    base : {"squared", "squared_hinge", "hinge", "logistic", "wsabie"}
        The base scorer: :class:`tagwise.BinaryRelevance` with that loss, or :class:`tagwise.baselines.WSABIE`, whose
        factors are small where features and labels are many.
    n_partitions : int
        P, at most the number of rows.
    labels_per_partition : int
        C.
    n_visited : int
        Number of its nearest partitions that a row is scored on.
    reg : float
        λ of the base scorer (all but "wsabie").
    rank : int
        Of the base scorer "wsabie".

    Attributes
    ----------
    objective_, history_ : array (2,), list of dict
        After the base scorer its own last objective; after the partitions the mean relaxed precision that the chosen
        labels miss on the training rows. ``stage`` in the history is "base" or "partitions".

    Notes
    -----
    Steps: fit the base scorer; rank the labels of the training rows with it; cluster the rows by weighted spherical
    k-means, each weighted by its precision under the base scorer; choose the labels of each partition. A label in no
    visited partition scores −10³⁰. A callback that stops the fit after the base scorer leaves one partition with the C
    most frequent labels.

    Beside the base scorer, training costs O(nnz(X)·P) per round of k-means and O(n·T), T = 100; prediction costs
    O(nnz(x)·(P + C)) per row, whatever the number of labels. Memory is that of the base scorer (d·L numbers unless
    "wsabie"; BinaryRelevance refuses what exceeds 4 GiB) and P·d numbers.

    Deviations: flat clusters by direction, not a hierarchy; rankings are cut after T labels; the assignment is solved
    by rounding linearized steps from the most frequent labels on, not by stochastic gradients; every true label of a
    row weighs the same. The defaults are too small for tens of thousands of labels (docs/notes/baselines.md).

    References
    ----------
    Weston, Makadia, Yee, "Label partitioning for sublinear ranking", ICML 2013.
    """

    fields: ClassVar[Fields] = Fields(
        centers_=dense("P", "d", meaning="Centers of the partitions."),
        partition_labels_=csr("P", "L", numbers="ones", meaning="Labels of each partition."),
        scorer_=inner("BinaryRelevance", "WSABIE", meaning="The fitted base scorer."),
    )

    base_score = LOWEST_SCORE

    base: Literal["squared", "squared_hinge", "hinge", "logistic", "wsabie"] = "squared"
    n_partitions: Count = 100
    labels_per_partition: Count = 100
    n_visited: Count = 3
    reg: Positive = 1.0
    rank: Count = 100
    random_state: Seed = 0

    def _iterations(self) -> int:
        return 2

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        rng, threads = random_generator(self.random_state), thread_count(self.n_jobs)
        self.scorer_: BinaryRelevance | WSABIE = self._base_scorer(int(rng.integers(2**31))).fit(X, Y)
        if progress.step(float(self.scorer_.objective_[-1]), stage="base"):
            counts = np.bincount(Y.indices, minlength=Y.shape[1])
            names = np.argsort(-counts, kind="stable")[: min(self.labels_per_partition, np.count_nonzero(counts))]
            self._keep(np.zeros((1, X.shape[1])), [np.sort(names)], X.dtype)
            return
        shape = X.shape[0], min(_RANKED, Y.shape[1])
        ranked, relevant = np.empty(shape, dtype=np.int32), np.empty(shape, dtype=bool)
        for start, stop in even_chunks(X.shape[0], _ROWS_RANKED):
            labels, _ = self.scorer_.predict_topk(X[start:stop], shape[1])
            ranked[start:stop], relevant[start:stop] = labels, contains_pairs(Y[start:stop], labels)
        # The precision of each row at k, or at its number of labels if that is smaller.
        sizes = np.minimum(np.diff(Y.indptr), _K)
        counted = relevant[:, :_K] & (np.arange(relevant[:, :_K].shape[1]) < sizes[:, None])
        clusters = spherical_k_means(
            canonical_csr(unit_rows(X, n_threads=threads)),
            min(self.n_partitions, X.shape[0]),
            rng=rng,
            max_iter=_KMEANS_ROUNDS,
            weights=np.maximum(counted.sum(axis=1) / np.maximum(sizes, 1), _LEAST_WEIGHT),
            n_threads=threads,
        )
        order = np.argsort(clusters.assignment, kind="stable")
        borders = np.searchsorted(clusters.assignment[order], np.arange(len(clusters.centers) + 1))

        def part(first: int, _: int) -> tuple[np.ndarray, float]:
            members = order[borders[first] : borders[first + 1]]
            return choose_labels(ranked[members], relevant[members], Y.shape[1], self.labels_per_partition, k=_K)

        parts = [(first, first + 1) for first in range(len(clusters.centers))]
        chosen = run_chunks(part, parts, threads)
        self._keep(clusters.centers, [names for names, _ in chosen], X.dtype)
        n_labelled = max(1, int((np.diff(Y.indptr) > 0).sum()))
        progress.step(1 - sum(value for _, value in chosen) / n_labelled, stage="partitions")

    def _base_scorer(self, seed: int) -> BinaryRelevance | WSABIE:
        shared: dict[str, Any] = {"normalize": self.normalize, "n_jobs": self.n_jobs}
        if self.base == "wsabie":
            return WSABIE(rank=self.rank, random_state=seed, **shared)
        return BinaryRelevance(loss=self.base, reg=self.reg, **shared)

    def _keep(self, centers: np.ndarray, labels: list[np.ndarray], dtype: np.dtype) -> None:
        """Partitions from their centers (P×d) and the labels of each, in ascending order."""
        self.centers_ = centers.astype(dtype)
        indptr = np.cumsum([0, *map(len, labels)])
        names = np.concatenate(labels).astype(np.int32)
        ones = np.ones(len(names), dtype=dtype)
        self.partition_labels_ = sp.csr_matrix((ones, names, indptr), shape=(len(labels), self.n_labels_))

    def _sparse_scores(self, X: Features) -> sp.csr_matrix:
        rows, threads = canonical_csr(self._prepared(X)), thread_count(self.n_jobs)
        count = min(self.n_visited, len(self.centers_))
        nearness = csr_matmul(rows, np.ascontiguousarray(self.centers_.T), n_threads=threads)
        parts = np.argsort(-finite_scores(nearness), axis=1, kind="stable")[:, :count]
        visited = (np.ones(parts.size, dtype=np.float32), parts.ravel(), np.arange(rows.shape[0] + 1) * count)
        candidates = sp.csr_matrix(sp.csr_matrix(visited, shape=nearness.shape) @ self.partition_labels_)
        scores = self.scorer_.pair_scores(rows, candidates, n_threads=threads)
        return sp.csr_matrix((scores, candidates.indices, candidates.indptr), shape=candidates.shape)

    def probabilities_of(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities as the base scorer has them."""
        return self.scorer_.probabilities_of(scores)

    def _check_fitted(self) -> None:
        if isinstance(self.scorer_, WSABIE) != (self.base == "wsabie"):
            raise ValueError(f"scorer_ is a {type(self.scorer_).__name__}, and base {self.base!r}")
        if not len(self.centers_):
            raise ValueError("centers_ must have a partition")


def relaxed_precision(chosen: np.ndarray, ranked: np.ndarray, relevant: np.ndarray, k: int) -> tuple[float, np.ndarray]:
    r"""The objective of Weston et al. for precision at the top, and its gradient.

    .. math:: F(\alpha) = \sum_t \frac{1}{|y_t|} \sum_{y\in y_t} \alpha_y \Bigl(1 - \Phi\bigl(
              \textstyle\sum_{i\in R_{t,y}} \alpha_i\bigr)\Bigr), \qquad \Phi(r) = \frac{1}{1 + e^{k - 1/2 - r}}

    with R_{t,y} the labels that row t lacks and the base scorer ranks above y: about the share of true labels that are
    chosen and have fewer than k chosen wrong labels above them. ``chosen`` is α (L), 0 to 1; ``ranked`` (m×T) are the
    labels of each row as the base scorer ranks them, −1 where there are no more; ``relevant`` (m×T) says whether the
    row has them. Time O(m·T), memory O(L) and a few arrays of 512×T.
    """
    value, gradient = 0.0, np.zeros(len(chosen))
    for start, stop in even_chunks(len(ranked), _BLOCK_ROWS):
        labels, true = ranked[start:stop], relevant[start:stop]
        held = labels >= 0
        alpha = np.where(held, chosen[labels], 0.0)
        wrong = np.where(true, 0.0, alpha)
        above = np.cumsum(wrong, axis=1) - wrong
        late = sigmoid(above - (k - 0.5))
        share = true / np.maximum(true.sum(axis=1, keepdims=True), 1)
        gain = share * (1 - late)
        # A wrong label lowers the terms of all true labels behind it.
        harm = share * alpha * late * (1 - late)
        behind = harm[:, ::-1].cumsum(axis=1)[:, ::-1] - harm
        slope = np.where(true, gain, -behind)
        value += float((gain * alpha).sum())
        gradient += np.bincount(labels[held], weights=slope[held], minlength=len(chosen))
    return value, gradient


def choose_labels(
    ranked: np.ndarray, relevant: np.ndarray, n_labels: int, max_labels: int, *, k: int
) -> tuple[np.ndarray, float]:
    """At most ``max_labels`` labels with a large :func:`relaxed_precision`, in ascending order, and its value.

    Starts from the most frequent labels (each row counting once over its labels), then takes the best labels of the
    linearized objective as long as that helps. Only labels that some row has are taken.
    """
    held = relevant & (ranked >= 0)
    sizes = held.sum(axis=1)
    counts = np.bincount(ranked[held], weights=np.repeat(1 / np.maximum(sizes, 1), sizes), minlength=n_labels)
    gradient = counts
    best, best_value = np.empty(0, dtype=np.int64), 0.0
    for _ in range(_ASSIGNMENT_ROUNDS):
        order = np.lexsort((np.arange(n_labels), -counts, -gradient))
        picked = order[counts[order] > 0][:max_labels]
        chosen = np.zeros(n_labels)
        chosen[picked] = 1.0
        value, gradient = relaxed_precision(chosen, ranked, relevant, k)
        if value <= best_value:
            break
        best, best_value = np.sort(picked), value
    return best, best_value
