from collections import Counter

import numpy as np
import pytest

from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning
from tagwise.text.tags import all_tags, check_tags, known_matrix, split_texts, tag_matrix

POSITION = {"a": 0, "b": 1, "c": 2}


def test_tags_as_matrices():
    tags = check_tags([["b", "a", "b"], (), {"c"}], 3)
    assert tags == [["b", "a"], [], ["c"]]
    assert all_tags(tags) == ["a", "b", "c"]
    Y, unseen = tag_matrix([["c", "a"], ["z"], ["b", "z", "y"]], POSITION)
    np.testing.assert_array_equal(Y.toarray(), [[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    assert unseen == Counter({"z": 2, "y": 1})
    assert Y.has_canonical_format
    assert Y.dtype == np.float32
    observed, without = known_matrix([["a", "q"], None, []], [["c"], ["a"], ["b"]], POSITION)
    np.testing.assert_array_equal(observed.toarray(), [[1, 0, 1], [1, 1, 1], [0, 1, 0]])
    assert without == {"q"}


def test_bad_tags():
    for tags, error, complaint in (
        ("abc", InvalidTypeError, "one list of tag names per text"),
        (5, InvalidTypeError, "found 5"),
        ([["a"]], InvalidInputError, "1 rows but texts has 2"),
        ([["a"], "b"], InvalidTypeError, "found the string 'b' at position 1"),
        ([["a"], 3], InvalidTypeError, "found 3 at position 1"),
        ([["a"], None], InvalidTypeError, "found None at position 1"),
        ([["a"], {"b": 1}], InvalidTypeError, "at position 1"),
        ([["a"], [["b"]]], InvalidTypeError, r"found \['b'\] at position 1"),
        ([["a"], [float("nan")]], InvalidTypeError, "found nan"),
        ([["a", " "], ["b"]], InvalidInputError, "an empty name .* at position 0"),
        ([["a", "\udce9"], ["b"]], InvalidInputError, "not Unicode text"),
    ):
        with pytest.raises(error, match=complaint):
            check_tags(tags, 2)
    with pytest.raises(InvalidInputError, match="known has 1 rows"):
        check_tags([None], 2, "known")
    with pytest.raises(InvalidTypeError, match="known must hold lists"):
        check_tags(["a", None], 2, "known")


def test_a_split_has_no_text_on_both_sides():
    texts = [f"text {number}" for number in range(40)] + ["text 0"] * 5
    tags = [["a" if number % 2 else "b"] for number in range(40)] + [["b"]] * 5
    with pytest.warns(TagwiseWarning, match="a text that training rows have too: trained on instead"):
        training, validation = split_texts(texts, tags, 0.5, 0)
    assert sorted(training + validation) == list(range(45))
    assert not {texts[row] for row in training} & {texts[row] for row in validation}
    with pytest.raises(InvalidInputError, match=r"validation 0\.5 leaves no row to validate on"):
        split_texts(["one", "one"], [["a"], ["b"]], 0.5, 0)
    with pytest.raises(InvalidInputError, match=r"validation 0\.5 leaves no row with a tag to train on"):
        split_texts(["one", "two"], [["a"], []], 0.5, 0)
