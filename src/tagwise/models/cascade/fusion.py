r"""One probability out of several opinions on a shortlisted label, by coefficients learnt on validation rows.

Each opinion is one number a per candidate label of a row (:mod:`tagwise.models.cascade.opinion`).

1. z = w·(a, all products aᵢaⱼ, 1) is the log odds of the label by its own opinions.
2. **Co-occurrence.** Up to eight labels t, those with the largest p_t = σ(z_t) ≥ 0.05, vouch for the row's other labels
   j by the log ratio of P(j | t) to P(j), shrunk for rare pairs,

   .. math:: \ell_j = \frac{\sum_{t \ne j} p_t \log \frac{(c_{jt} + 5π_j)/(f_t + 5)}{π_j}}{\max(0.3, \sum_{t≠j} p_t)} ,

   with c the number of rows that have both, and π_j = (f_j + ½)/(n + 1). The label with the largest z is left to its
   own opinions: others follow from it. x = v·(z, z², frequency, ℓ, …) orders the labels, and u·(1, x, x², log of the
   rank by z, …) is the log odds of the final probability.
3. **Labels without training rows** have no opinion but their name's: their log odds are those of
   :mod:`tagwise.models.cascade.labels_without_rows`.

:mod:`tagwise.models.cascade.fusion_training` learns the coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np

from tagwise.fields import Fields, dense
from tagwise.kernels.compiled import compiled
from tagwise.kernels.gather_sum import fetch
from tagwise.kernels.shortlists import Lookup, behind, place_in_bitmap
from tagwise.kernels.top_k import keep, nothing_found, sort_best
from tagwise.kernels.vectors import scratch, sigmoid, take_logarithms
from tagwise.models.cascade.cooccurrence import PAIR_SHRINKAGE, Together
from tagwise.models.cascade.labels_without_rows import TERMS as UNSEEN_TERMS
from tagwise.parallel import even_chunks, run_chunks

__all__ = [
    "CONTEXT_TERMS",
    "FIELDS",
    "LEVEL_TERMS",
    "Candidates",
    "Fusion",
    "context_design",
    "level_design",
    "own_terms",
]

CONTEXT_TERMS = (
    "odds",
    "odds*odds",
    "frequency",
    "frequency*odds",
    "lift",
    "lift*odds",
    "lift*frequency",
    "lift*lift",
)
LEVEL_TERMS = ("score", "score*score", "first", "first*score", "log rank", "1")

# So many labels of a row vouch for others.
_SOURCES = 8
# Labels that are less likely do not vouch, and this is the least weight of those that do.
_LEAST_CHANCE, _LEAST_SOURCES = 0.05, 0.3
# Up to so many labels of a shortlist are ranked by comparing all pairs of them.
_FEW_LABELS = 150
# No fit comes near; sums of terms with such coefficients cannot overflow.
_MOST_COEFFICIENT = 1e6
_NONE_HIDDEN = np.zeros((0, 0), dtype=np.bool_)
# Labels of the rows that a thread takes at a time.
_CHUNK = 1 << 13


def _check_coefficients(coefficients: np.ndarray, name: str) -> None:
    if not (np.abs(coefficients) <= _MOST_COEFFICIENT).all():
        raise ValueError(f"{name} must be at most {_MOST_COEFFICIENT:g} in size")


def _coefficients(axis: str | int, meaning: str) -> Any:
    return dense(axis, numbers="float64", meaning=meaning, check=_check_coefficients)


FIELDS = Fields(
    fusion_own_=_coefficients("own", "Coefficients of the opinions, their products and 1."),
    fusion_context_=_coefficients(len(CONTEXT_TERMS), "Coefficients of co-occurrence."),
    fusion_level_=_coefficients(len(LEVEL_TERMS), "Coefficients of the final odds."),
    fusion_unseen_=_coefficients(len(UNSEEN_TERMS), "Coefficients of labels without training rows."),
)


def own_terms(opinions: Sequence[str]) -> list[str]:
    """Names of the terms of z: the opinions, all products of two, and 1."""
    return [*opinions, *(f"{a}*{b}" for a, b in combinations_with_replacement(opinions, 2)), "1"]


class Candidates(NamedTuple):
    """N labels per row; the first M ≤ N of them are the shortlist, in any order, on which there are K opinions."""

    labels: np.ndarray
    """int (n, N); −1 for none."""
    proposed: np.ndarray
    """s (n, N): the proposer's centred scores."""
    opinions: np.ndarray
    """a (K, n, M)."""
    by_name: np.ndarray
    """(n, M): log odds of labels without training rows, NaN for others; (0, 0) where labels have no names."""


class Fusion(NamedTuple):
    """The coefficients w of opinions, v of co-occurrence, u of the final odds, n of labels without rows."""

    own: np.ndarray
    context: np.ndarray
    level: np.ndarray
    unseen: np.ndarray

    def attributes(self) -> dict[str, np.ndarray]:
        """The fitted attributes of a model."""
        return dict(zip(FIELDS, self))

    def best(
        self,
        candidates: Candidates,
        together: Together,
        k: int,
        hidden: np.ndarray | None = None,
        *,
        n_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k labels of each row with the largest probabilities p, in one pass over n×N labels.

        ``hidden``, bool (n, N), are candidates that are not to be returned; they still vouch for others, so that no
        score depends on what is hidden.

        Returns
        -------
        labels : int64 array (n, k)
            Best first, equal scores in the order of their ids; then the labels behind the shortlist in the proposer's
            order; −1 where there are no more.
        scores : array (n, k) in the type of ``candidates.proposed``
            p − ½; behind the shortlist those of :func:`~tagwise.kernels.shortlists.behind_shortlist`; −inf where the
            label is −1.
        """
        n_rows, width = candidates.labels.shape
        best, skipped = nothing_found(n_rows, k, candidates.proposed.dtype), _NONE_HIDDEN if hidden is None else hidden
        run_chunks(
            lambda start, stop: _best(candidates, together, self, skipped, _places(together), best, start, stop),
            even_chunks(n_rows, max(1, _CHUNK // max(1, width))),
            n_threads,
        )
        return best


def context_design(candidates: Candidates, together: Together, odds: np.ndarray) -> np.ndarray:
    """(n, M, p) from z (n, M), −∞ where a label has none."""
    out = np.zeros((*odds.shape, len(CONTEXT_TERMS)))
    _fill_context(candidates.labels, together, odds, _places(together), out)
    return out


def level_design(odds: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(n, M, p) from z and x (n, M), both of a row's labels."""
    out = np.zeros((*odds.shape, len(LEVEL_TERMS)))
    _fill_level(odds, scores, np.zeros(0, dtype=np.int32), out)
    return out


def _places(together: Together) -> np.ndarray:
    """A number per label, all 0: workspace of :func:`_find_lifts`."""
    return scratch("places", len(together.often), np.int32)


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
    some: np.ndarray
    """(4, M): for steps in between."""
    together: np.ndarray
    """int (M + 1,): how often a label occurs with another, at 1 + its place; 0 between labels, but for place 0."""
    place_of: np.ndarray
    """int (L,): 1 + the place of each label of the row; 0 between rows."""


@compiled(inner=True)
def _workspace(n_opinions: int, n_listed: int, place_of: np.ndarray) -> _Workspace:
    n_terms = max(n_opinions, 8)
    numbers, counts = np.zeros((n_terms + 6, n_listed)), np.zeros(n_listed + 1, dtype=np.int64)
    ranks = np.zeros(n_listed, dtype=np.int64)
    return _Workspace(
        numbers[:n_terms], numbers[n_terms], ranks, numbers[n_terms + 1], numbers[n_terms + 2 :], counts, place_of
    )


@compiled(inner=True, fastmath={"contract"})
def _find_odds(opinions: np.ndarray, row: int, coefficients: np.ndarray, space: _Workspace) -> None:
    """Z of each label: Σ_i a_i·(w_i + Σ_{j≥i} w_ij·a_j), and the intercept."""
    terms, odds, factor = space.terms, space.odds, space.some[0]
    many = len(opinions)
    for i in range(many):
        numbers, values = opinions[i, row], terms[i]
        for at in range(len(odds)):
            values[at] = numbers[at]
    odds[:] = coefficients[len(coefficients) - 1]
    pair = many
    for i in range(many):
        factor[:] = coefficients[i]
        for j in range(i, many):
            _add_multiple(coefficients[pair], terms[j], factor)
            pair += 1
        values = terms[i]
        for at in range(len(odds)):
            odds[at] += factor[at] * values[at]


@compiled(inner=True, fastmath={"contract"})
def _add_multiple(factor: float, values: np.ndarray, out: np.ndarray) -> None:
    for at in range(len(out)):
        out[at] += factor * values[at]


@compiled(inner=True, fastmath={"contract"})
def _weighted(terms: np.ndarray, coefficients: np.ndarray, out: np.ndarray) -> None:
    """Σ_t ``coefficients[t]``·``terms[t]`` of each label."""
    out[:] = 0
    for term in range(len(coefficients)):
        _add_multiple(coefficients[term], terms[term], out)


@compiled(inner=True)
def _context_terms(together: Together, labels: np.ndarray, space: _Workspace) -> None:
    """From z of each label: its ranks, ℓ, and :data:`CONTEXT_TERMS`."""
    _find_ranks(space.odds, space.ranks)
    _find_lifts(together, labels, space)
    terms, ranks, lifts = space.terms, space.ranks, space.lifts
    for at in range(terms.shape[1]):
        odds, frequency = space.odds[at], together.often[max(labels[at], 0)]
        counted = lifts[at] if ranks[at] > 0 else 0.0
        terms[0, at] = odds
        terms[1, at] = odds * odds / 5
        terms[2, at] = frequency
        terms[3, at] = frequency * odds
        terms[4, at] = counted
        terms[5, at] = counted * odds
        terms[6, at] = counted * frequency
        terms[7, at] = counted * counted


@compiled(inner=True)
def _level_terms(scores: np.ndarray, space: _Workspace) -> None:
    """From x of each label, and how many labels of the row have larger odds z: :data:`LEVEL_TERMS`."""
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


@compiled(inner=True)
def _find_ranks(odds: np.ndarray, ranks: np.ndarray) -> None:
    """Number of larger odds for each."""
    ranks[:] = 0
    if len(odds) > _FEW_LABELS:
        falling, order = odds.copy(), np.arange(len(odds))
        sort_best(falling, order, len(odds))
        for place in range(1, len(odds)):
            ranks[order[place]] = ranks[order[place - 1]] if falling[place] == falling[place - 1] else place
        return
    # All pairs, several at once and without a branch: faster than sorting a shortlist.
    for other in range(len(odds)):
        for place in range(len(odds)):
            ranks[place] += odds[other] > odds[place]


@compiled(inner=True)
def _fuse(
    candidates: Candidates,
    together: Together,
    fusion: Fusion,
    row: int,
    space: _Workspace,
) -> np.ndarray:
    """Final log odds of a row's shortlist (M,), −∞ for the label −1; in the workspace, until the next row."""
    odds, labels, by_name = space.odds, candidates.labels[row, : len(space.odds)], candidates.by_name
    _find_odds(candidates.opinions, row, fusion.own, space)
    for at in range(len(odds)):
        if labels[at] < 0 or (by_name.shape[0] > 0 and not np.isnan(by_name[row, at])):
            odds[at] = -np.inf
    _context_terms(together, labels, space)
    final = space.some[0]
    _weighted(space.terms, fusion.context, final)
    _level_terms(final, space)
    _weighted(space.terms, fusion.level, final)
    for at in range(len(odds)):
        if odds[at] == -np.inf:
            final[at] = by_name[row, at] if labels[at] >= 0 else -np.inf
    return final


@compiled()
def _best(
    candidates: Candidates,
    together: Together,
    fusion: Fusion,
    hidden: np.ndarray,
    place_of: np.ndarray,
    best: tuple[np.ndarray, np.ndarray],
    start: int,
    stop: int,
) -> None:
    labels, proposed = candidates.labels, candidates.proposed
    shortlisted = candidates.opinions.shape[2]
    space = _workspace(len(candidates.opinions), shortlisted, place_of)
    best_labels, best_scores = best
    for row in range(start, stop):
        odds = _fuse(candidates, together, fusion, row, space)
        chosen, names = best_scores[row], best_labels[row]
        for at in range(labels.shape[1]):
            label = labels[row, at]
            if label < 0 or (hidden.shape[0] > 0 and hidden[row, at]):
                continue
            value = sigmoid(odds[at]) - 0.5 if at < shortlisted else behind(proposed[row, at])
            keep(chosen, names, chosen.dtype.type(value), label)


@compiled()
def _fill_context(
    labels: np.ndarray, together: Together, odds: np.ndarray, place_of: np.ndarray, out: np.ndarray
) -> None:
    space = _workspace(0, out.shape[1], place_of)
    for row in range(out.shape[0]):
        for at in range(out.shape[1]):
            space.odds[at] = odds[row, at]
        _context_terms(together, labels[row, : out.shape[1]], space)
        for at in range(out.shape[1]):
            if odds[row, at] > -np.inf:
                for term in range(out.shape[2]):
                    out[row, at, term] = space.terms[term, at]


@compiled()
def _fill_level(odds: np.ndarray, scores: np.ndarray, place_of: np.ndarray, out: np.ndarray) -> None:
    space = _workspace(0, out.shape[1], place_of)
    for row in range(out.shape[0]):
        _find_ranks(odds[row], space.ranks)
        _level_terms(scores[row], space)
        for at in range(out.shape[1]):
            if odds[row, at] > -np.inf:
                for term in range(out.shape[2]):
                    out[row, at, term] = space.terms[term, at]


@compiled(inner=True)
def _find_lifts(facts: Together, labels: np.ndarray, space: _Workspace) -> None:
    """ℓ of the M labels of a row, -1 for none, from their log odds and the ranks of these."""
    odds, lifts, some, together, place_of = space.odds, space.lifts, space.some, space.together, space.place_of
    weights, rarity, ratios, exponents = some[0], some[1], some[2], some[3]
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
            fetch(facts.pairs.columns, facts.pairs.values, facts.pairs.starts[later], facts.pairs.starts[later + 1])
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


@compiled(inner=True)
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
