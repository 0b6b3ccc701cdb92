"""Updating fitted models: the label side of a fit again, for some labels.

Given the shared part of a model, labels are independent problems (LEML: the label's factor; REML: also its sparse part;
Cascade: also its ranker and prototype; BinaryRelevance: everything). So new labels, merged labels, and labels with many
new examples are learnt by the steps of a fit with the shared part fixed; nothing else in the model changes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.estimator import OVERFLOW, MultiLabelModel, computing
from tagwise.exceptions import InvalidInputError, TagwiseWarning, warn
from tagwise.fields import Fields, csr, dense, matrix, value
from tagwise.models.factor_model import PositiveWeight
from tagwise.parallel import even_chunks
from tagwise.problem import Known, Problem
from tagwise.progress import FitProgress, counted
from tagwise.validation import Features, canonical_csr, check_integer, check_labels

__all__ = ["KEPT", "UpdatableModel"]

# A label is learnt again once this share of its training pairs is new: frequent labels rarely, and rare
# ones with almost every new row.
_NEW_SHARE = 0.05
# Known pairs of a mask that are written out for some labels at once.
_PAIRS_AT_ONCE = 10**7


def _check_weights(weights: np.ndarray, name: str) -> None:
    if not (weights > 0).all():
        raise ValueError(f"{name} must hold numbers above 0")


KEPT = Fields(
    kept_features_=matrix("n", "d", meaning="Training rows."),
    kept_labels_=csr("n", "L", meaning="Their known positives.", numbers="ones"),
    kept_observed_=csr("n", "L", meaning="Known pairs of the rows that are not complete.", numbers="ones"),
    kept_complete_=dense("n", meaning="Rows of which every label is known.", numbers="bool"),
    kept_weight_=dense("n", meaning="Weights of the rows.", numbers="float64", check=_check_weights),
    pending_=dense("L", meaning="Number of new pairs that teach each label since it was last learnt.", numbers="count"),
    fitted_rows_=value(partial(check_integer, minimum=1), "Number of rows at the last fit of everything."),
)
"""Additional fields of a model with ``updatable``: updates learn labels from all rows.

The sparse rows are the smallest statistic from which every label can be solved exactly: XᵀX alone takes d² numbers, and
neither hard negatives nor other losses can be computed from sums.
"""


class UpdatableModel(MultiLabelModel):
    """A model whose labels can be learnt one by one, given a shared part."""

    refit_growth: ClassVar[float] = 2.0
    """Growth of the number of rows since the last fit that triggers a full fit.

    With repeated doubling, all these fits together cost less than two fits of the final size.
    """

    positive_weight: PositiveWeight
    kept_features_: Features
    kept_labels_: sp.csr_matrix
    kept_observed_: sp.csr_matrix
    kept_complete_: np.ndarray
    kept_weight_: np.ndarray
    pending_: np.ndarray
    fitted_rows_: int

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def _learn_labels(self, problem: Problem, labels: np.ndarray, progress: FitProgress) -> None:
        """Fit the label side for the labels of ``problem`` with these ids (m), given the shared part.

        Arrays are replaced, never written to: a failure must leave the model unchanged.
        """

    def _describe_new(self, problem: Problem, labels: np.ndarray) -> None:
        """Add further data on labels that have just been learnt from this problem."""

    def _take_new_names(self, labels: np.ndarray, names: Any) -> None:
        """Store features (m, d) of the names of new labels, in models that learn from names."""

    def _count_rows(self, start: int) -> None:
        """Update counts over all rows by the kept rows from ``start`` on; 0 after labels have changed."""

    # ------------------------------------------------------------------ labels

    def add_labels(self, X: Any, Y_new: Any, observed: Any = None) -> Any:
        """Learn new labels from labelled rows.

        Existing labels and the shared part do not change.

        Parameters
        ----------
        X : CSR or array (n, d)
            Rows in the features of the fit: its own rows or others. A model with ``updatable=True`` learns from the
            rows that it keeps: give these, or None.
        Y_new : CSR or array (n, m)
            The new labels, 0 or 1.
        observed : CSR or array (n, m), or Known, optional
            Known pairs, as in ``fit``.

        Returns
        -------
        self
            With ``n_labels_`` + m labels; the new ids follow the old ones. If labels have names, the new ones are
            called "label" and their id, or the next free number, until :meth:`rename_labels`.

        Notes
        -----
        A ``positive_weight`` of one number per label must be extended for the new labels before this call. Time:
        the label side of a fit, for these labels. An error leaves the model unchanged.
        """
        return self._add(self._rows_of_new_labels(X, Y_new, observed))

    def _rows_of_new_labels(self, X: Any, Y_new: Any, observed: Any) -> Problem:
        """The checked arguments of :meth:`add_labels`."""
        self._require_updates("add_labels")
        if X is None and not self.updatable:
            raise InvalidInputError(
                f"X is None, but this {type(self).__name__} keeps no rows to learn from; give the rows of Y_new, or "
                "fit with updatable=True."
            )
        if X is None:
            features = self.kept_features_
        else:
            features = self.fitted_features(X)
            features = self._as_kept(features) if self.updatable else features.astype(self._floats(), copy=False)
        labels = check_labels(Y_new, name="Y_new", n_rows=features.shape[0])
        kept = self.kept_features_ if self.updatable else features
        if features is not kept and (features.shape != kept.shape or (features != kept).sum()):
            raise InvalidInputError(
                f"X has other rows than the {kept.shape[0]:,} that this model keeps and learns from. Give X=None and "
                "Y_new of those; or learn rows and new labels together by update(X, Y), Y with a column for every "
                "label, old and new."
            )
        self._require_weights_of(self.n_labels_ + labels.shape[1])
        return Problem.of(features, labels, observed, self._kept.row_weight if self.updatable else None)

    def _add(self, problem: Problem, **more: Any) -> Any:
        """:meth:`add_labels` of what has been checked; ``more`` is for :meth:`_describe_new`."""
        with self._changing("new labels") as progress:
            wider = self._kept.beside(problem) if self.updatable else None
            labels = self._grow(problem.n_labels)
            if wider is not None:
                self._keep(wider)
            self._learn_labels(problem, labels, progress)
            self._describe_new(problem, labels, **more)
        return self

    def remove_labels(self, labels: Any) -> Any:
        """Remove labels by id; later ids move up. Returns self."""
        self._require_updates("remove_labels")
        kept = np.setdiff1d(np.arange(self.n_labels_), self._checked_ids(labels))
        if not len(kept):
            raise InvalidInputError(f"labels: all {self.n_labels_:,} labels would be gone; a model needs at least one.")
        with self._changing("labels"):
            self._select_labels(kept)
        return self

    def merge_labels(self, labels: Any, into: int) -> Any:
        """Merge labels into the label ``into``, which is learnt again, in a model with ``updatable=True``.

        A row has the merged label if it has any of them, and lacks it if it is known to lack all of them; otherwise it
        is unknown.

        Parameters
        ----------
        labels : list of int
            The ids to remove; later ids move up.
        into : int
            The id to keep.

        Returns
        -------
        self
        """
        self._require_updates("merge_labels", "which rows have the labels")
        (goal,) = self._checked_ids([into])
        merged = np.union1d(self._checked_ids(labels), goal)
        if len(merged) == 1:
            raise InvalidInputError("labels: name at least one label other than the one to merge into.")
        kept = np.setdiff1d(np.arange(self.n_labels_), merged[merged != goal])
        with self._changing("merged labels") as progress:
            self._keep(self._kept.merge(merged, goal))
            self._select_labels(kept)
            self._learn_again(np.flatnonzero(kept == goal), progress)
            self._count_rows(0)
        return self

    # ------------------------------------------------------------------ rows

    def update(self, X: Any, Y: Any, observed: Any = None) -> Any:
        """Learn further rows and their new labels, in a model that was fitted with ``updatable=True``.

        The rows are added to those that the model keeps. Labels with many new training pairs (5% of all, since they
        were last learnt) are learnt again, exactly, from all rows; other labels and the shared part do not
        change. Once there are ``refit_growth`` times as many rows as at the last fit, everything is
        fitted again.

        Parameters
        ----------
        X : CSR or array (n, d)
            New rows in the features of the fit.
        Y : CSR or array (n, L) or wider
            Their labels, 0 or 1. Further columns are new labels: off in earlier rows of which
            every label is known, unknown in others.
        observed : CSR or array in the shape of Y, or Known, optional
            Known pairs of the new rows, as in ``fit``.

        Returns
        -------
        self
            ``drift_`` is the share of the rows that the shared part was not fitted to.

        Warns
        -----
        TagwiseWarning
            Most of the new rows are already known, with the same features and labels, and now count twice.

        Notes
        -----
        As for :meth:`add_labels`, a ``positive_weight`` of one number per label must already include the new labels.
        Time: the label side of a fit, for the labels that are learnt again, and some passes over the kept rows. If
        only some rows are complete, a mask is written out for the labels that are learnt again, in batches of 10⁷ pairs
        or one label. An error or interrupt leaves the model unchanged.
        """
        return self._update(X, Y, observed)

    def _update(self, X: Any, Y: Any, observed: Any, names: Any = None) -> Any:
        """:meth:`update`, where new labels may have ``names`` (m, d)."""
        self._require_updates("update", "the rows of its fit")
        features = self._as_kept(self.fitted_features(X))
        labels = check_labels(Y, n_rows=features.shape[0])
        if labels.shape[1] < self.n_labels_:
            raise InvalidInputError(
                f"Y has {labels.shape[1]:,} labels but the model has {self.n_labels_:,}; give a column for each, and "
                "further ones for new labels."
            )
        self._require_weights_of(labels.shape[1])
        rows, kept = Problem.of(features, labels, observed), self._kept
        repeated = rows.share_within(kept) if rows.n_rows > 1 else 0.0
        if repeated > 0.5:
            warn(
                f"About {100 * repeated:.0f}% of the new rows have already been learnt; they count twice now. Pass "
                "only new rows to an update.",
                TagwiseWarning,
            )
        anew = kept.n_rows + rows.n_rows >= self.refit_growth * self.fitted_rows_
        with self._changing("update", shown=not anew) as progress:
            new = self._grow(labels.shape[1] - self.n_labels_)
            if names is not None and len(new):
                self._take_new_names(new, names)
            self._keep(self._kept.append(rows))
            self.pending_ = self.pending_ + rows.teaching_pairs()
            known = self._kept.known
            if anew and (known is None or known.may_be_written()):
                self._learn(self._kept)  # which shows its own progress
                return self
            due = (self.pending_ > 0) & (self.pending_ >= _NEW_SHARE * self._kept.label_counts)
            due[new] = True
            self._learn_again(np.flatnonzero(due), progress)
            self._count_rows(kept.n_rows)
        return self

    @property
    def drift_(self) -> float:
        """Share of the kept rows that the shared part was not fitted to; 0 after a fit."""
        return 1.0 - self.fitted_rows_ / len(self.kept_complete_)

    def n_known_pairs(self) -> int | None:
        """Number of known pairs of kept rows and labels; None: all."""
        known = self._kept.known
        return None if known is None else known.n_pairs

    def with_labels_learnt(self, problem: Problem, labels: np.ndarray, progress: FitProgress) -> Any:
        """A copy with some labels learnt from another problem; for models that contain this one."""
        model = copy(self)
        model._learn_labels(problem, labels, progress)
        model._build_prediction_cache()
        return model

    def _learn_again(self, labels: np.ndarray, progress: FitProgress) -> None:
        """Fit the label side for some labels to the kept rows; with a mask, a few labels at a time."""
        if not len(labels):
            return
        progress.note(f"{counted(len(labels), 'label')} again")
        kept, width = self._kept, len(labels)
        if kept.known is not None:
            width = max(1, _PAIRS_AT_ONCE // max(1, int(np.count_nonzero(kept.known.complete))))
        for start, stop in even_chunks(len(labels), width):
            some = labels[start:stop]
            self._learn_labels(kept.labels(some), some, progress)
        self.pending_ = self.pending_.copy()
        self.pending_[labels] = 0

    # ------------------------------------------------------------------ the kept rows

    @property
    def _kept(self) -> Problem:
        known = None if self.kept_complete_.all() else Known(self.kept_observed_, self.kept_complete_)
        weight = None if (self.kept_weight_ == 1).all() else self.kept_weight_
        return Problem(self.kept_features_, self.kept_labels_, known, weight)

    def _keep(self, rows: Problem) -> None:
        known, weight = rows.all_known, rows.row_weight
        self.kept_features_, self.kept_labels_ = rows.X, rows.Y
        self.kept_observed_, self.kept_complete_ = known.pairs, known.complete
        self.kept_weight_ = np.ones(rows.n_rows) if weight is None else weight

    def _keep_all(self, problem: Problem) -> None:
        self._require_sparse_alone("updatable=True")
        if problem.X is not self.__dict__.get("kept_features_"):  # the caller's, which may change after the fit
            problem = replace(problem, X=problem.X.copy(), Y=problem.Y.copy())
        self._keep(problem)
        self.pending_, self.fitted_rows_ = np.zeros(problem.n_labels, dtype=np.int64), problem.n_rows

    def _as_kept(self, X: Features) -> Features:
        """Rows in the format of the kept ones: CSR, or an array if the fit was given one."""
        if sp.issparse(self.kept_features_):
            X = canonical_csr(sp.csr_matrix(X)) if isinstance(X, np.ndarray) else X
        elif not isinstance(X, np.ndarray):
            X = X.toarray()
        return X.astype(self._floats(), copy=False)

    def _fields(self) -> Fields:
        return self.fields | KEPT if self.updatable else self.fields

    def _check_fields(self) -> None:
        super()._check_fields()
        if not self.updatable:
            return
        if np.diff(self.kept_observed_.indptr)[self.kept_complete_].any():
            raise ValueError("kept_observed_ must be empty where kept_complete_ says that all is known")
        if self.fitted_rows_ > len(self.kept_complete_):
            raise ValueError(f"fitted_rows_ is {self.fitted_rows_:,} of {len(self.kept_complete_):,} rows")

    def _require_updates(self, method: str, needed: str | None = None) -> None:
        """Raise unless this fitted model supports a method; some methods need the kept rows."""
        self._require_fitted()
        if method != "remove_labels":
            self._require_sparse_alone(method)
        if needed is not None and not self.updatable:
            raise InvalidInputError(
                f"{method} needs to know {needed}, which this {type(self).__name__} has not kept; fit it with "
                "updatable=True (tagwise train --updatable)."
            )

    def _require_weights_of(self, n_labels: int) -> None:
        """Raise if the number of label weights does not match the new number of labels."""
        weights = self.positive_weight
        if np.ndim(weights) == 1 and len(weights) != n_labels:
            raise InvalidInputError(
                f"positive_weight has {len(weights):,} numbers, one per label of the fit; set_params(positive_weight=…)"
                f" with {n_labels:,}, those of the new labels last."
            )

    def _require_sparse_alone(self, what: str) -> None:
        if self.n_dense_features_in_:
            raise InvalidInputError(
                f"{what} cannot be combined with a dense block of features, and this {type(self).__name__} has one of "
                f"{self.n_dense_features_in_:,} (an embedder makes one); fit to all rows and labels again."
            )

    # ------------------------------------------------------------------ room for labels and features

    def _grow(self, many: int) -> np.ndarray:
        """Add ``count`` empty labels; returns their ids."""
        first, names = self.n_labels_, self.label_names_
        if many:
            self._select_labels(np.concatenate([np.arange(first), np.full(many, -1)]))
            if names is not None:
                taken = set(names)
                free = (name for name in map("label {}".format, count(first)) if name not in taken)
                self.label_names_ = [*names, *islice(free, many)]
        return np.arange(first, first + many)

    def _select_labels(self, source: np.ndarray) -> None:
        """Reorder the model's labels; −1 inserts an empty label."""
        self._select("L", source)
        names, weights = self.label_names_, self.positive_weight
        if np.ndim(weights) == 1 and len(weights) == self.n_labels_ and (source >= 0).all():
            self.positive_weight = np.asarray(weights)[source]
        self._take_label_count(len(source))
        if names is not None and (source >= 0).all():
            self.label_names_ = [names[label] for label in source]

    def _select_features(self, source: np.ndarray) -> None:
        """Reorder the model's features; −1 inserts a feature without rows."""
        self._select("d", source)
        self.n_features_in_ = len(source)

    def _select(self, axis: str, source: np.ndarray) -> None:
        """Take slices of the arrays along an axis, here and in inner models."""
        self._fields().select(self, axis, source)
        for name in self._fields().models():
            model = copy(getattr(self, name))
            (model._select_labels if axis == "L" else model._select_features)(source)
            model._build_prediction_cache()
            setattr(self, name, model)

    def _weights_of(self, labels: np.ndarray) -> PositiveWeight:
        """``positive_weight`` of some labels."""
        weight = self.positive_weight
        return np.asarray(weight)[labels] if np.ndim(weight) == 1 else weight

    @contextmanager
    def _changing(self, what: str, *, shown: bool = True) -> Iterator[FitProgress]:
        """Change the fitted model atomically."""
        with self._whole_or_not():
            verbose = self.verbose if shown else 0
            with FitProgress(type(self).__name__, 1, steps=what, verbose=verbose) as progress, computing():
                yield progress
            if self._fields().overflow(self):
                raise InvalidInputError(OVERFLOW)
            self._build_prediction_cache()
