"""Propensity-scored metrics: a true label that is likely to go missing from the data counts for more.

Following Jain, Prabhu and Varma, "Extreme multi-label loss functions for recommendation, tagging, ranking and
other missing label applications", KDD 2016.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.metrics.ranking import Hits, check_ks, discounts, hits_of, one_or_all
from tagwise.metrics.topk import NO_LABEL, top_k_of_csr
from tagwise.validation import check_labels, check_real

__all__ = [
    "PROPENSITY_CONSTANTS",
    "WeightedHits",
    "inverse_propensity",
    "propensity_constants",
    "psndcg_at_k",
    "psp_at_k",
]

PROPENSITY_CONSTANTS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"wikipedia": (0.5, 0.4), "amazon": (0.6, 2.6), "other": (0.55, 1.5)}
)
"""(A, B) per family of data sets, as in the tools of the extreme-classification repository."""


def propensity_constants(dataset: str) -> tuple[float, float]:
    """(A, B) of :func:`inverse_propensity` for a data set, by its name.

    Parameters
    ----------
    dataset : str
        Such as ``"Wikipedia-500K"`` or ``"debtags"``; case, punctuation and a leading ``LF-`` do not matter.

    Returns
    -------
    tuple of float
        ``PROPENSITY_CONSTANTS["wikipedia"]`` for names that begin with "wiki", except Wiki10-31K, which is
        published with the general constants; ``["amazon"]`` for names that begin with "amazon", except AmazonCat;
        else ``["other"]``.

    Notes
    -----
    AmazonCat sets use the general constants: A and B of the Amazon family were fitted to the co-purchase sets
    (Amazon-670K, Amazon-3M). To compare with a paper that used others, pass A and B yourself.
    """
    if not isinstance(dataset, str):
        raise InvalidTypeError(f"dataset must be a name; found {dataset!r}.")
    name = "".join(character for character in dataset.lower() if character.isalnum()).removeprefix("lf")
    if name.startswith("wiki") and not name.startswith("wiki10"):
        return PROPENSITY_CONSTANTS["wikipedia"]
    is_amazon = name.startswith("amazon") and not name.startswith("amazoncat")
    return PROPENSITY_CONSTANTS["amazon" if is_amazon else "other"]


def inverse_propensity(Y_train: Any, A: float = 0.55, B: float = 1.5) -> np.ndarray:
    r"""Inverse propensity of each label: how many true labels one observed label stands for.

    .. math:: q_l = 1 + C (N_l + B)^{-A}, \qquad C = (\ln N - 1)(B + 1)^A

    Parameters
    ----------
    Y_train : sparse or dense 0/1 matrix, N×L
        The labels that the model was trained on (not those of the test rows); :math:`N_l` counts label l's rows.
    A, B : float
        Constants of the data set, A ≥ 0 and B > 0; see :func:`propensity_constants`.

    Returns
    -------
    array of float64, L
        All at least 1; the rarer a label, the larger.

    Raises
    ------
    InvalidInputError
        Also for fewer than 3 rows, for which the formula would weigh frequent labels above rare ones.
    """
    truth = check_labels(Y_train, name="Y_train")
    A = check_real(A, "A", minimum=0.0)
    B = check_real(B, "B", minimum=0.0, open_minimum=True)
    n_rows, n_labels = truth.shape
    if n_rows < 3:
        raise InvalidInputError(
            f"Y_train has {n_rows} rows; propensities need at least 3, since ln N - 1 is negative below that."
        )
    counts = np.bincount(truth.indices, minlength=n_labels)
    constant = (np.log(n_rows) - 1.0) * (B + 1.0) ** A
    return np.asarray(1.0 + constant * (counts + B) ** -A)


@dataclass(frozen=True)
class WeightedHits:
    """Gains of a top-k pass if label l is worth ``weights[l]``, and the best possible gains on the same rows.

    Attributes
    ----------
    hits : Hits
        The unweighted pass.
    gained, best : array of float64, n×k
        Weight of each predicted label, 0 if it is wrong; and the same for a row's true labels by falling weight.
    """

    hits: Hits
    gained: np.ndarray
    best: np.ndarray

    @classmethod
    def of(cls, hits: Hits, inverse_propensity: Any) -> WeightedHits:
        """Weigh a pass by checked inverse propensities."""
        weights = _checked_weights(inverse_propensity, hits.truth.shape[1])
        truth = hits.truth
        valued = sp.csr_matrix((weights[truth.indices], truth.indices, truth.indptr), shape=truth.shape)
        ideal = top_k_of_csr(valued, hits.labels.shape[1])
        gained = np.where(hits.correct, weights[hits.labels], 0.0)
        best = np.where(ideal != NO_LABEL, weights[ideal], 0.0)
        return cls(hits, gained, best)

    def psp(self, ks: np.ndarray) -> np.ndarray:
        """PSP@k for each k."""
        gained, best = self.gained.sum(axis=0).cumsum(), self.best.sum(axis=0).cumsum()
        return self.hits.at(_share(gained, best), ks)

    def psndcg(self, ks: np.ndarray) -> np.ndarray:
        """PSnDCG@k for each k."""
        discount = discounts(self.best.shape[1])
        per_row = self.hits.ideal_discounts()
        gained = np.sum(np.cumsum(self.gained * discount, axis=1) / per_row, axis=0)
        best = np.sum(np.cumsum(self.best * discount, axis=1) / per_row, axis=0)
        return self.hits.at(_share(gained, best), ks)


def _share(gained: np.ndarray, best: np.ndarray) -> np.ndarray:
    # The best is 0 only if no row has a true label; then nothing can be gained either.
    return np.minimum(gained / np.where(best > 0, best, 1.0), 1.0)


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


@overload
def psp_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: int = ...) -> float: ...
@overload
def psp_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: Sequence[int] | np.ndarray) -> np.ndarray: ...
def psp_at_k(
    Y_true: Any, prediction: Any, inverse_propensity: Any, k: int | Sequence[int] | np.ndarray = 5
) -> float | np.ndarray:
    r"""Propensity-scored precision, as a share of the best achievable on the same rows.

    .. math::
        PSP@k = \frac{\sum_i \sum_{l \in \mathrm{top}_k(i) \cap y_i} q_l}
                     {\sum_i \max_{S \subseteq y_i, |S| \le k} \sum_{l \in S} q_l}

    Both sums run over all rows before the division, as is usual in published tables.

    Parameters
    ----------
    Y_true : sparse or dense 0/1 matrix, n×L
        True labels.
    prediction : array, sparse matrix or pair
        Integer n×w label ids (-1 = none), a pair (labels, scores), sparse or floating-point n×L scores; see
        :mod:`tagwise.metrics`.
    inverse_propensity : array, L
        q, from :func:`inverse_propensity` of the training labels.
    k : int or sequence of int
        One k, or several at once.

    Returns
    -------
    float or array
        A float for a whole number k; for a sequence, an array with one value per k in the given order. 0 if no row has
        a true label.

    Notes
    -----
    Memory O(n·max k + nnz); time O((n·max k + nnz) log nnz).
    """
    ks, single = check_ks(k)
    hits = hits_of(Y_true, prediction, ks)
    return one_or_all(WeightedHits.of(hits, inverse_propensity).psp(ks), single)


@overload
def psndcg_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: int = ...) -> float: ...
@overload
def psndcg_at_k(Y_true: Any, prediction: Any, inverse_propensity: Any, k: Sequence[int] | np.ndarray) -> np.ndarray: ...
def psndcg_at_k(
    Y_true: Any, prediction: Any, inverse_propensity: Any, k: int | Sequence[int] | np.ndarray = 5
) -> float | np.ndarray:
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
    ks, single = check_ks(k)
    hits = hits_of(Y_true, prediction, ks)
    return one_or_all(WeightedHits.of(hits, inverse_propensity).psndcg(ks), single)
