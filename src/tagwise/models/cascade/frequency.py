"""Opinion: the frequency of a label."""

from __future__ import annotations

from typing import Any

import numpy as np

from tagwise.estimator import MultiLabelModel
from tagwise.fields import Fields, dense
from tagwise.kernels.compiled import compiled
from tagwise.models.cascade.opinion import LabelSide, Opinion, Rows

__all__ = ["Frequency", "log_frequency"]

# A usual number of rows of a label, from which the frequency is measured.
_USUAL_ROWS = 30.0


def log_frequency(frequency: np.ndarray) -> np.ndarray:
    """½ log((f + ½)/30) (L,)."""
    with np.errstate(invalid="ignore", divide="ignore"):  # the numbers of a forged folder are checked later
        return np.asarray(0.5 * np.log((np.asarray(frequency, dtype=np.float64) + 0.5) / _USUAL_ROWS))


class Frequency(Opinion):
    """½ log((f + ½)/30) for a label with f known positive rows."""

    name = "frequency"
    fields = Fields(
        label_frequency_=dense(
            "L",
            numbers="count",
            meaning="Known positive rows of each label among those that the cascade was fitted to.",
        )
    )

    @classmethod
    def fit(cls, side: LabelSide) -> dict[str, Any]:
        """Counts."""
        return {"label_frequency_": side.problem.label_counts}

    def __init__(self, model: MultiLabelModel) -> None:
        self.often = log_frequency(model.label_frequency_)

    def write(self, rows: Rows, labels: np.ndarray, proposed: np.ndarray, out: np.ndarray) -> None:
        """One number per label."""
        _write(labels, self.often, out)


@compiled()
def _write(labels: np.ndarray, often: np.ndarray, out: np.ndarray) -> None:
    for row in range(out.shape[0]):
        for at in range(out.shape[1]):
            out[row, at] = often[max(labels[row, at], 0)]
