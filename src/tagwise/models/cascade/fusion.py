r"""One probability out of several opinions on a shortlisted label, by coefficients learnt on validation rows.

Each opinion is one number a per candidate label of a row:

==========  ==============================================================================================
ranker      the margin m, at most 4 in size; 2s where the label has no ranker
proposer    log of the proposer's score s + ½, in [10⁻³, 1]
prototype   log of (c + 0.1)/1.1 for the cosine c of the row with the label's prototype
frequency   ½ log((f + ½)/30) for a label with f known positive rows
name        how much of the label's name the row has, where labels have names
meaning     3c for the cosine c of the row with the label's prototype by a dense block, where there is one
its name's  3c for the cosine c of the row with the label's name, where names have a dense block too
==========  ==============================================================================================

1. z = w·(1, a, all products aᵢaⱼ) is the log odds of the label by its own opinions.
2. **Co-occurrence.** Up to eight labels t, those with the largest p_t = σ(z_t) ≥ 0.05, vouch for the row's other labels
   j by the log ratio of P(j | t) to P(j), shrunk for rare pairs,

   .. math:: \ell_j = \frac{\sum_{t \ne j} p_t \log \frac{(c_{jt} + 5π_j)/(f_t + 5)}{π_j}}{\max(0.3, \sum_{t≠j} p_t)} ,

   with c the number of rows that have both, and π_j = (f_j + ½)/(n + 1). The label with the largest z is left to its
   own opinions: others follow from it. x = v·(z, z², frequency, ℓ, …) orders the labels, and u·(1, x, x², log of the
   rank by z, …) is the log odds of the final probability.
3. **Labels without training rows** have no opinion but their name's. Where a row has some of the name, their log odds
   are n·(1, name, whether the name is whole, log(1 + c) if so), for the c training rows that had the whole name, and
   not the label: a name that was always passed over is no longer evidence. Where names have a dense block, their
   meaning a and a² join these, and any row is one that may have such a label.

What numbers are worth beside each other, in z and in x, is learnt from the order of labels in rows, each row counting
the same, or as it weighs; then scale and level from whether labels are on. All are logistic regressions with a normal
prior: what other data sets have in common. Few validation rows leave the prior as it is, many overrule it, and the
weight shifts gradually.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.data.splits import split_rows
from tagwise.exceptions import TagwiseWarning, warn
from tagwise.kernels.compiled import compiled
from tagwise.kernels.prefetch import fetch
from tagwise.kernels.shortlists import Lookup, behind, place_in_bitmap
from tagwise.kernels.top_k import keep, nothing_found
from tagwise.kernels.vectors import scratch, sigmoid, take_logarithms
from tagwise.models.cascade.opinions import PAIR_SHRINKAGE, LabelFacts, Opinions
from tagwise.models.cascade.regressions import Prior, map_listwise, map_logistic
from tagwise.parallel import even_chunks, run_chunks
from tagwise.persistence.fit_state import State, array
from tagwise.randomness import random_generator

__all__ = [
    "Fusion",
    "Lesson",
    "choose_validation_rows",
    "context_design",
    "counting_missing_labels",
    "known_by_name",
    "labels_to_learn_again",
    "learn_fusion",
    "level_design",
    "n_terms",
    "of_labels_in_use",
    "own_design",
    "own_prior",
    "scale_design",
    "unseen_design",
    "unseen_prior",
]

# A margin beyond this says no more: float32 margins of separable labels may be any size.
_MOST_MARGIN = 4.0
# A proposer's score below this (0/1 scale) is as good as none.
_LEAST = 1e-3
# Cosines near 0 are not told apart, so that a label of few rows is not out for want of a common word.
_LEAST_COSINE = 0.1
# So many labels of a row vouch for others.
_SOURCES = 8
# Labels that are less likely do not vouch, and this is the least weight of those that do.
_LEAST_CHANCE, _LEAST_SOURCES = 0.05, 0.3
_CONTEXT_TERMS, _LEVEL_TERMS, _UNSEEN_TERMS = 8, 6, 4
# Of labels without rows, two more by the meaning of names.
_UNSEEN_SIZES = (_UNSEEN_TERMS, _UNSEEN_TERMS + 2)
# The longest of a label's lists of terms: 7 opinions, their products and 1.
_MOST_TERMS = 36
# Cosines with directions from the mean are around a third in size.
_MEANING_SCALE = 3.0
# Up to so many labels of a shortlist are ranked by comparing all pairs of them.
_FEW_LABELS = 150
# No fit comes near; sums of terms with such coefficients cannot overflow.
_MOST_COEFFICIENT = 1e6

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

# Mean and standard deviation of each coefficient over data sets, by empirical Bayes (benchmarks/fusion_prior.py): 26
# problems of 6 to 27,754 labels, with all labels known or a fifth.
_OWN_PRIOR = np.array(
    [
        (1.985, 0.782),  # ranker
        (1.229, 0.520),  # proposer
        (1.283, 0.481),  # prototype
        (-0.293, 0.611),  # frequency
        (-0.029, 0.423),  # ranker · ranker
        (0.040, 0.198),  # ranker · proposer
        (-0.085, 0.463),  # ranker · prototype
        (-0.253, 0.325),  # ranker · frequency
        (0.127, 0.067),  # proposer · proposer
        (-0.185, 0.466),  # proposer · prototype
        (-0.247, 0.099),  # proposer · frequency
        (-0.176, 0.294),  # prototype · prototype
        (-0.312, 0.419),  # prototype · frequency
        (0.071, 0.292),  # frequency · frequency
    ]
).T
_NAME_PRIOR = np.array(
    [
        (1.602, 0.826),  # name
        (-0.267, 0.872),  # ranker · name
        (-0.611, 0.275),  # proposer · name
        (-0.988, 0.681),  # prototype · name
        (-0.770, 0.513),  # frequency · name
        (-0.393, 0.798),  # name · name
    ]
).T
# Likewise, from three texts with one or two embeddings and a set of dense features.
_MEANING_PRIOR = np.array(
    [
        (0.798, 0.981),  # meaning
        (-0.150, 0.185),  # ranker · meaning
        (-0.159, 0.195),  # proposer · meaning
        (-1.132, 0.244),  # prototype · meaning
        (-0.231, 0.116),  # frequency · meaning
        (0.068, 0.252),  # name · meaning
        (-0.064, 0.073),  # meaning · meaning
    ]
).T
_NAME_MEANING_PRIOR = np.array(
    [
        (1.212, 0.380),  # its name's
        (0.250, 0.217),  # ranker · its name's
        (-0.105, 0.104),  # proposer · its name's
        (-0.090, 0.268),  # prototype · its name's
        (-0.474, 0.173),  # frequency · its name's
        (-0.674, 0.249),  # name · its name's
        (-0.741, 0.186),  # meaning · its name's
        (0.200, 0.139),  # its name's · its name's
    ]
).T
_SCALE_PRIOR = np.array(
    [
        (0.985, 0.095),  # the opinions together
        (-0.614, 0.696),  # 1
    ]
).T
_CONTEXT_PRIOR = np.array(
    [
        (1.076, 0.090),  # z
        (0.095, 0.036),  # z²/5
        (-0.039, 0.072),  # frequency
        (-0.040, 0.025),  # frequency · z
        (0.009, 0.079),  # ℓ
        (-0.063, 0.022),  # ℓ · z
        (0.069, 0.098),  # ℓ · frequency
        (0.009, 0.028),  # ℓ²
    ]
).T
_LEVEL_PRIOR = np.array(
    [
        (0.837, 0.084),  # x
        (-0.036, 0.075),  # x²/5
        (0.374, 0.305),  # first of its row
        (-0.005, 0.079),  # first of its row · x
        (-0.162, 0.195),  # log of the rank
        (-0.077, 0.160),  # 1
    ]
).T
_UNSEEN_PRIOR = np.array(
    [
        (3.134, 1.091),  # name
        (0.799, 1.439),  # the whole name
        (-0.914, 0.238),  # the whole name · log of the rows that had it
        (-5.941, 1.467),  # 1
    ]
).T
_UNSEEN_MEANING_PRIOR = np.array(
    [
        (2.787, 0.362),  # the name's meaning
        (0.154, 0.357),  # its square
    ]
).T


_NONE_HIDDEN = np.zeros((0, 0), dtype=np.bool_)
# Labels of the rows that a thread takes at a time.
_CHUNK = 1 << 13

# w, v, u and n.
_Coefficients: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def n_terms(n_numbers: int) -> int:
    """How many coefficients w has for so many opinions: one each, one per product of two, and the intercept."""
    return n_numbers + n_numbers * (n_numbers + 1) // 2 + 1


@dataclass(frozen=True, eq=False)
class Fusion(State):
    """The coefficients w of opinions, v of co-occurrence, u of the final odds, n of labels without rows."""

    own: np.ndarray = array(None, dtype=np.float64)
    context: np.ndarray = array(_CONTEXT_TERMS, dtype=np.float64)
    level: np.ndarray = array(_LEVEL_TERMS, dtype=np.float64)
    unseen: np.ndarray = array(None, dtype=np.float64)

    @classmethod
    def prior(cls, *, names: bool = False, dense: bool = False, name_meanings: bool = False) -> Fusion:
        """What is taken where nothing is learnt: the means of the prior."""
        scale, shift = _SCALE_PRIOR[0]
        own = np.append(scale * own_prior(names=names, dense=dense, name_meanings=name_meanings)[0], shift)
        unseen = unseen_prior(name_meanings=name_meanings)[0].copy()
        return cls(own, _CONTEXT_PRIOR[0].copy(), _LEVEL_PRIOR[0].copy(), unseen)

    def check(self, *, names: bool | None = None, dense: bool | None = None, name_meanings: bool | None = None) -> None:
        """Raise ValueError unless these are coefficients of all terms, those of optional opinions where it is known."""
        fitting = sorted(
            {
                (n_terms(4 + with_names + with_dense + with_meanings), _UNSEEN_SIZES[with_meanings])
                for with_names in ((False, True) if names is None else (names,))
                for with_dense in ((False, True) if dense is None else (dense,))
                for with_meanings in ((False, True) if name_meanings is None else (name_meanings,))
            }
        )
        coefficients = self._coefficients
        shapes = [part.shape for part in coefficients]
        if shapes not in [[(own,), (_CONTEXT_TERMS,), (_LEVEL_TERMS,), (unseen,)] for own, unseen in fitting]:
            own, unseen = (" or ".join(map(str, dict.fromkeys(sizes))) for sizes in zip(*fitting))
            raise ValueError(
                f"the fusion needs {own} coefficients of opinions, {_CONTEXT_TERMS} of co-occurrence, {_LEVEL_TERMS} "
                f"of the level and {unseen} of labels without rows; found {', '.join(map(str, shapes))}"
            )
        if not (np.abs(np.concatenate(coefficients)) <= _MOST_COEFFICIENT).all():
            raise ValueError(f"coefficients of the fusion must be at most {_MOST_COEFFICIENT:g} in size")

    @property
    def _coefficients(self) -> _Coefficients:
        return self.own, self.context, self.level, self.unseen

    def scores(self, opinions: Opinions, facts: LabelFacts) -> np.ndarray:
        """P − ½, in [−½, ½], of labels (n×N) that are all shortlisted, in the type of ``opinions.proposed``."""
        out = np.empty(opinions.proposed.shape, dtype=opinions.proposed.dtype)
        _scores(opinions, facts, self._coefficients, _places(facts), out)
        return out

    def best(
        self, opinions: Opinions, facts: LabelFacts, k: int, hidden: np.ndarray | None = None, *, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k labels of each row with the largest probabilities p, in one pass over n×N labels.

        ``hidden``, bool (n, N), are candidates that are not to be returned; they still vouch for others, so that no
        score depends on what is hidden.

        Returns
        -------
        labels : int64 array (n, k)
            Best first, equal scores in the order of their ids; then the labels behind the shortlist in the proposer's
            order; −1 where there are no more.
        scores : array (n, k) in the type of ``opinions.proposed``
            p − ½; behind the shortlist those of :func:`~tagwise.kernels.shortlists.behind_shortlist`; −inf where the
            label is −1.
        """
        n_rows, width = opinions.labels.shape
        best = nothing_found(n_rows, k, opinions.proposed.dtype)
        skipped = _NONE_HIDDEN if hidden is None else hidden

        def rows(start: int, stop: int) -> None:
            _best(opinions, facts, self._coefficients, skipped, _places(facts), best, start, stop)

        run_chunks(rows, even_chunks(n_rows, max(1, _CHUNK // max(1, width))), n_threads)
        return best


# ---------------------------------------------------------------------- learn


def choose_validation_rows(
    positives: sp.csr_matrix, n_known: np.ndarray | None, *, fraction: float, refit: bool | str, random_state: Any
) -> tuple[list[np.ndarray], bool]:
    """Disjoint rows to learn the fusion from, a part at a time, and whether all rows are learnt in the end.

    Where little is known of a part, there are several of them; one at most where its rows are not learnt. ``positives``
    (n, L) are the known ones, ``n_known`` (n,) says how many labels are known of each row, None that all are.
    """
    n_rows, n_labels = positives.shape
    size = min(round(fraction * n_rows), _MOST_VALIDATION_ROWS)
    if size == 0 or n_rows < _FEWEST_ROWS:
        return [], True
    known_share = 1.0 if n_known is None else int(n_known.sum()) / (n_rows * n_labels)
    auto = isinstance(refit, str)
    if auto or not refit:
        wanted = min(size, round(_SPARED_SHARE * n_rows), _MOST_SPARED_ROWS) if auto else size
        if not auto or wanted * known_share >= _ENOUGH_VALIDATION_ROWS:
            # Every label keeps a row, or it would be lost.
            _, spared = split_rows(positives, wanted / n_rows, random_state, keep_labels=True)
            if not auto or len(spared) * known_share >= _ENOUGH_VALIDATION_ROWS:
                return _that_leave_pairs([spared], n_known), False
    needed = math.ceil(_ENOUGH_VALIDATION_ROWS / max(1.0, size * known_share))
    affordable = min(_MOST_PARTS, max(1, _AFFORDABLE_ROWS // n_rows), n_rows // size)
    order = random_generator(random_state).permutation(n_rows)
    parts = [np.sort(order[part * size : (part + 1) * size]) for part in range(min(needed, affordable))]
    return _that_leave_pairs(parts, n_known), True


def _that_leave_pairs(parts: list[np.ndarray], n_known: np.ndarray | None) -> list[np.ndarray]:
    """The parts of the rows that are not empty and leave a known pair to learn from."""
    if n_known is None:
        return [rows for rows in parts if len(rows)]
    return [rows for rows in parts if len(rows) and n_known[rows].sum() < n_known.sum()]


def labels_to_learn_again(positives: sp.csr_matrix, added: np.ndarray) -> np.ndarray:
    """The labels that ``added`` rows of the ``positives`` (n, L) have much of; none if these are too few to matter."""
    n_rows, n_labels = positives.shape
    frequency, n_added = (np.bincount(part.indices, minlength=n_labels) for part in (positives, positives[added]))
    labels = np.flatnonzero(n_added > max(_NEW_SHARE, 2 * len(added) / n_rows) * frequency)
    return labels if frequency[labels].sum() >= _SEEN_SHARE * positives.nnz else labels[:0]


class Lesson(NamedTuple):
    """Opinions on the shortlists of validation rows by a cascade that was fitted without these rows."""

    opinions: Opinions
    facts: LabelFacts
    on: np.ndarray
    """(n, M): 1 where the label is a known positive of the row, else 0. Where a listed label stands for others that
    were not listed, their number: the loss is linear in it, so that its mean is that of complete labels."""
    known: np.ndarray
    """bool (n, M): the pair is known; others teach nothing."""
    weight: np.ndarray
    """(n,): how often each row counts."""


def counting_missing_labels(lessons: list[Lesson], worth: np.ndarray) -> list[Lesson]:
    """The lessons with each listed label counting as its inverse propensity (L,): itself and those that are missing.

    No label is right more often than always: where the labels with the largest margin of each row would count above 1
    on average, fewer labels are missing than the propensities say, and all are drawn towards 1.
    """
    best = [np.argmax(lesson.opinions.margins, axis=1)[:, None] for lesson in lessons]
    listed = np.concatenate([np.take_along_axis(lesson.on, first, axis=1) for lesson, first in zip(lessons, best)])
    labels = [np.take_along_axis(lesson.opinions.labels, first, axis=1) for lesson, first in zip(lessons, best)]
    weight = np.concatenate([lesson.weight for lesson in lessons])[:, None]
    missing = float(np.average(listed * (worth[np.concatenate(labels)] - 1), weights=weight))
    share = min(1.0, (1 - float(np.average(listed, weights=weight))) / missing) if missing > 0 else 1.0
    if share < 1:
        warn(
            f"unlisted='unknown': rows list more labels than they would if as many were missing as the usual "
            f"propensities say; {100 * share:.0f}% of these are taken to be missing. If rows are complete, leave "
            "unlisted at 'off'.",
            TagwiseWarning,
        )
    counts = 1 + share * (worth - 1)
    return [lesson._replace(on=lesson.on * counts[lesson.opinions.labels]) for lesson in lessons]


def of_labels_in_use(lessons: list[Lesson], frequency: np.ndarray) -> list[Lesson]:
    """The lessons without what they say by the meaning of names on labels that no row has (``frequency`` (L,) is 0).

    Some name is the nearest to every row. That nobody ever used a label says nothing about how near the names of labels
    in use are to their rows.
    """
    if not lessons[0].opinions.name_meanings.shape[1]:
        return lessons
    return [
        lesson._replace(known=lesson.known & ~(known_by_name(lesson) & (frequency[lesson.opinions.labels] == 0)))
        for lesson in lessons
    ]


def learn_fusion(lessons: list[Lesson]) -> Fusion:
    """The regressions by maximum a posteriori: order and level by the opinions, then with co-occurrence, and names."""
    by_name = [known_by_name(lesson) for lesson in lessons]
    on = [lesson.on.astype(np.float64) for lesson in lessons]
    seen = [lesson.known & ~alone for lesson, alone in zip(lessons, by_name)]
    named = [lesson.known & alone for lesson, alone in zip(lessons, by_name)]
    weight = [lesson.weight for lesson in lessons]
    names = lessons[0].opinions.names.shape[1] > 0
    name_meanings = lessons[0].opinions.name_meanings.shape[1] > 0
    prior = unseen_prior(name_meanings=name_meanings)
    unseen = prior[0].copy()
    if names or name_meanings:
        unseen = map_logistic([unseen_design(lesson) for lesson in lessons], on, named, prior, weight)

    terms = [own_design(lesson) for lesson in lessons]
    prior = own_prior(names=names, dense=lessons[0].opinions.meanings.shape[1] > 0, name_meanings=name_meanings)
    order = map_listwise([part[..., :-1] for part in terms], on, seen, prior, weight)
    scale, shift = map_logistic([scale_design(part, order) for part in terms], on, seen, _SCALE_PRIOR, weight)
    own = np.append(scale * order, shift)
    # The label −1, where fewer unseen labels are named than there are places for them, vouches for nothing.
    without = [alone | (lesson.opinions.labels < 0) for lesson, alone in zip(lessons, by_name)]
    odds = [np.where(nothing, -np.inf, part @ own) for part, nothing in zip(terms, without)]

    terms = [context_design(*each) for each in zip(lessons, odds)]
    context = map_listwise(terms, on, seen, _CONTEXT_PRIOR, weight)
    terms = [level_design(z, part @ context) for z, part in zip(odds, terms)]
    return Fusion(own, context, map_logistic(terms, on, seen, _LEVEL_PRIOR, weight), unseen)


def known_by_name(lesson: Lesson) -> np.ndarray:
    """Where a label has nothing but its name: bool (n, M)."""
    out = np.zeros(lesson.opinions.margins.shape, dtype=bool)
    _fill_named_alone(lesson.opinions, lesson.facts, out)
    return out


def own_prior(*, names: bool, dense: bool = False, name_meanings: bool = False) -> Prior:
    """Means and deviations (2, p) in the order of :func:`_own_terms`, without 1."""
    known, of_name, of_meaning = iter(_OWN_PRIOR.T), iter(_NAME_PRIOR.T), iter(_MEANING_PRIOR.T)
    of_name_meaning = iter(_NAME_MEANING_PRIOR.T)
    # Which opinion of which table each number is: a product belongs to the later table of its two.
    tables = [known] * 4 + [of_name] * names + [of_meaning] * dense + [of_name_meaning] * name_meanings
    numbers = [next(table) for table in tables]
    products = []
    for i in range(len(tables)):
        if not names and i == 4:  # products with the name are left out
            for table in tables[4:]:
                next(table)
        products += [next(tables[j]) for j in range(i, len(tables))]
    return np.array([*numbers, *products]).T


def unseen_prior(*, name_meanings: bool = False) -> Prior:
    """Means and deviations (2, p) in the order of :func:`_unseen_terms`."""
    return np.hstack([_UNSEEN_PRIOR, _UNSEEN_MEANING_PRIOR]) if name_meanings else _UNSEEN_PRIOR


def own_design(lesson: Lesson) -> np.ndarray:
    """(n, M, p)."""
    opinions = lesson.opinions
    beside = opinions.names, opinions.meanings, opinions.name_meanings
    many = 4 + sum(part.shape[1] > 0 for part in beside)
    out = np.zeros((*opinions.margins.shape, n_terms(many)))
    _fill_own(lesson.opinions, lesson.facts, _places(lesson.facts), out)
    return out


def unseen_design(lesson: Lesson) -> np.ndarray:
    """(n, M, p), of use where :func:`known_by_name` says so."""
    size = _UNSEEN_SIZES[lesson.opinions.name_meanings.shape[1] > 0]
    out = np.zeros((*lesson.opinions.margins.shape, size))
    _fill_unseen(lesson.opinions, lesson.facts, _places(lesson.facts), out)
    return out


def scale_design(own_terms: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(n, M, 2): all opinions together, and 1."""
    return np.stack([own_terms[..., :-1] @ weights, own_terms[..., -1]], axis=-1)


def context_design(lesson: Lesson, odds: np.ndarray) -> np.ndarray:
    """(n, M, p) from z (n, M), −∞ where a label has none."""
    out = np.zeros((*odds.shape, _CONTEXT_TERMS))
    _fill_context(lesson.opinions, lesson.facts, odds, _places(lesson.facts), out)
    return out


def level_design(odds: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(n, M, p) from z and x (n, M), both of a row's labels."""
    out = np.zeros((*odds.shape, _LEVEL_TERMS))
    _fill_level(odds, scores, np.zeros(0, dtype=np.int32), out)
    return out


def _places(facts: LabelFacts) -> np.ndarray:
    """A number per label, all 0: for :func:`_find_lifts`."""
    return scratch("places", len(facts.often), np.int32)


# ---------------------------------------------------------------------- the formula, for the labels of a row


class _Workspace(NamedTuple):
    """For the M labels of a row: all of a term is side by side, so that a step takes several labels at once."""

    terms: np.ndarray
    """(p, M): numbers to be weighted and added up."""
    odds: np.ndarray
    """z (M,): log odds by the opinions."""
    ranks: np.ndarray
    """int (M,): how many labels of the row have larger odds by the opinions."""
    lifts: np.ndarray
    """ℓ (M,)."""
    by_name: np.ndarray
    """(M,): log odds of labels without training rows."""
    some: np.ndarray
    """(4, M): for steps in between."""
    together: np.ndarray
    """int (M + 1,): how often a label occurs with another, at 1 + its place; zeros, and left so, but for place 0."""
    place_of: np.ndarray
    """int (L,), zeros, and left so."""


@compiled()
def _workspace(n_listed: int, place_of: np.ndarray) -> _Workspace:
    numbers, counts = np.zeros((_MOST_TERMS + 7, n_listed)), np.zeros(n_listed + 1, dtype=np.int64)
    return _Workspace(
        numbers[:_MOST_TERMS],
        numbers[_MOST_TERMS],
        np.zeros(n_listed, dtype=np.int64),
        numbers[_MOST_TERMS + 1],
        numbers[_MOST_TERMS + 2],
        numbers[_MOST_TERMS + 3 :],
        counts,
        place_of,
    )


@compiled()
def _own_terms(opinions: Opinions, facts: LabelFacts, row: int, space: _Workspace) -> int:
    """The opinions on each label, their products and 1; returns how many. Those of the label −1 are never used."""
    terms, n_listed = space.terms, space.terms.shape[1]
    labels, proposed, margins, cosines = opinions.labels, opinions.proposed, opinions.margins, opinions.cosines
    for at in range(n_listed):
        label, score = max(labels[row, at], 0), np.float64(proposed[row, at])
        # Twice the centred score is least squares' score of labels −1/+1, the scale of a margin.
        margin = np.float64(margins[row, at]) if facts.has_ranker[label] else 2 * score
        cosine = min(1.0, max(np.float64(cosines[row, at]), 0.0))
        terms[0, at] = min(_MOST_MARGIN, max(margin, -_MOST_MARGIN))
        terms[1, at] = min(1.0, max(score + 0.5, _LEAST))
        terms[2, at] = (cosine + _LEAST_COSINE) / (1 + _LEAST_COSINE)
        terms[3, at] = facts.often[label]
    take_logarithms(terms[1], space.some[0])
    take_logarithms(terms[2], space.some[0])
    for at in range(n_listed):
        terms[1, at] += 1.5
        terms[2, at] += 1.2
    many = 4
    if opinions.names.shape[1] > 0:
        for at in range(n_listed):
            terms[many, at] = opinions.names[row, at]
        many += 1
    if opinions.meanings.shape[1] > 0:
        for at in range(n_listed):
            terms[many, at] = _MEANING_SCALE * np.float64(opinions.meanings[row, at])
        many += 1
    if opinions.name_meanings.shape[1] > 0:
        for at in range(n_listed):
            terms[many, at] = _MEANING_SCALE * np.float64(opinions.name_meanings[row, at])
        many += 1
    end = many
    for i in range(many):
        for j in range(i, many):
            _multiply(terms[i], terms[j], terms[end])
            end += 1
    terms[end] = 1.0
    return end + 1


@compiled()
def _multiply(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    for at in range(len(out)):
        out[at] = left[at] * right[at]


@compiled(fastmath={"contract"})
def _weighted(terms: np.ndarray, coefficients: np.ndarray, out: np.ndarray) -> None:
    """Σ_t ``coefficients[t]``·``terms[t]`` of each label."""
    out[:] = 0
    for term in range(len(coefficients)):
        values, factor = terms[term], coefficients[term]
        for at in range(len(out)):
            out[at] += factor * values[at]


@compiled(inline="always")
def _named_alone(opinions: Opinions, facts: LabelFacts, row: int, at: int) -> bool:
    """A label that is there, has no training row, and some of whose name the row has, or whose name has a meaning."""
    label = opinions.labels[row, at]
    if label < 0 or facts.frequency[label] > 0:
        return False
    if opinions.names.shape[1] > 0 and opinions.names[row, at] > 0:
        return True
    # Names without an embedding are zeros, whose cosine is 0.
    return opinions.name_meanings.shape[1] > 0 and opinions.name_meanings[row, at] != 0


@compiled()
def _unseen_terms(opinions: Opinions, facts: LabelFacts, row: int, space: _Workspace) -> int:
    """Those of each label as if it had no training row; returns how many."""
    terms = space.terms
    for at in range(terms.shape[1]):
        label = max(opinions.labels[row, at], 0)
        name = np.float64(opinions.names[row, at]) if opinions.names.shape[1] > 0 else 0.0
        # But for rounding.
        whole = 1.0 if name > 0 and name >= 0.999 * facts.whole_name[label] else 0.0
        terms[0, at] = name
        terms[1, at] = whole
        terms[2, at] = whole * facts.log_named[label]
        terms[3, at] = 1.0
        if opinions.name_meanings.shape[1] > 0:
            meaning = _MEANING_SCALE * np.float64(opinions.name_meanings[row, at])
            terms[4, at] = meaning
            terms[5, at] = meaning * meaning
    return _UNSEEN_TERMS + (2 if opinions.name_meanings.shape[1] > 0 else 0)


@compiled()
def _context_terms(facts: LabelFacts, labels: np.ndarray, space: _Workspace) -> None:
    """From z, its ranks and ℓ of each label."""
    terms, ranks, lifts = space.terms, space.ranks, space.lifts
    for at in range(terms.shape[1]):
        odds, frequency = space.odds[at], facts.often[max(labels[at], 0)]
        counted = lifts[at] if ranks[at] > 0 else 0.0
        terms[0, at] = odds
        terms[1, at] = odds * odds / 5
        terms[2, at] = frequency
        terms[3, at] = frequency * odds
        terms[4, at] = counted
        terms[5, at] = counted * odds
        terms[6, at] = counted * frequency
        terms[7, at] = counted * counted


@compiled()
def _level_terms(scores: np.ndarray, space: _Workspace) -> None:
    """From x of each label, and how many labels of the row have larger odds z."""
    terms, ranks = space.terms, space.ranks
    for at in range(terms.shape[1]):
        first = 1.0 if ranks[at] == 0 else 0.0
        terms[0, at] = scores[at]
        terms[1, at] = scores[at] * scores[at] / 5
        terms[2, at] = first
        terms[3, at] = first * scores[at]
        terms[4, at] = 1.0 + ranks[at]
        terms[5, at] = 1.0
    take_logarithms(terms[4], space.some[1])


@compiled()
def _find_lifts(facts: LabelFacts, labels: np.ndarray, space: _Workspace) -> None:
    """ℓ of the labels of a row, from their odds and ranks."""
    odds, lifts, place_of, together = space.odds, space.lifts, space.place_of, space.together
    weights, rarity, ratios, exponents = space.some[0], space.some[1], space.some[2], space.some[3]
    lifts[:] = 0
    weights[:] = 0
    for place in range(len(lifts)):
        rarity[place] = facts.rarity[max(labels[place], 0)]
        if labels[place] >= 0:
            # Places count from 1: labels that are not listed share place 0.
            place_of[labels[place]] = place + 1
    sources = _most_probable(odds, space.ranks)
    for at in range(len(sources)):
        source, later = sources[at], labels[sources[min(at + 1, len(sources) - 1)]]
        if facts.pairs.bitmap_of[later] < 0:
            fetch(facts.pairs.columns, facts.pairs.starts[later], facts.pairs.starts[later + 1])
            fetch(facts.pairs.values, facts.pairs.starts[later], facts.pairs.starts[later + 1])
        other, chance = labels[source], sigmoid(odds[source])
        if chance < _LEAST_CHANCE:
            break
        _count_together(facts.pairs, other, labels, place_of, together)
        # log((c + 5π)/π)
        for place in range(len(lifts)):
            ratios[place] = together[place + 1] * rarity[place] + PAIR_SHRINKAGE
            together[place + 1] = 0
        take_logarithms(ratios, exponents)
        log_rows, own = facts.log_rows[other], lifts[source]
        for place in range(len(lifts)):
            lifts[place] += chance * (ratios[place] - log_rows)
            weights[place] += chance
        # A label does not vouch for itself.
        lifts[source], weights[source] = own, weights[source] - chance
    for place in range(len(lifts)):
        lifts[place] /= max(weights[place], _LEAST_SOURCES)
        if labels[place] >= 0:
            place_of[labels[place]] = 0


@compiled()
def _most_probable(odds: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """The places of up to eight labels with the largest odds, best first; of equal ones the first."""
    places, equal, found = np.zeros(_SOURCES, dtype=np.int64), np.zeros(_SOURCES, dtype=np.int64), 0
    for place in range(len(odds)):
        rank = ranks[place]
        if rank >= _SOURCES or not odds[place] > -np.inf:
            continue
        at = rank + equal[rank]
        equal[rank] += 1
        if at < _SOURCES:
            places[at] = place
            found += 1
    return places[:found]


@compiled(inline="always")
def _count_together(pairs: Lookup, label: int, others: np.ndarray, place_of: np.ndarray, together: np.ndarray) -> None:
    """Write c of a label and each of the others, where it is not 0, to ``together`` at 1 + their place."""
    begin, end, bitmap = pairs.starts[label], pairs.starts[label + 1], pairs.bitmap_of[label]
    if bitmap < 0:
        for at in range(np.uintp(begin), np.uintp(end)):
            together[place_of[np.uintp(pairs.columns[at])]] = pairs.values[at]
        return
    for place in range(len(others)):
        before, there = place_in_bitmap(pairs, bitmap, max(others[place], 0))
        if there and others[place] >= 0:
            together[place + 1] = pairs.values[begin + before]


@compiled()
def _find_ranks(odds: np.ndarray, ranks: np.ndarray) -> None:
    """How many odds are larger than each."""
    ranks[:] = 0
    if len(odds) > _FEW_LABELS:
        order = np.argsort(-odds, kind="mergesort")
        for place in range(1, len(odds)):
            at, above = order[place], order[place - 1]
            ranks[at] = ranks[above] if odds[at] == odds[above] else place
        return
    # All pairs, several at once and without a branch: faster than sorting a shortlist.
    for other in range(len(odds)):
        for place in range(len(odds)):
            ranks[place] += odds[other] > odds[place]


@compiled()
def _fuse(
    opinions: Opinions, facts: LabelFacts, coefficients: _Coefficients, row: int, space: _Workspace
) -> np.ndarray:
    """Final log odds of a row's shortlist (M,), −∞ for the label −1; in the workspace, until the next row."""
    own, context, level, unseen = coefficients
    odds, by_name, labels = space.odds, space.by_name, opinions.labels[row, : len(space.odds)]
    has_names = opinions.names.shape[1] > 0 or opinions.name_meanings.shape[1] > 0
    if has_names:
        _unseen_terms(opinions, facts, row, space)
        _weighted(space.terms, unseen, by_name)
    _own_terms(opinions, facts, row, space)
    _weighted(space.terms, own, odds)
    for at in range(len(odds)):
        if labels[at] < 0:
            odds[at] = by_name[at] = -np.inf
        elif has_names and _named_alone(opinions, facts, row, at):
            odds[at] = -np.inf
        else:
            by_name[at] = -np.inf
    _find_ranks(odds, space.ranks)
    _find_lifts(facts, labels, space)
    _context_terms(facts, labels, space)
    scores = space.some[0]
    _weighted(space.terms, context, scores)
    _level_terms(scores, space)
    final = space.some[0]
    _weighted(space.terms, level, final)
    for at in range(len(odds)):
        if odds[at] == -np.inf:
            final[at] = by_name[at]
    return final


@compiled()
def _scores(
    opinions: Opinions, facts: LabelFacts, coefficients: _Coefficients, place_of: np.ndarray, out: np.ndarray
) -> None:
    space = _workspace(out.shape[1], place_of)
    for row in range(out.shape[0]):
        odds = _fuse(opinions, facts, coefficients, row, space)
        for at in range(out.shape[1]):
            out[row, at] = sigmoid(odds[at]) - 0.5


@compiled()
def _best(
    opinions: Opinions,
    facts: LabelFacts,
    coefficients: _Coefficients,
    hidden: np.ndarray,
    place_of: np.ndarray,
    best: tuple[np.ndarray, np.ndarray],
    start: int,
    stop: int,
) -> None:
    labels, proposed = opinions.labels, opinions.proposed
    shortlisted = opinions.margins.shape[1]
    space = _workspace(shortlisted, place_of)
    best_labels, best_scores = best
    for row in range(start, stop):
        odds = _fuse(opinions, facts, coefficients, row, space)
        chosen, names = best_scores[row], best_labels[row]
        for at in range(labels.shape[1]):
            label = labels[row, at]
            if label < 0 or (hidden.shape[0] > 0 and hidden[row, at]):
                continue
            value = sigmoid(odds[at]) - 0.5 if at < shortlisted else behind(proposed[row, at])
            keep(chosen, names, chosen.dtype.type(value), label)


@compiled()
def _fill_own(opinions: Opinions, facts: LabelFacts, place_of: np.ndarray, out: np.ndarray) -> None:
    space = _workspace(out.shape[1], place_of)
    for row in range(out.shape[0]):
        many = _own_terms(opinions, facts, row, space)
        for at in range(out.shape[1]):
            if opinions.labels[row, at] >= 0:
                out[row, at] = space.terms[:many, at]


@compiled()
def _fill_context(
    opinions: Opinions, facts: LabelFacts, odds: np.ndarray, place_of: np.ndarray, out: np.ndarray
) -> None:
    space = _workspace(out.shape[1], place_of)
    for row in range(out.shape[0]):
        space.odds[:] = odds[row]
        labels = opinions.labels[row, : out.shape[1]]
        _find_ranks(space.odds, space.ranks)
        _find_lifts(facts, labels, space)
        _context_terms(facts, labels, space)
        for at in range(out.shape[1]):
            if odds[row, at] > -np.inf:
                out[row, at] = space.terms[:_CONTEXT_TERMS, at]


@compiled()
def _fill_level(odds: np.ndarray, scores: np.ndarray, place_of: np.ndarray, out: np.ndarray) -> None:
    space = _workspace(out.shape[1], place_of)
    for row in range(out.shape[0]):
        _find_ranks(odds[row], space.ranks)
        _level_terms(scores[row], space)
        for at in range(out.shape[1]):
            if odds[row, at] > -np.inf:
                out[row, at] = space.terms[:_LEVEL_TERMS, at]


@compiled()
def _fill_unseen(opinions: Opinions, facts: LabelFacts, place_of: np.ndarray, out: np.ndarray) -> None:
    space = _workspace(out.shape[1], place_of)
    for row in range(out.shape[0]):
        many = _unseen_terms(opinions, facts, row, space)
        for at in range(out.shape[1]):
            if _named_alone(opinions, facts, row, at):
                out[row, at] = space.terms[:many, at]


@compiled()
def _fill_named_alone(opinions: Opinions, facts: LabelFacts, out: np.ndarray) -> None:
    for row in range(out.shape[0]):
        for at in range(out.shape[1]):
            out[row, at] = _named_alone(opinions, facts, row, at)
