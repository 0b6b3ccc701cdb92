"""What held-out rows teach about the scores of a fitted tagger: thresholds, probabilities, and whether they hold."""

from __future__ import annotations

import numpy as np

from tagwise.base import MultiLabelModel
from tagwise.exceptions import TagwiseWarning, warn
from tagwise.inspection.calibration import DEFAULT_PLACES, Calibration, fit_calibration
from tagwise.inspection.reliability import ReliabilityBins, reliability_bins
from tagwise.inspection.validation_pairs import HeldOutPairs, known_ranking
from tagwise.text.held_out import HeldOutRows
from tagwise.text.wording import counted

__all__ = ["calibration_on", "reliability_on"]


def calibration_on(model: MultiLabelModel, rows: HeldOutRows, target: str) -> Calibration:
    """Thresholds and probabilities from the best labels of each row; warns of tags that training never saw."""
    if rows.unseen:
        warn(
            f"The calibration leaves out {counted(len(rows.unseen), 'tag')} of the held-out rows that training never "
            f"saw, such as {min(rows.unseen)!r}.",
            TagwiseWarning,
        )
    most = int(np.diff(rows.Y.indptr).max())
    places = min(model.n_labels_, max(DEFAULT_PLACES, 2 * most))
    labels, scores = known_ranking(model, rows.X, places, rows.observed)
    return fit_calibration(labels, scores, rows.Y, observed=rows.observed, target=target)


def reliability_on(model: MultiLabelModel, calibration: Calibration, rows: HeldOutRows, n_bins: int) -> ReliabilityBins:
    """How far the probabilities of a calibration hold on other rows."""
    labels, scores = known_ranking(model, rows.X, calibration.places, rows.observed)
    pairs = HeldOutPairs.of(labels, scores, rows.Y, rows.observed)
    return reliability_bins(calibration.probabilities(pairs.labels, pairs.scores), pairs.on, n_bins)
