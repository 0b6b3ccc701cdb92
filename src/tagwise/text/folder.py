"""The content of a tagger's folder: features, model, tags and figures as plain values and arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

from tagwise.answers import saved_output_format
from tagwise.exceptions import InvalidInputError
from tagwise.fields import Fields, dense, value
from tagwise.inspection.calibration import Calibration
from tagwise.inspection.drift import Profile
from tagwise.models.choice import ModelChoice
from tagwise.store import ModelRecord
from tagwise.store.folder import model_from_parts, require_same, storable_parameters
from tagwise.text.embeddings import EmbeddedFeatures, TextEmbedder
from tagwise.text.features import TextFeatures
from tagwise.text.vectorizers import FittedFeatures, TransformerFeatures
from tagwise.validation import check_choice, check_integer, check_real

__all__ = ["tagger_from_parts", "tagger_to_parts"]

_SAVED: Mapping[str, Any] = {
    "CountVectorizer": CountVectorizer,
    "HashingVectorizer": HashingVectorizer,
    "TfidfVectorizer": TfidfVectorizer,
}
"""The vectorizers of scikit-learn that a folder can hold: their parameters, terms and weights, never their code."""


_SAVED_VALUES = {"choice", "training", "tag_type", "output_format", "features", "calibration", "reference"}
_count = partial(check_integer, minimum=0)
_TRAINING = Fields(
    rows=value(_count, "Number of training rows."),
    features=value(_count, "Number of features."),
    words=value(_count, "Number of features that are words."),
    tags=value(_count, "Number of tags."),
    assignments=value(_count, "Number of pairs of a row and a tag that it has."),
    known_pairs=value(lambda found, name: None if found is None else _count(found, name), "Known pairs; None: all."),
    known_without_rows=value(_count, "Number of known tags that are no labels."),
    rows_without_words=value(_count, "Number of rows without a word."),
    rows_without_tags=value(_count, "Number of rows without a tag."),
    named_tags=value(_count, "Number of tags with a name that was learnt from."),
    seconds=value(check_real, "Seconds of the fit or update."),
    tag_rows=dense("L", meaning="Number of rows that have each tag.", numbers="count"),
)
"""Figures of the training rows: ``training_``."""


def tagger_to_parts(tagger: Any, vocabulary: Mapping[Any, tuple[Any, ...]]) -> ModelRecord:
    """The folder of a fitted tagger, whose ``vocabulary`` has been checked."""
    given = tagger.get_params(deep=False)
    del given["embedding_cache"]  # a folder of this machine
    # Estimators that were handed in are the fitted ones as they were before the fit; the folder has these.
    for name in ("model", "features", "embedder"):
        given[name] = given[name] if isinstance(given[name], str) else None
    listed = None
    if given.pop("vocabulary") is not None:  # two lists: the keys of a folder's objects cannot be any text
        called = [list(names) for names in vocabulary.values()] if isinstance(tagger.vocabulary, Mapping) else None
        listed = {"tags": [str(tag) for tag in vocabulary], "names": called}
    values: dict[str, Any] = {
        "choice": asdict(tagger.choice_),
        "training": tagger.training_,
        "tag_type": "int" if isinstance(tagger.tags_[0], int) else "str",
        "output_format": None,
        "features": _features_to_parts(tagger.features_),
        "calibration": None if tagger.calibration_ is None else tagger.calibration_.to_parts(),
        "reference": None if tagger.reference_ is None else tagger.reference_.to_parts(),
    }
    if tagger._output_format is not None:
        values["output_format"] = [tagger._output_format[0], np.dtype(tagger._output_format[1]).str]
    names = [str(tag) for tag in tagger.tags_]
    record = ModelRecord(
        "Tagger", {**storable_parameters(given), "vocabulary": listed}, values=values, label_names=names
    )
    return record.with_model("model", tagger.model_.to_parts())


def tagger_from_parts(record: ModelRecord, expected: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters, of which there must be the ``expected`` ones, and fitted attributes of a tagger, from its folder."""
    inner, record = record.split_model("model")
    values, names, parameters = record.values, record.label_names, dict(record.parameters)
    require_same("parameters", set(parameters), expected - {"embedding_cache"})
    require_same("values", set(values), _SAVED_VALUES)
    if not names or len(set(names)) < len(names) or record.tensors:
        raise ValueError("a tagger has different tags, and no tensors of its own")
    whole = check_choice(values["tag_type"], "tag_type", ("str", "int")) == "int"
    tags: list[Any] = _whole_numbers(names) if whole else names
    features, model = _features_from_parts(values["features"]), model_from_parts(inner)
    if (model.n_features_in_, model.n_labels_) != (len(features.feature_names), len(tags)):
        raise ValueError(
            f"a model of {model.n_features_in_} features and {model.n_labels_} labels for "
            f"{len(features.feature_names)} terms and {len(tags)} tags"
        )
    choice, training, vocabulary = values["choice"], values["training"], parameters["vocabulary"]
    if {name: type(value) for name, value in choice.items()} != {"name": str, "parameters": dict, "reason": str}:
        raise ValueError("the choice must have a name, parameters and a reason")
    _TRAINING.check(training, {"L": len(tags)})
    if training["tag_rows"].max() > training["rows"]:
        raise ValueError("tag_rows must be counts of rows")
    if vocabulary is not None:
        require_same("values of the vocabulary", set(vocabulary), {"tags", "names"})
        listed = vocabulary["tags"]
        if not isinstance(listed, list) or len(set(listed)) < len(listed):
            raise ValueError("the vocabulary must be a list of different tags")
        parameters["vocabulary"] = listed = _whole_numbers(listed) if whole else listed
        if vocabulary["names"] is not None:
            called = [each[0] if len(each) == 1 else each for each in vocabulary["names"]]
            parameters["vocabulary"] = dict(zip(listed, called, strict=True))
    # Estimators that were handed in are not stored as such; the fitted ones say how they were set.
    if parameters["model"] is None:
        parameters["model"] = clone(model)
    if parameters["features"] is None:
        words = features.words if isinstance(features, EmbeddedFeatures) else features
        parameters["features"] = clone(words if isinstance(words, TextFeatures) else words.transformer)
    calibration, reference, output_format = (values[name] for name in ("calibration", "reference", "output_format"))
    return parameters, {
        "tags_": tags,
        "features_": features,
        "model_": model,
        "choice_": ModelChoice(**choice),
        "training_": training,
        "calibration_": None if calibration is None else Calibration.from_parts(calibration, len(tags)),
        "reference_": None if reference is None else Profile.from_parts(reference, len(tags)),
        "_output_format": None if output_format is None else saved_output_format(output_format),
    }


def _whole_numbers(names: list[str]) -> list[int]:
    numbers = [check_integer(int(name), "tag") for name in names]
    if list(map(str, numbers)) != names:
        raise ValueError("tags must be whole numbers")
    return numbers


def _features_to_parts(features: FittedFeatures) -> dict[str, Any]:
    """The class, its parameters and arrays, as a folder holds them; InvalidInputError where it cannot."""
    if isinstance(features, EmbeddedFeatures):
        embedder = features.embedder
        return {
            "class": "EmbeddedFeatures",
            "words": _features_to_parts(features.words),
            "embedder": embedder.name,
            "fingerprint": embedder.fingerprint,
        }
    if isinstance(features, TextFeatures):
        parameters = features.get_params(deep=False)
        return {"class": "TextFeatures", "parameters": parameters, "arrays": features.to_arrays()}
    transformer = features.transformer
    name = type(transformer).__name__
    if _SAVED.get(name) is not type(transformer):
        raise InvalidInputError(
            f"features: a {name} cannot be saved with a tagger, since loading it would have to run code. A folder "
            f"holds TextFeatures, {', '.join(list(_SAVED)[:-1])} or {list(_SAVED)[-1]}."
        )
    parameters = transformer.get_params(deep=False)
    parameters["dtype"] = np.dtype(parameters["dtype"]).str
    described: dict[str, Any] = {"class": name, "arrays": {}}
    if name != "HashingVectorizer":
        described["terms"] = [str(term) for term in transformer.get_feature_names_out()]
        described["terms_given"] = parameters.pop("vocabulary") is not None
    if name == "TfidfVectorizer" and transformer.use_idf:
        described["arrays"]["idf"] = np.asarray(transformer.idf_, dtype=np.float64)
    return {**described, "parameters": storable_parameters(parameters)}


def _features_from_parts(described: Any) -> FittedFeatures:
    """The fitted features that :func:`_features_to_parts` describes, from a folder that may come from anyone.

    Raises
    ------
    KeyError, TypeError, ValueError, AttributeError
        The parts do not fit together.
    """
    name = described["class"]
    if name == "EmbeddedFeatures":
        fingerprint = described["fingerprint"]
        Fields(fingerprint=dense(4, "q", meaning="")).check({"fingerprint": fingerprint}, {}, np.dtype(np.float32))
        if not isinstance(described["embedder"], str) or described["words"]["class"] == "EmbeddedFeatures":
            raise ValueError("features of an embedder must have its name, and words beside it")
        words = _features_from_parts(described["words"])
        return EmbeddedFeatures(words, TextEmbedder(described["embedder"], fingerprint, None))
    parameters, arrays = dict(described["parameters"]), described["arrays"]
    if name == "TextFeatures":
        require_same("parameters of the features", set(parameters), set(TextFeatures().get_params(deep=False)))
        return TextFeatures.from_arrays(parameters, arrays)
    transformer, terms = _SAVED[name](), None
    expected = set(transformer.get_params(deep=False))
    if name != "HashingVectorizer":
        terms = described["terms"]
        expected.remove("vocabulary")
        if not isinstance(terms, list) or not all(isinstance(term, str) for term in terms):
            raise ValueError("terms must be a list of text")
    require_same("parameters of the features", set(parameters), expected)
    dtype = np.dtype(str(parameters["dtype"]))
    parameters |= {"dtype": dtype.type, "ngram_range": tuple(parameters["ngram_range"])}
    if dtype.kind not in "iuf" or parameters["input"] != "content" or not isinstance(parameters["lowercase"], bool):
        raise ValueError("features must be numbers, and read texts as they are, not files")
    try:
        transformer.set_params(**parameters, **({} if terms is None else {"vocabulary": terms})).fit([""])
    except Exception as error:  # whatever a pattern or a stop word of the folder makes scikit-learn raise
        raise ValueError(f"parameters of the features: {error!s:.200}") from None
    if terms is not None and not described["terms_given"]:
        transformer.set_params(vocabulary=None)
        transformer.fixed_vocabulary_ = False
    n_features = int(parameters["n_features"]) if terms is None else len(terms)
    weighs = name == "TfidfVectorizer" and parameters["use_idf"]
    idf = Fields(idf=dense("d", meaning="", numbers="float64")) if weighs else Fields()
    idf.check(arrays, {"d": n_features})
    if weighs:
        if (arrays["idf"] < 0).any():
            raise ValueError("idf must hold numbers of at least 0")
        transformer.idf_ = arrays["idf"]
    features = TransformerFeatures(transformer)
    features.set_names(n_features)
    return features
