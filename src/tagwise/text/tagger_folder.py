"""A tagger as one record of a model folder, and back; ``docs/model-format.md`` describes it."""

from __future__ import annotations

import inspect
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import clone

from tagwise.base import storable_parameters
from tagwise.inspection.calibration import Calibration
from tagwise.models.choice import ModelChoice
from tagwise.persistence import ModelRecord
from tagwise.persistence.loading import TAGGER_CLASS, require_same, restored_model
from tagwise.persistence.record import Tensor
from tagwise.text.tagger import Tagger
from tagwise.text.tfidf import TextFeatures

__all__ = ["restored_tagger", "tagger_record"]

_PARTS = ("features", "model", "calibration")
_COUNTS = (
    "rows",
    "features",
    "words",
    "tags",
    "assignments",
    "known_without_rows",
    "rows_without_words",
    "rows_without_tags",
)


def tagger_record(tagger: Tagger) -> ModelRecord:
    """What the folder of a fitted tagger holds."""
    inner = tagger.model_._to_record()
    given = tagger.get_params(deep=False)
    # An estimator that was handed in is the inner model as it was before the fit; the folder has it already.
    name = given.pop("model")
    parameters = {"model": name if isinstance(name, str) else None, **storable_parameters(given)}
    calibration = tagger.calibration_
    tensors: dict[str, Tensor] = {f"features.{key}": array for key, array in tagger.features_.saved_arrays().items()}
    tensors |= {f"model.{key}": array for key, array in inner.tensors.items()}
    if calibration is not None:
        tensors |= {f"calibration.{key}": array for key, array in calibration.saved_arrays().items()}
    choice = tagger.choice_
    return ModelRecord(
        class_name=TAGGER_CLASS,
        parameters=parameters,
        tensors=tensors,
        values={
            "model": {"class": inner.class_name, "parameters": inner.parameters, "values": inner.values},
            "choice": {"name": choice.name, "parameters": dict(choice.parameters), "reason": choice.reason},
            "training": tagger.training_,
            "calibration": None if calibration is None else calibration.saved_values(),
        },
        label_names=tagger.tags_,
    )


def restored_tagger(record: ModelRecord) -> Tagger:
    """The fitted tagger that a record describes.

    Raises
    ------
    ModelFormatError, KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, MemoryError
        The record's parts are none of a tagger, or do not fit together.
    """
    values, parts = record.values, _parts(record.tensors)
    require_same("parameters", set(record.parameters), set(inspect.signature(Tagger.__init__).parameters) - {"self"})
    require_same("values", set(values), {"model", "choice", "training", "calibration"})
    tags = _checked_tags(record.label_names)
    features = TextFeatures.restored(
        {name: record.parameters[name] for name in ("min_df", "max_features", "characters")}, parts["features"]
    )
    require_same("values of the model", set(values["model"]), {"class", "parameters", "values"})
    inner = values["model"]
    model = restored_model(ModelRecord(inner["class"], inner["parameters"], parts["model"], inner["values"]))
    if (model.n_features_in_, model.n_labels_) != (len(features.feature_names), len(tags)):
        raise ValueError(
            f"a model of {model.n_features_in_} features and {model.n_labels_} labels for "
            f"{len(features.feature_names)} terms and {len(tags)} tags"
        )
    calibration = None
    if values["calibration"] is not None:
        calibration = Calibration.restored(values["calibration"], parts["calibration"], len(tags))
    elif parts["calibration"]:
        raise ValueError("arrays of a calibration that there is none of")
    given = {**record.parameters}
    if given["model"] is None:
        given["model"] = clone(model)
    tagger = Tagger(**given)
    tagger._check_parameters()
    choice, training = _checked_choice(values["choice"]), _checked_training(values["training"], len(tags))
    return tagger._set_fitted(tags, features, model, choice, training, calibration)


def _parts(tensors: dict[str, Tensor]) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {name: {} for name in _PARTS}
    for name, tensor in tensors.items():
        part, _, key = name.partition(".")
        if part not in parts or not key:
            raise ValueError(f"tensor {name!r} belongs to no part of a tagger")
        parts[part][key] = tensor
    return parts


def _checked_tags(names: list[str] | None) -> list[str]:
    if not names or not all(first < second for first, second in pairwise(names)):
        raise ValueError("label_names of a tagger must be different names in sorted order")
    return names


def _checked_choice(value: Any) -> ModelChoice:
    require_same("values of the choice", set(value), {"name", "parameters", "reason"})
    name, parameters, reason = value["name"], value["parameters"], value["reason"]
    if not isinstance(name, str) or not isinstance(reason, str) or not isinstance(parameters, dict):
        raise ValueError("the choice must have a name, parameters and a reason")
    return ModelChoice(name, parameters, reason)


def _checked_training(value: Any, n_tags: int) -> dict[str, Any]:
    require_same("values of the training", set(value), {*_COUNTS, "known_pairs", "tag_rows", "seconds"})
    counts = [value[name] for name in _COUNTS] + ([] if value["known_pairs"] is None else [value["known_pairs"]])
    if not all(type(count) is int and count >= 0 for count in counts) or type(value["seconds"]) is not float:
        raise ValueError("training must hold counts of at least 0, and seconds")
    tag_rows = value["tag_rows"]
    if not isinstance(tag_rows, np.ndarray) or tag_rows.dtype != np.int64 or tag_rows.shape != (n_tags,):
        raise ValueError(f"tag_rows must be {n_tags} counts")
    if (tag_rows < 0).any() or (tag_rows > value["rows"]).any():
        raise ValueError("tag_rows must be counts of rows")
    return dict(value)
