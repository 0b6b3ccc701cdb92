"""Drift of real texts: the bundled sample against itself, and against a part of another kind."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from tagwise import Tagger
from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError, NotFittedError

PERL = "implemented-in::perl"


@pytest.fixture(scope="module")
def sample():
    data = load_dataset("debtags-sample")
    rows = np.random.default_rng(0).permutation(len(data.texts_train))[:3000]
    texts, labels = [data.texts_train[row] for row in rows], data.Y_train[rows]
    tags = [[data.label_names[label] for label in row.indices] for row in labels[:2000]]
    return texts[:2000], tags, texts[2000:]


@pytest.fixture(scope="module")
def tagger(sample):
    texts, tags, _ = sample
    return Tagger("binary-relevance").fit(texts[:1400], tags[:1400]).calibrate(texts[1400:], tags[1400:])


def test_a_part_that_speaks_of_something_else_has_moved_and_others_have_not(tagger, sample):
    texts, _, others = sample
    found = tagger.drift(others)
    assert (found.reference.rows, found.recent.rows) == (600, len(others))
    assert 0.05 < found.reference.unknown_mean < 0.3
    assert min(found.unknown_p, found.empty_p, found.score_p) > 0.01
    assert len(found.moved_labels()) == 0
    perl = [text for text in others if "perl" in text.lower()]
    found = tagger.drift(perl)
    assert PERL in [tagger.tags_[label] for label in found.moved_labels()][:5]
    label = tagger.tags_.index(PERL)
    assert found.recent.label_counts[label] / len(perl) > 2 * found.reference.label_counts[label] / 600
    assert found.score_p < 0.01
    # Why folders keep validation rows: against its own rows, new ones would always seem to have moved.
    found = tagger.drift(others, reference=tagger.profile(texts[:1400], edges=None))
    assert found.unknown_p < 1e-6
    assert found.score_psi > 0.1


def test_unknown_words_are_those_of_most_texts_first(tagger):
    words = tagger.unknown_words(["a zzyzx library", "zzyzx and qwertzuiop", "zzyzx zzyzx"])
    assert words == [("zzyzx", 3), ("qwertzuiop", 1)]
    shares, _ = tagger.features_.unknown_words(["library zzyzx", "!", "library library library zzyzx"])
    np.testing.assert_array_equal(shares, [0.5, np.nan, 0.25])


def test_features_that_are_no_words_of_ours_are_not_counted(sample):
    texts, tags, others = sample
    tagger = Tagger("binary-relevance", features=CountVectorizer(max_features=200)).fit(texts[:300], tags[:300])
    tagger.calibrate(texts[300:600], tags[300:600])
    found = tagger.drift(others[:300])
    assert np.isnan([found.unknown_p, found.recent.unknown_mean]).all()
    assert tagger.unknown_words(["zzyzx"]) == []
    assert 0 <= found.score_p <= 1


def test_a_fit_forgets_the_reference(sample):
    texts, tags, _ = sample
    tagger = Tagger("binary-relevance").fit(texts[:200], tags[:200]).calibrate(texts[200:400], tags[200:400])
    assert tagger.reference_.rows == 200
    tagger.fit(texts[:200], tags[:200])
    assert tagger.reference_ is None
    with pytest.raises(InvalidInputError, match="has no reference to compare with"):
        tagger.drift(texts)
    with pytest.raises(NotFittedError):
        Tagger().drift(texts)
