"""The proposer's own score as an opinion."""

from __future__ import annotations

import numpy as np

from tagwise.estimator import MultiLabelModel
from tagwise.fields import Fields, inner
from tagwise.models.cascade.opinion import Opinion, Rows, write_logarithms

__all__ = ["Proposer"]

# A proposer's score below this (0/1 scale) is as good as none.
_LEAST = 1e-3


class Proposer(Opinion):
    """log of the score s + ½, in [10⁻³, 1]. The proposer itself is the first stage of a cascade's fit."""

    name = "proposer"
    fields = Fields(proposer_=inner("REML", meaning="The fitted proposer."))

    def __init__(self, model: MultiLabelModel) -> None:
        pass

    def write(self, rows: Rows, labels: np.ndarray, proposed: np.ndarray, out: np.ndarray) -> None:
        """Logarithms of scores."""
        write_logarithms(proposed[:, : labels.shape[1]], 0.5, _LEAST, 1.0, 1.5, out)
