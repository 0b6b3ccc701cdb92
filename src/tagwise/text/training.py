"""What a tagger is fitted on: checked texts, labels, the mask of known ones, and figures that describe them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, TagwiseWarning, warn
from tagwise.text.tag_lists import all_tags, check_known, check_tags, known_matrix, tag_matrix
from tagwise.text.tfidf import check_texts
from tagwise.text.wording import counted

__all__ = ["TrainingRows"]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Texts with their tags as matrices.

    Attributes
    ----------
    texts : list of str
    tags : list of str
        The names of the columns, sorted.
    Y : CSR (n, L)
    observed : CSR (n, L) or None
        The known pairs; None where all are known.
    without_rows : int
        Names in ``known`` that no row has as a tag, and which are no labels therefore.
    """

    texts: list[str]
    tags: list[str]
    Y: sp.csr_matrix
    observed: sp.csr_matrix | None
    without_rows: int

    @classmethod
    def of(cls, texts: Iterable[str], tags: Any, known: Any) -> TrainingRows:
        """Check what the user gave. Warns where ``known`` names tags that no row has."""
        rows = check_texts(texts)
        if not rows:
            raise InvalidInputError("texts is empty; at least one text with a tag is needed to fit a tagger.")
        lists = check_tags(tags, len(rows))
        names = all_tags(lists)
        if not names:
            raise InvalidInputError(f"tags holds no tag in any of the {len(rows):,} rows; there is nothing to learn.")
        position = {name: column for column, name in enumerate(names)}
        Y, _ = tag_matrix(lists, position)
        if known is None:
            return cls(rows, names, Y, None, 0)
        observed, without = known_matrix(check_known(known, len(rows)), lists, position)
        if without:
            warn(
                f"known names {counted(len(without), 'tag')} that no row has, such as {min(without)!r}; such a tag "
                "cannot be learnt and is never suggested.",
                TagwiseWarning,
            )
        complete = observed.nnz == Y.shape[0] * Y.shape[1]
        return cls(rows, names, Y, None if complete else observed, len(without))

    def figures(self, X: sp.csr_matrix, n_words: int) -> dict[str, Any]:
        """Plain values for people who look at the fitted tagger: see ``Tagger.training_``."""
        return {
            "rows": len(self.texts),
            "features": X.shape[1],
            "words": n_words,
            "tags": len(self.tags),
            "assignments": int(self.Y.nnz),
            "known_pairs": None if self.observed is None else int(self.observed.nnz),
            "known_without_rows": self.without_rows,
            "rows_without_words": int(np.count_nonzero(np.diff(X.indptr) == 0)),
            "rows_without_tags": int(np.count_nonzero(np.diff(self.Y.indptr) == 0)),
            "tag_rows": np.bincount(self.Y.indices, minlength=len(self.tags)).astype(np.int64),
        }
