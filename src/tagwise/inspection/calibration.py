r"""From scores to decisions and probabilities: thresholds and isotonic maps, learnt on validation rows.

A map from scores to probabilities is the isotonic regression of "is on" on the score: the non-decreasing function with
the least squared error. One map is learnt from the pairs of all labels together. A label with enough validation
positives also has a map of its own, and its probability is

.. math:: p_j(s) = \frac{m_j\, p^{\text{own}}_j(s) + \kappa\, p^{\text{pooled}}(s)}{m_j + \kappa},

with m_j its validation positives: frequent labels follow their own rows, rare ones the pooled map. Both maps are
non-decreasing, so p_j is too.

Some models give probabilities by themselves: their score is a probability minus ½. These need no validation rows;
if there are any, they correct the model's probabilities. The pooled map is then

.. math:: p^{\text{pooled}}(s) = w\, p^{\text{isotonic}}(s) + (1 - w)(s + \tfrac12), \qquad w = \frac{n}{n + 100}\, v,

where n is the number of validation rows and v in [0, 1] is the part of the correction that holds on rows it was not
learnt from: each half of the rows is predicted by the isotonic map of the other half, and v minimises the squared
error. Correct probabilities are thus kept, whatever the noise in the rows; wrong ones are corrected by the rows.

Only the k best labels of each row are used, never all n×L: a probability is conditional on the label's score and on
its being among the k best of its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

from tagwise.estimator import DEFAULT_K, MultiLabelModel
from tagwise.exceptions import InvalidInputError
from tagwise.fields import Fields, dense
from tagwise.inspection.reliability import ReliabilityBins, reliability_bins
from tagwise.inspection.thresholds import TARGETS, best_thresholds
from tagwise.inspection.validation_pairs import ValidationPairs
from tagwise.validation import check_choice, check_integer, check_k, check_real

__all__ = [
    "DEFAULT_K",
    "Calibration",
    "ProbabilityMaps",
    "fit_calibration",
    "probability_maps",
    "require_probabilities",
]

# See the notes of fit_calibration: κ of the maps of scores, and of probabilities, which know their label already; the
# fewest positives of an own map, the rows in n / (n + 100), and κ of the thresholds. In macro-F1 every label counts the
# same, so rare ones must not be shrunk too far.
_SHRINKAGE, _PROBABILITY_SHRINKAGE = 100.0, 300.0
_OWN_MAP_POSITIVES = 10
_CORRECTION_ROWS = 100
_THRESHOLD_SHRINKAGE = {"micro": 100.0, "macro": 2.0, "example": 30.0}
_BINS = 10


@dataclass(frozen=True, eq=False)
class ProbabilityMaps:
    """Non-decreasing maps from score to probability, linear between knots and constant beyond them."""

    pooled_scores: np.ndarray  # knots of the map of all labels, by increasing score
    pooled_probabilities: np.ndarray
    own_labels: np.ndarray  # int64: labels that have a map of their own, in increasing order
    own_weights: np.ndarray  # the weight m_j / (m_j + κ) of each own map
    own_starts: np.ndarray  # int64: offsets of each own map's knots in the next two, and their end
    own_scores: np.ndarray
    own_probabilities: np.ndarray

    @classmethod
    def of_probabilities(cls) -> ProbabilityMaps:
        """For scores that are probabilities minus ½: s + ½, from 0 to 1."""
        labels, none = np.empty(0, dtype=np.int64), np.empty(0)
        return cls(np.array([-0.5, 0.5]), np.array([0.0, 1.0]), labels, none, np.zeros(1, np.int64), none, none)

    @classmethod
    def fit(cls, pairs: ValidationPairs, *, probabilistic: bool) -> ProbabilityMaps:
        """Fit to validation pairs of scores, or of probabilities minus ½."""
        labels, scores, on = pairs.labels, pairs.scores, pairs.on
        pooled = _corrected(pairs) if probabilistic else _isotonic(scores, on)
        positives = np.bincount(labels, weights=on, minlength=pairs.n_labels)
        own_labels = np.flatnonzero(positives >= _OWN_MAP_POSITIVES)
        order = np.argsort(labels, kind="stable")
        bounds = np.searchsorted(labels[order], own_labels), np.searchsorted(labels[order], own_labels, side="right")
        maps = [_isotonic(scores[part], on[part]) for part in (order[a:b] for a, b in zip(*bounds))]
        own = positives[own_labels]
        return cls(
            *pooled,
            own_labels=own_labels.astype(np.int64),
            own_weights=own / (own + (_PROBABILITY_SHRINKAGE if probabilistic else _SHRINKAGE)),
            own_starts=np.cumsum([0, *(len(knots) for knots, _ in maps)]).astype(np.int64),
            own_scores=np.concatenate([np.empty(0), *(knots for knots, _ in maps)]),
            own_probabilities=np.concatenate([np.empty(0), *(values for _, values in maps)]),
        )

    def __call__(self, labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Probabilities of pairs, in the shape of both arrays; 0 for the label −1."""
        ids, values = np.asarray(labels), np.asarray(scores, dtype=np.float64)
        result = np.interp(values, self.pooled_scores, self.pooled_probabilities)
        positions = np.searchsorted(self.own_labels, ids)
        found = np.flatnonzero(np.append(self.own_labels, -2)[positions].ravel() == ids.ravel())
        flat, flat_values, flat_positions = result.reshape(-1), values.reshape(-1), positions.reshape(-1)[found]
        order = np.argsort(flat_positions, kind="stable")
        groups, starts = np.unique(flat_positions[order], return_index=True)
        for position, members in zip(groups, np.split(found[order], starts[1:])):
            knots = slice(self.own_starts[position], self.own_starts[position + 1])
            own = np.interp(flat_values[members], self.own_scores[knots], self.own_probabilities[knots])
            weight = self.own_weights[position]
            flat[members] = weight * own + (1 - weight) * flat[members]
        return np.where(ids >= 0, result, 0.0)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Thresholds and probabilities for the scores of a fitted model, learnt on validation rows.

    Attributes
    ----------
    target : {"micro", "macro", "example"}
        The F1 that the thresholds are chosen for.
    k : int
        Labels beyond the k best of a row are never on.
    rows : int
        Number of validation rows.
    thresholds : float64 array (L,)
        A label is on if its score is at least its threshold.
    maps : ProbabilityMaps
        From scores to probabilities.
    reliability : ReliabilityBins
        Reliability of the probabilities on rows that they were not learnt from: each half of the validation rows is
        scored by the maps of the other half.
    """

    target: str
    k: int
    rows: int
    thresholds: np.ndarray
    maps: ProbabilityMaps
    reliability: ReliabilityBins

    def probabilities(self, labels: Any, scores: Any) -> np.ndarray:
        """Probabilities of labels with these scores, in the shape of the two arrays; 0 for the label −1."""
        return self.maps(labels, scores)

    def is_on(self, labels: Any, scores: Any) -> np.ndarray:
        """Whether each label's score reaches its threshold; False for the label −1."""
        ids = np.asarray(labels)
        return (ids >= 0) & (np.asarray(scores, dtype=np.float64) >= self.thresholds[np.maximum(ids, 0)])

    def of_labels(self, labels: Sequence[int]) -> Calibration:
        """The calibration of some labels, by increasing ids, renumbered from 0."""
        maps, place = self.maps, {label: number for number, label in enumerate(labels)}
        own = [number for number, label in enumerate(maps.own_labels.tolist()) if label in place]
        knots = [np.arange(maps.own_starts[number], maps.own_starts[number + 1]) for number in own]
        chosen = np.concatenate([np.empty(0, dtype=np.int64), *knots])
        some = replace(
            maps,
            own_labels=np.array([place[maps.own_labels[number]] for number in own], dtype=np.int64),
            own_weights=maps.own_weights[own],
            own_starts=np.cumsum([0, *map(len, knots)]).astype(np.int64),
            own_scores=maps.own_scores[chosen],
            own_probabilities=maps.own_probabilities[chosen],
        )
        return replace(self, k=min(self.k, len(place)), maps=some, thresholds=self.thresholds[list(labels)])

    def to_parts(self) -> dict[str, Any]:
        """The plain values and arrays of a folder, for :meth:`from_parts`."""
        values = {"target": self.target, "k": self.k, "rows": self.rows}
        return {**values, "thresholds": self.thresholds, "maps": vars(self.maps), "reliability": vars(self.reliability)}

    @classmethod
    def from_parts(cls, values: Any, n_labels: int) -> Calibration:
        """The calibration stored in a folder; ValueError or TypeError if it does not fit ``n_labels`` labels."""
        parts = {"maps": ProbabilityMaps(**values["maps"]), "reliability": ReliabilityBins(**values["reliability"])}
        found = cls(**{**values, **parts})
        check_choice(found.target, "target", TARGETS)
        check_k(found.k, n_labels, "k")
        check_integer(found.rows, "rows", minimum=1)
        maps = vars(found.maps)
        # Labels that are never on may have an infinite threshold.
        _FIELDS.check({"thresholds": np.nan_to_num(found.thresholds, nan=np.nan), **maps}, {"L": n_labels})
        _check_maps(found.maps, n_labels)
        found.reliability.check()
        return found


def probability_maps(model: MultiLabelModel, calibration: Calibration | None) -> ProbabilityMaps | None:
    """Maps from a model's scores to probabilities: its calibration, or else the scores themselves if they are some.

    None for an uncalibrated model whose scores are not probabilities.
    """
    if calibration is not None:
        return calibration.maps
    return ProbabilityMaps.of_probabilities() if model.probabilistic else None


def require_probabilities(model: MultiLabelModel, calibration: Calibration | None, wanted: str) -> ProbabilityMaps:
    """:func:`probability_maps`; raises InvalidInputError, naming what is ``wanted``, if there are none."""
    maps = probability_maps(model, calibration)
    if maps is None:
        raise InvalidInputError(
            f"{wanted} needs probabilities, but the scores of {type(model).__name__} are not probabilities; call "
            "calibrate with validation rows first (tagwise train --validation)."
        )
    return maps


def fit_calibration(
    labels: Any,
    scores: Any,
    Y: Any,
    *,
    observed: Any = None,
    target: str = "micro",
    shrinkage: float | None = None,
    probabilistic: bool = False,
) -> Calibration:
    """Learn thresholds and probabilities from the best labels of validation rows.

    Parameters
    ----------
    labels, scores : int and float arrays (n, k)
        ``predict_topk`` of rows that the model was not fitted on, with more labels than rows have; :data:`DEFAULT_K` is
        a good k.
    Y : CSR or array (n, L)
        The labels that these rows have.
    observed : CSR or array (n, L), optional
        Mask of the known pairs; unknown ones are left out.
    target : {"micro", "macro", "example"}
        The F1 to choose thresholds for (:mod:`tagwise.inspection.thresholds`).
    shrinkage : float, optional
        κ ≥ 0 of the thresholds: the shared threshold counts as much as κ positives. By default 100 for micro-F1, 2 for
        macro-F1, in which every label counts the same, and 30 for example-based F1.
    probabilistic : bool
        Whether a score is a probability minus ½ already (``model.probabilistic``), which the rows then correct.

    Returns
    -------
    Calibration

    Notes
    -----
    Time O(n·k log(n·k)); memory O(n·k). The constants were chosen on training rows of debtags, cooking-stackexchange
    and bibtex; κ = 0 is worse there than shared thresholds and maps alone. docs/notes/cascade.md has the
    comparison for probabilities.
    """
    check_choice(target, "target", TARGETS)
    drawn = _THRESHOLD_SHRINKAGE[target] if shrinkage is None else check_real(shrinkage, "shrinkage", minimum=0)
    pairs = ValidationPairs.of(labels, scores, Y, observed)
    if not len(pairs.scores):
        raise InvalidInputError("no listed label of the validation rows is known to be on or off.")
    if not pairs.on.any():
        raise InvalidInputError(
            "none of the listed labels is on in any validation row, so calibration is impossible; pass rows "
            "with labels that the model knows, or a larger k."
        )
    return Calibration(
        target,
        pairs.k,
        len(pairs.true_sizes),
        best_thresholds(pairs, target, drawn),
        ProbabilityMaps.fit(pairs, probabilistic=probabilistic),
        _cross_fitted_reliability(pairs, probabilistic),
    )


def _halves(pairs: ValidationPairs) -> Iterator[tuple[ValidationPairs, ValidationPairs]]:
    """Even and odd rows, then odd and even rows; nothing for a single row."""
    second = np.unique(pairs.rows, return_inverse=True)[1] % 2 == 1
    if second.any():
        for side in (second, ~second):
            this, other = (
                replace(pairs, **{name: getattr(pairs, name)[part] for name in ("rows", "labels", "scores", "on")})
                for part in (side, ~side)
            )
            yield this, other


def _cross_fitted_reliability(pairs: ValidationPairs, probabilistic: bool) -> ReliabilityBins:
    """Each half of the rows is scored by the maps of the other half."""
    stated, happened = [np.empty(0)], [np.empty(0)]
    for this, other in _halves(pairs):
        stated.append(ProbabilityMaps.fit(other, probabilistic=probabilistic)(this.labels, this.scores))
        happened.append(this.on)
    return reliability_bins(np.concatenate(stated), np.concatenate(happened), _BINS)


def _corrected(pairs: ValidationPairs) -> tuple[np.ndarray, np.ndarray]:
    """The knots of the pooled map of probabilities minus ½: between the probabilities and the isotonic map."""
    gain = size = 0.0
    for this, other in _halves(pairs):
        stated = _as_probabilities(this.scores)
        correction = np.interp(this.scores, *_isotonic(other.scores, other.on)) - stated
        gain += float(correction @ (this.on - stated))
        size += float(correction @ correction)
    n_rows = len(np.unique(pairs.rows))
    weight = n_rows / (n_rows + _CORRECTION_ROWS) * (min(1.0, max(0.0, gain / size)) if size else 0.0)
    scores, probabilities = _isotonic(pairs.scores, pairs.on)
    knots = np.union1d(scores, [-0.5, 0.5])
    return knots, weight * np.interp(knots, scores, probabilities) + (1 - weight) * _as_probabilities(knots)


def _as_probabilities(scores: np.ndarray) -> np.ndarray:
    return np.clip(scores + 0.5, 0.0, 1.0)


def _isotonic(scores: np.ndarray, on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    fitted = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(scores, on.astype(np.float64))
    return np.asarray(fitted.X_thresholds_, np.float64), np.asarray(fitted.y_thresholds_, np.float64)


_FIELDS = Fields(
    thresholds=dense("L", meaning="", numbers="float64"),
    pooled_scores=dense("knots", meaning="", numbers="float64"),
    pooled_probabilities=dense("knots", meaning="", numbers="float64"),
    own_labels=dense("own", meaning="", numbers="count"),
    own_weights=dense("own", meaning="", numbers="float64"),
    own_starts=dense("own+1", meaning="", numbers="count"),
    own_scores=dense("own knots", meaning="", numbers="float64"),
    own_probabilities=dense("own knots", meaning="", numbers="float64"),
)


def _check_maps(maps: ProbabilityMaps, n_labels: int) -> None:
    """Raise ValueError if a folder's maps cannot come from a fit; types and sizes are checked before."""
    own, starts = maps.own_labels, maps.own_starts
    sound = len(maps.pooled_scores) > 0 and starts[0] == 0 and starts[-1] == len(maps.own_scores)
    sound &= bool((np.diff(starts) >= 1).all() and (np.diff(own) > 0).all() and (own < n_labels).all())
    for shares in (maps.own_weights, maps.own_probabilities, maps.pooled_probabilities):
        sound &= bool(((shares >= 0) & (shares <= 1)).all())
    for name, firsts in (("own", starts[:-1]), ("pooled", [0])) if sound else ():
        scores, probabilities = (getattr(maps, f"{name}_{of}") for of in ("scores", "probabilities"))
        rises = (np.diff(scores, prepend=np.nan) > 0) & (np.diff(probabilities, prepend=np.nan) >= 0)
        rises[firsts] = True
        sound &= bool(rises.all())
    if not sound:
        raise ValueError("maps must be of some of the labels, each with knots that rise, and shares from 0 to 1")
