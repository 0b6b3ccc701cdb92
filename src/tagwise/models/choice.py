"""Models by name, and which one suits a problem."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.objectives.labels import UNLISTED
from tagwise.registry import MODEL_NAMES, MODELS, ModelInfo
from tagwise.validation import check_choice

__all__ = ["ModelChoice", "build_model", "choose_model", "model_class", "model_info", "parameters_for_unlisted"]


@dataclass(frozen=True)
class ModelChoice:
    """Chosen model, its non-default parameters, and the reason in one sentence."""

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


def model_info(name: str) -> ModelInfo:
    """The registry's row of a model by its name, such as ``"leml"``, ``"Binary-Relevance"`` or ``"SLEEC"``."""
    if not isinstance(name, str):
        raise InvalidTypeError(f"model must be a name; found {name!r:.60}.")
    for info in MODELS:
        if _plain(info.class_name) == _plain(name):
            return info
    raise InvalidInputError(f"model must be auto or one of {', '.join(MODEL_NAMES)}; found {name!r}.")


def model_class(name: str) -> type[MultiLabelModel]:
    """The class of a model by its name."""
    found: type[MultiLabelModel] = model_info(name).load_class()
    return found


def build_model(
    name: str, parameters: Mapping[str, Any] | None = None, *, unlisted: str = "off", **shared: Any
) -> MultiLabelModel:
    """An unfitted model by its name, with ``parameters`` and those of ``shared`` that its constructor has.

    A parameter that the model does not have is an error; ``n_jobs``, ``random_state`` and ``verbose`` can be shared.
    ``unlisted="unknown"`` adds :func:`parameters_for_unlisted`, unless ``parameters`` has them.
    """
    chosen = model_class(name)
    accepted = set(inspect.signature(chosen.__init__).parameters) - {"self"}
    given = {**parameters_for_unlisted(name, unlisted), **(parameters or {})}
    unknown = sorted(set(given) - accepted)
    if unknown:
        raise InvalidInputError(
            f"{chosen.__name__} has no parameter {unknown[0]!r}; it has {', '.join(sorted(accepted))}."
        )
    return chosen(**{**{key: value for key, value in shared.items() if key in accepted}, **given})


def parameters_for_unlisted(name: str, unlisted: str) -> dict[str, Any]:
    """Parameters of a model for ``unlisted="unknown"``: labels that rows do not list are unknown.

    Cascade has a parameter of its own for it; other linear models weigh positives by their inverse propensity. What
    was compared is in docs/notes/cascade.md.
    """
    if check_choice(unlisted, "unlisted", UNLISTED) == "off":
        return {}
    chosen = model_class(name)
    accepted = inspect.signature(chosen.__init__).parameters
    for parameter, value in (("unlisted", "unknown"), ("positive_weight", "propensity")):
        if parameter in accepted:
            return {parameter: value}
    raise InvalidInputError(
        f"unlisted: {chosen.__name__} takes every label that is not listed as off; use auto, or one of "
        "binary-relevance, cascade, leml and reml."
    )


def choose_model(
    n_rows: int, n_features: int, n_labels: int, nnz_labels: int, masked: bool, *, unlisted: str = "off"
) -> ModelChoice:
    """Choose a model by problem size, and by whether labels are partly unknown (``masked``) or only listed.

    Cascade, for any number of labels: over sets of 6 to 983 labels, all of them known or a fifth, it is ahead of every
    other model by a point on average. docs/tagger.md has the table, made by ``benchmarks/model_choice.py``.
    """
    parameters = parameters_for_unlisted("cascade", unlisted)
    known = "some of them unknown" if masked else "all of them known"
    why = "a low rank and a few weights per label propose labels; rankers and other signals re-score them"
    if masked:
        why += ", all from known labels alone"
    elif parameters:
        known = "unlisted ones unknown"
        why += ", and a listed label stands for those of its kind that are missing"
    # More than this rank has no meaning, and the model would say so.
    usual = inspect.signature(model_class("cascade")).parameters["rank"].default
    rank = min(usual, n_features, n_labels)
    problem = f"{n_rows:,} rows, {n_features:,} features and {n_labels:,} labels ({nnz_labels / n_rows:.2g} per row)"
    return ModelChoice(
        "cascade", parameters if rank == usual else {"rank": rank, **parameters}, f"cascade: {problem}, {known}; {why}."
    )


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
