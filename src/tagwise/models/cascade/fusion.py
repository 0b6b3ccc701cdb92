r"""One probability out of several opinions on a shortlisted label, by coefficients learnt on validation rows.

Each opinion is one number a per candidate label of a row:

==========  ==============================================================================================
ranker      the margin m, at most 4 in size; 2s where the label has no ranker
proposer    log of the proposer's score s + ½, in [10⁻³, 1]
prototype   log of (c + 0.1)/1.1 for the cosine c of the row with the label's prototype
frequency   ½ log((f + ½)/30) for a label with f known positive rows
name        how much of the label's name the row has, where labels have names
==========  ==============================================================================================

1. z = w·(1, a, all products aᵢaⱼ) is the log odds of the label by its own opinions.
2. **Co-occurrence.** The eight labels t with the largest p_t = σ(z_t) vouch for the row's other labels j by the log
   ratio of P(j | t) to P(j), shrunk for rare pairs,

   .. math:: \ell_j = \frac{\sum_{t \ne j} p_t \log \frac{(c_{jt} + 5π_j)/(f_t + 5)}{π_j}}{\max(0.3, \sum_{t≠j} p_t)} ,

   with c the number of rows that have both, and π_j = (f_j + ½)/(n + 1). The label with the largest z is left to its
   own opinions: others follow from it. v·(1, z, z², frequency, ℓ, …) is the log odds of the final probability.

Both w and v are logistic regressions with a normal prior: what other data sets have in common. Few validation rows
leave the prior as it is, many overrule it, and the weight shifts gradually.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.compiled import compiled
from tagwise.kernels.shortlists import behind
from tagwise.kernels.top_k import keep, nothing_found
from tagwise.kernels.vectors import sigmoid
from tagwise.losses import sigmoid as array_sigmoid
from tagwise.parallel import run_chunks, work_chunks
from tagwise.persistence.fit_state import State, array

__all__ = [
    "Fusion",
    "LabelFacts",
    "Lesson",
    "Opinions",
    "cooccurrence_counts",
    "learn_fusion",
    "n_terms",
]

# A margin beyond this says no more: float32 margins of separable labels may be any size.
_MOST_MARGIN = 4.0
# A proposer's score below this (0/1 scale) is as good as none.
_LEAST = 1e-3
# Cosines near 0 are not told apart, so that a label of few rows is not out for want of a common word.
_LEAST_COSINE = 0.1
# A usual number of rows of a label: what the frequency is measured from.
_USUAL_ROWS = 30.0
# So many labels of a row vouch for others.
_SOURCES = 8
# A pair of labels is taken to occur as if independent in so many rows more.
_PAIR_SHRINKAGE = 5.0
_LEAST_SOURCES = 0.3
_CONTEXT_TERMS = 11
# Rows with more labels than this say little about which labels belong together, and have many pairs.
_MOST_LABELS_OF_A_ROW = 300
# No fit comes near; sums of terms with such coefficients cannot overflow.
_MOST_COEFFICIENT = 1e6
# Newton's steps of a regression, and the relative fall that is not worth another.
_MOST_STEPS, _TOL = 50, 1e-9

# Mean and standard deviation of each coefficient over data sets, by empirical Bayes (benchmarks/fusion_prior.py): 26
# problems of 3 to 27,754 labels, with all labels known or a fifth.
_OWN_PRIOR = np.array(
    [
        (2.283, 0.752),  # ranker
        (1.171, 0.409),  # proposer
        (0.751, 0.455),  # prototype
        (-0.349, 0.332),  # frequency
        (-0.101, 0.409),  # ranker · ranker
        (0.111, 0.264),  # ranker · proposer
        (0.144, 0.406),  # ranker · prototype
        (-0.127, 0.633),  # ranker · frequency
        (0.037, 0.129),  # proposer · proposer
        (-0.284, 0.381),  # proposer · prototype
        (-0.297, 0.132),  # proposer · frequency
        (-0.332, 0.468),  # prototype · prototype
        (-0.439, 0.251),  # prototype · frequency
        (0.047, 0.359),  # frequency · frequency
        (-0.246, 0.648),  # 1
    ]
).T
_NAME_PRIOR = np.array(
    [
        (2.022, 0.835),  # name
        (0.579, 2.490),  # ranker · name
        (-1.202, 0.786),  # proposer · name
        (-1.626, 0.590),  # prototype · name
        (-0.800, 0.227),  # frequency · name
        (0.031, 0.920),  # name · name
    ]
).T
_CONTEXT_PRIOR = np.array(
    [
        (0.993, 0.050),  # z
        (0.105, 0.045),  # z²/5
        (0.016, 0.089),  # frequency
        (-0.046, 0.032),  # frequency · z
        (0.098, 0.139),  # ℓ
        (-0.065, 0.034),  # ℓ · z
        (0.111, 0.132),  # ℓ · frequency
        (-0.015, 0.035),  # ℓ²
        (0.304, 0.194),  # first of its row
        (-0.034, 0.107),  # first of its row · z
        (-0.193, 0.145),  # 1
    ]
).T


class Opinions(NamedTuple):
    """What is known of N labels per row, best proposals first; the first M ≤ N of them are the shortlist."""

    labels: np.ndarray
    """int (n, N); −1 for none."""
    proposed: np.ndarray
    """s (n, N): the proposer's centred scores."""
    margins: np.ndarray
    """m (n, M): the rankers' margins."""
    cosines: np.ndarray
    """c (n, M): of the row with the label's prototype."""
    names: np.ndarray
    """(n, M): how much of the label's name the row has; (n, 0) where labels have no names."""


class LabelFacts(NamedTuple):
    """What is known of the labels themselves."""

    has_ranker: np.ndarray
    """bool (L,); labels without a ranker have the margin 2s."""
    frequency: np.ndarray
    """f (L,): known positive rows, float64."""
    n_rows: float
    """n: training rows."""
    pair_starts: np.ndarray
    """CSR (L, L) of c: ``indptr``, sorted ``indices`` and counts of the pairs (j, t) with j < t."""
    pair_labels: np.ndarray
    pair_counts: np.ndarray

    @classmethod
    def of(cls, has_ranker: np.ndarray, frequency: np.ndarray, n_rows: int, pairs: sp.csr_matrix) -> LabelFacts:
        """From the fitted attributes of a cascade."""
        numbers = np.asarray(frequency, dtype=np.float64)
        return cls(has_ranker, numbers, float(n_rows), pairs.indptr, pairs.indices, pairs.data)

    def check(self) -> None:
        """Raise ValueError unless all are what a fit can count."""
        for counts in (self.frequency, self.pair_counts):
            if not ((counts >= 0) & (counts <= self.n_rows)).all():
                raise ValueError(f"labels and pairs of labels must occur in 0 to {self.n_rows:.0f} rows")


def cooccurrence_counts(positives: sp.csr_matrix) -> sp.csr_matrix:
    """In how many rows of ``positives`` (n, L) two labels occur together: int32 CSR (L, L), the pairs (j, t), j < t.

    Rows with more than 300 labels are left out. Time and memory O(Σ l²) for rows of l labels.
    """
    few = positives[np.diff(positives.indptr) <= _MOST_LABELS_OF_A_ROW]
    ones = sp.csr_matrix((np.ones(few.nnz, dtype=np.int32), few.indices, few.indptr), shape=few.shape)
    pairs = sp.csr_matrix(sp.triu(ones.T @ ones, k=1))
    pairs.sort_indices()
    return pairs


def n_terms(n_numbers: int) -> int:
    """How many coefficients w has for so many opinions: one each, one per product of two, and the intercept."""
    return n_numbers + n_numbers * (n_numbers + 1) // 2 + 1


@dataclass(frozen=True, eq=False)
class Fusion(State):
    """The coefficients w of the opinions and v of the co-occurrence, last in each the intercept."""

    own: np.ndarray = array(None, dtype=np.float64)
    context: np.ndarray = array(_CONTEXT_TERMS, dtype=np.float64)

    @classmethod
    def prior(cls, *, names: bool = False) -> Fusion:
        """What is taken where nothing is learnt: the means of the prior."""
        return cls(_own_prior(names)[0].copy(), _CONTEXT_PRIOR[0].copy())

    def check(self, *, names: bool | None = None) -> None:
        """Raise ValueError unless these are coefficients of all terms, with ``names`` or without, if that is known."""
        fitting = [n_terms(many) for many in (4, 5) if names is None or names == (many == 5)]
        if self.own.shape not in [(size,) for size in fitting] or self.context.shape != (_CONTEXT_TERMS,):
            raise ValueError(
                f"the fusion needs {' or '.join(map(str, fitting))} coefficients of opinions and {_CONTEXT_TERMS} of "
                f"co-occurrence; found {self.own.shape} and {self.context.shape}"
            )
        if not (np.abs(np.concatenate([self.own, self.context])) <= _MOST_COEFFICIENT).all():
            raise ValueError(f"coefficients of the fusion must be at most {_MOST_COEFFICIENT:g} in size")

    def scores(self, opinions: Opinions, facts: LabelFacts) -> np.ndarray:
        """P − ½, in [−½, ½], of labels (n×N) that are all shortlisted, in the type of ``opinions.proposed``."""
        out = np.empty(opinions.proposed.shape, dtype=opinions.proposed.dtype)
        _scores(opinions, facts, self.own, self.context, out)
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
        best_labels, best_scores = nothing_found(n_rows, k, opinions.proposed.dtype)
        skipped = np.zeros((0, 0), dtype=np.bool_) if hidden is None else hidden

        def rows(start: int, stop: int) -> None:
            _best(opinions, facts, (self.own, self.context), skipped, best_scores, best_labels, start, stop)

        run_chunks(rows, work_chunks(np.arange(n_rows + 1) * width * _SOURCES), n_threads)
        return best_labels, best_scores


# ---------------------------------------------------------------------- learn


class Lesson(NamedTuple):
    """Opinions on the shortlists of validation rows by a cascade that was fitted without these rows."""

    opinions: Opinions
    facts: LabelFacts
    on: np.ndarray
    """(n, M): 1 where the label is a known positive of the row, else 0. Where a listed label stands for others that
    were not listed, their number: the loss is linear in it, so that its mean is that of complete labels."""
    known: np.ndarray
    """bool (n, M): the pair is known; others teach nothing."""


def learn_fusion(lessons: list[Lesson]) -> Fusion:
    """Both regressions by maximum a posteriori, the second on the probabilities of the first."""
    own_terms = [_own_design(lesson) for lesson in lessons]
    known = np.concatenate([lesson.known.ravel() for lesson in lessons])
    on = np.concatenate([lesson.on.ravel() for lesson in lessons])[known].astype(np.float64)
    names = lessons[0].opinions.names.shape[1] > 0
    own = _map_logistic(np.concatenate(own_terms)[known], on, *_own_prior(names))
    context_terms = [_context_design(lesson, terms @ own) for lesson, terms in zip(lessons, own_terms)]
    context = _map_logistic(np.concatenate(context_terms)[known], on, *_CONTEXT_PRIOR)
    return Fusion(own, context)


def _own_prior(names: bool) -> np.ndarray:
    """Means and deviations (2, p) in the order of :func:`_own_terms`."""
    if not names:
        return _OWN_PRIOR
    known, of_name = iter(_OWN_PRIOR.T), iter(_NAME_PRIOR.T)
    numbers = [*(next(known) for _ in range(4)), next(of_name)]
    products = [next(of_name) if j == 4 else next(known) for i in range(5) for j in range(i, 5)]
    return np.array([*numbers, *products, next(known)]).T


def _own_design(lesson: Lesson) -> np.ndarray:
    n_rows, width = lesson.opinions.margins.shape
    out = np.zeros((n_rows * width, n_terms(4 + (lesson.opinions.names.shape[1] > 0))))
    _fill_own(lesson.opinions, lesson.facts, out)
    return out


def _context_design(lesson: Lesson, odds: np.ndarray) -> np.ndarray:
    n_rows, width = lesson.opinions.margins.shape
    out = np.zeros((n_rows * width, _CONTEXT_TERMS))
    _fill_context(lesson.opinions, lesson.facts, odds.reshape(n_rows, width), out)
    return out


def _map_logistic(terms: np.ndarray, on: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    r"""The coefficients w (p,) that minimise Σ log(1 + e^z) − y z + ½ Σ ((w − mean)/deviation)², z = terms·w.

    Newton steps with halving; p is a dozen or two. Time O(m·p²) per step for m pairs.
    """
    precision = deviation**-2.0
    w = mean.copy()

    def value(w: np.ndarray, z: np.ndarray) -> float:
        return float(np.logaddexp(0, z).sum() - on @ z + 0.5 * precision @ (w - mean) ** 2)

    z = terms @ w
    reached = value(w, z)
    for _ in range(_MOST_STEPS):
        p = array_sigmoid(z)
        gradient = terms.T @ (p - on) + precision * (w - mean)
        hessian = terms.T @ (terms * (p * (1 - p))[:, None]) + np.diag(precision)
        step = np.linalg.solve(hessian, gradient)
        before, size = reached, 1.0
        while True:
            moved = w - size * step
            z = terms @ moved
            reached = value(moved, z)
            if reached <= before or size < 1e-6:
                break
            size /= 2
        if reached > before:
            break
        w = moved
        if before - reached <= _TOL * abs(before):
            break
    return w


# ---------------------------------------------------------------------- the formula, for single numbers


@compiled()
def _log_frequency(facts: LabelFacts, label: int) -> float:
    return 0.5 * math.log((facts.frequency[label] + 0.5) / _USUAL_ROWS)


@compiled()
def _own_terms(opinions: Opinions, facts: LabelFacts, row: int, place: int, terms: np.ndarray) -> None:
    """The opinions on one label, their products and 1."""
    label = opinions.labels[row, place]
    score = np.float64(opinions.proposed[row, place])
    # Twice the centred score is least squares' score of labels −1/+1, the scale of a margin.
    margin = np.float64(opinions.margins[row, place]) if facts.has_ranker[label] else 2 * score
    cosine = min(1.0, max(np.float64(opinions.cosines[row, place]), 0.0))
    terms[0] = min(_MOST_MARGIN, max(margin, -_MOST_MARGIN))
    terms[1] = math.log(min(1.0, max(score + 0.5, _LEAST))) + 1.5
    terms[2] = math.log((cosine + _LEAST_COSINE) / (1 + _LEAST_COSINE)) + 1.2
    terms[3] = _log_frequency(facts, label)
    many = 4
    if opinions.names.shape[1] > 0:
        terms[4] = np.float64(opinions.names[row, place])
        many = 5
    at = many
    for i in range(many):
        for j in range(i, many):
            terms[at] = terms[i] * terms[j]
            at += 1
    terms[at] = 1.0


@compiled()
def _together(facts: LabelFacts, a: int, b: int) -> float:
    """c: the number of rows that have both labels."""
    low, high = min(a, b), max(a, b)
    left, right = facts.pair_starts[low], facts.pair_starts[low + 1]
    while left < right:
        middle = (left + right) // 2
        if facts.pair_labels[middle] < high:
            left = middle + 1
        else:
            right = middle
    if left < facts.pair_starts[low + 1] and facts.pair_labels[left] == high:
        return np.float64(facts.pair_counts[left])
    return 0.0


@compiled()
def _context_terms(odds: float, is_first: bool, frequency: float, lift: float, terms: np.ndarray) -> None:
    follows = 0.0 if is_first else 1.0
    terms[0] = odds
    terms[1] = odds * odds / 5
    terms[2] = frequency
    terms[3] = frequency * odds
    terms[4] = follows * lift
    terms[5] = follows * lift * odds
    terms[6] = follows * lift * frequency
    terms[7] = follows * lift * lift
    terms[8] = 1 - follows
    terms[9] = (1 - follows) * odds
    terms[10] = 1.0


@compiled()
def _sources(labels: np.ndarray, odds: np.ndarray, places: np.ndarray) -> int:
    """The places of the largest log odds, best first; returns how many there are."""
    many = 0
    for place in range(len(odds)):
        if labels[place] < 0:
            continue
        at = many if many < len(places) else len(places) - 1
        if many == len(places) and odds[place] <= odds[places[at]]:
            continue
        many = min(many + 1, len(places))
        while at > 0 and odds[places[at - 1]] < odds[place]:
            places[at] = places[at - 1]
            at -= 1
        places[at] = place
    return many


@compiled()
def _lift(facts: LabelFacts, labels: np.ndarray, odds: np.ndarray, sources: np.ndarray, place: int) -> float:
    """ℓ of the label at ``place`` of a row's shortlist."""
    label = labels[place]
    base = (facts.frequency[label] + 0.5) / (facts.n_rows + 1)
    total, weight = 0.0, 0.0
    for source in sources:
        if source != place:
            other = labels[source]
            chance = (_together(facts, label, other) + _PAIR_SHRINKAGE * base) / (
                facts.frequency[other] + _PAIR_SHRINKAGE
            )
            p = sigmoid(odds[source])
            total += p * math.log(chance / base)
            weight += p
    return total / max(weight, _LEAST_SOURCES)


@compiled()
def _dot(terms: np.ndarray, coefficients: np.ndarray) -> float:
    total = 0.0
    for at in range(len(coefficients)):
        total += terms[at] * coefficients[at]
    return total


@compiled()
def _fuse(
    opinions: Opinions,
    facts: LabelFacts,
    own: np.ndarray,
    context: np.ndarray,
    row: int,
    odds: np.ndarray,
    places: np.ndarray,
    terms: np.ndarray,
) -> None:
    """Final log odds of a row's shortlist, in the place of ``odds`` (M,); ``places`` and ``terms`` are workspace."""
    labels = opinions.labels[row]
    for place in range(len(odds)):
        if labels[place] >= 0:
            _own_terms(opinions, facts, row, place, terms)
            odds[place] = _dot(terms, own)
    sources = places[: _sources(labels, odds, places)]
    fused = np.empty(len(odds))
    for place in range(len(odds)):
        label = labels[place]
        if label >= 0:
            lift = _lift(facts, labels, odds, sources, place)
            _context_terms(odds[place], place == sources[0], _log_frequency(facts, label), lift, terms)
            fused[place] = _dot(terms, context)
    odds[:] = fused


@compiled()
def _scores(opinions: Opinions, facts: LabelFacts, own: np.ndarray, context: np.ndarray, out: np.ndarray) -> None:
    odds, places = np.zeros(out.shape[1]), np.empty(_SOURCES, dtype=np.int64)
    terms = np.empty(max(len(own), len(context)))
    for row in range(out.shape[0]):
        _fuse(opinions, facts, own, context, row, odds, places, terms)
        for place in range(out.shape[1]):
            out[row, place] = sigmoid(odds[place]) - 0.5


@compiled()
def _best(
    opinions: Opinions,
    facts: LabelFacts,
    coefficients: tuple[np.ndarray, np.ndarray],
    hidden: np.ndarray,
    best_scores: np.ndarray,
    best_labels: np.ndarray,
    start: int,
    stop: int,
) -> None:
    own, context = coefficients
    labels, proposed = opinions.labels, opinions.proposed
    shortlisted = opinions.margins.shape[1]
    odds, places = np.zeros(shortlisted), np.empty(_SOURCES, dtype=np.int64)
    terms = np.empty(max(len(own), len(context)))
    for row in range(start, stop):
        _fuse(opinions, facts, own, context, row, odds, places, terms)
        best, names = best_scores[row], best_labels[row]
        for place in range(labels.shape[1]):
            label = labels[row, place]
            if label < 0 or (hidden.shape[0] > 0 and hidden[row, place]):
                continue
            value = sigmoid(odds[place]) - 0.5 if place < shortlisted else behind(proposed[row, place])
            keep(best, names, best.dtype.type(value), label)


@compiled()
def _fill_own(opinions: Opinions, facts: LabelFacts, out: np.ndarray) -> None:
    width = opinions.margins.shape[1]
    for row in range(opinions.margins.shape[0]):
        for place in range(width):
            if opinions.labels[row, place] >= 0:
                _own_terms(opinions, facts, row, place, out[row * width + place])


@compiled()
def _fill_context(opinions: Opinions, facts: LabelFacts, odds: np.ndarray, out: np.ndarray) -> None:
    width = odds.shape[1]
    places = np.empty(_SOURCES, dtype=np.int64)
    for row in range(odds.shape[0]):
        labels = opinions.labels[row]
        sources = places[: _sources(labels, odds[row], places)]
        for place in range(width):
            label = labels[place]
            if label >= 0:
                lift = _lift(facts, labels, odds[row], sources, place)
                is_first = place == sources[0]
                terms = out[row * width + place]
                _context_terms(odds[row, place], is_first, _log_frequency(facts, label), lift, terms)
