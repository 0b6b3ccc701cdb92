"""Finding tags by a part of them, against a plain twin."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tagwise.serving.tag_search import TagSearch

ALPHABET = "ab:- İß\n\t"


def rank(tag, name, part):
    """0: it is the part; 1: it starts with it; 2: a word of it does; 3: it holds it; 4: its words; else None."""
    fields = [" ".join(text.casefold().split("\n")) for text in (tag, name) if text]
    fields = [piece for field in fields for piece in field.split("\t")]
    wanted = part.casefold()
    if wanted in fields:
        return 0
    if any(field.startswith(wanted) for field in fields):
        return 1
    if any(f"{mark}{wanted}" in field for field in fields for mark in " :-_/.("):
        return 2
    if any(wanted in field for field in fields):
        return 3
    words = wanted.split()
    return 4 if len(words) > 1 and all(any(word in field for field in fields) for word in words) else None


@given(
    st.dictionaries(st.text(ALPHABET, min_size=1, max_size=6), st.text(ALPHABET, max_size=6), min_size=1, max_size=12),
    st.text("ab: İß-", max_size=4),
    st.integers(1, 15),
    st.data(),
)
def test_finds_what_the_twin_finds(names, part, most, data):
    tags = sorted(names)
    rows = data.draw(st.lists(st.integers(0, 3), min_size=len(tags), max_size=len(tags)))
    found = TagSearch(tags, names, np.array(rows)).find(part, most)
    by_rows = sorted(range(len(tags)), key=lambda place: (-rows[place], place))
    ranks = {tags[place]: rank(tags[place], names[tags[place]], part.strip()) for place in by_rows}
    if not part.strip():
        expected = list(ranks)
    else:
        expected = sorted((tag for tag in ranks if ranks[tag] is not None), key=lambda tag: ranks[tag])
    assert found == expected[:most]


def test_usual_tags_come_first_and_names_count():
    search = TagSearch(["Q1", "Q2", "web", "web::server"], {"Q1": "Web page", "Q2": "cobweb"}, np.array([5, 9, 1, 7]))
    assert search.find("WEB", 10) == ["web", "web::server", "Q1", "Q2"]
    assert search.find("page", 10) == ["Q1"]
    assert search.find("", 2) == ["Q2", "web::server"]
    assert search.find("absent", 10) == []
    assert search.find("server web", 10) == search.find("web  server", 10) == ["web::server"]
    assert search.find("web absent", 10) == []
