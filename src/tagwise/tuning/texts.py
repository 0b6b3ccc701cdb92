"""Texts and tags as :func:`~tagwise.tuning.tune` takes them: features chosen, validation rows apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tagwise.data.tables import Table
from tagwise.text.choice import EVERY, choose_features
from tagwise.text.embeddings import EmbeddedFeatures, TextEmbedder
from tagwise.text.features import TextFeatures
from tagwise.text.names import check_vocabulary, fit_features, name_features
from tagwise.text.tags import TrainingRows, split_texts

__all__ = ["TuningRows"]


@dataclass(frozen=True)
class TuningRows:
    """Rows to fit and rows to validate on.

    Attributes
    ----------
    X, Y, observed
        Training rows, as in ``fit``.
    validation : (X, Y, observed or None)
    names : CSR or None
        Features of the tags' names, for models that learn from names.
    words : TextFeatures
        The features of texts, chosen or given.
    reason : str
        Reason for these features; empty if they were given.
    """

    X: Any
    Y: Any
    observed: Any
    validation: tuple[Any, Any, Any]
    names: Any
    words: TextFeatures
    reason: str

    @classmethod
    def of(
        cls,
        table: Table,
        vocabulary: Any = None,
        normalise_tags: bool = False,
        *,
        features: TextFeatures | None = None,
        embedder: TextEmbedder | None = None,
        validation_fraction: float = 0.2,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> TuningRows:
        """The rows of a table, split at random; features are compared on a sample if none are given."""
        named = check_vocabulary(vocabulary)
        # Also the tags that validation rows alone have: no settings can find them, and all settings miss them.
        rows = TrainingRows.of(table.texts, table.tags, table.known, named, normalise=normalise_tags)
        split = split_texts(rows.texts, table.tags, validation_fraction, random_state)
        fitted, held = (rows.part(np.array(part)) for part in split)
        reason = ""
        if features is None:
            choice = choose_features(fitted, EVERY, n_jobs=n_jobs, random_state=random_state)
            features, reason = choice.features, choice.reason
        extractor: Any = features if embedder is None else EmbeddedFeatures(features, embedder)
        # A tagger would not know of tags that validation rows alone have: they have no names.
        unknown = {tag: ("",) for tag, has_rows in zip(rows.tags, fitted.has_rows) if not has_rows}
        extractor, X, called = fit_features(extractor, fitted, {**unknown, **named})
        names = name_features(rows.tags, called, extractor, ~fitted.has_rows)
        validation = (extractor.transform(held.texts), held.Y, held.observed)
        return cls(X, fitted.Y, fitted.observed, validation, names, features, reason)
