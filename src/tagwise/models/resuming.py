"""Which fit a checkpoint belongs to, and a fitted model as a stage of another one's fit."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from tagwise.base import MultiLabelModel, storable_parameters
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.persistence import Checkpoint, ModelRecord
from tagwise.persistence.checkpoints import OpenCheckpoint, SavedState
from tagwise.persistence.fit_identity import FitIdentity
from tagwise.persistence.loading import restored_model

__all__ = ["FittedStage", "open_checkpoint", "restored_stage"]

# The result does not depend on them.
_NOT_OF_THE_FIT = ("n_jobs", "verbose")

Model = TypeVar("Model", bound=MultiLabelModel)


def open_checkpoint(
    checkpoint: Any,
    model: MultiLabelModel,
    X: sp.csr_matrix | np.ndarray,
    Y: sp.csr_matrix,
    observed: sp.csr_matrix | None,
) -> OpenCheckpoint:
    """The checkpoint, opened for the fit of a model to checked data.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        It is no checkpoint; or a later run could not repeat what this fit does.
    """
    if not isinstance(checkpoint, Checkpoint):
        raise InvalidTypeError(
            f"checkpoint must be a tagwise.persistence.Checkpoint or None; found {checkpoint!r:.60}."
        )
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name not in _NOT_OF_THE_FIT}
    for name, value in parameters.items():
        if name == "random_state" and not isinstance(value, (int, np.integer)):
            raise InvalidInputError(
                "checkpoint needs random_state to be a whole number, so that a later run draws the same; found "
                f"{value!r:.60}."
            )
        if callable(value):
            raise InvalidInputError(
                f"checkpoint: {name} is a function, of which a later run could not tell whether it is the same; use a "
                "named one, or leave checkpoint out."
            )
    data = {"X": X, "Y": Y, "observed": observed, **model._goes_on_from()}
    return checkpoint.open(FitIdentity.of(type(model).__name__, storable_parameters(parameters), data))


class FittedStage:
    """A fitted model as the state of a finished stage of another one's fit."""

    def __init__(self, model: MultiLabelModel) -> None:
        self._model = model

    def arrays(self) -> dict[str, Any]:
        """What its folder would hold."""
        return self._model._to_record().tensors

    def values(self) -> dict[str, Any]:
        """What its folder would hold."""
        return self._model._to_record().values


def restored_stage(model: Model, saved: SavedState) -> Model:
    """The fitted model of a :class:`FittedStage`, given one with the same parameters that is not fitted yet."""
    parameters = storable_parameters(model.get_params(deep=False))
    restored = restored_model(ModelRecord(type(model).__name__, parameters, saved.arrays(), saved.values()))
    assert isinstance(restored, type(model))
    return restored
