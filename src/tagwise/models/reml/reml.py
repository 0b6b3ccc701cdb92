"""REML: low rank plus sparse for labels that are rare (Xu, Tao, Xu: Robust Extreme Multi-label Learning, KDD 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import ConvergenceWarning, InvalidInputError, TagwiseWarning, warn
from tagwise.kernels import CSRWithTranspose
from tagwise.models.factor_model import LOWEST_SCORE, unit_rows, usable_rank
from tagwise.models.positive_weight import PositiveWeight, check_positive_weight, resolve_positive_weight
from tagwise.models.sparse_factor_model import SparseFactorModel
from tagwise.parallel import thread_count
from tagwise.progress import FitProgress
from tagwise.randomness import check_random_state, random_generator
from tagwise.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from tagwise.models.reml.alternation import LowRankAndSparse, Prepared, Settings
    from tagwise.problems.labels import TrainingLabels

# What only fits need is imported by them, so that a fitted model is loaded quickly.

__all__ = ["REML"]


class REML(SparseFactorModel):
    r"""Low rank plus sparse: correlations of labels in a low rank, rare labels in a sparse part of their own.

    Minimises over U (d×k), V (L×k), H (d×L) and an unpenalised intercept b (L), with labels −1/+1 and
    S = XUVᵀ + XH + 1bᵀ (equation 5 of the paper, in which b = 0 and all labels are known)

    .. math:: \sum_{(i,j)\in\Omega} \omega_{ij} (Y_{ij} - S_{ij})^2 + \lambda_1 \|H\|_F^2
              + \lambda_2 (\|U\|_F^2 + \|V\|_F^2) + \lambda_3 \|XH\|_1 .

    Rounds of three steps, none of which raises the objective: U by conjugate gradients, V and b in closed form (one
    k×k factorisation for all labels), then H. H has two forms. **ADMM** is the paper's: equations 10-16, in blocks of
    labels, on one factorisation of XᵀX (or XXᵀ) for all labels and rounds. **Support** replaces λ3‖XH‖₁ by sparsity of
    H itself: each label chooses, in the first round, the ``support`` features that lower its residual most among those
    of its own positive rows, and is solved exactly on them. It takes memory for H only, and so any number of labels.

    Parameters
    ----------
    rank : int
        k. More than min(d, L) is clipped with a warning.
    reg_low_rank : float
        λ2 > 0. The same low rank as LEML's with reg = λ2/2 (LEML's squares are halves and its labels 0/1).
    reg_sparse : float
        λ1 > 0.
    sparsity : float
        λ3 ≥ 0; only ADMM has it.
    partitions : int
        t. Above 1, divide and conquer: labels are dealt into t random parts, each with its share of the rank and a
        quarter of the support, learnt in parallel processes (``n_jobs`` of them) that share X as a memory map; the low
        ranks are projected onto the column space of the first part's, and H is found for all labels together. A little
        less accurate. It pays for many labels and large ranks; see docs/reml.md for where it does not.
    sparse_part : {"auto", "admm", "support"}
        How H is found. "auto" takes ADMM where XᵀX or XXᵀ is factorised quickly (a side of at most 2,000) and within
        half of ``memory_limit``, and all labels' Z, μ and H fit the other half; else support.
    support : int
        Features a label may use, with "support".
    prune : float
        After ADMM, entries of H below ``prune`` times the largest of their label are dropped. The default is the
        largest tolerance that cost less than 0.1 points on held-out rows of four sets; docs/reml.md shows the curve.
    max_iter : int
        Rounds at the most.
    positive_weight : float, array (L,) or "propensity"
        ω of a positive relative to a negative, as in LEML.
    fit_intercept, normalize : bool
        Whether b is learnt; scale rows of X to unit length, at fit and at prediction.
    inner_iter : int
        Steps of conjugate gradients for U in a round. Few leave to H what H explains better; see the notes.
    tol : float
        The fit has converged when a round lowers the objective by at most ``tol`` times what the first round did.
    memory_limit : float
        Bytes for XᵀX (or its factorisation) and for the blocks of labels that ADMM works on; in each process, where
        there are several. A dense H, while ADMM runs, comes on top. With "support" and very many features, a larger
        limit saves much time: the part of XᵀX that does not fit is added up again for every label that needs it.
    n_jobs : int or None
        Threads, or with ``partitions`` processes, as in joblib. The result is bit-identical for every number.
    random_state : int, Generator, RandomState or None
        Seeds the start and the partition.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    feature_factors_, label_factors_, intercept_
        U (d×k), V (L×k), b (L) in the scale of 0/1 labels, b less ½: scores are centred, 0 is the border between off
        and on; twice a score is that of equation 5.
    sparse_weights_ : CSR (d, L)
        H, in the same scale. The column of a label without a positive is empty with "support".
    sparse_part_ : str
        "admm" or "support", whichever was used.
    rank_ : int
        k; with ``partitions`` that of the first part.
    objective_, history_, n_iter_
        Equation 5 after each round (without λ3‖XH‖₁ for "support", and before pruning). With ``partitions``: of each
        part alone, and at last of all labels together.

    Notes
    -----
    Time: a round costs LEML's O((nnz X + nnz Y + nnz H)k + (n + L)k²), with a mask O(|Ω|k) more, and H. ADMM: per step
    O(nnz(X)L) and O(min(n, d)²L), and min(n, d)³ once. Support: see :class:`tagwise.solvers.support_least_squares`.
    Memory O(nnz X + nnz Y + |Ω| + nnz H + (n + d + L)k) + ``memory_limit``; d×L dense while ADMM runs; never n×L.

    A mask (``observed``) is handled by both forms: residuals, Gram matrices and λ3‖XH‖₁ then run over known pairs.

    ``inner_iter`` and ``tol`` were chosen on held-out training rows of bibtex, debtags and yso-finna-en-min4: with 5
    conjugate-gradient steps the low rank takes over what H explains better, and precision falls with every round; with
    one, further rounds change it by 0.1 or 0.2 points in either direction.

    Examples
    --------
    >>> from tagwise import REML
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> model = REML(rank=50, tol=0.5).fit(data.X_train, data.Y_train)
    >>> labels, scores = model.predict_topk(data.X_test, k=3)
    >>> labels.shape == (data.X_test.shape[0], 3)
    True
    """

    _saved_values: ClassVar[tuple[str, ...]] = ("rank_", "sparse_part_")

    sparse_part_: str

    def __init__(
        self,
        rank: int = 100,
        reg_low_rank: float = 1.0,
        reg_sparse: float = 1.0,
        sparsity: float = 0.01,
        partitions: int = 1,
        sparse_part: str = "auto",
        support: int = 200,
        prune: float = 0.02,
        max_iter: int = 5,
        positive_weight: PositiveWeight = 1.0,
        fit_intercept: bool = True,
        normalize: bool = True,
        inner_iter: int = 1,
        tol: float = 0.1,
        memory_limit: float = 2**31,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.reg_low_rank = reg_low_rank
        self.reg_sparse = reg_sparse
        self.sparsity = sparsity
        self.partitions = partitions
        self.sparse_part = sparse_part
        self.support = support
        self.prune = prune
        self.max_iter = max_iter
        self.positive_weight = positive_weight
        self.fit_intercept = fit_intercept
        self.normalize = normalize
        self.inner_iter = inner_iter
        self.tol = tol
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_integer(self.rank, "rank", minimum=1)
        check_real(self.reg_low_rank, "reg_low_rank", minimum=0, open_minimum=True)
        check_real(self.reg_sparse, "reg_sparse", minimum=0, open_minimum=True)
        check_real(self.sparsity, "sparsity", minimum=0)
        check_integer(self.partitions, "partitions", minimum=1)
        check_choice(self.sparse_part, "sparse_part", ("auto", "admm", "support"))
        check_integer(self.support, "support", minimum=1)
        check_real(self.prune, "prune", minimum=0, maximum=1)
        check_integer(self.max_iter, "max_iter", minimum=1)
        check_integer(self.inner_iter, "inner_iter", minimum=1)
        check_real(self.tol, "tol", minimum=0)
        check_positive_weight(self.positive_weight)
        check_real(self.memory_limit, "memory_limit", minimum=0, open_minimum=True)
        check_random_state(self.random_state)

    def _iterations(self) -> int:
        return self.max_iter if self.partitions == 1 else self.partitions + 1

    # ------------------------------------------------------------------ fit

    def _fit(
        self, X: sp.csr_matrix | np.ndarray, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress
    ) -> None:
        from tagwise.models.reml.alternation import alternate, prepare
        from tagwise.models.reml.partitions import random_parts
        from tagwise.models.reml.rounds import REMLRounds, require_possible_sparse_part
        from tagwise.models.reml.sparse_part import pruned
        from tagwise.problems.labels import TrainingLabels

        threads = thread_count(self.n_jobs)
        weight = resolve_positive_weight(self.positive_weight, Y, observed)
        dtype = X.dtype
        self.sparse_part_ = self._which_sparse_part(X.shape, Y.shape[1], dtype.itemsize)
        n_features, n_labels = X.shape[1], Y.shape[1]
        rank = usable_rank(self.rank, min(n_features, n_labels), f"{n_features} features and {n_labels} labels allow")
        rows = sp.csr_matrix(unit_rows(X, n_threads=threads) if self.normalize else X)
        features = CSRWithTranspose(rows, n_threads=threads)
        labels = TrainingLabels.build(Y, observed, weight, dtype=dtype, n_threads=threads)
        known = np.setdiff1d(np.arange(n_labels), labels.unknown_labels())
        partitions = self._usable_partitions(len(known))
        settings = self._settings(rank, partitions)
        prepared = prepare(features, labels, settings)
        rng = random_generator(self.random_state)
        if partitions == 1:
            support = settings.support if self.sparse_part_ == "support" else None
            rounds = progress.resume(
                REMLRounds,
                check=lambda found: require_possible_sparse_part(found.sparse, features, labels, support),
                d=n_features,
                L=n_labels,
                k=rank,
                dtype=dtype,
                max_iter=self.max_iter,
            )
            if rounds is not None:
                rounds.factors.A = features.matmul(rounds.factors.W)
            learnt = alternate(features, prepared, labels, settings, rng, progress.step, rounds)
        else:
            ids = random_parts(known, partitions, rng)
            learnt = self._divide_and_conquer(features, prepared, labels, ids, settings, rng, progress, threads)
        if not learnt.converged and not progress.stopped:
            warn(
                f"REML stopped after max_iter={self.max_iter} rounds; the last one still lowered the objective by "
                f"{learnt.fall:.2g} of what the first one did, above tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
            )
        if learnt.unsolved:
            warn(
                f"ADMM did not reach its tolerance for {learnt.unsolved} of {n_labels} labels in the last round, which "
                "keep the best sparse part found; lower positive_weight or sparsity, scale the features, or use "
                'sparse_part="support".',
                ConvergenceWarning,
            )
        factors = learnt.factors
        unknown = labels.unknown_labels()
        factors.H[unknown] = 0
        factors.b[unknown] = LOWEST_SCORE
        self.rank_ = factors.H.shape[1]
        self.feature_factors_ = factors.W.astype(dtype, copy=False)
        self.label_factors_ = factors.H.astype(dtype, copy=False)
        self.intercept_ = (factors.b - 0.5).astype(dtype)
        self.sparse_weights_ = pruned(learnt.sparse, self.prune).astype(dtype, copy=False)

    def _divide_and_conquer(
        self,
        X: CSRWithTranspose,
        prepared: Prepared,
        labels: TrainingLabels,
        ids: list[np.ndarray],
        settings: Settings,
        rng: np.random.Generator,
        progress: FitProgress,
        n_processes: int,
    ) -> LowRankAndSparse:
        """Parts alone, their low ranks projected onto the first one's column space, then H for all labels."""
        from tagwise.losses import get_loss
        from tagwise.models.reml.alternation import EQUATION_5, LowRankAndSparse, low_rank_penalty, sparse_part
        from tagwise.models.reml.partitions import LearntParts, learn_parts, project_onto_first
        from tagwise.problems.squared import SquaredTerms

        seeds = [int(seed) for seed in rng.integers(2**31, size=len(ids))]
        ready = progress.resume(
            LearntParts,
            check=lambda found: found.require_parts_of(ids, settings.rank),
            d=X.shape[1],
            dtype=X.matrix.dtype,
        ) or LearntParts([])
        parts = ready.parts
        left = slice(len(parts), None)
        for part in learn_parts(X, prepared, labels, ids[left], settings, seeds[left], n_processes=n_processes):
            parts.append(part)
            if progress.step(part.objective, state=ready, part=len(parts)):
                break
        loss = get_loss("squared")
        constant = loss.constant(labels.rates()) if self.fit_intercept else np.full(labels.shape[1], loss.threshold)
        factors = project_onto_first(X, parts, constant)
        step = sparse_part(X, prepared, labels, SquaredTerms.build(labels), settings).step(factors, None)
        value = step.value + low_rank_penalty(factors, settings.reg_low_rank / 2)
        if not progress.stopped:
            progress.step(EQUATION_5 * value, unsolved=step.unsolved)
        return LowRankAndSparse(
            factors,
            step.weights,
            converged=all(part.converged for part in parts),
            fall=max(part.fall for part in parts),
            unsolved=step.unsolved,
        )

    def _usable_partitions(self, n_labels: int) -> int:
        if self.partitions > n_labels:
            warn(
                f"partitions={self.partitions} is more than the {n_labels} labels to share out; using {n_labels}.",
                TagwiseWarning,
            )
        return min(self.partitions, n_labels)

    def _settings(self, rank: int, partitions: int) -> Settings:
        from tagwise.models.reml.alternation import Settings

        return Settings(
            rank=-(-rank // partitions),
            reg_low_rank=self.reg_low_rank,
            reg_sparse=self.reg_sparse,
            sparsity=self.sparsity,
            sparse_part=self.sparse_part_,
            support=self.support,
            max_iter=self.max_iter,
            inner_iter=self.inner_iter,
            tol=self.tol,
            fit_intercept=self.fit_intercept,
            memory_limit=self.memory_limit,
        )

    def _which_sparse_part(self, shape: tuple[int, int], n_labels: int, itemsize: int) -> str:
        from tagwise.models.reml.sparse_part import admm_fits

        dense = itemsize * shape[1] * n_labels
        if self.sparse_part == "admm" and dense > self.memory_limit:
            raise InvalidInputError(
                f'sparse_part="admm" keeps a dense H while it runs, memory of {dense / 2**20:,.3g} MiB for '
                f"{shape[1]:,} features and {n_labels:,} labels; memory_limit is {self.memory_limit / 2**20:,.3g} MiB. "
                'Raise it, or use sparse_part="support".'
            )
        if self.sparse_part != "auto":
            return self.sparse_part
        return "admm" if admm_fits(shape, n_labels, self.memory_limit, itemsize) else "support"

    def _check_restored(self) -> None:
        super()._check_restored()
        check_integer(self.rank_, "rank_", minimum=1)
        check_choice(self.sparse_part_, "sparse_part_", ("admm", "support"))
