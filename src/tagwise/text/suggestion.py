"""What a tagger answers: tags with scores and probabilities, and the words that speak for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.base import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.inspection.calibration import Calibration, probability_maps, require_probabilities
from tagwise.inspection.explanations import Explanations, explain_labels
from tagwise.metrics.purposes import PURPOSES, LabelCounts, choose_labels
from tagwise.models.factor_model import LOWEST_SCORE
from tagwise.validation import check_choice, check_integer, check_real

__all__ = ["Request", "Suggestion", "WordShare", "suggestions_as_frame", "title_of"]


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
        That the tag is right; None for a model whose scores are no probabilities, without ``calibrate``.
    why : tuple of WordShare or None
        The words with the largest absolute contributions, largest first; None unless asked for.
    intercept : float or None
        The score without any word; with the contributions of *all* words it adds up to the score, or to what
        ``Tagger.explained_score`` names where the score is made of it. None unless ``why`` was asked for.
    base_share : float or None
        The intercept in the unit of the words' shares: over the sum of the absolute contributions of all words. None
        unless ``why`` was asked for, and where no word contributes.
    name : str or None
        What the vocabulary calls the tag; None where it has no other name.
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
        """The tag for people, with its name."""
        return title_of(self.tag, self.name)


def title_of(tag: Any, name: str | None) -> str:
    """A tag for people, with its name in parentheses if it has one."""
    return str(tag) if name is None else f"{tag} ({name})"


@dataclass(frozen=True)
class Request:
    """The checked arguments of ``Tagger.suggest``, and the tagger's model and calibration."""

    top: int
    threshold: float | None
    calibrated: bool
    min_probability: float | None
    explain: int
    optimise: str | None
    model: MultiLabelModel
    calibration: Calibration | None

    @classmethod
    def of(
        cls,
        top: Any,
        threshold: Any,
        min_probability: Any,
        explain: Any,
        optimise: Any,
        model: MultiLabelModel,
        calibration: Calibration | None,
    ) -> Request:
        """Check the arguments; what only ``calibrate`` provides is refused without it."""
        top = check_integer(top, "top", minimum=1)
        explain = check_integer(explain, "explain", minimum=0)
        calibrated = isinstance(threshold, str) and threshold == "calibrated"
        if isinstance(threshold, str) and not calibrated:
            raise InvalidTypeError(f'threshold must be a number, "calibrated" or None; found {threshold!r}.')
        if calibration is None and calibrated:
            raise InvalidInputError(
                'threshold="calibrated" needs a calibrated tagger; call calibrate with validation rows first.'
            )
        if min_probability is not None:
            require_probabilities(model, calibration, "min_probability")
            min_probability = check_real(min_probability, "min_probability", minimum=0.0, maximum=1.0)
        if optimise is not None:
            check_choice(optimise, "optimise", PURPOSES)
        cut = None if threshold is None or calibrated else check_real(threshold, "threshold")
        return cls(top, cut, calibrated, min_probability, explain, optimise, model, calibration)

    def answer(
        self,
        X: sp.csr_matrix,
        tags: Sequence[Any],
        feature_names: Sequence[str],
        counts: LabelCounts,
        names: Mapping[str, str],
    ) -> list[list[Suggestion]]:
        """Suggestions for each row of X, best first; ``names`` says what some tags are called."""
        model, calibration = self.model, self.calibration
        labels, scores = self._ranking(X, counts)
        maps = probability_maps(model, calibration)
        probabilities = None if maps is None else maps(labels, scores)
        # A label of which nothing is known has the lowest possible score in every row.
        wanted = (labels >= 0) & (scores > LOWEST_SCORE / 2)
        if self.threshold is not None:
            wanted &= scores >= self.threshold
        if self.min_probability is not None and probabilities is not None:
            wanted &= probabilities >= self.min_probability
        if self.calibrated and calibration is not None:
            wanted &= calibration.is_on(labels, scores)
        reasons = explain_labels(model, X, np.where(wanted, labels, -1)) if self.explain else None

        def suggestion(row: int, rank: int) -> Suggestion:
            why, intercept, base_share = None, None, None
            if reasons is not None:
                why, intercept, base_share = _explained(reasons, row, rank, self.explain, feature_names)
            return Suggestion(
                tag=tags[labels[row, rank]],
                score=float(scores[row, rank]),
                probability=None if probabilities is None else float(probabilities[row, rank]),
                why=why,
                intercept=intercept,
                base_share=base_share,
                name=names.get(tags[labels[row, rank]]),
            )

        return [[suggestion(row, rank) for rank in np.flatnonzero(wanted[row]).tolist()] for row in range(X.shape[0])]

    def _ranking(self, X: sp.csr_matrix, counts: LabelCounts) -> tuple[np.ndarray, np.ndarray]:
        """The labels that are asked for, by the model's own probabilities or else by those of the calibration."""
        model, calibration = self.model, self.calibration
        top = min(self.top, model.n_labels_)
        if self.optimise is None or calibration is None or model.probabilistic:
            return model.predict_topk(X, top, optimise=self.optimise)
        labels, scores = model.predict_topk(X, max(top, calibration.k))
        chosen = choose_labels(labels, calibration.probabilities(labels, scores), top, self.optimise, counts)
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
    flat = [(name, rank, each) for name, row in zip(index, found) for rank, each in enumerate(row, 1)]
    names = [each.name for _, _, each in flat]
    columns = {
        "row": [name for name, _, _ in flat],
        "rank": [rank for _, rank, _ in flat],
        "tag": [each.tag for _, _, each in flat],
        **({"name": names} if any(name is not None for name in names) else {}),
        "score": [each.score for _, _, each in flat],
        "probability": [each.probability for _, _, each in flat],
    }
    if any(each.why is not None for _, _, each in flat):
        columns["words"] = [[share.word for share in each.why or ()] for _, _, each in flat]
    # Without calibration no suggestion may have a probability: the column is one of numbers all the same.
    if library == "polars":
        return frames.DataFrame(columns, schema_overrides={"score": frames.Float64, "probability": frames.Float64})
    return frames.DataFrame(columns).astype({"score": float, "probability": float})


def _explained(
    reasons: Explanations, row: int, rank: int, most: int, feature_names: Sequence[str]
) -> tuple[tuple[WordShare, ...], float, float | None]:
    """The words with the largest contributions, the intercept, and its share."""
    features, contributions = reasons.of(row, rank)
    total, intercept = float(np.abs(contributions).sum()), float(reasons.intercepts[row, rank])
    words = tuple(
        WordShare(feature_names[feature], float(value), float(value) / total if total > 0 else 0.0)
        for feature, value in zip(features[:most], contributions[:most])
    )
    return words, intercept, intercept / total if total > 0 else None
