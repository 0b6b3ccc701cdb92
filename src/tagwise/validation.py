"""Checks of user input: features X, labels Y, the mask of known labels, and numbers.

Each check returns its argument in the form that the rest of the library works with (CSR with sorted, unique indices)
or raises an error. Nothing is changed in place, and nothing that already has the right form is copied.
"""

from __future__ import annotations

import math
import numbers
import os
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.feature_blocks import FeatureBlocks

__all__ = [
    "SPARE_COLUMNS",
    "Features",
    "all_finite",
    "canonical_csr",
    "check_choice",
    "check_features",
    "check_flag",
    "check_integer",
    "check_k",
    "check_labels",
    "check_memory",
    "check_observed",
    "check_real",
    "check_sample_weight",
    "checked_csr",
    "integer_text",
    "is_valid_csr",
    "require_memory",
    "shape_text",
    "without_stored_zeros",
]

_LARGEST_INT32 = 2**31 - 1
_UNSIGNED: dict[Any, Any] = {np.dtype(np.int32): np.dtype(np.uint32), np.dtype(np.int64): np.dtype(np.uint64)}

SPARE_COLUMNS = 1000
"""Excess of k over the number of labels that is allowed: answers then have columns without a label."""

Features: TypeAlias = sp.csr_matrix | np.ndarray
"""Rows of features as :func:`check_features` returns them: CSR or a dense array, n×d. Where a model reads blocks, also
:class:`FeatureBlocks`."""

# Dense arrays with a row per feature and per label that a fit holds at its peak, at least: what it looks for, its slope
# and what the solver works on.
_DENSE_ARRAYS = 4


def shape_text(shape: tuple[int, ...]) -> str:
    """``(3, 4)`` as ``3×4``, for messages."""
    return "×".join(f"{size:,}" for size in shape)


def checked_csr(matrix: Any, name: str) -> sp.csr_matrix:
    """A sparse matrix from outside, of any format, as CSR; raises where it stores entries outside its own shape.

    scipy compares indices with the shape neither when a matrix is made of arrays nor later: compiled loops would read
    and write wherever they point. Time: one pass over indices and indptr.
    """
    kind = matrix.format
    if matrix.ndim != 2:
        raise InvalidInputError(f"{name} must have two dimensions; found {matrix.ndim}.")
    if kind in ("csr", "csc", "bsr"):
        if kind != "csr" or not is_valid_csr(matrix):
            _require_valid_compressed(matrix, name)
    else:
        matrix = matrix.tocoo()
        if not len(matrix.row) == len(matrix.col) == len(matrix.data):
            raise InvalidInputError(f"{name} has different numbers of rows, columns and values of entries.")
        for what, ids, size in zip(("row", "column"), (matrix.row, matrix.col), matrix.shape):
            _require_within(ids, size, what, name)
    return sp.csr_matrix(matrix)


def is_valid_csr(matrix: Any) -> bool:
    """Whether a CSR matrix of the usual types stays within its arrays and its shape; quick for one row too."""
    indptr, indices, (n_rows, n_columns) = matrix.indptr, matrix.indices, matrix.shape
    unsigned = _UNSIGNED.get(indices.dtype)
    if unsigned is None or indptr.dtype not in _UNSIGNED or n_columns > _LARGEST_INT32:
        return False
    if indptr.shape != (n_rows + 1,) or indptr[0] != 0 or not indptr[-1] == len(indices) == len(matrix.data):
        return False
    if n_rows > 1 and (indptr[1:] < indptr[:-1]).any():
        return False
    # As unsigned numbers negative ones are the largest: one pass finds all that lie outside.
    return len(indices) == 0 or bool(np.maximum.reduce(indices.view(unsigned)) < n_columns)


def _require_valid_compressed(matrix: Any, name: str) -> None:
    """Raise unless indptr and indices of a CSR, CSC or BSR matrix stay within its arrays and its shape."""
    indptr, indices = matrix.indptr, matrix.indices
    high, wide = matrix.blocksize if matrix.format == "bsr" else (1, 1)
    n_rows, n_columns = matrix.shape[0] // high, matrix.shape[1] // wide
    major, minor, what = (n_columns, n_rows, "row") if matrix.format == "csc" else (n_rows, n_columns, "column")
    stored = min(len(indices), len(matrix.data))
    whole = indptr.dtype.kind in "iu" and indices.dtype.kind in "iu" and indptr.shape == (major + 1,)
    if not (whole and indptr[0] == 0 and indptr[-1] <= stored and (indptr[1:] >= indptr[:-1]).all()):
        raise InvalidInputError(
            f"{name} is not a valid sparse matrix: indptr must be {major + 1:,} integers that rise from 0 to at most "
            f"{stored:,}, the stored entries, and indices must be integers; build it anew from its entries."
        )
    _require_within(indices[: indptr[-1]], minor, what, name)


def _require_within(ids: np.ndarray, size: int, what: str, name: str) -> None:
    """Raise unless all ids lie in 0 … size - 1."""
    if len(ids) and not (ids.min() >= 0 and ids.max() < size):
        found = ids.min() if ids.min() < 0 else ids.max()
        advice = "" if found < 0 else " If your ids start at 1, subtract 1 from all of them."
        raise InvalidInputError(
            f"{name} stores an entry in {what} {found:,}, but has {size:,} {what}s, numbered from 0 to {size - 1:,}."
            + advice
        )


def canonical_csr(matrix: Any) -> sp.csr_matrix:
    """CSR with sorted indices of 32 bits, if they fit, and duplicates summed; shares arrays that have this form.

    Kernels are compiled for each type of indices that they meet.
    """
    csr = matrix if type(matrix) is sp.csr_matrix else sp.csr_matrix(matrix)
    if csr.indices.dtype != np.int32:
        csr = sp.csr_matrix((csr.data, csr.indices, csr.indptr), shape=csr.shape)  # scipy takes the smaller type
    if not csr.has_canonical_format:
        if csr is matrix or (sp.issparse(matrix) and np.shares_memory(csr.indices, matrix.indices)):
            csr = csr.copy()
        csr.sum_duplicates()
    return csr


def without_stored_zeros(X: Features) -> Features:
    """The features, of which no stored number is 0; the matrix itself where none is."""
    if isinstance(X, FeatureBlocks):
        return FeatureBlocks([without_stored_zeros(X.sparse), X.dense])
    if isinstance(X, np.ndarray) or X.data.all():
        return X
    X = X.copy()
    X.eliminate_zeros()
    return X


def check_features(X: Any, *, name: str = "X", n_features: int | None = None, blocks: bool = False) -> Features:
    """Features as canonical CSR, or as a C-ordered 2-D array, in float32 or float64, all finite.

    Floats of 32 and 64 bits keep their type; everything else numeric becomes float64. :class:`FeatureBlocks`, or the
    list of a sparse matrix and an array, stay what they are with ``blocks``, both of one type, and else become CSR.
    """
    if isinstance(X, FeatureBlocks) or FeatureBlocks.are_meant(X):
        return _checked_blocks(X, name, blocks)
    if sp.issparse(X):
        if X.ndim != 2:
            raise InvalidInputError(f"{name} must have two dimensions (rows × features); found {X.ndim}.")
        _require_real(X.dtype, name)
        matrix = canonical_csr(checked_csr(X, name))
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
        values = matrix.data
    else:
        matrix = _dense(X, name)
        values = matrix
    for size, what in zip(matrix.shape, ("sample", "feature")):
        if size == 0:
            raise InvalidInputError(f"{name} has 0 {what}(s) (shape={matrix.shape}) while a minimum of 1 is required.")
    if n_features is not None and matrix.shape[1] != n_features:
        raise InvalidInputError(
            f"{name} has {matrix.shape[1]} features, but the model was trained with {n_features} features "
            "as input; pass rows made by the same feature extraction."
        )
    if not all_finite(values):
        raise InvalidInputError(f"{name} contains NaN or infinity; replace or remove these values first.")
    return matrix


def _checked_blocks(X: Any, name: str, blocks: bool) -> Features:
    given = X if isinstance(X, FeatureBlocks) else FeatureBlocks(X)
    dense = check_features(given.dense, name=name)
    # Dense features may be alone.
    sparse = check_features(given.sparse, name=name) if given.sparse.shape[1] else sp.csr_matrix(given.sparse)
    dtype = np.result_type(sparse.dtype, dense.dtype)
    checked = FeatureBlocks([sparse.astype(dtype, copy=False), dense.astype(dtype, copy=False)])
    return checked if blocks else checked.tocsr()


def all_finite(values: np.ndarray) -> bool:
    """Whether an array of floats, of any shape, holds neither NaN nor infinity."""
    # A finite sum of squares proves it in one pass; only a suspicious sum needs the exact check. (Unlike a sum or dot,
    # vdot does not warn of overflow.)
    return math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())


def _as_array(value: Any, name: str) -> np.ndarray:
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidTypeError(
            f"{name} is a numpy masked array, whose mask would be lost; pass a plain array, and pass the mask of "
            "known labels as observed."
        )
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InvalidInputError(f"{name} must be a matrix with rows of equal length: {error!s:.200}") from None


def _dense(X: Any, name: str) -> np.ndarray:
    array = _as_array(X, name)
    if array.ndim != 2:
        raise InvalidInputError(
            f"{name} must have two dimensions (rows × features); found {array.ndim}. "
            f"Reshape your data: {name}.reshape(1, -1) if it is one row, {name}.reshape(-1, 1) if one feature."
        )
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except TypeError as error:
            # scikit-learn expects a TypeError with this wording for entries that are not numbers at all.
            raise InvalidTypeError(f"{name} holds an entry that is not a number: {error}") from None
        except ValueError as error:
            raise InvalidInputError(f"{name} holds an entry that is not a number: {error}") from None
    _require_real(array.dtype, name)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return np.ascontiguousarray(array)


def _require_real(dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind == "c":
        raise InvalidInputError(f"Complex data not supported: {name} must hold real numbers.")
    if dtype.kind not in "fiub":
        raise InvalidInputError(f"{name} must hold numbers; found entries of type {dtype}.")


_NOT_LISTS = (
    "Only binary classification is supported, one column of 0 and 1 for each label: turn classes or lists of names "
    "into columns with scikit-learn's MultiLabelBinarizer."
)


def check_labels(Y: Any, *, name: str = "Y", n_rows: int | None = None, n_labels: int | None = None) -> sp.csr_matrix:
    """A 0/1 label matrix (rows × labels) as canonical CSR holding only its ones, as float32.

    Explicit zeros count as 0 and are dropped from the result. An entry stored twice is an error unless both are
    zero: it could mean 1 or 2.
    """
    if Y is None:
        raise InvalidInputError(
            f"This estimator requires y to be passed, but the target y is None: give {name}, a rows × labels matrix "
            "of 0 and 1."
        )
    if sp.issparse(Y):
        if Y.ndim != 2:
            raise InvalidInputError(f"{name} must have two dimensions (rows × labels); found {Y.ndim}.")
        csr = checked_csr(Y, name)
        csr = sp.csr_matrix((_binary(csr.data, name), csr.indices, csr.indptr), shape=csr.shape)
    else:
        try:
            array = _as_array(Y, name)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} {_NOT_LISTS}") from None
        if array.ndim != 2:
            raise InvalidInputError(
                f"Unknown label type: {name} must have two dimensions (rows × labels); found {array.ndim}. {_NOT_LISTS}"
            )
        csr = sp.csr_matrix(_binary(array, name))
    if csr.shape[1] == 0:
        raise InvalidInputError(f"{name} has no label columns; at least one label is needed.")
    if n_rows not in (None, csr.shape[0]):
        raise InvalidInputError(
            f"{name} has {csr.shape[0]:,} rows but X has {n_rows:,}; they must describe the same rows."
        )
    if n_labels not in (None, csr.shape[1]):
        raise InvalidInputError(f"{name} has {csr.shape[1]:,} labels where {n_labels:,} are expected.")
    stored = csr.nnz
    csr = canonical_csr(csr)
    if csr.nnz < stored and csr.nnz and csr.data.max() > 1:
        rows, labels = (csr > 1).nonzero()
        raise InvalidInputError(
            f"{name} stores the entry of row {rows[0]}, label {labels[0]} more than once; call {name}.sum_duplicates() "
            "and set its values to 1 if that is what you mean."
        )
    if csr.nnz and csr.data.min() == 0:
        # The values are new, but indices and indptr may still be the caller's.
        csr = csr.copy()
        csr.eliminate_zeros()
    return csr


def _binary(values: np.ndarray, name: str) -> np.ndarray:
    """The values as float32, all 0 or 1."""
    if values.dtype == object:
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"Unknown label type: {name} must hold 0 and 1; found objects that are not numbers."
            ) from None
    if values.dtype.kind not in "fiub":
        raise InvalidInputError(f"Unknown label type: {name} must hold 0 and 1; found type {values.dtype}.")
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        found = values[wrong].flat[0]
        advice = (
            "mark unknown labels by leaving them out of the observed mask, not by NaN"
            if not np.isfinite(found)
            else "turn it into 0 and 1 first"
        )
        raise InvalidInputError(f"Unknown label type: {name} must hold only 0 and 1; found {found}; {advice}.")
    return values.astype(np.float32)


def check_observed(
    observed: Any, *, shape: tuple[int, int], name: str = "observed", may_be_empty: bool = False
) -> sp.csr_matrix:
    """The mask Ω as canonical CSR: a stored entry, whatever its value, is a known pair.

    A dense mask marks known pairs by non-zero values.
    """
    array = observed if sp.issparse(observed) else _as_array(observed, name)
    if array.ndim != 2:
        raise InvalidInputError(f"{name} must have two dimensions (rows × labels); found {array.ndim}.")
    if sp.issparse(array):
        csr = checked_csr(array, name)
        # Presence is what counts, so explicit zeros stay and duplicates collapse into one known pair.
        csr = canonical_csr(sp.csr_matrix((np.ones(csr.nnz, np.float32), csr.indices, csr.indptr), shape=csr.shape))
    else:
        if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
            raise InvalidInputError(
                f"{name} must hold booleans or finite numbers, non-zero for a known label; found "
                + ("NaN or infinity." if array.dtype.kind == "f" else f"entries of type {array.dtype}.")
            )
        csr = sp.csr_matrix(array != 0, dtype=np.float32)
    if csr.shape != shape:
        raise InvalidInputError(
            f"{name} has shape {shape_text(csr.shape)} where rows × labels is {shape_text(shape)}; it marks "
            "entries of Y, so both must have the same shape."
        )
    if csr.nnz == 0 and not may_be_empty:
        raise InvalidInputError(f"{name} marks no entry of Y as known; there is nothing to learn from.")
    csr.data = np.ones(csr.nnz, dtype=np.float32)
    return csr


def check_sample_weight(sample_weight: Any, n_rows: int) -> np.ndarray:
    """Weights of rows (n, float64): finite, at least 0, and not 0 for all."""
    name = "sample_weight"
    array = _as_array(sample_weight, name)
    if array.shape != (n_rows,):
        raise InvalidInputError(
            f"{name} has shape {array.shape} but X has {n_rows:,} rows; it must be a list of one number per row."
        )
    _require_real(array.dtype, name)
    weights = array.astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any():
        wrong = int(np.argmax(~np.isfinite(weights) | (weights < 0)))
        raise InvalidInputError(f"{name} must be finite and at least 0; found {weights[wrong]} for row {wrong:,}.")
    if not weights.any():
        raise InvalidInputError(f"{name} is zero for all rows; there is nothing to learn from.")
    return weights


def check_integer(value: Any, name: str, *, minimum: int | None = None, maximum: int = 2**63 - 1) -> int:
    """A whole number of 64 bits, at least ``minimum`` and at most ``maximum``."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise InvalidTypeError(f"{name} must be a whole number; found {value!r}.")
    if minimum is not None and value < minimum:
        raise InvalidInputError(f"{name} must be at least {minimum}; found {integer_text(value)}.")
    if not -(2**63) <= int(value) <= maximum:
        limit = f"at most {maximum:,}" if maximum < 2**63 - 1 else "at most 2⁶³ − 1"
        raise InvalidInputError(f"{name} must be {limit}; found {integer_text(value)}.")
    return int(value)


def integer_text(value: Any) -> str:
    """A whole number for messages: Python refuses to write the digits of a huge one."""
    bits = int(value).bit_length()
    return f"{int(value):,}" if bits <= 64 else f"a number of {bits:,} bits"


def check_k(k: Any, n_labels: int, name: str = "k") -> int:
    """Number of labels per row: at least 1, and not so large that empty columns fill the memory."""
    k, most = check_integer(k, name, minimum=1), n_labels + SPARE_COLUMNS
    if k > most:
        raise InvalidInputError(
            f"{name} must be at most {most:,}, which is {SPARE_COLUMNS:,} more than there are labels; found {k:,}."
        )
    return k


def check_real(
    value: Any, name: str, *, minimum: float = -np.inf, maximum: float = np.inf, open_minimum: bool = False
) -> float:
    """A finite number in ``[minimum, maximum]`` (the lower end excluded with ``open_minimum``)."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise InvalidTypeError(f"{name} must be a number; found {value!r}.")
    number = float(value)
    too_low = number <= minimum if open_minimum else number < minimum
    if not np.isfinite(number) or too_low or number > maximum:
        low = "above" if open_minimum else "at least"
        expected = [f"{low} {minimum:g}"] if np.isfinite(minimum) else []
        expected += [f"at most {maximum:g}"] if np.isfinite(maximum) else []
        raise InvalidInputError(f"{name} must be finite {' and '.join(expected)}; found {value!r}.".replace(" ;", ";"))
    return number


def check_flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidTypeError(f"{name} must be True or False; found {value!r}.")
    return bool(value)


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """One of a few names."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(map(repr, choices))}; found {value!r}.")
    return value


def check_memory(n_features: int, n_labels: int, rank: int | None, itemsize: int) -> None:
    """Refuse numbers of columns that no fit on this machine could hold: one wrong id in a file can make billions.

    Without a rank a fit holds a number per column at least.
    """
    memory = _physical_memory()
    columns = n_features + n_labels
    needed = columns * itemsize
    if rank is not None:
        needed *= _DENSE_ARRAYS * max(1, min(rank, n_features, n_labels))
    if memory is not None and needed > memory:
        raise InvalidInputError(
            f"X has {n_features:,} features and Y has {n_labels:,} labels; a fit would take at least "
            f"{needed / 2**30:,.0f} GB, and this machine has {memory / 2**30:,.0f} GB. Look for a wrong id in the "
            f"data, or number features and labels without gaps{'' if rank is None else '; or lower the rank'}."
        )


def require_memory(needed: float, limit: float, purpose: str, advice: str) -> None:
    """Raise where ``needed`` bytes are above ``memory_limit``."""
    if needed > limit:
        raise InvalidInputError(
            f"{purpose} needs memory of {_bytes_text(needed)}, above memory_limit ({_bytes_text(limit)}); {advice}."
        )


def _bytes_text(n_bytes: float) -> str:
    """As GiB or MiB, for messages; a few bytes as they are."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if n_bytes >= 0.01 * unit:
            return f"{n_bytes / unit:,.2f} {name}"
    return f"{n_bytes:,.0f} bytes"


def _physical_memory() -> int | None:
    """Bytes of memory of this machine, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
