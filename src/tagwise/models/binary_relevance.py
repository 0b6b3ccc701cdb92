"""Binary relevance: one linear model per label, solved in batches of labels that share the products with X."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from tagwise.answers import finite_scores
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, warn
from tagwise.executor import current_executor
from tagwise.feature_blocks import FeatureBlocks
from tagwise.fields import Fields, dense, put, value
from tagwise.kernels import matmul, top_k_of_scores
from tagwise.kernels.dual_coordinate_descent import Descent
from tagwise.kernels.sampled_pairs import sampled_csr_product
from tagwise.kernels.vectors import dot_columns
from tagwise.losses import LOSSES, Loss, get_loss
from tagwise.models.factor_model import LOWEST_SCORE, FitData, PositiveWeight
from tagwise.models.updating import UpdatableModel
from tagwise.objectives.labels import per_row
from tagwise.objectives.linear_block import Design, LinearBlock
from tagwise.parallel import even_chunks, run_chunks, thread_count
from tagwise.parameters import Count, NonNegative, Positive, parameters
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.solvers.cg import quadratic_step
from tagwise.solvers.dual_coordinate_descent import dual_coordinate_descent
from tagwise.solvers.ridge import RidgeFactor
from tagwise.solvers.tron import tron
from tagwise.validation import Features, canonical_csr, check_choice, check_integer

__all__ = ["BinaryRelevance"]

# Projected gradients of the dual that spread over 10·tol leave the objective about tol above its minimum.
_DUAL_SPREAD = 10
# Up to here a factorization, m³/3, takes seconds; beyond, conjugate gradients are faster.
LARGEST_DIRECT = 4000
# Products with X are fastest around here with a megabyte of L2 cache.
_MOST_LABELS = 128
# Arrays of n and of d numbers per label that a batch holds at its peak.
_ROW_ARRAYS, _FEATURE_ARRAYS = 7, 12


_SOLVED = Fields(
    coef=dense("d", "L", meaning="Weights; 0 for labels that are not solved yet."),
    intercept=dense("L", numbers="float64", meaning="Intercepts."),
    unfinished=value(check_integer, "Number of batches that did not converge."),
)
"""The labels solved so far, as a checkpoint holds them."""


LossName = Annotated[str, partial(check_choice, choices=(*LOSSES, "hinge"))]


@parameters
class BinaryRelevance(UpdatableModel):
    r"""One regularized linear model per label, with missing labels and positive weights.

    Minimizes for each label j over z_j (d) and an unpenalised intercept b_j

    .. math:: \sum_{i:\,(i,j)\in\Omega} \omega_{ij}\,\ell(Y_{ij}, x_i^\top z_j + b_j) + \tfrac\lambda2 \|z_j\|^2 .

    Parameters
    ----------
    loss : {"squared", "logistic", "squared_hinge", "hinge"}
        ½(y − s)² with labels 0/1; log(1 + e^{−ys}), max(0, 1 − ys)² and max(0, 1 − ys) with labels ±1. "hinge" is the
        linear support vector machine. It is solved in the dual, where an intercept must carry a penalty: λ/2·b_j² is
        added to its objective.
    max_iter : int
        Maximum number of steps per batch of labels: of conjugate gradients (squared), of Newton's method (logistic,
        squared hinge), passes over the rows (hinge). A direct solution takes none.
    solver : {"auto", "direct", "cg"}
        ``"direct"``: one Cholesky factor of the smaller Gram matrix (d×d or n×n) serves all labels; for squared loss
        with all labels known and unweighted only. ``"cg"``: label batches by conjugate gradients (squared) or
        trust-region Newton (logistic, squared hinge). ``"auto"``: direct where it applies, min(n, d) ≤ 4,000 and it
        fits ``memory_limit``; else cg. Hinge is always solved by dual coordinate descent
        (:mod:`tagwise.solvers.dual_coordinate_descent`), each label on its own.
    tol : float
        A label has converged when its gradient (in the preconditioned variables of
        :mod:`tagwise.objectives.linear_block`) is at most ``tol`` times that at the best constant score. With hinge,
        when the projected gradients of its dual, all −1 at the start, spread over at most ten times ``tol``.
    memory_limit : float
        Bytes that a fit may take beside its input and what is sparse: coefficients, Gram matrix and batches. Batches
        shrink to fit; a problem whose coefficients do not fit is refused, before any work.

    Attributes
    ----------
    objective_ : array (batches,)
        The sum of the objectives of all labels solved so far; the last entry is that of the whole model.
    history_, n_iter_
        A step is a batch of labels: ``objective``, ``seconds``, ``labels`` (solved so far), ``solver_iterations``; the
        number of batches.

    Notes
    -----
    Labels are solved in order of descending frequency. A callback that stops the fit does so after a batch: labels not
    reached keep coefficients 0 and the score −10³⁰, so that they are never predicted. With an intercept, a label that
    is off (or on) in all of its known rows gets coefficients 0 and the constant score that loses nothing; under
    logistic loss, where that is infinite, the one that loses a millionth per row, which ``objective_`` leaves out.

    The coefficients take d·L numbers, which limits this model: 10⁵ features and 10⁵ labels are 40 GB of float32, where
    LEML of rank 100 takes 80 MB. With m = min(n, d), "direct" costs O(nnz(X)·m + m³/3 + m²·L) and 16·m²
    bytes; a step of "cg" costs O(nnz(X)·L) over all batches, of which each holds a few arrays of n×B and d×B, B ≤ 128.
    Prediction costs O(nnz(X)·L).

    Examples
    --------
    >>> from tagwise import BinaryRelevance
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> model = BinaryRelevance(tol=1e-2).fit(data.X_train, data.Y_train)
    >>> labels, scores = model.predict_topk(data.X_test, k=3)
    >>> labels.shape == (data.X_test.shape[0], 3)
    True
    """

    fields: ClassVar[Fields] = Fields(
        feature_weights_=dense(
            "d",
            "L",
            meaning="Z, in the floating type of X. 0 for a label without a known entry. ``coef_`` is its transpose.",
        ),
        intercept_=dense(
            "L",
            meaning="b, minus ½ for squared loss: a score of 0 is the border between off and on. A label without a "
            "known entry has −10³⁰, below all others.",
        ),
    )
    _iteration_name = "block"

    loss: LossName = "squared"
    reg: Positive = 1.0
    max_iter: Count = 200
    positive_weight: PositiveWeight = 1.0
    fit_intercept: bool = True
    normalize: bool = True
    solver: Literal["auto", "direct", "cg"] = "auto"
    tol: Positive = 5e-4
    memory_limit: Positive = 2**32
    updatable: bool = False
    dense_weight: NonNegative = 1.0
    n_jobs: int | None = None
    verbose: int = 0

    def _reads_blocks(self) -> bool:
        return True

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        """All labels, from the most frequent on, a batch at a time."""
        X, n_labels, dtype, loss = problem.X, problem.n_labels, problem.X.dtype, self._loss_of_scores()
        data = FitData.build(problem, loss, self.positive_weight, self.n_jobs)
        plain = loss.quadratic and problem.known is None and data.positive_weight is None
        direct = self._is_direct(X, n_labels, plain=plain)
        size = self._batch_size(X.shape, dtype, n_labels, direct=direct)
        data = replace(data, X=self._prepared(X))
        rates = data.targets.rates()
        # With an intercept, a label whose known entries are all on or all off loses nothing by a constant score.
        constant = ((rates == 0) | (rates == 1)) & self.fit_intercept
        order = np.argsort(-problem.label_counts, kind="stable")
        order = order[~constant[order]]
        batches = [order[start:stop] for start, stop in even_chunks(len(order), size)]
        progress.total = max(1, len(batches))

        kept = progress.resume(_SOLVED, dtype, d=X.shape[1], L=n_labels)
        if kept is not None:
            coef, intercept, unfinished = kept.values()
            objective, done = progress.history[-1]["objective"], len(progress.history)
        else:
            coef, unfinished, objective, done = np.zeros((X.shape[1], n_labels), dtype=dtype), 0, 0.0, 0
            intercept = np.where(constant, loss.constant(rates) - loss.threshold, LOWEST_SCORE)
        n_solved, left = int(constant.sum()) + sum(map(len, batches[:done])), batches[done:]
        if not batches:
            progress.step(0.0, labels=n_solved, solver_iterations=0)
        executor = current_executor()
        solve = direct_batch if direct else dual_batch if self.loss == "hinge" else batch_by_steps
        for ids, batch in zip(left, executor.stream(solve, left, executor.share(data), executor.share(clone(self)))):
            coef[:, ids] = batch.coefficients
            intercept[ids] = batch.intercept - loss.threshold
            objective += batch.objective
            unfinished += not batch.converged
            n_solved += len(ids)
            progress.keep(coef=coef, intercept=intercept, unfinished=unfinished)
            if progress.step(objective, labels=n_solved, solver_iterations=batch.n_iter):
                break

        if unfinished and not progress.stopped:
            warn(
                f"BinaryRelevance: {unfinished} of {len(batches)} batches of labels stopped after "
                f"max_iter={self.max_iter} steps with a gradient above tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
            )
        intercept[data.targets.unknown_labels()] = LOWEST_SCORE
        self.feature_weights_, self.intercept_ = coef, intercept.astype(dtype)

    def _is_direct(self, X: Features, n_labels: int, *, plain: bool) -> bool:
        """Whether to factorise; raises if the requested solver cannot be used."""
        side = min(X.shape)
        needed = 16 * side**2 + X.dtype.itemsize * X.shape[1] * n_labels
        dense = X.dense if isinstance(X, FeatureBlocks) else X
        needed += 16 * dense.size if isinstance(dense, np.ndarray) else 0
        if self.solver != "direct":
            return self.solver == "auto" and plain and side <= LARGEST_DIRECT and needed <= self.memory_limit
        if not plain:
            raise InvalidInputError(
                'solver="direct" is for loss="squared" with all labels known and positive_weight=1, where all labels '
                'share one system; use solver="cg" or "auto" here.'
            )
        if needed > self.memory_limit:
            raise InvalidInputError(
                f'solver="direct" needs {_gigabytes(needed)} for the {side:,}×{side:,} system and the coefficients, '
                f'above memory_limit ({_gigabytes(self.memory_limit)}); use solver="cg" or raise memory_limit.'
            )
        return True

    def _batch_size(self, shape: tuple[int, int], dtype: np.dtype, n_labels: int, *, direct: bool) -> int:
        n_rows, n_features = shape
        coefficients = dtype.itemsize * n_features * n_labels
        a_label = dtype.itemsize * (_ROW_ARRAYS * n_rows + _FEATURE_ARRAYS * n_features)
        if coefficients + a_label > self.memory_limit:
            raise InvalidInputError(
                f"BinaryRelevance needs {_gigabytes(coefficients)} for the coefficients of {n_features:,} features × "
                f"{n_labels:,} labels and {_gigabytes(a_label)} to work on one label, above memory_limit "
                f"({_gigabytes(self.memory_limit)}); use LEML, whose factors are small, or raise memory_limit."
            )
        spare = self.memory_limit - coefficients - (16 * min(shape) ** 2 if direct else 0)
        return int(np.clip(spare // a_label, 1, _MOST_LABELS))

    def _label_weights(self, labels: np.ndarray) -> np.ndarray | sp.csr_matrix:
        return self.feature_weights_[:, labels].T

    def _loss_of_scores(self) -> Loss:
        """Hinge shares the coding, the border and, for constant labels, the score of squared hinge."""
        return get_loss("squared_hinge" if self.loss == "hinge" else self.loss)

    def probabilities_of(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities from scores, by the loss."""
        loss = self._loss_of_scores()
        return loss.rate(scores + scores.dtype.type(loss.threshold))

    def _score_rows(self, X: Features, n_threads: int | None = None) -> np.ndarray:
        scores = matmul(self._prepared(X), self.feature_weights_, n_threads=n_threads or thread_count(self.n_jobs))
        scores += self.intercept_
        return scores

    def pair_scores(self, rows: sp.csr_matrix, pairs: sp.csr_matrix, *, n_threads: int) -> np.ndarray:
        """Scores of the stored ``pairs`` (n×L), in storage order, of rows as :meth:`scored_rows` returns them."""
        scores = sampled_csr_product(pairs, rows, self.feature_weights_, n_threads=n_threads)
        return scores + self.intercept_[pairs.indices]

    def _top_k(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        def rows(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
            hidden = None if exclude is None else exclude[start:stop]
            return top_k_of_scores(finite_scores(self._score_rows(X[start:stop], n_threads=1)), k, exclude=hidden)

        labels, scores = zip(*run_chunks(rows, self._row_blocks(X), thread_count(self.n_jobs)))
        return np.concatenate(labels), np.concatenate(scores)

    def _learn_labels(self, problem: Problem, labels: np.ndarray, progress: FitProgress) -> None:
        """A model of these labels alone."""
        alone = clone(self).set_params(updatable=False, positive_weight=self._weights_of(labels))
        alone.fit_stage(problem, progress)
        self.feature_weights_ = put(self.feature_weights_, labels, alone.feature_weights_, axis=1)
        self.intercept_ = put(self.intercept_, labels, alone.intercept_)


def _gigabytes(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.3g} GiB"


@dataclass(frozen=True)
class _Batch:
    """One batch: coefficients (d×B), intercepts (B), the sum of its objectives, and how the solver ended."""

    coefficients: np.ndarray
    intercept: np.ndarray
    objective: float
    converged: bool
    n_iter: int


# ---------------------------------------------------------------------- a batch of labels, alone


def direct_batch(ids: np.ndarray, data: FitData, model: BinaryRelevance) -> _Batch:
    """Solve by one factorisation for all labels."""
    X, labels = data.X, data.targets
    factor = data.once(
        "factor",
        lambda: RidgeFactor(
            X,
            model.reg,
            fit_intercept=model.fit_intercept,
            row_weight=labels.row_weight,
            n_threads=data.n_threads,
        ),
    )
    ridge = factor.solve(labels.by_label[0][ids])
    return _Batch(ridge.coefficients, ridge.intercept, float(ridge.value.sum()), converged=True, n_iter=0)


def batch_by_steps(ids: np.ndarray, data: FitData, model: BinaryRelevance) -> _Batch:
    """Solve iteratively from V = 0, all labels of the batch together."""
    X, loss = data.X, data.loss
    design = data.once("design", lambda: Design.build(X, fit_intercept=model.fit_intercept, n_threads=data.n_threads))
    batch = data.targets.batch(ids, loss, with_start=model.fit_intercept)
    problem = LinearBlock(design, batch, loss, model.reg)
    start = problem.start()
    if loss.quadratic:
        problem.move_to(start)
        step = quadratic_step(problem, tol=model.tol, max_iter=model.max_iter, inner=dot_columns)
        V, finished, n_iter = step.solution, step.status != "max_iter", step.n_iter
        problem.move_to(V)
        value = problem.value()
    else:
        newton = tron(problem, start, tol=model.tol, max_iter=model.max_iter, inner=dot_columns)
        V, finished, n_iter, value = newton.solution, newton.status != "max_iter", newton.n_iter, newton.value
    return _Batch(*problem.coefficients(V), float(value.sum()), finished, n_iter)


def dual_batch(ids: np.ndarray, data: FitData, model: BinaryRelevance) -> _Batch:
    """Solve by dual coordinate descent, each label alone."""
    labels = data.targets

    def pairs() -> tuple[sp.csr_matrix, sp.csr_matrix, sp.csr_matrix | None]:
        """Rows; positives; and the known rows of a label that are not its positives, None where all are known."""
        X, off = data.X, None
        if labels.observed is not None:
            off = sp.csr_matrix(per_row(sp.csr_matrix(labels.observed - labels.positives), labels.row_weight).T)
        rows = canonical_csr(X.tocsr() if isinstance(X, FeatureBlocks) else X)
        return rows, sp.csr_matrix(labels.weighted_positives.T), off

    rows, on, off = data.once("pairs", pairs)
    svm = dual_coordinate_descent(
        rows,
        on[ids],
        None if off is None else off[ids],
        descent=Descent(
            squared=False,
            constant=float(model.fit_intercept),
            tol=float(_DUAL_SPREAD * model.tol),
            max_iter=int(model.max_iter),
        ),
        reg=model.reg,
        streams=ids,
        row_costs=labels.row_weight,
        n_threads=data.n_threads,
    )
    finished, n_iter = bool(svm.converged.all()), int(svm.n_iter.max())
    return _Batch(svm.coefficients.T, svm.intercept, float(svm.value.sum()), finished, n_iter)
