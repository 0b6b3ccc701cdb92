"""The estimators that a configuration may name, and their parameters for a cell."""

from __future__ import annotations

import inspect
import re
from typing import Any

from tagwise.exceptions import InvalidInputError
from tagwise.registry import MODELS

__all__ = ["METHOD_CLASSES", "make_model", "resolve_parameters"]

METHOD_CLASSES = {info.class_name: info for info in MODELS}
_SHARE = re.compile(r"(?P<percent>[0-9.]+)% of (?P<of>labels|features)")


def make_model(name: str, parameters: dict[str, Any], *, seed: int, threads: int) -> Any:
    """An unfitted model; the seed goes to those that draw random numbers."""
    kind = METHOD_CLASSES[name].load_class()
    accepted = inspect.signature(kind).parameters
    unknown = sorted(set(parameters) - set(accepted))
    if unknown:
        raise InvalidInputError(f"{name} has no parameter {', '.join(unknown)}; it has {', '.join(accepted)}.")
    seeded = {"random_state": seed} if "random_state" in accepted else {}
    return kind(**{**seeded, **parameters}, n_jobs=threads)


def resolve_parameters(
    parameters: dict[str, Any], settings: dict[str, Any], *, n_labels: int, n_features: int
) -> dict[str, Any]:
    """Fill in settings (``$name``), and numbers for ``"20% of labels"`` and ``"20% of features"`` (at least 1)."""
    sizes = {"labels": n_labels, "features": n_features}
    resolved = {}
    for name, value in parameters.items():
        filled = _filled(value, settings) if isinstance(value, str) else value
        match = _SHARE.fullmatch(filled) if isinstance(filled, str) else None
        if match:
            filled = max(1, round(float(match["percent"]) / 100 * sizes[match["of"]]))
        resolved[name] = filled
    return resolved


def _filled(value: str, settings: dict[str, Any]) -> Any:
    for setting, chosen in settings.items():
        if value == f"${setting}":
            return chosen
        value = value.replace(f"${setting}", str(chosen))
    if "$" in value:
        raise InvalidInputError(f"{value!r} names a setting that the cell does not have; it has {sorted(settings)}.")
    return value
