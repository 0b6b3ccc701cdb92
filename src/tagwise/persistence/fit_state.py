"""The state of a fit, declared field by field: saving it and restoring it checked follow from the declaration.

>>> from dataclasses import dataclass
>>> @dataclass
... class Rounds(State):
...     W: np.ndarray = array("d", "k")
...     b: np.ndarray = array("L", dtype=np.float64)
...     done: int = count(1, "max_iter")

A name in a shape, a bound or a type stands for what :meth:`State.from_parts` is told under that name; a size that it is
not told is set by the first array that has it. Checkpoints may come from anyone: nothing is trusted unchecked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from tagwise.persistence.loading import require_same, storable_parameters
from tagwise.persistence.manifest import ModelRecord
from tagwise.persistence.tensors import JSON, Tensor
from tagwise.randomness import generator_words, set_generator
from tagwise.validation import check_flag, check_integer, check_real

__all__ = [
    "State",
    "StateParts",
    "array",
    "count",
    "each",
    "flag",
    "generator",
    "matrix",
    "model",
    "nested",
    "real",
    "sparse",
    "unsaved",
    "value",
]

Size = int | str | None
StateT = TypeVar("StateT", bound="State")


@dataclass(frozen=True)
class StateParts:
    """A state as a checkpoint holds it; a nested state's parts have its field's name in front of their own."""

    arrays: dict[str, Tensor]
    values: dict[str, JSON]


class State:
    """Base of the state of a fit: a dataclass whose fields are declared by the functions of this module.

    Hold what the next iteration depends on, and nothing that data and parameters determine.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def to_parts(self) -> StateParts:
        """The declared fields as arrays and plain values."""
        parts = StateParts({}, {})
        for name, kind in _declared(type(self)).items():
            kind.save(getattr(self, name), name, parts)
        return parts

    @classmethod
    def from_parts(cls: type[StateT], parts: StateParts, known: Mapping[str, Any]) -> StateT:
        """The state that these parts describe; raises KeyError, TypeError, ValueError, … if they cannot be one.

        ``known`` has the sizes, bounds and types that the declarations name, and the fields that are not saved.
        """
        kinds = _declared(cls)
        in_values = {name for name, kind in kinds.items() if kind.in_values}
        require_same("values", set(parts.values), in_values)
        unexpected = {name.partition(".")[0] for name in parts.arrays} - set(kinds)
        if unexpected:
            raise ValueError(f"unexpected arrays: {sorted(unexpected)}")
        names = dict(known)
        for name, kind in kinds.items():
            names[name] = kind.restore(name, parts, names)
        state = cls(**{field.name: names.get(field.name) for field in dataclasses.fields(cls)})
        state.check()
        return state

    def check(self) -> None:
        """Raise ValueError where fields contradict each other; called on a restored state."""


# ---------------------------------------------------------------------- what a field may be


def array(*shape: Size, dtype: Any = "dtype") -> Any:
    """A dense array of finite numbers; None allows any size."""
    return _field(_Tensor(shape, dtype, ("dense",)))


def sparse(*shape: Size, dtype: Any = "dtype", rising: bool = True) -> Any:
    """A CSR matrix of finite numbers, whose indices rise within a row unless ``rising`` is False."""
    return _field(_Tensor(shape, dtype, ("CSR",), rising))


def matrix(*shape: Size, dtype: Any = "dtype") -> Any:
    """An array or a CSR matrix."""
    return _field(_Tensor(shape, dtype, ("dense", "CSR")))


def count(least: int | str, most: int | str, *, default: Any = MISSING) -> Any:
    """A whole number in these bounds."""
    return _field(_Count(least, most), default)


def real(*, default: Any = MISSING) -> Any:
    """A finite number."""
    return _field(_Value(check_real), default)


def flag(*, default: Any = MISSING) -> Any:
    """True or False."""
    return _field(_Value(check_flag), default)


def value(check: Callable[[Any], object]) -> Any:
    """A plain value, about which ``check`` raises ValueError where it cannot be one of the field."""
    return _field(_Value(lambda found, name: (found, check(found))[0]))


def generator() -> Any:
    """A random generator that a seed made."""
    return _field(_Generator())


def nested(state_class: type[State], *, optional: bool = False) -> Any:
    """A state within the state, or None where it is ``optional``."""
    return _field(_Nested(state_class, optional), None if optional else MISSING)


def each(state_class: type[State]) -> Any:
    """A list of states, each with free sizes of its own."""
    return _field(_Each(state_class))


def model() -> Any:
    """A fitted model; ``known`` must hold one of the same class and parameters that is not fitted yet."""
    return _field(_Model())


def unsaved() -> Any:
    """Not part of the checkpoint: taken from ``known``, or None until the fit has made it again."""
    return dataclasses.field()


class _Kind:
    """How one field is saved and restored; ``names`` holds what is known and the fields restored before."""

    in_values: ClassVar[bool] = True

    def save(self, content: Any, name: str, parts: StateParts) -> None:
        parts.values[name] = content

    def restore(self, name: str, parts: StateParts, names: dict[str, Any]) -> Any:
        raise NotImplementedError


def _field(kind: _Kind, default: Any = MISSING) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind})


def _declared(state_class: type[State]) -> dict[str, _Kind]:
    return {field.name: field.metadata["kind"] for field in dataclasses.fields(state_class) if "kind" in field.metadata}


@dataclass(frozen=True)
class _Tensor(_Kind):
    shape: tuple[Size, ...]
    dtype: Any
    forms: tuple[str, ...]
    rising: bool = True
    in_values: ClassVar[bool] = False

    def save(self, content: Tensor, name: str, parts: StateParts) -> None:
        parts.arrays[name] = content

    def restore(self, name: str, parts: StateParts, names: dict[str, Any]) -> Tensor:
        found: Any = parts.arrays[name]
        form = "dense" if isinstance(found, np.ndarray) else "CSR"
        dtype = np.dtype(names[self.dtype] if isinstance(self.dtype, str) else self.dtype)
        shape = tuple(names.get(size) if isinstance(size, str) else size for size in self.shape)
        fits = len(shape) == found.ndim and all(want in (None, size) for want, size in zip(shape, found.shape))
        if form not in self.forms or found.dtype != dtype or not fits:
            wanted = f"{' or '.join(self.forms)} {dtype} of shape {shape}"
            raise ValueError(f"{name} is {form} {found.dtype} of shape {found.shape} where {wanted} is needed")
        if not np.isfinite(found.data if form == "CSR" else found).all():
            raise ValueError(f"{name} holds NaN or infinity")
        if form == "CSR" and self.rising and not found.has_canonical_format:
            raise ValueError(f"{name} has indices that do not rise")
        names.update((size, length) for size, length in zip(self.shape, found.shape) if isinstance(size, str))
        # A fit changes its arrays in place, and the checkpoint may hold the array until it is written again.
        copy: Tensor = found.copy()
        return copy


@dataclass(frozen=True)
class _Value(_Kind):
    check: Callable[[Any, str], Any]

    def restore(self, name: str, parts: StateParts, names: dict[str, Any]) -> Any:
        return self.check(parts.values[name], name)


@dataclass(frozen=True)
class _Count(_Kind):
    least: int | str
    most: int | str

    def restore(self, name: str, parts: StateParts, names: dict[str, Any]) -> int:
        least, most = (names[bound] if isinstance(bound, str) else bound for bound in (self.least, self.most))
        number = check_integer(parts.values[name], name, minimum=least)
        if number > most:
            raise ValueError(f"{name} is {number}, above {most}")
        return number


@dataclass(frozen=True)
class _Generator(_Kind):
    in_values: ClassVar[bool] = False

    def save(self, content: np.random.Generator, name: str, parts: StateParts) -> None:
        parts.arrays[name] = generator_words(content)

    def restore(self, name: str, parts: StateParts, names: dict[str, Any]) -> np.random.Generator:
        rng = np.random.default_rng(0)
        set_generator(rng, _Tensor((6,), np.uint64, ("dense",)).restore(name, parts, names))
        return rng


@dataclass(frozen=True)
class _Nested(_Kind):
    state_class: type[State]
    optional: bool = False

    def save(self, content: State | None, name: str, parts: StateParts) -> None:
        if content is None:
            parts.values[name] = None
        else:
            _save_within(name, content.to_parts(), parts)

    def restore(self, name: str, parts: StateParts, names: dict[str, Any]) -> State | None:
        values, arrays = parts.values[name], _within(name, parts.arrays)
        if values is None and self.optional and not arrays:
            return None
        if not isinstance(values, dict):
            raise ValueError(f"{name} is {values!r:.60} where the values of a state are needed")
        return self.state_class.from_parts(StateParts(arrays, values), names)


@dataclass(frozen=True)
class _Each(_Kind):
    state_class: type[State]

    def save(self, content: list[State], name: str, parts: StateParts) -> None:
        listed = StateParts({}, {})
        for i, state in enumerate(content):
            _save_within(str(i), state.to_parts(), listed)
        _save_within(name, listed, parts)
        parts.values[name] = list(listed.values.values())

    def restore(self, name: str, parts: StateParts, names: dict[str, Any]) -> list[State]:
        listed, arrays = parts.values[name], _within(name, parts.arrays)
        if not isinstance(listed, list) or not all(isinstance(values, dict) for values in listed):
            raise ValueError(f"{name} must list the values of states")
        by_place: dict[str, dict[str, Tensor]] = {str(i): {} for i in range(len(listed))}
        for key, tensor in arrays.items():
            place, _, inner = key.partition(".")
            by_place[place][inner] = tensor
        return [
            self.state_class.from_parts(StateParts(own, values), names)
            for own, values in zip(by_place.values(), listed)
        ]


@dataclass(frozen=True)
class _Model(_Kind):
    def save(self, content: Any, name: str, parts: StateParts) -> None:
        record: ModelRecord = content.to_parts()
        _save_within(name, StateParts(record.tensors, record.values), parts)

    def restore(self, name: str, parts: StateParts, names: dict[str, Any]) -> Any:
        unfitted = names[name]
        parameters = storable_parameters(unfitted.get_params(deep=False))
        record = ModelRecord(type(unfitted).__name__, parameters, _within(name, parts.arrays), parts.values[name])
        return type(unfitted).from_parts(record)


def _save_within(name: str, inner: StateParts, parts: StateParts) -> None:
    parts.values[name] = inner.values
    parts.arrays.update((f"{name}.{key}", tensor) for key, tensor in inner.arrays.items())


def _within(name: str, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): tensor for key, tensor in arrays.items() if key.startswith(f"{name}.")}
