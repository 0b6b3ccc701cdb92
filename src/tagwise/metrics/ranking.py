"""Ranking metrics over the top k: precision, recall, nDCG, their propensity-scored kin, and label coverage.

Each metric reads :class:`Hits`, the result of one top-k pass, and is made of sums over rows, so that rows can be
measured in parts (:class:`RankingSums`). :data:`RANKINGS` lists them; a new one is a function and an entry there.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.metrics.topk import NO_LABEL, ranked_labels, top_k_of_csr
from tagwise.validation import check_integer, check_labels

__all__ = [
    "RANKINGS",
    "Hits",
    "Metric",
    "RankingMetric",
    "RankingSums",
    "check_ks",
    "check_true_labels",
    "coverage_at_k",
    "hits_of",
    "ndcg_at_k",
    "ndcg_of_rows",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "ranking_report",
    "recall_at_k",
]


@dataclass(frozen=True, eq=False)
class Hits:
    """The result of one top-k pass: everything that a ranking metric needs, in O(nk + nnz).

    ``truth`` (n, L) has the true labels, ``labels`` (n, k) the predicted ones, best first, −1 for none;
    ``inverse_propensity`` (L) is there for the metrics that weigh labels by it.
    """

    truth: sp.csr_matrix
    labels: np.ndarray
    inverse_propensity: Any = None

    @cached_property
    def correct(self) -> np.ndarray:
        """Whether each predicted label is true (n×k)."""
        from tagwise.kernels.sampled_pairs import contains_pairs  # here, since importing metrics imports no numba

        return contains_pairs(self.truth, self.labels)

    @cached_property
    def true_counts(self) -> np.ndarray:
        """Number of true labels per row (n)."""
        return np.diff(self.truth.indptr).astype(np.int64)

    @cached_property
    def discounts(self) -> np.ndarray:
        """1/log2(j + 1) for j = 1 … k."""
        return np.asarray(1.0 / np.log2(np.arange(2, self.labels.shape[1] + 2)))

    @cached_property
    def ideal_discounts(self) -> np.ndarray:
        """Σ_{j ≤ min(k, true labels)} 1/log2(j+1) per row and k; 1 if no label is true."""
        best = np.concatenate(([1.0], np.cumsum(self.discounts)))
        return np.asarray(best[np.minimum(self.true_counts[:, None], np.arange(1, len(best)))])

    @cached_property
    def gains(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights of predicted labels, 0 for wrong ones; and of a row's true labels by falling weight (both n×k)."""
        truth, weights = self.truth, _checked_weights(self.inverse_propensity, self.truth.shape[1])
        valued = sp.csr_matrix((weights[truth.indices], truth.indices, truth.indptr), shape=truth.shape)
        ideal = top_k_of_csr(valued, self.labels.shape[1])
        return np.where(self.correct, weights[self.labels], 0.0), np.where(ideal != NO_LABEL, weights[ideal], 0.0)

    def ndcg_of_rows(self) -> np.ndarray:
        """NDCG of each row at 1, …, k (n×k)."""
        return np.asarray(np.cumsum(self.correct * self.discounts, axis=1) / self.ideal_discounts)


@dataclass(frozen=True)
class Metric:
    """One row of the tables of metrics, from which reports, commands, scorers and searches take their lists."""

    name: str
    """In reports: "P", "micro-F1"."""
    function: Callable[..., Any]
    """Takes the truth and the prediction."""
    meaning: str
    """Meaning, for tables and reports."""
    higher_is_better: bool = field(default=True, kw_only=True)
    shown: bool = field(default=True, kw_only=True)
    """Whether evaluations, commands and reports show the metric."""


@dataclass(frozen=True)
class RankingMetric(Metric):
    """A metric at k. ``name`` is followed by ``@k`` in reports."""

    sums: Callable[[Hits], np.ndarray]
    """All that the metric depends on, added up over rows."""
    values: Callable[[np.ndarray, int, np.ndarray], np.ndarray]
    """The metric at some k, from the sums, the number of rows, and these k."""
    weighted: bool = False
    """Whether labels are weighted by inverse propensities."""
    add: np.ufunc = np.add
    """Operation that makes sums of all rows from those of parts."""


@dataclass(frozen=True, eq=False)
class RankingSums:
    """Sums over rows for each ranking metric, by name."""

    n_rows: int
    sums: dict[str, np.ndarray]

    @classmethod
    def of(cls, hits: Hits) -> RankingSums:
        """Sums for all metrics; for weighted ones only if the hits have weights."""
        metrics = [metric for metric in RANKINGS if hits.inverse_propensity is not None or not metric.weighted]
        return cls(len(hits.labels), {metric.name: metric.sums(hits) for metric in metrics})

    def plus(self, *others: RankingSums) -> RankingSums:
        """Sums of all rows together."""
        parts = (self, *others)
        add = {metric.name: metric.add for metric in RANKINGS}
        sums = {name: add[name].reduce([part.sums[name] for part in parts]) for name in self.sums}
        return RankingSums(sum(part.n_rows for part in parts), sums)

    def report(self, ks: np.ndarray) -> dict[str, float]:
        """The result of :func:`ranking_report`."""
        return {
            f"{metric.name}@{k}": float(value)
            for metric in RANKINGS
            if metric.name in self.sums
            for k, value in zip(ks, metric.values(self.sums[metric.name], self.n_rows, ks))
        }


def check_true_labels(Y_true: Any) -> sp.csr_matrix:
    """``Y_true`` as canonical CSR with at least one row."""
    truth = check_labels(Y_true, name="Y_true")
    if truth.shape[0] == 0:
        raise InvalidInputError("Y_true has no rows; there is nothing to average over.")
    return truth


def check_ks(k: Any, name: str = "k") -> tuple[np.ndarray, bool]:
    """All k asked for, and whether a single number was given."""
    if isinstance(k, numbers.Integral):
        return np.array([check_integer(k, name, minimum=1)]), True
    if isinstance(k, (str, bytes, numbers.Number)):
        raise InvalidTypeError(f"{name} must be a whole number or a sequence of them; found {k!r}.")
    try:
        ks = [check_integer(value, name, minimum=1) for value in k]
    except TypeError as error:
        if isinstance(error, InvalidTypeError):
            raise
        raise InvalidTypeError(f"{name} must be a whole number or a sequence of them; found {k!r}.") from None
    if not ks:
        raise InvalidInputError(f"{name} is an empty sequence; name at least one k.")
    return np.array(ks), False


def hits_of(Y_true: Any, prediction: Any, ks: np.ndarray, inverse_propensity: Any = None) -> Hits:
    """Rank ``prediction`` down to the largest of ``ks``."""
    truth = check_true_labels(Y_true)
    n_rows, n_labels = truth.shape
    # Beyond L there is no label whatever the prediction, so no memory is spent on it.
    depth = min(int(ks.max()), n_labels)
    return Hits(truth, ranked_labels(prediction, depth, n_rows=n_rows, n_labels=n_labels), inverse_propensity)


def _checked_weights(inverse_propensity: Any, n_labels: int) -> np.ndarray:
    name = "inverse_propensity"
    if callable(inverse_propensity) or sp.issparse(inverse_propensity):
        raise InvalidTypeError(f"{name} must be an array of one number per label: pass {name}(Y_train).")
    try:
        weights = np.asarray(inverse_propensity, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidTypeError(f"{name} must be an array of one number per label: pass {name}(Y_train).") from None
    if weights.shape != (n_labels,):
        raise InvalidInputError(
            f"{name} has shape {weights.shape} but Y_true has {n_labels:,} labels; one number per label is needed."
        )
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if wrong.any():
        label = int(np.argmax(wrong))
        raise InvalidInputError(f"{name} must be finite and above 0; found {weights[label]} for label {label}.")
    return weights


def _at_k(name: str, Y_true: Any, prediction: Any, k: int | Sequence[int], weights: Any = None) -> Any:
    """A float if one k was asked for, else an array with one value per k."""
    ks, single = check_ks(k)
    metric = next(metric for metric in RANKINGS if metric.name == name)
    hits = hits_of(Y_true, prediction, ks, weights)
    values = metric.values(metric.sums(hits), len(hits.labels), ks)
    return float(values[0]) if single else values


def precision_at_k(Y_true: Any, prediction: Any, k: int | Sequence[int] = 5) -> Any:
    r"""Share of true labels among the first k, averaged over rows.

    .. math:: P@k = \frac1n \sum_i \frac1k \left|\mathrm{top}_k(i) \cap y_i\right|

    Parameters
    ----------
    Y_true : sparse or dense 0/1 matrix, n×L
        True labels.
    prediction : array, sparse matrix or pair
        Integer n×w label ids (-1 = none), a pair (labels, scores), sparse or floating-point n×L scores; see
        :mod:`tagwise.metrics`.
    k : int or sequence of int
        One k, or several at once.

    Returns
    -------
    float or array
        A float for a whole number k; for a sequence, an array with one value per k in the given order.

    Notes
    -----
    A missing prediction counts as wrong: the divisor is always k, even if k > L. Memory O(n·max k + nnz).
    """
    return _at_k("P", Y_true, prediction, k)


def recall_at_k(Y_true: Any, prediction: Any, k: int | Sequence[int] = 5) -> Any:
    r"""Share of a row's true labels that are among its first k, averaged over rows.

    .. math:: R@k = \frac1n \sum_i \frac{\left|\mathrm{top}_k(i) \cap y_i\right|}{|y_i|}

    Rows without a true label count as 0 (as scikit-learn does with ``zero_division=0``), so the average is over the
    same n rows as in :func:`precision_at_k`. Parameters, result and memory as there.
    """
    return _at_k("R", Y_true, prediction, k)


def ndcg_at_k(Y_true: Any, prediction: Any, k: int | Sequence[int] = 5) -> Any:
    r"""Discounted gain of the true labels among the first k over the best possible, averaged over rows.

    .. math::
        nDCG@k = \frac1n \sum_i
        \frac{\sum_{j \le k} [\mathrm{top}(i)_j \in y_i] / \log_2(j+1)}
             {\sum_{j \le \min(k, |y_i|)} 1 / \log_2(j+1)}

    Rows without a true label count as 0. Parameters, result and memory as in :func:`precision_at_k`.
    """
    return _at_k("nDCG", Y_true, prediction, k)


def ndcg_of_rows(Y_true: Any, prediction: Any, k: int = 5) -> np.ndarray:
    """nDCG@k of each row (n), of which :func:`ndcg_at_k` is the mean."""
    ks, _ = check_ks(k)
    return hits_of(Y_true, prediction, ks).ndcg_of_rows()[:, -1]


def coverage_at_k(Y_true: Any, prediction: Any, k: int | Sequence[int] = 5) -> Any:
    r"""Share of the labels in ``Y_true`` that are predicted correctly at least once among the first k.

    .. math:: C@k = \frac{|\bigcup_i \mathrm{top}_k(i) \cap y_i|}{|\bigcup_i y_i|}

    Labels that are true in no row are left out of both counts. A model that knows only frequent labels has a high P@k
    and a low coverage. 0 if no row has a true label. (Not scikit-learn's ``coverage_error``, which is a depth in the
    ranking.) Parameters and result as in :func:`precision_at_k`; memory O(n·max k + nnz + L).
    """
    return _at_k("coverage", Y_true, prediction, k)


def psp_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: int | Sequence[int] = 5) -> Any:
    r"""Propensity-scored precision, as a share of the best achievable on the same rows.

    .. math::
        PSP@k = \frac{\sum_i \sum_{l \in \mathrm{top}_k(i) \cap y_i} q_l}
                     {\sum_i \max_{S \subseteq y_i, |S| \le k} \sum_{l \in S} q_l}

    Both sums run over all rows before the division, as is usual in published tables.

    Parameters
    ----------
    Y_true, prediction, k
        As in :func:`precision_at_k`.
    inverse_propensity : array, L
        q, from :func:`inverse_propensity` of the training labels.

    Returns
    -------
    float or array
        As in :func:`precision_at_k`; 0 if no row has a true label.

    Notes
    -----
    Memory O(n·max k + nnz); time O((n·max k + nnz) log nnz).
    """
    return _at_k("PSP", Y_true, prediction, k, inverse_propensity)


def psndcg_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: int | Sequence[int] = 5) -> Any:
    r"""Propensity-scored nDCG, as a share of the best achievable on the same rows.

    .. math::
        PSnDCG@k = \frac{\sum_i g_i(\mathrm{top}(i))}{\sum_i g_i(\mathrm{best}(i))}, \qquad
        g_i(r) = \frac{\sum_{j \le k} q_{r_j} [r_j \in y_i] / \log_2(j+1)}
                      {\sum_{j \le \min(k, |y_i|)} 1 / \log_2(j+1)}

    where best(i) ranks the row's true labels by falling q. Each row's gain is divided by its own discounts, as in nDCG;
    then both sums run over all rows before the division. So do the evaluation tools of the extreme-classification
    repository; their text prints the row's divisor with k in place of min(k, abs(y_i)).

    Parameters, result and cost as in :func:`psp_at_k`.
    """
    return _at_k("PSnDCG", Y_true, prediction, k, inverse_propensity)


def ranking_report(
    Y_true: Any, prediction: Any, ks: int | Sequence[int] = (1, 3, 5), inverse_propensity: Any = None
) -> dict[str, float]:
    """P, nDCG, PSP, PSnDCG, R and coverage at each k, from one ranking of ``prediction``.

    Parameters
    ----------
    Y_true, prediction
        As in :func:`precision_at_k`.
    ks : int or sequence of int
        Each k.
    inverse_propensity : array, L, optional
        From :func:`tagwise.metrics.inverse_propensity` of the training labels; without it PSP and PSnDCG are
        left out.

    Returns
    -------
    dict
        ``"P@1"``, …, then ``"nDCG@…"``, ``"PSP@…"``, ``"PSnDCG@…"``, ``"R@…"``, ``"coverage@…"``, each for
        all ks in the given order; values in [0, 1] as the functions of the same name give them.

    Notes
    -----
    Memory O(n·max k + nnz + L).
    """
    wanted, _ = check_ks(ks, "ks")
    return RankingSums.of(hits_of(Y_true, prediction, wanted, inverse_propensity)).report(wanted)


# ---------------------------------------------------------------------- sums over rows, and values from them


def _at(values: np.ndarray, ks: np.ndarray) -> np.ndarray:
    """The values at ``ks`` out of those at k = 1, 2, …; beyond L they stay the same."""
    return np.asarray(values[np.minimum(ks, values.size) - 1])


def _found(hits: Hits) -> np.ndarray:
    """Number of rows with a right label at each rank (k)."""
    return np.asarray(np.count_nonzero(hits.correct, axis=0))


def _recalls(hits: Hits) -> np.ndarray:
    shares = np.cumsum(hits.correct, axis=1) / np.maximum(hits.true_counts, 1)[:, None]
    return np.asarray(np.sum(shares, axis=0))


def _gained(hits: Hits) -> np.ndarray:
    """Numerator and denominator of PSP (2×k)."""
    return np.array([gains.sum(axis=0).cumsum() for gains in hits.gains])


def _discounted_gained(hits: Hits) -> np.ndarray:
    """Numerator and denominator of PSnDCG (2×k)."""
    return np.array(
        [np.sum(np.cumsum(gains * hits.discounts, axis=1) / hits.ideal_discounts, axis=0) for gains in hits.gains]
    )


def _share(gained: np.ndarray, n_rows: int, ks: np.ndarray) -> np.ndarray:
    reached, best = gained
    # The best is 0 only if no row has a true label; then nothing can be gained either.
    return _at(np.minimum(reached / np.where(best > 0, best, 1.0), 1.0), ks)


def _first_ranks(hits: Hits) -> np.ndarray:
    """First rank, from 0, at which any row predicts each label correctly (L).

    k if no row does, and k + 1 if the label is true in none.
    """
    width = hits.labels.shape[1]
    first = np.full(hits.truth.shape[1], width + 1, dtype=np.int32)
    first[hits.truth.indices] = width
    for rank in reversed(range(width)):
        first[hits.labels[hits.correct[:, rank], rank]] = rank
    return first


def _coverage(first_ranks: np.ndarray, n_rows: int, ks: np.ndarray) -> np.ndarray:
    width = min(int(ks.max()), len(first_ranks))
    n_with = np.bincount(first_ranks, minlength=width + 2)
    present = int(n_with[: width + 1].sum())
    return _at(np.cumsum(n_with[:width]) / present, ks) if present else np.zeros(ks.size)


RANKINGS: tuple[RankingMetric, ...] = (
    RankingMetric(
        "P",
        precision_at_k,
        "precision of the first k tags",
        _found,
        lambda found, n_rows, ks: np.asarray(_at(np.cumsum(found), ks) / (ks * n_rows)),
    ),
    RankingMetric(
        "nDCG",
        ndcg_at_k,
        "the same, with more weight on early ranks",
        lambda hits: np.asarray(hits.ndcg_of_rows().sum(axis=0)),
        lambda ndcgs, n_rows, ks: _at(np.minimum(ndcgs / n_rows, 1.0), ks),
    ),
    RankingMetric("PSP", psp_at_k, "precision, with more weight on rare tags", _gained, _share, weighted=True),
    RankingMetric(
        "PSnDCG",
        psndcg_at_k,
        "nDCG, with more weight on rare tags",
        _discounted_gained,
        _share,
        weighted=True,
        shown=False,
    ),
    RankingMetric(
        "R",
        recall_at_k,
        "share of a row's tags among the first k",
        _recalls,
        lambda recalls, n_rows, ks: _at(recalls / n_rows, ks),
    ),
    RankingMetric(
        "coverage",
        coverage_at_k,
        "share of tags that are suggested correctly at least once",
        _first_ranks,
        _coverage,
        add=np.minimum,
    ),
)
"""All ranking metrics, in the order of reports."""
