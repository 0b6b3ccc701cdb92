"""A data set with its train/test split, names and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import scipy.sparse as sp

__all__ = ["Dataset"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A multi-label data set, split into training and test rows.

    Unpacks into its four matrices: ``X_train, Y_train, X_test, Y_test = load_dataset("bibtex")``.

    Attributes
    ----------
    name : str
        The name it was loaded by.
    X_train, X_test : csr_matrix of float32, shape (rows, features)
        Features.
    Y_train, Y_test : csr_matrix of float32, shape (rows, labels)
        Labels; every stored entry is 1.
    feature_names, label_names : list of str, or None
        One name a column, where names are known.
    propensity_a, propensity_b : float
        Constants for the propensity-scored metrics (see :func:`tagwise.metrics.propensity_constants`).
    texts_train, texts_test : list of str, or None
        The rows as raw text, where there is text. They are read from disk on first use and then kept.
    read_texts_train, read_texts_test : callable, or None
        What reads them.
    """

    name: str
    X_train: sp.csr_matrix
    Y_train: sp.csr_matrix
    X_test: sp.csr_matrix
    Y_test: sp.csr_matrix
    feature_names: list[str] | None = None
    label_names: list[str] | None = None
    propensity_a: float = 0.55
    propensity_b: float = 1.5
    read_texts_train: Callable[[], list[str]] | None = None
    read_texts_test: Callable[[], list[str]] | None = None

    @cached_property
    def texts_train(self) -> list[str] | None:
        """The training rows as raw text, or None."""
        return None if self.read_texts_train is None else self.read_texts_train()

    @cached_property
    def texts_test(self) -> list[str] | None:
        """The test rows as raw text, or None."""
        return None if self.read_texts_test is None else self.read_texts_test()

    def __iter__(self) -> Iterator[sp.csr_matrix]:
        yield from (self.X_train, self.Y_train, self.X_test, self.Y_test)

    def __repr__(self) -> str:
        train, test = self.X_train.shape[0], self.X_test.shape[0]
        return (
            f"Dataset({self.name!r}: {train:,} training and {test:,} test rows, "
            f"{self.X_train.shape[1]:,} features, {self.Y_train.shape[1]:,} labels)"
        )
