"""Random choices of rows and labels: training and test rows, folds, and masks of known labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.parameters import RandomState, random_generator
from tagwise.validation import canonical_csr, check_flag, check_labels, check_real, checked_csr

__all__ = ["TrainTestSplit", "fold_numbers", "hide_labels", "split_rows", "split_train_test"]

_CHUNK = 1 << 22


def split_rows(
    Y: Any, test_fraction: float = 0.2, random_state: RandomState = None, *, keep_labels: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Split rows at random.

    Test rows are a random sample of all rows, so that figures on them are unbiased estimates of those on new rows.
    Some rare labels then have test rows only, where no model can predict them, as among new rows.

    Parameters
    ----------
    Y : sparse matrix or array of 0 and 1, shape (n, L)
        Labels.
    test_fraction : float, default 0.2
        Share of test rows, above 0 and below 1.
    random_state : int, numpy.random.Generator or None, default None
        Seed.
    keep_labels : bool, default False
        Whether every label that has a row keeps one in training. For choosing settings, or where a model would lose
        labels otherwise; **not for estimates**: the test rows then have fewer and more frequent labels than new rows,
        and all figures on them are optimistic.

    Returns
    -------
    train_rows, test_rows : arrays of int64
        Sorted row numbers; together each row once. The test side has round(``test_fraction`` · n) rows, at least one;
        with ``keep_labels`` fewer if the labels demand it: no further row could then join without taking a label's
        last training row. (The largest such set is a minimum set cover, which is NP-hard to find.)

    Notes
    -----
    With ``keep_labels``, rows queue for the test side in random order. Each round admits those whose every label would
    still keep a training row even if all rows before them in the queue were admitted too; rows that carry a
    label's last training row leave the queue for good. A round costs O(nnz(Y) log nnz(Y)), and the first one
    usually suffices.
    """
    labels = check_labels(Y)
    fraction = check_real(test_fraction, "test_fraction", minimum=0, maximum=1, open_minimum=True)
    if fraction == 1:
        raise InvalidInputError("test_fraction must be below 1, so that rows are left to train on; found 1.")
    n_rows = labels.shape[0]
    if n_rows < 2:
        raise InvalidInputError(f"Y has {n_rows} row(s); at least 2 are needed to split them.")
    rng = random_generator(random_state)
    wanted = min(max(round(fraction * n_rows), 1), n_rows - 1)
    queue = rng.permutation(n_rows)
    if not check_flag(keep_labels, "keep_labels"):
        return np.sort(queue[wanted:]), np.sort(queue[:wanted])
    spare = np.bincount(labels.indices, minlength=labels.shape[1]) - 1
    is_test = np.zeros(n_rows, dtype=bool)
    while wanted > 0 and len(queue):
        # Only the head of the queue is looked at, with some excess for rows that will be refused.
        head = queue[: wanted + wanted // 4 + 1024]
        admitted, refused = _admit(labels[head], spare)
        chosen = head[admitted][:wanted]
        is_test[chosen] = True
        spare -= np.bincount(labels[chosen].indices, minlength=labels.shape[1])
        wanted -= len(chosen)
        queue = np.concatenate([head[~(admitted | refused)], queue[len(head) :]])
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def _admit(candidates: sp.csr_matrix, spare: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the candidates that can go to the test side together, and of those that can never go."""
    rows = np.repeat(np.arange(candidates.shape[0]), np.diff(candidates.indptr))
    # A stable sort by label keeps the queue's order within each label, so positions there count earlier claims.
    order = np.argsort(candidates.indices, kind="stable")
    label = candidates.indices[order]
    claims_before = np.arange(len(label)) - np.searchsorted(label, label, side="left")
    fails = np.zeros(candidates.shape[0], dtype=bool)
    fails[rows[order[claims_before >= spare[label]]]] = True
    never = np.zeros(candidates.shape[0], dtype=bool)
    never[rows[spare[candidates.indices] < 1]] = True
    return ~fails, never


def fold_numbers(n_rows: int, n_folds: int, random_state: RandomState = None) -> np.ndarray:
    """The fold of each row, 0 to ``n_folds`` − 1, at random; sizes differ by one row at most."""
    return random_generator(random_state).permutation(n_rows) % n_folds


@dataclass(frozen=True, eq=False, repr=False)
class TrainTestSplit:
    """The two sides of a split; unpacks into ``X_train, Y_train, X_test, Y_test``.

    Attributes
    ----------
    X_train, X_test
        Rows of X, of the type that X had (csr_matrix for any sparse X, list for a list).
    Y_train, Y_test : csr_matrix of float32
        Rows of Y.
    texts_train, texts_test : list of str, or None
        Rows of ``texts``, if it was given.
    train_rows, test_rows : arrays of int64
        Row numbers.
    """

    X_train: Any
    Y_train: sp.csr_matrix
    X_test: Any
    Y_test: sp.csr_matrix
    texts_train: list[str] | None
    texts_test: list[str] | None
    train_rows: np.ndarray
    test_rows: np.ndarray

    def __iter__(self) -> Iterator[Any]:
        yield from (self.X_train, self.Y_train, self.X_test, self.Y_test)

    def __repr__(self) -> str:
        return f"TrainTestSplit({len(self.train_rows):,} training and {len(self.test_rows):,} test rows)"


def split_train_test(
    X: Any,
    Y: Any,
    *,
    test_fraction: float = 0.2,
    random_state: RandomState = None,
    texts: Sequence[str] | None = None,
    keep_labels: bool = False,
) -> TrainTestSplit:
    """Split features and labels (and texts) by :func:`split_rows`, at random.

    Parameters
    ----------
    X : sparse matrix, array or list, n rows
        Features, or the texts themselves.
    Y, test_fraction, random_state, keep_labels
        As of :func:`split_rows`.
    texts : sequence of str or None, default None
        Texts of the same rows, split along.

    Returns
    -------
    TrainTestSplit
        Copies of the rows; unpacks into ``X_train, Y_train, X_test, Y_test``.
    """
    labels = check_labels(Y)
    features = _sliceable(X, "X", labels.shape[0])
    if texts is not None:
        texts = _sliceable(texts, "texts", labels.shape[0])
    train, test = split_rows(labels, test_fraction, random_state, keep_labels=keep_labels)
    return TrainTestSplit(
        X_train=_take(features, train),
        Y_train=labels[train],
        X_test=_take(features, test),
        Y_test=labels[test],
        texts_train=None if texts is None else _take(texts, train),
        texts_test=None if texts is None else _take(texts, test),
        train_rows=train,
        test_rows=test,
    )


def _sliceable(values: Any, name: str, n_rows: int) -> Any:
    if sp.issparse(values):
        values = canonical_csr(checked_csr(values, name))
        found = values.shape[0]
    elif isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or not hasattr(values, "__getitem__"):
        raise InvalidTypeError(f"{name} must be a sparse matrix, an array or a list; found {type(values).__name__}.")
    else:
        found = len(values)
    if found != n_rows:
        raise InvalidInputError(f"{name} has {found:,} rows but Y has {n_rows:,}; they must describe the same rows.")
    return values


def _take(values: Any, rows: np.ndarray) -> Any:
    takes_row_arrays = isinstance(values, (sp.csr_matrix, np.ndarray))
    return values[rows] if takes_row_arrays else [values[row] for row in rows]


def hide_labels(Y: Any, fraction_observed: float, random_state: RandomState = None) -> sp.csr_matrix:
    """Choose at random which entries of Y are known: the mask Ω of LEML's missing-label tables.

    Each of the n·L entries, whether 0 or 1, is known with probability p = ``fraction_observed``, independently of all
    others: their number is binomial with mean p·n·L. Pass the mask to a model as ``observed``; Y does not change.

    Parameters
    ----------
    Y : sparse matrix or array of 0 and 1, shape (n, L)
        Labels. Only the shape matters for the result.
    fraction_observed : float
        Probability that an entry is known, above 0 and at most 1.
    random_state : int, numpy.random.Generator or None, default None
        Seed; the same seed, shape and fraction give the same mask.

    Returns
    -------
    csr_matrix of float32, shape (n, L)
        A 1 for each known entry, with sorted indices. It can be empty when p·n·L is small.

    Notes
    -----
    Walks over the n·L entries in row order by the gaps between known ones, which are geometric
    with parameter p. Time and memory are O(n + nnz Ω), whatever n·L is.
    """
    n_rows, n_labels = check_labels(Y).shape
    p = check_real(fraction_observed, "fraction_observed", minimum=0, maximum=1, open_minimum=True)
    rng = random_generator(random_state)
    total = n_rows * n_labels
    columns: list[np.ndarray] = []
    per_row = np.zeros(n_rows, dtype=np.int64)
    last = -1
    while last < total - 1:
        positions = last + np.cumsum(_gaps(rng, p, total, total - 1 - last))
        last = int(positions[-1])
        rows, labels = np.divmod(positions[: np.searchsorted(positions, total)], n_labels)
        columns.append(labels.astype(np.int32 if n_labels <= np.iinfo(np.int32).max else np.int64))
        if len(rows):
            first = int(rows[0])
            counts = np.bincount(rows - first)
            per_row[first : first + len(counts)] += counts
    indices = np.concatenate(columns) if columns else np.zeros(0, dtype=np.int32)
    indptr = np.concatenate([[0], np.cumsum(per_row)])
    return sp.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(n_rows, n_labels))


def _gaps(rng: np.random.Generator, p: float, total: int, remaining: int) -> np.ndarray:
    """Draw distances to the next known entries, about as many as are still to come and at most a chunk."""
    expected = p * remaining
    wanted = int(expected + 4 * np.sqrt(expected) + 16)
    # A gap beyond the end counts as "one past the end"; with that bound, the chunk's running sum fits 64 bits.
    length = max(1, min(wanted, _CHUNK, (1 << 62) // (total + 1)))
    return np.minimum(rng.geometric(p, size=length), total + 1)
