"""The content of a model folder in memory: plain values and arrays, nothing that knows how to predict."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

__all__ = ["JSON", "ModelRecord", "Tensor"]

# None, bool, int (64 bits), float, str, list, dict with str keys; and, beyond JSON, tuple and Tensor. A
# recursive alias would say so to the type checker, but then every reader of a record would have to cast at
# every step.
JSON: TypeAlias = Any

Tensor: TypeAlias = np.ndarray | sp.csr_matrix


@dataclass(frozen=True)
class ModelRecord:
    """Everything that is needed to build a fitted model again.

    Parameters
    ----------
    class_name : str
        Name of the estimator class, such as ``"LEML"``. Reading a folder never imports or calls it: whoever
        reads looks the name up in a table of known classes.
    parameters : dict of str to JSON
        Constructor parameters. Beside JSON values, tuples, numpy scalars (which become Python numbers) and
        arrays or CSR matrices (stored as tensors) are allowed at any depth; NaN and infinities are kept.
    tensors : dict of str to ndarray or csr_matrix
        Fitted arrays.
    values : dict of str to JSON
        Small fitted values, of the same kinds as ``parameters``.
    label_names : list of str, optional
        One name a label, in label order.
    """

    class_name: str
    parameters: dict[str, JSON] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, JSON] = field(default_factory=dict)
    label_names: list[str] | None = None

    def with_model(self, name: str, inner: ModelRecord) -> ModelRecord:
        """The record with a fitted model in it; its tensors have ``name`` and a dot in front of their names."""
        tensors = {f"{name}.{key}": tensor for key, tensor in inner.tensors.items()}
        described = {"class": inner.class_name, "parameters": inner.parameters, "values": inner.values}
        return replace(self, tensors={**self.tensors, **tensors}, values={**self.values, name: described})

    def split_model(self, name: str) -> tuple[ModelRecord, ModelRecord]:
        """The inverse of :meth:`with_model`: the model, and the record without it.

        Raises
        ------
        KeyError, TypeError, ValueError
            There is no such model.
        """
        values = dict(self.values)
        described = values.pop(name)
        if not isinstance(described, dict) or set(described) != {"class", "parameters", "values"}:
            raise ValueError(f"{name} must hold class, parameters and values of a model")
        own, rest = {}, {}
        for key, tensor in self.tensors.items():
            prefix, dot, inner_name = key.partition(".")
            if dot and prefix == name:
                own[inner_name] = tensor
            else:
                rest[key] = tensor
        inner = ModelRecord(described["class"], described["parameters"], own, described["values"])
        return inner, replace(self, tensors=rest, values=values)
