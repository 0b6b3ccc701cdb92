"""What is chosen for a cascade: by its parameters, or by validation rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tagwise.exceptions import InvalidInputError
from tagwise.models.cascade.combination import Combination
from tagwise.models.positive_weight import PositiveWeight, check_positive_weight
from tagwise.validation import check_integer, check_real

__all__ = ["CascadeChoice", "check_prototype_weight"]


@dataclass(frozen=True)
class CascadeChoice:
    """What validation rows may decide in a cascade."""

    positive_weight: PositiveWeight
    reg_sparse: float
    hard_negatives: int
    C: float
    combination: Combination

    def as_values(self) -> dict[str, Any]:
        """Plain values, as models keep them."""
        own = {name: getattr(self, name) for name in _OWN}
        return (
            own
            | {name: getattr(self.combination, name) for name in _COMBINED}
            | {"calibration": list(self.combination.calibration)}
        )

    @classmethod
    def from_values(cls, values: Any) -> CascadeChoice:
        """The inverse of :meth:`as_values`; raises ValueError for values that cannot have come from it."""
        names = (*_OWN, *_COMBINED)
        if not isinstance(values, dict) or set(values) != set(names):
            raise ValueError(f"chosen_ must hold {', '.join(names)}")
        calibration = values["calibration"]
        if not isinstance(calibration, list) or len(calibration) != 2:
            raise ValueError("calibration must hold two numbers")
        check_real(calibration[0], "calibration", minimum=0, open_minimum=True)
        check_real(calibration[1], "calibration")
        check_positive_weight(values["positive_weight"])
        check_integer(values["hard_negatives"], "hard_negatives", minimum=1)
        for name in ("reg_sparse", "C", "slope"):
            check_real(values[name], name, minimum=0, open_minimum=True)
        for name in ("exponent", "prototype_weight"):
            check_real(values[name], name, minimum=0)
        combined = {name: values[name] for name in _COMBINED} | {"calibration": tuple(calibration)}
        return cls(**{name: values[name] for name in _OWN}, combination=Combination(**combined))


_OWN = tuple(field.name for field in fields(CascadeChoice) if field.name != "combination")
_COMBINED = tuple(field.name for field in fields(Combination))


def check_prototype_weight(prototype_weight: Any) -> None:
    """Raise InvalidInputError unless it is a number of at least 0 or "auto"."""
    if isinstance(prototype_weight, str) and prototype_weight != "auto":
        raise InvalidInputError(f'prototype_weight must be a number or "auto"; found {prototype_weight!r}.')
    if prototype_weight != "auto":
        check_real(prototype_weight, "prototype_weight", minimum=0)
