"""Everything that a report shows about a tagger on rows with known tags, as plain figures; no plots, no HTML."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import ExplanationError
from tagwise.inspection.calibration import DEFAULT_K, probability_maps
from tagwise.inspection.explanations import heaviest_features_of_each
from tagwise.inspection.reliability import ReliabilityBins, reliability_bins
from tagwise.inspection.validation_pairs import ValidationPairs
from tagwise.metrics import ranking_report
from tagwise.models.factor_model import LOWEST_SCORE
from tagwise.parameters import random_generator
from tagwise.reports.figures import (
    Acceptance,
    Confusion,
    FrequencyBins,
    acceptance,
    confusions,
    frequency_bins,
    frequency_groups,
    group_recall,
    share,
    surest_mistakes,
)
from tagwise.text.evaluation import Evaluation, RankedRows, evaluate, propensity_weights
from tagwise.text.features import check_texts, words_in
from tagwise.text.suggestion import Suggestion
from tagwise.text.tagger import Tagger
from tagwise.text.tags import ValidationRows, has_entries
from tagwise.validation import check_integer

# As many rows as a browser scrolls and searches without a pause.
_MOST_TAGS = 3000
_TOP_WORDS = 6
_MOST_SUGGESTIONS = 10
_SUGGESTIONS = 5
_CONFUSIONS = 12
_ROWS_TO_CHECK, _CHECK_CHARACTERS = 10, 400
# Texts up to the first length are shown whole; of longer ones, about as much: this far around the words that explain.
_MOST_CHARACTERS, _AROUND_CHARACTERS = 1200, 120
_TIMED_ROWS = 500
_UNBROKEN = re.compile(r"\s*\S+|\s+")
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

    parts: list[list[Piece]]  # the whole text, or the parts of a long one that the words of suggestions are in
    shortened: bool  # whether there is more text than these parts
    suggestions: list[Suggestion]  # with the shares of all words if the model has exact explanations
    right: list[bool]  # whether the row has each of them
    missed: list[str]  # tags of the row that are not among them, including those not seen in training
    unseen: frozenset[str]  # tags of the row not seen in training

    @property
    def words(self) -> list[str]:
        """The known words that are shown, each once."""
        return list(dict.fromkeys(piece.word for part in self.parts for piece in part if piece.word is not None))


@dataclass(frozen=True)
class RowToCheck:
    """A row that has not got a tag of which the tagger is sure."""

    row: int  # its number, from 1
    text: str  # the first 400 characters
    shortened: bool
    tag: str  # the surest suggestion that the row does not have
    confidence: float  # its probability, or its score where there are no probabilities
    tags: list[str]  # those that the row has


@dataclass(frozen=True, eq=False)
class Findings:
    """The result of :func:`gather_findings`."""

    evaluation: Evaluation
    frequent: dict[str, float]  # the metrics of suggesting the most frequent tags to every row
    reachable: dict[str, float]  # those of suggesting the rows' own tags, except for tags not seen in training
    acceptance: Acceptance  # of the first five suggestions of each row
    confused: list[Confusion]  # the pairs of tags that are taken for each other most
    to_check: list[RowToCheck]
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
    Tags not seen in training count as missed in ``evaluation``, but are in no curve or table by training frequency.
    Memory O(n·10) besides the rows; n×L is never allocated.
    """
    n_examples = check_integer(n_examples, "n_examples", minimum=0)
    rows = check_texts(texts)
    model, calibration, training = tagger.model_, tagger.calibration_, tagger.training_
    tag_rows, n_tags = np.asarray(training["tag_rows"]), len(tagger.tags_)
    validation = tagger.validation_rows(rows, tags, known)
    lists = validation.tags
    # One ranking serves all figures.
    depth = DEFAULT_K if calibration is None else calibration.k
    answers = RankedRows.of(model, calibration, validation, min(max(depth, *ks), validation.truth.shape[1]))
    if evaluation is None:
        evaluation = evaluate(model, calibration, validation, ks, tag_rows, training["rows"], answers)
    groups = frequency_groups(tag_rows)
    listed = np.bincount(answers.decided.indices, minlength=n_tags)
    right = np.bincount(sp.csr_matrix(answers.decided.multiply(validation.Y)).indices, minlength=n_tags)
    true = np.bincount(validation.Y.indices, minlength=n_tags)
    order = np.lexsort((np.arange(len(tag_rows)), -tag_rows))[:_MOST_TAGS]
    words, unexplained = _top_words(tagger, order)
    maps = probability_maps(model, calibration)
    confidence = np.asarray(answers.scores[:, :_SUGGESTIONS], dtype=np.float64)
    # A label of which nothing is known has the lowest possible score, and is never suggested.
    best = np.where(confidence > LOWEST_SCORE / 2, answers.labels[:, :_SUGGESTIONS], -1)
    reliability = None
    if maps is not None:
        confidence = maps(best, confidence)
        pairs = ValidationPairs.of(
            answers.labels[:, :depth], answers.scores[:, :depth], validation.Y, validation.observed
        )
        reliability = reliability_bins(maps(pairs.labels, pairs.scores), pairs.on)
    if calibration is not None and calibrated_on_them:
        reliability = calibration.reliability

    def title(label: int) -> str:
        return tagger.title(tagger.tags_[label])

    confused = confusions(answers.labels[:, :_MOST_SUGGESTIONS], validation.Y, _CONFUSIONS)
    to_check = []
    for row, rank in surest_mistakes(best, confidence, validation.Y, _ROWS_TO_CHECK):
        text, own = rows[row], list(map(tagger.title, lists[row]))
        shown, shortened = text[:_CHECK_CHARACTERS], len(text) > _CHECK_CHARACTERS
        missing, sure = title(best[row, rank]), float(confidence[row, rank])
        to_check.append(RowToCheck(row + 1, shown, shortened, missing, sure, own))
    frequent, reachable = _yardsticks(validation, ks, tag_rows, training["rows"])
    usable = np.flatnonzero(has_entries(validation.X) & (np.diff(validation.truth.indptr) > 0))
    chosen = np.sort(random_generator(0).permutation(usable)[:n_examples]).tolist()
    precision, recall, f1 = share(right, listed), share(right, true), share(2 * right, true + listed)
    return Findings(
        evaluation=evaluation,
        frequent=frequent,
        reachable=reachable,
        acceptance=acceptance(best, confidence, validation.truth),
        confused=[replace(pair, tag=title(pair.tag), instead=title(pair.instead)) for pair in confused],
        to_check=to_check,
        model=tagger.choice_.name,
        reason=tagger.choice_.reason,
        settings=dict(model.get_params(deep=False)),
        training=training,
        history=list(model.history_),
        megabytes=model_megabytes(tagger),
        predict_ms=predict_milliseconds(tagger, rows, _TIMED_ROWS),
        tag_group=groups,
        group_recall=group_recall(answers.labels[:, :_MOST_SUGGESTIONS], validation.Y, groups),
        bins=frequency_bins(tag_rows, true, listed, right),
        reliability=reliability,
        tags=[
            TagFigures(
                title(label),
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
        n_tags=n_tags,
        examples=_examples(tagger, rows, lists, validation, chosen, 0 if unexplained else _ALL_WORDS),
        unexplained=unexplained,
        calibrated=calibration is not None,
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


def _yardsticks(
    rows: ValidationRows, ks: Sequence[int], tag_rows: np.ndarray, n_training_rows: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics of suggesting the most frequent tags to every row, and of suggesting its own tags that can be suggested.

    Suggestions are few: no more than the row has tags, or than it has known ones, can be right.
    """
    weights = propensity_weights(rows, tag_rows, n_training_rows)
    shape = rows.truth.shape
    if rows.observed is None:
        usual = np.lexsort((np.arange(len(tag_rows)), -tag_rows))[: min(max(ks), len(tag_rows))]
        usual = np.concatenate([usual, np.full(min(max(ks), shape[1]) - len(usual), -1, dtype=usual.dtype)])
        frequent: Any = np.broadcast_to(usual, (shape[0], len(usual)))
    else:
        known = rows.observed
        frequent = sp.csr_matrix((1.0 + tag_rows[known.indices], known.indices, known.indptr), shape=shape)
    # The most valuable first, where not all of them fit.
    value = np.ones(shape[1]) if weights is None else weights
    own = sp.csr_matrix((value[rows.Y.indices], rows.Y.indices, rows.Y.indptr), shape=shape)
    return ranking_report(rows.truth, frequent, ks, weights), ranking_report(rows.truth, own, ks, weights)


def _top_words(tagger: Tagger, labels: np.ndarray) -> tuple[list[tuple[str, ...]], str]:
    names = tagger.features_.feature_names
    try:
        found = heaviest_features_of_each(tagger.model_, labels, _TOP_WORDS)
        return [tuple(names[feature] for feature in features) for features, _ in found], ""
    except ExplanationError as error:
        return [()] * len(labels), str(error)


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
        parts = telling_parts(pieces_of(texts[row], known_words), suggestions)
        shortened = sum(len(piece.text) for part in parts for piece in part) < len(texts[row])
        right = [suggestion.tag in mine for suggestion in suggestions]
        missed = [tagger.title(tag) for tag in sorted(mine.difference(suggestion.tag for suggestion in suggestions))]
        unseen = frozenset(tagger.title(tag) for tag in mine if tag in validation.unseen)
        examples.append(Example(parts, shortened, suggestions, right, missed, unseen))
    return examples


def telling_parts(pieces: list[Piece], suggestions: list[Suggestion]) -> list[list[Piece]]:
    """A text as one part; of a long one, the surroundings of the words with the largest shares, in the text's order.

    A word counts with its largest share in any of the suggestions. Without shares, the beginning is taken.
    """
    if sum(len(piece.text) for piece in pieces) <= _MOST_CHARACTERS:
        return [pieces]
    # Passages of unknown words can be cut between any two of them.
    pieces = [
        small
        for piece in pieces
        for small in ([piece] if piece.word else [Piece(part, None) for part in _UNBROKEN.findall(piece.text)])
    ]
    lengths = np.array([len(piece.text) for piece in pieces], dtype=np.int64)
    worth: dict[str | None, float] = {}
    for suggestion in suggestions:
        for word in suggestion.why or ():
            worth[word.word] = max(worth.get(word.word, 0.0), abs(word.share))
    values = np.array([worth.get(piece.word, 0.0) for piece in pieces])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    around = _AROUND_CHARACTERS if values.any() else _MOST_CHARACTERS
    taken = np.zeros(len(pieces), dtype=bool)
    for place in np.argsort(-values, kind="stable").tolist():
        if taken.any() and (values[place] == 0 or lengths[taken].sum() >= _MOST_CHARACTERS):
            break
        first = int(np.searchsorted(starts, max(0, starts[place] - around), side="right")) - 1
        taken[first : int(np.searchsorted(starts, starts[place + 1] + around, side="left"))] = True
    runs = np.flatnonzero(np.diff(np.concatenate([[0], taken.astype(np.int8), [0]]))).reshape(-1, 2)
    return [pieces[start:stop] for start, stop in runs.tolist()]


def pieces_of(text: str, known_words: set[str]) -> list[Piece]:
    """Split a text into its known words and what lies between them; joined, they are the text again."""
    pieces: list[Piece] = []
    end = 0
    for start, stop, word in words_in(text):
        if word not in known_words:
            continue
        if start > end:
            pieces.append(Piece(text[end:start], None))
        pieces.append(Piece(text[start:stop], word))
        end = stop
    if end < len(text):
        pieces.append(Piece(text[end:], None))
    return pieces
