"""Finding a tag by a part of it or of its name, among very many."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np

__all__ = ["TagSearch"]

# What is before and after the part in a tag that is it, starts with it, has a word that starts with it, or holds it.
_PLACES = [("\n\t", "\n\t"), ("\n\t", [""]), (" :-_/.(", [""]), ([""], [""])]


class TagSearch:
    """All tags and names as one text in lower case, a line per tag, which is searched as fast as memory is read.

    Lines are ordered by number of training rows, so that ties go to frequent tags.
    """

    def __init__(self, tags: Sequence[str], names: Mapping[str, str], rows: np.ndarray) -> None:
        self._tags = [tags[place] for place in np.argsort(-rows, kind="stable").tolist()]
        lines = [_folded(f"{tag}\t{names[tag]}" if names.get(tag) else tag) for tag in self._tags]
        self._text = "\n" + "\n".join(lines) + "\n"
        lengths = np.fromiter((len(line) + 1 for line in lines), np.int64, len(lines))
        self._starts: list[int] = (1 + np.cumsum(lengths) - lengths).tolist()

    def find(self, part: str, most: int) -> list[str]:
        """Tags that contain a part: equal to it, starting with it, with a word starting with it, then all others.

        Then come tags that contain its words apart or in another order: ``web server`` finds ``web::server``.
        """
        wanted = _folded(part.strip())
        if not wanted:
            return self._tags[:most]
        found: dict[int, None] = {}
        for before, after in _PLACES:
            fitting = (self._lines(f"{left}{wanted}{right}", most) for left in before for right in after)
            found.update(dict.fromkeys(sorted({line for lines in fitting for line in lines})))
            if len(found) >= most:
                break
        words = sorted(wanted.split(), key=len)
        if len(words) > 1 and len(found) < most:
            found.update(dict.fromkeys(line for line in self._lines(words.pop(), None) if self._holds(line, words)))
        return [self._tags[line] for line in found][:most]

    def _holds(self, line: int, words: list[str]) -> bool:
        start = self._starts[line]
        end = self._text.index("\n", start)
        return all(self._text.find(word, start, end) >= 0 for word in words)

    def _lines(self, part: str, most: int | None) -> list[int]:
        """The first lines that contain a part."""
        lines: list[int] = []
        place = self._text.find(part)
        while place >= 0 and (most is None or len(lines) < most):
            line = bisect_right(self._starts, place + 1) - 1
            lines.append(line)
            # On from the end of the line, which may be the start of the next match.
            place = self._text.find(part, self._text.index("\n", place + 1))
        return lines


def _folded(text: str) -> str:
    """One line, without regard to case."""
    return " ".join(text.casefold().split("\n"))
