"""Finding good settings of a model on validation rows: search spaces, and :func:`tune`."""

from tagwise.solvers.search import Rung, Trial
from tagwise.tuning.spaces import Choice, LogRange, search_space
from tagwise.tuning.tuner import TuningResult, tune

__all__ = ["Choice", "LogRange", "Rung", "Trial", "TuningResult", "search_space", "tune"]
