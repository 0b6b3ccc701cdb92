"""Names of tags as features, and vocabularies."""

import numpy as np
import pytest

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.text.features import TextFeatures
from tagwise.text.names import check_vocabulary, name_features, name_words

WORDS = [
    "cards",
    "chess",
    "devel",
    "game",
    "latex",
    "lang",
    "library",
    "python",
    "to",
    "zürich",
    "1234",
    "q1234",
]


@pytest.fixture
def features():
    fitted = TextFeatures(min_df=1, characters=True).fit([" ".join(WORDS)])
    assert fitted.n_words_ == len(WORDS)
    return fitted


def words_of(name, features):
    found = name_features([name], {}, features)
    return None if found is None else [features.feature_names[column] for column in found.indices]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("devel::lang:python", ["devel", "lang", "python"]),
        ("Chess, chess & CHESS", ["chess"]),
        ("python/game-library_to", ["game", "library", "python", "to"]),
        ("card games", ["cards", "game"]),  # plural and singular
        ("cardGames", ["cards", "game"]),
        ("LaTeX", ["latex"]),  # a word as it is need not be split
        ("chessHTMLGame", ["chess"]),  # "HTMLGame" starts no second word that is known
        ("Zürich", ["zürich"]),
        ("the piano", None),
        ("p14068", None),
        ("1234", None),  # a word of the texts, but no word
        ("", None),
    ],
)
def test_words_of_a_name(name, words, features):
    assert words_of(name, features) == words


def test_names_are_features_in_the_columns_of_texts(features):
    names = name_features(["game", "chess game", "?"], {}, features)
    assert names.shape == (3, len(features.feature_names))
    assert names.dtype == np.float32
    texts = features.transform(["game", "chess game", "?"])
    np.testing.assert_array_equal(
        names.toarray()[:, : features.n_words_] > 0, texts.toarray()[:, : features.n_words_] > 0
    )
    assert not names[:, features.n_words_ :].nnz  # words only


def test_half_of_the_tags_must_have_words(features):
    assert name_features(["game", "p1"], {}, features) is not None
    assert name_features(["game", "p1", "p2"], {}, features) is None
    # An id that looks like a word now and then makes no names of ids.
    assert name_features(["Q17", "Q1234", "Q4", "to"], {}, features) is None


def test_names_of_a_vocabulary_count_by_themselves(features):
    tags = ["Q17", "Q1234", "Q4", "to"]
    named = name_features(tags, {"Q4": "chess", "to": "to"}, features)
    np.testing.assert_array_equal(np.diff(named.indptr), [0, 0, 1, 0])
    assert features.feature_names[named.indices[0]] == "chess"
    named = name_features(["Q17", "game"], {"Q17": "no words of texts"}, features)
    np.testing.assert_array_equal(np.diff(named.indptr), [0, 1])


def test_vocabularies():
    assert check_vocabulary(None) == {}
    assert check_vocabulary(["b", "a", "b"]) == {"b": "b", "a": "a"}
    assert check_vocabulary({"p1": "chess"}) == {"p1": "chess"}
    assert check_vocabulary(np.array(["b", "a"])) == {"b": "b", "a": "a"}


@pytest.mark.parametrize(
    ("vocabulary", "error", "words"),
    [
        ("chess", InvalidTypeError, "a list of tags, or a dictionary with the name of each; found 'chess'"),
        (5, InvalidTypeError, "found 5"),
        (iter(["a"]), InvalidTypeError, "vocabulary must be a list"),
        (["a", 5], InvalidTypeError, "vocabulary must hold names as text; found 5 at position 1"),
        (["a", " "], InvalidInputError, "vocabulary has an empty name"),
        ({"a": None}, InvalidTypeError, "found None at position 0"),
        ({"a": ""}, InvalidInputError, "vocabulary has an empty name"),
        (["\ud800"], InvalidInputError, "not Unicode text"),
    ],
)
def test_bad_vocabularies(vocabulary, error, words):
    with pytest.raises(error, match=words):
        check_vocabulary(vocabulary)


def test_new_tags_do_not_decide_whether_tags_are_words(features):
    tags, is_new = ["Q17", "Q4", "game", "chess"], np.array([False, False, True, True])
    assert name_features(tags, {}, features) is not None
    assert name_features(tags, {}, features, is_new) is None


def test_words_of_names_are_those_that_texts_would_have():
    found = name_words(["works-with::cardGame", "p14068", "Öl/oil", "x", "HTML_parser"])
    assert found == {"works", "with", "card", "game", "öl", "oil", "html", "parser"}
