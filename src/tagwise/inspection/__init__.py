"""Looking into fitted models: why a label, which scores are high enough, how probable; what to ask, and drift.

- Explanations need a model with linear scores: weights and an intercept per label.
- Calibration, thresholds and reliability need nothing but the arrays of ``predict_topk`` for rows with known labels.
- Questions need probabilities, and rows without labels; drift needs rows without labels only.
"""

from tagwise.inspection.calibration import Calibration, fit_calibration
from tagwise.inspection.drift import (
    Drift,
    Profile,
    benjamini_hochberg,
    compare_profiles,
    population_stability,
    profile_of,
)
from tagwise.inspection.explanations import (
    Explanations,
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
    "Drift",
    "Explanations",
    "Profile",
    "Questions",
    "ReliabilityBins",
    "ValidationPairs",
    "ask",
    "benjamini_hochberg",
    "best_thresholds",
    "compare_profiles",
    "explain_labels",
    "fit_calibration",
    "heaviest_features",
    "known_ranking",
    "nearest_labels",
    "population_stability",
    "profile_of",
    "reliability_bins",
]
