"""Looking into fitted models: why a label, which scores are high enough, how probable, and what to ask people next.

- Explanations need a model with linear scores, :class:`LinearScores`.
- Calibration, thresholds and reliability need nothing but the arrays of ``predict_topk`` for rows with known labels.
"""

from tagwise.inspection.calibration import Calibration, fit_calibration
from tagwise.inspection.explanations import (
    Explanations,
    LinearScores,
    explain_labels,
    heaviest_features,
    nearest_labels,
)
from tagwise.inspection.questions import Questions, ask
from tagwise.inspection.reliability import ReliabilityBins, reliability_bins
from tagwise.inspection.thresholds import best_thresholds
from tagwise.inspection.validation_pairs import ValidationPairs, known_ranking

__all__ = [
    "Calibration",
    "Explanations",
    "LinearScores",
    "Questions",
    "ReliabilityBins",
    "ValidationPairs",
    "ask",
    "best_thresholds",
    "explain_labels",
    "fit_calibration",
    "heaviest_features",
    "known_ranking",
    "nearest_labels",
    "reliability_bins",
]
