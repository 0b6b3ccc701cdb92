"""Fitted attributes, declared once.

A model class lists its fitted attributes as :class:`Fields`. What a folder or a checkpoint holds, the checks at
loading, adding, removing and selecting labels, the search for overflow, and the section "Attributes" of the class's
documentation follow from that list.

An array's axes have names: ``"d"`` features, ``"q"`` features of the dense block, ``"L"`` labels; any other name is a
size of the model's own, which must be the same wherever the name stands. ``"L+1"`` is one more than ``"L"``.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from tagwise.validation import (
    all_finite,
    canonical_csr,
    check_choice,
    check_flag,
    check_integer,
    check_real,
    is_valid_csr,
)

__all__ = ["Check", "Field", "Fields", "Size", "csr", "dense", "inner", "matrix", "put", "take", "value"]

Size = str | int
"""Name of an axis, or its length."""
Check = Callable[[Any, str], object]
"""Called with an attribute and its name."""

_NUMBERS = {
    "float": ("float32 or float64 numbers", "f"),
    "float64": ("float64 numbers", "f"),
    "int": ("whole numbers", "i"),
    "count": ("whole numbers from 0 on", "i"),
    "bool": ("truth values", "b"),
    "ones": ("ones alone", "biuf"),
}
"""Numbers that an array may hold: in words, and their kinds of numpy types."""
_VALUES: dict[Any, str] = {check_integer: "int", check_real: "float", check_flag: "bool", check_choice: "str"}
_LINE = 112


@dataclass(frozen=True)
class Field:
    """One fitted attribute: an array, a plain value, or a model."""

    form: Literal["dense", "csr", "matrix", "value", "model"]
    meaning: str
    axes: tuple[Size, ...] = ()
    numbers: str = "float"
    """Numbers that an array holds. Floating ones are finite; all that are "float" share one type."""
    check: Check | None = None
    """Raises for content that no fit can make."""
    classes: tuple[str, ...] = ()
    """For a model: names of its possible classes."""

    @property
    def is_array(self) -> bool:
        """Whether the attribute is an array or a sparse matrix."""
        return self.form in ("dense", "csr", "matrix")

    @property
    def kind(self) -> str:
        """The type as documentation shows it: "CSR (d, L)"."""
        if not self.is_array:
            return " or ".join(self.classes) or _VALUES.get(getattr(self.check, "func", self.check), "value")
        numbers = {"float": "", "count": "int ", "ones": ""}.get(self.numbers, f"{self.numbers} ")
        form = {"dense": "array", "csr": "CSR", "matrix": "array or CSR"}[self.form]
        return f"{numbers}{form} ({', '.join(map(str, self.axes))}{',' if len(self.axes) == 1 else ''})"


def dense(*axes: Size, meaning: str, numbers: str = "float", check: Check | None = None) -> Field:
    """A dense array."""
    return Field("dense", meaning, axes, numbers, check)


def csr(*axes: Size, meaning: str, numbers: str = "float", check: Check | None = None) -> Field:
    """A CSR matrix with sorted, unique indices."""
    return Field("csr", meaning, axes, numbers, check)


def matrix(*axes: Size, meaning: str, numbers: str = "float", check: Check | None = None) -> Field:
    """A dense array or a CSR matrix, as the data were."""
    return Field("matrix", meaning, axes, numbers, check)


def value(check: Check, meaning: str) -> Field:
    """A plain JSON value."""
    return Field("value", meaning, check=check)


def inner(*classes: str, meaning: str) -> Field:
    """A fitted model of one of these classes."""
    return Field("model", meaning, classes=classes)


class Fields(Mapping[str, Field]):
    """The fitted attributes of a class, by name."""

    def __init__(self, **fields: Field) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Field:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __or__(self, other: Mapping[str, Field]) -> Fields:
        return Fields(**{**self, **other})

    def without(self, *names: str) -> Fields:
        """The fields without some."""
        return Fields(**{name: field for name, field in self.items() if name not in names})

    def arrays(self) -> dict[str, Field]:
        """The arrays and matrices alone."""
        return {name: field for name, field in self.items() if field.is_array}

    def models(self) -> dict[str, Field]:
        """The models alone."""
        return {name: field for name, field in self.items() if field.form == "model"}

    def along(self, axis: str) -> Iterator[tuple[str, int]]:
        """Names of the arrays that have this axis, each with the axis's number; one that has it twice comes twice."""
        for name, field in self.items():
            for number, size in enumerate(field.axes):
                if size == axis:
                    yield name, number

    def check(self, found: Mapping[str, Any], sizes: Mapping[str, int], floats: Any = None) -> None:
        """Raise ValueError unless all attributes are there and fit together.

        ``sizes`` are the axes that are known, ``floats`` is the type of arrays that are "float", where it is known.
        Matrices are checked entry by entry: after this, no index of a file that came from anyone can lead a compiled
        loop out of its arrays.
        """
        missing, extra = sorted(set(self) - set(found)), sorted(set(found) - set(self))
        if missing or extra:
            raise ValueError(f"fitted attributes missing: {missing}, unexpected: {extra}")
        known = dict(sizes)
        for name, field in self.items():
            content = found[name]
            if field.is_array:
                self._check_array(name, field, content, known)
                if field.numbers == "float":
                    floats = floats or content.dtype
                    if content.dtype != floats:
                        raise ValueError(f"{name} holds {content.dtype}, and other arrays {floats}")
            elif field.form == "model" and type(content).__name__ not in field.classes:
                raise ValueError(f"{name} must be a {field.kind}; found {type(content).__name__}")
            if field.check is not None:
                field.check(content, name)

    @staticmethod
    def _check_array(name: str, field: Field, content: Any, sizes: dict[str, int]) -> None:
        is_csr = sp.issparse(content)
        if not (is_csr or isinstance(content, np.ndarray)) or field.form == ("dense" if is_csr else "csr"):
            raise ValueError(f"{name} must be {field.kind}; found {type(content).__name__}")
        if len(content.shape) != len(field.axes):
            raise ValueError(f"{name} must be {field.kind}; found an array of shape {content.shape}")
        for axis, size in zip(field.axes, content.shape):
            if isinstance(axis, int):
                expected = axis
            elif axis.endswith("+1"):
                expected = sizes.setdefault(axis.removesuffix("+1"), size - 1) + 1
            else:
                expected = sizes.setdefault(axis, size)
            if size != expected:
                raise ValueError(
                    f"{name} must be {field.kind} with {axis} = {expected:,}; its shape is {content.shape}"
                )
        words, kinds = _NUMBERS[field.numbers]
        least = {"float": 4, "float64": 8}.get(field.numbers, 1)
        if content.dtype.kind not in kinds or not least <= content.dtype.itemsize <= 8:
            raise ValueError(f"{name} must hold {words}; found {content.dtype}")
        if is_csr and not (is_valid_csr(content) and content.has_canonical_format):
            raise ValueError(f"{name} must be a valid CSR matrix with sorted and unique indices in each row")
        values = content.data if is_csr else content
        if kinds == "f" and not all_finite(values):
            raise ValueError(f"{name} holds NaN or infinity")
        if (field.numbers == "count" and values.min(initial=0) < 0) or (
            field.numbers == "ones" and not (values == 1).all()
        ):
            raise ValueError(f"{name} must hold {words}")

    def select(self, owner: Any, axis: str, source: np.ndarray) -> None:
        """Replace the arrays of ``owner`` along an axis: their entries in the order of ``source``, −1 for zeros."""
        for name, number in self.along(axis):
            setattr(owner, name, take(getattr(owner, name), source, number))

    def overflow(self, owner: Any) -> str | None:
        """The name of an array of ``owner`` that holds NaN or infinity, or None."""
        for name in self.arrays():
            content = getattr(owner, name)
            values = content.data if sp.issparse(content) else content
            if values.dtype.kind == "f" and not all_finite(values):
                return name
        return None

    def floats(self, owner: Any) -> np.dtype:
        """The type of the floating arrays of ``owner``."""
        arrays = self.arrays().items()
        return next(np.dtype(getattr(owner, name).dtype) for name, field in arrays if field.numbers == "float")

    def documented(self, doc: str | None) -> str | None:
        """A class's docstring with these attributes in its section "Attributes", before any that stand there."""
        if doc is None:
            return None
        doc = inspect.cleandoc(doc)
        entries = "".join(
            f"{name} : {field.kind}\n{textwrap.indent(textwrap.fill(field.meaning, _LINE), '    ')}\n"
            for name, field in self.items()
        )
        heading = "Attributes\n----------\n"
        if heading in doc:
            return doc.replace(heading, heading + entries, 1)
        for section in ("Notes", "References", "Examples"):
            start = f"{section}\n{'-' * len(section)}\n"
            if start in doc:
                return doc.replace(start, f"{heading}{entries}\n{start}", 1)
        return f"{doc}\n\n{heading}{entries}"


# ---------------------------------------------------------------------- arrays along an axis


def take(array: Any, source: np.ndarray, axis: int) -> Any:
    """Slices of an array or CSR matrix along an axis, in the order of ``source``; −1 stands for one of zeros."""
    there, before = source >= 0, array.shape[axis]
    if sp.issparse(array) and not there[before:].any() and np.array_equal(source[:before], np.arange(before)):
        # Only wider or longer: nothing is copied.
        wider = (array.shape[0], len(source)) if axis == 1 else (len(source), array.shape[1])
        indptr = np.pad(array.indptr, (0, wider[0] - array.shape[0]), mode="edge")
        return sp.csr_matrix((array.data, array.indices, indptr), shape=wider)
    if not sp.issparse(array):
        shape = list(array.shape)
        shape[axis] = len(source)
        out = np.zeros(shape, dtype=array.dtype)
        slices: list[Any] = [slice(None)] * array.ndim
        slices[axis] = there
        out[tuple(slices)] = np.take(array, source[there], axis=axis)
        return out
    if axis == 0:
        chosen = array[source[there]]
        counts = np.zeros(len(source), dtype=np.int64)
        counts[there] = np.diff(chosen.indptr)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return sp.csr_matrix((chosen.data, chosen.indices, indptr), shape=(len(source), array.shape[1]))
    place = np.full(array.shape[1], -1, dtype=np.int64)
    place[source[there]] = np.flatnonzero(there)
    columns = place[array.indices]
    kept = columns >= 0
    indptr = _kept_before(kept)[array.indptr]
    indices = columns[kept].astype(array.indices.dtype)
    out = sp.csr_matrix((array.data[kept], indices, indptr), shape=(array.shape[0], len(source)))
    out.sort_indices()
    return out


def put(array: Any, places: np.ndarray, new: Any, axis: int = 0) -> Any:
    """A copy of an array or CSR matrix in which the slices at ``places`` along an axis are those of ``new``."""
    if not sp.issparse(array):
        out = array.copy()
        out[(slice(None),) * axis + (places,)] = new
        return out
    if axis == 0:
        source = np.arange(array.shape[0])
        source[places] = array.shape[0] + np.arange(len(places))
        return sp.csr_matrix(sp.vstack([array, new], format="csr")[source])
    gone = np.zeros(array.shape[1], dtype=bool)
    gone[places] = True
    stay = ~gone[array.indices]
    indptr = _kept_before(stay)[array.indptr]
    others = sp.csr_matrix((array.data[stay], array.indices[stay], indptr), shape=array.shape)
    columns = sp.csr_matrix((new.data, places[new.indices], new.indptr), shape=array.shape)
    return canonical_csr(others + columns)


def _kept_before(kept: np.ndarray) -> np.ndarray:
    """Number of kept entries (m,) before each entry, and of all: (m + 1,)."""
    before = np.zeros(len(kept) + 1, dtype=np.int32 if len(kept) < 2**31 else np.int64)
    np.cumsum(kept, dtype=before.dtype, out=before[1:])
    return before
