"""Opinion: the cosine of a row with the label's name by a dense block."""

from __future__ import annotations

from typing import Any

import numpy as np

from tagwise.estimator import MultiLabelModel
from tagwise.feature_blocks import FeatureBlocks
from tagwise.fields import Fields, dense
from tagwise.kernels import unit_rows
from tagwise.kernels.shortlists import listed_products
from tagwise.models.cascade.meaning import MEANING_SCALE
from tagwise.models.cascade.opinion import LabelSide, Opinion, Rows

__all__ = ["NameMeaning", "name_directions"]


class NameMeaning(Opinion):
    """3c for the cosine c of the row with the label's name, where names have a dense block too."""

    name = "name meaning"
    fields = Fields(
        name_meanings_=dense(
            "L",
            "m",
            meaning="The direction of each label's name from the mean of names; m is q, or 0 where names have no dense "
            "block.",
        )
    )

    @classmethod
    def fit(cls, side: LabelSide) -> dict[str, Any]:
        """From embeddings of names."""
        names = side.problem.names
        embeddings = names.dense if isinstance(names, FeatureBlocks) else np.zeros((side.problem.n_labels, 0))
        return {"name_meanings_": name_directions(embeddings).astype(side.dtype)}

    @classmethod
    def is_there(cls, model: MultiLabelModel) -> bool:
        """Whether names have a dense block."""
        return model.name_meanings_.shape[1] > 0

    def __init__(self, model: MultiLabelModel) -> None:
        self.meanings = model.name_meanings_

    def write(self, rows: Rows, labels: np.ndarray, proposed: np.ndarray, out: np.ndarray) -> None:
        """Three times the cosine."""
        cosines = listed_products(rows.directions, labels, self.meanings, n_threads=rows.n_threads)
        np.multiply(cosines, MEANING_SCALE, out=out)


def name_directions(embeddings: np.ndarray) -> np.ndarray:
    r"""The direction of each label's name from the mean of all names, from their embeddings (L, q): (L, q) again.

    .. math:: v_j = (e_j - \nu) / \lVert e_j - \nu\rVert , \qquad \nu = \mathrm{mean}_j\ e_j

    for e of unit length. Zeros are no name, and stay; (L, 0) where all are.
    """
    named = (embeddings != 0).any(axis=1)
    if not named.any():
        return np.zeros((len(embeddings), 0), dtype=embeddings.dtype)
    unit = np.asarray(unit_rows(embeddings))
    mean = unit[named].mean(axis=0, dtype=np.float64).astype(unit.dtype)
    return np.asarray(unit_rows((unit - mean) * named[:, None]))
