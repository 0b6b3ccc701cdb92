"""WSABIE: rows and labels embedded in one space by stochastic descent on a ranking loss."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.estimator import OVERFLOW
from tagwise.exceptions import InvalidInputError
from tagwise.fields import Fields, dense
from tagwise.kernels import csr_matmul, sampled_product, top_k_of_factors
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.kernels.warp import WarpFactors, WarpSteps, warp_pass
from tagwise.losses import sigmoid
from tagwise.models.factor_model import FactorModel, factors
from tagwise.parallel import even_chunks, run_chunks, thread_count
from tagwise.parameters import Count, Positive, Seed, parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.validation import canonical_csr

__all__ = ["WSABIE"]

# The border between off and on is chosen on at most this many rows and at least this many labels per row: choosing it
# must not cost more than learning.
_BORDER_ROWS = 10_000
_LEAST_LABELS = 10
# Of the largest score: how far the border lies below all scores, where all of them are to be on.
_BELOW_ALL = 1e-4
# The mean length of factors at the start.
_START_LENGTH = 0.5


_DESCENT = Fields(
    W=dense("d", "k", meaning="W, with w₀ as its last row."),
    H=dense("L", "k", meaning="H."),
    W_squares=dense("d", numbers="float64", meaning="Sums of squared gradients of the rows of W."),
    H_squares=dense("L", numbers="float64", meaning="Sums of squared gradients of the rows of H."),
)
"""A descent under way, as a checkpoint holds it."""


@parameters
class WSABIE(FactorModel):
    r"""Low-rank scores learnt by ranking each label of a row above the labels it lacks.

    The score of label j is :math:`f_j(x) = (x^\top W + w_0) h_j` with W (d×k), w₀ (k) and H (L×k). Minimizes over the
    positives of all rows

    .. math:: \sum_{(i,j):\,Y_{ij}=1} \Phi\bigl(\mathrm{rank}_j(x_i)\bigr), \quad
       \Phi(r) = \sum_{s=1}^{r} \tfrac1s, \quad
       \mathrm{rank}_j(x_i) = \bigl|\{j' : Y_{ij'}=0,\ f_{j'}(x_i) > f_j(x_i) - 1\}\bigr|

    with :math:`\|w_f\|, \|h_j\| \le C` for every feature and label: the weighted approximate-rank pairwise (WARP) loss,
    which weighs the top of the ranking most.

    Parameters
    ----------
    rank : int
        k.
    learning_rate : float
        The length of the first steps; it falls linearly to 0 over ``max_iter`` passes.
    max_iter : int
        Passes over the rows; there is no other stopping rule.
    max_norm : float
        C.
    max_trials : int
        At most this many draws in search of a negative that violates the margin of a positive.
    deterministic : bool
        True: one thread learns, and a seed gives one model. False: ``n_jobs`` threads update shared factors without
        locks, which is faster and gives a slightly different model every time.
    n_jobs : int or None
        Threads, as in joblib: for prediction, and for learning with ``deterministic=False``.

    Attributes
    ----------
    objective_ : array (passes,)
        The mean estimated loss per positive in each pass.

    Notes
    -----
    For each row in random order: embed it; for each of its labels draw negatives uniformly until one, after N draws,
    scores above the label minus 1; estimate the rank as ⌊(L − labels of the row) / N⌋ and step along the gradient of
    Φ(rank)·(1 − f_j + f_j'); project back onto the balls. A pass costs O((nnz(X) + T·nnz(Y))·k) with T the mean number
    of draws; memory is O((d + L)·k) and the data.

    Deviations: the labels of a row share one embedding, and W moves once per row, not once per label; steps are divided
    by the root of each feature's and label's sum of squared gradients (Adagrad); draws end after ``max_trials``; w₀, a
    constant feature, lets frequent labels rank above rare ones where the features say nothing.

    References
    ----------
    Weston, Bengio, Usunier, "Large scale image annotation: learning to rank with joint word-image embeddings", Machine
    Learning 81, 2010; "WSABIE: scaling up to large vocabulary image annotation", IJCAI 2011.
    """

    fields: ClassVar[Fields] = factors(
        intercept="H w₀ − t. WSABIE only ranks; the border t between off and on, one for all labels, is the one with "
        "the best micro-F1 on (at most 10,000 of) the training rows."
    )

    rank: Count = 100
    learning_rate: Positive = 0.03
    max_iter: Count = 30
    max_norm: Positive = 10.0
    max_trials: Count = 100
    deterministic: bool = True
    _: KW_ONLY
    normalize: bool = True
    n_jobs: int | None = None
    random_state: Seed = 0
    verbose: int = 0

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        rows = canonical_csr(self._prepared(X))
        # Steps are scaled by the squares of embedded rows, which must be finite.
        if rows.nnz and np.abs(rows.data).max() > np.sqrt(np.finfo(X.dtype).max):
            raise InvalidInputError(OVERFLOW)
        rng = random_generator(self.random_state)
        scale = _START_LENGTH / np.sqrt(self.rank)
        sizes = (X.shape[1] + 1, Y.shape[1])
        W, H = ((rng.standard_normal((size, self.rank)) * scale).astype(X.dtype) for size in sizes)
        if Y.nnz == 0:
            H[:] = 0
        start = WarpFactors(W, H, np.zeros(len(W)), np.zeros(len(H)))
        W, H = self._descend(rows, Y, start, rng, progress)
        if not (np.isfinite(W).all() and np.isfinite(H).all()):
            raise InvalidInputError(OVERFLOW)
        self.feature_factors_, self.label_factors_ = W[:-1].copy(), H
        intercept = H @ W[-1]
        self.intercept_ = (intercept - self._border(rows, Y, intercept)).astype(X.dtype)

    def _descend(
        self, X: sp.csr_matrix, Y: sp.csr_matrix, factors: WarpFactors, rng: np.random.Generator, progress: FitProgress
    ) -> tuple[np.ndarray, np.ndarray]:
        """W (with w₀ as its last row) and H after the last pass."""
        n_rows = X.shape[0]
        seed = int(rng.integers(2**31))
        (d, k), n_labels = factors.W.shape, len(factors.H)
        kept = progress.resume(_DESCENT, X.dtype, d=d, k=k, L=n_labels)
        if kept is not None:
            factors = WarpFactors(**kept)
        rank_loss = np.concatenate([[0], np.cumsum(1 / np.arange(1, n_labels + 1))])
        shards = 1 if self.deterministic else thread_count(self.n_jobs)
        chunks = even_chunks(n_rows, -(-n_rows // shards))
        for iteration in range(self.max_iter):
            order = rng.permutation(n_rows)
            if iteration < len(progress.history):  # a pass of an earlier run
                continue
            rate = self.learning_rate * (1 - iteration / self.max_iter)
            steps = WarpSteps(rank_loss, rate, float(self.max_norm), self.max_trials)

            def learn(start: int, stop: int) -> tuple[float, int]:
                features, labels = (X.indptr, X.indices, X.data), (Y.indptr, Y.indices)
                number = iteration * n_rows + start  # noqa: B023 - all of these are used before the loop goes on
                return warp_pass(features, labels, order[start:stop], factors, steps, seed, number)  # noqa: B023

            losses, visits = zip(*run_chunks(learn, chunks, shards))
            progress.keep(**factors._asdict())
            if progress.step(sum(losses) / max(1, sum(visits))):
                break
        return factors.W, factors.H

    def probabilities_of(self, scores: np.ndarray) -> np.ndarray:
        """1 / (1 + e^{−s})."""
        return sigmoid(scores)

    def pair_scores(self, rows: sp.csr_matrix, pairs: sp.csr_matrix, *, n_threads: int) -> np.ndarray:
        """Scores of the stored ``pairs`` (n×L), in storage order, of rows as :meth:`scored_rows` returns them."""
        embedded = csr_matmul(rows, self.feature_factors_, n_threads=n_threads)
        scores = sampled_product(pairs, embedded, self.label_factors_, n_threads=n_threads)
        return scores + self.intercept_[pairs.indices]

    def _border(self, X: sp.csr_matrix, Y: sp.csr_matrix, intercept: np.ndarray) -> float:
        """The score with the best micro-F1 on the training rows if labels at or above it are on."""
        every = -(-X.shape[0] // _BORDER_ROWS)
        X, Y = X[::every], Y[::every]
        if Y.nnz == 0:
            return 1.0
        k = min(Y.shape[1], max(_LEAST_LABELS, 2 * int(np.diff(Y.indptr).max())))
        threads = thread_count(self.n_jobs)
        embedded = csr_matmul(X, self.feature_factors_, n_threads=threads)
        labels, scores = top_k_of_factors(embedded, self.label_factors_, k, intercept=intercept, n_threads=threads)
        on = contains_pairs(Y, labels).ravel()
        order = np.argsort(-scores.ravel(), kind="stable")
        ranked = scores.ravel()[order]
        hits = np.cumsum(on[order])
        best = int(np.argmax(2 * hits / (np.arange(1, len(hits) + 1) + Y.nnz)))
        lower = ranked[ranked < ranked[best]]
        # Where nothing is below, the border is so far below that rounding cannot switch off what is right at it.
        below = lower[0] if len(lower) else ranked[best] - _BELOW_ALL * max(1.0, abs(ranked[0]), abs(ranked[best]))
        return float(0.5 * (ranked[best] + below))
