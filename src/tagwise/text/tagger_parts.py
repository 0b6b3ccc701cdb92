"""What the folder of a tagger holds: features, model, tags, vocabulary, figures, calibration and reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from tagwise.base import MultiLabelModel, saved_output_format
from tagwise.inspection.calibration import Calibration
from tagwise.inspection.drift import Profile
from tagwise.models.choice import ModelChoice
from tagwise.persistence import ModelRecord
from tagwise.persistence.loading import model_from_parts, require_same, storable_parameters
from tagwise.persistence.tensors import Tensor
from tagwise.text.embeddings import EmbeddedFeatures
from tagwise.text.features import TextFeatures
from tagwise.text.updating import UpdatableTagger
from tagwise.text.vectorizers import FITTED_FEATURES, features_from_parts, features_to_parts
from tagwise.validation import check_choice, check_integer

__all__ = ["TaggerState", "parts_of", "read_parts"]

# Arrays of a folder, by what they belong to; what folders of version 0.1.0 lack; and the counts of ``training_``.
_PARTS = ("features", "calibration", "reference")
_LATER_VALUES = ("features", "tag_type", "output_format", "reference")
_COUNTS = (
    "rows",
    "features",
    "words",
    "tags",
    "assignments",
    "known_without_rows",
    "rows_without_words",
    "rows_without_tags",
    "named_tags",
)


class TaggerState(NamedTuple):
    """What a fit leaves in a tagger, in the order of its ``_set_fitted``."""

    tags: list[Any]
    features: FITTED_FEATURES
    model: MultiLabelModel
    choice: ModelChoice
    training: dict[str, Any]
    calibration: Calibration | None
    output_format: tuple[str, Any] | None
    reference: Profile | None


def parts_of(tagger: UpdatableTagger, vocabulary: Mapping[Any, tuple[Any, ...]]) -> ModelRecord:
    """The parts of a fitted tagger with this vocabulary: tag → name and alternative names."""
    given = tagger.get_params(deep=False)
    # Estimators that were handed in are the fitted ones as they were before the fit; the folder has these.
    parameters: dict[str, Any] = {}
    for name in ("model", "features", "embedder"):
        value = given.pop(name)
        parameters[name] = value if isinstance(value, str) else None
    given.pop("embedding_cache")  # a folder of this machine
    own = given.pop("vocabulary")
    parameters |= storable_parameters(given)
    # Two lists: the keys of a folder's objects cannot be any text.
    names = [called[0] for called in vocabulary.values()] if isinstance(own, Mapping) else None
    parameters["vocabulary"] = None if own is None else {"tags": [str(tag) for tag in vocabulary], "names": names}
    if any(len(called) > 1 for called in vocabulary.values()):
        parameters["vocabulary"]["alternatives"] = [list(called[1:]) for called in vocabulary.values()]
    calibration, arrays = (None, {}) if tagger.calibration_ is None else tagger.calibration_.to_parts()
    reference, counts = (None, {}) if tagger.reference_ is None else tagger.reference_.to_parts()
    features, terms = features_to_parts(tagger.features_)
    tensors: dict[str, Tensor] = {f"features.{key}": array for key, array in terms.items()}
    tensors |= {f"calibration.{key}": array for key, array in arrays.items()}
    tensors |= {f"reference.{key}": array for key, array in counts.items()}
    record = ModelRecord(
        class_name="Tagger",
        parameters=parameters,
        tensors=tensors,
        values={
            "choice": asdict(tagger.choice_),
            "training": tagger.training_,
            "calibration": calibration,
            "reference": reference,
            "features": features,
            "tag_type": "int" if isinstance(tagger.tags_[0], int) else "str",
            "output_format": None
            if tagger._output_format is None
            else [tagger._output_format[0], np.dtype(tagger._output_format[1]).str],
        },
        label_names=[str(tag) for tag in tagger.tags_],
    )
    return record.with_model("model", tagger.model_.to_parts())


def read_parts(record: ModelRecord) -> tuple[dict[str, Any], TaggerState]:
    """The parameters and the state of the tagger that the parts are of; checked one by one, and together."""
    inner, record = record.split_model("model")
    values, parts = record.values, _split_parts(record.tensors)
    require_same("values", set(values), {"choice", "training", "calibration", *_LATER_VALUES})
    tags = _checked_tags(record.label_names, values["tag_type"])
    features = features_from_parts(values["features"], parts["features"])
    model = model_from_parts(inner)
    if (model.n_features_in_, model.n_labels_) != (len(features.feature_names), len(tags)):
        raise ValueError(
            f"a model of {model.n_features_in_} features and {model.n_labels_} labels for "
            f"{len(features.feature_names)} terms and {len(tags)} tags"
        )
    calibration = None
    if values["calibration"] is not None:
        calibration = Calibration.from_parts(values["calibration"], parts["calibration"], len(tags))
    elif parts["calibration"]:
        raise ValueError("arrays of a calibration, but no calibration")
    reference = None
    if values["reference"] is not None:
        reference = Profile.from_parts(values["reference"], parts["reference"], len(tags))
    elif parts["reference"]:
        raise ValueError("arrays of a reference, but no reference")
    vocabulary = _restored_vocabulary(record.parameters["vocabulary"], values["tag_type"])
    parameters = {**record.parameters, "vocabulary": vocabulary}
    # Estimators that were handed in are not stored as such; the fitted ones say how they were set.
    if parameters["model"] is None:
        parameters["model"] = clone(model)
    if parameters["features"] is None:
        words = features.words if isinstance(features, EmbeddedFeatures) else features
        parameters["features"] = clone(words if isinstance(words, TextFeatures) else words.transformer)
    choice, training = _checked_choice(values["choice"]), _checked_training(values["training"], len(tags))
    output = None if values["output_format"] is None else saved_output_format(values["output_format"])
    return parameters, TaggerState(tags, features, model, choice, training, calibration, output, reference)


def _split_parts(tensors: dict[str, Tensor]) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {name: {} for name in _PARTS}
    for name, tensor in tensors.items():
        part, _, key = name.partition(".")
        if part not in parts or not key:
            raise ValueError(f"tensor {name!r} belongs to no part of a tagger")
        parts[part][key] = tensor
    return parts


def _checked_tags(names: list[str] | None, tag_type: Any) -> list[Any]:
    if not names or len(set(names)) < len(names):
        raise ValueError("label_names of a tagger must be different names")
    check_choice(tag_type, "tag_type", ("str", "int"))
    return [_whole(name) for name in names] if tag_type == "int" else names


def _whole(name: str) -> int:
    if len(name) > 20 or str(number := int(name)) != name:
        raise ValueError(f"the tag {name!r:.60} where a whole number is expected")
    return check_integer(number, "tag")


def _restored_vocabulary(value: Any, tag_type: str) -> list[Any] | dict[Any, Any] | None:
    if value is None:
        return None
    alternatives = value.get("alternatives")
    require_same("values of the vocabulary", set(value) - {"alternatives"}, {"tags", "names"})
    tags, names = value["tags"], value["names"]
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags) or len(set(tags)) < len(tags):
        raise ValueError("the vocabulary must be a list of different tags")
    if tag_type == "int":
        tags = [_whole(tag) for tag in tags]
    if names is None:
        return tags
    if not isinstance(names, list) or len(names) != len(tags):
        raise ValueError("the vocabulary must have a name for each tag, or none")
    if alternatives is None:
        return dict(zip(tags, names))
    if not isinstance(alternatives, list) or len(alternatives) != len(tags):
        raise ValueError("the vocabulary must have alternative names for each tag, or none")
    if not all(isinstance(others, list) for others in alternatives):
        raise ValueError("alternative names of the vocabulary must be lists")
    return {tag: [name, *others] if others else name for tag, name, others in zip(tags, names, alternatives)}


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
