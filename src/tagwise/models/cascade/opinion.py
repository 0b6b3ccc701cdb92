"""The base class of opinions: one number per candidate label of a row, from one source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.estimator import MultiLabelModel
from tagwise.executor import Executor
from tagwise.feature_blocks import FeatureBlocks
from tagwise.fields import Fields
from tagwise.kernels import scaled_rows, unit_rows
from tagwise.kernels.compiled import compiled
from tagwise.kernels.vectors import take_logarithms
from tagwise.parallel import thread_count
from tagwise.problem import Problem

__all__ = ["LabelSide", "Opinion", "Rows", "blocks_of", "both_blocks", "rows_by_label", "write_logarithms"]


class Opinion(ABC):
    """One source of numbers on the candidate labels of rows.

    The class knows the source's fitted attributes and learns them; an object is what a fitted model needs to answer,
    made once after a fit and after loading. The numbers should be about 1 in size: their products with each other and
    with themselves are terms of the fusion too. ``name`` is the key of their priors.
    """

    name: ClassVar[str]
    fields: ClassVar[Fields] = Fields()
    """Fitted attributes of the model. Arrays along "L" are learnt for any labels alone."""

    @classmethod
    def fit(cls, side: LabelSide) -> dict[str, Any]:
        """The fitted attributes, those along "L" for the labels of ``side`` alone."""
        return {}

    @classmethod
    def is_there(cls, model: MultiLabelModel) -> bool:
        """Whether a fitted model has this opinion."""
        return True

    @abstractmethod
    def __init__(self, model: MultiLabelModel) -> None:
        """The opinion of a fitted model."""

    @abstractmethod
    def write(self, rows: Rows, labels: np.ndarray, proposed: np.ndarray, out: np.ndarray) -> None:
        """The numbers (n, M) on ``labels`` (n, M), -1 for none, with the proposer's centred scores ``proposed``."""


class Rows:
    """A block of rows as opinions read them: scaled, and what follows from that, made when it is asked for."""

    def __init__(
        self, scaled: sp.csr_matrix | FeatureBlocks, *, unit_length: bool, dense_mean: np.ndarray, n_threads: int
    ) -> None:
        self.scaled, self.n_threads = scaled, n_threads
        self.sparse, self.dense = both_blocks(scaled)
        self._unit_length, self._dense_mean = unit_length, dense_mean

    @cached_property
    def unit(self) -> sp.csr_matrix:
        """The sparse block, rows of unit length."""
        return self.sparse if self._unit_length else sp.csr_matrix(unit_rows(self.sparse, n_threads=self.n_threads))

    @cached_property
    def present(self) -> sp.csr_matrix:
        """The sparse block with 1 for every stored feature."""
        there = (self.sparse.data != 0).astype(self.sparse.dtype)
        return sp.csr_matrix((there, self.sparse.indices, self.sparse.indptr), shape=self.sparse.shape)

    @cached_property
    def directions(self) -> np.ndarray:
        """The direction of each dense row (n, q) from the mean of those of the fit."""
        # A zero row stays one: it is no text, and has no direction from the mean.
        there = (self.dense != 0).max(axis=1)[:, None]
        from_mean = unit_rows(self.dense, n_threads=self.n_threads) - there * self._dense_mean
        return np.asarray(unit_rows(from_mean, n_threads=self.n_threads))


@dataclass(frozen=True)
class LabelSide:
    """Data that opinions are learnt from: rows with the labels to learn, beside a fitted proposer.

    Attributes
    ----------
    model : MultiLabelModel
        Its parameters count, and how many labels it has in all.
    problem : Problem
        The rows, and the labels that are learnt.
    executor : Executor
    """

    model: MultiLabelModel
    problem: Problem
    executor: Executor

    @cached_property
    def scaled(self) -> sp.csr_matrix | FeatureBlocks:
        """X as the model reads it."""
        model = self.model
        X = self.problem.X if isinstance(self.problem.X, FeatureBlocks) else sp.csr_matrix(self.problem.X)
        return scaled_rows(
            X, normalize=model.normalize, dense_weight=model.dense_weight, n_threads=thread_count(model.n_jobs)
        )

    @cached_property
    def by_label(self) -> sp.csr_matrix:
        """The positive rows of each label."""
        return rows_by_label(self.problem.Y)

    @property
    def dtype(self) -> np.dtype:
        """Floating type of X."""
        return np.dtype(self.problem.X.dtype)


def both_blocks(features: sp.csr_matrix | FeatureBlocks) -> tuple[sp.csr_matrix, np.ndarray]:
    """The sparse features (m, d), and the dense block (m, q), where q = 0 if there is none."""
    if isinstance(features, FeatureBlocks):
        return features.words, features.dense
    return features, np.zeros((features.shape[0], 0), dtype=features.dtype)


def blocks_of(matrix: Any, bounds: list[tuple[int, int]]) -> list[Any]:
    """The rows of a matrix in blocks; one block is the matrix itself, None stays None."""
    if matrix is None or len(bounds) == 1:
        return [matrix] * len(bounds)
    return [matrix[start:stop] for start, stop in bounds]


def rows_by_label(pairs: sp.csr_matrix) -> sp.csr_matrix:
    """The rows of each label: of pairs (n, L) the transpose, CSR (L, n) of ones in int8; 5 bytes per pair."""
    ones = np.ones(pairs.nnz, dtype=np.int8)
    return sp.csr_matrix((ones, pairs.indices, pairs.indptr), shape=pairs.shape).T.tocsr()


@compiled()
def write_logarithms(
    values: np.ndarray, shift: float, least: float, most: float, offset: float, out: np.ndarray
) -> None:
    """``log(clip(values + shift, least, most)) + offset`` of arrays (n, M), without a temporary of that size."""
    numbers, exponents = np.empty(out.shape[1]), np.empty(out.shape[1])
    for row in range(out.shape[0]):
        for at in range(out.shape[1]):
            numbers[at] = min(most, max(np.float64(values[row, at]) + shift, least))
        take_logarithms(numbers, exponents)
        for at in range(out.shape[1]):
            out[row, at] = numbers[at] + offset
