"""Checks of user input: features X, labels Y, the mask of known labels, and numbers.

Each check returns its argument in the form that the rest of the library works with (CSR with sorted, unique indices)
or raises an error. Nothing is changed in place, and nothing that already has the right form is copied.
"""

from __future__ import annotations

import numbers
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError

__all__ = [
    "Features",
    "canonical_csr",
    "check_choice",
    "check_features",
    "check_flag",
    "check_integer",
    "check_labels",
    "check_observed",
    "check_real",
    "shape_text",
]

Features: TypeAlias = sp.csr_matrix | np.ndarray
"""Rows of features as :func:`check_features` returns them: CSR or a dense array, n×d."""


def shape_text(shape: tuple[int, ...]) -> str:
    """``(3, 4)`` as ``3×4``, for messages."""
    return "×".join(f"{size:,}" for size in shape)


def canonical_csr(matrix: Any) -> sp.csr_matrix:
    """CSR with sorted indices and duplicates summed, sharing arrays that already have this form."""
    csr = sp.csr_matrix(matrix)
    if not csr.has_canonical_format:
        if csr is matrix or (sp.issparse(matrix) and np.shares_memory(csr.indices, matrix.indices)):
            csr = csr.copy()
        csr.sum_duplicates()
    return csr


def check_features(X: Any, *, name: str = "X", n_features: int | None = None) -> Features:
    """Features as canonical CSR, or as a C-ordered 2-D array, in float32 or float64, all finite.

    Floats of 32 and 64 bits keep their type; everything else numeric becomes float64.
    """
    if sp.issparse(X):
        if X.ndim != 2:
            raise InvalidInputError(f"{name} must have two dimensions (rows × features); found {X.ndim}.")
        _require_real(X.dtype, name)
        matrix = canonical_csr(X)
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
    # A finite sum proves all values finite in one pass; only a suspicious sum needs the exact check.
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(np.sum(values, dtype=np.float64))
    if suspicious and not np.isfinite(values).all():
        raise InvalidInputError(f"{name} contains NaN or infinity; replace or remove these values first.")
    return matrix


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
        csr = sp.csr_matrix(Y)
        csr = sp.csr_matrix((_binary(csr.data, name), csr.indices, csr.indptr), shape=csr.shape)
    else:
        array = _as_array(Y, name)
        if array.ndim != 2:
            raise InvalidInputError(
                f"Unknown label type: {name} must have two dimensions (rows × labels); found {array.ndim}. "
                "Only binary classification is supported, one column of 0 and 1 for each label: turn classes or lists "
                "of names into columns with scikit-learn's MultiLabelBinarizer."
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
        csr = sp.csr_matrix(array)
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


def check_integer(value: Any, name: str, *, minimum: int | None = None) -> int:
    """A whole number, at least ``minimum``."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise InvalidTypeError(f"{name} must be a whole number; found {value!r}.")
    if minimum is not None and value < minimum:
        raise InvalidInputError(f"{name} must be at least {minimum}; found {value}.")
    return int(value)


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
