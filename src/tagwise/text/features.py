"""TF-IDF features of texts: words and, on request, character n-grams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer

from tagwise.exceptions import InvalidInputError, InvalidTypeError, NotFittedError
from tagwise.kernels import unit_rows
from tagwise.validation import check_flag, check_integer

__all__ = ["CHARACTERS_PREFIX", "WORD_PATTERN", "TextFeatures", "check_texts"]

WORD_PATTERN = r"(?u)\b\w\w+\b"
"""What a word is, in lower-cased text: at least two letters, digits or underscores."""

CHARACTERS_PREFIX = "char:"
"""Starts the names of character n-grams. No word can look like one: words hold letters, digits and underscores."""

_ANALYZERS = {"words": ("word", (1, 1)), "characters": ("char_wb", (3, 5))}
"""Kind of term → analyzer and n-gram lengths of ``CountVectorizer``."""

_SEPARATOR = "\n"


@dataclass(frozen=True, eq=False)
class _Terms:
    """One kind of feature: its terms in column order, and their weights."""

    kind: str
    terms: list[str]
    idf: np.ndarray

    @cached_property
    def counter(self) -> CountVectorizer:
        return _counter(self.kind, vocabulary=self.terms)

    def weigh(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        """(1 + ln t)·idf for every count t, rows not yet scaled."""
        counts.sort_indices()
        data = np.log(counts.data, dtype=np.float32)
        data += np.float32(1)
        data *= self.idf[counts.indices]
        return sp.csr_matrix((data, counts.indices, counts.indptr), shape=counts.shape)


class TextFeatures(TransformerMixin, BaseEstimator):
    """Texts as rows of unit length that weigh each word by how often and how rarely it occurs.

    A word that occurs t > 0 times in a text, and in m of the n training texts, gets the weight (1 + ln t) ·
    (1 + ln((1 + n) / (1 + m))); each row is then scaled to unit Euclidean length. Words are lower-cased runs
    of at least two letters, digits or underscores. Words unknown at ``fit`` do not count, so a text without
    any known word is an empty row.

    With ``characters``, runs of 3 to 5 characters within a word and one space on either side of it count as well, by
    the same formula, and rows are scaled over both together. They recognise parts of words, and spellings that
    training never saw.

    Parameters
    ----------
    min_df : int, default 2
        Leave out words and character n-grams that occur in fewer training texts than this.
    max_features : int or None, default None
        Keep only this many words, the most frequent ones, and as many character n-grams.
    characters : bool, default False
        Whether to count character n-grams beside words.

    Attributes
    ----------
    feature_names : list of str
        In column order: the words (sorted), then the character n-grams (sorted), each written as ``char:`` and the
        n-gram with its spaces, such as ``"char: pre"`` for words that start with "pre".
    idf_ : array of float32, shape (features,)
        The second factor of the weight.
    n_words_ : int
        How many of the features are words.

    Notes
    -----
    Counting is done by scikit-learn's ``CountVectorizer``. Memory and time are linear in the length of the texts,
    several times as much with ``characters``.
    """

    def __init__(self, *, min_df: int = 2, max_features: int | None = None, characters: bool = False) -> None:
        self.min_df = min_df
        self.max_features = max_features
        self.characters = characters

    def fit(self, texts: Iterable[str], y: Any = None) -> TextFeatures:
        """Collect the vocabulary and its weights; ``y`` is ignored.

        Raises
        ------
        InvalidInputError
            If there are no texts, or no word is in ``min_df`` of them.
        """
        self.fit_transform(texts)
        return self

    def fit_transform(
        self, texts: Iterable[str], y: Any = None, *, also: Iterable[str] = (), **fit_params: Any
    ) -> sp.csr_matrix:
        """As ``fit`` and then ``transform`` of the same texts, at half the cost.

        ``also``: words that are features in however few texts they are, even in none, beside ``max_features`` others;
        those of new tags' names, say.
        """
        min_df, limit = self._checked_parameters()
        rows = check_texts(texts)
        if not rows:
            raise InvalidInputError("texts is empty; at least one text is needed to fit TF-IDF features.")
        fitted, blocks = [], []
        for kind in self._kinds():
            counter = _counter(kind, min_df=min_df, max_features=limit)
            try:
                counts = sp.csr_matrix(counter.fit_transform(rows))
            except ValueError as error:
                what = "word" if kind == "words" else "character n-gram"
                raise InvalidInputError(
                    f"texts hold no {what} that is in at least min_df={min_df} of the {len(rows):,} texts; "
                    "give more text or lower min_df."
                ) from error
            terms = [str(term) for term in counter.get_feature_names_out()]
            if kind == "words" and (more := set(also) - set(terms)):
                terms = sorted([*terms, *more])
                counts = sp.csr_matrix(_counter(kind, vocabulary=terms).transform(rows))
            _joined(terms)  # what could not be saved is refused before anything is learnt from it
            fitted.append(_Terms(kind, terms, _inverse_document_frequency(counts)))
            blocks.append(fitted[-1].weigh(counts))
        self._set_terms(fitted)
        return _joined_unit_rows(blocks)

    def transform(self, texts: Iterable[str]) -> sp.csr_matrix:
        """Features of texts, one row each, as float32 CSR; memory and time are linear in their length."""
        self._require_fitted()
        rows = check_texts(texts)
        if not rows:
            return sp.csr_matrix((0, len(self.feature_names)), dtype=np.float32)
        return _joined_unit_rows([part.weigh(sp.csr_matrix(part.counter.transform(rows))) for part in self._fitted])

    # ------------------------------------------------------------------ folders

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The fitted state as plain arrays, for :meth:`from_arrays`.

        ``words``, ``words_idf`` and, with characters, ``characters``, ``characters_idf``. Terms are UTF-8 text joined
        by line feeds, in column order.
        """
        self._require_fitted()
        arrays = {}
        for part in self._fitted:
            arrays[part.kind] = _joined(part.terms)
            arrays[f"{part.kind}_idf"] = part.idf
        return arrays

    @classmethod
    def from_arrays(cls, parameters: dict[str, Any], arrays: dict[str, np.ndarray]) -> TextFeatures:
        """The extractor that ``parameters`` and :meth:`to_arrays` describe; its features are bit-identical.

        Raises
        ------
        ValueError
            The arrays cannot come from :meth:`to_arrays` with these parameters.
        """
        features = cls(**parameters)
        features._checked_parameters()
        expected = {name for kind in features._kinds() for name in (kind, f"{kind}_idf")}
        if set(arrays) != expected:
            raise ValueError(f"arrays of the features are {sorted(arrays)}; expected {sorted(expected)}")
        fitted = []
        for kind in features._kinds():
            terms, idf = _split(arrays[kind], kind), arrays[f"{kind}_idf"]
            if not isinstance(idf, np.ndarray) or idf.dtype != np.float32 or idf.shape != (len(terms),):
                raise ValueError(f"{kind}_idf must hold one float32 number for each of {len(terms):,} terms")
            if not np.isfinite(idf).all() or (idf <= 0).any():
                raise ValueError(f"{kind}_idf must hold finite numbers above 0")
            fitted.append(_Terms(kind, terms, idf))
        features._set_terms(fitted)
        return features

    # ------------------------------------------------------------------ inside

    def _require_fitted(self) -> None:
        if not hasattr(self, "_fitted"):
            raise NotFittedError("This TextFeatures is not fitted yet; call fit with the training texts first.")

    def _kinds(self) -> tuple[str, ...]:
        return ("words", "characters") if self.characters else ("words",)

    def _checked_parameters(self) -> tuple[int, int | None]:
        check_flag(self.characters, "characters")
        min_df = check_integer(self.min_df, "min_df", minimum=1)
        if self.max_features is None:
            return min_df, None
        return min_df, check_integer(self.max_features, "max_features", minimum=1)

    def _set_terms(self, fitted: list[_Terms]) -> None:
        self._fitted = fitted
        self.n_words_ = len(fitted[0].terms)
        grams = [CHARACTERS_PREFIX + gram for part in fitted[1:] for gram in part.terms]
        self.feature_names = fitted[0].terms + grams
        self.idf_ = np.concatenate([part.idf for part in fitted])


def _counter(kind: str, **settings: Any) -> CountVectorizer:
    analyzer, lengths = _ANALYZERS[kind]
    return CountVectorizer(
        analyzer=analyzer, ngram_range=lengths, token_pattern=WORD_PATTERN, dtype=np.float32, **settings
    )


def _inverse_document_frequency(counts: sp.csr_matrix) -> np.ndarray:
    n_texts, n_terms = counts.shape
    texts_with = np.bincount(counts.indices, minlength=n_terms)
    return (1 + np.log((1 + n_texts) / (1 + texts_with))).astype(np.float32)


def _joined_unit_rows(blocks: list[sp.csr_matrix]) -> sp.csr_matrix:
    return sp.csr_matrix(unit_rows(blocks[0] if len(blocks) == 1 else sp.hstack(blocks, format="csr")))


def _joined(terms: Sequence[str]) -> np.ndarray:
    """The terms as UTF-8 text, joined by line feeds: a uint8 array that any program can read."""
    try:
        return np.frombuffer(_SEPARATOR.join(terms).encode(), dtype=np.uint8)
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "texts hold a lone surrogate, which is not a Unicode character: they were read from bytes that are not "
            f"UTF-8. Read the file in its own encoding ({error.reason})."
        ) from None


def _split(joined: object, name: str) -> list[str]:
    """The terms again, from an array that may come from anyone."""
    if not isinstance(joined, np.ndarray) or joined.dtype != np.uint8 or joined.ndim != 1:
        raise ValueError(f"{name} must be a list of bytes")
    try:
        terms = joined.tobytes().decode().split(_SEPARATOR)
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    if "" in terms:
        raise ValueError(f"{name} holds an empty term")
    if len(set(terms)) != len(terms):
        raise ValueError(f"{name} holds a term twice")
    return terms


def check_texts(texts: Iterable[str], *, first: int = 0) -> list[str]:
    """A list of strings, from any iterable of them but a string itself; ``first`` is the position of the first one."""
    if isinstance(texts, (str, bytes)):
        raise InvalidTypeError("texts must be a list of strings; found one string. Put it in a list: [text].")
    try:
        rows = list(texts)
    except TypeError:
        raise InvalidTypeError(f"texts must be a list of strings; found {type(texts).__name__}.") from None
    for number, text in enumerate(rows, first):
        if not isinstance(text, str):
            raise InvalidTypeError(f"texts must hold strings; found {text!r:.60} at position {number}.")
    return rows
