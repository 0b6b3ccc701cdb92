"""Choice of features for texts: bigrams, character n-grams and others, compared on validation rows of a sample."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError, TagwiseWarning
from tagwise.inspection.validation_pairs import known_ranking
from tagwise.metrics.ranking import ndcg_of_rows
from tagwise.models.cascade import Cascade
from tagwise.parameters import random_generator
from tagwise.text.features import TextFeatures
from tagwise.text.tags import TrainingRows

__all__ = ["EVERY", "USUAL", "FeatureChoice", "choose_features"]

USUAL: tuple[dict[str, Any], ...] = ({"bigrams": True}, {"characters": True})
"""Settings of :class:`~tagwise.TextFeatures` that are compared with words alone as a rule."""

EVERY: tuple[dict[str, Any], ...] = (
    *USUAL,
    {"bigrams": True, "characters": True},
    {"max_df": 0.5},
    {"max_df": 0.2},
    {"sublinear_tf": False},
)
"""All that ``tagwise tune`` compares."""

# Rows to fit, and characters of their texts, and rows to judge by: a fit takes seconds, and a point more is seen.
_SAMPLE, _CHARACTERS, _JUDGES, _FEWEST_JUDGES = 4000, 1_000_000, 1000, 50
# What other features must gain on all rows, beside twice the standard error: they take several times as long.
_LEAST_GAIN = 0.01
_K = 5


@dataclass(frozen=True)
class FeatureChoice:
    """The features to use, unfitted; the reason in one sentence; nDCG@5 of all settings, words first."""

    features: TextFeatures
    reason: str
    compared: list[tuple[dict[str, Any], float]]


def choose_features(
    rows: TrainingRows, others: Sequence[dict[str, Any]] = USUAL, *, n_jobs: int | None = None, random_state: Any = 0
) -> FeatureChoice:
    """Words, or other features that rank validation rows clearly better.

    A cascade is fitted to at most 4,000 of the rows, with at most a million characters, for each of the settings, and
    judged by nDCG@5 on at most 1,000 others (a fifth of all, where there are fewer). Gains shrink about as the root of
    the number of rows to learn from, so settings are chosen if they gain a point times the root of all rows over those
    of the sample, and twice the standard error of the differences between rows; of several the best. With fewer than
    250 rows nothing is compared: words, or character n-grams too where texts share hardly any word. Same rows and seed,
    same choice.

    ``others`` are settings of TextFeatures to compare with words alone. Time: a fit of the sample for each of them,
    whatever the number of rows: seconds.
    """
    words = TextFeatures()
    order = random_generator(random_state).permutation(len(rows.texts))
    n_judges = min(_JUDGES, len(order) // 5)
    if n_judges < _FEWEST_JUDGES:
        texts = rows.part(np.arange(len(rows.texts))).texts
        if not _lack_words(texts):
            return FeatureChoice(words, "Features are words: rows are too few to compare others.", [])
        reason = "rows are too few to compare others, and words alone do not tell these texts apart."
        return FeatureChoice(TextFeatures(characters=True), f"Features are words, character n-grams: {reason}", [])
    sample = rows.part(order[: n_judges + _SAMPLE])
    judges, training = map(sample.part, np.split(np.arange(len(sample.texts)), [n_judges]))
    lengths = np.cumsum([len(text) for text in training.texts])
    n_rows = min(len(lengths), max(_FEWEST_JUDGES, int(np.searchsorted(lengths, _CHARACTERS))))
    training = training.part(np.arange(n_rows))
    model = Cascade(validation_fraction=0, n_jobs=n_jobs, random_state=0)
    least = _LEAST_GAIN * np.sqrt((len(order) - n_judges) / n_rows)
    usual = _ndcg(words, model, training, judges)
    compared: list[tuple[dict[str, Any], float]] = [({}, float(usual.mean()))]
    best, most = words, 0.0
    for settings in others:
        features = TextFeatures(**settings)
        found = _ndcg(features, model, training, judges)
        compared.append((dict(settings), float(found.mean())))
        gains = found - usual
        gain, error = float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))
        if gain > max(most, least, 2 * error):
            best, most = features, gain
    on = f"nDCG@5 {100 * usual.mean():.1f}% on {n_judges:,} validation rows of a sample"
    if best is words:
        return FeatureChoice(words, f"Features are words: {on}; others are not clearly better.", compared)
    reached = 100 * (usual.mean() + most)
    return FeatureChoice(best, f"Features are {_described(best)}: {on} with words alone, {reached:.1f}%.", compared)


def _lack_words(texts: list[str]) -> bool:
    """Whether words would raise an error or a warning as features of these texts."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", TagwiseWarning)
        try:
            TextFeatures().fit(texts)
        except (InvalidInputError, TagwiseWarning):
            return True
    return False


def _ndcg(features: TextFeatures, model: MultiLabelModel, training: TrainingRows, judges: TrainingRows) -> np.ndarray:
    """nDCG@5 of each of the ``judges``; 0 where nothing can be learnt with these features."""
    extractor = clone(features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TagwiseWarning)  # the fit of all rows says what there is to say
        try:
            X = extractor.fit_transform(training.texts)
        except InvalidInputError:
            return np.zeros(len(judges.texts))
        fitted = clone(model).fit(X, training.Y, training.observed)
    ranked, _ = known_ranking(fitted, extractor.transform(judges.texts), min(_K, len(judges.tags)), judges.observed)
    return ndcg_of_rows(judges.Y, ranked, _K)


def _described(features: TextFeatures) -> str:
    """The settings that differ from the usual ones, in words."""
    parts = {
        "bigrams": "bigrams",
        "characters": "character n-grams",
        "max_df": f"without those in more than {features.max_df:.0%} of the texts",
        "sublinear_tf": "counted linearly",
    }
    usual = TextFeatures().get_params()
    changed = [parts[name] for name, value in features.get_params().items() if name in parts and value != usual[name]]
    return ", ".join(["words", *changed])
