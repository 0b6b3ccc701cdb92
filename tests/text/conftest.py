"""A small problem of texts and tags that a tagger learns in a moment."""

import pytest

from tagwise import BinaryRelevance, Tagger

SUBJECTS = {
    "pets": ["dog", "cat", "hamster", "leash"],
    "wine": ["bottle", "grape", "cellar", "vintage"],
    "ships": ["sail", "anchor", "harbour", "mast"],
}


@pytest.fixture
def rows():
    """120 texts of one or two subjects each, with a tag for every subject and one for every pair of them."""
    texts, tags = [], []
    names = list(SUBJECTS)
    for number in range(120):
        first = names[number % 3]
        second = names[(number // 3) % 3]
        words = [SUBJECTS[first][number % 4], SUBJECTS[second][(number // 4) % 4], "the", "and"]
        texts.append(" ".join(words))
        tags.append(sorted({first, second} | ({"mixed"} if first != second else set())))
    return texts, tags


@pytest.fixture
def fitted(rows):
    return Tagger(BinaryRelevance(reg=0.1)).fit(*rows)
