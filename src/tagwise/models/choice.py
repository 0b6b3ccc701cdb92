"""Models by name, and which one suits a problem of a given size."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tagwise.base import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.registry import MODEL_NAMES, MODELS, ModelInfo
from tagwise.validation import check_flag, check_integer

__all__ = ["ModelChoice", "build_model", "choose_model", "model_class", "model_info"]

_FEW_LABELS = 50
# One dense row of weights per label: at 50 labels 200 MB as float32.
_MOST_FEATURES = 1_000_000


@dataclass(frozen=True)
class ModelChoice:
    """Which model, with which parameters beside its defaults, and why, in one sentence for people."""

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


def build_model(name: str, parameters: Mapping[str, Any] | None = None, **shared: Any) -> MultiLabelModel:
    """An unfitted model by its name, with ``parameters`` and those of ``shared`` that its constructor has.

    A parameter that the model does not have is an error; ``n_jobs``, ``random_state`` and ``verbose`` can be shared.
    """
    chosen = model_class(name)
    accepted = set(inspect.signature(chosen.__init__).parameters) - {"self"}
    given = dict(parameters or {})
    unknown = sorted(set(given) - accepted)
    if unknown:
        raise InvalidInputError(
            f"{chosen.__name__} has no parameter {unknown[0]!r}; it has {', '.join(sorted(accepted))}."
        )
    return chosen(**{**{key: value for key, value in shared.items() if key in accepted}, **given})


def choose_model(n_rows: int, n_features: int, n_labels: int, nnz_labels: int, masked: bool) -> ModelChoice:
    """Which model to use, by the size of the problem and by whether labels are unknown (``masked``).

    Cascade ranks best, or within a few tenths of a point of the best, in nearly all cases, and takes any number of
    labels. Where labels are few and all known, one ridge regression per label does as well and is simpler: what words
    contribute adds up to the score itself. docs/tagger.md has the table, made by ``benchmarks/model_choice.py``.
    """
    sizes = {"n_rows": n_rows, "n_features": n_features, "n_labels": n_labels, "nnz_labels": nnz_labels}
    for name, size in sizes.items():
        check_integer(size, name, minimum=0 if name == "nnz_labels" else 1)
    unknown = "some of them unknown" if check_flag(masked, "masked") else "all of them known"
    problem = f"{n_rows:,} rows, {n_features:,} features and {n_labels:,} labels ({nnz_labels / n_rows:.2g} per row)"
    if n_labels < _FEW_LABELS and not masked and n_features <= _MOST_FEATURES:
        why = "with so few labels, one linear model for each ranks as well as anything"
        return ModelChoice("binary-relevance", {}, f"binary-relevance: {problem}, {unknown}; {why}.")
    # More than this rank has no meaning, and the model would say so.
    usual = inspect.signature(model_class("cascade")).parameters["rank"].default
    rank = min(usual, n_features, n_labels)
    why = "a low rank and a few weights per label propose labels, and rankers of the hard cases decide"
    if masked:
        why += ", both from known labels alone"
    return ModelChoice("cascade", {} if rank == usual else {"rank": rank}, f"cascade: {problem}, {unknown}; {why}.")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
