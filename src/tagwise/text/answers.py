"""From scores to suggestions: tag names, probabilities, and the words that speak for each tag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.base import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.inspection.calibration import Calibration
from tagwise.inspection.explanations import Explanations, explain_labels
from tagwise.models.factor_model import LOWEST_SCORE
from tagwise.text.suggestion import Suggestion, WordShare
from tagwise.validation import check_integer, check_real

__all__ = ["CALIBRATED", "Request"]

CALIBRATED = "calibrated"


@dataclass(frozen=True)
class Request:
    """What is asked for: the checked arguments of ``Tagger.suggest``."""

    top: int
    threshold: float | None
    calibrated: bool
    min_probability: float | None
    explain: int

    @classmethod
    def of(
        cls, top: Any, threshold: Any, min_probability: Any, explain: Any, calibration: Calibration | None
    ) -> Request:
        """Check the arguments; asking for what only ``calibrate`` provides is refused without it."""
        top = check_integer(top, "top", minimum=1)
        explain = check_integer(explain, "explain", minimum=0)
        calibrated = isinstance(threshold, str) and threshold == CALIBRATED
        if isinstance(threshold, str) and not calibrated:
            raise InvalidTypeError(f'threshold must be a number, "calibrated" or None; found {threshold!r}.')
        if calibration is None and (calibrated or min_probability is not None):
            wanted = 'threshold="calibrated"' if calibrated else "min_probability"
            raise InvalidInputError(f"{wanted} needs a calibrated tagger; call calibrate with held-out rows first.")
        return cls(
            top,
            None if threshold is None or calibrated else check_real(threshold, "threshold"),
            calibrated,
            None
            if min_probability is None
            else check_real(min_probability, "min_probability", minimum=0.0, maximum=1.0),
            explain,
        )

    def answer(
        self,
        model: MultiLabelModel,
        X: sp.csr_matrix,
        tags: Sequence[str],
        feature_names: Sequence[str],
        calibration: Calibration | None,
    ) -> list[list[Suggestion]]:
        """Suggestions for each row of X, best first."""
        labels, scores = model.predict_topk(X, self.top)
        probabilities = None if calibration is None else calibration.probabilities(labels, scores)
        # A label of which nothing is known has the lowest score that there is, for every row alike.
        wanted = (labels >= 0) & (scores > LOWEST_SCORE / 2)
        if self.threshold is not None:
            wanted &= scores >= self.threshold
        if self.min_probability is not None and probabilities is not None:
            wanted &= probabilities >= self.min_probability
        if self.calibrated and calibration is not None:
            wanted &= calibration.is_on(labels, scores)
        reasons = explain_labels(model, X, np.where(wanted, labels, -1)) if self.explain else None
        return [
            [
                Suggestion(
                    tag=tags[labels[row, place]],
                    score=float(scores[row, place]),
                    probability=None if probabilities is None else float(probabilities[row, place]),
                    why=None if reasons is None else _shares(reasons, row, place, self.explain, feature_names),
                    intercept=None if reasons is None else float(reasons.intercepts[row, place]),
                )
                for place in np.flatnonzero(wanted[row]).tolist()
            ]
            for row in range(X.shape[0])
        ]


def _shares(
    reasons: Explanations, row: int, place: int, most: int, feature_names: Sequence[str]
) -> tuple[WordShare, ...]:
    features, contributions = reasons.of(row, place)
    total = float(np.abs(contributions).sum())
    return tuple(
        WordShare(feature_names[feature], float(value), float(value) / total if total > 0 else 0.0)
        for feature, value in zip(features[:most], contributions[:most])
    )
