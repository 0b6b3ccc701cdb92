"""MSE: each label is a subspace of the feature space; a row's labels are the few subspaces that represent it."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.base import OVERFLOW, MultiLabelModel
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, warn
from tagwise.models.factor_model import LOWEST_SCORE, unit_rows
from tagwise.models.mse.memory import check_dictionary_memory, check_fit_memory
from tagwise.models.mse.subspaces import (
    Direction,
    canonical_subspaces,
    check_subspaces,
    describe,
    outlier_count,
    prediction_dictionary,
    resolve_ranks,
)
from tagwise.parallel import thread_count
from tagwise.progress import FitProgress
from tagwise.randomness import check_random_state
from tagwise.solvers.group_lasso import group_one_norms
from tagwise.solvers.subspace_decomposition import decompose_into_subspaces, usable_ranks
from tagwise.validation import check_choice, check_integer, check_real

__all__ = ["MSE", "Direction"]


class MSE(MultiLabelModel):
    r"""Multi-label subspace ensemble (Zhou and Tao, AISTATS 2012).

    Training splits the rows into parts that their labels explain and a few outliers,

    .. math:: \min_{L, S} \Bigl\lVert X - \sum_j L^j - S \Bigr\rVert_F^2 \quad\text{s.t.}\quad
        \operatorname{rank} L^j \le r_j,\; L^j = 0 \text{ outside the rows of label } j,\; \operatorname{card} S \le K,

    and keeps the row space C^j of each L^j. Prediction represents a row by few of these subspaces,

    .. math:: \min_\beta \tfrac12 \lVert x - \beta C\rVert^2 + \lambda \sum_j \lVert\beta_{G_j}\rVert_2,

    and puts label j on where :math:`\lVert\beta_{G_j}\rVert_1 \ge \delta`. Scores are these 1-norms less δ.

    Parameters
    ----------
    subspace_rank : int, float or int array (L,)
        r: the dimension of each label's subspace. A whole number for all labels, as in the paper; a share of each
        label's rows, above 0 and below 1 (rounded up), by which frequent labels get more room, as they need where one
        label dominates; or one number per label. Cut down to the number of the label's rows, and of features, where
        those are less.
    outlier_fraction : float
        K as a share of the n·p entries of X, from 0 to 1.
    reg : float
        λ > 0. It is compared with correlations of a row with subspaces, so with unit rows it should be below 1. Used at
        prediction only: changing it needs no new fit.
    threshold : float
        δ > 0, at most 10⁶ (10¹⁵ without ``normalize``). Used at prediction only. :meth:`select` finds the δ of highest
        F1 on held-out rows.
    decomposition : {"brp", "svd"}
        How L^j is found: by bilateral random projections or by exact truncated singular value decompositions, which
        take longer and come closer to the optimum.
    max_iter : int
        Rounds over all labels at the most.
    tol : float
        Training has converged when a round lowers the objective by at most this share of it. The default of 1e-2 stops
        while the objective still falls slowly: for a decomposition near its limit use 1e-4 and a larger ``max_iter``.
    gap_tol : float
        A row's representation is solved to a duality gap of ``gap_tol`` · ½‖x‖².
    normalize : bool
        Scale rows of X to unit length, at fit and at prediction.
    memory_limit : float
        Bytes that a fit may take at its peak, without X and Y as they were given: scaled rows, L and S in their
        factored form, the rows of the most expensive label as a dense block, and the Gram matrix of all R directions.
        A fit that could need more is refused before any work, as is loading a folder whose dictionary would.
        ``float("inf")`` is no limit.
    n_jobs : int or None
        Threads, as in joblib. The result is bit-identical for every number.
    random_state : int, Generator, RandomState or None
        Seeds the projections of "brp".
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    subspaces_ : array (R, p)
        The orthonormal bases C^j below one another, in the floating type of X; within a label the strongest direction
        first.
    strengths_ : array (R,)
        For each direction the root mean square of its coefficients over the label's training rows.
    subspace_starts_ : int array (L + 1,)
        Label j has the rows subspace_starts_[j] to subspace_starts_[j + 1] of ``subspaces_``.
    objective_, history_, n_iter_
        ‖X − Σ L − S‖²_F after each round, which never rises (Theorem 1); the same with seconds; number of rounds.

    Notes
    -----
    Training: :func:`tagwise.solvers.subspace_decomposition.decompose_into_subspaces`, where time and memory are given.
    Prediction: :func:`tagwise.solvers.group_lasso.group_one_norms`: block coordinate descent with working sets and safe
    screening, O(nnz(x)·R) for the correlations of a row and O(R) for each coefficient that it uses. R = Σ r_j; memory
    8R² + 8Rp bytes beside the model, and up to 4 products of 8R² for each thread while it is prepared.

    Deviations from the paper: the bases are the singular vectors of L^j where the paper takes any QR factor, since the
    1-norm of coefficients depends on the basis: in this way it depends on nothing but L^j. In "brp" only the first
    round draws random matrices (see the solver). S keeps its signs. Stopping is by relative change, not by the size of
    the error, which no choice of parameters may make small.

    A label without rows, or whose rows have no features, has no subspace: its score is −10³⁰, below all others, and it
    is never predicted. A label of fewer rows than ``subspace_rank`` gets the dimension of their span. A row without
    labels goes into S as far as K allows and influences nothing else. A row without features has the score −δ for
    every label that has a subspace. Labels that a row does not use have the score −δ exactly, and :meth:`predict_topk`
    gives such ties in the order of their ids: do not ask for many more labels than rows use. Labels with one and the
    same subspace (their rows may be the same) are one group at prediction and have the same score.

    The default rank, λ and δ did well on held-out training rows of three Yahoo sets; they are no substitute for
    :meth:`select`. There is no notion of unknown labels.

    Examples
    --------
    >>> from tagwise import MSE
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> model = MSE(subspace_rank=2).fit(data.X_train, data.Y_train)
    >>> model.predict(data.X_test).shape == data.Y_test.shape
    True
    """

    _saved_arrays: ClassVar[tuple[str, ...]] = ("subspaces_", "strengths_", "subspace_starts_")

    subspaces_: np.ndarray
    strengths_: np.ndarray
    subspace_starts_: np.ndarray

    def __init__(
        self,
        subspace_rank: Any = 0.05,
        outlier_fraction: float = 1e-4,
        reg: float = 0.2,
        threshold: float = 0.2,
        decomposition: str = "brp",
        max_iter: int = 30,
        tol: float = 1e-2,
        gap_tol: float = 1e-8,
        normalize: bool = True,
        memory_limit: float = 2**31,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.subspace_rank = subspace_rank
        self.outlier_fraction = outlier_fraction
        self.reg = reg
        self.threshold = threshold
        self.decomposition = decomposition
        self.max_iter = max_iter
        self.tol = tol
        self.gap_tol = gap_tol
        self.normalize = normalize
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def select(
        cls,
        X: Any,
        Y: Any,
        grid: dict[str, Sequence[Any]] | Sequence[dict[str, Sequence[Any]]] | None = None,
        *,
        n_folds: int = 3,
        random_state: Any = 0,
        **parameters: Any,
    ) -> MSE:
        """Choose parameters and δ by cross-validated example-F1 on the training rows, and fit on all of them.

        Parameters
        ----------
        X, Y
            Training rows and labels, as for :meth:`fit`.
        grid : dict of lists, or list of such dicts, optional
            Parameters to try, as in scikit-learn's ``ParameterGrid``; by default ranks 1, 3, 6 and shares 0.05 and
            0.1 with λ of 0.1, 0.2, 0.3 and 0.45, by both decompositions. The paper chose among 4 points with ranks of
            1 to 6, λ of 0.2 to 0.45, K of 10⁻⁶ to 10⁻³ and δ of 10⁻⁴ to 10⁻²; λ = 0.1 and shares go beyond that, and
            K stays at its default. Without a ``threshold`` in it (or in ``parameters``), the δ of highest F1 is found
            exactly, in no fixed range.
        n_folds : int
            Every row is scored once by a model that has not seen it.
        random_state : int, Generator, RandomState or None
            Deals rows to folds; and, if a whole number, the ``random_state`` of the models.
        **parameters
            Fixed parameters of all models.

        Returns
        -------
        MSE
            Fitted on all rows with the best parameters. Its ``selection_`` lists what was tried: parameters,
            ``threshold`` and ``f1`` of each, best first (it is not saved with the model).

        Notes
        -----
        Equal F1 goes to the earlier entry of the grid, and to the higher δ. Models that differ in ``reg``,
        ``threshold`` or ``gap_tol`` only share their fits.
        """
        from tagwise.models.mse.selection import select_parameters

        tried = select_parameters(cls, X, Y, grid, n_folds=n_folds, random_state=random_state, fixed=parameters)
        best = {name: value for name, value in tried[0].items() if name != "f1"}
        model = cls(**best).fit(X, Y)
        model.selection_ = tried
        return model

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        resolve_ranks(self.subspace_rank, None)
        check_real(self.outlier_fraction, "outlier_fraction", minimum=0, maximum=1)
        check_real(self.reg, "reg", minimum=0, open_minimum=True)
        # No coefficient of a unit row gets anywhere near; beyond it δ would swallow the digits of the scores.
        check_real(self.threshold, "threshold", minimum=0, maximum=1e6 if self.normalize else 1e15, open_minimum=True)
        check_choice(self.decomposition, "decomposition", ("brp", "svd"))
        check_integer(self.max_iter, "max_iter", minimum=1)
        check_real(self.tol, "tol", minimum=0)
        check_real(self.gap_tol, "gap_tol", minimum=1e-13)
        if not (isinstance(self.memory_limit, float) and self.memory_limit == np.inf):
            check_real(self.memory_limit, "memory_limit", minimum=0, open_minimum=True)
        check_random_state(self.random_state)

    def _check_dictionary_memory(self, advice: str) -> None:
        size, n_features = self.subspaces_.shape
        check_dictionary_memory(size, n_features, self.memory_limit, advice, n_threads=thread_count(self.n_jobs))

    # ------------------------------------------------------------------ fit

    def _fit(
        self, X: sp.csr_matrix | np.ndarray, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress
    ) -> None:
        threads = thread_count(self.n_jobs)
        ranks = resolve_ranks(self.subspace_rank, Y)
        n_features = X.shape[1]
        n_outliers = outlier_count(self.outlier_fraction, X.shape[0] * n_features)
        check_fit_memory(
            X,
            Y,
            usable_ranks(Y, ranks, n_features),
            n_outliers,
            self.memory_limit,
            decomposition=self.decomposition,
            normalize=self.normalize,
            n_threads=threads,
        )
        rows = unit_rows(X, n_threads=threads) if self.normalize else X
        values = rows.reshape(-1) if isinstance(rows, np.ndarray) else rows.data
        with np.errstate(over="ignore"):
            squared = np.einsum("i,i->", values, values)
        if not np.isfinite(squared):
            raise InvalidInputError(OVERFLOW)
        found = decompose_into_subspaces(
            rows,
            Y,
            ranks,
            n_outliers,
            decomposition=self.decomposition,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
            n_threads=threads,
            on_round=progress.step,
        )
        if found.status == "max_iter":
            warn(
                f"MSE stopped after max_iter={self.max_iter} rounds; the last one still lowered the objective by more "
                f"than a share of tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
            )
        self.subspaces_, self.strengths_, self.subspace_starts_ = canonical_subspaces(found, Y)
        del found
        self._build_dictionary()

    def _build_dictionary(self) -> None:
        """What prediction needs, of the labels that have a subspace."""
        self._dictionary, self._group_of = prediction_dictionary(
            self.subspaces_, self.subspace_starts_, n_threads=thread_count(self.n_jobs)
        )

    # ------------------------------------------------------------------ predict

    def _score_rows(self, X: sp.csr_matrix | np.ndarray) -> np.ndarray:
        scores = np.full((X.shape[0], self.n_labels_), LOWEST_SCORE, dtype=self.subspaces_.dtype)
        if len(self.subspaces_):
            scores[:, np.diff(self.subspace_starts_) > 0] = self._one_norms(X) - self.threshold
        return scores

    def _one_norms(self, X: sp.csr_matrix | np.ndarray) -> np.ndarray:
        """‖β_G‖₁ of each row and each label that has a subspace."""
        threads = thread_count(self.n_jobs)
        rows = unit_rows(X, n_threads=threads) if self.normalize else X
        found = group_one_norms(rows, self._dictionary, self.reg, tol=self.gap_tol, n_threads=threads)
        if not found.converged:
            warn(
                f"MSE: some rows stopped at a duality gap above gap_tol={self.gap_tol:g} (the largest is "
                f"{found.gap.max():.2g}); raise gap_tol or reg.",
                ConvergenceWarning,
            )
        return found.norms[:, self._group_of]

    def _sparse_one_norms(self, X: sp.csr_matrix | np.ndarray) -> sp.csr_matrix:
        """The same for all labels, block by block; only what is above 0 is stored."""
        labels = np.flatnonzero(np.diff(self.subspace_starts_))
        shape = (X.shape[0], self.n_labels_)
        if len(labels) == 0:
            return sp.csr_matrix(shape)
        blocks = [sp.csr_matrix(self._one_norms(X[start:stop])) for start, stop in self._row_blocks(X)]
        stacked = sp.csr_matrix(sp.vstack(blocks))
        return sp.csr_matrix((stacked.data, labels[stacked.indices], stacked.indptr), shape=shape)

    # ------------------------------------------------------------------ explain

    def explain(self, label: int | str, feature_names: Sequence[str] | None = None, top: int = 10) -> list[Direction]:
        """The subspace of a label as weighted features.

        Parameters
        ----------
        label : int or str
            Id, or one of ``label_names_``.
        feature_names : sequence of str (p,), optional
            By default the column names of the data frame that the model was fitted on, else the features' ids.
        top : int
            How many features of each direction.

        Returns
        -------
        list of Direction
            Strongest first; empty for a label without a subspace.
        """
        self._require_fitted()
        number = self._label_id(label)
        own = slice(self.subspace_starts_[number], self.subspace_starts_[number + 1])
        default = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        return describe(self.subspaces_[own], self.strengths_[own], feature_names, default, top)

    def _label_id(self, label: int | str) -> int:
        if isinstance(label, str):
            names = self.label_names_
            if names is None:
                raise InvalidInputError(
                    f"label is {label!r} but this model has no label names; give the label's id, or save the model "
                    "with label_names and load it."
                )
            if label not in names:
                raise InvalidInputError(f"label {label!r} is not among the {len(names):,} label names of this model.")
            return names.index(label)
        number = check_integer(label, "label", minimum=0)
        if number >= self.n_labels_:
            raise InvalidInputError(f"label must be below {self.n_labels_:,}, the number of labels; found {number}.")
        return number

    # ------------------------------------------------------------------ folders

    def save(self, path: str | PathLike[str], *, label_names: list[str] | None = None, overwrite: bool = True) -> None:
        """Write the fitted model as a folder; see :meth:`tagwise.base.MultiLabelModel.save`."""
        self._require_fitted()
        self._check_all_parameters()
        self._check_dictionary_memory("a folder with this limit could not be loaded: raise memory_limit before saving")
        super().save(path, label_names=label_names, overwrite=overwrite)

    def _check_restored(self) -> None:
        C = self.subspaces_
        check_subspaces(C, self.strengths_, self.subspace_starts_, self.n_features_in_, self.n_labels_)
        if not hasattr(self, "_dictionary"):
            self._check_dictionary_memory(
                "load it where the folder's memory_limit can be raised, or fit fewer directions"
            )
            self._build_dictionary()
