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
from tagwise.persistence.loading import require_same, storable_parameters
from tagwise.text.embeddings import EmbeddedFeatures, TextEmbedder
from tagwise.text.features import TextFeatures, check_texts
from tagwise.validation import all_finite, check_features

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
        How many features have names.
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


def features_to_parts(features: FITTED_FEATURES) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The class with its parameters, and the arrays, that a folder holds; InvalidInputError where it cannot."""
    if isinstance(features, EmbeddedFeatures):
        words, of_words = features_to_parts(features.words)
        described = {"class": "EmbeddedFeatures", "words": words, "embedder": features.embedder.name}
        return described, {**of_words, "fingerprint": features.embedder.fingerprint}
    if isinstance(features, TextFeatures):
        return {"class": "TextFeatures", "parameters": features.get_params(deep=False)}, features.to_arrays()
    transformer = features.transformer
    name = type(transformer).__name__
    if _SAVED.get(name) is not type(transformer):
        raise InvalidInputError(
            f"features: a {name} cannot be saved with a tagger, since loading it would have to run code. A folder "
            f"holds TextFeatures, {', '.join(list(_SAVED)[:-1])} or {list(_SAVED)[-1]}."
        )
    parameters = transformer.get_params(deep=False)
    parameters["dtype"] = np.dtype(parameters["dtype"]).str
    if name != "HashingVectorizer":
        # The terms are saved, whether they were given or found.
        parameters["vocabulary"] = parameters["vocabulary"] is not None
    arrays: dict[str, np.ndarray] = {}
    if name != "HashingVectorizer":
        terms = [str(term).encode() for term in transformer.get_feature_names_out()]
        arrays["terms"] = np.frombuffer(b"".join(terms), dtype=np.uint8)
        arrays["term_ends"] = np.cumsum([len(term) for term in terms], dtype=np.int64)
    if name == "TfidfVectorizer" and transformer.use_idf:
        arrays["idf"] = np.asarray(transformer.idf_, dtype=np.float64)
    return {"class": name, "parameters": storable_parameters(parameters)}, arrays


def features_from_parts(described: Any, arrays: dict[str, np.ndarray]) -> FITTED_FEATURES:
    """The fitted features that :func:`features_to_parts` describes, from a folder that may come from anyone.

    Raises
    ------
    KeyError, TypeError, ValueError
        The parts do not fit together.
    """
    if described["class"] == "EmbeddedFeatures":
        require_same("values of the features", set(described), {"class", "words", "embedder"})
        name, fingerprint = described["embedder"], arrays.pop("fingerprint")
        if not isinstance(name, str) or described["words"].get("class") == "EmbeddedFeatures":
            raise ValueError("features of an embedder must have its name, and words beside it")
        if not isinstance(fingerprint, np.ndarray) or fingerprint.ndim != 2 or fingerprint.dtype != np.float32:
            raise ValueError("the fingerprint of an embedder must be a table of 32-bit numbers")
        if not fingerprint.size or not all_finite(fingerprint):
            raise ValueError("the fingerprint of an embedder must be finite numbers")
        words = features_from_parts(described["words"], arrays)
        return EmbeddedFeatures(words, TextEmbedder(name, fingerprint, None))
    require_same("values of the features", set(described), {"class", "parameters"})
    name, parameters = described["class"], dict(described["parameters"])
    if name == "TextFeatures":
        require_same("parameters of the features", set(parameters), set(TextFeatures().get_params(deep=False)))
        return TextFeatures.from_arrays(parameters, arrays)
    if name not in _SAVED:
        raise ValueError(f"features of the class {name!r:.100}")
    transformer = _SAVED[name]()
    require_same("parameters of the features", set(parameters), set(transformer.get_params(deep=False)))
    dtype = np.dtype(str(parameters["dtype"]))
    if dtype.kind not in "iuf":
        raise ValueError(f"features of type {dtype}")
    parameters |= {"dtype": dtype.type, "ngram_range": tuple(parameters["ngram_range"])}
    expected = {"HashingVectorizer": set(), "CountVectorizer": {"terms", "term_ends"}}.get(name, {"terms", "term_ends"})
    if name == "TfidfVectorizer" and parameters["use_idf"]:
        expected = expected | {"idf"}
    require_same("arrays of the features", set(arrays), expected)
    terms = _read_terms(arrays["terms"], arrays["term_ends"]) if "terms" in expected else []
    n_features = len(terms) if terms else int(parameters["n_features"])
    given = bool(parameters.pop("vocabulary", False))
    _fit_to_terms(transformer.set_params(**parameters), terms, given)
    if "idf" in expected:
        idf = arrays["idf"]
        if not isinstance(idf, np.ndarray) or idf.dtype != np.float64 or idf.shape != (n_features,):
            raise ValueError(f"idf must hold one float64 number for each of {n_features:,} terms")
        if not np.isfinite(idf).all() or (idf < 0).any():
            raise ValueError("idf must hold finite numbers of at least 0")
        transformer.idf_ = idf
    features = TransformerFeatures(transformer)
    features._set_names(n_features)
    return features


def _fit_to_terms(transformer: Any, terms: list[str], given: bool) -> None:
    """Fit a vectorizer to terms, which its user had ``given`` or it had found; ValueError for what it cannot be."""
    if transformer.input != "content" or not isinstance(transformer.lowercase, bool):
        raise ValueError("features must read texts as they are, not files")
    try:
        if terms:
            transformer.set_params(vocabulary=terms)
        transformer.fit([""])
    except Exception as error:  # whatever a pattern or a stop word of the folder makes scikit-learn raise
        raise ValueError(f"parameters of the features: {error!s:.200}") from None
    if terms and not given:
        transformer.set_params(vocabulary=None)
        transformer.fixed_vocabulary_ = False


def _read_terms(joined: Any, ends: Any) -> list[str]:
    for name, array, dtype in (("terms", joined, np.uint8), ("term_ends", ends, np.int64)):
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
            raise ValueError(f"{name} must be a list of {np.dtype(dtype).name} numbers")
    if not len(ends) or (np.diff(ends, prepend=0) < 0).any() or ends[-1] != len(joined):
        raise ValueError("term_ends must rise to the number of bytes of the terms")
    content = joined.tobytes()
    terms = [content[start:stop].decode() for start, stop in zip([0, *ends[:-1].tolist()], ends.tolist())]
    if len(set(terms)) != len(terms):
        raise ValueError("terms holds a term twice")
    return terms
