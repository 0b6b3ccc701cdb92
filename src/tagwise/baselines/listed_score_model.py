"""Models that score a few labels of a row, and give every other label a base score that is the same for all rows.

Neighbours' votes, the leaves of a forest and the labels of a partition are such scores. A prediction takes memory for
the listed labels, and an n×L array never exists.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import scipy.sparse as sp

from tagwise.base import MultiLabelModel
from tagwise.kernels.listed_scores import scores_of_listed, top_k_of_listed
from tagwise.models.factor_model import unit_rows
from tagwise.parallel import even_chunks, thread_count

__all__ = ["ListedScoreModel"]

# Rows whose listed scores are held at a time, however few labels there are: with some hundred a row some megabytes.
_MOST_ROWS = 4096


class ListedScoreModel(MultiLabelModel):
    """Scores that are listed for some labels of each row, and one base score a label for all rows elsewhere."""

    normalize: bool

    @abstractmethod
    def _listed_scores(self, X: sp.csr_matrix | np.ndarray) -> sp.csr_matrix:
        """The listed scores of some rows, CSR (m, L), stored zeros included."""

    @abstractmethod
    def _base_scores(self) -> np.ndarray:
        """The score (L,) of each label where it is not listed; its type is that of all scores."""

    def _prepared(self, X: sp.csr_matrix | np.ndarray) -> sp.csr_matrix | np.ndarray:
        return unit_rows(X, n_threads=thread_count(self.n_jobs)) if self.normalize else X

    def _row_blocks(self, X: sp.csr_matrix | np.ndarray) -> list[tuple[int, int]]:
        largest = max(stop - start for start, stop in super()._row_blocks(X))
        return even_chunks(X.shape[0], min(largest, _MOST_ROWS))

    def _score_rows(self, X: sp.csr_matrix | np.ndarray) -> np.ndarray:
        base = self._base_scores()
        return scores_of_listed(self._listed_scores(X).astype(base.dtype, copy=False), base)

    def _top_k(
        self, X: sp.csr_matrix | np.ndarray, k: int, exclude: sp.csr_matrix | None
    ) -> tuple[np.ndarray, np.ndarray]:
        threads, base = thread_count(self.n_jobs), self._base_scores()
        parts = []
        for start, stop in even_chunks(X.shape[0], _MOST_ROWS):
            hidden = None if exclude is None else exclude[start:stop]
            listed = self._listed_scores(X[start:stop])
            parts.append(top_k_of_listed(listed, base, k, exclude=hidden, n_threads=threads))
        labels, scores = (np.concatenate(part) for part in zip(*parts))
        return labels, scores
