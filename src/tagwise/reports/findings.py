"""Everything that a report shows about a tagger on rows with known tags, as plain figures; no plots, no HTML."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tagwise.exceptions import ExplanationError
from tagwise.inspection.calibration import probability_maps
from tagwise.inspection.explanations import heaviest_features
from tagwise.inspection.reliability import ReliabilityBins
from tagwise.inspection.validation_pairs import known_ranking
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.randomness import random_generator
from tagwise.reports.curves import FrequencyBins, frequency_bins, frequency_groups, group_recall, label_counts, share
from tagwise.text.evaluation import Evaluation, decided_labels
from tagwise.text.features import WORD_PATTERN, check_texts
from tagwise.text.suggestion import Suggestion
from tagwise.text.tagger import Tagger
from tagwise.text.tags import ValidationRows, check_tags
from tagwise.validation import check_integer

__all__ = ["Example", "Findings", "gather_findings", "model_megabytes", "pieces_of", "predict_milliseconds"]

# As many rows as a browser scrolls and searches without a pause.
_MOST_TAGS = 3000
_TOP_WORDS = 6
_MOST_SUGGESTIONS = 10
_SUGGESTIONS = 5
_MOST_CHARACTERS = 700
_WORD = re.compile(WORD_PATTERN)
# More words than any text has.
_ALL_WORDS = 1 << 30


@dataclass(frozen=True)
class TagFigures:
    """One row of the table of tags. Precision, recall and F1 are of decisions, NaN if undefined."""

    tag: str
    group: int
    training_rows: int
    rows: int
    precision: float
    recall: float
    f1: float
    words: tuple[str, ...]


@dataclass(frozen=True)
class Piece:
    """A part of a text; ``word`` is its feature, or None between known words."""

    text: str
    word: str | None


@dataclass(frozen=True)
class Example:
    """One row, with its best five suggestions."""

    pieces: list[Piece]  # the text, at most 700 characters of it
    shortened: bool  # whether there was more
    suggestions: list[Suggestion]  # with the shares of all words if the model has exact explanations
    right: list[bool]  # whether the row has each of them
    missed: list[str]  # tags of the row that are not among them, including those that training never saw
    unseen: frozenset[str]  # tags of the row that training never saw


@dataclass(frozen=True, eq=False)
class Findings:
    """The result of :func:`gather_findings`."""

    evaluation: Evaluation
    model: str
    reason: str  # why this model was chosen
    settings: dict[str, Any]  # all parameters of the model, defaults included
    training: dict[str, Any]  # Tagger.training_
    history: list[dict[str, Any]]  # iterations of the fit: objective, seconds
    megabytes: float  # size of the model with its vocabulary
    predict_ms: float  # milliseconds per row to read a text and rank its tags, in batches
    tag_group: np.ndarray  # int (L,), from frequency_groups
    group_recall: np.ndarray  # (3, K): recall of head, middle and tail tags among the first 1, …, K suggestions
    bins: FrequencyBins  # of decisions, by training frequency
    reliability: ReliabilityBins | None  # on these rows; None if the tagger has no probabilities
    tags: list[TagFigures]  # the most frequent tags in training, at most 3,000
    n_tags: int  # all tags
    examples: list[Example]
    unexplained: str  # why tags have no words; empty if they have
    calibrated: bool  # whether calibrated thresholds decide
    calibrated_on_them: bool = False  # whether thresholds and probabilities were learnt from these same rows


def gather_findings(
    tagger: Tagger,
    texts: Iterable[str],
    tags: Any,
    known: Any = None,
    *,
    ks: Sequence[int] = (1, 3, 5),
    n_examples: int = 20,
    evaluation: Evaluation | None = None,
    calibrated_on_them: bool = False,
) -> Findings:
    """Measure a fitted tagger on rows that it was not fitted on, for :func:`tagwise.reports.write_report`.

    Parameters
    ----------
    tagger : fitted Tagger
    texts, tags, known
        As in ``Tagger.evaluate``.
    ks : sequence of int
        The k of the ranking metrics.
    n_examples : int
        Rows to show, drawn at random among those that have tags and known words.
    evaluation : Evaluation, optional
        The result of ``tagger.evaluate`` for the same rows and ``ks``, if there is one already.
    calibrated_on_them : bool
        Whether ``tagger.calibrate`` learnt from these rows. Reliability is then measured by cross-fitting on their
        halves, and the report says that decisions look a little better than they are.

    Notes
    -----
    Tags that training never saw count as missed in ``evaluation``, but are in no curve or table by training frequency.
    Memory O(n·10) besides the rows; n×L is never allocated.
    """
    n_examples = check_integer(n_examples, "n_examples", minimum=0)
    rows, lists = check_texts(texts), check_tags(tags)
    if evaluation is None:
        evaluation = tagger.evaluate(rows, lists, known, ks=ks)
    validation = ValidationRows.of(tagger.features_, tagger._position, rows, lists, known)
    model, training = tagger.model_, tagger.training_
    tag_rows = np.asarray(training["tag_rows"])
    groups = frequency_groups(tag_rows)
    ranked, _ = known_ranking(model, validation.X, min(_MOST_SUGGESTIONS, len(tagger.tags_)), validation.observed)
    decided = _padded(decided_labels(model, tagger.calibration_, validation.X))
    if validation.observed is not None:
        # An unknown pair is neither right nor wrong.
        decided = np.where(contains_pairs(validation.observed, decided), decided, -1)
    listed, right = label_counts(decided, validation.Y)
    true = np.bincount(validation.Y.indices, minlength=len(tagger.tags_))
    order = np.lexsort((np.arange(len(tag_rows)), -tag_rows))[:_MOST_TAGS]
    words, unexplained = _top_words(tagger, order)
    reliability = None
    if tagger.calibration_ is not None and calibrated_on_them:
        reliability = tagger.calibration_.reliability
    elif probability_maps(model, tagger.calibration_) is not None:
        reliability = tagger.reliability(rows, lists, known)
    usable = np.flatnonzero((np.diff(validation.X.indptr) > 0) & (np.diff(validation.truth.indptr) > 0))
    chosen = np.sort(random_generator(0).permutation(usable)[:n_examples]).tolist()
    precision, recall, f1 = share(right, listed), share(right, true), share(2 * right, true + listed)
    return Findings(
        evaluation=evaluation,
        model=tagger.choice_.name,
        reason=tagger.choice_.reason,
        settings=dict(model.get_params(deep=False)),
        training=training,
        history=list(model.history_),
        megabytes=model_megabytes(tagger),
        predict_ms=predict_milliseconds(tagger, rows),
        tag_group=groups,
        group_recall=group_recall(ranked, validation.Y, groups),
        bins=frequency_bins(tag_rows, true, listed, right),
        reliability=reliability,
        tags=[
            TagFigures(
                tagger.tags_[label],
                int(groups[label]),
                int(tag_rows[label]),
                int(true[label]),
                float(precision[label]),
                float(recall[label]),
                float(f1[label]),
                words[place],
            )
            for place, label in enumerate(order.tolist())
        ],
        n_tags=len(tagger.tags_),
        examples=_examples(tagger, rows, lists, validation, chosen, 0 if unexplained else _ALL_WORDS),
        unexplained=unexplained,
        calibrated=tagger.calibration_ is not None,
        calibrated_on_them=calibrated_on_them,
    )


def model_megabytes(tagger: Tagger) -> float:
    """Size of all arrays that the tagger's folder would hold, in MB (10⁶ bytes)."""
    size = 0
    for tensor in tagger.to_parts().tensors.values():
        arrays = [tensor] if isinstance(tensor, np.ndarray) else [tensor.data, tensor.indices, tensor.indptr]
        size += sum(array.nbytes for array in arrays)
    return size / 1e6


def predict_milliseconds(tagger: Tagger, rows: list[str], most: int = 2000) -> float:
    """Milliseconds per row to read a text and rank its tags, measured on a batch of at most ``most`` rows."""
    measured = rows[:most]
    tagger.suggest(measured[:1])  # kernels compile on first use
    start = time.perf_counter()
    tagger.suggest(measured)
    return 1000 * (time.perf_counter() - start) / len(measured)


def _padded(decided: list[np.ndarray]) -> np.ndarray:
    width = max(1, max(map(len, decided), default=1))
    table = np.full((len(decided), width), -1, dtype=np.int64)
    for row, labels in enumerate(decided):
        table[row, : len(labels)] = labels
    return table


def _top_words(tagger: Tagger, labels: np.ndarray) -> tuple[list[tuple[str, ...]], str]:
    names = tagger.features_.feature_names
    words: list[tuple[str, ...]] = []
    try:
        for label in labels.tolist():
            features, _ = heaviest_features(tagger.model_, label, _TOP_WORDS)
            words.append(tuple(names[feature] for feature in features))
    except ExplanationError as error:
        return [()] * len(labels), str(error)
    return words, ""


def _examples(
    tagger: Tagger, texts: list[str], tags: list[list[str]], validation: ValidationRows, rows: list[int], explain: int
) -> list[Example]:
    """Some rows, with ``explain`` words of each suggestion."""
    if not rows:
        return []
    answers = tagger.suggest([texts[row] for row in rows], top=_SUGGESTIONS, explain=explain)
    known_words = set(tagger.features_.feature_names)
    examples = []
    for row, suggestions in zip(rows, answers):
        mine = set(tags[row])
        example = Example(
            pieces=pieces_of(texts[row][:_MOST_CHARACTERS], known_words),
            shortened=len(texts[row]) > _MOST_CHARACTERS,
            suggestions=suggestions,
            right=[suggestion.tag in mine for suggestion in suggestions],
            missed=sorted(mine.difference(suggestion.tag for suggestion in suggestions)),
            unseen=frozenset(tag for tag in mine if tag in validation.unseen),
        )
        examples.append(example)
    return examples


def pieces_of(text: str, known_words: set[str]) -> list[Piece]:
    """Split a text into its known words and what lies between them; joined, they are the text again."""
    pieces: list[Piece] = []
    end = 0
    for match in _WORD.finditer(text):
        word = match.group().lower()
        if word not in known_words:
            continue
        if match.start() > end:
            pieces.append(Piece(text[end : match.start()], None))
        pieces.append(Piece(match.group(), word))
        end = match.end()
    if end < len(text):
        pieces.append(Piece(text[end:], None))
    return pieces
