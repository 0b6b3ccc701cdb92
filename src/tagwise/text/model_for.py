"""The unfitted model that a tagger is to use: given, named, or chosen by the size of the problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.base import clone

from tagwise.base import MultiLabelModel
from tagwise.models.choice import ModelChoice, build_model, choose_model, model_info
from tagwise.registry import info_of
from tagwise.text.training import TrainingRows

__all__ = ["model_for"]


def model_for(
    model: str | MultiLabelModel, shape: tuple[int, int], rows: TrainingRows, shared: Mapping[str, Any]
) -> tuple[ModelChoice, MultiLabelModel]:
    """Which model, why, and the model itself.

    Parameters
    ----------
    model : str or unfitted model
        What the tagger was given: ``"auto"``, a name, or an estimator, of which a copy is made.
    shape : (rows, features)
    rows : TrainingRows
    shared : mapping
        Parameters that are handed to models that are not given as an estimator.
    """
    if not isinstance(model, str):
        name = info_of(type(model)).name
        return ModelChoice(name, {}, f"{name} was given as an estimator."), clone(model)
    if model.lower() == "auto":
        choice = choose_model(
            n_rows=shape[0],
            n_features=shape[1],
            n_labels=len(rows.tags),
            nnz_labels=int(rows.Y.nnz),
            masked=rows.observed is not None,
        )
    else:
        name = model_info(model).name
        choice = ModelChoice(name, {}, f"{name} was asked for.")
    return choice, build_model(choice.name, choice.parameters, **shared)
