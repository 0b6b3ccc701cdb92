"""ML-CSSP: multi-label learning by column subset selection of the labels (Bi & Kwok, ICML 2013)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.baselines.label_space import LabelSpaceModel, label_rates, principal_label_directions
from tagwise.fields import Fields, dense
from tagwise.models.factor_model import factors, usable_rank
from tagwise.parallel import single_threaded_blas
from tagwise.parameters import parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress

__all__ = ["MLCSSP"]


@parameters
class MLCSSP(LabelSpaceModel):
    r"""A few labels are learnt, and all labels are reconstructed from them.

    With the centered labels Y_c = Y − 1ȳᵀ and a set C of k labels, the method looks for C with a small

    .. math:: \|Y_c - Y_C Y_C^{+} Y_c\|_F , \qquad Y_C = Y_c[:, C],

    the columns of Y_c projected onto those of C, and learns only these:

    .. math:: \min_{W, c}\; \tfrac12\|Y_C - XW - 1c^\top\|_F^2 + \tfrac\lambda2\|W\|_F^2 .

    Steps: label j has the leverage score ‖V_j‖²/k, V (L×k) the leading right singular vectors of Y_c; labels are drawn
    with these probabilities until k different ones have come up; the k labels are regressed on X; a row is scored by
    ȳ + (Y_C⁺Y_c)ᵀ(Wᵀx + c).

    Parameters
    ----------
    rank : int
        k, the number of labels drawn. More than there are labels is clipped with a warning; labels that all rows or no
        rows have are never drawn.

    Attributes
    ----------
    objective_ : array (rounds,)
        ½ of the squared error of reconstruction plus the minimum of the regression.

    Notes
    -----
    Time: the decomposition of the labels (:mod:`tagwise.baselines.label_space`), O(k²(k + L)) and one ridge
    regression with k targets (:mod:`tagwise.baselines.linear_map`). Memory O(nnz X + nnz Y + (n + d + L)k), and
    16·min(n, d)² bytes where that side is at most 4,000.

    Deviations: labels are centered first, which gives every label its intercept; the publication leaves the classifiers
    of the drawn labels open, here they are ridge regressions whose real values, not signs, enter the reconstruction.
    """

    fields: ClassVar[Fields] = factors(
        of_labels="(Y_C⁺Y_c)ᵀ: unit vectors for the drawn labels where these are linearly independent.",
        intercept="ȳ + (Y_C⁺Y_c)ᵀc − ½: a score of 0 is the border between off and on.",
    ) | Fields(selected_labels_=dense("k", numbers="int", meaning="C, in ascending order."))

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        rank = usable_rank(self.rank, Y.shape[1], f"there are labels ({Y.shape[1]})")
        rng = random_generator(self.random_state)
        chosen = drawn_by_leverage(principal_label_directions(Y, rank, rng), rng)
        rates = label_rates(Y)
        weights, left_out = _reconstruction(Y.astype(np.float64), rates, chosen)
        self.selected_labels_ = chosen
        progress.step(left_out + self._regress(X, Y[:, chosen].toarray() - rates[chosen], weights, rates))

    def _check_fitted(self) -> None:
        super()._check_fitted()
        chosen = self.selected_labels_
        if chosen.min() < 0 or chosen.max() >= self.n_labels_ or (np.diff(chosen) <= 0).any():
            raise ValueError(f"selected_labels_ must hold different labels below {self.n_labels_} in ascending order")


def drawn_by_leverage(directions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws k different rows of ``directions`` (L×k) by their squared lengths, in ascending order.

    Rows of zeros are never drawn, unless all are zeros: then the first row is taken.
    """
    leverage = np.einsum("ij,ij->i", directions, directions)
    total = leverage.sum()
    if total == 0:
        return np.zeros(1, dtype=np.int64)
    count = min(directions.shape[1], np.count_nonzero(leverage))
    return np.sort(rng.choice(len(leverage), size=count, replace=False, p=leverage / total)).astype(np.int64)


def _reconstruction(Y: sp.csr_matrix, rates: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, float]:
    """(Y_C⁺Y_c)ᵀ as L×k, and half the squared error that it leaves."""
    n_rows = Y.shape[0]
    columns = sp.csr_matrix(Y[:, chosen])
    with single_threaded_blas():
        gram = (columns.T @ columns).toarray() - n_rows * np.outer(rates[chosen], rates[chosen])
        cross = (columns.T @ Y).toarray() - n_rows * np.outer(rates[chosen], rates)
        # Labels that always come together make the Gram matrix singular; the pseudo-inverse shares the weight.
        weights = scipy.linalg.pinvh(gram) @ cross
    variance = n_rows * float(np.sum(rates * (1 - rates)))
    left_out = 0.5 * max(variance - float(np.sum(weights * cross)), 0.0)
    return weights.T, left_out
