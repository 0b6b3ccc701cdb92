"""The estimator contract: input, output, checks and saving of every model and baseline.

A model implements :meth:`MultiLabelModel._fit` and :meth:`MultiLabelModel._score_rows`, and names its fitted arrays.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import ClassifierTags, TargetTags
from sklearn.utils.validation import validate_data

from tagwise.answers import (
    best_as_csr,
    finite_scores,
    format_of,
    ones_in_format,
    padded_answers,
    require_all_found,
    saved_output_format,
)
from tagwise.exceptions import ExplanationError, InvalidInputError, InvalidTypeError, NotFittedError, warn
from tagwise.feature_blocks import FeatureBlocks
from tagwise.fields import Fields, value
from tagwise.interrupts import deferred_interrupts
from tagwise.kernels import scaled_rows, top_k_of_scores
from tagwise.kernels.norm_pruned import FEW_ROWS
from tagwise.losses import as_probability
from tagwise.metrics.purposes import PURPOSES, LabelCounts, choose_labels
from tagwise.metrics.ranking import ndcg_at_k
from tagwise.parallel import even_chunks, single_threaded_blas, thread_count
from tagwise.parameters import check_parameters
from tagwise.problem import Problem
from tagwise.progress import Callback, FitProgress
from tagwise.registry import MODELS, info_of
from tagwise.store.checkpoints import Checkpoint, open_checkpoint
from tagwise.store.folder import ModelRecord, model_from_parts, require_same, storable_parameters, write_model
from tagwise.validation import (
    Features,
    check_choice,
    check_features,
    check_flag,
    check_integer,
    check_k,
    check_labels,
    check_memory,
    check_observed,
    check_sample_weight,
    shape_text,
    without_stored_zeros,
)

__all__ = ["BLOCK_SCORES", "DEFAULT_K", "ONLY_POSITIVES", "OVERFLOW", "MultiLabelModel", "computing", "listed"]

ModelT = TypeVar("ModelT", bound="MultiLabelModel")

DEFAULT_K = 50
"""Default number of labels per row that get a probability."""

# Scores of one block of rows, whatever the number of labels: a million numbers, 4 MB as float32.
BLOCK_SCORES = 1 << 20

OVERFLOW = (
    "the fit overflows: features, reg or positive_weight are too large for the floating type of X; scale them down, "
    "set normalize=True, or pass X as float64."
)

ONLY_POSITIVES = (
    "`observed` (known, --known) contains no negatives, only labels that the rows list. Right and wrong labels cannot "
    "be told apart, and rankings are poor. Leave it out; if labels that a row does not list may be right, use "
    "unlisted='unknown' (--unlisted unknown)."
)


def _check_history(history: Any, name: str) -> None:
    if not isinstance(history, list) or any(type(info["objective"]) not in (int, float) for info in history):
        raise ValueError(f"{name} must list the objective of every iteration")


def _check_feature_names(names: Any, name: str) -> None:
    if names is not None and not (isinstance(names, list) and all(isinstance(one, str) for one in names)):
        raise ValueError(f"{name} must be a list of names")


_count = partial(check_integer, minimum=1)
_COMMON = Fields(
    n_features_in_=value(_count, "Number of features."),
    n_dense_features_in_=value(partial(check_integer, minimum=0), "Number of features that are a dense block."),
    n_labels_=value(_count, "Number of labels."),
    history_=value(_check_history, "Each iteration: objective, seconds."),
    output_format=value(lambda found, _: saved_output_format(found), "Kind and type of the labels of the fit."),
    feature_names_in_=value(_check_feature_names, "Names of the features, or None."),
)
"""Values of every model in a folder."""


class MultiLabelModel(ClassifierMixin, BaseEstimator):
    """Base of every multi-label estimator of tagwise.

    Fitted attributes that all models have: ``n_features_in_``, ``n_labels_``, ``classes_`` (the label ids),
    ``n_iter_``, ``objective_`` (per iteration), ``history_`` (per iteration: objective, seconds) and
    ``label_names_`` (None, or the names the model was saved with).
    """

    fields: ClassVar[Fields] = Fields()
    """Fitted attributes that a loaded model needs, beside those of every model."""
    explained_score: ClassVar[str] = "the score"
    """Name of the sum of :meth:`label_weights`, if not the score itself."""
    _iteration_name: ClassVar[str] = "iteration"
    """Name of an iteration of the fit where progress is shown."""

    n_jobs: int | None
    verbose: int
    normalize: bool
    updatable: bool = False
    dense_weight: float = 1.0
    rank: int | None = None
    kernel: Any = None
    positive_weight: Any = 1.0
    n_dense_features_in_: int = 0
    """Number of features, the last ones, that are a dense block."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__doc__" in cls.__dict__:
            cls.__doc__ = cls.fields.documented(cls.__doc__)

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        """Learn from checked data, report each iteration to ``progress`` and stop when it says so.

        A fit that can be resumed starts from ``progress.resume``, and calls ``progress.keep`` before each step.
        """

    @abstractmethod
    def _score_rows(self, X: Features) -> np.ndarray:
        """Scores of some rows for all labels, dense; 0 or more means on. Called with blocks that fit into memory."""

    def _check_parameters(self) -> None:
        """Raise for invalid constructor arguments that :mod:`tagwise.parameters` does not check."""

    def _reads_blocks(self) -> bool:
        """Whether the model reads :class:`~tagwise.data.FeatureBlocks` directly; others get CSR."""
        return False

    def _recognised(self, X: Features) -> Features:
        """Features to fit, with dense columns behind sparse ones as a block; all alike in updatable models."""
        if not self._reads_blocks() or self.updatable:
            return X
        found = FeatureBlocks.recognised(X)
        return found if isinstance(found, FeatureBlocks) and found.sparse.shape[1] else X

    def _warm_start_arrays(self) -> dict[str, np.ndarray]:
        """Arrays beside the data that a fit starts from, by name: those of the last fit, for a warm start."""
        return {}

    def _fields(self) -> Fields:
        """Fitted attributes of this model; overridden where they depend on the parameters."""
        return self.fields

    def _keep_all(self, problem: Problem) -> None:
        """Keep the training rows, in a model that is ``updatable``; called before :meth:`_fit`."""

    def _check_fitted(self) -> None:
        """Raise ValueError if fitted attributes are inconsistent in ways that the checks of their axes miss."""

    def _build_prediction_cache(self) -> None:
        """Precompute data that speeds up prediction; called after a fit and after loading."""

    def answers_without_blas(self, X: Features) -> bool:
        """Whether :meth:`_top_k` answers these few rows by compiled loops alone, none of which returns arrays.

        Limiting BLAS to one thread and deferring interrupts would cost a good part of such an answer's microseconds.
        """
        return False

    def _label_weights(self, labels: np.ndarray) -> Features:
        """Weights for :meth:`label_weights`, dense or sparse; models with linear scores override it."""
        raise ExplanationError(
            f"{type(self).__name__} has no exact explanations: its scores are not a sum of one part per feature. Use "
            f"{listed('explainable')}."
        )

    def _label_intercepts(self, labels: np.ndarray) -> np.ndarray:
        """Intercepts for :meth:`label_intercepts`."""
        return np.asarray(self.intercept_[labels])

    def purpose_facts(self) -> tuple[int, LabelCounts]:
        """Number of labels per row that have probabilities, and counts of labels in the training rows.

        Models whose score is a calibrated probability minus ½ override it.
        """
        raise InvalidInputError(
            f"optimise needs probabilities, but the scores of {type(self).__name__} are not probabilities. Use "
            f"{listed('probabilistic')}, or a Tagger after calibrate with validation rows."
        )

    def probabilities_of(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities from scores; here from scores that are labels (0/1) or probabilities, less ½."""
        return as_probability(scores + scores.dtype.type(0.5))

    @property
    def probabilistic(self) -> bool:
        """Whether a score is a calibrated probability minus ½."""
        return info_of(type(self)).probabilistic

    def _prepared(self, X: Features) -> Features:
        """Rows as the model reads them: scaled to unit length if ``normalize``, block by block."""
        threads = self._threads_for(X)
        return scaled_rows(X, normalize=self.normalize, dense_weight=self.dense_weight, n_threads=threads)

    def _iterations(self) -> int:
        """Largest number of iterations of a fit, for the progress bar."""
        return int(getattr(self, "max_iter", 1))

    def _top_k(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        """Block by block; models with factors override this with fused scoring.

        ``k`` is at most L. Scores that overflow must raise, as :func:`finite_scores` does: a label whose score is NaN
        would be silently left out.
        """
        hidden = [None if exclude is None else exclude[start:stop] for start, stop in self._row_blocks(X)]
        parts = [top_k_of_scores(scores, k, exclude=pairs) for scores, pairs in zip(self._score_blocks(X), hidden)]
        labels, best = (np.concatenate(part) for part in zip(*parts))
        return labels, best

    def _score_blocks(self, X: Features) -> Iterator[np.ndarray]:
        """Scores of all labels, one block of rows after the other."""
        for start, stop in self._row_blocks(X):
            yield finite_scores(self._score_rows(X[start:stop]))

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        X: Any,
        Y: Any,
        observed: Any = None,
        *,
        sample_weight: Any = None,
        label_features: Any = None,
        callback: Callback | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Any:
        """Learn from features and labels.

        Parameters
        ----------
        X : CSR or array (n, d), or FeatureBlocks
            Features. float32 stays float32; other numbers become float64. Pass words and an embedding as
            :class:`~tagwise.data.FeatureBlocks`, or as the list ``[CSR, array]``.
        Y : CSR or array (n, L)
            Labels, 0 or 1.
        observed : CSR or array (n, L), or Known, optional
            Which labels are known: entries stored in a sparse mask, non-zero entries of a dense one. A pair outside it
            never influences the fit, whatever Y says there; a pair inside that Y does not list is a known negative.
            None means that every label is known. ``Known(pairs, complete=rows)`` lists the pairs of some rows, and
            rows that are completely known.
        sample_weight : array (n,), optional
            Weight of each row in the objective: 2 is equivalent to having the row twice, and 0 to leaving it out.
            Supported by LEML, REML, BinaryRelevance and Cascade, whose objectives are sums over rows.
        label_features : CSR, array or FeatureBlocks (L, d), optional
            Features of each label's name, in the space of X; only the non-zero pattern matters, not the values. For
            Cascade: a row that has the features of a label's name is evidence for the label. If X has a dense block,
            names may have one too: the similarity of row and name in that block is further evidence. An all-zero
            dense row means that the label has no name.
        callback : callable(iteration, info), optional
            Called after every iteration; returning True stops the fit.
        checkpoint : Checkpoint, optional
            Where the fit saves its state while it runs. If it holds the state of an earlier run of the same fit (data,
            parameters and version), the fit resumes there and ends with the same bits as an uninterrupted one.
            Models whose fit is one step, or a few quick ones, start over; docs/checkpoints.md lists those that resume.

        Returns
        -------
        self

        Warns
        -----
        TagwiseWarning
            ``observed`` contains no negatives.
        """
        self._check_all_parameters()
        if callback is not None and not callable(callback):
            raise InvalidTypeError(f"callback must be callable as callback(iteration, info); found {callback!r}.")
        with self._whole_or_not():
            problem = self._take_data(X, Y, observed, sample_weight, label_features)
            if problem.only_positives_known():
                warn(ONLY_POSITIVES)
            self._learn(problem, callback, checkpoint)
        return self

    def _learn(self, problem: Problem, callback: Callback | None = None, checkpoint: Checkpoint | None = None) -> None:
        """Fit to checked data, with progress and a checkpoint, and complete the model."""
        if self.updatable:
            self._keep_all(problem)
        opened = None
        if checkpoint is not None:
            known, data = problem.known, {"X": problem.X, "Y": problem.Y, "observed": None} | self._warm_start_arrays()
            if known is not None:
                data |= {"observed": known.pairs, "complete rows": known.complete}
            optional = {"sample_weight": problem.row_weight, "label_features": problem.names}
            data |= {name: given for name, given in optional.items() if given is not None}
            opened = open_checkpoint(checkpoint, type(self).__name__, self.get_params(deep=False), data)
        progress = FitProgress(
            type(self).__name__,
            self._iterations(),
            steps=self._iteration_name,
            verbose=self.verbose,
            callback=callback,
            journal=opened,
        )
        with opened or nullcontext(), progress, computing():
            self._fit(problem, progress)
        if opened is not None and progress.resumed:
            with opened.refusing_misfits():
                self._check_fields()
        self._complete_fit(progress)

    def fit_stage(self, problem: Problem, progress: FitProgress) -> None:
        """Fit as one stage of another model's fit, which owns the progress, its history and its checkpoint."""
        self.n_features_in_ = problem.X.shape[1]
        self.n_dense_features_in_ = problem.X.n_dense if isinstance(problem.X, FeatureBlocks) else 0
        self._output_format = format_of(problem.Y)
        self._take_label_count(problem.n_labels)
        with computing():
            self._fit(replace(problem, X=self._as_read(problem.X)), progress)
        self._complete_fit(progress)

    def _take_data(self, X: Any, Y: Any, observed: Any, sample_weight: Any, label_features: Any) -> Problem:
        """Check the data of a fit, and record its sizes and types; a full mask is treated as None.

        Rows that weigh 0 are left out before anything looks at X, and stored zeros of X do not count.
        """
        features = without_stored_zeros(check_features(X, blocks=True))
        self._note_features(X, features, reset=True)
        labels = check_labels(Y, n_rows=features.shape[0])
        # With a kernel, factors have a row per landmark, not per feature.
        rank = None if self.kernel is not None else self.rank
        check_memory(features.shape[1], labels.shape[1], rank, features.dtype.itemsize)
        if sample_weight is not None and not info_of(type(self)).weighs_rows:
            raise InvalidInputError(
                f"sample_weight: {type(self).__name__} does not support row weights. Leave sample_weight out, or use "
                f"{listed('weighs_rows')}."
            )
        weights = None if sample_weight is None else check_sample_weight(sample_weight, features.shape[0])
        problem = Problem.of(features, labels, observed, weights)
        if weights is not None and not weights.all():
            problem = problem.rows(np.flatnonzero(weights))
        features = self._recognised(problem.X)
        self.n_dense_features_in_ = features.n_dense if isinstance(features, FeatureBlocks) else 0
        names = self._checked_label_features(label_features, labels.shape[1])
        problem = replace(problem, X=self._as_read(features), names=names)
        if problem.row_weight is not None and (problem.row_weight == 1).all():
            problem = replace(problem, row_weight=None)
        if problem.known is not None and not info_of(type(self)).learns_from_mask:
            raise InvalidInputError(
                f"observed: {type(self).__name__} does not support unknown labels. Leave observed out, so that "
                f"unlisted labels count as off; or use {listed('learns_from_mask')}."
            )
        self._output_format = format_of(Y)
        self._take_label_count(labels.shape[1])
        return problem

    def _checked_label_features(self, label_features: Any, n_labels: int, label: str = "label") -> Features | None:
        """Checked features of the names of ``n_labels`` labels, in the space of X."""
        if label_features is None:
            return None
        if not info_of(type(self)).learns_from_names:
            raise InvalidInputError(f"label_features: {type(self).__name__} does not learn from names; leave them out.")
        names = check_features(label_features, name="label_features", blocks=True)
        expected = (n_labels, self.n_features_in_)
        if names.shape != expected:
            raise InvalidInputError(
                f"label_features must be {shape_text(expected)}, a row per {label} in the space of X; found "
                f"{shape_text(names.shape)}."
            )
        if isinstance(names, FeatureBlocks) and names.n_dense != self.n_dense_features_in_:
            raise InvalidInputError(
                f"label_features has {names.n_dense} dense features, and X has {self.n_dense_features_in_}; use the "
                "same embedding for names and rows."
            )
        return names

    def _take_label_count(self, n_labels: int) -> None:
        self.n_labels_ = n_labels
        self.classes_ = np.arange(n_labels)
        self.label_names_: list[str] | None = None

    def _complete_fit(self, progress: FitProgress) -> None:
        """Raise if arrays overflowed; store the history."""
        if self._fields().overflow(self):
            raise InvalidInputError(OVERFLOW)
        self._take_history(list(progress.history))
        self._build_prediction_cache()

    def _take_history(self, history: list[dict[str, Any]]) -> None:
        self.history_, self.n_iter_ = history, len(history)
        self.objective_ = np.array([float(info["objective"]) for info in history])

    # ------------------------------------------------------------------ predict

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of all labels, dense (n×L): meant for few labels; see :meth:`predict_topk` for many.

        A score of 0 or more means that the label is on, as everywhere in scikit-learn.
        """
        features = self.fitted_features(X)
        with computing():
            return np.concatenate(list(self._score_blocks(features)))

    def predict_topk(
        self, X: Any, k: int = 5, *, exclude: Any = None, optimise: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels of each row.

        Parameters
        ----------
        X : CSR or array (n, d)
        k : int
            Number of labels. May exceed those of the model, by up to 1,000.
        exclude : CSR (n, L), optional
            Stored pairs are never returned, such as labels that a row already has.
        optimise : {"precision", "recall", "psp", "macro_f1"}, optional
            Choose the k labels that maximise the expectation of this metric at k (:mod:`tagwise.metrics.purposes`), for
            models whose scores are probabilities: :class:`~tagwise.Cascade`. None: the k best scores, which is also
            ``"precision"``. ``"macro_f1"`` chooses for all rows of X together: pass all rows of an evaluation at
            once; the result depends on their order.

        Returns
        -------
        labels : int array (n, k)
            Best first, equal scores in the order of their ids, -1 where there are no more labels. Labels
            are ordered by score even with ``optimise``, so the first labels are not those chosen for a smaller k.
        scores : float array (n, k)
            -inf where the label is -1.

        Notes
        -----
        Exact. Memory O(n·k) and a block of scores; n×L is never allocated. With ``optimise``, the k labels are chosen
        from the M that have probabilities, the shortlist of :class:`~tagwise.Cascade`, in memory O(n·M + L).
        """
        self._require_fitted()
        k = check_k(k, self.n_labels_)
        if optimise is not None:
            check_choice(optimise, "optimise", PURPOSES)
        features = self.fitted_features(X)
        hidden = exclude
        if exclude is not None:
            shape = features.shape[0], self.n_labels_
            hidden = check_observed(exclude, shape=shape, name="exclude", may_be_empty=True)
        if optimise is None:
            return self._best_labels(features, k, hidden)
        n_candidates, counts = self.purpose_facts()
        labels, scores = self._best_labels(features, max(k, n_candidates), hidden)
        chosen = choose_labels(labels, np.clip(scores + 0.5, 0, 1), k, optimise, counts)
        return np.take_along_axis(labels, chosen, axis=1), np.take_along_axis(scores, chosen, axis=1)

    def _best_labels(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        with nullcontext() if self.answers_without_blas(X) else computing():
            labels, scores = self._top_k(X, min(k, self.n_labels_), exclude)
        require_all_found(labels, scores, exclude)
        return padded_answers(labels, scores, k)

    def predict(self, X: Any) -> Any:
        """0/1 labels in the format that Y had at fit: CSR in, CSR out; array in, array of the same dtype out."""
        features = self.fitted_features(X)
        indices, sizes = [], [np.zeros(1, dtype=np.int64)]
        with computing():
            for scores in self._score_blocks(features):
                indices.append(np.nonzero(scores >= 0)[1].astype(np.int32))
                sizes.append((scores >= 0).sum(axis=1))
        columns, indptr = np.concatenate(indices), np.cumsum(np.concatenate(sizes))
        return ones_in_format(columns, indptr, (features.shape[0], self.n_labels_), self._output_format)

    def predict_proba(self, X: Any, k: int = DEFAULT_K, *, dense: bool | None = None) -> Any:
        """Probabilities that labels are on.

        Those of :class:`~tagwise.Cascade` are calibrated. Other models map their scores s to numbers between 0 and 1
        with the same ranking, and ½ at the border between off and on: s + ½ where scores estimate 0/1 labels (squared
        loss, shares of votes), 1 / (1 + e^{−s}) for logistic loss and WSABIE, ½(s + 1) for hinge losses, bent below
        0.0001 and above 0.9999 to stay within. :meth:`tagwise.Tagger.calibrate` calibrates them for texts, and
        :func:`tagwise.inspection.fit_calibration` for matrices.

        Parameters
        ----------
        X : CSR or array (n, d)
        k : int
            Number of labels per row that have a probability, if the result is sparse.
        dense : bool, optional
            True: all labels, as an array. False: the k best, as CSR. None: dense if Y was an array at fit.

        Returns
        -------
        array or CSR (n, L)
            A pair that CSR does not store is not among the k best of its row.
        """
        self._require_fitted()
        if dense is not None:
            check_flag(dense, "dense")
        kind, _ = self._output_format
        if dense if dense is not None else kind == "dense":
            return self.probabilities_of(self.decision_function(X))
        labels, scores = self.predict_topk(X, min(check_k(k, self.n_labels_), self.n_labels_))
        make = sp.csr_array if kind == "csr_array" else sp.csr_matrix
        return best_as_csr(make, labels, self.probabilities_of(scores), self.n_labels_)

    # ------------------------------------------------------------------ measure

    def score(self, X: Any, y: Any) -> float:
        """nDCG@5 (:func:`tagwise.metrics.ndcg_at_k`) of the ranking of labels, as parameter searches maximise it.

        For other metrics, pass one of :func:`tagwise.metrics.scorer` as ``scoring``.
        """
        return ndcg_at_k(*self.truth_and_ranking(X, y, 5), 5)

    def truth_and_ranking(self, X: Any, Y: Any, k: int) -> tuple[sp.csr_matrix, np.ndarray]:
        """The true labels (n, L) and the k best labels of each row (n, k), for ranking metrics."""
        self._require_fitted()
        return check_labels(Y, n_labels=self.n_labels_), self.predict_topk(X, min(k, self.n_labels_))[0]

    def truth_and_decisions(self, X: Any, Y: Any) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """The true and the predicted labels, both 0/1 (n, L), for set-wise metrics."""
        self._require_fitted()
        return check_labels(Y, n_labels=self.n_labels_), check_labels(self.predict(X))

    # ------------------------------------------------------------------ inspect (tagwise.inspection)

    @property
    def coef_(self) -> np.ndarray:
        """Weights of all labels (L, d), as in scikit-learn: scores are ``scored_rows(X) @ coef_.T + intercept_``.

        Computed at each call, L·d numbers: use :meth:`label_weights` for some of the labels. Models whose scores are
        not linear do not have this attribute.
        """
        if not self.__sklearn_is_fitted__() or type(self).explained_score != MultiLabelModel.explained_score:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'coef_'")
        try:
            return self.label_weights(np.arange(self.n_labels_))
        except ExplanationError as error:
            raise AttributeError(str(error)) from None

    @deferred_interrupts()
    def label_weights(self, labels: Any) -> np.ndarray:
        """Weights w_j (len(labels)×d, dense) of scores that are linear in :meth:`scored_rows`: s_j(x) = x·w_j + b_j.

        Raises :class:`~tagwise.exceptions.ExplanationError` for a model whose scores are not linear.
        """
        self._require_fitted()
        with np.errstate(over="ignore", invalid="ignore"):
            weights = self._label_weights(self._checked_ids(labels))
        dense = weights if isinstance(weights, np.ndarray) else weights.toarray()
        if not np.isfinite(dense).all():
            raise InvalidInputError("labels: the weights of these labels overflow; the model holds too large numbers.")
        return dense

    @deferred_interrupts()
    def label_intercepts(self, labels: Any) -> np.ndarray:
        """Intercepts b_j (len(labels)) that belong to :meth:`label_weights`."""
        self._require_fitted()
        return self._label_intercepts(self._checked_ids(labels))

    def _checked_ids(self, labels: Any) -> np.ndarray:
        ids = np.asarray(labels)
        if ids.size and ids.dtype.kind not in "iu":
            raise InvalidTypeError(f"labels must be ids, whole numbers; found an array of {ids.dtype}.")
        ids = ids.astype(np.int64)
        wrong = ids[(ids < 0) | (ids >= self.n_labels_)]
        if len(wrong):
            raise InvalidInputError(f"labels must be ids from 0 to {self.n_labels_ - 1:,}; found {wrong[0]:,}.")
        return ids

    @deferred_interrupts()
    def scored_rows(self, X: Any) -> Features:
        """The rows that :meth:`label_weights` apply to: X, checked, and scaled as the model does."""
        return self._prepared(self.fitted_features(X))

    # ------------------------------------------------------------------ after the fit (tagwise.models.updating)

    def add_labels(self, X: Any, Y_new: Any, observed: Any = None) -> Any:
        """Learn further labels; only updatable models support it."""
        raise self._not_updatable("add_labels")

    def remove_labels(self, labels: Any) -> Any:
        """Remove labels; only updatable models support it."""
        raise self._not_updatable("remove_labels")

    def merge_labels(self, labels: Any, into: int) -> Any:
        """Merge labels; only updatable models support it."""
        raise self._not_updatable("merge_labels")

    def update(self, X: Any, Y: Any, observed: Any = None) -> Any:
        """Learn further rows; only updatable models support it."""
        raise self._not_updatable("update")

    def _not_updatable(self, method: str) -> InvalidInputError:
        return InvalidInputError(
            f"{type(self).__name__} does not support {method}; fit it again, or use {listed('updatable')}."
        )

    def rename_labels(self, names: Any) -> Any:
        """Rename labels: ``names`` is a list of one name per label, or a dict from ids or old names.

        Returns self, with the new ``label_names_``; predictions do not depend on them.
        """
        self._require_fitted()
        if isinstance(names, Mapping):
            known = self.label_names_ or [str(label) for label in range(self.n_labels_)]
            place, changes, names = {name: label for label, name in enumerate(known)}, names, list(known)
            for old, new in changes.items():
                label = place.get(old) if isinstance(old, str) else int(self._checked_ids([old])[0])
                if label is None:
                    raise InvalidInputError(f"names: there is no label {old!r:.60}.")
                names[label] = new
        checked = _checked_names(names, self.n_labels_)
        if len(set(checked)) < len(checked):
            twice = next(name for name in checked if checked.count(name) > 1)
            raise InvalidInputError(f"names: two labels would be called {twice!r:.60}; use merge_labels to merge them.")
        self.label_names_ = checked
        return self

    # ------------------------------------------------------------------ save

    def save(self, path: str | PathLike[str], *, label_names: list[str] | None = None, overwrite: bool = True) -> None:
        """Write the fitted model as a folder that :func:`tagwise.load` reads: JSON and safetensors, no pickle.

        Parameters
        ----------
        path : path
            The folder. An existing model is replaced atomically; any other content is refused.
        label_names : list of str, optional
            One name per label, stored in the folder and restored as ``label_names_``.
        overwrite : bool
            False: an existing model is an error.
        """
        record = self.to_parts()
        if label_names is not None:
            record = replace(record, label_names=_checked_names(label_names, self.n_labels_))
        write_model(path, record, overwrite=overwrite)

    def to_parts(self) -> ModelRecord:
        """The content of a folder of this fitted model, checked as a whole."""
        self._require_fitted()
        self._check_all_parameters()
        try:
            self._check_fields()
        except (ValueError, IndexError, TypeError, AttributeError) as error:
            raise InvalidInputError(f"the fitted attributes are inconsistent, nothing was saved: {error}") from None
        fields, (kind, dtype), names = self._fields(), self._output_format, getattr(self, "feature_names_in_", None)
        common = {
            "output_format": [kind, np.dtype(dtype).str],
            "feature_names_in_": None if names is None else [str(name) for name in names],
        }
        plain = [name for name, field in (_COMMON | fields).items() if field.form == "value" and name not in common]
        record = ModelRecord(
            class_name=type(self).__name__,
            parameters=storable_parameters(self.get_params(deep=False)),
            tensors={name: getattr(self, name) for name in fields.arrays()},
            values=common | {name: getattr(self, name) for name in plain},
            label_names=self.label_names_,
        )
        for name in fields.models():
            record = record.with_model(name, getattr(self, name).to_parts())
        return record

    @classmethod
    @deferred_interrupts()
    def from_parts(cls: type[ModelT], record: ModelRecord) -> ModelT:
        """The fitted model that a record of :meth:`to_parts` describes; the record may come from anyone.

        Raises
        ------
        ModelFormatError, KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, MemoryError
            The content does not fit the class.
        """
        inner = {}
        for name, field in cls.fields.models().items():
            inner[name], record = record.split_model(name)
            if inner[name].class_name not in field.classes:
                raise ValueError(f"{name} must be a {field.kind}; found {inner[name].class_name!s:.100}")
        require_same("parameters", set(record.parameters), set(inspect.signature(cls.__init__).parameters) - {"self"})
        model = cls(**record.parameters)
        model._check_all_parameters()
        fields, content = _COMMON | model._fields(), record.values | record.tensors
        require_same("fitted attributes", set(content), set(fields) - set(inner))
        _COMMON.check({name: content[name] for name in _COMMON}, {})
        kind, names = content.pop("output_format"), content.pop("feature_names_in_")
        for name, found in content.items():
            setattr(model, name, found)
        for name, inner_record in inner.items():
            setattr(model, name, model_from_parts(inner_record))
        if model.n_dense_features_in_ > model.n_features_in_:
            raise ValueError(f"{model.n_dense_features_in_} dense features of {model.n_features_in_}")
        # Before anything of the size that the manifest claims is made: the claim must agree with the tensors.
        with np.errstate(over="ignore", invalid="ignore"):
            model._check_fields()
            model._build_prediction_cache()
        for what, given, size in (
            ("label", record.label_names, model.n_labels_),
            ("feature", names, model.n_features_in_),
        ):
            if given is not None and len(given) != size:
                raise ValueError(f"{len(given)} {what} names for {size} {what}s")
        model._take_label_count(model.n_labels_)
        model.label_names_ = record.label_names
        if names is not None:
            model.feature_names_in_ = np.array(names, dtype=object)
        model._output_format = saved_output_format(kind)
        model._take_history(model.history_)
        return model

    # ------------------------------------------------------------------ scikit-learn

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags = TargetTags(required=True, single_output=False, multi_output=True, two_d_labels=True)
        tags.classifier_tags = ClassifierTags(multi_class=False, multi_label=True)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_iter_")

    # ------------------------------------------------------------------ inside

    def _check_all_parameters(self) -> None:
        """The parameters that every model has, then the model's own."""
        thread_count(self.n_jobs)
        if not isinstance(self.verbose, (int, np.integer)):
            raise InvalidTypeError(f"verbose must be 0, 1 or a boolean; found {self.verbose!r}.")
        check_parameters(self)
        self._check_parameters()

    def _check_fields(self) -> None:
        """Raise ValueError unless all fitted attributes are present and consistent."""
        fields, found = self._fields(), self.__dict__
        sizes = {"d": self.n_features_in_, "L": self.n_labels_, "q": self.n_dense_features_in_}
        fields.check({name: found[name] for name in fields if name in found}, sizes)
        for name in fields.models():
            self._check_inner(name, found[name], self._floats())
        self._check_fitted()

    def _check_inner(self, name: str, inner: MultiLabelModel, dtype: Any) -> None:
        """Raise ValueError where a fitted model cannot be part of this one, whose floating type is ``dtype``."""
        sizes = (self.n_features_in_, self.n_dense_features_in_, self.n_labels_)
        same_sizes = (inner.n_features_in_, inner.n_dense_features_in_, inner.n_labels_) == sizes
        if not same_sizes or inner.normalize != self.normalize or inner._floats() != dtype:
            raise ValueError(f"{name} was not fitted with this model: features, labels, types or scaling differ")

    def _floats(self) -> np.dtype:
        """The floating type of the model."""
        return self._fields().floats(self)

    def _require_fitted(self) -> None:
        """Raise NotFittedError before a fit."""
        if not self.__sklearn_is_fitted__():
            name = type(self).__name__
            raise NotFittedError(f"This {name} is not fitted yet; call fit(X, Y) or load a saved model first.")

    @contextmanager
    def _whole_or_not(self) -> Iterator[None]:
        """Change the model atomically: errors and interrupts leave it as it was."""
        before = dict(self.__dict__)
        try:
            with deferred_interrupts():
                yield
        except BaseException:
            with deferred_interrupts():
                self.__dict__ = before
            raise

    def fitted_features(self, X: Any) -> Features:
        """Checked rows in the blocks of the fit, not yet scaled."""
        self._require_fitted()
        features = check_features(X, blocks=True)
        # Without names, scikit-learn's own comparison would take a tenth of the time of a one-row answer.
        named = hasattr(X, "columns") or hasattr(self, "feature_names_in_")
        if named or features.shape[1] != self.n_features_in_:
            self._note_features(X, features, reset=False)
        return self._as_read(features)

    def _note_features(self, X: Any, features: Features, *, reset: bool) -> None:
        """Remember or compare the number (and, for data frames, the names) of the features."""
        try:
            validate_data(self, X if hasattr(X, "columns") else features, reset=reset, skip_check_array=True)
        except ValueError as error:
            raise InvalidInputError(str(error)) from None

    def _as_read(self, X: Features) -> Features:
        """Rows with as many dense features as there were at fit, in two blocks or, as the model needs them, in one."""
        n_dense = self.n_dense_features_in_
        if not n_dense:
            return X.tocsr() if isinstance(X, FeatureBlocks) else X
        blocks = X if isinstance(X, FeatureBlocks) else FeatureBlocks.split(X, n_dense)
        if blocks.n_dense != n_dense:
            raise InvalidInputError(
                f"X has {blocks.n_dense} dense features, but the model was trained with {n_dense}; pass rows made by "
                "the same feature extraction."
            )
        if self._reads_blocks():
            return blocks
        # The base class scales the blocks; further processing by the model comes after that.
        scaled: Any = MultiLabelModel._prepared(self, blocks)
        return scaled.tocsr()

    def _threads_for(self, X: Features) -> int:
        """Threads for these rows; a few rows are one chunk of work, and asking joblib is slow."""
        return 1 if X.shape[0] <= FEW_ROWS else thread_count(self.n_jobs)

    def _row_blocks(self, X: Features) -> list[tuple[int, int]]:
        return even_chunks(X.shape[0], max(1, BLOCK_SCORES // self.n_labels_))


@contextmanager
def computing() -> Iterator[None]:
    """BLAS on one thread, interrupts at safe points, and no overflow warnings: results are checked for it."""
    with deferred_interrupts(), single_threaded_blas(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        yield


def _checked_names(label_names: Any, n_labels: int) -> list[str]:
    """One name per label, or an error that names the problem."""
    if isinstance(label_names, (str, bytes)) or not hasattr(label_names, "__iter__"):
        raise InvalidTypeError(f"label_names must be a list of names; found {label_names!r:.60}.")
    names = list(label_names)
    if len(names) != n_labels:
        raise InvalidInputError(f"label_names has {len(names):,} names but the model has {n_labels:,} labels.")
    other = [name for name in names if not isinstance(name, str)]
    if other:
        raise InvalidTypeError(f"label_names must hold text; found {other[0]!r}.")
    return names


def listed(property_name: str) -> str:
    """The models that have a property, for an error message: "LEML, REML or MSE"."""
    names = [info.class_name for info in MODELS if getattr(info, property_name)]
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
