"""What a folder holds beside fitted arrays: constructor parameters as plain values, and the names of labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError, InvalidTypeError

__all__ = ["checked_names", "storable_parameters"]


def checked_names(label_names: Any, n_labels: int) -> list[str]:
    """One name a label, or an error that says what is wrong."""
    if isinstance(label_names, (str, bytes)) or not hasattr(label_names, "__iter__"):
        raise InvalidTypeError(f"label_names must be a list of names; found {label_names!r:.60}.")
    names = list(label_names)
    if len(names) != n_labels:
        raise InvalidInputError(f"label_names has {len(names):,} names but the model has {n_labels:,} labels.")
    for name in names:
        if not isinstance(name, str):
            raise InvalidTypeError(f"label_names must hold text; found {name!r}.")
    return names


def storable_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Constructor parameters as JSON values and arrays."""
    stored: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, np.generic):
            stored[name] = value.item()
        elif isinstance(value, (type(None), bool, int, float, str, np.ndarray)):
            stored[name] = value
        elif isinstance(value, (list, tuple)):
            stored[name] = np.asarray(value).tolist()
        elif callable(value):
            raise InvalidInputError(
                f"{name} is a function, which a model folder cannot hold: loading would have to run code. Models with "
                f"a function as {name} cannot be saved; fit with a named one."
            )
        else:
            raise InvalidInputError(
                f"{name} is a {type(value).__name__}, which a model folder cannot hold; call "
                f"set_params({name}=…) with a number, text, list or array before saving."
            )
    return stored
