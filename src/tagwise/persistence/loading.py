"""From a model folder back to a model. Only registered classes are ever imported: a file cannot name code to run."""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, ModelFormatError
from tagwise.persistence.folder import read_model
from tagwise.persistence.manifest import ModelRecord
from tagwise.persistence.upgrade import upgraded
from tagwise.registry import MODELS, SAVED_CLASSES

__all__ = [
    "load",
    "model_from_parts",
    "require_dense",
    "require_finite_floats",
    "require_same",
    "require_sparse",
    "storable_parameters",
]


def load(path: str | PathLike[str]) -> Any:
    """Read a model or a tagger that was written by its ``save``.

    Parameters
    ----------
    path : path
        The model folder.

    Returns
    -------
    The fitted model, of the class it had, or the :class:`tagwise.Tagger`; it predicts bit-identically to the saved one.

    Raises
    ------
    ModelFormatError
        The folder is missing, incomplete, damaged or not a model of tagwise. No code from the folder is ever run.
    """
    record = read_model(path)
    try:
        if record.class_name in SAVED_CLASSES:
            module = import_module(SAVED_CLASSES[record.class_name])
            return getattr(module, record.class_name).from_parts(upgraded(record))
        return model_from_parts(record)
    except ModelFormatError as error:
        raise ModelFormatError(f"{path}: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        raise ModelFormatError(f"{path}: the content does not fit {record.class_name}: {error}") from None


def model_from_parts(record: ModelRecord) -> Any:
    """The fitted model that a record describes, by ``from_parts`` (and with its errors) of the registered class."""
    known = {info.class_name: info for info in MODELS}
    if record.class_name not in known:
        raise ModelFormatError(
            f"the manifest names the class {record.class_name!r}, which this version of tagwise does not "
            f"know; it knows {', '.join(sorted(known))}."
        )
    return known[record.class_name].load_class().from_parts(upgraded(record))


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


# ---------------------------------------------------------------------- arrays of a loaded model


def require_dense(n_dimensions: int, **arrays: Any) -> None:
    """Raise ValueError unless all are dense arrays of this many dimensions."""
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.ndim != n_dimensions:
            raise ValueError(f"{name} must be a dense array of {n_dimensions} dimensions; found {_described(array)}")


def require_sparse(**matrices: Any) -> None:
    """Raise ValueError unless all are sparse matrices."""
    for name, matrix in matrices.items():
        if not sp.issparse(matrix):
            raise ValueError(f"{name} must be a sparse matrix; found {_described(matrix)}")


def require_finite_floats(**arrays: Any) -> None:
    """Raise ValueError unless all, dense or sparse, hold finite numbers of one floating type."""
    first = next(iter(arrays.values()))
    for name, array in arrays.items():
        if array.dtype.kind != "f" or array.dtype != first.dtype:
            raise ValueError(f"{', '.join(arrays)} must share one floating type; {name} has {array.dtype}")
        if not np.isfinite(array.data if sp.issparse(array) else array).all():
            raise ValueError(f"{name} holds NaN or infinity")


def _described(array: Any) -> str:
    return f"a {'sparse' if sp.issparse(array) else 'dense'} array of shape {array.shape}"
