"""From a model folder back to a model. Only registered classes are ever imported: a file cannot name code to run."""

from __future__ import annotations

import inspect
from os import PathLike
from typing import Any

import numpy as np

from tagwise.base import MultiLabelModel
from tagwise.exceptions import ModelFormatError
from tagwise.persistence import ModelRecord, read_model
from tagwise.persistence.upgrade import upgraded
from tagwise.registry import MODELS

__all__ = ["INDEX_CLASS", "TAGGER_CLASS", "load", "require_same", "restored_model"]

TAGGER_CLASS = "Tagger"
"""What the manifest of a tagger's folder names: texts to tags, with a model inside."""

INDEX_CLASS = "ApproximateIndex"
"""What the manifest of an index's folder names; an index is read together with its model, not by :func:`load`."""


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
    if record.class_name == INDEX_CLASS:
        raise ModelFormatError(f"{path} holds an index, no model; read it with ApproximateIndex.load(path, model).")
    try:
        if record.class_name == TAGGER_CLASS:
            from tagwise.text.tagger import Tagger

            return Tagger.from_parts(record)
        return restored_model(record)
    except ModelFormatError as error:
        raise ModelFormatError(f"{path}: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        raise ModelFormatError(f"{path}: the content does not fit {record.class_name}: {error}") from None


def restored_model(record: ModelRecord) -> MultiLabelModel:
    """The fitted model that a record describes.

    Raises
    ------
    ModelFormatError, KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, MemoryError
        The record names an unknown class, or its content is none that the class has.
    """
    known = {info.class_name: info for info in MODELS}
    if record.class_name not in known:
        raise ModelFormatError(
            f"the manifest names the class {record.class_name!r}, which this version of tagwise does not "
            f"know; it knows {', '.join(sorted(known))}."
        )
    record = upgraded(record)
    model_class: type[MultiLabelModel] = known[record.class_name].load_class()
    accepted = set(inspect.signature(model_class.__init__).parameters) - {"self"}
    require_same("parameters", set(record.parameters), accepted)
    common = {"n_features_in_", "n_labels_", "history_", "output_format"}
    require_same("values", set(record.values) - {"feature_names_in_"}, common | set(model_class._saved_values))

    model = model_class(**record.parameters)
    model._check_all_parameters()
    require_same("tensors", set(record.tensors), set(model._fitted_arrays()))
    for name, tensor in record.tensors.items():
        setattr(model, name, tensor)
    for name in model_class._saved_values:
        setattr(model, name, record.values[name])
    model.n_features_in_ = _count(record, "n_features_in_")
    model.n_labels_ = _count(record, "n_labels_")
    # Before anything of the size that the manifest claims is made: the claim must agree with the tensors.
    model._check_restored()
    model._prepare_answers()
    model.classes_ = np.arange(model.n_labels_)
    model.label_names_ = record.label_names
    if record.label_names is not None and len(record.label_names) != model.n_labels_:
        raise ValueError(f"{len(record.label_names)} label names for {model.n_labels_} labels")
    if "feature_names_in_" in record.values:
        model.feature_names_in_ = _feature_names(record.values["feature_names_in_"], model.n_features_in_)
    model._output_format = _output_format(record.values["output_format"])
    model.history_ = record.values["history_"]
    model.objective_ = np.array([float(info["objective"]) for info in model.history_])
    model.n_iter_ = len(model.history_)
    return model


def _output_format(value: Any) -> tuple[str, np.dtype]:
    kind, dtype = value
    if kind not in ("csr_matrix", "csr_array", "dense"):
        raise ValueError(f"output_format {kind!r}")
    parsed = np.dtype(str(dtype))
    if parsed.kind not in "biuf":
        raise ValueError(f"labels of type {dtype!r}")
    return kind, parsed


def _feature_names(value: Any, n_features: int) -> np.ndarray:
    if not isinstance(value, list) or len(value) != n_features or not all(isinstance(name, str) for name in value):
        raise ValueError(f"feature_names_in_ must be a list of {n_features} names")
    return np.array(value, dtype=object)


def _count(record: ModelRecord, name: str) -> int:
    value = record.values[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r} where a number of at least 1 is expected")
    return value


def require_same(what: str, found: set[str], expected: set[str]) -> None:
    """Raise ValueError unless two sets of names are equal."""
    if found != expected:
        missing, extra = sorted(expected - found), sorted(found - expected)
        raise ValueError(f"{what} missing: {missing}, unexpected: {extra}")
