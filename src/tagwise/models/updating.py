"""A life after the fit: labels that are added, removed or made one, and rows that come later.

Given what all labels share, each label is a problem of its own (LEML: its factor beside W; REML: and its sparse part;
Cascade: and its ranker and prototype; BinaryRelevance: all of it). So a label is learnt, at any time, by the very steps
of a fit with the shared part fixed, and nothing else of the model changes.

Rows that come later need those that came before: a label's problem is a sum over all of its rows. An updatable model
keeps its training rows, as sparse as they came. They are the smallest statistic from which every label can be solved
exactly: XᵀX alone takes d² numbers where X takes its stored entries, and neither hard negatives nor other losses could
be made from sums.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.base import OVERFLOW, MultiLabelModel, computing
from tagwise.exceptions import InvalidInputError, TagwiseWarning, warn
from tagwise.interrupts import deferred_interrupts
from tagwise.models.factor_model import PositiveWeight, resolve_positive_weight
from tagwise.parallel import even_chunks, thread_count
from tagwise.persistence.loading import require_dense, require_finite_floats, require_sparse
from tagwise.problems.labels import TrainingLabels, known_positives
from tagwise.progress import FitProgress, counted
from tagwise.validation import (
    Features,
    canonical_csr,
    check_features,
    check_integer,
    check_labels,
    check_observed,
    check_real,
)

__all__ = ["LabelRows", "UpdatableModel", "replaced", "taken", "with_columns", "with_rows"]

# A label is learnt again once this share of what teaches it is new: its positives, and what is known to be off in rows
# of which not everything is known. Frequent labels are learnt again rarely, and rare ones with almost every new row.
_NEW_SHARE = 0.05
# All is learnt again once there are so many times as many rows as at the last fit. Rows that double and double again
# make these fits cost less, all together, than two of the last size.
_REFIT_GROWTH = 2.0
# New rows that are looked for among those that are kept.
_ROWS_COMPARED = 64
# Known pairs of a mask that a whole fit may write out, 12 bytes each, and that are written out for some labels at once.
_MOST_KNOWN_PAIRS, _PAIRS_AT_ONCE = 10**8, 10**7


class LabelRows(NamedTuple):
    """Rows that some labels (m) are learnt from: X (n, d), labels (n, m), known pairs (n, m) or None, weights (n)."""

    X: Features
    Y: sp.csr_matrix
    observed: sp.csr_matrix | None
    weight: np.ndarray | None


class UpdatableModel(MultiLabelModel):
    """A model whose labels can be learnt one by one, beside a part that they share.

    Attributes
    ----------
    kept_features_, kept_labels_ : CSR or array (n, d), CSR (n, L)
        The training rows and their known positives; only with ``updatable``, as all below.
    kept_observed_, kept_complete_ : CSR (n, L), bool array (n,)
        The known pairs of rows of which not everything is known, and which rows are complete.
    kept_weight_ : array (n,)
        What rows weigh.
    pending_ : int array (L,)
        Of the pairs that teach each label, how many have come since it was last learnt.
    fitted_rows_ : int
        Rows at the last fit of everything.
    drift_ : float
        How far the part that labels share is behind a fit to all rows: 0 after a fit.
    """

    _label_axes: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    """Fitted arrays with an axis of labels, and which axes these are."""
    _kept_arrays: ClassVar[tuple[str, ...]] = (
        "kept_features_",
        "kept_labels_",
        "kept_observed_",
        "kept_complete_",
        "kept_weight_",
        "pending_",
    )
    _kept_values: ClassVar[tuple[str, ...]] = ("fitted_rows_", "drift_")

    positive_weight: PositiveWeight
    kept_features_: Features
    kept_labels_: sp.csr_matrix
    kept_observed_: sp.csr_matrix
    kept_complete_: np.ndarray
    kept_weight_: np.ndarray
    pending_: np.ndarray
    fitted_rows_: int
    drift_: float

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def _learn_labels(self, rows: LabelRows, labels: np.ndarray, progress: FitProgress) -> None:
        """Learn the labels with these ids (m) from rows, beside a shared part that stays as it is.

        Arrays are replaced, never written to: the model must be what it was where this fails.
        """

    @abstractmethod
    def _feature_axes(self) -> Mapping[str, tuple[int, ...]]:
        """Fitted arrays with an axis of features, and which axes these are."""

    def _describe_new(self, rows: LabelRows, labels: np.ndarray) -> None:
        """What else there is to say of labels that have just been added from these rows."""

    def _take_new_names(self, labels: np.ndarray, names: Any) -> None:
        """The features of what new labels are called (m, d), for models that learn from names."""

    def _learn_shared(self, start: int, progress: FitProgress) -> None:
        """What else follows from the kept rows from ``start`` on, which are new; 0 where labels have changed."""

    def _measured_drift(self) -> float:
        """``drift_`` of the model as it is."""
        return float(self.pending_.sum()) / max(1, self.kept_labels_.nnz)

    def _refit(self) -> None:
        """Fit to the kept rows."""
        rows = self._kept_rows()
        self._row_weight = rows.weight
        try:
            self._fit_checked(rows.X, rows.Y, rows.observed, None, None)
        finally:
            self.__dict__.pop("_row_weight", None)

    # ------------------------------------------------------------------ labels

    def add_labels(self, X: Any, Y_new: Any, observed: Any = None) -> Any:
        """Learn labels beside those of the fit, from rows that say which of them have the new labels.

        Each new label is what the steps of a fit find for it with all that labels share (W of LEML and REML; of Cascade
        also the fusion) as it is. The labels there are do not change.

        Parameters
        ----------
        X : CSR or array (n, d)
            Rows in the features of the fit: its own rows or others. A model with ``updatable=True`` learns from the
            rows that it keeps: give these, or None.
        Y_new : CSR or array (n, m)
            The new labels, 0 or 1.
        observed : CSR or array (n, m), optional
            Which pairs are known, as in ``fit``.

        Returns
        -------
        self
            With ``n_labels_`` + m labels; the new ids follow the old ones. Where labels have names, the new ones are
            called "label" and their id until :meth:`~tagwise.base.MultiLabelModel.rename_labels`.

        Notes
        -----
        A ``positive_weight`` of one number per label must have those of the new labels behind the others before this is
        called. Time: XW once, and what the labels take in a fit. An error leaves the model as it was.
        """
        return self._add(self._rows_of_new_labels(X, Y_new, observed))

    def _add(self, rows: LabelRows, **more: Any) -> Any:
        """:meth:`add_labels` of what has been checked; ``more`` is for :meth:`_describe_new`."""
        with self._changing("new labels") as progress:
            labels = self._grow(rows.Y.shape[1])
            if self.updatable:
                self._take_new_columns(rows, labels)
            self._learn_labels(rows, labels, progress)
            self._describe_new(rows, labels, **more)
        return self

    def remove_labels(self, labels: Any) -> Any:
        """Forget labels, by their ids; those behind them move up.

        Returns
        -------
        self
            With fewer labels. What the others share stays as it is.
        """
        self._require_fitted()
        kept = np.setdiff1d(np.arange(self.n_labels_), self._checked_ids(labels))
        if not len(kept):
            raise InvalidInputError(f"labels: all {self.n_labels_:,} labels would be gone; a model needs at least one.")
        with self._changing("labels"):
            self._select_labels(kept)
        return self

    def merge_labels(self, labels: Any, into: int) -> Any:
        """Make labels one with the label ``into``: a row that has any of them has it, and it is learnt anew.

        Parameters
        ----------
        labels : list of int
            The ids to give up; those behind them move up.
        into : int
            The id that stays.

        Returns
        -------
        self

        Raises
        ------
        InvalidInputError
            The model was not fitted with ``updatable=True``: it does not know which rows had the labels.
        """
        self._require_kept("merge_labels", "which rows have the labels")
        ids, (goal,) = np.unique(self._checked_ids(labels)), self._checked_ids([into])
        ids = ids[ids != goal]
        if not len(ids):
            raise InvalidInputError("labels: name at least one label other than the one to merge into.")
        source = np.arange(self.n_labels_)
        source[ids] = goal
        with self._changing("merged labels") as progress:
            for name in ("kept_labels_", "kept_observed_"):
                setattr(self, name, _merged_columns(getattr(self, name), source))
            self.pending_ = self.pending_.copy()
            kept = np.setdiff1d(np.arange(self.n_labels_), ids)
            self._select_labels(kept)
            merged = np.flatnonzero(kept == goal)
            self.pending_[merged] = 0
            self._learn_labels(self._kept_rows(merged), merged, progress)
            self._learn_shared(0, progress)
        return self

    # ------------------------------------------------------------------ rows

    def update(self, X: Any, Y: Any, observed: Any = None) -> Any:
        """Learn further rows, and labels that only they have, in a model that was fitted with ``updatable=True``.

        The rows join those that the model keeps. Labels of which the new rows hold much (a twentieth of what teaches
        them, counted since they were last learnt) are learnt again, exactly, from all rows; the others stay.
        What labels share stays too, or takes a few steps, until there are twice as many rows as at the last fit: then
        everything is fitted again.

        Parameters
        ----------
        X : CSR or array (n, d)
            New rows in the features of the fit.
        Y : CSR or array (n, L) or wider
            Their labels, 0 or 1. Columns behind those of the model are new labels, which are off in all earlier rows.
        observed : CSR or array in the shape of Y, optional
            Which pairs of the new rows are known, as in ``fit``.

        Returns
        -------
        self
            ``drift_`` says how far the shared part is behind; ``fitted_rows_`` how many rows it was fitted to.

        Warns
        -----
        TagwiseWarning
            Most of the new rows are kept already, with the same features and labels. They then count twice.

        Notes
        -----
        Time: what the labels that are learnt again take in a fit, and some passes over the kept rows. Where some rows
        are complete and others are not, a mask is written out for the labels that are learnt again, for some of them
        at a time: 10⁷ pairs or one label. An error, or an interrupt, leaves the model as it was.
        """
        return self._update(X, Y, observed)

    def _update(self, X: Any, Y: Any, observed: Any, names: Any = None) -> Any:
        """:meth:`update`, where new labels may have ``names`` (m, d): see :meth:`_take_new_names`."""
        self._require_kept("update", "the rows of its fit")
        features = self._as_kept(self._fitted_features(X))
        if features.shape[0] == 0:
            raise InvalidInputError("X has no rows; an update needs at least one.")
        labels = check_labels(Y, n_rows=features.shape[0])
        if labels.shape[1] < self.n_labels_:
            raise InvalidInputError(
                f"Y has {labels.shape[1]:,} labels but the model has {self.n_labels_:,}; give a column for each, and "
                "further ones for new labels."
            )
        mask = None if observed is None else check_observed(observed, shape=labels.shape)
        self._warn_of_repeated(features, known_positives(labels, mask))
        before, start = self.n_labels_, self._n_kept
        anew = start + features.shape[0] >= _REFIT_GROWTH * self.fitted_rows_
        with self._changing("update", shown=not anew) as progress:
            new = self._grow(labels.shape[1] - before)
            if names is not None and len(new):
                self._take_new_names(new, names)
            self._append(features, labels, mask)
            if anew and self._can_be_fitted():
                self._refit()  # which shows its own progress
                return self
            frequency = np.bincount(self.kept_labels_.indices, minlength=self.n_labels_)
            due = (self.pending_ > 0) & (self.pending_ >= _NEW_SHARE * frequency)
            due[before:] = True
            ids = np.flatnonzero(due)
            if len(ids):
                progress.note(f"{counted(len(ids), 'label')} again")
                for some in self._learnt_together(ids):
                    self._learn_labels(self._kept_rows(some), some, progress)
                self.pending_ = np.where(due, 0, self.pending_)
            self._learn_shared(start, progress)
            self.drift_ = self._measured_drift()
        return self

    def _as_kept(self, X: Features) -> Features:
        """Rows in the form and type of those that are kept: CSR, or an array where the fit was given one."""
        if sp.issparse(self.kept_features_):
            X = canonical_csr(sp.csr_matrix(X)) if isinstance(X, np.ndarray) else X
        elif not isinstance(X, np.ndarray):
            X = X.toarray()
        return X.astype(self._floats(), copy=False)

    def _warn_of_repeated(self, X: Features, positives: sp.csr_matrix) -> None:
        """Say so where most of several new rows are kept already: somebody has given the old rows with the new ones."""
        if X.shape[0] < 2 or isinstance(X, np.ndarray):
            return
        some = np.unique(np.linspace(0, X.shape[0] - 1, _ROWS_COMPARED).astype(np.int64))
        kept, new = _fingerprints(self.kept_features_), _fingerprints(X[some])
        alike = np.flatnonzero(np.isin(kept, new[new != 0]))
        repeated = sum(
            any(
                _same_row(self.kept_features_, old, X, row) and _same_row(self.kept_labels_, old, positives, row)
                for old in alike[kept[alike] == fingerprint].tolist()
            )
            for row, fingerprint in zip(some.tolist(), new)
        )
        if repeated > len(some) / 2:
            warn(
                f"About {100 * repeated / len(some):.0f}% of the new rows are rows that the model has learnt already; "
                "they count twice now. Give an update new rows alone.",
                TagwiseWarning,
            )

    # ------------------------------------------------------------------ what is kept

    def _keep_rows(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None) -> None:
        if self.n_dense_features_in_:
            raise InvalidInputError(
                f"updatable=True cannot be combined with a dense block of features, and X has one of "
                f"{self.n_dense_features_in_:,} (an embedder makes one); leave one of them out."
            )
        self.kept_features_, self.kept_labels_ = X[:0], sp.csr_matrix((0, Y.shape[1]), dtype=np.float32)
        self.kept_observed_, self.kept_complete_ = self.kept_labels_, np.zeros(0, dtype=bool)
        self.kept_weight_, self.pending_ = np.zeros(0), np.zeros(Y.shape[1], dtype=np.int64)
        self._append(X, Y, observed, self._row_weight)
        self.pending_, self.fitted_rows_, self.drift_ = np.zeros_like(self.pending_), X.shape[0], 0.0

    def _append(
        self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, weight: np.ndarray | None = None
    ) -> None:
        n_rows, n_labels = Y.shape
        positives = known_positives(Y, observed)
        complete = np.ones(n_rows, dtype=bool)
        partly = sp.csr_matrix(Y.shape, dtype=np.float32)
        if observed is not None:
            complete = np.diff(observed.indptr) == n_labels
            partly = sp.csr_matrix(sp.diags((~complete).astype(np.float32)) @ observed)
            partly.eliminate_zeros()
            partly.sort_indices()  # a product of scipy has them in any order, and pairs are searched for
        stack = np.vstack if isinstance(X, np.ndarray) else _stacked
        self.kept_features_ = stack([self.kept_features_, X])
        self.kept_labels_ = _stacked([self.kept_labels_, positives])
        self.kept_observed_ = _stacked([self.kept_observed_, partly])
        self.kept_complete_ = np.concatenate([self.kept_complete_, complete])
        self.kept_weight_ = np.concatenate([self.kept_weight_, np.ones(n_rows) if weight is None else weight])
        taught = np.bincount(positives[complete].indices, minlength=n_labels)
        self.pending_ = self.pending_ + taught + np.bincount(partly.indices, minlength=n_labels)

    @property
    def _n_kept(self) -> int:
        return len(self.kept_complete_)

    def _kept_rows(self, labels: np.ndarray | None = None) -> LabelRows:
        """The kept rows, of all labels or of some; a mask is written out where not all of them are complete."""
        Y, observed = self.kept_labels_, self.kept_observed_
        if labels is not None:
            Y, observed = sp.csr_matrix(Y[:, labels]), sp.csr_matrix(observed[:, labels])
        mask = None if self.kept_complete_.all() else _with_complete_rows(observed, self.kept_complete_)
        weight = None if (self.kept_weight_ == 1).all() else self.kept_weight_
        return LabelRows(self.kept_features_, Y, mask, weight)

    def _learnt_together(self, labels: np.ndarray) -> list[np.ndarray]:
        """Labels in parts whose masks, where there have to be any, are small."""
        complete = int(np.count_nonzero(self.kept_complete_))
        if complete == self._n_kept:
            return [labels]
        width = max(1, _PAIRS_AT_ONCE // max(1, complete))
        return [labels[start:stop] for start, stop in even_chunks(len(labels), width)]

    def n_known_pairs(self) -> int | None:
        """Of how many kept pairs of a row and a label it is known whether they belong together; None: of all."""
        if self.kept_complete_.all():
            return None
        return int(np.count_nonzero(self.kept_complete_)) * self.n_labels_ + self.kept_observed_.nnz

    def _comparable_rows(self) -> LabelRows:
        """The kept rows that are complete; where none is, all of them with their mask."""
        complete = self.kept_complete_
        if complete.all() or not complete.any():
            return self._kept_rows()
        some = np.flatnonzero(complete)
        weight = None if (self.kept_weight_ == 1).all() else self.kept_weight_[some]
        return LabelRows(self.kept_features_[some], self.kept_labels_[some], None, weight)

    def _can_be_fitted(self) -> bool:
        """Whether a mask of all labels, if there has to be one, may be written out."""
        complete = int(np.count_nonzero(self.kept_complete_))
        return complete == self._n_kept or complete * self.n_labels_ <= _MOST_KNOWN_PAIRS

    def _require_sparse_alone(self, method: str) -> None:
        if self.n_dense_features_in_:
            raise InvalidInputError(
                f"{method} does not learn from a dense block of features, and this {type(self).__name__} has one of "
                f"{self.n_dense_features_in_:,}; fit to all rows and labels again."
            )

    def _require_kept(self, method: str, what: str) -> None:
        self._require_fitted()
        self._require_sparse_alone(method)
        if not self.updatable:
            raise InvalidInputError(
                f"{method} needs to know {what}, which this {type(self).__name__} has not kept; fit it with "
                "updatable=True (tagwise train --updatable)."
            )

    def _rows_of_new_labels(self, X: Any, Y_new: Any, observed: Any) -> LabelRows:
        """What :meth:`add_labels` was given, checked."""
        self._require_fitted()
        self._require_sparse_alone("add_labels")
        if X is None and not self.updatable:
            raise InvalidInputError(
                f"X is None, but this {type(self).__name__} keeps no rows to learn from; give the rows of Y_new, or "
                "fit with updatable=True."
            )
        if X is None:
            features = self.kept_features_
        elif self.updatable:
            features = self._as_kept(self._fitted_features(X))
        else:
            features = self._fitted_features(X).astype(self._floats(), copy=False)
        labels = check_labels(Y_new, name="Y_new", n_rows=features.shape[0])
        mask = None if observed is None else check_observed(observed, shape=labels.shape)
        if mask is not None and mask.nnz == labels.shape[0] * labels.shape[1]:
            mask = None
        weight = None
        if self.updatable:
            if features is not self.kept_features_ and not _same(features, self.kept_features_):
                raise InvalidInputError(
                    f"X has other rows than the {self._n_kept:,} that this model keeps and learns from. Give X=None "
                    "and Y_new of those; or learn rows and new labels together by update(X, Y), Y with a column for "
                    "every label, old and new."
                )
            weight = None if (self.kept_weight_ == 1).all() else self.kept_weight_
        weights = self.positive_weight
        if np.ndim(weights) == 1 and len(weights) != self.n_labels_ + labels.shape[1]:
            raise InvalidInputError(
                f"positive_weight has {len(weights):,} numbers, one per label of the fit; set_params(positive_weight=…)"
                f" with {self.n_labels_ + labels.shape[1]:,}, those of the new labels last."
            )
        return LabelRows(features, known_positives(labels, mask), mask, weight)

    def _take_new_columns(self, rows: LabelRows, labels: np.ndarray) -> None:
        """The kept rows with what is known of new labels, whose columns are empty so far."""
        first = int(labels[0])
        old = self.kept_labels_[:, :first], self.kept_observed_[:, :first]
        self.kept_labels_ = sp.csr_matrix(sp.hstack([old[0], rows.Y], format="csr"))
        if rows.observed is None:
            known = _with_complete_rows(sp.csr_matrix((self._n_kept, len(labels))), ~self.kept_complete_)
            self.kept_observed_ = sp.csr_matrix(sp.hstack([old[1], known], format="csr"))
            return
        if self.kept_complete_.any():
            if int(self.kept_complete_.sum()) * first > _MOST_KNOWN_PAIRS:
                raise InvalidInputError(
                    "observed: the kept rows are complete, and there are too many of them to write down all that is "
                    "known of them beside what is not known of the new labels; leave observed out, or fit again."
                )
            old = old[0], _with_complete_rows(sp.csr_matrix(old[1]), self.kept_complete_)
            self.kept_complete_ = np.zeros(self._n_kept, dtype=bool)
        self.kept_observed_ = sp.csr_matrix(sp.hstack([old[1], rows.observed], format="csr"))

    def _check_kept(self) -> None:
        """Raise ValueError unless kept rows fit together and belong to this model; for :meth:`_check_restored`."""
        X, Y, observed, complete = self.kept_features_, self.kept_labels_, self.kept_observed_, self.kept_complete_
        require_sparse(kept_labels_=Y, kept_observed_=observed)
        require_dense(1, kept_complete_=complete, kept_weight_=self.kept_weight_, pending_=self.pending_)
        require_finite_floats(kept_features_=check_features(X, name="kept_features_", n_features=self.n_features_in_))
        n_rows = X.shape[0]
        check_labels(Y, name="kept_labels_", n_rows=n_rows, n_labels=self.n_labels_)
        check_observed(observed, shape=(n_rows, self.n_labels_), name="kept_observed_", may_be_empty=True)
        if complete.dtype != np.bool_ or complete.shape != (n_rows,) or np.diff(observed.indptr)[complete].any():
            raise ValueError("kept_complete_ must say of every row whether it is complete, without known pairs then")
        weight, pending = self.kept_weight_, self.pending_
        if weight.shape != (n_rows,) or weight.dtype != np.float64 or not (np.isfinite(weight) & (weight > 0)).all():
            raise ValueError("kept_weight_ must have a number above 0 for every row")
        if pending.shape != (self.n_labels_,) or pending.dtype != np.int64 or (pending < 0).any():
            raise ValueError("pending_ must count pairs of every label")
        check_integer(self.fitted_rows_, "fitted_rows_", minimum=1, maximum=n_rows)
        check_real(self.drift_, "drift_", minimum=0)

    # ------------------------------------------------------------------ arrays by label and by feature

    def _grow(self, many: int) -> np.ndarray:
        """Make room for so many labels more; returns their ids."""
        first = self.n_labels_
        if many:
            names = self.label_names_
            self._select_labels(np.concatenate([np.arange(first), np.full(many, -1)]))
            if names is not None:
                self.label_names_ = [*names, *(f"label {label}" for label in range(first, first + many))]
        return np.arange(first, first + many)

    def _select_labels(self, source: np.ndarray) -> None:
        """The model with labels of its own in this order; −1 for one of which nothing is known."""
        axes = dict(self._label_axes)
        if self.updatable:
            axes |= {"kept_labels_": (1,), "kept_observed_": (1,), "pending_": (0,)}
        self._take(axes, source)
        names, weights = self.label_names_, self.positive_weight
        if np.ndim(weights) == 1 and len(weights) == self.n_labels_ and (source >= 0).all():
            self.positive_weight = np.asarray(weights)[source]
        self._take_label_count(len(source))
        if names is not None and (source >= 0).all():
            self.label_names_ = [names[label] for label in source]

    def _select_features(self, source: np.ndarray) -> None:
        """The model with features of its own in this order; −1 for one that no row has had."""
        axes = dict(self._feature_axes())
        if self.updatable:
            axes["kept_features_"] = (1,)
        self._take(axes, source)
        self.n_features_in_ = len(source)

    def _take(self, axes: Mapping[str, tuple[int, ...]], source: np.ndarray) -> None:
        for name, along in axes.items():
            array = getattr(self, name)
            for axis in along:
                array = taken(array, source, axis)
            setattr(self, name, array)

    def _floats(self) -> np.dtype:
        return np.dtype(getattr(self, self._saved_arrays[0]).dtype)

    def _training_labels(self, rows: LabelRows, labels: np.ndarray) -> TrainingLabels:
        """What is known of these labels, with the weights that the model gives them."""
        weight = self.positive_weight
        if np.ndim(weight) == 1:
            weight = np.asarray(weight)[labels]
        return TrainingLabels.build(
            rows.Y,
            rows.observed,
            resolve_positive_weight(weight, rows.Y, rows.observed),
            dtype=self._floats(),
            n_threads=thread_count(self.n_jobs),
            row_weight=rows.weight,
        )

    @contextmanager
    def _changing(self, what: str, *, shown: bool = True) -> Iterator[FitProgress]:
        """Change the fitted model, wholly or not at all."""
        before, verbose = dict(self.__dict__), self.verbose if shown else 0
        try:
            with deferred_interrupts():
                with FitProgress(type(self).__name__, 1, steps=what, verbose=verbose) as progress, computing():
                    yield progress
                for name in self._fitted_arrays():
                    array = getattr(self, name)
                    if not np.isfinite(array.data if sp.issparse(array) else array).all():
                        raise InvalidInputError(OVERFLOW)
                self._build_prediction_cache()
        except BaseException:
            with deferred_interrupts():
                self.__dict__ = before
            raise


# ---------------------------------------------------------------------- arrays


def taken(array: Any, source: np.ndarray, axis: int) -> Any:
    """Slices of an array or CSR matrix along an axis, in the order of ``source``; −1 for one of zeros."""
    there, before = source >= 0, array.shape[axis]
    if sp.issparse(array) and not there[before:].any() and np.array_equal(source[:before], np.arange(before)):
        # Only wider or longer: nothing is copied.
        wider = (array.shape[0], len(source)) if axis == 1 else (len(source), array.shape[1])
        indptr = np.pad(array.indptr, (0, wider[0] - array.shape[0]), mode="edge")
        return sp.csr_matrix((array.data, array.indices, indptr), shape=wider)
    if not sp.issparse(array):
        shape = list(array.shape)
        shape[axis] = len(source)
        out = np.zeros(shape, dtype=array.dtype)
        slices: list[Any] = [slice(None)] * array.ndim
        slices[axis] = there
        out[tuple(slices)] = np.take(array, source[there], axis=axis)
        return out
    if axis == 0:
        chosen = array[source[there]]
        counts = np.zeros(len(source), dtype=np.int64)
        counts[there] = np.diff(chosen.indptr)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return sp.csr_matrix((chosen.data, chosen.indices, indptr), shape=(len(source), array.shape[1]))
    place = np.full(array.shape[1], -1, dtype=np.int64)
    place[source[there]] = np.flatnonzero(there)
    columns = place[array.indices]
    kept = columns >= 0
    indptr = np.concatenate([[0], np.cumsum(kept)])[array.indptr]
    indices = columns[kept].astype(array.indices.dtype)
    out = sp.csr_matrix((array.data[kept], indices, indptr), shape=(array.shape[0], len(source)))
    out.sort_indices()
    return out


def replaced(array: np.ndarray, places: np.ndarray, values: np.ndarray, axis: int = 0) -> np.ndarray:
    """A copy of an array with other values at some places along an axis."""
    out = array.copy()
    out[(slice(None),) * axis + (places,)] = values
    return out


def with_columns(matrix: sp.csr_matrix, labels: np.ndarray, columns: sp.csr_matrix) -> sp.csr_matrix:
    """The matrix (d, L) with the columns of some labels replaced by others (d, len(labels)); memory three copies."""
    others = matrix
    if len(labels) and matrix.indices.max(initial=-1) >= labels.min():  # else there is nothing to replace
        gone = np.zeros(matrix.shape[1], dtype=bool)
        gone[labels] = True
        stay = ~gone[matrix.indices]
        indptr = np.concatenate([[0], np.cumsum(stay)])[matrix.indptr]
        others = sp.csr_matrix((matrix.data[stay], matrix.indices[stay], indptr), shape=matrix.shape)
    new = sp.csr_matrix((columns.data, labels[columns.indices], columns.indptr), shape=matrix.shape)
    return canonical_csr(others + new)


def with_rows(matrix: sp.csr_matrix, labels: np.ndarray, rows: sp.csr_matrix) -> sp.csr_matrix:
    """The matrix (L, d) with the rows of some labels replaced by others (len(labels), d)."""
    source = np.arange(matrix.shape[0])
    source[labels] = matrix.shape[0] + np.arange(len(labels))
    return sp.csr_matrix(_stacked([matrix, rows])[source])


def _stacked(parts: list[sp.csr_matrix]) -> sp.csr_matrix:
    return sp.csr_matrix(sp.vstack(parts, format="csr"))


def _with_complete_rows(observed: sp.csr_matrix, complete: np.ndarray) -> sp.csr_matrix:
    """A mask (n, m) whose complete rows, which have no entry in ``observed``, have them all."""
    n_labels = observed.shape[1]
    counts = np.where(complete, n_labels, np.diff(observed.indptr))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = np.empty(indptr[-1], dtype=np.int32)
    of_complete = np.repeat(complete, counts)
    indices[of_complete] = np.tile(np.arange(n_labels, dtype=np.int32), int(np.count_nonzero(complete)))
    indices[~of_complete] = observed.indices
    return sp.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=observed.shape)


def _merged_columns(matrix: sp.csr_matrix, source: np.ndarray) -> sp.csr_matrix:
    """A 0/1 matrix whose entries are also in the columns that ``source`` says for theirs."""
    also = sp.csr_matrix((matrix.data, source[matrix.indices], matrix.indptr), shape=matrix.shape)
    both = sp.csr_matrix(matrix.maximum(canonical_csr(also)))
    both.data = np.ones_like(both.data)
    return both


def _fingerprints(matrix: sp.csr_matrix) -> np.ndarray:
    """A random projection of each row (n,): the same for the same row in any matrix, 0 for one without entries."""
    return np.asarray(matrix @ np.random.default_rng(0).standard_normal(matrix.shape[1]))


def _same_row(left: sp.csr_matrix, i: int, right: sp.csr_matrix, j: int) -> bool:
    """Whether row i of one matrix and row j of another hold the same, both with rising indices."""
    one, other = slice(*left.indptr[i : i + 2]), slice(*right.indptr[j : j + 2])
    return np.array_equal(left.indices[one], right.indices[other]) and np.array_equal(left.data[one], right.data[other])


def _same(left: Features, right: Features) -> bool:
    """Whether two matrices hold the same."""
    if left.shape != right.shape or sp.issparse(left) != sp.issparse(right):
        return False
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return bool(np.array_equal(left, right))
    return left.nnz == right.nnz and (left != right).nnz == 0
