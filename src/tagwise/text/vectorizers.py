"""Features of texts by transformers that are not tagwise's: any that scikit-learn would take, some of them saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.fields import Fields, dense
from tagwise.store.loading import require_same, storable_parameters
from tagwise.text.embeddings import EmbeddedFeatures, TextEmbedder
from tagwise.text.features import TextFeatures, check_texts
from tagwise.validation import check_features

__all__ = ["FITTED_FEATURES", "TransformerFeatures", "check_transformer", "features_from_parts", "features_to_parts"]

_SAVED: Mapping[str, Any] = {
    "CountVectorizer": CountVectorizer,
    "HashingVectorizer": HashingVectorizer,
    "TfidfVectorizer": TfidfVectorizer,
}
"""The vectorizers of scikit-learn that a folder can hold: their parameters, terms and weights, never their code."""


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
        self._set_names(X.shape[1])
        return X

    def transform(self, texts: Iterable[str]) -> sp.csr_matrix:
        """Features of texts (n, d), as CSR of the transformer's floating type."""
        rows = check_texts(texts)
        if not rows:
            return sp.csr_matrix((0, len(self.feature_names)), dtype=np.float32)
        return self._checked(self.transformer.transform(rows), len(rows))

    def _checked(self, found: Any, n_rows: int) -> sp.csr_matrix:
        X = sp.csr_matrix(check_features(found, name="features"))
        if X.shape[0] != n_rows:
            raise InvalidInputError(f"features makes {X.shape[0]:,} rows of {n_rows:,} texts; it must make one each.")
        return X

    def _set_names(self, n_features: int) -> None:
        names: Sequence[str] = _Numbered(n_features)
        # A pipeline has the method, and then raises, where one of its steps has none.
        with suppress(AttributeError):
            names = [str(name) for name in self.transformer.get_feature_names_out()]
        self.feature_names, self.n_words_ = names, 0 if isinstance(names, _Numbered) else len(names)


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


FITTED_FEATURES = TextFeatures | TransformerFeatures | EmbeddedFeatures

# ---------------------------------------------------------------------- folders


def features_to_parts(features: FITTED_FEATURES) -> dict[str, Any]:
    """The class, its parameters and arrays, as a folder holds them; InvalidInputError where it cannot."""
    if isinstance(features, EmbeddedFeatures):
        embedder = features.embedder
        return {
            "class": "EmbeddedFeatures",
            "words": features_to_parts(features.words),
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


def features_from_parts(described: Any) -> FITTED_FEATURES:
    """The fitted features that :func:`features_to_parts` describes, from a folder that may come from anyone.

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
        words = features_from_parts(described["words"])
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
    features._set_names(n_features)
    return features
