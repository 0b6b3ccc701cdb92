"""What may change in a fitted cascade: labels that are added, go or become one, and further rows."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.models.cascade.names import name_weights, rows_with_name
from tagwise.models.cascade.opinions import LocalRows, RankerOptions, Rankers, cooccurrence_counts
from tagwise.models.factor_model import PositiveWeight
from tagwise.models.reml import REML
from tagwise.models.updating import LabelRows, UpdatableModel, replaced, with_columns, with_rows
from tagwise.parallel import thread_count
from tagwise.problems.labels import known_positives
from tagwise.progress import FitProgress
from tagwise.validation import Features, check_features, check_labels, shape_text

__all__ = ["UpdatableCascade"]

# Rows that tell how often a label is a hard negative.
_SAMPLE_ROWS = 256


class UpdatableCascade(UpdatableModel):
    """A cascade after its fit: each opinion on a label is learnt as in a fit; low rank and fusion stay."""

    hard_negatives: int
    normalize: bool
    unlisted: str
    positive_weight: PositiveWeight
    proposer_: REML
    prototypes_: sp.csr_matrix
    ranker_weights_: sp.csr_matrix
    ranker_intercept_: np.ndarray
    ranker_dense_weights_: np.ndarray
    has_ranker_: np.ndarray
    label_frequency_: np.ndarray
    cooccurrence_: sp.csr_matrix
    name_weights_: sp.csr_matrix
    name_rows_: np.ndarray
    n_rows_: int
    product_: dict[str, Any] | None
    _label_features: Features | None = None

    @abstractmethod
    def _ranker_options(self) -> RankerOptions:
        """Of the rankers of all labels."""

    @property
    @abstractmethod
    def _weighs_names(self) -> bool:
        """Whether the fusion has coefficients for names."""

    def add_labels(self, X: Any, Y_new: Any, observed: Any = None, *, Y: Any = None, label_features: Any = None) -> Any:
        """Learn labels beside those of the fit: proposer, ranker, prototype and co-occurrence of each.

        Parameters
        ----------
        Y : CSR or array (n, L), optional
            Which of the labels that there are the rows have, so that it is known which of them occur together with the
            new ones. A model with ``updatable=True`` knows.
        label_features : CSR or array (m, d), optional
            The features of the new labels' names, as in :meth:`fit`; of use where the model was fitted with names.

        Notes
        -----
        See :meth:`tagwise.models.updating.UpdatableModel.add_labels` for the other parameters. Hard negatives of the
        new labels are looked for among their own proposals, as many per row as they have among the hard negatives that
        a fit would find for some of the rows; the coefficients of the fusion stay.
        """
        self._require_fitted()
        if self.product_ is not None:
            raise InvalidInputError("add_labels: a Cascade of version 0.1.0 cannot learn labels; fit it again.")
        rows = self._rows_of_new_labels(X, Y_new, observed)
        known = None if Y is None else check_labels(Y, n_rows=rows.X.shape[0], n_labels=self.n_labels_)
        if self.updatable:
            known = self.kept_labels_
        names = self._checked_label_features(label_features, rows.Y.shape[1])
        return self._add(rows, known=known, names=names)

    def _describe_new(
        self, rows: LabelRows, labels: np.ndarray, known: sp.csr_matrix | None = None, names: Features | None = None
    ) -> None:
        """Which labels occur with the new ones, as far as the ``known`` old labels say, and what these are called."""
        if known is None:
            known = sp.csr_matrix((rows.Y.shape[0], self.n_labels_ - len(labels)), dtype=rows.Y.dtype)
        some = np.flatnonzero(np.diff(rows.Y.indptr))  # no other row has a pair with a new label
        counts = cooccurrence_counts(sp.csr_matrix(sp.hstack([known[some], rows.Y[some]], format="csr")))
        counts.data[counts.indices < labels[0]] = 0  # those are counted already
        counts.eliminate_zeros()
        self.cooccurrence_ = sp.csr_matrix(self.cooccurrence_ + counts)
        self.n_rows_ = max(self.n_rows_, rows.Y.shape[0])
        if names is not None and self._weighs_names:  # else the fusion has not learnt what names are worth
            weights = self._name_weights(sp.csr_matrix(names), sp.csr_matrix(rows.X))
            self.name_weights_ = with_rows(self.name_weights_, labels, weights)
            found = rows_with_name(weights, sp.csr_matrix(rows.X), rows.observed)
            self.name_rows_ = replaced(self.name_rows_, labels, found)

    def _name_weights(self, names: sp.csr_matrix, X: sp.csr_matrix) -> sp.csr_matrix:
        """The weights of names (m, d) by how many rows of X have their features."""
        counts = np.bincount(X.indices, minlength=X.shape[1])
        return name_weights(names, counts, X.shape[0]).astype(self._floats())

    def update(self, X: Any, Y: Any, observed: Any = None, *, label_features: Any = None) -> Any:
        """Learn further rows: see :meth:`tagwise.models.updating.UpdatableModel.update`.

        ``label_features`` (m, d) are the features of the new labels' names, where there are new labels.
        """
        if observed is not None and self.unlisted == "unknown":
            raise InvalidInputError(
                "observed says which pairs are known, unlisted='unknown' that only those of Y are; give one of them."
            )
        names = None
        if label_features is not None:
            self._require_fitted()
            names = self._checked_label_features(label_features, max(0, np.shape(Y)[1] - self.n_labels_))
        return self._update(X, Y, observed, names)

    def _take_new_names(self, labels: np.ndarray, names: sp.csr_matrix) -> None:
        if self._weighs_names:  # what they are worth is said once the rows have been counted
            self.name_weights_ = with_rows(self.name_weights_, labels, names.astype(self._floats()))

    def _checked_label_features(self, label_features: Any, many: int) -> sp.csr_matrix | None:
        if label_features is None:
            return None
        names, expected = check_features(label_features, name="label_features"), (many, self.n_features_in_)
        if names.shape != expected:
            raise InvalidInputError(
                f"label_features must be {shape_text(expected)}, a row per new label; found {shape_text(names.shape)}."
            )
        return sp.csr_matrix(names)

    def _feature_axes(self) -> Mapping[str, tuple[int, ...]]:
        return {"ranker_weights_": (0,), "prototypes_": (1,), "name_weights_": (1,)}

    def _select_labels(self, source: np.ndarray) -> None:
        super()._select_labels(source)
        self.proposer_ = copy(self.proposer_)
        self.proposer_._select_labels(source)
        self.proposer_.positive_weight = self.positive_weight
        self.proposer_._build_prediction_cache()

    def _select_features(self, source: np.ndarray) -> None:
        super()._select_features(source)
        self.proposer_ = copy(self.proposer_)
        self.proposer_._select_features(source)

    def _learn_labels(self, rows: LabelRows, labels: np.ndarray, progress: FitProgress) -> None:
        """Proposer, rankers and prototypes of labels that are a problem of their own."""
        local = LocalRows(
            sp.csr_matrix(rows.X), rows.Y, rows.observed, rows.weight, self.normalize, thread_count(self.n_jobs)
        )
        self.proposer_ = copy(self.proposer_)
        self.proposer_._learn_labels(rows, labels, progress)
        self.proposer_._build_prediction_cache()
        alone = self.proposer_._with_sparse_part(
            self.proposer_._of_labels(labels), sp.csr_matrix(self.proposer_.sparse_weights_[:, labels])
        )
        options = self._options_for(len(labels))
        if len(labels) < self.n_labels_:
            options = options._replace(hard_negatives=self._usual_mistakes(rows, labels))
        self._take_rankers(local.learn_rankers(alone, options), labels)
        self.prototypes_ = with_rows(self.prototypes_, labels, local.prototypes())
        frequency = np.bincount(local.positives.indices, minlength=len(labels))
        self.label_frequency_ = replaced(self.label_frequency_, labels, frequency)

    def _options_for(self, n_labels: int) -> RankerOptions:
        """Of rankers of some labels alone: as many hard negatives per row as is their share of all labels."""
        many = math.ceil(self.hard_negatives * n_labels / self.n_labels_)
        return self._ranker_options()._replace(hard_negatives=many)

    def _usual_mistakes(self, rows: LabelRows, labels: np.ndarray) -> int:
        """How many of the wrong labels of a row that a fit would take for hard negatives are these, on average.

        By some of the rows. Labels with many rows are proposed more often than is their share of all labels, and they
        are what new rows teach most about: by their share they would get too few negatives, and margins too large.
        """
        n_rows = rows.X.shape[0]
        some = np.unique(np.linspace(0, n_rows - 1, min(n_rows, _SAMPLE_ROWS)).astype(np.int64))
        wanted = min(self.hard_negatives, self.n_labels_)
        proposed, _ = self.proposer_.predict_topk(rows.X[some], wanted)
        among = np.isin(proposed, labels)
        place = np.zeros(self.n_labels_, dtype=np.int64)
        place[labels] = np.arange(len(labels))
        observed = None if rows.observed is None else rows.observed[some]
        proposed = place[np.maximum(proposed, 0)]
        wrong = among & ~contains_pairs(known_positives(rows.Y[some], observed), proposed)
        if observed is not None:
            wrong &= contains_pairs(observed, proposed)
        return max(1, math.ceil(np.count_nonzero(wrong) / len(some)))

    def _take_rankers(self, rankers: Rankers, labels: np.ndarray) -> None:
        self.ranker_weights_ = with_columns(self.ranker_weights_, labels, sp.csr_matrix(rankers.weights.T))
        self.ranker_intercept_ = replaced(self.ranker_intercept_, labels, rankers.intercept)
        self.ranker_dense_weights_ = replaced(self.ranker_dense_weights_, labels, rankers.dense)
        self.has_ranker_ = replaced(self.has_ranker_, labels, rankers.trained)

    def _learn_shared(self, start: int, progress: FitProgress) -> None:
        """Which labels occur together and in how many rows have their names; the low rank and the fusion stay."""
        self.n_rows_ = self._n_kept
        self.label_frequency_ = np.bincount(self.kept_labels_.indices, minlength=self.n_labels_)
        counts = cooccurrence_counts(self.kept_labels_[start:])
        self.cooccurrence_ = sp.csr_matrix(self.cooccurrence_ + counts) if start else counts
        if self.name_weights_.nnz:
            # Only complete rows and known pairs: an unknown pair says nothing about a name.
            X, complete = sp.csr_matrix(self.kept_features_), self.kept_complete_
            self.name_weights_ = self._name_weights(self.name_weights_, X)
            self.name_rows_ = rows_with_name(self.name_weights_, X[complete], None)
            if not complete.all():
                some = rows_with_name(self.name_weights_, X[~complete], self.kept_observed_[~complete])
                self.name_rows_ = self.name_rows_ + some

    def _measured_drift(self) -> float:
        return self.proposer_._low_rank_drift(self._comparable_rows())

    def _refit(self) -> None:
        self._label_features = self.name_weights_ if self.name_weights_.nnz else None
        try:
            super()._refit()
        finally:
            del self._label_features
