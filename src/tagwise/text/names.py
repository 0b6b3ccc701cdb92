"""What tags are called: the words of their names as features, in the columns of the texts' words.

A name is split at everything that is no letter or digit, such as ``::``, ``/``, ``-``, ``_`` and spaces. Each part
counts as it is, or else with an s more or an s less, where the features have such a word; where they have none, a part
in camelCase is split there and its pieces count likewise. Words need two letters: numbers and most ids have none. The
words of tags that no text has are features even where texts have none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidTypeError
from tagwise.text.features import TextFeatures
from tagwise.text.tags import check_name, column_of, ones_in

__all__ = ["check_vocabulary", "name_features", "name_words"]

_BETWEEN_WORDS = re.compile(r"[\W_]+")
_TWO_LETTERS = re.compile(r"[^\W\d_].*[^\W\d_]")
# Where fewer tags than this share have a word, they are taken for ids, and words in them for chance.
_SHARE_OF_WORDS = 0.5


def check_vocabulary(vocabulary: Any) -> dict[str, str]:
    """Tag → name, from a mapping or from any collection of tags, which are then names themselves; None is empty."""
    if vocabulary is None:
        return {}
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(vocabulary, Mapping):
        pairs = vocabulary.items()
    elif isinstance(vocabulary, (str, bytes, Iterator)) or not isinstance(vocabulary, Iterable):
        raise InvalidTypeError(
            f"vocabulary must be a list of tags, or a dictionary with the name of each; found {vocabulary!r:.60}."
        )
    else:
        pairs = ((tag, tag) for tag in vocabulary)
    return {
        check_name(tag, "vocabulary", number): check_name(name, "vocabulary", number)
        for number, (tag, name) in enumerate(pairs)
    }


def name_features(
    tags: Sequence[str], vocabulary: Mapping[str, str], features: TextFeatures, is_new: np.ndarray | None = None
) -> sp.csr_matrix | None:
    """The known words of what each tag is called: 0/1 (len(tags), d); None where no tag has any.

    A tag is called what the vocabulary says. Where that says nothing else, the tag is its own name; if fewer than half
    of these tags have a known word, new ones aside (``is_new``, bool per tag), they are taken for ids, such as
    ``p14068``, and have none.
    """
    position = column_of(features.feature_names[: features.n_words_])
    columns = [sorted(set(_known_words(vocabulary.get(tag, tag), position))) for tag in tags]
    itself = [place for place, tag in enumerate(tags) if vocabulary.get(tag, tag) == tag]
    old = itself if is_new is None else [place for place in itself if not is_new[place]]
    if sum(bool(columns[place]) for place in old) < _SHARE_OF_WORDS * len(old):
        for place in itself:
            columns[place] = []
    return ones_in(columns, len(features.feature_names)) if any(columns) else None


def name_words(names: Iterable[str]) -> set[str]:
    """The words that names consist of, as texts have them: parts in camelCase by their pieces."""
    pieces = (
        piece.lower() for name in names for part in _BETWEEN_WORDS.split(name) for piece in _camel_case_pieces(part)
    )
    return {piece for piece in pieces if _TWO_LETTERS.search(piece)}


def _known_words(name: str, position: Mapping[str, int]) -> Iterator[int]:
    for part in _BETWEEN_WORDS.split(name):
        column = _column(part, position)
        pieces = [column] if column is not None else (_column(piece, position) for piece in _camel_case_pieces(part))
        yield from (column for column in pieces if column is not None)


def _column(part: str, position: Mapping[str, int]) -> int | None:
    word = part.lower()
    if not _TWO_LETTERS.search(word):
        return None
    # One form only: a text that has one of two would have half of the name.
    return next((position[form] for form in (word, f"{word}s", word.removesuffix("s")) if form in position), None)


def _camel_case_pieces(part: str) -> list[str]:
    """``cardGame2D`` is ``card``, ``Game2``, ``D``."""
    starts = [place for place in range(1, len(part)) if part[place].isupper() and not part[place - 1].isupper()]
    return [part[start:stop] for start, stop in zip([0, *starts], [*starts, len(part)])]
