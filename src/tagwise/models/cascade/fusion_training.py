"""Validation rows: their choice, and learning the coefficients of the fusion from them.

What numbers are worth beside each other, in z and in x, is learnt from the order of labels in rows, each row counting
the same, or as it weighs; then scale and level from whether labels are on. All are logistic regressions with a normal
prior: what other data sets have in common (priors.json, made by benchmarks/fusion_prior.py). Few validation rows leave
the prior as it is, many overrule it, and the weight shifts gradually.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.data.splits import split_rows
from tagwise.exceptions import TagwiseWarning, warn
from tagwise.models.cascade.cooccurrence import Together
from tagwise.models.cascade.fusion import (
    CONTEXT_TERMS,
    LEVEL_TERMS,
    Candidates,
    Fusion,
    context_design,
    level_design,
    own_terms,
)
from tagwise.models.cascade.labels_without_rows import TERMS as UNSEEN_TERMS
from tagwise.models.cascade.logistic_regression import Prior, map_listwise, map_logistic
from tagwise.parameters import random_generator
from tagwise.problem import Problem

__all__ = [
    "SCALE_TERMS",
    "Lesson",
    "choose_validation_rows",
    "counting_missing_labels",
    "labels_to_learn_again",
    "learn_fusion",
    "of_labels_in_use",
    "own_design",
    "prior_fusion",
    "prior_of",
    "scale_design",
]

# Some 30 coefficients need no more rows than the most; where a tenth of the rows is less than enough, several tenths
# teach, each by a fit of its own, as long as these fits have no more rows in all than is affordable.
_MOST_VALIDATION_ROWS, _ENOUGH_VALIDATION_ROWS = 5_000, 1_000
_MOST_PARTS, _AFFORDABLE_ROWS = 10, 60_000
_FEWEST_ROWS = 20
# Where so small a share of the rows is enough, up to so many of them, no second fit with all rows is made.
_SPARED_SHARE, _MOST_SPARED_ROWS = 0.05, 3_000
# Only labels of which they hold more than the first share of the rows, and more than twice their own, gain by learning
# them too, and only where these labels have the second share of all known positives is the gain seen.
_NEW_SHARE, _SEEN_SHARE = 0.05, 0.02

SCALE_TERMS = ("opinions", "1")


# ---------------------------------------------------------------------- the prior


@cache
def _priors() -> dict[str, dict[str, list[float]]]:
    return json.loads((files("tagwise.models.cascade") / "priors.json").read_text(encoding="utf-8"))


def prior_of(table: str, terms: Any) -> Prior:
    """Means and deviations (2, p) of terms by their names; 0 and 1 for a term that was never measured."""
    known = _priors()[table]
    return np.array([known.get(term, (0.0, 1.0)) for term in terms]).T


def prior_fusion(opinions: Sequence[str]) -> Fusion:
    """The fusion without any validation rows: the means of the prior."""
    scale, shift = prior_of("scale", SCALE_TERMS)[0]
    own = np.append(scale * prior_of("own", own_terms(opinions)[:-1])[0], shift)
    others = (("context", CONTEXT_TERMS), ("level", LEVEL_TERMS), ("unseen", UNSEEN_TERMS))
    return Fusion(own, *(prior_of(*each)[0] for each in others))


# ---------------------------------------------------------------------- the rows


def choose_validation_rows(
    problem: Problem, *, fraction: float, refit: bool | str, random_state: Any
) -> tuple[list[np.ndarray], bool]:
    """Disjoint rows to learn the fusion from, a part at a time, and whether all rows are learnt in the end.

    Where little is known of a part, there are several of them; one at most where its rows are not learnt. None is empty
    or has all that is known.
    """
    n_rows, n_labels, n_known = problem.n_rows, problem.n_labels, problem.known_per_row()
    size = min(round(fraction * n_rows), _MOST_VALIDATION_ROWS)
    if size == 0 or n_rows < _FEWEST_ROWS:
        return [], True

    def teaching(parts: list[np.ndarray]) -> list[np.ndarray]:
        return [rows for rows in parts if len(rows) and (n_known is None or n_known[rows].sum() < n_known.sum())]

    known_share = 1.0 if n_known is None else int(n_known.sum()) / (n_rows * n_labels)
    auto = isinstance(refit, str)
    if auto or not refit:
        wanted = min(size, round(_SPARED_SHARE * n_rows), _MOST_SPARED_ROWS) if auto else size
        if not auto or wanted * known_share >= _ENOUGH_VALIDATION_ROWS:
            # Every label keeps a row, or it would be lost.
            _, spared = split_rows(problem.Y, wanted / n_rows, random_state, keep_labels=True)
            if not auto or len(spared) * known_share >= _ENOUGH_VALIDATION_ROWS:
                return teaching([spared]), False
    needed = math.ceil(_ENOUGH_VALIDATION_ROWS / max(1.0, size * known_share))
    affordable = min(_MOST_PARTS, max(1, _AFFORDABLE_ROWS // n_rows), n_rows // size)
    order = random_generator(random_state).permutation(n_rows)
    parts = [np.sort(order[part * size : (part + 1) * size]) for part in range(min(needed, affordable))]
    return teaching(parts), True


def labels_to_learn_again(positives: sp.csr_matrix, added: np.ndarray) -> np.ndarray:
    """The labels that ``added`` rows of the ``positives`` (n, L) have much of; none if these are too few to matter."""
    n_rows, n_labels = positives.shape
    frequency, n_added = (np.bincount(part.indices, minlength=n_labels) for part in (positives, positives[added]))
    labels = np.flatnonzero(n_added > max(_NEW_SHARE, 2 * len(added) / n_rows) * frequency)
    return labels if frequency[labels].sum() >= _SEEN_SHARE * positives.nnz else labels[:0]


# ---------------------------------------------------------------------- learn


class Lesson(NamedTuple):
    """Opinions on the shortlists of validation rows by a cascade that was fitted without these rows."""

    opinions: tuple[str, ...]
    """The names of the K opinions."""
    candidates: Candidates
    """The shortlists alone."""
    together: Together
    unseen: np.ndarray
    """(n, M, p): terms of labels without training rows, NaN for others; (0, 0, p) without names."""
    on: np.ndarray
    """(n, M): 1 where the label is a known positive of the row, else 0. Where a listed label stands for others that
    were not listed, their number: the loss is linear in it, so that its mean is that of complete labels."""
    known: np.ndarray
    """bool (n, M): the pair is known; others teach nothing."""
    weight: np.ndarray
    """(n,): how often each row counts."""

    @property
    def by_name(self) -> np.ndarray:
        """Where a label has nothing but its name: bool (n, M)."""
        return ~np.isnan(self.unseen[..., 0]) if len(self.unseen) else np.zeros(self.on.shape, dtype=bool)


def of_labels_in_use(lessons: list[Lesson], frequency: np.ndarray) -> list[Lesson]:
    """The lessons without what they say by the meaning of names on labels that no row has (``frequency`` (L,) is 0).

    Some name is the nearest to every row. That nobody ever used a label says nothing about how near the names of labels
    in use are to their rows.
    """
    if "name meaning" not in lessons[0].opinions:
        return lessons
    return [
        lesson._replace(known=lesson.known & ~(lesson.by_name & (frequency[lesson.candidates.labels] == 0)))
        for lesson in lessons
    ]


def counting_missing_labels(lessons: list[Lesson], worth: np.ndarray) -> list[Lesson]:
    """The lessons with each listed label counting as its inverse propensity (L,): itself and those that are missing.

    No label is right more often than always: where the labels with the largest margin of each row would count above 1
    on average, fewer labels are missing than the propensities say, and all are drawn towards 1.
    """
    margins = _rows(lesson.candidates.opinions[lesson.opinions.index("ranker")] for lesson in lessons)
    first = np.argmax(margins, axis=1)[:, None]
    listed = np.take_along_axis(_rows(lesson.on for lesson in lessons), first, axis=1)
    labels = np.take_along_axis(_rows(lesson.candidates.labels for lesson in lessons), first, axis=1)
    weight = _rows(lesson.weight for lesson in lessons)[:, None]
    missing = float(np.average(listed * (worth[labels] - 1), weights=weight))
    share = min(1.0, (1 - float(np.average(listed, weights=weight))) / missing) if missing > 0 else 1.0
    if share < 1:
        warn(
            f"unlisted='unknown': rows list more labels than they would if as many were missing as the usual "
            f"propensities say; {100 * share:.0f}% of these are taken to be missing. If rows are complete, leave "
            "unlisted at 'off'.",
            TagwiseWarning,
        )
    counts = 1 + share * (worth - 1)
    return [lesson._replace(on=lesson.on * counts[lesson.candidates.labels]) for lesson in lessons]


def learn_fusion(lessons: list[Lesson]) -> Fusion:
    """The regressions by maximum a posteriori: order and level by the opinions, then with co-occurrence, and names."""
    on = _rows(lesson.on for lesson in lessons).astype(np.float64)
    known, by_name = _rows(lesson.known for lesson in lessons), _rows(lesson.by_name for lesson in lessons)
    weight = _rows(lesson.weight for lesson in lessons)
    unseen = prior_of("unseen", UNSEEN_TERMS)[0]
    if len(lessons[0].unseen):
        terms = _rows(lesson.unseen for lesson in lessons)
        unseen = map_logistic(terms, on, known & by_name, prior_of("unseen", UNSEEN_TERMS), weight)

    seen, opinions = known & ~by_name, lessons[0].opinions
    terms = own_design(np.concatenate([lesson.candidates.opinions for lesson in lessons], axis=1))
    order = map_listwise(terms[..., :-1], on, seen, prior_of("own", own_terms(opinions)[:-1]), weight)
    scale, shift = map_logistic(scale_design(terms, order), on, seen, prior_of("scale", SCALE_TERMS), weight)
    own = np.append(scale * order, shift)
    # The label −1, where fewer unseen labels are named than there are places for them, vouches for nothing.
    nothing = by_name | (_rows(lesson.candidates.labels for lesson in lessons) < 0)
    odds = np.where(nothing, -np.inf, terms @ own)

    of_lesson = np.split(odds, np.cumsum([len(lesson.on) for lesson in lessons])[:-1])
    terms = _rows(context_design(each.candidates, each.together, z) for each, z in zip(lessons, of_lesson))
    context = map_listwise(terms, on, seen, prior_of("context", CONTEXT_TERMS), weight)
    terms = level_design(odds, terms @ context)
    return Fusion(own, context, map_logistic(terms, on, seen, prior_of("level", LEVEL_TERMS), weight), unseen)


def _rows(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate(list(parts))


def own_design(opinions: np.ndarray) -> np.ndarray:
    """(n, M, p) from K opinions (K, n, M), in the order of :func:`~tagwise.models.cascade.fusion.own_terms`."""
    many = len(opinions)
    out = np.empty((*opinions.shape[1:], many * (many + 3) // 2 + 1))
    out[..., :many] = np.moveaxis(opinions, 0, -1)
    for place, (i, j) in enumerate(zip(*np.triu_indices(many)), start=many):
        np.multiply(out[..., i], out[..., j], out=out[..., place])
    out[..., -1] = 1
    return out


def scale_design(own: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(n, M, 2): all opinions together, and 1."""
    return np.stack([own[..., :-1] @ weights, own[..., -1]], axis=-1)
