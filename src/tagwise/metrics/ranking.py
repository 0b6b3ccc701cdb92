"""Ranking metrics over the top k: precision, recall, nDCG, their propensity-scored kin, and label coverage.

Each metric reads :class:`Hits`, the result of one top-k pass; :func:`ranking_report` computes all of them from one. All
of them follow from sums over rows (:class:`RankingSums`), so that rows can be measured in parts.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.metrics.topk import NO_LABEL, ranked_labels, top_k_of_csr
from tagwise.validation import check_integer, check_labels

__all__ = [
    "check_true_labels",
    "coverage_at_k",
    "ndcg_at_k",
    "ndcg_of_rows",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "ranking_report",
    "recall_at_k",
]

Several: TypeAlias = Sequence[int] | np.ndarray
"""More than one k at once."""


@dataclass(frozen=True)
class Hits:
    """The result of one top-k pass: everything that a ranking metric needs, in O(nk + nnz)."""

    truth: sp.csr_matrix  # the true labels, n×L
    labels: np.ndarray  # int64, n×k: predicted labels, best first, -1 = none
    correct: np.ndarray  # bool, n×k: whether each of them is a true label
    true_counts: np.ndarray  # int64, n: true labels per row

    def found(self) -> np.ndarray:
        """How many rows have a right label at each rank (k)."""
        return np.count_nonzero(self.correct, axis=0)

    def recalls(self) -> np.ndarray:
        """R@1, …, R@k of the rows, added up (k)."""
        return np.sum(np.cumsum(self.correct, axis=1) / np.maximum(self.true_counts, 1)[:, None], axis=0)

    def ndcg_of_rows(self) -> np.ndarray:
        """NDCG of each row at k = 1, 2, … (n×k)."""
        gained = np.cumsum(self.correct * discounts(self.labels.shape[1]), axis=1)
        return np.asarray(gained / self.ideal_discounts())

    def ideal_discounts(self) -> np.ndarray:
        """Σ_{j ≤ min(k, true labels)} 1/log2(j+1) per row and k; 1 if no label is true."""
        width = self.labels.shape[1]
        best = np.concatenate(([1.0], np.cumsum(discounts(width))))
        return np.asarray(best[np.minimum(self.true_counts[:, None], np.arange(1, width + 1))])

    def first_ranks(self) -> np.ndarray:
        """The first rank, from 0, at which any row has each label rightly (L).

        It is k where no row has, and k + 1 where the label is true in none.
        """
        width = self.labels.shape[1]
        first = np.full(self.truth.shape[1], width + 1, dtype=np.int32)
        first[self.truth.indices] = width
        for rank in reversed(range(width)):
            first[self.labels[self.correct[:, rank], rank]] = rank
        return first

    def weighted(self, inverse_propensity: Any) -> tuple[np.ndarray, np.ndarray]:
        """Weight of each predicted label, 0 if it is wrong; the same of a row's true labels by falling weight (n×k)."""
        truth, weights = self.truth, _checked_weights(inverse_propensity, self.truth.shape[1])
        valued = sp.csr_matrix((weights[truth.indices], truth.indices, truth.indptr), shape=truth.shape)
        ideal = top_k_of_csr(valued, self.labels.shape[1])
        return np.where(self.correct, weights[self.labels], 0.0), np.where(ideal != NO_LABEL, weights[ideal], 0.0)

    def gains(self, weighted: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """What PSP divides: the weights that rows gain among their first 1, …, k, and could at best (2×k)."""
        return np.array([gains.sum(axis=0).cumsum() for gains in weighted])

    def discounted_gains(self, weighted: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """What PSnDCG divides (2×k)."""
        discount, per_row = discounts(self.labels.shape[1]), self.ideal_discounts()
        return np.array([np.sum(np.cumsum(gains * discount, axis=1) / per_row, axis=0) for gains in weighted])

    def sums(self, inverse_propensity: Any = None) -> RankingSums:
        """All that the metrics of these rows depend on; weights are needed for PSP and PSnDCG."""
        none = np.zeros((2, self.labels.shape[1]))
        weighted = None if inverse_propensity is None else self.weighted(inverse_propensity)
        return RankingSums(
            self.labels.shape[0],
            self.found(),
            self.recalls(),
            self.ndcg_of_rows().sum(axis=0),
            none if weighted is None else self.gains(weighted),
            none if weighted is None else self.discounted_gains(weighted),
            self.first_ranks(),
        )


@dataclass(frozen=True, eq=False)
class RankingSums:
    """What ranking metrics of some rows depend on; sums of parts of the rows add up (:meth:`plus`).

    Attributes are those of :class:`Hits`, added up over its rows: ``ndcgs`` is that of ``ndcg_of_rows``.
    """

    n_rows: int
    found: np.ndarray
    recalls: np.ndarray
    ndcgs: np.ndarray
    gains: np.ndarray
    discounted_gains: np.ndarray
    first_ranks: np.ndarray

    @classmethod
    def of_no_rows(cls, k: int, n_labels: int) -> RankingSums:
        """What an empty part adds."""
        none, first = np.zeros(k), np.full(n_labels, k + 1, dtype=np.int32)
        return cls(0, none.astype(np.int64), none, none, np.zeros((2, k)), np.zeros((2, k)), first)

    def plus(self, *others: RankingSums) -> RankingSums:
        """Those of all rows together."""
        parts = (self, *others)
        return RankingSums(
            sum(part.n_rows for part in parts),
            np.sum([part.found for part in parts], axis=0),
            np.sum([part.recalls for part in parts], axis=0),
            np.sum([part.ndcgs for part in parts], axis=0),
            np.sum([part.gains for part in parts], axis=0),
            np.sum([part.discounted_gains for part in parts], axis=0),
            np.minimum.reduce([part.first_ranks for part in parts]),
        )

    def report(self, ks: np.ndarray, *, weighted: bool) -> dict[str, float]:
        """See :func:`ranking_report`; ``weighted``: whether rows were weighed by inverse propensities."""
        columns = {"P": _precision(self.found, self.n_rows, ks), "nDCG": _ndcg(self.ndcgs, self.n_rows, ks)}
        if weighted:
            columns |= {"PSP": _share(self.gains, ks), "PSnDCG": _share(self.discounted_gains, ks)}
        columns |= {
            "R": _at(self.recalls / self.n_rows, ks),
            "coverage": _coverage(self.first_ranks, self.found.size, ks),
        }
        return {f"{name}@{k}": float(value) for name, values in columns.items() for k, value in zip(ks, values)}


def _at(values: np.ndarray, ks: np.ndarray) -> np.ndarray:
    """The values at ``ks`` out of those at k = 1, 2, …; beyond L they stay the same."""
    return np.asarray(values[np.minimum(ks, values.size) - 1])


def _precision(found: np.ndarray, n_rows: int, ks: np.ndarray) -> np.ndarray:
    return np.asarray(_at(np.cumsum(found), ks) / (ks * n_rows))


def _ndcg(ndcgs: np.ndarray, n_rows: int, ks: np.ndarray) -> np.ndarray:
    return _at(np.minimum(ndcgs / n_rows, 1.0), ks)


def _coverage(first_ranks: np.ndarray, width: int, ks: np.ndarray) -> np.ndarray:
    n_with = np.bincount(first_ranks, minlength=width + 2)
    present = int(n_with[: width + 1].sum())
    return _at(np.cumsum(n_with[:width]) / present, ks) if present else np.zeros(ks.size)


def _share(gains: np.ndarray, ks: np.ndarray) -> np.ndarray:
    gained, best = gains
    # The best is 0 only if no row has a true label; then nothing can be gained either.
    return _at(np.minimum(gained / np.where(best > 0, best, 1.0), 1.0), ks)


def discounts(k: int) -> np.ndarray:
    """1/log2(j + 1) for j = 1 … k."""
    return 1.0 / np.log2(np.arange(2, k + 2))


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


def hits_of(Y_true: Any, prediction: Any, ks: np.ndarray) -> Hits:
    """Rank ``prediction`` down to the largest of ``ks`` and mark the labels that are true."""
    from tagwise.kernels.sampled_pairs import contains_pairs  # here, since importing metrics imports no numba

    truth = check_true_labels(Y_true)
    n_rows, n_labels = truth.shape
    # Beyond L there is no label whatever the prediction, so no memory is spent on it.
    depth = min(int(ks.max()), n_labels)
    labels = ranked_labels(prediction, depth, n_rows=n_rows, n_labels=n_labels)
    true_counts = np.diff(truth.indptr).astype(np.int64)
    return Hits(truth, labels, contains_pairs(truth, labels), true_counts)


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


def _at_k(
    Y_true: Any, prediction: Any, k: int | Several, metric: Callable[[Hits, np.ndarray], np.ndarray]
) -> float | np.ndarray:
    """A float if one k was asked for, else an array with one value per k."""
    ks, single = check_ks(k)
    values = metric(hits_of(Y_true, prediction, ks), ks)
    return float(values[0]) if single else values


@overload
def precision_at_k(Y_true: Any, prediction: Any, k: int = ...) -> float: ...
@overload
def precision_at_k(Y_true: Any, prediction: Any, k: Several) -> np.ndarray: ...
def precision_at_k(Y_true: Any, prediction: Any, k: int | Several = 5) -> float | np.ndarray:
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
    return _at_k(Y_true, prediction, k, lambda hits, ks: _precision(hits.found(), len(hits.labels), ks))


@overload
def recall_at_k(Y_true: Any, prediction: Any, k: int = ...) -> float: ...
@overload
def recall_at_k(Y_true: Any, prediction: Any, k: Several) -> np.ndarray: ...
def recall_at_k(Y_true: Any, prediction: Any, k: int | Several = 5) -> float | np.ndarray:
    r"""Share of a row's true labels that are among its first k, averaged over rows.

    .. math:: R@k = \frac1n \sum_i \frac{\left|\mathrm{top}_k(i) \cap y_i\right|}{|y_i|}

    Rows without a true label count as 0 (as scikit-learn does with ``zero_division=0``), so the average is over the
    same n rows as in :func:`precision_at_k`. Parameters, result and memory as there.
    """
    return _at_k(Y_true, prediction, k, lambda hits, ks: _at(hits.recalls() / len(hits.labels), ks))


@overload
def ndcg_at_k(Y_true: Any, prediction: Any, k: int = ...) -> float: ...
@overload
def ndcg_at_k(Y_true: Any, prediction: Any, k: Several) -> np.ndarray: ...
def ndcg_at_k(Y_true: Any, prediction: Any, k: int | Several = 5) -> float | np.ndarray:
    r"""Discounted gain of the true labels among the first k over the best possible, averaged over rows.

    .. math::
        nDCG@k = \frac1n \sum_i
        \frac{\sum_{j \le k} [\mathrm{top}(i)_j \in y_i] / \log_2(j+1)}
             {\sum_{j \le \min(k, |y_i|)} 1 / \log_2(j+1)}

    Rows without a true label count as 0. Parameters, result and memory as in :func:`precision_at_k`.
    """
    return _at_k(Y_true, prediction, k, lambda hits, ks: _ndcg(hits.ndcg_of_rows().sum(axis=0), len(hits.labels), ks))


def ndcg_of_rows(Y_true: Any, prediction: Any, k: int = 5) -> np.ndarray:
    """nDCG@k of each row (n), of which :func:`ndcg_at_k` is the mean."""
    ks, _ = check_ks(k)
    return hits_of(Y_true, prediction, ks).ndcg_of_rows()[:, -1]


@overload
def coverage_at_k(Y_true: Any, prediction: Any, k: int = ...) -> float: ...
@overload
def coverage_at_k(Y_true: Any, prediction: Any, k: Several) -> np.ndarray: ...
def coverage_at_k(Y_true: Any, prediction: Any, k: int | Several = 5) -> float | np.ndarray:
    r"""Share of the labels in ``Y_true`` that are predicted correctly at least once among the first k.

    .. math:: C@k = \frac{|\bigcup_i \mathrm{top}_k(i) \cap y_i|}{|\bigcup_i y_i|}

    Labels that are true in no row are left out of both counts. A model that knows only frequent labels has a high P@k
    and a low coverage. 0 if no row has a true label. (Not scikit-learn's ``coverage_error``, which is a depth in the
    ranking.) Parameters and result as in :func:`precision_at_k`; memory O(n·max k + nnz + L).
    """
    return _at_k(Y_true, prediction, k, lambda hits, ks: _coverage(hits.first_ranks(), hits.labels.shape[1], ks))


@overload
def psp_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: int = ...) -> float: ...
@overload
def psp_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: Several) -> np.ndarray: ...
def psp_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: int | Several = 5) -> float | np.ndarray:
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
    return _at_k(Y_true, prediction, k, lambda hits, ks: _share(hits.gains(hits.weighted(inverse_propensity)), ks))


@overload
def psndcg_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: int = ...) -> float: ...
@overload
def psndcg_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: Several) -> np.ndarray: ...
def psndcg_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: int | Several = 5) -> float | np.ndarray:
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
    return _at_k(
        Y_true, prediction, k, lambda hits, ks: _share(hits.discounted_gains(hits.weighted(inverse_propensity)), ks)
    )


def ranking_report(
    Y_true: Any, prediction: Any, ks: int | Several = (1, 3, 5), inverse_propensity: Any = None
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
    sums = hits_of(Y_true, prediction, wanted).sums(inverse_propensity)
    return sums.report(wanted, weighted=inverse_propensity is not None)
