"""A round of LEML: the W-step, the H-step, what they need of the features, and when rounds end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from tagwise.base import OVERFLOW
from tagwise.data.splits import split_rows
from tagwise.exceptions import InvalidInputError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.kernels import (
    BlockFeatures,
    CSRWithTranspose,
    DenseFeatures,
    FeatureMatrix,
    feature_matrix,
    sampled_product,
    top_k_of_factors,
    unit_rows,
)
from tagwise.kernels.blocked_csr import N_BLOCKS, BlockedCSR
from tagwise.kernels.products import row_factors, scaled_dense
from tagwise.kernels.vectors import dot_all, dot_rows
from tagwise.losses import Loss
from tagwise.metrics import ndcg_at_k
from tagwise.persistence.fit_state import State, array, count, flag, nested, real, unsaved
from tagwise.problems.labels import TrainingLabels, known_positives, spectral_start
from tagwise.problems.pair_losses import FeatureProblem, LabelProblem, label_side, row_side
from tagwise.problems.squared import (
    LinearScores,
    SquaredFeatureProblem,
    SquaredLabelProblem,
    SquaredTerms,
    with_intercept,
)
from tagwise.solvers.cg import quadratic_step
from tagwise.solvers.tron import tron
from tagwise.validation import Features

__all__ = [
    "Factors",
    "FixedFeatures",
    "LocalRows",
    "Rounds",
    "SquaredAlternation",
    "Steps",
    "TrainingRows",
    "ValidationRows",
    "feature_products",
    "solved_labels",
]

# The k of the nDCG that validation rows are judged by.
_K = 5
# Newton steps of W, and of the labels to a relative gradient, per round: few, as the other half is about to change.
FEATURE_STEPS = 2
LABEL_STEPS = 3
LABEL_TOLERANCE = 0.03
# … and where W stays, so that the labels are to be solved.
SOLVED_STEPS = 100
SOLVED_TOLERANCE = 1e-4
# Squared loss with a mask: up to this rank a k×k system per label is solved; above it, a few steps of conjugate
# gradients on that system are faster and end at the same objective.
DIRECT_RANK = 64
# Rows whose length is within this factor of 1 can be scaled after a product; the products of others might overflow or
# vanish in float32 before the scale sets them right.
_SAFE_LENGTH = 1e12
# A fit may take 1.1 times W + H + XW + 2·n×k. It plans for this much of that sum, less some megabytes: the rest is for
# blocks of some thousand rows, for k×k matrices, and for what the heap loses between arrays.
_PLANNED = 0.95
_UNPLANNED_BYTES = 5_000_000
# Up to this size of n×k few blocks are worth their memory; larger ones would leave holes in the heap.
_FEW_BLOCKS_BYTES = 1 << 25
# Where a transpose and scaled values take no more than this, both are stored, and rounds take half as long.
_STORED_BYTES = 5_000_000


@dataclass
class Factors(State):
    """The variables of the alternation, and A = XW carried along.

    W (d×k), A (n×k), H (L×k), b (L). LEML's names: what REML's paper calls U and Vᵀ are W and H here, and its H is the
    sparse part S.
    """

    W: np.ndarray = array("d", "k")
    A: np.ndarray = unsaved()
    H: np.ndarray = array("L", "k")
    b: np.ndarray = array("L", dtype=np.float64)

    def with_intercept(self) -> np.ndarray:
        """[H, b] (L×(k+1)) in the type of H."""
        return np.column_stack([self.H, self.b]).astype(self.H.dtype)

    def take_labels(self, solution: np.ndarray, *, fit_intercept: bool) -> None:
        """H, and b where there is an intercept, from [H, b]."""
        self.H = np.ascontiguousarray(solution[:, : self.H.shape[1]])
        if fit_intercept:
            self.b = solution[:, -1].astype(np.float64)

    def shifted(self, offset: float) -> Factors:
        """The same factors with ``offset`` added to b; arrays are shared."""
        return Factors(self.W, self.A, self.H, self.b + offset)


@dataclass
class BestRound(State):
    """The factors of the round that ranked the validation rows best so far, its nDCG@5 and its number."""

    factors: Factors = nested(Factors)
    score: float = real()
    number: int = count(1, "done")


@dataclass
class Rounds(State):
    """How far an alternation has come, and when it ends: all that the next round depends on.

    ``first`` is the fall of the objective that later ones are measured against, that of the first step in W; ``fall``
    the last one. ``ended`` says whether the last round met a stopping rule. ``best`` is None without validation rows.
    """

    factors: Factors = nested(Factors)
    first: float = real(default=0.0)
    fall: float = real(default=0.0)
    done: int = count(1, "max_iter", default=0)
    ended: bool = flag(default=False)
    best: BestRound | None = nested(BestRound, optional=True)

    def add(self, fall: float, *, tol: float, least: int) -> None:
        """Count a round whose step in W lowered the objective by ``fall``; a small one ends after ``least`` rounds."""
        self.fall, self.first = fall, self.first or fall
        self.done += 1
        self.ended = fall <= 0 or (fall <= tol * self.first and self.done >= least)

    def judge(self, score: float, patience: int) -> None:
        """Keep this round if it is the best on the validation rows; end if ``patience`` rounds have not been."""
        if self.best is None or score > self.best.score:
            W, H, b = (getattr(self.factors, name).copy() for name in ("W", "H", "b"))
            self.best = BestRound(Factors(W, self.factors.A, H, b), score, self.done)
        self.ended = self.ended or self.done - self.best.number >= patience

    def kept(self) -> tuple[Factors, int]:
        """The factors to keep and their round: the last, or the best on validation rows."""
        return (self.factors, self.done) if self.best is None else (self.best.factors, self.best.number)

    def require_best(self, wanted: bool) -> None:
        """Raise ValueError unless there is a best round if and only if there are validation rows."""
        if (self.best is not None) != wanted:
            raise ValueError("there is a best round if and only if there are validation rows")

    def check(self) -> None:
        """A checkpoint must not hold a fit that could neither end nor continue."""
        if not self.first and not self.ended:
            raise ValueError("the first round lowered nothing, yet it was not the last")


class ValidationRows:
    """Rows by which nDCG@5 judges a round; with a mask, only the known pairs of a row are ranked."""

    def __init__(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, *, n_threads: int) -> None:
        self.X, self.observed, self.n_threads = feature_matrix(X, n_threads=n_threads), observed, n_threads
        self.positives = known_positives(Y, observed)
        if observed is not None and observed.nnz == 0:
            raise InvalidInputError("none of the validation rows has a known label; switch early_stopping off.")

    @staticmethod
    def split(
        Y: sp.csr_matrix, observed: sp.csr_matrix | None, fraction: float, random_state: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on and rows to validate on, by known labels alone. Rare labels stay in training."""
        train, chosen = split_rows(known_positives(Y, observed), fraction, random_state, keep_labels=True)
        if len(chosen) == 0:
            raise InvalidInputError(
                f"validation_fraction={fraction} of {Y.shape[0]} rows holds no row out (every row is needed to keep "
                "its labels in training); raise it or switch early_stopping off."
            )
        return train, chosen

    def score(self, factors: Factors) -> float:
        """How well these factors rank the rows."""
        A, b = self.X.matmul(factors.W), factors.b.astype(factors.H.dtype)
        if self.observed is None:
            ranking, _ = top_k_of_factors(A, factors.H, _K, intercept=b, n_threads=self.n_threads)
        else:
            known = self.observed
            scores = sampled_product(known, A, factors.H, n_threads=self.n_threads) + b[known.indices]
            ranking = sp.csr_matrix((scores, known.indices, known.indptr), shape=known.shape)
        return float(ndcg_at_k(self.positives, ranking, k=_K))


class SquaredAlternation:
    """W by a few conjugate-gradient steps on the normal equations, H and b exactly."""

    def __init__(
        self, X: FeatureMatrix, terms: SquaredTerms, reg: float, *, fit_intercept: bool, inner_iter: int
    ) -> None:
        self.X, self.terms, self.reg = X, terms, reg
        self.fit_intercept, self.inner_iter = fit_intercept, inner_iter
        self._alone = terms

    def beside(self, S: sp.csr_matrix | np.ndarray, offset: float) -> None:
        """From now on, XS + offset is a part of all scores that the steps leave as it is."""
        words = self.X.words if isinstance(self.X, BlockFeatures) else self.X
        assert isinstance(words, CSRWithTranspose)
        self.terms = self._alone.around(LinearScores(words, S, offset=offset, n_threads=words.n_threads))

    def step_features(self, factors: Factors) -> float:
        """Improve W (and A) for fixed H and b by one run of conjugate gradients; by how much the objective fell."""
        problem = SquaredFeatureProblem(self.X, self.terms, factors.H, factors.b, self.reg)
        problem.move_to(factors.W, factors.A)
        factors.A = np.empty((0, factors.A.shape[1]), factors.A.dtype)  # n×k that the steps can use
        step = quadratic_step(
            problem, tol=1e-3, max_iter=self.inner_iter, add_to=factors.W, n_threads=self.terms.n_threads
        )
        if step.status == "not_finite":
            raise InvalidInputError(OVERFLOW)
        factors.A = self.X.matmul(factors.W)
        return step.fall.item()

    def step_labels(self, factors: Factors) -> float:
        """Minimise over H and b for fixed A, or for large ranks improve them; loss + ½λ‖H‖² there."""
        if self.terms.curvature is None or factors.A.shape[1] <= DIRECT_RANK:
            solved = self.terms.solve_labels(factors.A, self.reg, fit_intercept=self.fit_intercept)
            factors.H, factors.b = solved.H, solved.intercept
            return solved.value
        problem = SquaredLabelProblem(self.terms, factors.A, self.reg, fit_intercept=self.fit_intercept)
        start = factors.with_intercept() if self.fit_intercept else factors.H
        problem.move_to(start)
        step = quadratic_step(problem, tol=1e-3, max_iter=self.inner_iter, inner=dot_rows)
        factors.take_labels(start + step.solution, fit_intercept=self.fit_intercept)
        return self.terms.constant + float(problem.value().sum() - step.fall.sum())


class NewtonAlternation:
    """Trust-region Newton for W as one problem, and for the labels as L problems solved together."""

    def __init__(
        self, X: FeatureMatrix, labels: TrainingLabels, loss: Loss, reg: float, *, fit_intercept: bool, inner_iter: int
    ) -> None:
        self.X, self.reg, self.fit_intercept, self.inner_iter = X, reg, fit_intercept, inner_iter
        self.rows, self.labels = row_side(labels, loss), label_side(labels, loss)
        self.inner = partial(dot_all, n_threads=labels.n_threads)

    def step_features(self, factors: Factors) -> float:
        """As for squared loss, by a few Newton steps."""
        extended = factors.with_intercept() if self.fit_intercept else factors.H
        problem = FeatureProblem(self.X, self.rows, extended, factors.H.shape[1], self.reg)
        result = tron(
            problem, factors.W, tol=1e-3, max_iter=FEATURE_STEPS, cg_max_iter=self.inner_iter, inner=self.inner
        )
        if not np.isfinite(result.value).all():
            raise InvalidInputError(OVERFLOW)
        factors.W = result.solution
        factors.A = self.X.matmul(factors.W)
        return float((result.start_value - result.value).item())

    def step_labels(self, factors: Factors) -> float:
        """As for squared loss, by a few Newton steps of all labels together."""
        rank = factors.H.shape[1]
        extended, start = factors.A, factors.H
        if self.fit_intercept:
            extended = with_intercept(factors.A)
            start = factors.with_intercept()
        problem = LabelProblem(self.labels, extended, rank, self.reg)
        result = tron(
            problem, start, tol=LABEL_TOLERANCE, max_iter=LABEL_STEPS, cg_max_iter=self.inner_iter, inner=dot_rows
        )
        factors.take_labels(result.solution, fit_intercept=self.fit_intercept)
        return float(result.value.sum())


class FixedFeatures(SquaredAlternation):
    """The steps for a W that stays: labels alone."""

    def step_features(self, factors: Factors) -> float:
        """Nothing."""
        return 0.0


def solved_labels(
    labels: TrainingLabels, A: np.ndarray, loss: Loss, reg: float, *, fit_intercept: bool
) -> tuple[np.ndarray, np.ndarray]:
    """H (L×k) and b (L) at their minimum for fixed A = XW: exactly for squared loss, else by Newton's method."""
    if loss.name == "squared":
        solved = SquaredTerms.build(labels).solve_labels(A, reg, fit_intercept=fit_intercept)
        return solved.H, solved.intercept
    rank, n_labels = A.shape[1], labels.shape[1]
    extended, start = A, np.zeros((n_labels, rank), dtype=A.dtype)
    if fit_intercept:
        extended = with_intercept(A)
        start = np.column_stack([start, loss.constant(labels.rates())]).astype(A.dtype)
    problem = LabelProblem(label_side(labels, loss), extended, rank, reg)
    found = tron(problem, start, tol=SOLVED_TOLERANCE, max_iter=SOLVED_STEPS, inner=dot_rows).solution
    b = found[:, rank].astype(np.float64) if fit_intercept else np.zeros(n_labels)
    return np.ascontiguousarray(found[:, :rank]), b


class Steps(Protocol):
    """The two steps of a round, each of which lowers the objective in place.

    With squared loss, ``beside(S, offset)`` fixes a part XS + offset of all scores.
    """

    def step_features(self, factors: Factors) -> float:
        """Improve W (and A) for fixed H and b; by how much the objective fell."""
        ...

    def step_labels(self, factors: Factors) -> float:
        """Improve H and b for fixed W; loss + ½λ‖H‖² there."""
        ...


class TrainingRows(Protocol):
    """All that an alternation asks of its rows: sums over them, wherever they are."""

    n_features: int
    n_labels: int
    dtype: np.dtype

    def rates(self) -> np.ndarray:
        """The weighted share of positives among each label's known pairs (L)."""
        ...

    def unknown_labels(self) -> np.ndarray:
        """Ids of the labels without a single known pair."""
        ...

    def spectral_start(self, intercept: np.ndarray, rank: int, rng: np.random.Generator) -> np.ndarray:
        """H (L×k) of :func:`~tagwise.problems.labels.spectral_start`."""
        ...

    def embedded(self, W: np.ndarray) -> np.ndarray:
        """A = XW (n×k), or an array without rows where A is not kept."""
        ...

    def zeros(self, rank: int) -> np.ndarray:
        """A where W = 0."""
        ...

    def steps(self, reg: float, *, fit_intercept: bool, inner_iter: int) -> Steps:
        """The steps that suit the loss."""
        ...


class LocalRows:
    """Rows in the memory of this process."""

    def __init__(self, X: FeatureMatrix, labels: TrainingLabels, loss: Loss) -> None:
        self.X, self.labels, self.loss = X, labels, loss
        self.n_features, self.n_labels = X.shape[1], labels.shape[1]
        self.dtype = labels.positives.dtype

    def rates(self) -> np.ndarray:
        """See :class:`TrainingRows`, as for all below."""
        return self.labels.rates()

    def unknown_labels(self) -> np.ndarray:
        """See above."""
        return self.labels.unknown_labels()

    def spectral_start(self, intercept: np.ndarray, rank: int, rng: np.random.Generator) -> np.ndarray:
        """See above."""
        slope, row = self.labels.slope_at(self.loss, intercept)
        return spectral_start(self.X, slope, row, rank, rng, self.dtype, self.labels.row_weight)

    def embedded(self, W: np.ndarray) -> np.ndarray:
        """See above."""
        return self.X.matmul(W)

    def zeros(self, rank: int) -> np.ndarray:
        """See above."""
        return np.zeros((self.X.shape[0], rank), self.dtype)

    def steps(self, reg: float, *, fit_intercept: bool, inner_iter: int) -> Steps:
        """See above."""
        if self.loss.name == "squared":
            terms = SquaredTerms.build(self.labels)
            return SquaredAlternation(self.X, terms, reg, fit_intercept=fit_intercept, inner_iter=inner_iter)
        return NewtonAlternation(
            self.X, self.labels, self.loss, reg, fit_intercept=fit_intercept, inner_iter=inner_iter
        )


def feature_products(
    X: Features,
    Y: sp.csr_matrix,
    rank: int,
    *,
    unit_length: bool,
    streamed: bool,
    n_threads: int,
    dense_weight: float = 1.0,
) -> FeatureMatrix:
    """X, or X with rows of length 1, for products from both sides; ``streamed`` for fits of squared loss.

    A transpose of X takes as much memory as X and scaled values half of that: together often more than LEML's factors.
    So streamed products make neither, and keep what the transposed product can reuse only as far as the whole fit then
    stays within W + H + XW + 2·n×k and a tenth. This changes the result by no more than rounding. Of blocks this is
    said of the sparse one; the dense one is copied where its rows are scaled.
    """
    if isinstance(X, FeatureBlocks):
        dense = scaled_dense(X, normalize=unit_length, dense_weight=dense_weight, n_threads=n_threads)
        words = feature_products(X.words, Y, rank, unit_length=unit_length, streamed=streamed, n_threads=n_threads)
        return BlockFeatures(words, DenseFeatures(dense, n_threads=n_threads))
    if streamed and not isinstance(X, np.ndarray):
        transpose, scaled = X.data.nbytes + X.indices.nbytes, X.data.nbytes if unit_length else 0
        if transpose + scaled > _STORED_BYTES:
            return _streamed_products(X, Y, rank, unit_length=unit_length, n_threads=n_threads)
    return feature_matrix(unit_rows(X, n_threads=n_threads) if unit_length else X, n_threads=n_threads)


def _streamed_products(
    X: sp.csr_matrix, Y: sp.csr_matrix, rank: int, *, unit_length: bool, n_threads: int
) -> BlockedCSR:
    scale: np.ndarray | None = None
    if unit_length:
        factors = row_factors(X, n_threads=n_threads)
        positive = factors[factors > 0]
        if len(positive) and not 1 / _SAFE_LENGTH <= positive.min() <= positive.max() <= _SAFE_LENGTH:
            X = unit_rows(X, n_threads=n_threads)
        else:
            scale = factors.astype(X.dtype)
    (n_rows, n_features), n_labels = X.shape, Y.shape[1]
    size = X.dtype.itemsize * rank
    allowed = size * (n_features + n_labels + 3 * n_rows)
    n_blocks, needed = 0, 0.0
    fewest = N_BLOCKS if size * n_rows <= _FEW_BLOCKS_BYTES else 2 * N_BLOCKS
    for n_blocks in (fewest, 2 * fewest, 4 * fewest):
        # Labels take their values, and indices and values of their transpose.
        needed = size * _largest_step(n_rows, n_features, n_labels, n_blocks) + 12 * Y.nnz
        if needed <= allowed:
            break
    spare = _PLANNED * allowed - _UNPLANNED_BYTES - needed
    return BlockedCSR(X, width=rank, row_scale=scale, keep_bytes=spare, n_blocks=n_blocks, n_threads=n_threads)


def _largest_step(n_rows: int, n_features: int, n_labels: int, n_blocks: int) -> float:
    """Rows of k numbers that a fit of squared loss holds at a time, at its peak."""
    block = n_rows / n_blocks
    transposed = block / 2
    start = n_rows + n_features + 3 * n_labels  # XXᵀ·noise, and its label side with a QR decomposition's copies
    gradient = n_rows + 2 * n_features + n_labels + 2 * block  # A, W, the gradient, H, slopes
    steps = 4 * n_features + n_labels + block  # W, residual, direction, product, H, a block of XS
    labels = n_rows + n_features + 2 * n_labels  # A, W, the old and the new H
    return max(start, gradient + transposed, steps + transposed, labels + transposed)
