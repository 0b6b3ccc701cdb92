"""From a model folder back to a model, folders of earlier versions included.

Only registered classes are ever imported: a file cannot name code to run. A renamed constructor parameter, fitted value
or tensor needs a row in ``_RENAMED``; the folders under ``tests/persistence/golden`` show that each class of an earlier
version still loads and answers as it did.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, ModelFormatError
from tagwise.persistence.folder import ModelRecord, read_model
from tagwise.registry import MODELS, SAVED_CLASSES
from tagwise.validation import all_finite, check_integer

__all__ = [
    "load",
    "model_from_parts",
    "require_dense",
    "require_finite_floats",
    "require_same",
    "require_sparse",
    "storable_parameters",
]


_UPDATABLE = {"Tagger", *(info.class_name for info in MODELS if info.updatable)}
"""Classes with a parameter ``updatable``, which 0.1.0 did not have."""
_PROPOSER_PARAMETERS = ("rank", "reg_low_rank", "support", "max_iter", "tol", "normalize", "memory_limit", "n_jobs")
_READ_BLOCKS = ("LEML", "REML", "BinaryRelevance", "Cascade")
_PRODUCT_PARAMETERS = ("slope", "exponent", "prototype_weight")
_PROPOSER_TENSORS = ("feature_factors_", "label_factors_", "intercept_", "sparse_weights_")

_RENAMED: dict[str, dict[str, str]] = {
    "BinaryRelevance": {"coef_": "feature_weights_"},
    "Cascade": {"likeness": "prototype_weight"},
    "CompressedSensing": {"sparsity": "n_nonzero", "sparsity_": "n_nonzero_"},
    "FastXML": {"cost": "C"},
    "LPSR": {"centres_": "centers_"},
    "SLEEC": {"centres_": "centers_"},
}
"""Class → earlier name of a parameter, value or tensor → today's name; in dictionaries within values too."""

_ADDED: dict[str, dict[str, Any]] = {
    "BayesianCS": {"posterior": "factored"},
    "MDDM": {"beyond": "stop", "random_state": 0},
    "MSE": {"scale": "none"},
}
"""Class → parameter that folders of 0.1.0 lack → the value that means what they did."""


def load(path: str | PathLike[str], *, mapped: bool = False) -> Any:
    """Read a model or a tagger that was written by its ``save``.

    Parameters
    ----------
    path : path
        The model folder.
    mapped : bool
        Leave the tensors in their file, of which processes that load the same folder share one copy in memory. They
        are checked once: nobody may write into the file while the model is used. ``save`` does not.

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
                return getattr(module, record.class_name).from_parts(_upgraded(record))
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
    return known[record.class_name].load_class().from_parts(_upgraded(record))


# ---------------------------------------------------------------------- folders of earlier versions


def _upgraded(record: ModelRecord) -> ModelRecord:
    """The record of an earlier version with the names and parts of this one."""
    names = _RENAMED.get(record.class_name, {})
    record = replace(
        record,
        parameters=_ADDED.get(record.class_name, {}) | _renamed(record.parameters, names),
        values=_renamed(record.values, names),
        tensors=_renamed(record.tensors, names),
    )
    if record.class_name in _UPDATABLE:
        record = replace(record, parameters={"updatable": False, **record.parameters})
    if record.class_name == "Tagger":
        values = dict(record.values)
        if isinstance(values.get("training"), dict):
            values["training"] = {"named_tags": 0} | values["training"]
        parameters: dict[str, Any] = {"unlisted": "off", "vocabulary": None, "normalise_tags": False, "embedder": None}
        parameters |= record.parameters
        values = {"tag_type": "str", "output_format": None, "reference": None} | values
        if "min_df" in parameters:  # until 0.2.0, a tagger had parameters of its features among its own
            own: dict[str, Any] = {name: parameters.pop(name) for name in ("min_df", "max_features", "characters")}
            own |= {"max_df": 1.0, "bigrams": False, "sublinear_tf": True}
            parameters["features"] = None
            values["features"] = {"class": "TextFeatures", "parameters": own}
        record = replace(record, parameters=parameters, values=values)
    if record.class_name == "MSE" and "chosen_" not in record.values:
        n_features = check_integer(record.values["n_features_in_"], "n_features_in_", minimum=1)
        ones = np.ones(n_features, dtype=record.tensors["subspaces_"].dtype)
        record = replace(
            record,
            values=record.values | {"chosen_": {}},
            tensors={"feature_scales_": ones, **record.tensors},
        )
    if record.class_name == "Cascade" and "rank_" in record.values:
        record = _with_proposer(record)
    if record.class_name == "Cascade" and "chosen_" in record.values:
        record = _with_product(record)
    if record.class_name == "LPSR" and "scorer_" not in record.values:
        record = _with_scorer(record)
    return _with_blocks(record)


def _with_blocks(record: ModelRecord) -> ModelRecord:
    """Until 0.2.0, no model had a dense block of features beside a sparse one; then names had none for a while."""
    if record.class_name == "Cascade" and "dense_prototypes_" in record.tensors:
        no_names = record.tensors["dense_prototypes_"][:, :0]
        record = replace(record, tensors={"name_meanings_": no_names, **record.tensors})
    if record.class_name not in _READ_BLOCKS or "dense_weight" in record.parameters:
        return record
    return replace(record, parameters=record.parameters | {"dense_weight": 1.0})


def _with_proposer(record: ModelRecord) -> ModelRecord:
    """Until 0.1.0, the arrays of a cascade's proposer, a REML on supports, stood among its own."""
    own, values, tensors = record.parameters, dict(record.values), dict(record.tensors)
    chosen = values["chosen_"]
    parameters = {name: own[name] for name in _PROPOSER_PARAMETERS} | {
        "random_state": own["random_state"],
        "reg_sparse": chosen["reg_sparse"],
        "positive_weight": chosen["positive_weight"],
        "sparse_part": "support",
        "sparsity": 0.01,
        "partitions": 1,
        "prune": 0.02,
        "fit_intercept": True,
        "inner_iter": 1,
        "verbose": 0,
    }
    shared = {name: values[name] for name in ("n_features_in_", "n_labels_", "output_format")}
    proposer = ModelRecord(
        class_name="REML",
        parameters=parameters,
        tensors={name: tensors.pop(name) for name in _PROPOSER_TENSORS},
        values=shared | {"history_": values["history_"][:-1], "rank_": values.pop("rank_"), "sparse_part_": "support"},
    )
    return replace(record, values=values, tensors=tensors).with_model("proposer_", proposer)


def _with_product(record: ModelRecord) -> ModelRecord:
    """Until 0.1.0, a cascade multiplied opinions by chosen constants; it learnt neither a fusion nor co-occurrence."""
    parameters, values = dict(record.parameters), dict(record.values)
    chosen, n_labels = values.pop("chosen_"), values["n_labels_"]
    values.pop("validation_")
    for name in _PRODUCT_PARAMETERS:
        parameters.pop(name)
    a, b = chosen["calibration"]
    values["product_"] = {name: chosen[name] for name in _PRODUCT_PARAMETERS} | {"a": a, "b": b}
    values["n_rows_"] = 1
    check_integer(n_labels, "n_labels_", minimum=1)
    nothing = {
        "label_frequency_": np.zeros(n_labels, dtype=np.int64),
        "name_rows_": np.zeros(n_labels, dtype=np.int64),
        "cooccurrence_": sp.csr_matrix((n_labels, n_labels), dtype=np.int32),
        "name_weights_": sp.csr_matrix((n_labels, values["n_features_in_"]), dtype=record.tensors["prototypes_"].dtype),
        "fusion_own_": np.zeros(0),
        "fusion_context_": np.zeros(0),
        "fusion_level_": np.zeros(0),
        "fusion_unseen_": np.zeros(0),
    }
    parameters |= {"refit": "auto", "unlisted": "off"}
    return replace(record, parameters=parameters, values=values, tensors=record.tensors | nothing)


def _with_scorer(record: ModelRecord) -> ModelRecord:
    """Until 0.1.0, the arrays of LPSR's base scorer stood among its own."""
    own, values, tensors = record.parameters, record.values, dict(record.tensors)
    parameters = {"normalize": own["normalize"], "n_jobs": own["n_jobs"], "verbose": 0}
    if own["base"] == "wsabie":
        class_name, names = "WSABIE", ["feature_factors_", "label_factors_", "intercept_"]
        parameters |= {"rank": own["rank"], "learning_rate": 0.03, "max_iter": 30, "max_norm": 10.0, "max_trials": 100}
        parameters |= {"deterministic": True, "random_state": 0}
    else:
        class_name, names = "BinaryRelevance", ["coef_", "intercept_"]
        parameters |= {"loss": own["base"], "reg": own["reg"], "max_iter": 200, "positive_weight": 1.0, "tol": 1e-3}
        parameters |= {"fit_intercept": True, "solver": "auto", "memory_limit": 2**32}
    shared = {name: values[name] for name in ("n_features_in_", "n_labels_", "output_format")}
    arrays = {name: tensors.pop(name) for name in names}
    scorer = ModelRecord(class_name, parameters, arrays, shared | {"history_": values["history_"][:1]})
    return replace(record, tensors=tensors).with_model("scorer_", scorer)


def _renamed(entries: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """An entry whose new name is taken keeps its old one, which the reader then refuses."""
    return {
        names[key] if key in names and names[key] not in entries else key: _renamed(value, names)
        if isinstance(value, dict)
        else value
        for key, value in entries.items()
    }


# ---------------------------------------------------------------------- what a model saves and checks


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
    """Raise ValueError unless all, dense or sparse, hold finite numbers of one floating type, float32 or float64."""
    first = next(iter(arrays.values()))
    for name, array in arrays.items():
        if array.dtype not in (np.float32, np.float64) or array.dtype != first.dtype:
            raise ValueError(f"{', '.join(arrays)} must share one type, float32 or float64; {name} has {array.dtype}")
        if not all_finite(array.data if sp.issparse(array) else array):
            raise ValueError(f"{name} holds NaN or infinity")


def _described(array: Any) -> str:
    return f"a {'sparse' if sp.issparse(array) else 'dense'} array of shape {array.shape}"
