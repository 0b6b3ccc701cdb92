"""TF-IDF features of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import TfidfVectorizer

from tagwise.exceptions import InvalidInputError, InvalidTypeError, NotFittedError
from tagwise.validation import check_integer

__all__ = ["TfidfFeatures"]


class TfidfFeatures(TransformerMixin, BaseEstimator):
    """Texts as rows of unit length that weigh each word by how often and how rarely it occurs.

    A word that occurs t > 0 times in a text, and in m of the n training texts, gets the weight (1 + ln t) ·
    (1 + ln((1 + n) / (1 + m))); each row is then scaled to unit Euclidean length. Words are lower-cased runs
    of at least two letters, digits or underscores. Words unknown at ``fit`` do not count, so a text without
    any known word is an empty row.

    Parameters
    ----------
    min_df : int, default 2
        Words in fewer training texts than this are left out.
    max_features : int or None, default None
        Keep only this many words, the most frequent ones.

    Attributes
    ----------
    feature_names : list of str
        The words in column order (sorted).
    idf_ : array of float32, shape (features,)
        The second factor of the weight.
    """

    def __init__(self, *, min_df: int = 2, max_features: int | None = None) -> None:
        self.min_df = min_df
        self.max_features = max_features

    def fit(self, texts: Sequence[str], y: Any = None) -> TfidfFeatures:
        """Collect the vocabulary and its weights; ``y`` is ignored.

        Raises
        ------
        InvalidInputError
            If there are no texts, or no word is in ``min_df`` of them.
        """
        self.fit_transform(texts)
        return self

    def fit_transform(self, texts: Sequence[str], y: Any = None, **fit_params: Any) -> sp.csr_matrix:
        """As ``fit`` and then ``transform`` of the same texts, at half the cost."""
        min_df = check_integer(self.min_df, "min_df", minimum=1)
        limit = None
        if self.max_features is not None:
            limit = check_integer(self.max_features, "max_features", minimum=1)
        rows = _check_texts(texts)
        if not rows:
            raise InvalidInputError("texts is empty; at least one text is needed to fit TF-IDF features.")
        vectorizer = TfidfVectorizer(min_df=min_df, max_features=limit, sublinear_tf=True, dtype=np.float32)
        try:
            matrix = vectorizer.fit_transform(rows)
        except ValueError as error:
            raise InvalidInputError(
                f"texts hold no word that is in at least min_df={min_df} of the {len(rows):,} texts; "
                "give more text or lower min_df."
            ) from error
        self._vectorizer = vectorizer
        self.feature_names = [str(word) for word in vectorizer.get_feature_names_out()]
        self.idf_ = np.asarray(vectorizer.idf_, dtype=np.float32)
        return _canonical(matrix)

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Features of texts, one row each, as float32 CSR; memory and time are linear in their length."""
        if not hasattr(self, "_vectorizer"):
            raise NotFittedError("This TfidfFeatures is not fitted yet; call fit with the training texts first.")
        rows = _check_texts(texts)
        if not rows:
            return sp.csr_matrix(np.zeros((0, len(self.feature_names)), dtype=np.float32))
        return _canonical(self._vectorizer.transform(rows))


def _canonical(matrix: Any) -> sp.csr_matrix:
    csr = sp.csr_matrix(matrix, dtype=np.float32)
    csr.sort_indices()
    return csr


def _check_texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, (str, bytes)):
        raise InvalidTypeError("texts must be a list of strings; found one string. Put it in a list: [text].")
    try:
        rows = list(texts)
    except TypeError:
        raise InvalidTypeError(f"texts must be a list of strings; found {type(texts).__name__}.") from None
    for number, text in enumerate(rows):
        if not isinstance(text, str):
            raise InvalidTypeError(f"texts must hold strings; found {text!r} at position {number}.")
    return rows
