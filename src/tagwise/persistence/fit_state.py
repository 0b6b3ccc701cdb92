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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np

from tagwise.exceptions import ModelFormatError
from tagwise.persistence.folder import ModelRecord, with_prefix, within
from tagwise.persistence.loading import require_same, storable_parameters
from tagwise.persistence.strict_json import JSON
from tagwise.persistence.tensors import Tensor
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
    """A state as a checkpoint holds it; a nested state's arrays have its field's name and a dot in front."""

    arrays: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    values: dict[str, JSON] = dataclasses.field(default_factory=dict)

    def put(self, name: str, inner: StateParts) -> None:
        """Add the parts of a state within this one."""
        self.values[name] = inner.values
        self.arrays.update(with_prefix(name, inner.arrays))

    @classmethod
    def put_apart(cls, arrays: Mapping[str, Tensor], values: Mapping[str, JSON]) -> dict[str, StateParts]:
        """The inverse of :meth:`put` for several states: one for each of ``values``, which may come from anyone."""
        parts = {name: cls({}, own) for name, own in values.items()}
        for place, tensor in arrays.items():
            name, _, key = place.partition(".")
            if name not in parts:
                raise ModelFormatError(f"the tensor {place!r:.100} belongs to no state.")
            parts[name].arrays[key] = tensor
        for name, own in values.items():
            if not isinstance(own, dict):
                raise ModelFormatError(f"the values of the state {name!r:.100} must be an object.")
        return parts


class State:
    """Base of the state of a fit: a dataclass whose fields are declared by the functions of this module.

    Hold what the next iteration depends on, and nothing that data and parameters determine.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def to_parts(self) -> StateParts:
        """The declared fields as arrays and plain values."""
        parts = StateParts()
        for name, kind in _declared(type(self)).items():
            kind.save(getattr(self, name), name, parts)
        return parts

    @classmethod
    def from_parts(cls: type[StateT], parts: StateParts, known: Mapping[str, Any]) -> StateT:
        """The state that these parts describe; raises KeyError, TypeError, ValueError, … if they cannot be one.

        ``known`` has the sizes, bounds and types that the declarations name, and the fields that are not saved.
        """
        kinds = _declared(cls)
        require_same("values", set(parts.values), {name for name, kind in kinds.items() if kind.in_values})
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


# ---------------------------------------------------------------------- how a field is saved and restored


Names = dict[str, Any]
"""What is known, and the fields restored before."""


@dataclass(frozen=True)
class _Kind:
    restore: Callable[[str, StateParts, Names], Any]
    save: Callable[[Any, str, StateParts], None]
    in_values: bool


def _save_value(content: JSON, name: str, parts: StateParts) -> None:
    parts.values[name] = content


def _save_array(content: Tensor, name: str, parts: StateParts) -> None:
    parts.arrays[name] = content


def _field(
    restore: Callable[..., Any], save: Callable[..., None] = _save_value, in_values: bool = True, default: Any = MISSING
) -> Any:
    return dataclasses.field(default=default, metadata={"kind": _Kind(restore, save, in_values)})


def _declared(state_class: type[State]) -> dict[str, _Kind]:
    return {field.name: field.metadata["kind"] for field in dataclasses.fields(state_class) if "kind" in field.metadata}


# ---------------------------------------------------------------------- what a field may be


def array(*shape: Size, dtype: Any = "dtype") -> Any:
    """A dense array of finite numbers; None allows any size."""
    return _tensor_field(shape, dtype, ("dense",))


def sparse(*shape: Size, dtype: Any = "dtype", rising: bool = True) -> Any:
    """A CSR matrix of finite numbers, whose indices rise within a row unless ``rising`` is False."""
    return _tensor_field(shape, dtype, ("CSR",), rising)


def matrix(*shape: Size, dtype: Any = "dtype") -> Any:
    """An array or a CSR matrix."""
    return _tensor_field(shape, dtype, ("dense", "CSR"))


def count(least: int | str, most: int | str, *, default: Any = MISSING) -> Any:
    """A whole number in these bounds."""

    def restore(name: str, parts: StateParts, names: Names) -> int:
        lowest, highest = (names[bound] if isinstance(bound, str) else bound for bound in (least, most))
        number = check_integer(parts.values[name], name, minimum=lowest)
        if number > highest:
            raise ValueError(f"{name} is {number}, above {highest}")
        return number

    return _field(restore, default=default)


def real(*, default: Any = MISSING) -> Any:
    """A finite number."""
    return _field(lambda name, parts, names: check_real(parts.values[name], name), default=default)


def flag(*, default: Any = MISSING) -> Any:
    """True or False."""
    return _field(lambda name, parts, names: check_flag(parts.values[name], name), default=default)


def value(check: Callable[[Any], object]) -> Any:
    """A plain value, about which ``check`` raises ValueError where it cannot be one of the field."""

    def restore(name: str, parts: StateParts, names: Names) -> JSON:
        check(parts.values[name])
        return parts.values[name]

    return _field(restore)


def generator() -> Any:
    """A random generator that a seed made."""

    def save(content: np.random.Generator, name: str, parts: StateParts) -> None:
        parts.arrays[name] = generator_words(content)

    def restore(name: str, parts: StateParts, names: Names) -> np.random.Generator:
        rng = np.random.default_rng(0)
        set_generator(
            rng, _restored_tensor(name, parts, names, shape=(6,), dtype=np.uint64, forms=("dense",), rising=True)
        )
        return rng

    return _field(restore, save, in_values=False)


def nested(state_class: type[State], *, optional: bool = False) -> Any:
    """A state within the state, or None where it is ``optional``."""

    def save(content: State | None, name: str, parts: StateParts) -> None:
        if content is None:
            parts.values[name] = None
        else:
            parts.put(name, content.to_parts())

    def restore(name: str, parts: StateParts, names: Names) -> State | None:
        values, arrays = parts.values[name], within(name, parts.arrays)
        if values is None and optional and not arrays:
            return None
        if not isinstance(values, dict):
            raise ValueError(f"{name} is {values!r:.60} where the values of a state are needed")
        return state_class.from_parts(StateParts(arrays, values), names)

    return _field(restore, save, default=None if optional else MISSING)


def each(state_class: type[State]) -> Any:
    """A list of states, each with free sizes of its own."""

    def save(content: Iterable[State], name: str, parts: StateParts) -> None:
        listed = StateParts()
        for i, state in enumerate(content):
            listed.put(str(i), state.to_parts())
        parts.put(name, listed)
        parts.values[name] = list(listed.values.values())

    def restore(name: str, parts: StateParts, names: Names) -> list[State]:
        listed = parts.values[name]
        if not isinstance(listed, list):
            raise ValueError(f"{name} must list the values of states")
        values = {str(i): own for i, own in enumerate(listed)}
        apart = StateParts.put_apart(within(name, parts.arrays), values)
        return [state_class.from_parts(own, names) for own in apart.values()]

    return _field(restore, save)


def model() -> Any:
    """A fitted model; ``known`` must hold one of the same class and parameters that is not fitted yet."""

    def save(content: Any, name: str, parts: StateParts) -> None:
        record: ModelRecord = content.to_parts()
        parts.put(name, StateParts(record.tensors, record.values))

    def restore(name: str, parts: StateParts, names: Names) -> Any:
        model_class, parameters = type(names[name]), storable_parameters(names[name].get_params(deep=False))
        tensors = within(name, parts.arrays)
        return model_class.from_parts(ModelRecord(model_class.__name__, parameters, tensors, parts.values[name]))

    return _field(restore, save)


def unsaved() -> Any:
    """Not part of the checkpoint: taken from ``known``, or None until the fit has made it again."""
    return dataclasses.field()


def _tensor_field(shape: tuple[Size, ...], dtype: Any, forms: tuple[str, ...], rising: bool = True) -> Any:
    restore = partial(_restored_tensor, shape=shape, dtype=dtype, forms=forms, rising=rising)
    return _field(restore, _save_array, in_values=False)


def _restored_tensor(
    name: str,
    parts: StateParts,
    names: Names,
    shape: tuple[Size, ...],
    dtype: Any,
    forms: tuple[str, ...],
    rising: bool,
) -> Tensor:
    found: Any = parts.arrays[name]
    form = "dense" if isinstance(found, np.ndarray) else "CSR"
    dtype = np.dtype(names[dtype] if isinstance(dtype, str) else dtype)
    sizes = tuple(names.get(size) if isinstance(size, str) else size for size in shape)
    fits = len(sizes) == found.ndim and all(want in (None, size) for want, size in zip(sizes, found.shape))
    if form not in forms or found.dtype != dtype or not fits:
        wanted = f"{' or '.join(forms)} {dtype} of shape {sizes}"
        raise ValueError(f"{name} is {form} {found.dtype} of shape {found.shape} where {wanted} is needed")
    if not np.isfinite(found.data if form == "CSR" else found).all():
        raise ValueError(f"{name} holds NaN or infinity")
    if form == "CSR" and rising and not found.has_canonical_format:
        raise ValueError(f"{name} has indices that do not rise")
    names.update((size, length) for size, length in zip(shape, found.shape) if isinstance(size, str))
    # A fit changes its arrays in place, and the checkpoint may hold the array until it is written again.
    copy: Tensor = found.copy()
    return copy
