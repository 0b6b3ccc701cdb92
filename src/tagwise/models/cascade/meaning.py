"""Opinion: the cosine of a row with the label's rows by a dense block, such as an embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.estimator import MultiLabelModel
from tagwise.executor import blocks_of_work
from tagwise.fields import Fields, dense
from tagwise.kernels import csr_matmul, unit_rows
from tagwise.kernels.shortlists import listed_products
from tagwise.models.cascade.opinion import LabelSide, Opinion, Rows, blocks_of, both_blocks
from tagwise.parallel import thread_count

__all__ = ["MEANING_SCALE", "Meaning", "dense_prototypes"]

MEANING_SCALE = 3.0
"""Cosines with directions from the mean are around a third in size."""


class Meaning(Opinion):
    """3c for the cosine c of the row with the label's prototype by a dense block, where there is one."""

    name = "meaning"
    fields = Fields(
        dense_mean_=dense("q", meaning="The mean of the dense rows, each of unit length."),
        dense_prototypes_=dense("L", "q", meaning="The direction from there to each label's rows."),
    )

    @classmethod
    def fit(cls, side: LabelSide) -> dict[str, Any]:
        """The mean of the rows, and a direction per label."""
        threads, weight = thread_count(side.model.n_jobs), side.problem.row_weight
        rows = both_blocks(side.problem.X)[1]
        if not rows.shape[1]:
            return {
                "dense_mean_": np.zeros(0, side.dtype),
                "dense_prototypes_": np.zeros((side.problem.n_labels, 0), side.dtype),
            }
        unit = unit_rows(rows, n_threads=threads)
        mean = np.average(unit, axis=0, weights=weight)
        by_label = side.by_label.astype(unit.dtype)
        if weight is not None:
            by_label.data = weight.astype(unit.dtype)[by_label.indices]
        blocks = blocks_of(by_label, blocks_of_work(np.diff(by_label.indptr), side.executor.n_blocks))
        parts = side.executor.map(dense_prototypes, blocks, side.executor.share(unit), mean, side.model.n_jobs)
        return {"dense_mean_": mean.astype(unit.dtype), "dense_prototypes_": np.concatenate(parts)}

    @classmethod
    def is_there(cls, model: MultiLabelModel) -> bool:
        """Whether rows have a dense block."""
        return bool(model.n_dense_features_in_)

    def __init__(self, model: MultiLabelModel) -> None:
        self.prototypes = model.dense_prototypes_

    def write(self, rows: Rows, labels: np.ndarray, proposed: np.ndarray, out: np.ndarray) -> None:
        """Three times the cosine."""
        cosines = listed_products(rows.directions, labels, self.prototypes, n_threads=rows.n_threads)
        np.multiply(cosines, MEANING_SCALE, out=out)


def dense_prototypes(by_label: sp.csr_matrix, unit: np.ndarray, mean: np.ndarray, n_jobs: int | None) -> np.ndarray:
    r"""The direction (L, q) from the mean μ (q,) of rows d_i of unit length to each label's rows.

    .. math:: c_j = \sum_{i \in P_j} (d_i - \mu) \Big/ \Big\lVert\sum_{i \in P_j} (d_i - \mu)\Big\rVert

    ``by_label`` (L, n) holds what each positive row weighs. Embeddings of texts have much in common, which says nothing
    about their labels. Time O(nnz(Y)·q).
    """
    threads = thread_count(n_jobs)
    totals = csr_matmul(by_label, unit, n_threads=threads)
    totals -= np.outer(np.asarray(by_label.sum(axis=1)).ravel(), mean).astype(unit.dtype)
    return np.asarray(unit_rows(totals, n_threads=threads))
