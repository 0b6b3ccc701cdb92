"""Quality of a tagger on rows with known tags, and whether recent rows are still like those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from tagwise.answers import padded_answers
from tagwise.estimator import DEFAULT_K, MultiLabelModel
from tagwise.exceptions import InvalidInputError, NotFittedError, TagwiseWarning, warn
from tagwise.inspection.calibration import Calibration, fit_calibration, require_probabilities
from tagwise.inspection.drift import Drift, Profile, compare_profiles, profile_of
from tagwise.inspection.reliability import ReliabilityBins, reliability_bins
from tagwise.inspection.thresholds import TARGETS
from tagwise.inspection.validation_pairs import ValidationPairs, known_ranking
from tagwise.metrics import SETS, ranking_report, recall_at_k
from tagwise.metrics.propensity import inverse_propensity_of_counts
from tagwise.metrics.ranking import check_ks, ndcg_at_k
from tagwise.parallel import even_chunks
from tagwise.progress import counted
from tagwise.text.embeddings import EmbeddedFeatures
from tagwise.text.features import TextFeatures, check_texts
from tagwise.text.tags import (
    ValidationRows,
    check_tags,
    column_of,
    empty_rows,
    known_matrix,
    ones_in,
    require_one_type,
    respelt_rows,
    tag_key,
    tag_matrix,
)
from tagwise.text.vectorizers import FittedFeatures
from tagwise.validation import check_choice

__all__ = ["Evaluation", "MeasuredTagger", "RankedRows", "decided_labels", "evaluate", "propensity_weights"]

TaggerT = TypeVar("TaggerT", bound="MeasuredTagger")

_BLOCK_ROWS = 512


@dataclass(frozen=True)
class Evaluation:
    """Result of ``Tagger.evaluate``.

    Attributes
    ----------
    metrics : dict of str to float
        ``"P@1"``, …, ``"nDCG@…"``, ``"PSP@…"``, ``"PSnDCG@…"``, ``"R@…"``, ``"coverage@…"``; and, of the decided tags,
        ``"micro-F1"``, ``"macro-F1"``, ``"example-F1"``. All in [0, 1]. Propensities are those of the training rows,
        of which there must be at least 3; PSP and PSnDCG are left out otherwise. Where rows have tags of the vocabulary
        that no training row has, ``"new-R@1"``, …: the share of a row's new tags among its first k, averaged over the
        rows that have some.
    rows : int
    unseen : Counter of str
        Number of rows of each tag that is neither in training rows nor in the vocabulary. No model can suggest
        them; they count as missed.
    new : Counter of str
        Number of rows of each tag of the vocabulary that no training row has.
    rows_with_new : int
        Rows with such a tag.
    rows_without_words : int
        Texts without a known word; all of them get the same suggestions.
    rows_without_tags : int
        Rows without a tag: every suggestion for them is wrong.
    """

    metrics: dict[str, float]
    rows: int
    unseen: Counter[str]
    new: Counter[str]
    rows_with_new: int
    rows_without_words: int
    rows_without_tags: int


@dataclass(frozen=True, eq=False)
class RankedRows:
    """Answers of a tagger to rows: its best labels among the known ones (n, k), their scores, and its decisions.

    Labels are best first, −1 for none; ``decided`` (n, L) has the labels that are on and known, as ones.
    """

    labels: np.ndarray
    scores: np.ndarray
    decided: sp.csr_matrix

    @classmethod
    def of(cls, model: MultiLabelModel, calibration: Calibration | None, rows: ValidationRows, k: int) -> RankedRows:
        """The k best labels of each row, and those that :func:`decided_labels` has. Memory O(n·k)."""
        labels, scores, decided = [], [], []
        for (start, stop), *ranked, on in _decisions(model, calibration, rows.X, k):
            decided += on
            if rows.observed is not None:
                ranked = list(known_ranking(model, rows.X[start:stop], k, rows.observed[start:stop]))
            labels.append(ranked[0][:, :k])
            scores.append(ranked[1][:, :k])
        ones = ones_in(decided, model.n_labels_)
        if rows.observed is not None:
            ones = sp.csr_matrix(ones.multiply(rows.observed))
        return cls(np.concatenate(labels), np.concatenate(scores), ones)


def evaluate(
    model: MultiLabelModel,
    calibration: Calibration | None,
    rows: ValidationRows,
    ks: Sequence[int],
    tag_rows: np.ndarray,
    n_training_rows: int,
    answers: RankedRows | None = None,
) -> Evaluation:
    """Metrics of rankings and decisions; ``tag_rows`` (L): number of training rows with each tag.

    ``answers`` are those to these rows, with at least the largest k of ``ks``, if there are some already.
    """
    wanted, _ = check_ks(ks, "ks")
    if rows.observed is not None and rows.Y.multiply(rows.observed).nnz == rows.observed.nnz:
        warn(
            "known contains no tag that is off in its row. Only known tags are measured, so every suggestion counts as "
            "right and the figures are meaningless; leave known out.",
            TagwiseWarning,
        )
    if answers is None:
        answers = RankedRows.of(model, calibration, rows, min(int(wanted.max()), rows.truth.shape[1]))
    labels, decided = answers.labels, answers.decided.copy()
    decided.resize(rows.truth.shape)
    weights = propensity_weights(rows, tag_rows, n_training_rows)
    metrics = {
        **ranking_report(rows.truth, labels, ks, weights),
        **{metric.name: float(metric.function(rows.truth, decided)) for metric in SETS if metric.shown},
    }
    is_new = np.zeros(rows.truth.shape[1], dtype=rows.truth.dtype)
    is_new[: len(tag_rows)] = (tag_rows == 0) & (n_training_rows > 0)
    new = sp.csr_matrix(
        (is_new[rows.truth.indices], rows.truth.indices, rows.truth.indptr), rows.truth.shape, copy=True
    )
    new.eliminate_zeros()
    having = np.diff(new.indptr) > 0
    if having.any():
        recalls = recall_at_k(new[having], labels[having], wanted.tolist())
        metrics |= {f"new-R@{k}": float(recall) for k, recall in zip(wanted.tolist(), recalls)}
    names = model.label_names_ or []
    return Evaluation(
        metrics,
        rows.X.shape[0],
        rows.unseen,
        Counter(names[label] for label in new.indices.tolist()),
        int(having.sum()),
        empty_rows(rows.X),
        empty_rows(rows.truth),
    )


def propensity_weights(rows: ValidationRows, tag_rows: np.ndarray, n_training_rows: int) -> np.ndarray | None:
    """The weight of each label of ``rows.truth`` in PSP; None where training rows are too few to say."""
    if n_training_rows < 3:
        return None
    counts = np.pad(tag_rows, (0, rows.truth.shape[1] - len(tag_rows)))
    return inverse_propensity_of_counts(counts, n_training_rows)


def decided_labels(model: MultiLabelModel, calibration: Calibration | None, X: sp.csr_matrix) -> list[np.ndarray]:
    """The labels that are on in each row, best first: those that reach their thresholds, or else a score of 0."""
    return [row for *_, decided in _decisions(model, calibration, X, 1) for row in decided]


def _decisions(
    model: MultiLabelModel, calibration: Calibration | None, X: Any, k: int
) -> Iterator[tuple[tuple[int, int], np.ndarray, np.ndarray, list[np.ndarray]]]:
    """For each block of rows: its borders, the k best labels or more, their scores, and which are on."""
    for start, stop in even_chunks(X.shape[0], _BLOCK_ROWS):
        rows, least = X[start:stop], DEFAULT_K if calibration is None else calibration.k
        labels, scores = model.predict_topk(rows, max(k, least))
        if calibration is not None:
            on = calibration.is_on(labels[:, : calibration.k], scores[:, : calibration.k])
        else:
            while (scores[:, -1] >= 0).any() and labels.shape[1] < model.n_labels_:
                labels, scores = model.predict_topk(rows, min(2 * labels.shape[1], model.n_labels_))
            on = (labels >= 0) & (scores >= 0)
        yield (start, stop), labels, scores, [row[: on.shape[1]][is_on] for row, is_on in zip(labels, on)]


class MeasuredTagger(BaseEstimator):
    """Measures of a fitted tagger, and its calibration, on rows that it was not fitted to."""

    tags_: list[Any]
    features_: FittedFeatures
    model_: MultiLabelModel
    calibration_: Calibration | None
    reference_: Profile | None
    training_: dict[str, Any]
    normalise_tags: bool
    _position: dict[Any, int]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "tags_")

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("This Tagger is not fitted yet; call fit(texts, tags) or load a saved tagger first.")

    def score(self, texts: Iterable[str], tags: Any) -> float:
        """nDCG@5 (:func:`tagwise.metrics.ndcg_at_k`) of the suggestions; tags not seen in training count as missed.

        :meth:`evaluate` has more metrics, and :func:`tagwise.metrics.scorer` makes any of them a ``scoring`` of
        scikit-learn.
        """
        return ndcg_at_k(*self.truth_and_ranking(texts, tags, 5), 5)

    def truth_and_ranking(self, texts: Iterable[str], tags: Any, k: int) -> tuple[sp.csr_matrix, np.ndarray]:
        """The true tags (n, L + those never seen) and the k best of each text (n, k): what ranking metrics compare."""
        rows = self.validation_rows(texts, tags, None)
        labels, scores = self.model_.predict_topk(rows.X, min(k, len(self.tags_)))
        return rows.truth, padded_answers(labels, scores, k)[0]

    def truth_and_decisions(self, texts: Iterable[str], tags: Any) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """The true tags and those of :meth:`predict`, both 0/1 (n, L + those never seen): what set metrics compare."""
        rows = self.validation_rows(texts, tags, None)
        decided = decided_labels(self.model_, self.calibration_, rows.X)
        return rows.truth, ones_in(decided, rows.truth.shape[1])

    def calibrate(
        self: TaggerT, texts: Iterable[str], tags: Any, known: Any = None, *, target: str = "micro"
    ) -> TaggerT:
        """Learn thresholds and probabilities from rows that the tagger was not fitted on.

        Where the scores of the model are probabilities already (Cascade), the rows correct them as far as they are off.

        Parameters
        ----------
        texts, tags, known
            As in :meth:`fit`. Training rows would make probabilities far too high.
        target : {"micro", "macro", "example"}
            The F1 that the thresholds are chosen for: over all pairs of text and tag, averaged over tags, or over
            texts.

        Returns
        -------
        self
            With ``calibration_`` and ``reference_``. Tags not seen in training are ignored, with a warning.
        """
        check_choice(target, "target", TARGETS)
        self._require_fitted()
        texts = check_texts(texts)
        rows = self.validation_rows(texts, tags, known)
        if rows.unseen:
            warn(
                f"The calibration ignores {counted(len(rows.unseen), 'tag')} of the validation rows not seen in "
                f"training, such as {min(rows.unseen)!r}.",
                TagwiseWarning,
            )
        k = min(self.model_.n_labels_, max(DEFAULT_K, 2 * int(np.diff(rows.Y.indptr).max())))
        labels, scores = known_ranking(self.model_, rows.X, k, rows.observed)
        calibration = fit_calibration(
            labels, scores, rows.Y, observed=rows.observed, target=target, probabilistic=self.model_.probabilistic
        )
        reference = profile_of(self.model_, rows.X, unknown_shares=self._unknown_words(texts)[0])
        self.__dict__.update(calibration_=calibration, reference_=reference)
        return self

    def evaluate(
        self, texts: Iterable[str], tags: Any, known: Any = None, *, ks: Sequence[int] = (1, 3, 5)
    ) -> Evaluation:
        """Measure suggestions and decisions against the tags that rows have.

        Parameters
        ----------
        texts, tags, known
            As in :meth:`fit`. With ``known``, only known tags are measured.
        ks : sequence of int
            The cut-offs k of the ranking metrics.
        """
        rows = self.validation_rows(texts, tags, known)
        return evaluate(self.model_, self.calibration_, rows, ks, self.training_["tag_rows"], self.training_["rows"])

    def reliability(self, texts: Iterable[str], tags: Any, known: Any = None, *, n_bins: int = 10) -> ReliabilityBins:
        """Reliability of probabilities on rows that the tagger was neither fitted nor calibrated on, for a diagram."""
        self._require_fitted()
        maps = require_probabilities(self.model_, self.calibration_, "reliability")
        rows = self.validation_rows(texts, tags, known)
        k = min(DEFAULT_K, self.model_.n_labels_) if self.calibration_ is None else self.calibration_.k
        labels, scores = known_ranking(self.model_, rows.X, k, rows.observed)
        pairs = ValidationPairs.of(labels, scores, rows.Y, rows.observed)
        return reliability_bins(maps(pairs.labels, pairs.scores), pairs.on, n_bins)

    def profile(self, texts: Iterable[str], *, edges: Any = None) -> Profile:
        """Profile of texts that the tagger was not fitted on: the counts that :meth:`drift` compares.

        ``edges`` are the ``score_edges`` of the profile that this one will be compared with.
        """
        self._require_fitted()
        rows = check_texts(texts)
        return profile_of(
            self.model_, self.features_.transform(rows), unknown_shares=self._unknown_words(rows)[0], edges=edges
        )

    def drift(self, texts: Iterable[str], *, reference: Profile | None = None) -> Drift:
        """Compare recent texts with texts from the time of training (:mod:`tagwise.inspection.drift`).

        Parameters
        ----------
        texts : list of str
            Recent texts.
        reference : Profile, optional
            :meth:`profile` of texts to compare with, which the tagger was not fitted on. By default ``reference_``,
            the profile of the rows of :meth:`calibrate`.

        Returns
        -------
        Drift
            Labels are the tags in the order of ``tags_``. ``with_answers(tagger.reliability(texts, accepted, known))``
            adds the acceptance of suggestions.

        Notes
        -----
        Time as for suggestions; memory for the texts and their features.
        """
        self._require_fitted()
        reference = self.reference_ if reference is None else reference
        if reference is None:
            raise InvalidInputError(
                "this tagger has no reference to compare with: it was trained without validation rows, or has been "
                "updated since. Train with --validation (Tagger.calibrate), or pass texts from the time of training "
                "that it was not trained on: --reference FILE (reference=tagger.profile(texts))."
            )
        return compare_profiles(reference, self.profile(texts, edges=reference.score_edges))

    def unknown_words(self, texts: Iterable[str]) -> list[tuple[str, int]]:
        """Words not seen in training, each with its number of texts; most frequent first.

        Empty unless the features are tagwise's own words.
        """
        self._require_fitted()
        found = self._unknown_words(check_texts(texts))[1]
        return sorted(found.items(), key=lambda item: (-item[1], item[0]))

    def _unknown_words(self, texts: list[str]) -> tuple[np.ndarray | None, Counter[str]]:
        """Share of unknown words in each text, and the words; None if the features are not tagwise's own words."""
        words = self.features_.words if isinstance(self.features_, EmbeddedFeatures) else self.features_
        return words.unknown_words(texts) if isinstance(words, TextFeatures) else (None, Counter())

    def validation_rows(self, texts: Iterable[str], tags: Any, known: Any = None) -> ValidationRows:
        """Texts and their tags in the columns of this tagger, for all measures."""
        self._require_fitted()
        rows = check_texts(texts)
        if not rows:
            raise InvalidInputError("texts is empty; at least one text is needed.")
        spelling = self._spelling
        lists = respelt_rows(check_tags(tags, len(rows)), spelling)
        Y, unseen = tag_matrix(lists, self._position)
        if unseen:
            require_one_type([self._position, unseen], "tags differ in type from those of the fit")
        truth, _ = tag_matrix(lists, column_of([*self._position, *sorted(unseen)]))
        observed = None
        if known is not None:
            looked_at = respelt_rows(check_tags(known, len(rows), "known"), spelling)
            observed, _ = known_matrix(looked_at, lists, self._position)
        return ValidationRows(self.features_.transform(rows), Y, truth, observed, unseen, lists)

    @property
    def _spelling(self) -> dict[str, Any] | None:
        """Spelling of tags by their keys, where similar ones are the same."""
        return {tag_key(tag): tag for tag in self.tags_} if self.normalise_tags else None
