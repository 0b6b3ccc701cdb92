"""Training labels from whole matrices, as a fit makes them of its problem."""

import numpy as np

from tagwise.objectives.labels import TrainingLabels
from tagwise.problem import Problem


def training_labels(Y, observed=None, positive_weight=None, *, dtype=np.float64, n_threads=1, row_weight=None):
    problem = Problem.of(None, Y.astype(dtype), observed, row_weight)
    return TrainingLabels(problem.Y, problem.known, positive_weight, n_threads, row_weight)
