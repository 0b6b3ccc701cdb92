"""Binary relevance: one linear model per label, solved in batches of labels that share the products with X."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from tagwise.base import finite_scores
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, warn
from tagwise.feature_blocks import FeatureBlocks
from tagwise.kernels import matmul, top_k_of_scores
from tagwise.kernels.dual_coordinate_descent import Descent
from tagwise.kernels.sampled_pairs import sampled_csr_product
from tagwise.kernels.vectors import dot_columns
from tagwise.losses import LOSSES, Loss, get_loss
from tagwise.models.factor_model import LOWEST_SCORE, PositiveWeight, check_positive_weight, resolve_positive_weight
from tagwise.models.updating import LabelRows, UpdatableModel, replaced
from tagwise.parallel import even_chunks, run_chunks, thread_count
from tagwise.persistence.fit_state import State, array, count, real
from tagwise.persistence.loading import require_dense, require_finite_floats
from tagwise.problems.labels import LabelColumns, TrainingLabels, per_row
from tagwise.problems.linear_block import Design, LinearBlock, Scales, curvature_at_start
from tagwise.progress import FitProgress
from tagwise.solvers.cg import SmoothProblem, quadratic_step
from tagwise.solvers.dual_coordinate_descent import dual_coordinate_descent
from tagwise.solvers.ridge import RidgeFactor
from tagwise.solvers.tron import tron
from tagwise.validation import Features, canonical_csr, check_choice, check_integer, check_real

__all__ = ["BinaryRelevance"]

_SOLVERS = ("auto", "direct", "cg")
_LOSSES = (*LOSSES, "hinge")
# Projected gradients of the dual that spread over 10·tol leave the objective about tol above its minimum.
_DUAL_SPREAD = 10
# Up to here a factorization, m³/3, takes seconds; beyond, conjugate gradients are faster.
LARGEST_DIRECT = 4000
# Products with X are fastest around here with a megabyte of L2 cache.
_MOST_LABELS = 128
# Arrays of n and of d numbers per label that a batch holds at its peak.
_ROW_ARRAYS, _FEATURE_ARRAYS = 7, 12


class LabelCounts(NamedTuple):
    """Known positive rows of each label (L), their weighted share (L), and the ids of labels of which none is known."""

    positives: np.ndarray
    rates: np.ndarray
    unknown: np.ndarray


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
    reg : float
        λ > 0.
    max_iter : int
        At most this many steps per batch of labels: of conjugate gradients (squared), of Newton's method (logistic,
        squared hinge), passes over the rows (hinge). A direct solution takes none.
    positive_weight : float, array (L,) or "propensity"
        ω of a positive relative to a negative: one number, one per label, or the inverse propensities of Jain et al.
        2016, which trade precision for precision in the tail.
    fit_intercept : bool
        Whether b is learnt (else 0).
    normalize : bool
        Scale rows of X to unit length, at fit and at prediction.
    solver : {"auto", "direct", "cg"}
        ``"direct"``: one Cholesky factor of the smaller Gram matrix (d×d or n×n) serves all labels; for squared loss
        with all labels known and unweighted only. ``"cg"``: label batches by conjugate gradients (squared) or
        trust-region Newton (logistic, squared hinge). ``"auto"``: direct where it applies, min(n, d) ≤ 4,000 and it
        fits ``memory_limit``; else cg. Hinge is always solved by dual coordinate descent
        (:mod:`tagwise.solvers.dual_coordinate_descent`), each label on its own.
    tol : float
        A label has converged when its gradient (in the preconditioned variables of
        :mod:`tagwise.problems.linear_block`) is at most ``tol`` times that at the best constant score. With hinge, when
        the projected gradients of its dual, all −1 at the start, spread over at most ten times ``tol``.
    memory_limit : float
        Bytes that a fit may take beside its input and what is sparse: coefficients, Gram matrix and batches. Batches
        shrink to fit; a problem whose coefficients do not fit is refused, before any work.
    updatable : bool
        Keep the training rows in the model and its folder, so that :meth:`update` can learn further ones and
        :meth:`merge_labels` can unite labels. See docs/updating.md.
    dense_weight : float
        What a dense block of features (:class:`~tagwise.data.FeatureBlocks`) is multiplied by, at fit and at
        prediction, after its rows are scaled to unit length where rows are.
    n_jobs : int or None
        Threads, as in joblib. The result is bit-identical for every number.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    feature_weights_ : array (d, L)
        Z, in the floating type of X. 0 for a label without a known entry. ``coef_`` is its transpose.
    intercept_ : array (L,)
        b, minus ½ for squared loss: a score of 0 is the border between off and on. A label without a known entry has
        −10³⁰, below all others.
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

    _saved_arrays = ("feature_weights_", "intercept_")
    _label_axes: ClassVar[Mapping[str, tuple[int, ...]]] = {"feature_weights_": (1,), "intercept_": (0,)}
    _iteration_name = "block"

    def __init__(
        self,
        loss: str = "squared",
        reg: float = 1.0,
        max_iter: int = 200,
        positive_weight: PositiveWeight = 1.0,
        fit_intercept: bool = True,
        normalize: bool = True,
        solver: str = "auto",
        tol: float = 5e-4,
        memory_limit: float = 2**32,
        updatable: bool = False,
        dense_weight: float = 1.0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.reg = reg
        self.max_iter = max_iter
        self.positive_weight = positive_weight
        self.fit_intercept = fit_intercept
        self.normalize = normalize
        self.solver = solver
        self.tol = tol
        self.memory_limit = memory_limit
        self.updatable = updatable
        self.dense_weight = dense_weight
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_choice(self.loss, "loss", _LOSSES)
        check_real(self.reg, "reg", minimum=0, open_minimum=True)
        check_integer(self.max_iter, "max_iter", minimum=1)
        check_positive_weight(self.positive_weight)
        check_choice(self.solver, "solver", _SOLVERS)
        check_real(self.tol, "tol", minimum=0, open_minimum=True)
        check_real(self.memory_limit, "memory_limit", minimum=0, open_minimum=True)
        check_real(self.dense_weight, "dense_weight", minimum=0)

    def _reads_blocks(self) -> bool:
        return True

    def _fit(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress) -> None:
        # Hinge shares the coding, the border and, for constant labels, the score of squared hinge.
        loss = get_loss("squared_hinge" if self.loss == "hinge" else self.loss)
        weight = resolve_positive_weight(self.positive_weight, Y, observed)
        direct = self._is_direct(X, Y.shape[1], plain=loss.name == "squared" and observed is None and weight is None)
        size = self._batch_size(X.shape, X.dtype, Y.shape[1], direct=direct)
        threads = thread_count(self.n_jobs)
        rows = self._prepared(X)
        labels = TrainingLabels.build(
            Y, observed, weight, dtype=X.dtype, n_threads=threads, row_weight=self._row_weight
        )
        way = self._direct if direct else self._dual if self.loss == "hinge" else self._by_steps
        counts = LabelCounts(
            np.bincount(labels.positives.indices, minlength=Y.shape[1]), labels.rates(), labels.unknown_labels()
        )
        self._fit_batches(
            lambda batches: way(rows, labels, loss, batches), counts, size, X.shape[1], X.dtype, loss, progress
        )

    def _fit_batches(
        self,
        solve: Callable[[list[np.ndarray]], Iterator[_Batch]],
        counts: LabelCounts,
        size: int,
        n_features: int,
        dtype: np.dtype,
        loss: Loss,
        progress: FitProgress,
    ) -> None:
        """All labels, from the most frequent on, ``size`` at a time."""
        rates, n_labels = counts.rates, len(counts.rates)
        # With an intercept, a label whose known entries are all on or all off loses nothing by a constant score.
        constant = ((rates == 0) | (rates == 1)) & self.fit_intercept
        order = np.argsort(-counts.positives, kind="stable")
        order = order[~constant[order]]
        batches = [order[start:stop] for start, stop in even_chunks(len(order), size)]
        progress.total = max(1, len(batches))

        coef = np.zeros((n_features, n_labels), dtype=dtype)
        intercept = np.where(constant, loss.constant(rates) - loss.threshold, LOWEST_SCORE)
        sizes: dict[str, Any] = {"d": n_features, "L": n_labels, "dtype": dtype, "n_batches": len(batches)}
        solved = progress.resume(_SolvedLabels, **sizes) or _SolvedLabels(coef, intercept)
        if not batches:
            progress.step(0.0, labels=int(constant.sum()), solver_iterations=0)
        left = batches[solved.batches :]
        for ids, batch in zip(left, solve(left)):
            solved.add(ids, batch, loss.threshold)
            done = int(constant.sum()) + sum(map(len, batches[: solved.batches]))
            if progress.step(solved.objective, state=solved, labels=done, solver_iterations=batch.n_iter):
                break

        if solved.unfinished and not progress.stopped:
            warn(
                f"BinaryRelevance: {solved.unfinished} of {len(batches)} batches of labels stopped after "
                f"max_iter={self.max_iter} steps with a gradient above tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
            )
        solved.intercept[counts.unknown] = LOWEST_SCORE
        self.feature_weights_, self.intercept_ = solved.coef, solved.intercept.astype(dtype)

    def _direct(self, X: Features, labels: TrainingLabels, loss: Loss, batches: list[np.ndarray]) -> Iterator[_Batch]:
        by_label = sp.csr_matrix(labels.positives.T)
        factor = RidgeFactor(
            X,
            self.reg,
            fit_intercept=self.fit_intercept,
            row_weight=labels.row_weight,
            n_threads=thread_count(self.n_jobs),
        )
        for ids in batches:
            ridge = factor.solve(by_label[ids])
            yield _Batch(ridge.coefficients, ridge.intercept, float(ridge.value.sum()), converged=True, n_iter=0)

    def _by_steps(self, X: Features, labels: TrainingLabels, loss: Loss, batches: list[np.ndarray]) -> Iterator[_Batch]:
        design = Design.build(X, fit_intercept=self.fit_intercept, n_threads=thread_count(self.n_jobs))
        columns = LabelColumns(labels, loss)
        for ids in batches:
            batch = columns.batch(ids, with_start=self.fit_intercept)
            curvature = curvature_at_start(batch, loss)
            scales = Scales.of(design.mean, design.mean_square, curvature, self.reg, X.dtype)
            block = LinearBlock(design, batch, loss, scales)
            yield self._solved(block, scales, batch.start, quadratic=loss.name == "squared", tol=self.tol)

    def _solved(
        self, problem: SmoothProblem, scales: Scales, start: np.ndarray, *, quadratic: bool, tol: float
    ) -> _Batch:
        """A batch of labels by steps from V = 0."""
        zeros = scales.zeros(len(start))
        if quadratic:
            problem.move_to(zeros)
            step = quadratic_step(problem, tol=tol, max_iter=self.max_iter, inner=dot_columns)
            V, finished, n_iter = step.solution, step.status != "max_iter", step.n_iter
            problem.move_to(V)
            value = problem.value()
        else:
            newton = tron(problem, zeros, tol=tol, max_iter=self.max_iter, inner=dot_columns)
            V, finished, n_iter = newton.solution, newton.status != "max_iter", newton.n_iter
            value = newton.value
        return _Batch(*scales.coefficients(V, start), float(value.sum()), finished, n_iter)

    def _dual(self, X: Features, labels: TrainingLabels, loss: Loss, batches: list[np.ndarray]) -> Iterator[_Batch]:
        rows = canonical_csr(X.tocsr() if isinstance(X, FeatureBlocks) else X)
        on = sp.csr_matrix(labels.weighted_positives.T)
        # The known rows of a label that are not its positives; None where all are known.
        off = None
        if labels.observed is not None:
            off = sp.csr_matrix(per_row(sp.csr_matrix(labels.observed - labels.positives), labels.row_weight).T)
        descent = Descent(
            squared=False,
            constant=float(self.fit_intercept),
            tol=float(_DUAL_SPREAD * self.tol),
            max_iter=int(self.max_iter),
        )
        for ids in batches:
            svm = dual_coordinate_descent(
                rows,
                on[ids],
                None if off is None else off[ids],
                descent=descent,
                reg=self.reg,
                streams=ids,
                row_costs=labels.row_weight,
                n_threads=thread_count(self.n_jobs),
            )
            finished, n_iter = bool(svm.converged.all()), int(svm.n_iter.max())
            yield _Batch(svm.coefficients.T, svm.intercept, float(svm.value.sum()), finished, n_iter)

    def _is_direct(self, X: Features, n_labels: int, *, plain: bool) -> bool:
        """Whether to factorise; raises where the user asks for what cannot be."""
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

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        loss = get_loss("squared_hinge" if self.loss == "hinge" else self.loss)
        return loss.rate(scores + scores.dtype.type(loss.threshold))

    def _score_rows(self, X: Features, n_threads: int | None = None) -> np.ndarray:
        scores = matmul(self._prepared(X), self.feature_weights_, n_threads=n_threads or thread_count(self.n_jobs))
        scores += self.intercept_
        return scores

    def _score_pairs(self, rows: sp.csr_matrix, pairs: sp.csr_matrix, *, n_threads: int) -> np.ndarray:
        """Scores of the stored ``pairs`` (n×L), in storage order, of rows as :meth:`scored_rows` returns them."""
        scores = sampled_csr_product(pairs, rows, self.feature_weights_, n_threads=n_threads)
        return scores + self.intercept_[pairs.indices]

    def _top_k(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        def rows(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
            hidden = None if exclude is None else exclude[start:stop]
            return top_k_of_scores(finite_scores(self._score_rows(X[start:stop], n_threads=1)), k, exclude=hidden)

        labels, scores = zip(*run_chunks(rows, self._row_blocks(X), thread_count(self.n_jobs)))
        return np.concatenate(labels), np.concatenate(scores)

    def _feature_axes(self) -> Mapping[str, tuple[int, ...]]:
        return {"feature_weights_": (0,)}

    def _learn_labels(self, rows: LabelRows, labels: np.ndarray, progress: FitProgress) -> None:
        """A model of these labels alone."""
        weight = self.positive_weight
        weight = np.asarray(weight)[labels] if np.ndim(weight) == 1 else weight
        alone = clone(self).set_params(updatable=False, positive_weight=weight)
        alone._fit_stage(rows.X, rows.Y, rows.observed, rows.weight, progress)
        self.feature_weights_ = replaced(self.feature_weights_, labels, alone.feature_weights_, axis=1)
        self.intercept_ = replaced(self.intercept_, labels, alone.intercept_)

    def _check_restored(self) -> None:
        if self.updatable:
            self._check_kept()
        require_dense(2, feature_weights_=self.feature_weights_)
        require_dense(1, intercept_=self.intercept_)
        found = (self.feature_weights_.shape, self.intercept_.shape)
        expected = ((self.n_features_in_, self.n_labels_), (self.n_labels_,))
        if found != expected:
            raise ValueError(f"arrays of shapes {found} where {expected} are expected")
        require_finite_floats(feature_weights_=self.feature_weights_, intercept_=self.intercept_)


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


@dataclass
class _SolvedLabels(State):
    """All batches so far: 0 for labels not solved yet, the sum of objectives, and how many batches did not converge."""

    coef: np.ndarray = array("d", "L")
    intercept: np.ndarray = array("L", dtype=np.float64)
    objective: float = real(default=0.0)
    batches: int = count(1, "n_batches", default=0)
    unfinished: int = count(0, "batches", default=0)

    def add(self, ids: np.ndarray, batch: _Batch, threshold: float) -> None:
        """One more batch; its scores are centered at the ``threshold`` of the loss."""
        self.coef[:, ids] = batch.coefficients
        self.intercept[ids] = batch.intercept - threshold
        self.objective += batch.objective
        self.batches += 1
        self.unfinished += not batch.converged
