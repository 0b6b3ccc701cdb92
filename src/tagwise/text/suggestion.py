"""What a tagger answers: a tag, how sure it is, and why."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Suggestion", "WordShare"]


@dataclass(frozen=True)
class WordShare:
    """One word's part in a score.

    Attributes
    ----------
    word : str
        The word; a character n-gram is written as ``char:`` and the n-gram with its spaces.
    contribution : float
        Feature value × weight: what the word adds to the score (see ``Tagger.explained_score``).
    share : float
        The contribution over the sum of the sizes of the contributions of all words of the text, so that the sizes of
        all shares add up to 1. Negative where the word speaks against the tag.
    """

    word: str
    contribution: float
    share: float


@dataclass(frozen=True)
class Suggestion:
    """One tag for a text.

    Attributes
    ----------
    tag : str
    score : float
        The model's score; 0 is its own border between off and on.
    probability : float or None
        That the tag is right; None without ``calibrate``.
    why : tuple of WordShare or None
        The words with the largest contributions, largest in size first; None unless asked for.
    intercept : float or None
        What stands without any word; with the contributions of *all* words it adds up to the score, or to what
        ``Tagger.explained_score`` names where the score is made of it. None unless ``why`` was asked for.
    """

    tag: str
    score: float
    probability: float | None = None
    why: tuple[WordShare, ...] | None = None
    intercept: float | None = None
