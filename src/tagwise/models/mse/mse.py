"""MSE: each label is a subspace of the feature space; a row's labels are the few subspaces that represent it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from tagwise.answers import finite_scores
from tagwise.estimator import OVERFLOW, MultiLabelModel
from tagwise.exceptions import ConvergenceWarning, InvalidInputError, InvalidTypeError, warn
from tagwise.fields import Fields, dense, value
from tagwise.kernels import unit_rows
from tagwise.models.factor_model import LOWEST_SCORE
from tagwise.models.mse.selection import DEFAULT_GRID, Grid, select_parameters
from tagwise.parallel import thread_count
from tagwise.parameters import Count, NonNegative, Positive, Seed, parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.solvers.group_lasso import GroupDictionary, group_one_norms
from tagwise.solvers.subspace_decomposition import SubspaceParts, decomposition_memory, dictionary_memory, usable_ranks
from tagwise.validation import Features, check_integer, check_real, require_memory

__all__ = ["MSE", "Direction", "feature_scales"]

# Largest value of a feature over that of the median feature, up to which features count as having the same unit.
_SAME_UNIT = 10
# What may be "auto", and the folds of the cross-validation behind it.
_OPEN = ("subspace_rank", "reg", "threshold")
_FOLDS = 3
# Products such as 0.07 · 100 lie a little above the whole number that is meant.
_ROUNDING = 1e-9
# Mean squared sine of the angles between two subspaces that count as the same: a thousandth of a radian, the precision
# of bases in float32.
_SAME = 1e-6


@dataclass(frozen=True)
class Direction:
    """One direction of a label's subspace, as features.

    The squares of all weights, not only those listed, sum to 1. Signs are such that the label's training rows lie on
    the positive side on average.
    """

    strength: float  # root mean square of the label's training rows' coefficients along it
    features: list[tuple[Any, float]]  # (name or id, weight), largest absolute weight first


def _check_dict(chosen: Any, name: str) -> None:
    if not isinstance(chosen, dict):
        raise ValueError(f"{name} must be a dict; found {chosen!r:.60}")


@parameters
class MSE(MultiLabelModel):
    r"""Multi-label subspace ensemble (Zhou and Tao, AISTATS 2012).

    Training splits the rows into parts that their labels explain and a few outliers,

    .. math:: \min_{L, S} \Bigl\lVert X - \sum_j L^j - S \Bigr\rVert_F^2 \quad\text{s.t.}\quad
        \operatorname{rank} L^j \le r_j,\; \operatorname{card} S \le K,

    with :math:`L^j = 0` outside the rows of label j, and keeps the row space :math:`C^j` of each :math:`L^j`.
    Prediction represents a row by few of these subspaces,

    .. math:: \min_\beta \tfrac12 \lVert x - \beta C\rVert^2 + \lambda \sum_j \lVert\beta_{G_j}\rVert_2,

    and predicts label j if :math:`\lVert\beta_{G_j}\rVert_1 \ge \delta`. Scores are these 1-norms minus δ.

    Parameters
    ----------
    subspace_rank : int, float, int array (L,) or "auto"
        r, the dimension of each label's subspace: a whole number for all labels, as in the paper; a share of each
        label's rows, above 0 and below 1 (rounded up), which gives frequent labels more room; or one number per label.
        Reduced to the label's number of rows, or of features, if those are less. "auto" chooses among 1, 3, 6, 0.05 and
        0.1 as :meth:`select` does, by cross-validated F1 on the training rows, together with all else that is "auto".
    outlier_fraction : float
        K as a share of the n·p entries of X, from 0 to 1.
    reg : float or "auto"
        λ > 0, on the scale of correlations of a row with subspaces, so below 1 with unit rows. Used at prediction only:
        changing it needs no new fit. "auto" chooses among 0.1, 0.2, 0.3 and 0.45.
    threshold : float or "auto"
        δ > 0, at most 10⁶ (10¹⁵ without ``normalize``). Used at prediction only. "auto", like :meth:`select`, finds the
        δ of highest F1 on validation rows.
    decomposition : {"brp", "svd"}
        How :math:`L^j` is found: by bilateral random projections, or by exact truncated singular value decompositions,
        which are slower and closer to the optimum.
    max_iter : int
        The most rounds over all labels.
    tol : float
        Training has converged when a round lowers the objective by at most this share of it. The default stops while
        the objective still falls slowly; for a nearly converged decomposition use 1e-4 and a larger ``max_iter``.
    gap_tol : float
        A row's representation is solved to a duality gap of ``gap_tol`` · ½‖x‖².
    scale : {"auto", "max", "none"}
        "max" first divides each feature by its largest absolute value in training, so that no feature outweighs the
        others because of its unit. "auto" does so where features are measurements in different units: more than half
        of the entries of X are not 0, and the largest value of some feature is over 10 times that of the median
        feature. Sparse features, such as words, have a unit in common and keep it.
    memory_limit : float
        The most bytes that a fit may take at its peak, without X and Y as given: scaled rows, L and S in factored form,
        the dense rows of the most expensive label, and the Gram matrix of all R directions. A fit that could need more
        is refused before any work, as is loading a folder whose dictionary would. ``float("inf")`` is no limit.

    Attributes
    ----------
    objective_ : array (rounds,)
        ‖X − Σ L − S‖²_F after each round, which never rises (Theorem 1).

    Notes
    -----
    Training: :class:`tagwise.solvers.subspace_decomposition.SubspaceParts` states time and memory. Prediction:
    :func:`tagwise.solvers.group_lasso.group_one_norms`, block coordinate descent with working sets and safe screening,
    O(nnz(x)·R) for the correlations of a row and O(R) for each coefficient that it uses, R = Σ r_j; memory 8R² + 8Rp
    bytes besides the model, and up to 4 products of 8R² per thread while it is prepared.

    Deviations from the paper (docs/mse.md has the reasons): bases are the singular vectors of :math:`L^j`; "brp" draws
    random matrices in the first round only; S keeps its signs; training stops on relative change.

    A label without rows, or whose rows have no features, has no subspace: its score is −10³⁰ and it is never predicted.
    Labels that a row does not use have the score −δ exactly, and :meth:`predict_topk` orders such ties by id. Labels
    with the same subspace are one group at prediction and have the same score.

    The default rank, λ and δ did well on training rows of three Yahoo sets; they are no substitute for "auto" or
    :meth:`select`, which take 15 fits. Unknown labels are not supported.

    Examples
    --------
    >>> from tagwise import MSE
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> model = MSE(subspace_rank=2).fit(data.X_train, data.Y_train)
    >>> model.predict(data.X_test).shape == data.Y_test.shape
    True
    """

    fields: ClassVar[Fields] = Fields(
        subspaces_=dense(
            "R",
            "d",
            meaning="The orthonormal bases :math:`C^j`, stacked, in the floating type of X; within a label the "
            "strongest direction first.",
        ),
        strengths_=dense(
            "R",
            meaning="For each direction, the root mean square of its coefficients over the label's training rows.",
        ),
        subspace_starts_=dense(
            "L+1",
            numbers="int",
            meaning="Label j has the rows subspace_starts_[j] to subspace_starts_[j + 1] of ``subspaces_``.",
        ),
        feature_scales_=dense("d", meaning="Divisors of the features; ones if features are not scaled."),
        chosen_=value(
            _check_dict,
            'Values of those of ``subspace_rank``, ``reg`` and ``threshold`` that were "auto".',
        ),
    )

    subspace_rank: Any = 0.05
    outlier_fraction: Annotated[float, partial(check_real, minimum=0, maximum=1)] = 1e-4
    reg: Positive | Literal["auto"] = 0.2
    threshold: float | Literal["auto"] = 0.2
    decomposition: Literal["brp", "svd"] = "brp"
    max_iter: Count = 30
    tol: NonNegative = 1e-2
    gap_tol: Annotated[float, partial(check_real, minimum=1e-13)] = 1e-8
    scale: Literal["auto", "max", "none"] = "auto"
    memory_limit: float = 2**31
    _: KW_ONLY
    normalize: bool = True
    n_jobs: int | None = None
    random_state: Seed = 0
    verbose: int = 0

    @classmethod
    def select(
        cls, X: Any, Y: Any, grid: Grid | None = None, *, n_folds: int = 3, random_state: Any = 0, **parameters: Any
    ) -> MSE:
        """Choose parameters and δ by cross-validated example-F1 on the training rows, and fit on all of them.

        Parameters
        ----------
        X, Y
            Training rows and labels, as for :meth:`fit`.
        grid : dict of lists, or list of such dicts, optional
            Parameters to try, as in scikit-learn's ``ParameterGrid``; by default ranks 1, 3, 6 and shares 0.05 and
            0.1 with λ of 0.1, 0.2, 0.3 and 0.45, by both decompositions. Without a ``threshold`` in it (or in
            ``parameters``), the δ of highest F1 is found exactly.
        n_folds : int
            Every row is scored once by a model that has not seen it.
        random_state : int, Generator, RandomState or None
            Assigns rows to folds; if a whole number, also the ``random_state`` of the models.
        **parameters
            Fixed parameters of all models.

        Returns
        -------
        MSE
            Fitted on all rows with the best parameters. Its ``selection_`` lists what was tried, best first: the
            parameters, ``threshold`` and ``f1`` of each (not saved with the model).

        Notes
        -----
        Equal F1 goes to the earlier entry of the grid, and to the higher δ. Models that differ only in ``reg``,
        ``threshold`` or ``gap_tol`` share their fits.
        """
        tried = select_parameters(cls, X, Y, grid, n_folds=n_folds, random_state=random_state, fixed=parameters)
        best = {name: value for name, value in tried[0].items() if name != "f1"}
        model = cls(**best).fit(X, Y)
        model.selection_ = tried
        return model

    def _check_parameters(self) -> None:
        resolve_ranks(self.subspace_rank, None)
        if self.threshold != "auto":
            # No coefficient of a unit row comes near this; beyond it, δ would swallow the digits of the scores.
            most = 1e6 if self.normalize else 1e15
            check_real(self.threshold, "threshold", minimum=0, maximum=most, open_minimum=True)
        if self.memory_limit != float("inf"):
            check_real(self.memory_limit, "memory_limit", minimum=0, open_minimum=True)

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        self.chosen_ = self._choose(X, Y)
        self.feature_scales_ = feature_scales(X, self.scale)
        ranks = usable_ranks(Y, resolve_ranks(self._used("subspace_rank"), Y), X.shape[1])
        n_outliers = outlier_count(self.outlier_fraction, X.shape[0] * X.shape[1])
        threads, size, n_features = thread_count(self.n_jobs), float(ranks.sum()), X.shape[1]
        copies = bool(self.normalize) + bool((self.feature_scales_ != 1).any())
        scaled = float(copies * X.dtype.itemsize * len(_stored(X)))
        training = decomposition_memory(X, Y, ranks, n_outliers, decomposition=self.decomposition, n_threads=threads)
        # When the dictionary is built, only the bases of what training needed are left.
        dictionary = size * n_features * X.dtype.itemsize + dictionary_memory(size, n_features, n_threads=threads)
        require_memory(
            scaled + max(training, dictionary),
            self.memory_limit,
            f"MSE, with {size:,.0f} directions of {n_features:,} features and {n_outliers:,} outliers,",
            "lower subspace_rank or outlier_fraction, leave out rare labels, raise memory_limit, or use LEML or "
            "BinaryRelevance, which are made for many labels",
        )
        rows = self._prepared(X)
        with np.errstate(over="ignore"):
            values = _stored(rows)
            if not np.isfinite(np.einsum("i,i->", values, values)):
                raise InvalidInputError(OVERFLOW)
        parts, status = self._decompose(rows, Y, ranks, n_outliers, progress.step)
        if status == "max_iter":
            warn(
                f"MSE stopped after max_iter={self.max_iter} rounds; the last one still lowered the objective by more "
                f"than a share of tol={self.tol:g}; raise max_iter or tol.",
                ConvergenceWarning,
            )
        self.subspaces_, self.strengths_, self.subspace_starts_ = parts.canonical()

    def _choose(self, X: Features, Y: sp.csr_matrix) -> dict[str, Any]:
        """Values for the parameters that are "auto", by :func:`select_parameters`."""
        open_ones = [name for name in _OPEN if _is_auto(getattr(self, name))]
        if not open_ones:
            return {}
        if X.shape[0] < _FOLDS:
            raise InvalidInputError(
                f'{open_ones[0]}="auto" is chosen by cross-validation with {_FOLDS} folds, which needs as many rows; X '
                f"has {X.shape[0]}. Pass a number."
            )
        grid: dict[str, Any] = {name: DEFAULT_GRID[name] for name in open_ones if name != "threshold"}
        fixed = {name: value for name, value in self.get_params(deep=False).items() if name not in open_ones}
        with warnings.catch_warnings():
            # Its validation score decides about a point, converged or not.
            warnings.simplefilter("ignore", ConvergenceWarning)
            tried = select_parameters(
                type(self), X, Y, grid, n_folds=_FOLDS, random_state=self.random_state, fixed={**fixed, "verbose": 0}
            )
        return {name: tried[0][name] for name in open_ones}

    def _used(self, name: str) -> Any:
        """A parameter, or what was chosen for it."""
        return self.chosen_[name] if _is_auto(getattr(self, name)) else getattr(self, name)

    def _prepared(self, X: Features) -> Features:
        """Rows as the subspaces see them: features scaled, then unit length."""
        if (self.feature_scales_ != 1).any():
            with np.errstate(over="ignore"):
                if isinstance(X, np.ndarray):
                    X = finite_scores(X / self.feature_scales_)
                else:
                    values = finite_scores(X.data / self.feature_scales_[X.indices])
                    X = sp.csr_matrix((values, X.indices, X.indptr), shape=X.shape)
        return unit_rows(X, n_threads=thread_count(self.n_jobs)) if self.normalize else X

    def _decompose(
        self, X: Features, Y: sp.csr_matrix, ranks: np.ndarray, n_outliers: int, on_round: Callable[[float], bool]
    ) -> tuple[SubspaceParts, str]:
        """Algorithm 1: X as ΣL + S, and why it stopped: "converged", "max_iter" or "stopped" by ``on_round``."""
        parts = SubspaceParts(X, Y, ranks, n_threads=thread_count(self.n_jobs))
        rng = random_generator(self.random_state) if self.decomposition == "brp" else None
        values = _stored(X)
        rounding = np.finfo(X.dtype).eps * float(np.einsum("i,i->", values, values, dtype=np.float64))
        previous: float | None = None
        for _ in range(self.max_iter):
            for label in np.flatnonzero(parts.ranks):
                parts.improve(int(label), rng)
            objective = parts.find_outliers(n_outliers)
            stop = on_round(objective)
            # Only rounding is left if the labels explain everything.
            if objective <= rounding or (previous is not None and previous - objective <= self.tol * previous):
                return parts, "converged"
            if stop:
                return parts, "stopped"
            previous = objective
        return parts, "max_iter"

    def _build_prediction_cache(self) -> None:
        """The dictionary of distinct subspaces, and the group of each label that has one.

        Between two labels with the same subspace the group lasso has no preference and would give every coefficient to
        the first. So they share a group, with the basis of the lowest id. Time O(R²p), as for the dictionary itself.
        """
        C, starts, threads = self.subspaces_, self.subspace_starts_, thread_count(self.n_jobs)
        own = np.flatnonzero(np.diff(starts))
        dictionary = GroupDictionary.build(C, starts[np.append(own, len(starts) - 1)], n_threads=threads)
        distinct, self._group_of = np.unique(_first_same_group(dictionary), return_inverse=True)
        if len(distinct) < len(own):
            sizes = np.diff(dictionary.starts)
            atoms = C[np.repeat(np.isin(np.arange(len(own)), distinct), sizes)]
            borders = np.concatenate([[0], np.cumsum(sizes[distinct])])
            del dictionary
            dictionary = GroupDictionary.build(atoms, borders, n_threads=threads)
        self._dictionary = dictionary

    def _score_rows(self, X: Features) -> np.ndarray:
        scores = np.full((X.shape[0], self.n_labels_), LOWEST_SCORE, dtype=self.subspaces_.dtype)
        if len(self.subspaces_):
            scores[:, np.diff(self.subspace_starts_) > 0] = self._one_norms(X) - self._used("threshold")
        return scores

    def _one_norms(self, X: Features) -> np.ndarray:
        """‖β_G‖₁ per row and label that has a subspace."""
        threads = thread_count(self.n_jobs)
        norms, gap, converged = group_one_norms(
            self._prepared(X), self._dictionary, self._used("reg"), tol=self.gap_tol, n_threads=threads
        )
        if not converged:
            warn(
                f"MSE: some rows stopped at a duality gap above gap_tol={self.gap_tol:g} (the largest is "
                f"{gap.max():.2g}); raise gap_tol or reg.",
                ConvergenceWarning,
            )
        return norms[:, self._group_of]

    def one_norms(self, X: Features) -> sp.csr_matrix:
        """‖β_G‖₁ of rows (n, L), from which scores subtract δ; only positive values are stored."""
        labels = np.flatnonzero(np.diff(self.subspace_starts_))
        shape = (X.shape[0], self.n_labels_)
        if len(labels) == 0:
            return sp.csr_matrix(shape)
        blocks = [sp.csr_matrix(self._one_norms(X[start:stop])) for start, stop in self._row_blocks(X)]
        stacked = sp.csr_matrix(sp.vstack(blocks))
        return sp.csr_matrix((stacked.data, labels[stacked.indices], stacked.indptr), shape=shape)

    def explain(self, label: int | str, feature_names: Sequence[str] | None = None, top: int = 10) -> list[Direction]:
        """The subspace of a label as weighted features.

        Parameters
        ----------
        label : int or str
            Id, or one of ``label_names_``.
        feature_names : sequence of str (p,), optional
            By default the column names of the data frame that the model was fitted on, or else feature ids.
        top : int
            Number of features per direction.

        Returns
        -------
        list of Direction
            Strongest first; empty for a label without a subspace.
        """
        self._require_fitted()
        top, known = check_integer(top, "top", minimum=1), self.label_names_ or []
        if not isinstance(label, str):
            label = check_integer(label, "label", minimum=0, maximum=self.n_labels_ - 1)
        elif label in known:
            label = known.index(label)
        else:
            raise InvalidInputError(f"label {label!r} is not among the {len(known):,} label names of this model.")
        names: Any = feature_names
        if names is None:
            names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        elif not isinstance(names, (list, tuple, np.ndarray)):
            raise InvalidTypeError(f"feature_names must be a list of names; found {names!r:.60}.")
        elif len(names) != self.n_features_in_:
            raise InvalidInputError(
                f"feature_names has {len(names):,} names but the model has {self.n_features_in_:,} features."
            )
        own, found = slice(self.subspace_starts_[label], self.subspace_starts_[label + 1]), []
        for weights, strength in zip(self.subspaces_[own], self.strengths_[own]):
            order = np.argsort(-np.abs(weights), kind="stable")[:top]
            features = [(names[i], float(weights[i])) for i in order if weights[i] != 0]
            found.append(Direction(float(strength), features))
        return found

    def _check_fitted(self) -> None:
        C, starts = self.subspaces_, self.subspace_starts_
        if starts[0] != 0 or starts[-1] != len(C) or (np.diff(starts) < 0).any():
            raise ValueError("subspace_starts_ must go from 0 to the number of directions")
        if (self.feature_scales_ <= 0).any():
            raise ValueError("feature_scales_ must be above 0")
        expected = {name for name in _OPEN if _is_auto(getattr(self, name))}
        if set(self.chosen_) != expected or any(map(_is_auto, self.chosen_.values())):
            raise ValueError(f'chosen_ must name what is "auto" ({", ".join(sorted(expected)) or "nothing"})')
        type(self)(**{**self.get_params(deep=False), **self.chosen_})._check_all_parameters()
        if not np.allclose(np.einsum("ij,ij->i", C, C, dtype=np.float64), 1, atol=1e-3):
            raise ValueError("the directions of the subspaces must have unit length")
        # Gram matrix and norms of the directions are far larger than the folder that asks for them.
        needed = dictionary_memory(*C.shape, n_threads=thread_count(self.n_jobs))
        require_memory(needed, self.memory_limit, f"predicting with {len(C):,} directions", "raise memory_limit")


def feature_scales(X: Features, scale: str = "auto") -> np.ndarray:
    """Divisors of the features (p,), in the floating type of X; ``scale`` as in :class:`MSE`. Time O(nnz(X))."""
    ones = np.ones(X.shape[1], dtype=X.dtype)
    dense = 2 * np.count_nonzero(_stored(X)) > X.shape[0] * X.shape[1]
    if scale == "none" or (scale == "auto" and not dense):
        return ones
    if isinstance(X, np.ndarray):
        largest = np.abs(X).max(axis=0, initial=0).astype(X.dtype)
    else:
        largest = np.zeros(X.shape[1], dtype=X.dtype)
        np.maximum.at(largest, X.indices, np.abs(X.data))
    if scale == "auto" and largest.max(initial=0) <= _SAME_UNIT * np.median(largest):
        return ones
    return np.where(largest > 0, largest, 1).astype(X.dtype)


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _stored(X: Features) -> np.ndarray:
    return X.reshape(-1) if isinstance(X, np.ndarray) else X.data


def _first_same_group(dictionary: GroupDictionary) -> np.ndarray:
    """For each group, the first group that spans the same subspace."""
    sizes, borders = np.diff(dictionary.starts), dictionary.starts
    first = np.arange(len(sizes))
    for group, size in enumerate(sizes):
        products = dictionary.gram[borders[group] : borders[group + 1], : borders[group]]
        # Σ cos² of the angles to each earlier subspace: the dimension if all angles are 0.
        cosines = np.add.reduceat(np.einsum("ij,ij->j", products, products), borders[:group]) if group else np.zeros(0)
        same = np.flatnonzero((sizes[:group] == size) & (cosines >= size * (1 - _SAME)))
        if len(same):
            first[group] = first[same[0]]
    return first


def outlier_count(fraction: float, n_entries: int) -> int:
    """K: ``outlier_fraction`` of all entries, rounded down."""
    return min(int(fraction * n_entries + _ROUNDING), n_entries)


def resolve_ranks(given: Any, Y: sp.csr_matrix | None) -> np.ndarray:
    """``subspace_rank`` per label; without Y, only what can be checked without data."""
    if _is_auto(given):
        return np.ones(1, dtype=np.int64)
    if isinstance(given, (float, np.floating)):
        if not 0 < given < 1:
            raise InvalidInputError(
                "subspace_rank must be a whole number of at least 1, or a share of each label's rows above 0 and "
                f"below 1; found {given!r}."
            )
        rows_of_label = np.zeros(1) if Y is None else np.bincount(Y.indices, minlength=Y.shape[1])
        return np.maximum(np.ceil(given * rows_of_label - _ROUNDING), 1).astype(np.int64)
    if not isinstance(given, (list, tuple, np.ndarray)):
        rank = check_integer(given, "subspace_rank", minimum=1)
        return np.full(1 if Y is None else Y.shape[1], rank, dtype=np.int64)
    ranks = np.array([check_integer(rank, "subspace_rank", minimum=1) for rank in given], dtype=np.int64)
    if Y is not None and len(ranks) != Y.shape[1]:
        raise InvalidInputError(
            f"subspace_rank has {len(ranks):,} numbers but Y has {Y.shape[1]:,} labels; pass one number, or one per "
            "label."
        )
    return ranks
