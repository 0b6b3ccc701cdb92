"""Terms of texts, counted: words, and character n-grams within them.

They are the terms of scikit-learn's ``CountVectorizer`` (which fits the vocabulary), to the letter. Counting them here,
in a few lines, spares a fitted tagger the fifth of a second that importing it takes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import scipy.sparse as sp

__all__ = ["CHARACTER_LENGTHS", "TERMS", "character_grams", "term_counts", "words"]

CHARACTER_LENGTHS = (3, 5)
"""Shortest and longest character n-gram."""

_WORD = re.compile(r"(?u)\b\w\w+\b")


def words(text: str) -> list[str]:
    """Lower-cased runs of at least two letters, digits or underscores, in their order."""
    return _WORD.findall(text.lower())


def character_grams(text: str) -> Iterator[str]:
    """Runs of 3 to 5 characters of each word with one space on either side; a shorter word is one run, given once."""
    shortest, longest = CHARACTER_LENGTHS
    for word in text.lower().split():
        padded = f" {word} "
        for length in range(shortest, longest + 1):
            yield padded[:length]
            for start in range(1, len(padded) - length + 1):
                yield padded[start : start + length]
            if len(padded) <= length:
                break


TERMS: dict[str, Callable[[str], Iterable[str]]] = {"words": words, "characters": character_grams}
"""What finds the terms of a text, by their kind."""


def term_counts(texts: Iterable[str], kind: str, columns: dict[str, int]) -> sp.csr_matrix:
    """How often each term is in each text (texts × terms, float32); ``columns`` are the terms' columns.

    Terms without a column are left out. Time and memory are linear in the length of the texts.
    """
    terms_of = TERMS[kind]
    indptr: list[int] = [0]
    indices: list[int] = []
    counts: list[int] = []
    for text in texts:
        found = Counter(column for column in map(columns.get, terms_of(text)) if column is not None)
        indices += found.keys()
        counts += found.values()
        indptr.append(len(indices))
    # int32 holds every index that scipy's own matrices of this size would have.
    index_type = np.int32 if len(indices) < 2**31 else np.int64
    matrix = sp.csr_matrix(
        (np.array(counts, dtype=np.float32), np.array(indices, dtype=index_type), np.array(indptr, dtype=index_type)),
        shape=(len(indptr) - 1, len(columns)),
    )
    matrix.sort_indices()
    return matrix
