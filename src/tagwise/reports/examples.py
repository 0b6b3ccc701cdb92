"""Rows to show to a person: the text, what is suggested, and what each word adds to each suggestion."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from tagwise.text.features import WORD_PATTERN
from tagwise.text.suggestion import Suggestion
from tagwise.text.tagger import Tagger
from tagwise.text.tags import ValidationRows

__all__ = ["Example", "Piece", "choose_examples", "pieces_of"]

_SUGGESTIONS = 5
_MOST_CHARACTERS = 700
_WORD = re.compile(WORD_PATTERN)
# More words than any text has: all of them are wanted.
_ALL_WORDS = 1 << 30


@dataclass(frozen=True)
class Piece:
    """A part of a text; ``word`` is the feature that it counts for, or None for what lies between words."""

    text: str
    word: str | None


@dataclass(frozen=True)
class Example:
    """One row.

    Attributes
    ----------
    pieces : list of Piece
        The text, at most 700 characters of it.
    shortened : bool
        Whether there was more.
    suggestions : list of Suggestion
        The best five, with the shares of all words where the model has exact explanations.
    right : list of bool
        Which of them the row has.
    missed : list of str
        Tags of the row that are not among them, those that training never saw included.
    unseen : frozenset of str
        Tags of the row that training never saw.
    """

    pieces: list[Piece]
    shortened: bool
    suggestions: list[Suggestion]
    right: list[bool]
    missed: list[str]
    unseen: frozenset[str]


def choose_examples(
    tagger: Tagger,
    texts: list[str],
    tags: list[list[str]],
    held: ValidationRows,
    count: int,
    seed: int,
    *,
    explained: bool,
) -> list[Example]:
    """Rows drawn at random among those that have tags and known words, in the order of the file."""
    usable = np.flatnonzero((np.diff(held.X.indptr) > 0) & (np.diff(held.truth.indptr) > 0))
    chosen = np.sort(np.random.default_rng(seed).permutation(usable)[:count]).tolist()
    if not chosen:
        return []
    answers = tagger.suggest([texts[row] for row in chosen], top=_SUGGESTIONS, explain=_ALL_WORDS if explained else 0)
    known_words = set(tagger.features_.feature_names)
    return [
        _example(texts[row], set(tags[row]), suggestions, known_words, held.unseen)
        for row, suggestions in zip(chosen, answers)
    ]


def _example(
    text: str, tags: set[str], suggestions: list[Suggestion], known_words: set[str], unseen: Container[str]
) -> Example:
    shown = text[:_MOST_CHARACTERS]
    suggested = {suggestion.tag for suggestion in suggestions}
    never_seen = frozenset(tag for tag in tags if tag in unseen)
    return Example(
        pieces_of(shown, known_words),
        len(shown) < len(text),
        suggestions,
        [suggestion.tag in tags for suggestion in suggestions],
        sorted(tags - suggested),
        never_seen,
    )


def pieces_of(text: str, known_words: set[str]) -> list[Piece]:
    """Cut a text into its known words and what lies between them; joined, they are the text again."""
    pieces: list[Piece] = []
    end = 0
    for match in _WORD.finditer(text):
        word = match.group().lower()
        if word not in known_words:
            continue
        if match.start() > end:
            pieces.append(Piece(text[end : match.start()], None))
        pieces.append(Piece(match.group(), word))
        end = match.end()
    if end < len(text):
        pieces.append(Piece(text[end:], None))
    return pieces
