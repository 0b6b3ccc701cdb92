"""Models that score a few labels per row and give every other label a base score that is the same for all rows.

Votes of neighbors, leaves of a forest and labels of a partition are such scores. A prediction takes memory for the
stored scores only; an n×L array never exists.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.answers import finite_scores
from tagwise.estimator import MultiLabelModel
from tagwise.kernels.shortlists import scores_of_listed, top_k_of_listed
from tagwise.parallel import even_chunks, thread_count
from tagwise.parameters import parameters
from tagwise.validation import Features

__all__ = ["SparseScoreModel"]

# Rows whose scores are held at a time, however few labels there are: some megabytes with a few hundred per row.
_MAX_ROWS = 4096


@parameters
class SparseScoreModel(MultiLabelModel):
    """Sparse scores per row; where a label is not stored, its base score."""

    base_score: ClassVar[float]
    """The base score of all labels, where they have one in common."""

    _: KW_ONLY
    normalize: bool = True
    n_jobs: int | None = None
    verbose: int = 0

    @abstractmethod
    def _sparse_scores(self, X: Features) -> sp.csr_matrix:
        """Stored scores of some rows, CSR (m, L), stored zeros included."""

    def _base_scores(self) -> np.ndarray:
        """The score (L,) of each label where none is stored; its dtype is that of all scores."""
        return np.full(self.n_labels_, self.base_score, dtype=self._floats())

    def _row_blocks(self, X: Features) -> list[tuple[int, int]]:
        largest = max(stop - start for start, stop in super()._row_blocks(X))
        return even_chunks(X.shape[0], min(largest, _MAX_ROWS))

    def _score_rows(self, X: Features) -> np.ndarray:
        base = self._base_scores()
        return scores_of_listed(self._sparse_scores(X).astype(base.dtype, copy=False), base)

    def _top_k(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        threads, base = thread_count(self.n_jobs), self._base_scores()
        parts = []
        for start, stop in even_chunks(X.shape[0], _MAX_ROWS):
            hidden = None if exclude is None else exclude[start:stop]
            scores = self._sparse_scores(X[start:stop])
            finite_scores(scores.data)
            parts.append(top_k_of_listed(scores, base, k, exclude=hidden, n_threads=threads))
        best, best_scores = (np.concatenate(part) for part in zip(*parts))
        return best, best_scores
