"""PLST: principal label space transformation (Tai & Lin, Neural Computation 24(9), 2012)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.baselines.label_space import LabelSpaceModel, centered_matmul, label_rates, principal_label_directions
from tagwise.models.factor_model import usable_rank
from tagwise.progress import FitProgress
from tagwise.randomness import random_generator
from tagwise.validation import Features

__all__ = ["PLST"]


class PLST(LabelSpaceModel):
    r"""Ridge regression onto the principal components of the labels, decoded back linearly.

    With the centered labels Y_c = Y − 1ȳᵀ, first V (L×k, orthonormal) and then W (d×k) and c (k) minimise

    .. math:: \tfrac12\|Y_c - Y_c V V^\top\|_F^2 \qquad\text{and}\qquad
              \tfrac12\|Y_c V - XW - 1c^\top\|_F^2 + \tfrac\lambda2\|W\|_F^2 ,

    whose sum, but for the penalty, is half the squared error of the decoded scores, which bounds the Hamming loss. V is
    the leading right singular vectors of Y_c; a row is scored by ȳ + V(Wᵀx + c).

    Parameters
    ----------
    rank : int
        k. More than the labels allow is clipped with a warning.
    reg : float
        λ > 0.
    normalize : bool
        Scale rows of X to unit length, at fit and at prediction.
    n_jobs : int or None
        Threads, as in joblib. The result is bit-identical for every number.
    random_state : int, Generator, RandomState or None
        Seeds the start of Lanczos' method, used for more than 2,000 labels.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    feature_factors_ : array (d, k)
        W.
    label_factors_ : array (L, k)
        V.
    intercept_ : array (L,)
        ȳ + Vc − ½: a score of 0 is the border between off and on.
    objective_, history_, n_iter_
        The sum of both minima; the same with seconds; 1.

    Notes
    -----
    Time: the decomposition of the labels (:mod:`tagwise.baselines.label_space`) and one ridge regression with k
    targets (:mod:`tagwise.baselines.linear_map`). Memory O(nnz X + nnz Y + (n + d + L)k), and 16·min(n, d)² bytes
    where that side is at most 4,000.

    Deviations: labels are 0/1 instead of ±1, which only halves the singular values; of the regressions that the
    publication allows, this is ridge. The method has no notion of unknown labels: ``observed`` is refused.

    Examples
    --------
    >>> from tagwise.baselines import PLST
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> labels, scores = PLST(rank=50).fit(data.X_train, data.Y_train).predict_topk(data.X_test, k=3)
    >>> labels.shape == (data.X_test.shape[0], 3)
    True
    """

    def _fit(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress) -> None:
        rank = usable_rank(self.rank, Y.shape[1], f"there are labels ({Y.shape[1]})")
        rates = label_rates(Y)
        V = principal_label_directions(Y, rank, random_generator(self.random_state))
        compressed = centered_matmul(Y.astype(np.float64), rates, V)
        left_out = 0.5 * (Y.shape[0] * float(np.sum(rates * (1 - rates))) - float(np.sum(compressed**2)))
        progress.step(left_out + self._regress(X, compressed, V, rates))
