"""Folders of earlier versions: parameters and arrays that had another name are given today's.

A renamed constructor parameter, fitted value or tensor needs a row here and nothing else; the folders under
``tests/persistence/golden`` show that each class of an earlier version still loads and answers as it did.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tagwise.persistence.record import ModelRecord

__all__ = ["upgraded"]

_RENAMED: dict[str, dict[str, str]] = {
    "Cascade": {"likeness": "prototype_weight"},
    "CompressedSensing": {"sparsity": "n_nonzero", "sparsity_": "n_nonzero_"},
    "FastXML": {"cost": "C"},
    "LPSR": {"centres_": "centers_"},
    "SLEEC": {"centres_": "centers_"},
}
"""Class → earlier name of a parameter, value or tensor → today's name; in dictionaries within values too."""


def upgraded(record: ModelRecord) -> ModelRecord:
    """The record with the names of this version; as it is where it has them already."""
    names = _RENAMED.get(record.class_name, {})
    return replace(
        record,
        parameters=_renamed(record.parameters, names),
        values=_renamed(record.values, names),
        tensors=_renamed(record.tensors, names),
    )


def _renamed(entries: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """An entry whose new name is taken keeps its old one, which the reader then refuses."""
    return {
        names[key] if key in names and names[key] not in entries else key: _renamed(value, names)
        if isinstance(value, dict)
        else value
        for key, value in entries.items()
    }
