"""Data of a fit: features, labels, which labels are known, and weights of rows."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.validation import Features, check_observed

__all__ = ["Known", "Problem"]

ProblemT = TypeVar("ProblemT", bound="Problem")

# Known pairs of complete rows that may be written out, 12 bytes each.
_MOST_PAIRS = 10**8


@dataclass(frozen=True)
class Known:
    """Known labels: all labels of complete rows, and listed pairs of the others.

    Takes the place of a mask as ``observed``. Complete rows take one byte each, however many labels there are.
    LEML's squared loss and BinaryRelevance's descent learn from them at the price of rows without a mask. Elsewhere
    (supports and rankers of REML and Cascade, margin losses of LEML, the hinge loss, BayesianCS) the pairs of complete
    rows are written out, 12 bytes each, where other rows are not complete.

    Parameters
    ----------
    pairs : CSR (n, L)
        The stored entries are the known pairs of incomplete rows; those of complete rows do not matter.
    complete : bool array (n,), or list of int
        The rows of which every label is known: one truth value per row, or their numbers.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from tagwise import Known
    >>> Known(sp.csr_matrix([[0, 0, 0], [1, 0, 1]]), complete=[0]).n_pairs
    5
    """

    pairs: sp.csr_matrix
    complete: np.ndarray

    def __post_init__(self) -> None:
        complete, n_rows = np.asarray(self.complete), self.pairs.shape[0]
        if complete.dtype != bool:
            whole = complete.ndim == 1 and (complete.dtype.kind in "iu" or not complete.size)
            if not whole or ((complete < 0) | (complete >= n_rows)).any():
                raise InvalidInputError(
                    f"complete must hold numbers of rows, from 0 to {n_rows - 1:,}, or a truth value per row; found "
                    f"{self.complete!r:.80}."
                )
            complete = np.isin(np.arange(n_rows), complete)
        elif complete.shape != (n_rows,):
            raise InvalidInputError(f"complete has {complete.size:,} truth values, and there are {n_rows:,} rows.")
        object.__setattr__(self, "complete", complete)
        if sp.issparse(self.pairs) and self.pairs.format == "csr" and np.diff(self.pairs.indptr)[complete].any():
            object.__setattr__(self, "pairs", _of_rows(self.pairs, ~complete))

    @classmethod
    def given(cls, observed: Any, shape: tuple[int, int]) -> Known | None:
        """From ``observed`` of a fit, checked: a mask, or an object of this class. None where every pair is known."""
        if observed is None:
            return None
        if isinstance(observed, Known):
            if observed.complete.shape != shape[:1]:
                raise InvalidInputError(
                    f"observed: complete has {observed.complete.size:,} truth values, and there are {shape[0]:,} rows."
                )
            pairs = check_observed(observed.pairs, shape=shape, may_be_empty=bool(observed.complete.any()))
            known = cls(_of_rows(pairs, ~observed.complete), observed.complete)
        else:
            known = cls.of_mask(check_observed(observed, shape=shape))
        return None if known.complete.all() else known

    @classmethod
    def of_mask(cls, observed: sp.csr_matrix) -> Known:
        """From a mask that lists every known pair: a row that lists all labels is complete."""
        complete = np.diff(observed.indptr) == observed.shape[1]
        return cls(_of_rows(observed, ~complete), complete)

    @property
    def n_pairs(self) -> int:
        """Number of known pairs, those of complete rows included."""
        return self.pairs.nnz + int(np.count_nonzero(self.complete)) * self.pairs.shape[1]

    def mask(self, rows: np.ndarray | None = None) -> sp.csr_matrix:
        """The known pairs as CSR (n, L) of ones, those of complete ``rows`` (n, bool), or of all, written out.

        Memory O(:attr:`n_pairs`).
        """
        complete = self.complete if rows is None else self.complete & rows
        if not complete.any():
            return self.pairs
        n_labels = self.pairs.shape[1]
        counts = np.where(complete, n_labels, np.diff(self.pairs.indptr))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices = np.empty(indptr[-1], dtype=np.int32)
        of_complete = np.repeat(complete, counts)
        indices[of_complete] = np.tile(np.arange(n_labels, dtype=np.int32), int(np.count_nonzero(complete)))
        indices[~of_complete] = self.pairs.indices
        return sp.csr_matrix((np.ones(len(indices), self.pairs.dtype), indices, indptr), shape=self.pairs.shape)

    def may_be_written(self, rows: np.ndarray | None = None) -> bool:
        """Whether the pairs of complete ``rows`` (n, bool), or of all, may be written out: at most 10⁸."""
        complete = self.complete if rows is None else self.complete & rows
        return int(np.count_nonzero(complete)) * self.pairs.shape[1] <= _MOST_PAIRS

    def positives(self, Y: sp.csr_matrix) -> sp.csr_matrix:
        """The entries of ``Y`` that are known."""
        return sp.csr_matrix(_of_rows(Y, self.complete) + Y.multiply(self.pairs))

    def rows(self, ids: np.ndarray) -> Known | None:
        """Some rows; None where they are all complete."""
        complete = self.complete[ids]
        return None if complete.all() else Known(self.pairs[ids], complete)

    def labels(self, ids: np.ndarray) -> Known:
        """Some labels."""
        return Known(sp.csr_matrix(self.pairs[:, ids]), self.complete)


@dataclass(frozen=True)
class Problem:
    """Rows to learn from.

    Attributes
    ----------
    X : CSR or array (n, d), or FeatureBlocks
    Y : CSR (n, L) of ones
        Positives. :meth:`of` drops those outside ``known``.
    known : Known or None
        None: every label of every row is known.
    row_weight : float64 array (n,) or None
        Weights above 0; None where all rows weigh 1.
    names : CSR, array or FeatureBlocks (L, d), or None
        Features of the labels' names.
    """

    X: Features
    Y: sp.csr_matrix
    known: Known | None = None
    row_weight: np.ndarray | None = None
    names: Features | None = None

    @classmethod
    def of(
        cls,
        X: Features,
        Y: sp.csr_matrix,
        observed: Any = None,
        row_weight: np.ndarray | None = None,
        names: Features | None = None,
    ) -> Problem:
        """From checked data, and ``observed`` as users give it; a full mask is treated as None."""
        known = Known.given(observed, Y.shape)
        return cls(X, Y if known is None else known.positives(Y), known, row_weight, names)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.Y.shape[0]

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.Y.shape[1]

    @cached_property
    def observed(self) -> sp.csr_matrix | None:
        """The known pairs as a mask (n, L), written out; None where all are known."""
        return None if self.known is None else self.known.mask()

    @cached_property
    def label_counts(self) -> np.ndarray:
        """Number of positive rows of each label (L,)."""
        return np.bincount(self.Y.indices, minlength=self.n_labels)

    @property
    def all_known(self) -> Known:
        """``known``, also where it is None."""
        if self.known is not None:
            return self.known
        return Known(sp.csr_matrix(self.Y.shape, dtype=np.float32), np.ones(self.n_rows, dtype=bool))

    def entries_per_row(self) -> np.ndarray:
        """Number of stored features of each row (n,)."""
        X = self.X.words if isinstance(self.X, FeatureBlocks) else self.X
        if isinstance(X, np.ndarray):
            return np.full(X.shape[0], X.shape[1])
        return np.diff(X.indptr)

    def known_per_row(self) -> np.ndarray | None:
        """Number of known labels of each row (n,); None where all are."""
        if self.known is None:
            return None
        return np.where(self.known.complete, self.n_labels, np.diff(self.known.pairs.indptr))

    def only_positives_known(self) -> bool:
        """Whether there are no known negatives."""
        return self.known is not None and self.known.n_pairs == self.Y.nnz

    def rows(self: ProblemT, ids: np.ndarray) -> ProblemT:
        """Some rows, in this order."""
        return replace(
            self,
            X=self.X[ids],
            Y=self.Y[ids],
            known=None if self.known is None else self.known.rows(ids),
            row_weight=None if self.row_weight is None else self.row_weight[ids],
        )

    def labels(self: ProblemT, ids: np.ndarray) -> ProblemT:
        """Some labels, in this order; X is shared."""
        known = None if self.known is None else self.known.labels(ids)
        names = None if self.names is None else self.names[ids]
        return replace(self, Y=sp.csr_matrix(self.Y[:, ids]), known=known, names=names)

    def append(self, other: Problem) -> Problem:
        """These rows, then others, of the same features and labels; without names."""
        known, weight, mine, theirs = None, None, self.all_known, other.all_known
        if self.known is not None or other.known is not None:
            known = Known(_stacked(mine.pairs, theirs.pairs), np.concatenate([mine.complete, theirs.complete]))
        if self.row_weight is not None or other.row_weight is not None:
            ones = (np.ones(some.n_rows) if some.row_weight is None else some.row_weight for some in (self, other))
            weight = np.concatenate(list(ones))
        dense = isinstance(self.X, np.ndarray)
        X = np.vstack([self.X, other.X]) if dense else _stacked(self.X, other.X)
        return Problem(X, _stacked(self.Y, other.Y), known, weight)

    def beside(self, other: Problem) -> Problem:
        """These rows with further labels, those of ``other``, without names.

        Rows that are complete in one alone are written out.
        """
        known, mine, theirs = None, self.all_known, other.all_known
        if self.known is not None or other.known is not None:
            complete = mine.complete & theirs.complete
            if not mine.may_be_written(~complete):
                raise InvalidInputError(
                    "observed: the kept rows are complete, and there are too many of them to write down all that is "
                    "known of them beside what is not known of the new labels; leave observed out, or fit again."
                )
            pairs = [some.mask(~complete) for some in (mine, theirs)]
            known = Known(sp.csr_matrix(sp.hstack(pairs, format="csr")), complete)
        return replace(self, Y=sp.csr_matrix(sp.hstack([self.Y, other.Y], format="csr")), known=known, names=None)

    def merge(self, labels: np.ndarray, into: int) -> Problem:
        """The same labels, where ``into`` is on if any of ``labels`` is known to be on, and off if all are known off.

        ``labels`` includes ``into``.
        """
        on, known = self.Y[:, labels].getnnz(axis=1) > 0, self.known
        if known is not None:
            decided = on | (known.pairs[:, labels].getnnz(axis=1) == len(labels))
            known = Known(_with_column(known.pairs, into, decided & ~known.complete), known.complete)
        return replace(self, Y=_with_column(self.Y, into, on), known=known)

    def teaching_pairs(self) -> np.ndarray:
        """Number of pairs that teach each label (L,): positives, and all known pairs of rows that are not complete."""
        known = self.all_known
        return np.bincount(self.Y[known.complete].indices, minlength=self.n_labels) + np.bincount(
            known.pairs.indices, minlength=self.n_labels
        )

    def share_within(self, other: Problem) -> float:
        """The share of these rows that ``other`` has too, by a random projection of features and labels."""
        draw = np.random.default_rng(0).standard_normal
        feature, label = draw(self.X.shape[1]), draw(self.n_labels)
        mine, theirs = (np.asarray(some.X @ feature + some.Y @ label[: some.n_labels]) for some in (self, other))
        return float(((mine != 0) & np.isin(mine, theirs)).mean())


def _stacked(*parts: sp.csr_matrix) -> sp.csr_matrix:
    return sp.csr_matrix(sp.vstack(parts, format="csr"))


def _of_rows(matrix: sp.csr_matrix, rows: np.ndarray) -> sp.csr_matrix:
    """The matrix with the entries of some rows (n, bool) alone."""
    if rows.all():
        return matrix
    counts = np.diff(matrix.indptr)
    keep, indptr = np.repeat(rows, counts), np.concatenate([[0], np.cumsum(np.where(rows, counts, 0))])
    return sp.csr_matrix((matrix.data[keep], matrix.indices[keep], indptr), shape=matrix.shape)


def _with_column(matrix: sp.csr_matrix, column: int, rows: np.ndarray) -> sp.csr_matrix:
    """A 0/1 matrix with ones in a column at ``rows`` (n, bool), and nothing else there."""
    others = matrix.copy()
    others.data[others.indices == column] = 0
    ones = sp.csr_matrix(rows[:, None], dtype=matrix.dtype)
    placed = sp.csr_matrix((ones.data, np.full_like(ones.indices, column), ones.indptr), shape=matrix.shape)
    return sp.csr_matrix(others + placed)  # without the zeros
