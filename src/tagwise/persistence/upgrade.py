"""Folders of earlier versions: parameters and arrays that had another name are given today's.

A renamed constructor parameter, fitted value or tensor needs a row here and nothing else; the folders under
``tests/persistence/golden`` show that each class of an earlier version still loads and answers as it did.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tagwise.persistence.manifest import ModelRecord

__all__ = ["upgraded"]

_PROPOSER_PARAMETERS = (
    "rank",
    "reg_low_rank",
    "support",
    "max_iter",
    "tol",
    "normalize",
    "memory_limit",
    "n_jobs",
    "random_state",
)
_PROPOSER_TENSORS = ("feature_factors_", "label_factors_", "intercept_", "sparse_weights_")

_RENAMED: dict[str, dict[str, str]] = {
    "Cascade": {"likeness": "prototype_weight"},
    "CompressedSensing": {"sparsity": "n_nonzero", "sparsity_": "n_nonzero_"},
    "FastXML": {"cost": "C"},
    "LPSR": {"centres_": "centers_"},
    "SLEEC": {"centres_": "centers_"},
}
"""Class → earlier name of a parameter, value or tensor → today's name; in dictionaries within values too."""


def upgraded(record: ModelRecord) -> ModelRecord:
    """The record with the names and parts of this version; as it is where it has them already."""
    names = _RENAMED.get(record.class_name, {})
    record = replace(
        record,
        parameters=_renamed(record.parameters, names),
        values=_renamed(record.values, names),
        tensors=_renamed(record.tensors, names),
    )
    if record.class_name == "Cascade" and "rank_" in record.values:
        return _with_proposer(record)
    return record


def _with_proposer(record: ModelRecord) -> ModelRecord:
    """Until 0.1.0, the arrays of a cascade's proposer, a REML on supports, stood among its own."""
    own, values, tensors = record.parameters, dict(record.values), dict(record.tensors)
    chosen = values["chosen_"]
    parameters = {name: own[name] for name in _PROPOSER_PARAMETERS} | {
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


def _renamed(entries: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """An entry whose new name is taken keeps its old one, which the reader then refuses."""
    return {
        names[key] if key in names and names[key] not in entries else key: _renamed(value, names)
        if isinstance(value, dict)
        else value
        for key, value in entries.items()
    }
