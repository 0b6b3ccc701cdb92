"""Features of texts by transformers that are not tagwise's: any that scikit-learn would take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.text.embeddings import EmbeddedFeatures
from tagwise.text.features import TextFeatures, check_texts
from tagwise.validation import check_features

__all__ = ["FittedFeatures", "TransformerFeatures", "check_transformer"]


def check_transformer(transformer: Any) -> None:
    """Raise unless this is an unfitted transformer of texts."""
    if isinstance(transformer, type) or not (hasattr(transformer, "fit") and hasattr(transformer, "transform")):
        raise InvalidTypeError(
            'features must be "words", "auto", TextFeatures(…) or another transformer with fit and transform; found '
            f"{transformer!r:.100}."
        )


class TransformerFeatures:
    """Any transformer of texts, fitted and used as :class:`~tagwise.text.features.TextFeatures` is.

    Attributes
    ----------
    transformer : transformer
        A clone of the one given, fitted.
    feature_names : sequence of str
        Those of ``get_feature_names_out``, or ``"feature 0"``, ``"feature 1"``, ….
    n_words_ : int
        Number of features with names.
    """

    feature_names: Sequence[str]
    n_words_: int

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit_transform(self, texts: Iterable[str], *, also: Iterable[str] = ()) -> sp.csr_matrix:
        """Fit a clone to texts; ``also``, the words of new tags, is left to the transformer."""
        rows = check_texts(texts)
        self.transformer = clone(self.transformer)
        fit_transform = getattr(self.transformer, "fit_transform", None)
        found = self.transformer.fit(rows).transform(rows) if fit_transform is None else fit_transform(rows)
        X = self._checked(found, len(rows))
        self.set_names(X.shape[1])
        return X

    def transform(self, texts: Iterable[str]) -> sp.csr_matrix:
        """Features of texts (n, d), as CSR of the transformer's floating type."""
        rows = check_texts(texts)
        if not rows:
            return sp.csr_matrix((0, len(self.feature_names)), dtype=np.float32)
        return self._checked(self.transformer.transform(rows), len(rows))

    @staticmethod
    def _checked(found: Any, n_rows: int) -> sp.csr_matrix:
        X = sp.csr_matrix(check_features(found, name="features"))
        if X.shape[0] != n_rows:
            raise InvalidInputError(f"features makes {X.shape[0]:,} rows of {n_rows:,} texts; it must make one each.")
        return X

    def set_names(self, n_features: int) -> None:
        """Take the names of the features from the fitted transformer, where it has some."""
        self.feature_names, self.n_words_ = _Numbered(n_features), 0
        # A pipeline has the method, and then raises, where one of its steps has none.
        with suppress(AttributeError):
            self.feature_names = [str(name) for name in self.transformer.get_feature_names_out()]
            self.n_words_ = n_features


class _Numbered(Sequence[str]):
    """Names of features that have none."""

    def __init__(self, count: int) -> None:
        self.numbers = range(count)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [f"feature {number}" for number in self.numbers[place]]
        return f"feature {self.numbers[place]}"


FittedFeatures = TextFeatures | TransformerFeatures | EmbeddedFeatures
