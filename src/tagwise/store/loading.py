"""From a model folder back to a model. Only registered classes are ever imported: a file cannot name code to run."""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError, ModelFormatError
from tagwise.registry import MODELS, SAVED_CLASSES
from tagwise.store.folder import ModelRecord, read_model

__all__ = ["MISFITS", "load", "model_from_parts", "require_same", "storable_parameters"]

MISFITS = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""Errors of undamaged content that no fit can have written."""


def load(path: str | PathLike[str], *, mapped: bool = False) -> Any:
    """Read a model or a tagger that was written by its ``save``.

    Parameters
    ----------
    path : path
        The model folder.
    mapped : bool
        Leave the tensors in their file, of which processes that load the same folder share one copy in memory. Their
        digest is not checked, and nobody may write into the file while the model is used. ``save`` does not.

    Returns
    -------
    The fitted model, of the class it had, or the :class:`tagwise.Tagger`; it predicts bit-identically to the saved one.

    Raises
    ------
    ModelFormatError
        The folder is missing, incomplete, damaged or not a model of tagwise. No code from the folder is ever run.
    """
    record = read_model(path, mapped=mapped)
    try:
        # Checks of numbers may overflow: the result says what is wrong with them, and no warning need to.
        with np.errstate(over="ignore", invalid="ignore"):
            if record.class_name in SAVED_CLASSES:
                module = import_module(SAVED_CLASSES[record.class_name])
                return getattr(module, record.class_name).from_parts(record)
            return model_from_parts(record)
    except ModelFormatError as error:
        raise ModelFormatError(f"{path}: {error}") from None
    except (*MISFITS, MemoryError) as error:
        raise ModelFormatError(f"{path}: the content does not fit {record.class_name}: {error}") from None


def model_from_parts(record: ModelRecord) -> Any:
    """The fitted model that a record describes, by ``from_parts`` (and with its errors) of the registered class."""
    known = {info.class_name: info for info in MODELS}
    if record.class_name not in known:
        raise ModelFormatError(
            f"the manifest names the class {record.class_name!r}, which this version of tagwise does not "
            f"know; it knows {', '.join(sorted(known))}."
        )
    return known[record.class_name].load_class().from_parts(record)


def require_same(what: str, found: set[str], expected: set[str]) -> None:
    """Raise ValueError unless two sets of names are equal."""
    if found != expected:
        missing, extra = sorted(expected - found), sorted(found - expected)
        raise ValueError(f"{what} missing: {missing}, unexpected: {extra}")


def storable_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Constructor parameters as JSON values and arrays; InvalidInputError for what a model folder cannot hold."""
    stored: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, np.generic):
            stored[name] = value.item()
        elif isinstance(value, (type(None), bool, int, float, str, np.ndarray)):
            stored[name] = value
        elif isinstance(value, (list, tuple)):
            stored[name] = np.asarray(value).tolist()
        else:
            what = "function" if callable(value) else type(value).__name__
            raise InvalidInputError(
                f"{name} is a {what}, which a model folder cannot hold; call set_params({name}=…) with a number, text, "
                "list or array, or the name of a function, before the fit."
            )
    return stored
