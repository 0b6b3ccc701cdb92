"""Which fit a checkpoint belongs to: model, parameters, version and data, and how two of them differ in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise._version import __version__
from tagwise.exceptions import ModelFormatError
from tagwise.persistence.record import JSON, Tensor
from tagwise.persistence.tensors import dismantle
from tagwise.validation import shape_text

__all__ = ["FitIdentity"]

_KEYS = {"class", "parameters", "data", "tagwise_version"}


@dataclass(frozen=True)
class FitIdentity:
    """What must be the same for a fit to go on from the state of an earlier run.

    Attributes
    ----------
    class_name : str
    parameters : dict
        All that the result depends on: neither the number of threads nor how much is shown.
    data : dict
        Name → type, shape and SHA-256 of every array that the fit learns from; None for one that is not given.
    version : str
        Of tagwise: another one may take other steps.
    """

    class_name: str
    parameters: dict[str, JSON]
    data: dict[str, JSON]
    version: str

    @classmethod
    def of(cls, class_name: str, parameters: dict[str, JSON], data: Mapping[str, Tensor | None]) -> FitIdentity:
        """The identity of a fit about to start. Time: one SHA-256 of the data, of which nothing is copied."""
        described = {
            name: None if tensor is None else dismantle(tensor, name)[0].entry() for name, tensor in data.items()
        }
        return cls(class_name, parameters, described, __version__)

    def as_values(self) -> dict[str, JSON]:
        """As a checkpoint holds it."""
        return {
            "class": self.class_name,
            "parameters": self.parameters,
            "data": self.data,
            "tagwise_version": self.version,
        }

    @classmethod
    def from_values(cls, values: dict[str, JSON]) -> FitIdentity:
        """The inverse of :meth:`as_values`, for values that may come from anyone."""
        if set(values) != _KEYS or not (
            isinstance(values["parameters"], dict)
            and isinstance(values["data"], dict)
            and all(isinstance(values[key], str) for key in ("class", "tagwise_version"))
        ):
            raise ModelFormatError(f"the parameters of a checkpoint must be {', '.join(sorted(_KEYS))}.")
        return cls(values["class"], values["parameters"], values["data"], values["tagwise_version"])

    def differences(self, saved: FitIdentity) -> list[str]:
        """In what this fit is another than the saved one; empty where it is the same."""
        found = []
        if self.class_name != saved.class_name:
            return [f"the model is {self.class_name} and was {saved.class_name!s:.100}"]
        if self.version != saved.version:
            found.append(f"tagwise has version {self.version} and had {saved.version!s:.100}")
        for name in sorted(self.parameters | saved.parameters):
            mine, theirs = self.parameters.get(name), saved.parameters.get(name)
            if not _same(mine, theirs):
                found.append(_changed_parameter(name, mine, theirs))
        for name in dict.fromkeys([*self.data, *saved.data]):
            mine, theirs = self.data.get(name), saved.data.get(name)
            if mine != theirs:
                found.append(_changed_data(name, mine, theirs))
        return found


def _same(one: Any, other: Any) -> bool:
    if _is_array(one) or _is_array(other):
        return (
            isinstance(one, np.ndarray)
            and isinstance(other, np.ndarray)
            and np.array_equal(one, other, equal_nan=one.dtype.kind == other.dtype.kind == "f")
        )
    both_numbers = {type(one), type(other)} <= {int, float}
    return (both_numbers and one == other) or repr(one) == repr(other)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or sp.issparse(value)


def _changed_parameter(name: str, mine: Any, theirs: Any) -> str:
    if _is_array(mine) or _is_array(theirs):
        return f"{name} has other values"
    return f"{name} is {mine!r:.60} and was {theirs!r:.60}"


def _changed_data(name: str, mine: JSON, theirs: JSON) -> str:
    if mine is None or theirs is None:
        return f"{name} is {'not given' if mine is None else 'given'} and was{'' if mine is None else ' not'}"
    if not isinstance(theirs, dict):
        return f"{name} is another"
    for field, words in (
        ("kind", "is {} and was {}"),
        ("shape", "has shape {} and had {}"),
        ("dtype", "is {} and was {}"),
    ):
        if mine.get(field) != theirs.get(field):
            return f"{name} " + words.format(_text(mine.get(field)), _text(theirs.get(field)))
    return f"{name} has other values"


def _text(value: JSON) -> str:
    if isinstance(value, list) and all(isinstance(size, int) for size in value):
        return shape_text(tuple(value))
    return f"{value!s:.60}"
