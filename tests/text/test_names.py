"""Names of tags as features, and vocabularies."""

import importlib.util
import warnings

import numpy as np
import pytest

from tagwise import Tagger, load
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning
from tagwise.text.features import TextFeatures
from tagwise.text.names import check_vocabulary, name_features, name_words, names_in_use
from tagwise.text.tags import TrainingRows

WORDS = ["cards", "chess", "devel", "game", "latex", "lang", "library", "python", "to", "zürich", "1234", "q1234"]


@pytest.fixture
def features():
    fitted = TextFeatures(min_df=1, characters=True).fit([" ".join(WORDS)])
    assert fitted.n_words_ == len(WORDS)
    return fitted


def words_of(name, features):
    found = name_features([name], {}, features)
    return None if found is None else [features.feature_names[column] for column in found.indices]


def test_words_of_a_name(features):
    for name, words in (
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
    ):
        assert words_of(name, features) == words, name


def test_names_are_features_in_the_columns_of_texts(features):
    names = name_features(["game", "chess game", "?"], {}, features)
    assert (names.shape, names.dtype) == ((3, len(features.feature_names)), np.float32)
    words = slice(features.n_words_)
    texts = features.transform(["game", "chess game", "?"]).toarray()
    np.testing.assert_array_equal(names.toarray()[:, words] > 0, texts[:, words] > 0)
    assert not names[:, features.n_words_ :].nnz  # words only
    found = name_words(["works-with::cardGame", "p14068", "Öl/oil", "x", "HTML_parser"])
    assert found == {"works", "with", "card", "game", "öl", "oil", "html", "parser"}


def test_half_of_the_tags_must_have_words(features):
    assert name_features(["game", "p1"], {}, features) is not None
    assert name_features(["game", "p1", "p2"], {}, features) is None
    # An id that looks like a word now and then makes no names of ids.
    tags = ["Q17", "Q1234", "Q4", "to"]
    assert name_features(tags, {}, features) is None
    # Names of a vocabulary count by themselves, and new tags do not count.
    named = name_features(tags, {"Q4": "chess", "to": "to"}, features)
    np.testing.assert_array_equal(np.diff(named.indptr), [0, 0, 1, 0])
    assert features.feature_names[named.indices[0]] == "chess"
    named = name_features(["Q17", "game"], {"Q17": "no words of texts"}, features)
    np.testing.assert_array_equal(np.diff(named.indptr), [0, 1])
    tags, is_new = ["Q17", "Q4", "game", "chess"], np.array([False, False, True, True])
    assert name_features(tags, {}, features) is not None
    assert name_features(tags, {}, features, is_new) is None


def test_vocabularies():
    assert check_vocabulary(None) == {}
    assert check_vocabulary(["b", "a", "b"]) == {"b": ("b",), "a": ("a",)}
    assert check_vocabulary({"p1": "chess", "p2": ["go", "igo", "go"]}) == {"p1": ("chess",), "p2": ("go", "igo")}
    assert check_vocabulary(np.array(["b", "a"])) == {"b": ("b",), "a": ("a",)}


def test_bad_vocabularies():
    for vocabulary, error, words in (
        ("chess", InvalidTypeError, "a list of tags, or a dictionary with the name of each; found 'chess'"),
        (5, InvalidTypeError, "found 5"),
        (iter(["a"]), InvalidTypeError, "vocabulary must be a list"),
        (["a", 5], InvalidTypeError, "vocabulary holds numbers and names: 5 and 'a'"),
        ({"a": 5}, InvalidTypeError, "vocabulary must hold names as text; found 5 at position 0"),
        (["a", " "], InvalidInputError, "vocabulary has an empty name"),
        ({"a": None}, InvalidTypeError, "found None at position 0"),
        ({"a": ""}, InvalidInputError, "vocabulary has an empty name"),
        (["\ud800"], InvalidInputError, "not Unicode text"),
    ):
        with pytest.raises(error, match=words):
            check_vocabulary(vocabulary)


def test_a_tag_goes_by_the_name_that_its_texts_use():
    """Of a name and its alternatives, the one that most texts of the tag have in full is evidence."""
    texts = ["a fast automobile", "an old automobile", "a car park", "a green tree", "some old tree"]
    tags = [["p1"], ["p1"], ["p1"], ["p2"], ["p2"]]
    vocabulary = {"p1": ["car", "automobile", "motor vehicle"], "p2": ["tree", "shrub"], "p3": ["park", "garden"]}
    features = TextFeatures(min_df=1)
    rows = TrainingRows.of(texts, tags, None, vocabulary)
    X = features.fit_transform(rows.texts)
    checked = check_vocabulary(vocabulary)
    assert checked["p2"] == ("tree", "shrub")
    called = names_in_use(checked, rows, features, X)
    # p3 has no text: it goes by its name.
    assert called == {"p1": "automobile", "p2": "tree", "p3": "park"}
    assert names_in_use(check_vocabulary({"p1": "car"}), rows, features, X) == {"p1": "car"}


def test_alternative_names_and_names_of_suggestions_are_saved(tmp_path):
    texts = ["cat and dog", "dog barks", "wine and cheese", "white wine"] * 5
    tags = [["t1"], ["t1"], ["t2"], ["t2"]] * 5
    vocabulary = {"t1": ["pets", "animals"], "t2": "drinks"}
    tagger = Tagger("binary-relevance", vocabulary=vocabulary).fit(texts, tags)
    (suggestion,) = tagger.suggest(["a dog"], top=1)[0]
    assert (suggestion.tag, suggestion.name, suggestion.title) == ("t1", "pets", "t1 (pets)")
    if importlib.util.find_spec("pandas") is not None:
        assert tagger.suggest(["a dog"], as_frame=True)["name"].tolist() == ["pets", "drinks"]
    tagger.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.vocabulary == vocabulary
    assert again.suggest(["a dog"]) == tagger.suggest(["a dog"])
    with pytest.raises(InvalidInputError, match="vocabulary has an empty name"):
        Tagger(vocabulary={"t1": ["pets", ""]}).fit(texts, tags)


def test_a_vocabulary_of_other_ids_is_warned_of():
    texts, tags = ["cat and dog", "red wine"] * 5, [["p1"], ["p2"]] * 5
    addresses = {f"http://yso.fi/p{number}": f"name {number}" for number in range(12)}
    with pytest.warns(TagwiseWarning, match=r"tag in common: texts have 'p1', .* vocabulary 'http://yso.fi/p0'"):
        Tagger("binary-relevance", vocabulary=addresses).fit(texts, tags)


def test_tags_written_nearly_alike_are_one_on_request(tmp_path):
    texts = ["cat and dog", "dog barks", "wine and cheese", "white wine"] * 5
    tags = [["Pets"], ["pets "], ["pets", "Cheese  Shop"], ["cheese shop"]] * 5
    with pytest.warns(TagwiseWarning, match=r"2 tags written in more than one way.*normalise_tags=True"):
        assert len(Tagger("binary-relevance").fit(texts, tags).tags_) == 5
    known = [None, ["PETS"], ["cheese shop"], None] * 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger = Tagger("binary-relevance", normalise_tags=True).fit(texts, tags)
    assert tagger.tags_ == ["Cheese  Shop", "Pets"]
    # The vocabulary's way of writing comes first, and known tags are read likewise.
    named = Tagger("binary-relevance", normalise_tags=True, vocabulary=["PETS", "cheese shop"])
    assert named.fit(texts, tags, known).tags_ == ["PETS", "cheese shop"]
    assert named.training_["known_without_rows"] == 0
    tagger.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.normalise_tags
    assert again.evaluate(texts, [["PETS"]] * 20).unseen == {}
    assert again.label_matrix([["pets", "PETS"]])[0].toarray().tolist() == [[0, 1]]
