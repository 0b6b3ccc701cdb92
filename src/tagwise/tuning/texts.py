"""Texts and tags as :func:`~tagwise.tuning.tune` takes them: features chosen, validation rows apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tagwise.data.tables import Table
from tagwise.text.choice import EVERY, choose_features
from tagwise.text.embeddings import EmbeddedFeatures, TextEmbedder
from tagwise.text.features import TextFeatures
from tagwise.text.names import check_vocabulary, name_features, name_words, names_in_use, without_names
from tagwise.text.tags import TrainingRows, ValidationRows, all_tags, column_of, normalised, split_texts

__all__ = ["TuningRows"]


@dataclass(frozen=True)
class TuningRows:
    """Rows to fit and rows to judge by.

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
        Why these features; empty where they were given.
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
        """The rows of a table, split at random; features are compared on a sample where none are given."""
        named: Mapping[Any, tuple[Any, ...]] = check_vocabulary(vocabulary)
        tags, known = table.tags, table.known
        if normalise_tags:
            tags, known = normalised(tags, known, named)
        rows = Table(table.texts, tags, known)
        fitted, held = (rows.part(part) for part in split_texts(rows.texts, tags, validation_fraction, random_state))
        # Also the tags that validation rows alone have: no settings can find them, and all settings miss them.
        labels = TrainingRows.of(fitted.texts, fitted.tags, fitted.known, all_tags([*tags, named]))
        reason = ""
        if features is None:
            choice = choose_features(labels, EVERY, n_jobs=n_jobs, random_state=random_state)
            features, reason = choice.features, choice.reason
        extractor: Any = features if embedder is None else EmbeddedFeatures(features, embedder)
        is_new = ~labels.has_rows
        new_names = [name for tag, new in zip(labels.tags, is_new) if new for name in named.get(tag, ())]
        X = extractor.fit_transform(fitted.texts, also=name_words(new_names))
        names = name_features(labels.tags, names_in_use(named, labels, extractor, X), extractor, is_new)
        if names is not None:  # a tagger would not know of tags that validation rows alone have
            names = without_names(names, [new and tag not in named for tag, new in zip(labels.tags, is_new)])
        judges = ValidationRows.of(extractor, column_of(labels.tags), held.texts, held.tags, held.known)
        validation = (judges.X, judges.Y, judges.observed)
        return cls(X, labels.Y, labels.observed, validation, names, features, reason)
