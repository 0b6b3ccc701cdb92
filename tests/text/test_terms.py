"""Terms are those of scikit-learn's CountVectorizer, and so are their counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from tagwise.text.terms import CHARACTER_LENGTHS, TERMS, term_counts

SETTINGS = {
    "words": {"analyzer": "word"},
    "characters": {"analyzer": "char_wb", "ngram_range": CHARACTER_LENGTHS},
}
TEXTS = st.text() | st.text(alphabet="abÄß_1 \t\n\u00a0\u2003-.,İ", max_size=40)


@pytest.mark.parametrize("kind", TERMS)
@given(text=TEXTS)
def test_terms_are_those_of_scikit_learn(kind, text):
    assert list(TERMS[kind](text)) == CountVectorizer(**SETTINGS[kind]).build_analyzer()(text)


@pytest.mark.parametrize("kind", TERMS)
def test_counts_are_those_of_scikit_learn(kind):
    texts = ["one fish two fish", "", "red fish, blue FISH", "nothing known here", "two"]
    counter = CountVectorizer(**SETTINGS[kind], dtype=np.float32).fit(texts[:3])
    expected = counter.transform(texts)
    expected.sort_indices()
    found = term_counts(texts, kind, counter.vocabulary_)
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_no_texts_give_no_rows():
    assert term_counts([], "words", {"a": 0, "b": 1}).shape == (0, 2)
