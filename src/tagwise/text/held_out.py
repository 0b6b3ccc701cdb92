"""Rows with known tags that a tagger was not fitted on, in the columns of its features and tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.text.tag_lists import check_known, check_tags, known_matrix, tag_matrix
from tagwise.text.tfidf import TextFeatures, check_texts

__all__ = ["HeldOutRows"]


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Texts and tags as matrices.

    Attributes
    ----------
    X : CSR (n, d)
    Y : CSR (n, L)
        The tags that training saw.
    truth : CSR (n, L + u)
        All tags: after those of Y come the u that training never saw.
    observed : CSR (n, L) or None
        The pairs that were looked at; None where all were.
    unseen : Counter of str
        In how many rows each tag is that training never saw.
    """

    X: sp.csr_matrix
    Y: sp.csr_matrix
    truth: sp.csr_matrix
    observed: sp.csr_matrix | None
    unseen: Counter[str]

    @classmethod
    def of(
        cls, features: TextFeatures, position: Mapping[str, int], texts: Iterable[str], tags: Any, known: Any
    ) -> HeldOutRows:
        """Check what the user gave, and lay it out in the columns of ``features`` and ``position``."""
        rows = check_texts(texts)
        if not rows:
            raise InvalidInputError("texts is empty; at least one text is needed.")
        lists = check_tags(tags, len(rows))
        Y, unseen = tag_matrix(lists, position)
        beyond = {name: len(position) + place for place, name in enumerate(sorted(unseen))}
        truth, _ = tag_matrix(lists, {**position, **beyond})
        observed = None
        if known is not None:
            observed, _ = known_matrix(check_known(known, len(rows)), lists, position)
        return cls(features.transform(rows), Y, truth, observed, unseen)

    @property
    def without_words(self) -> int:
        """Rows without a word that training saw."""
        return int(np.count_nonzero(np.diff(self.X.indptr) == 0))

    @property
    def without_tags(self) -> int:
        """Rows that have no tag at all."""
        return int(np.count_nonzero(np.diff(self.truth.indptr) == 0))
