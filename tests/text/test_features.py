import math
import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError, InvalidTypeError, NotFittedError
from tagwise.text.features import CHARACTERS_PREFIX, WORD_PATTERN, TextFeatures, places_of, words_in

TEXTS = ["Blue blue sky", "sky and sea", "a deep blue sea", "sea, sea, sea and sky"]


def test_weights_follow_the_formula():
    features = TextFeatures(min_df=2)
    X = features.fit_transform(TEXTS)
    assert features.feature_names == ["and", "blue", "sea", "sky"]
    idf = {word: 1 + math.log(5 / (1 + m)) for word, m in (("and", 2), ("blue", 2), ("sea", 3), ("sky", 3))}
    np.testing.assert_allclose(features.idf_, [idf[word] for word in features.feature_names], rtol=1e-6)
    row = np.array([0, (1 + math.log(2)) * idf["blue"], 0, idf["sky"]])
    np.testing.assert_allclose(X[0].toarray()[0], row / np.linalg.norm(row), rtol=1e-5)
    for found in (X, features.transform(TEXTS)):
        assert (type(found), found.dtype, found.shape) == (sp.csr_matrix, np.float32, (4, 4))
        assert found.has_sorted_indices
    assert features.transform(["zebra", ""]).nnz == 0
    assert features.transform([]).shape == (0, 4)
    for texts in (tuple(TEXTS), np.array(TEXTS), iter(TEXTS)):
        assert (TextFeatures().fit_transform(texts) != X).nnz == 0
    for method in (lambda: TextFeatures().transform(TEXTS), TextFeatures().to_arrays):
        with pytest.raises(NotFittedError, match="call fit"):
            method()


def test_max_features_keeps_the_most_frequent_of_each_kind():
    assert TextFeatures(max_features=1).fit(TEXTS).feature_names == ["sea"]
    assert len(TextFeatures(max_features=3, characters=True).fit(TEXTS).feature_names) == 6


# --- character n-grams


def test_characters_are_runs_within_a_word_and_its_borders():
    features = TextFeatures(min_df=1, characters=True).fit(["ab, ab abcd"])
    words, grams = features.feature_names[: features.n_words_], features.feature_names[features.n_words_ :]
    assert words == ["ab", "abcd"]
    assert all(gram.startswith("char:") for gram in grams)
    ends_of_words = {" ab", "ab ", " ab ", "ab,", "b, ", " ab,", "ab, ", " ab, "}
    assert {gram.removeprefix("char:") for gram in grams} == ends_of_words | {
        *("abc", "bcd", "cd ", " abc", "abcd", "bcd ", " abcd", "abcd ")
    }
    assert "".join(words).isalnum()
    texts = ["running", "runner", "swimming", "swimmer"]
    assert TextFeatures(min_df=1).fit(texts).transform(["runs"]).nnz == 0
    assert TextFeatures(min_df=1, characters=True).fit(texts).transform(["runs"]).nnz > 0


def test_words_and_characters_share_one_row_of_unit_length():
    texts = [*TEXTS, "bluest"]
    both = TextFeatures(min_df=1, characters=True)
    X = both.fit_transform(texts)
    words = TextFeatures(min_df=1).fit_transform(texts)
    grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, norm=None).fit(texts)
    plain = TfidfVectorizer(sublinear_tf=True, norm=None).fit(texts)
    expected = np.hstack([plain.transform(texts).toarray(), grams.transform(texts).toarray()])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(X.toarray(), expected, rtol=1e-5)
    assert both.n_words_ == words.shape[1]
    assert len(both.feature_names) == len(set(both.feature_names)) == X.shape[1] == len(both.idf_)


# --- parts of texts


@given(
    parts=st.lists(st.lists(st.text(alphabet="abcd ü数", max_size=20), max_size=5), min_size=1, max_size=5),
    settings=st.fixed_dictionaries(
        {
            "min_df": st.sampled_from([1, 2]),
            "max_df": st.sampled_from([1.0, 0.6]),
            "max_features": st.sampled_from([None, 2]),
            "bigrams": st.booleans(),
            "characters": st.booleans(),
        }
    ),
)
def test_counts_of_parts_add_up_to_those_of_all_texts(parts, settings):
    """However texts are cut into parts, empty ones included, features are the same; so is what is said of them."""
    texts = [text for part in parts for text in part]
    starts = np.cumsum([0, *map(len, parts)])
    features = TextFeatures(**settings)
    counts = [features.count(part, first, len(texts)) for part, first in zip(parts, starts)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            X = features.fit_transform(texts, also=["new"])
        except InvalidInputError as error:
            if texts:
                with pytest.raises(InvalidInputError, match=re.escape(str(error))):
                    TextFeatures(**settings).fit_counts(counts[0].plus(*counts[1:]), also=["new"])
            return
    again = TextFeatures(**settings).fit_counts(counts[0].plus(*counts[1:]), also=["new"])
    assert again.feature_names == features.feature_names
    assert again.idf_.tobytes() == features.idf_.tobytes()
    stacked = sp.vstack([again.transform(part) for part in parts], format="csr")
    assert (stacked != X).nnz == 0


# --- state


def test_restored_features_are_bit_identical():
    texts = [*TEXTS, "blue хлеб", "数据", "", "something else"]
    for characters, max_features in ((False, None), (False, 3), (True, None), (True, 3)):
        parameters = {"min_df": 1, "max_features": max_features, "characters": characters}
        features = TextFeatures(**parameters).fit([*TEXTS, "ünïcödé — “quotes” 数据 хлеб"])
        again = TextFeatures.from_arrays(parameters, features.to_arrays())
        one, other = features.transform(texts), again.transform(texts)
        for part in ("data", "indices", "indptr"):
            assert getattr(one, part).tobytes() == getattr(other, part).tobytes()
        assert (again.feature_names, again.n_words_) == (features.feature_names, features.n_words_)
        assert again.idf_.tobytes() == features.idf_.tobytes()
        assert all(array.dtype in (np.uint8, np.float32) for array in features.to_arrays().values())
    arrays = TextFeatures().fit(TEXTS).to_arrays()
    for parameters, change, words in (
        ({}, {"words_idf": np.array([1, 2, 0, 1], np.float32)}, None),
        ({}, {"characters": np.frombuffer(b"abc", dtype=np.uint8)}, None),
        ({"characters": True}, {}, "missing: .'characters'"),
    ):
        with pytest.raises(ValueError, match=words):
            pytest.fail(f"{change}: {TextFeatures.from_arrays(parameters, {**arrays, **change})}")


# --- bad input


def test_bad_texts_and_parameters():
    shared = ["東京都立図書館", "東京都庁舎前駅"]
    for parameters, texts, error, words in (
        ({}, "one text", InvalidTypeError, "found one string"),
        ({}, 3, InvalidTypeError, "found int"),
        ({}, ["a", None], InvalidTypeError, "found None at position 1"),
        ({}, [], InvalidInputError, "texts is empty"),
        ({}, ["", "! ?"], InvalidInputError, "hold no word"),
        ({}, ["one", "two"], InvalidInputError, "min_df=2 of the 2 texts; give more"),
        ({"max_df": 0.4}, ["one"] * 3, InvalidInputError, r"in at least min_df=2 and at most max_df=0\.4 of the"),
        ({"min_df": 1, "bigrams": True}, ["one", "two"], InvalidInputError, "no pair of words that is in"),
        ({"characters": True}, ["one", "two"], InvalidInputError, "no character n-gram"),
        ({"min_df": 1, "characters": True}, ["caf\udce9 au lait"], InvalidInputError, "lone surrogate"),
        ({}, shared, InvalidInputError, "hardly any spaces between words: characters=True"),
    ):
        with pytest.raises(error, match=words):
            TextFeatures(**parameters).fit(texts)
        if error is InvalidTypeError:
            with pytest.raises(error, match=words):
                TextFeatures().fit(TEXTS).transform(texts)
    for parameters, error in (
        ({"min_df": 0}, InvalidInputError),
        ({"min_df": 0.5}, InvalidTypeError),
        ({"max_df": 0}, InvalidInputError),
        ({"max_features": 0}, InvalidInputError),
        ({"max_features": "all"}, InvalidTypeError),
        ({"characters": 3}, InvalidTypeError),
    ):
        with pytest.raises(error, match=next(iter(parameters))):
            TextFeatures(**parameters).fit(TEXTS)
    table = pytest.importorskip("pandas").DataFrame({"text": TEXTS})
    with pytest.raises(InvalidTypeError, match=r"found a table of 1 column\. Choose one"):
        TextFeatures().fit(table)


def test_characters_do_without_a_word_that_texts_share():
    texts = ["東京都立図書館", "東京都庁舎前駅"]
    features = TextFeatures(characters=True, bigrams=True)
    X = features.fit_transform(texts)
    assert (features.n_words_, X.shape[1]) == (0, len(features.feature_names))
    assert X.nnz > 0
    again = TextFeatures.from_arrays(features.get_params(), features.to_arrays())
    for fitted in (features, again):
        assert (fitted.transform(texts) != X).nnz == 0
    nothing = {name: array[:0] for name, array in features.to_arrays().items()}
    with pytest.raises(ValueError, match="no term"):
        TextFeatures.from_arrays(features.get_params(), nothing)


# --- figures


def test_features_of_the_sample():
    sample = load_dataset("debtags-sample")
    features = TextFeatures()
    X = features.fit_transform(sample.texts_train)
    assert (X.shape, X.nnz) == ((4875, 10276), 238452)
    found = dict(zip([features.feature_names[column] for column in X[7].indices], X[7].data.tolist()))
    for word, value in (("9wm", 0.33100045), ("allows", 0.12839052), ("be", 0.08417599), ("but", 0.12192753)):
        assert found[word] == pytest.approx(value, rel=1e-6)
    assert features.transform(sample.texts_test).nnz == 78371
    both = TextFeatures(min_df=3, max_features=20_000, characters=True).fit(sample.texts_train[:600])
    grams = both.transform(sample.texts_test[:200])
    assert (grams.shape, grams.nnz) == ((200, 20412), 131924)


@given(st.text("abAİΣσß_1 -\n\u2003😀", max_size=30))
def test_places_are_those_of_the_features(text):
    """As many as scikit-learn counts, and each is the feature, as it is written in the text."""
    for settings, prefix in (
        ({"token_pattern": WORD_PATTERN}, ""),
        ({"analyzer": "char_wb", "ngram_range": (3, 5)}, CHARACTERS_PREFIX),
    ):
        counter = CountVectorizer(**settings)
        try:
            counts = counter.fit_transform([text]).toarray()[0]
        except ValueError:  # no such feature
            continue
        names = [prefix + term for term in counter.get_feature_names_out()]
        places = places_of(text, names)
        assert [len(places[name]) for name in names] == counts.tolist()
        for name in names:
            for start, end in places[name]:
                assert name.removeprefix(prefix).strip(" ") in text[max(0, start - 1) : end + 1].lower()


def test_words_of_a_text_whose_length_changes_in_lower_case():
    assert list(words_in("The İstanbul CAT")) == [(0, 3, "the"), (5, 12, "stanbul"), (13, 16, "cat")]
    assert places_of("DOG dog", ["dog", "cat"]) == {"dog": [(0, 3), (4, 7)], "cat": []}
    assert places_of("Prepress, presses", ["char: pre", "char:press", "char:ses "]) == {
        "char: pre": [(0, 3), (10, 13)],
        "char:press": [(3, 8), (10, 15)],
        "char:ses ": [(14, 17)],
    }


# --- bigrams, stop words and linear counts


@pytest.mark.parametrize("settings", [{}, {"bigrams": True}, {"max_df": 0.5}, {"sublinear_tf": False}, {"max_df": 1}])
def test_weights_are_those_of_scikit_learn(settings):
    texts, new = [*TEXTS, "sea sea sea and sky"], ["blue sea of green", "sky"]
    ours = TextFeatures(min_df=1, **settings)
    theirs = {"sublinear_tf": True, **settings, "max_df": float(settings.get("max_df", 1.0))}
    peer = TfidfVectorizer(ngram_range=(1, 1 + theirs.pop("bigrams", False)), **theirs)
    X, expected = ours.fit_transform(texts), peer.fit_transform(texts)
    assert sorted(ours.feature_names) == peer.get_feature_names_out().tolist()
    assert ours.get_feature_names_out().tolist() == ours.feature_names
    assert ours.feature_names[: ours.n_words_] == [name for name in ours.feature_names if " " not in name]
    columns = [ours.feature_names.index(name) for name in peer.get_feature_names_out()]
    np.testing.assert_allclose(X.toarray()[:, columns], expected.toarray(), atol=1e-6)
    np.testing.assert_allclose(ours.transform(new).toarray()[:, columns], peer.transform(new).toarray(), rtol=1e-5)
    again = TextFeatures.from_arrays(ours.get_params(), ours.to_arrays())
    assert (again.transform(texts) != ours.transform(texts)).nnz == 0
