"""PLST: principal label space transformation (Tai & Lin, Neural Computation 24(9), 2012)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tagwise.baselines.label_space import LabelSpaceModel, centered_matmul, label_rates, principal_label_directions
from tagwise.fields import Fields
from tagwise.models.factor_model import factors, usable_rank
from tagwise.parameters import parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress

__all__ = ["PLST"]


@parameters
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

    Attributes
    ----------
    objective_ : array (rounds,)
        The sum of both minima.

    Notes
    -----
    Time: the decomposition of the labels (:mod:`tagwise.baselines.label_space`) and one ridge regression with k
    targets (:mod:`tagwise.baselines.linear_map`). Memory O(nnz X + nnz Y + (n + d + L)k), and 16·min(n, d)² bytes
    where that side is at most 4,000.

    Deviations: labels are 0/1 instead of ±1, which only halves the singular values; of the regressions that the
    publication allows, this is ridge.
    """

    fields: ClassVar[Fields] = factors(
        of_labels="V.", intercept="ȳ + Vc − ½: a score of 0 is the border between off and on."
    )

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        rank = usable_rank(self.rank, Y.shape[1], f"there are labels ({Y.shape[1]})")
        rates = label_rates(Y)
        V = principal_label_directions(Y, rank, random_generator(self.random_state))
        compressed = centered_matmul(Y.astype(np.float64), rates, V)
        left_out = 0.5 * (Y.shape[0] * float(np.sum(rates * (1 - rates))) - float(np.sum(compressed**2)))
        progress.step(left_out + self._regress(X, compressed, V, rates))
