"""REML's alternation: W and the labels as in LEML, beside a fixed sparse part; then the sparse part beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import CSRWithTranspose
from tagwise.kernels.vectors import dot_all
from tagwise.losses import get_loss
from tagwise.models.leml.steps import Factors, SquaredAlternation
from tagwise.models.reml.rounds import REMLRounds
from tagwise.models.reml.sparse_part import ADMMPart, SparsePart, SupportPart
from tagwise.problems.labels import TrainingLabels
from tagwise.problems.linear_scores import LinearScores
from tagwise.problems.spectral_start import spectral_start
from tagwise.problems.squared import SquaredTerms
from tagwise.randomness import random_generator
from tagwise.solvers.admm import SparseFitRidge
from tagwise.solvers.admm_weighted import WeightedFitRidge
from tagwise.solvers.support_features import SupportFeatures

__all__ = [
    "EQUATION_5",
    "LowRankAndSparse",
    "Prepared",
    "Settings",
    "alternate",
    "low_rank_penalty",
    "prepare",
    "sparse_part",
]

# The alternation works with 0/1 labels, S± = 2·S01 − 1, and halves of squares. Equation 5, with ±1 labels and whole
# squares, is this many times its objective.
EQUATION_5 = 8.0
Prepared: TypeAlias = SupportFeatures | SparseFitRidge
"""What the sparse part needs of X."""

Report: TypeAlias = Callable[..., bool]
"""Called with the objective after every round, its ``state`` and ``unsolved``; True ends the alternation."""


@dataclass(frozen=True)
class Settings:
    """What an alternation needs to know beside the data; plain values, so that it can be sent to another process.

    ``reg_low_rank``, ``reg_sparse`` and ``sparsity`` are λ2, λ1 and λ3 of equation 5. In the alternation's own terms,
    ½‖Y − S‖² + ½·½λ2(‖W‖² + ‖H‖²) + ½λ1‖S‖² + ¼λ3‖XS‖₁: with Y± = 2Y − 1, factors that are √2 and a sparse part that
    is 2 times as large, equation 5 is 8 times this.
    """

    rank: int
    reg_low_rank: float
    reg_sparse: float
    sparsity: float
    sparse_part: str
    support: int
    max_iter: int
    inner_iter: int
    tol: float
    fit_intercept: bool
    memory_limit: float


@dataclass(frozen=True)
class LowRankAndSparse:
    """Scores XWHᵀ + b + XS of 0/1 labels; S (d×L) CSR or dense.

    ``fall`` is by how much the last round lowered the objective, over what the first round did; ``unsolved`` for how
    many labels the sparse part stopped short of its tolerance in that round.
    """

    factors: Factors
    sparse: sp.csr_matrix | np.ndarray
    converged: bool
    fall: float
    unsolved: int


def alternate(
    X: CSRWithTranspose,
    prepared: Prepared,
    labels: TrainingLabels,
    settings: Settings,
    seed: int | np.random.Generator,
    report: Report,
    saved: REMLRounds | None = None,
) -> LowRankAndSparse:
    """Minimise equation 5; the objective falls in every round. ``saved`` are rounds of an earlier run to go on from."""
    reg = settings.reg_low_rank / 2
    terms = SquaredTerms.build(labels)
    part = sparse_part(X, prepared, labels, terms, settings)
    low_rank = SquaredAlternation(X, terms, reg, fit_intercept=settings.fit_intercept, inner_iter=settings.inner_iter)
    offset = 0.0 if settings.fit_intercept else 0.5
    if saved is None:
        start = _start(X, labels, settings, random_generator(seed))
        value = terms.value(start.A, start.H, start.b + offset) + low_rank_penalty(start, reg)
        saved = REMLRounds(start, _nothing(X, labels), value)
    rounds, factors = saved, saved.factors
    while not rounds.converged and rounds.done < settings.max_iter:
        low_rank.terms = terms.around(LinearScores(X, rounds.sparse, offset=offset, n_threads=X.n_threads))
        low_rank.step_features(factors)
        low_rank.step_labels(factors)
        shifted = Factors(factors.W, factors.A, factors.H, factors.b + offset)
        step = part.step(shifted, rounds.sparse if rounds.done else None)
        value = step.value + low_rank_penalty(factors, reg)
        rounds.add(step, value, settings.tol)
        if report(EQUATION_5 * value, state=rounds, unsolved=step.unsolved):
            break
    found = Factors(factors.W, factors.A, factors.H, factors.b + offset)
    share = rounds.fall / rounds.first if rounds.first else 0.0
    return LowRankAndSparse(found, rounds.sparse, rounds.converged, share, rounds.unsolved)


def low_rank_penalty(factors: Factors, reg: float) -> float:
    """½λ(‖W‖² + ‖H‖²)."""
    return 0.5 * reg * (dot_all(factors.W, factors.W).item() + dot_all(factors.H, factors.H).item())


def prepare(X: CSRWithTranspose, labels: TrainingLabels, settings: Settings) -> Prepared:
    """What the sparse part needs of X, for all labels, rounds and parts: sorted features and XᵀX, or a factorisation.

    Of the labels it matters only whether there is a mask or a weight.
    """
    if settings.sparse_part == "support":
        return SupportFeatures.build(
            X.matrix,
            support=settings.support,
            with_gram=labels.observed is None,
            memory_limit=settings.memory_limit,
            n_threads=X.n_threads,
        )
    weighted = labels.observed is not None or labels.positive_weight is not None
    solver = WeightedFitRidge if weighted else SparseFitRidge
    # The solver's objective has whole squares, twice the alternation's: ¼λ3 becomes ½λ3.
    return solver(X, settings.reg_sparse, settings.sparsity / 2, memory_limit=settings.memory_limit / 2)


def sparse_part(
    X: CSRWithTranspose, prepared: Prepared, labels: TrainingLabels, terms: SquaredTerms, settings: Settings
) -> SparsePart:
    """The step of the sparse part for these labels."""
    if isinstance(prepared, SupportFeatures):
        return SupportPart(prepared, labels, terms, reg=settings.reg_sparse, support=settings.support)
    return ADMMPart(X, prepared, labels, settings.memory_limit)


def _start(X: CSRWithTranspose, labels: TrainingLabels, settings: Settings, rng: np.random.Generator) -> Factors:
    """W = 0, H as in LEML, b the best constants (0 beside the offset where there is no intercept)."""
    loss, dtype = get_loss("squared"), X.matrix.dtype
    n_rows, n_features = X.shape
    b = loss.constant(labels.rates()) if settings.fit_intercept else np.full(labels.shape[1], 0.5)
    slope, row = labels.slope_at(loss, b)
    H = spectral_start(X, slope, row, settings.rank, rng, dtype)
    if not settings.fit_intercept:
        b = np.zeros_like(b)
    zeros = np.zeros((n_features, settings.rank), dtype), np.zeros((n_rows, settings.rank), dtype)
    return Factors(W=zeros[0], A=zeros[1], H=H, b=b)


def _nothing(X: CSRWithTranspose, labels: TrainingLabels) -> sp.csr_matrix:
    return sp.csr_matrix((X.shape[1], labels.shape[1]), dtype=X.matrix.dtype)
