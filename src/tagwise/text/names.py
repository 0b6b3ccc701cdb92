"""Names of tags: their words as features, in the columns of the texts' words.

A name is split at everything that is no letter or digit, such as ``::``, ``/``, ``-``, ``_`` and spaces. Each part
counts as it is, or else with an s more or an s less, where the features have such a word; where they have none, a part
in camelCase is split there and its pieces count likewise. Words need two letters: numbers and most ids have none. The
words of tags that no text has are features even where texts have none of them.

Where texts are embedded beside their words, so are names, their parts with spaces between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidTypeError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.text.embeddings import EmbeddedFeatures
from tagwise.text.tags import RemoteTexts, TrainingRows, check_name, column_of, ones_in, require_one_type

__all__ = ["check_vocabulary", "fit_features", "has_name", "name_features", "names_in_use"]

_BETWEEN_WORDS = re.compile(r"[\W_]+")
_TWO_LETTERS = re.compile(r"[^\W\d_].*[^\W\d_]")
# Where fewer tags than this share have a word, they are taken for ids, and words in them for chance.
_SHARE_OF_WORDS = 0.5


def check_vocabulary(vocabulary: Any) -> dict[Any, tuple[Any, ...]]:
    """Tag → name and alternative names, from a mapping to one or several names, or from any collection of tags.

    Tags of a collection are names themselves. None is empty.
    """
    if vocabulary is None:
        return {}
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(vocabulary, Mapping):
        pairs = vocabulary.items()
        for number, names in enumerate(vocabulary.values()):
            if isinstance(names, int):
                raise InvalidTypeError(f"vocabulary must hold names as text; found {names!r} at position {number}.")
    elif isinstance(vocabulary, (str, bytes, Iterator)) or not isinstance(vocabulary, Iterable):
        raise InvalidTypeError(
            f"vocabulary must be a list of tags, or a dictionary with the name of each; found {vocabulary!r:.60}."
        )
    else:
        pairs = ((tag, tag) for tag in vocabulary)
    checked = {}
    for number, (tag, names) in enumerate(pairs):
        several = names if isinstance(names, (list, tuple)) and names else (names,)
        each = dict.fromkeys(check_name(name, "vocabulary", number) for name in several)
        checked[check_name(tag, "vocabulary", number)] = tuple(each)
    require_one_type([checked], "vocabulary holds numbers and names")
    return checked


def fit_features(
    features: Any, rows: TrainingRows, vocabulary: Mapping[Any, tuple[Any, ...]]
) -> tuple[Any, Any, dict[Any, str]]:
    """Features fitted to texts and to the words of names of tags that no text has; X (n, d); names of tags in use."""
    new = [tag for tag, has_rows in zip(rows.tags, rows.has_rows) if not has_rows]
    also = name_words(name for tag in new for name in vocabulary.get(tag, (tag,)))
    if isinstance(rows.texts, RemoteTexts):
        features, X = rows.texts.fit_features(features, also)
    else:
        X = features.fit_transform(rows.texts, also=also)
    return features, X, names_in_use(vocabulary, rows, features, X)


def names_in_use(
    vocabulary: Mapping[str, tuple[str, ...]], rows: TrainingRows, features: Any, X: Any
) -> dict[str, str]:
    """Name of each tag of the vocabulary in its texts: of its names, the one that most of them have in full.

    X (n, d) are the features of the texts. Ties go to the first name: a tag without texts keeps its preferred one. Time
    O(Σ over tags with alternative names of the features of their rows).
    """
    tags = rows.tags
    called = {tag: names[0] for tag, names in vocabulary.items()}
    several = [label for label, tag in enumerate(tags) if len(vocabulary.get(tag, ())) > 1]
    if not several:
        return called
    position = column_of(features.feature_names[: features.n_words_])
    words = {label: [set(_known_words(name, position)) for name in vocabulary[tags[label]]] for label in several}
    rows_of, X = sp.csc_matrix(rows.Y), X.sparse if isinstance(X, FeatureBlocks) else X
    has = sp.csr_matrix((np.ones(X.nnz, dtype=np.float32), X.indices, X.indptr), shape=X.shape)
    for label, names in words.items():
        mine = rows_of.indices[rows_of.indptr[label] : rows_of.indptr[label + 1]]
        shares = (has[mine] @ ones_in(names, X.shape[1]).T).toarray()
        sizes = np.array([len(columns) or np.inf for columns in names])
        called[tags[label]] = vocabulary[tags[label]][int(np.argmax((shares == sizes).sum(axis=0)))]
    return called


def name_features(
    tags: Sequence[Any], vocabulary: Mapping[Any, str], features: Any, is_new: np.ndarray | None = None
) -> sp.csr_matrix | FeatureBlocks | None:
    """The known words of what each tag is called: 0/1 (len(tags), d); None where no tag has any.

    A tag is called what the vocabulary says. Where that says nothing else, the tag is its own name; if fewer than half
    of these tags have a known word, new ones aside (``is_new``, bool per tag), they are taken for ids, such as
    ``p14068``, and have none. Beside words there are embeddings of names where ``features`` embed texts: zeros for ids
    and for names without a word of two letters.
    """
    position = column_of(features.feature_names[: features.n_words_])
    columns = [set(_known_words(str(vocabulary.get(tag, tag)), position)) for tag in tags]
    itself = [place for place, tag in enumerate(tags) if vocabulary.get(tag, tag) == tag]
    old = itself if is_new is None else [place for place in itself if not is_new[place]]
    ids = set(itself) if sum(bool(columns[place]) for place in old) < _SHARE_OF_WORDS * len(old) else set()
    columns = [set() if place in ids else known for place, known in enumerate(columns)]
    if isinstance(features, EmbeddedFeatures):
        dense = np.zeros((len(tags), features.embedder.n_dimensions), dtype=np.float32)
        texts = {
            place: " ".join(filter(None, _BETWEEN_WORDS.split(str(vocabulary.get(tag, tag)))))
            for place, tag in enumerate(tags)
            if place not in ids
        }
        named = [place for place, text in texts.items() if any(map(_TWO_LETTERS.search, text.split()))]
        if named:
            dense[named] = features.embedder([texts[place] for place in named])
        names = FeatureBlocks([ones_in(columns, len(features.words.feature_names)), dense])
        return names if has_name(names).any() else None
    return ones_in(columns, len(features.feature_names)) if any(columns) else None


def has_name(names: sp.csr_matrix | FeatureBlocks) -> np.ndarray:
    """Whether each tag has a name with known words, in :func:`name_features`: bool (L,)."""
    if isinstance(names, FeatureBlocks):
        return has_name(names.sparse) | names.dense.any(axis=1)
    return np.asarray(np.diff(names.indptr) > 0)


def name_words(names: Iterable[Any]) -> set[str]:
    """The words that names consist of, as texts have them: parts in camelCase by their pieces."""
    pieces = (
        piece.lower()
        for name in names
        for part in _BETWEEN_WORDS.split(str(name))
        for piece in _camel_case_pieces(part)
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
