"""Answers of a tagger: tags with scores and probabilities, and the words that speak for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.inspection.calibration import Calibration, probability_maps, require_probabilities
from tagwise.inspection.explanations import explain_labels
from tagwise.inspection.validation_pairs import are_listed
from tagwise.metrics.purposes import PURPOSES, LabelCounts, choose_labels
from tagwise.validation import check_choice, check_integer, check_real

__all__ = ["Request", "Suggestion", "WordShare", "suggestions", "suggestions_as_frame", "title_of"]


@dataclass(frozen=True)
class WordShare:
    """One word's part in a score.

    Attributes
    ----------
    word : str
        The word; a character n-gram is written as ``char:`` and the n-gram with its spaces.
    contribution : float
        Feature value × weight: what the word adds to the score (see ``Tagger.explained_score``).
    share : float
        The contribution over the sum of the absolute contributions of all words of the text: the absolute shares of
        all words add up to 1. Negative where the word speaks against the tag.
    """

    word: str
    contribution: float
    share: float


@dataclass(frozen=True)
class Suggestion:
    """One tag for a text.

    Attributes
    ----------
    tag : str or int
    score : float
        The model's score; its own border between off and on is 0.
    probability : float or None
        Probability that the tag is right; None for an uncalibrated model whose scores are not probabilities.
    why : tuple of WordShare or None
        The words with the largest absolute contributions, largest first; None unless asked for.
    intercept : float or None
        The score without any word; with the contributions of *all* words it adds up to the score, or to what
        ``Tagger.explained_score`` names where the score is made of it. None unless ``why`` was asked for.
    base_share : float or None
        The intercept in the unit of the words' shares: over the sum of the absolute contributions of all words. None
        unless ``why`` was asked for, and where no word contributes.
    name : str or None
        Name of the tag in the vocabulary; None where it has no other.
    """

    tag: Any
    score: float
    probability: float | None = None
    why: tuple[WordShare, ...] | None = None
    intercept: float | None = None
    base_share: float | None = None
    name: str | None = None

    @property
    def title(self) -> str:
        """Display form of the tag, with its name."""
        return title_of(self.tag, self.name)


def title_of(tag: Any, name: str | None) -> str:
    """Display form of a tag: with its name, if any, in parentheses."""
    return str(tag) if name is None else f"{tag} ({name})"


@dataclass(frozen=True)
class Request:
    """The arguments of ``Tagger.suggest``."""

    top: Any = 5
    threshold: Any = None
    explain: Any = 0
    min_probability: Any = None
    optimise: Any = None

    def check(self, model: MultiLabelModel, calibration: Calibration | None) -> None:
        """Raise for invalid arguments, and for those that need ``calibrate`` before it was called."""
        check_integer(self.top, "top", minimum=1)
        check_integer(self.explain, "explain", minimum=0)
        if isinstance(self.threshold, str) and self.threshold != "calibrated":
            raise InvalidTypeError(f'threshold must be a number, "calibrated" or None; found {self.threshold!r}.')
        if self.threshold == "calibrated" and calibration is None:
            raise InvalidInputError(
                'threshold="calibrated" needs a calibrated tagger; call calibrate with validation rows first (tagwise '
                "train --validation)."
            )
        if self.min_probability is not None:
            require_probabilities(model, calibration, "min_probability")
            check_real(self.min_probability, "min_probability", minimum=0.0, maximum=1.0)
        if self.optimise is not None:
            check_choice(self.optimise, "optimise", PURPOSES)
            require_probabilities(model, calibration, "optimise")
        if self.threshold not in (None, "calibrated"):
            check_real(self.threshold, "threshold")


def suggestions(
    request: Request,
    X: Any,
    model: MultiLabelModel,
    tags: Sequence[Any],
    *,
    calibration: Calibration | None = None,
    counts: LabelCounts | None = None,
    names: Mapping[Any, str] | None = None,
    feature_names: Sequence[str] = (),
    labels: np.ndarray | None = None,
) -> list[list[Suggestion]]:
    """The answer to a checked request: suggestions for each row of features, best first.

    ``tags`` are the labels, of which some have ``names``; ``counts`` are those of the training rows, which a
    ``calibration`` needs for ``optimise``. ``labels`` (n×k), where given, are suggested instead of the best.
    """
    if labels is None:
        labels, scores = _ranking(request, X, model, calibration, counts)
    else:
        scores = np.take_along_axis(model.decision_function(X), labels, axis=1)
    maps = probability_maps(model, calibration)
    probabilities = None if maps is None else maps(labels, scores)
    wanted = are_listed(labels, scores)
    if request.threshold == "calibrated" and calibration is not None:
        wanted &= calibration.is_on(labels, scores)
    elif request.threshold is not None:
        wanted &= scores >= float(request.threshold)
    if request.min_probability is not None and probabilities is not None:
        wanted &= probabilities >= float(request.min_probability)
    reasons = explain_labels(model, X, np.where(wanted, labels, -1)) if request.explain else None
    called = names or {}

    def suggestion(row: int, rank: int) -> Suggestion:
        tag = tags[labels[row, rank]]
        explained: dict[str, Any] = {}
        if reasons is not None:
            features, contributions = reasons.of(row, rank)
            total, intercept = float(np.abs(contributions).sum()), float(reasons.intercepts[row, rank])
            explained = {
                "why": tuple(
                    WordShare(feature_names[feature], float(value), float(value) / total if total > 0 else 0.0)
                    for feature, value in zip(features[: request.explain], contributions[: request.explain])
                ),
                "intercept": intercept,
                "base_share": intercept / total if total > 0 else None,
            }
        probability = None if probabilities is None else float(probabilities[row, rank])
        return Suggestion(tag, float(scores[row, rank]), probability, name=called.get(tag), **explained)

    return [[suggestion(row, rank) for rank in np.flatnonzero(wanted[row]).tolist()] for row in range(X.shape[0])]


def _ranking(
    request: Request, X: Any, model: MultiLabelModel, calibration: Calibration | None, counts: LabelCounts | None
) -> tuple[np.ndarray, np.ndarray]:
    """The requested labels, by the probabilities of the model or of the calibration."""
    top = min(request.top, model.n_labels_)
    if request.optimise is None or calibration is None or counts is None or model.probabilistic:
        return model.predict_topk(X, top, optimise=request.optimise)
    labels, scores = model.predict_topk(X, max(top, calibration.k))
    chosen = choose_labels(labels, calibration.probabilities(labels, scores), top, request.optimise, counts)
    return np.take_along_axis(labels, chosen, axis=1), np.take_along_axis(scores, chosen, axis=1)


def suggestions_as_frame(found: Sequence[Sequence[Suggestion]], texts: Any) -> Any:
    """One row per suggestion, as ``Tagger.suggest`` describes it: of polars if ``texts`` are, else of pandas."""
    library = "polars" if type(texts).__module__.partition(".")[0] == "polars" else "pandas"
    try:
        frames = import_module(library)
    except ImportError:
        raise InvalidInputError(
            f"as_frame needs {library}, which is not installed; install tagwise with the extra frames: "
            'pip install "tagwise[frames]".'
        ) from None
    index = list(texts.index) if library == "pandas" and hasattr(texts, "iloc") else range(len(found))
    flat = [(row, rank, each) for row, several in zip(index, found) for rank, each in enumerate(several, 1)]
    columns: dict[str, list[Any]] = {"row": [row for row, _, _ in flat], "rank": [rank for _, rank, _ in flat]}
    for name in ("tag", "name", "score", "probability"):
        columns[name] = [getattr(each, name) for _, _, each in flat]
    if all(name is None for name in columns["name"]):
        del columns["name"]
    if any(each.why is not None for _, _, each in flat):
        columns["words"] = [[share.word for share in each.why or ()] for _, _, each in flat]
    # Without calibration no suggestion may have a probability: the column is one of numbers all the same.
    if library == "polars":
        return frames.DataFrame(columns, schema_overrides={"score": frames.Float64, "probability": frames.Float64})
    return frames.DataFrame(columns).astype({"score": float, "probability": float})
