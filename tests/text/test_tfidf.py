import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer

import tagwise.text
from tagwise.exceptions import InvalidInputError, InvalidTypeError, NotFittedError
from tagwise.text import TfidfFeatures

TEXTS = ["Blue blue sky", "sky and sea", "a deep blue sea", "sea, sea, sea and sky"]


def test_weights_follow_the_formula():
    features = TfidfFeatures(min_df=2)
    X = features.fit_transform(TEXTS)
    assert features.feature_names == ["and", "blue", "sea", "sky"]
    idf = {word: 1 + math.log(5 / (1 + m)) for word, m in (("and", 2), ("blue", 2), ("sea", 3), ("sky", 3))}
    np.testing.assert_allclose(features.idf_, [idf[word] for word in features.feature_names], rtol=1e-6)
    row = np.array([0, (1 + math.log(2)) * idf["blue"], 0, idf["sky"]])
    np.testing.assert_allclose(X[0].toarray()[0], row / np.linalg.norm(row), rtol=1e-5)


def test_agrees_with_scikit_learn():
    ours = TfidfFeatures(min_df=1).fit(TEXTS).transform(["blue sea of green", "sky"])
    theirs = TfidfVectorizer(sublinear_tf=True).fit(TEXTS).transform(["blue sea of green", "sky"])
    np.testing.assert_allclose(ours.toarray(), theirs.toarray(), rtol=1e-5)


def test_result_is_float32_csr_with_sorted_indices():
    features = TfidfFeatures(min_df=1).fit(TEXTS)
    for X in (features.transform(TEXTS), TfidfFeatures(min_df=1).fit_transform(TEXTS)):
        assert type(X) is sp.csr_matrix
        assert X.dtype == np.float32
        assert X.has_sorted_indices
        assert X.shape == (4, len(features.feature_names))


def test_unknown_words_and_no_texts_give_empty_rows():
    features = TfidfFeatures(min_df=1).fit(TEXTS)
    assert features.transform(["zebra", ""]).nnz == 0
    assert features.transform([]).shape == (0, len(features.feature_names))


def test_max_features_keeps_the_most_frequent_words():
    assert TfidfFeatures(max_features=1).fit(TEXTS).feature_names == ["sea"]


def test_any_sequence_of_strings_will_do():
    expected = TfidfFeatures().fit_transform(TEXTS)
    for texts in (tuple(TEXTS), np.array(TEXTS), iter(TEXTS)):
        assert (TfidfFeatures().fit_transform(texts) != expected).nnz == 0


def test_parameters_can_be_cloned():
    assert clone(TfidfFeatures(min_df=5, max_features=7)).get_params() == {"min_df": 5, "max_features": 7}


def test_not_fitted():
    with pytest.raises(NotFittedError, match="call fit"):
        TfidfFeatures().transform(TEXTS)


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [("one text", "found one string"), (3, "found int"), (["a", None], "found None at position 1")],
)
def test_texts_must_be_strings(texts, complaint):
    with pytest.raises(InvalidTypeError, match=complaint):
        TfidfFeatures().fit(texts)
    with pytest.raises(InvalidTypeError, match=complaint):
        TfidfFeatures().fit(TEXTS).transform(texts)


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [([], "texts is empty"), (["", "! ?"], "hold no word"), (["one", "two"], "min_df=2 of the 2 texts")],
)
def test_texts_without_words(texts, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        TfidfFeatures().fit(texts)


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"min_df": 0}, InvalidInputError),
        ({"min_df": 0.5}, InvalidTypeError),
        ({"max_features": 0}, InvalidInputError),
        ({"max_features": "all"}, InvalidTypeError),
    ],
)
def test_bad_parameters(parameters, error):
    with pytest.raises(error, match=next(iter(parameters))):
        TfidfFeatures(**parameters).fit(TEXTS)


def test_lazy_names():
    assert dir(tagwise.text) == ["TfidfFeatures"]
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = tagwise.text.Nothing
