r"""Comparison of recent rows with reference rows from the time of training, by counts of both.

A :class:`Profile` summarises a model's answers to some rows in a few counts: its unknown words, the best score of each
row in ten bins, and for each label the number of rows where it is among the first five suggestions. Two profiles are
compared by the population stability index

.. math:: \mathrm{PSI} = \sum_b (r_b - t_b) \ln \frac{r_b}{t_b}

of the shares t of the reference and r of the recent rows in the bins b, where half a row is added to every bin, so
that none is empty. Up to 0.1 is usually called stable, above 0.25 a shift. With few rows, a large
index may be chance, so each comparison also has a p-value. Those of the labels are adjusted for their number: of the
labels reported at level α, on average a share of at most α are false alarms (Benjamini and Hochberg, "Controlling the
false discovery rate", J. R. Stat. Soc. B 57, 1995).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.fields import Fields, dense
from tagwise.inspection.reliability import ReliabilityBins
from tagwise.inspection.validation_pairs import are_listed
from tagwise.validation import check_integer, check_real

__all__ = ["Drift", "Profile", "benjamini_hochberg", "compare_profiles", "population_stability", "profile_of"]

SUGGESTED = 5
"""Number of labels per row that count as suggested."""

_BINS = 10
_ARRAYS = Fields(
    score_edges=dense("edges", meaning="", numbers="float64"),
    score_counts=dense("edges+1", meaning="", numbers="count"),
    label_counts=dense("L", meaning="", numbers="count"),
)


@dataclass(frozen=True, eq=False)
class Profile:
    """Counts of a model's answers to some rows.

    Attributes
    ----------
    rows : int
        n.
    empty_rows : int
        Number of rows without any sparse feature: texts without known words.
    unknown_mean, unknown_variance : float
        Mean and variance of the share of unknown words per text; NaN if not counted.
    score_edges : float64 array (B − 1,)
        Borders of the bins of the best score of each row, in increasing order: deciles of the reference.
    score_counts : int64 array (B,)
        Rows in each bin; a score equal to an edge falls into the upper one.
    label_counts : int64 array (L,)
        Number of rows in which each label is among the first five suggestions.
    """

    rows: int
    empty_rows: int
    unknown_mean: float
    unknown_variance: float
    score_edges: np.ndarray
    score_counts: np.ndarray
    label_counts: np.ndarray

    def to_parts(self) -> dict[str, Any]:
        """The plain values and arrays of a folder, for :meth:`from_parts`."""
        return vars(self)

    @classmethod
    def from_parts(cls, values: Any, n_labels: int) -> Profile:
        """The profile stored in a folder; ValueError or TypeError if it is not a profile of ``n_labels`` labels."""
        found = cls(**values)
        arrays = {name: values[name] for name in _ARRAYS}
        _ARRAYS.check(arrays, {"L": n_labels})
        check_integer(found.rows, "rows", minimum=1)
        check_integer(found.empty_rows, "empty_rows", minimum=0, maximum=found.rows)
        if not np.isnan(found.unknown_mean):
            check_real(found.unknown_mean, "unknown_mean", minimum=0, maximum=1)
            check_real(found.unknown_variance, "unknown_variance", minimum=0, maximum=1)
        if (np.diff(found.score_edges) <= 0).any() or found.score_counts.sum() != found.rows:
            raise ValueError("score_edges must increase, and score_counts be counts of all rows between them")
        if found.label_counts.max() > found.rows:
            raise ValueError("label_counts must be counts of rows")
        return found


def profile_of(
    model: MultiLabelModel, X: Any, *, unknown_shares: Any = None, edges: np.ndarray | None = None
) -> Profile:
    """Profile of a model's answers to rows.

    Parameters
    ----------
    model : fitted model
    X : CSR or array (n, d)
        Rows that the model was not fitted on: its scores on training rows are too high.
    unknown_shares : float array (n,), optional
        Share of unknown words in each row; NaN for rows without words.
    edges : float64 array (B − 1,), optional
        ``score_edges`` of the profile that this one will be compared with. By default deciles of these rows.

    Notes
    -----
    Time as for ``predict_topk`` with five labels; memory O(5·n + L).
    """
    features = model.fitted_features(X)
    n_rows = features.shape[0]
    labels, scores = model.predict_topk(features, min(SUGGESTED, model.n_labels_))
    best = scores[:, 0].astype(np.float64)
    if edges is None:
        edges = np.unique(np.quantile(best, np.arange(1, _BINS) / _BINS))
    bins = np.searchsorted(edges, best, side="right")
    suggested = labels[are_listed(labels, scores)]
    shares = np.empty(0) if unknown_shares is None else np.asarray(unknown_shares, dtype=np.float64)
    shares = shares[~np.isnan(shares)]
    words = features.sparse if isinstance(features, FeatureBlocks) else features
    filled = np.diff(words.indptr) if hasattr(words, "indptr") else np.count_nonzero(words, axis=1)
    return Profile(
        rows=n_rows,
        empty_rows=int(np.count_nonzero(filled == 0)),
        unknown_mean=float(shares.mean()) if len(shares) else float("nan"),
        unknown_variance=float(shares.var()) if len(shares) else float("nan"),
        score_edges=np.asarray(edges, dtype=np.float64),
        score_counts=np.bincount(bins, minlength=len(edges) + 1),
        label_counts=np.bincount(suggested, minlength=model.n_labels_),
    )


@dataclass(frozen=True, eq=False)
class Drift:
    """Differences between recent rows and reference rows. P-values are two-sided.

    Attributes
    ----------
    reference, recent : Profile
    unknown_p : float
        P-value of the difference in the mean share of unknown words; NaN if not counted.
    empty_p : float
        P-value of the difference in the share of rows without any feature.
    score_psi, score_p : float
        Stability index of the best scores, and p-value of the difference between their distributions.
    label_psi, label_p, label_q : float64 arrays (L,)
        The same for the share of rows that each label is suggested for; q is p adjusted for the number of labels.
    answers : ReliabilityBins or None
        Stated probabilities of answered suggestions and the share accepted, if there are answers.
    """

    reference: Profile
    recent: Profile
    unknown_p: float
    empty_p: float
    score_psi: float
    score_p: float
    label_psi: np.ndarray
    label_p: np.ndarray
    label_q: np.ndarray
    answers: ReliabilityBins | None = None

    def moved_labels(self, level: float = 0.05) -> np.ndarray:
        """Labels with q of at most ``level``, largest index first."""
        moved = np.flatnonzero(self.label_q <= level)
        return moved[np.lexsort((moved, -self.label_psi[moved]))]

    @property
    def answered(self) -> int:
        """Number of suggestions with an answer."""
        return 0 if self.answers is None else int(self.answers.count.sum())

    @property
    def accepted(self) -> float:
        """Number of accepted suggestions; NaN without answers."""
        return float("nan") if self.answers is None else self.answers.total(self.answers.observed)

    @property
    def expected(self) -> float:
        """Number of acceptances that the probabilities predict; NaN without answers."""
        return float("nan") if self.answers is None else self.answers.total(self.answers.predicted)

    @property
    def answers_p(self) -> float:
        """P-value of ``accepted`` against ``expected``, by a normal approximation; NaN without answers."""
        if self.answers is None:
            return float("nan")
        stated = self.answers.predicted
        return _normal_p(self.accepted - self.expected, self.answers.total(stated * (1 - stated)))

    def with_answers(self, answers: ReliabilityBins) -> Drift:
        """A copy with the reliability of answered suggestions (``Tagger.reliability``)."""
        return replace(self, answers=answers)


def compare_profiles(reference: Profile, recent: Profile) -> Drift:
    """Compare recent rows with reference rows.

    The mean share of unknown words is compared by Welch's test over texts, since words of one text are not
    independent; rows without features, and labels, by the exact test of two shares (the hypergeometric tail, doubled),
    which is valid for the rarest labels too; the bins of scores by the χ² test. All tests assume independent rows:
    duplicates make p-values too small.
    """
    if len(reference.label_counts) != len(recent.label_counts):
        raise InvalidInputError(
            f"reference has {len(reference.label_counts):,} labels and recent has {len(recent.label_counts):,}; make "
            "both with the same model."
        )
    if not np.array_equal(reference.score_edges, recent.score_edges):
        raise InvalidInputError("recent and reference have different score bins; pass edges=reference.score_edges.")
    spread = reference.unknown_variance / reference.rows + recent.unknown_variance / recent.rows
    label_p = _share_p(reference.label_counts, reference.rows, recent.label_counts, recent.rows)
    counts = np.stack([reference.label_counts, recent.label_counts])
    others = np.array([[reference.rows], [recent.rows]]) - counts
    return Drift(
        reference=reference,
        recent=recent,
        unknown_p=_normal_p(recent.unknown_mean - reference.unknown_mean, spread),
        empty_p=float(_share_p(reference.empty_rows, reference.rows, recent.empty_rows, recent.rows)),
        score_psi=float(population_stability(reference.score_counts, recent.score_counts)),
        score_p=_bins_p(reference.score_counts, recent.score_counts),
        label_psi=population_stability(np.stack([counts[0], others[0]], 1), np.stack([counts[1], others[1]], 1)),
        label_p=label_p,
        label_q=benjamini_hochberg(label_p),
    )


def population_stability(reference: Any, recent: Any) -> Any:
    r"""The population stability index :math:`\sum_b (r_b - t_b) \ln (r_b / t_b)` of counts in bins.

    Both are arrays (…, B) over the same bins; half a count is added to each bin. The result (…) is at least 0, and 0
    if all shares are equal.
    """
    shares = []
    for counts, name in ((reference, "reference"), (recent, "recent")):
        found = np.asarray(counts, dtype=np.float64)
        if not found.ndim or found.shape != np.shape(reference) or not (np.isfinite(found) & (found >= 0)).all():
            raise InvalidInputError(f"{name} must hold counts of at least 0, in the same bins as the other argument.")
        shares.append((found + 0.5) / (found + 0.5).sum(axis=-1, keepdims=True))
    t, r = shares
    return ((r - t) * np.log(r / t)).sum(axis=-1)


def benjamini_hochberg(p_values: Any) -> np.ndarray:
    """Adjusted p-values q (Benjamini and Hochberg): selecting q ≤ α keeps the false discovery rate at α or below.

    ``q[i]`` is the smallest p[j]·m / rank(j) over p[j] ≥ p[i] of the m values.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise InvalidInputError("p_values must be a list of numbers from 0 to 1.")
    order = np.argsort(-p, kind="stable")
    ranks = np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum.accumulate(np.minimum(1.0, p[order] * len(p) / np.maximum(ranks, 1)))
    return adjusted


def _share_p(hits: Any, n_rows: int, recent_hits: Any, n_recent: int) -> np.ndarray:
    """P-value of the exact two-sided test of two shares: the smaller tail, doubled."""
    from scipy.stats import hypergeom

    total = np.asarray(hits) + np.asarray(recent_hits)
    drawn = hypergeom(n_rows + n_recent, total, n_recent)
    tail = np.minimum(drawn.cdf(recent_hits), drawn.sf(np.asarray(recent_hits) - 1))
    return np.minimum(1.0, 2 * tail)


def _bins_p(reference: np.ndarray, recent: np.ndarray) -> float:
    from scipy.stats import chi2_contingency

    table = np.stack([reference, recent])
    table = table[:, table.sum(axis=0) > 0]
    return float(chi2_contingency(table, correction=False).pvalue) if table.shape[1] > 1 else 1.0


def _normal_p(difference: float, variance: float) -> float:
    from scipy.special import ndtr

    if np.isnan(difference) or np.isnan(variance):
        return float("nan")
    if variance == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * ndtr(-abs(difference) / np.sqrt(variance)))
