"""Early stopping: hold rows out, watch how well they are ranked, keep the best round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.data.splits import split_rows
from tagwise.exceptions import InvalidInputError
from tagwise.kernels import FeatureMatrix, feature_matrix, sampled_product, top_k_of_factors
from tagwise.metrics import ndcg_at_k
from tagwise.models.leml.steps import Factors
from tagwise.persistence.fit_state import State, count, nested, real

__all__ = ["BestRound", "ValidationRows", "hold_out"]

_PLACES = 5


@dataclass
class BestRound(State):
    """The factors of the round that ranked the validation rows best so far, its nDCG@5 and its number."""

    factors: Factors = nested(Factors)
    score: float = real()
    number: int = count(1, "done")


class ValidationRows:
    """Validation rows, by which nDCG@5 judges a round; ``patience`` rounds without a better one end the fit.

    Where there is a mask, only the known pairs of a row are ranked.
    """

    def __init__(
        self, X: FeatureMatrix, Y: sp.csr_matrix, observed: sp.csr_matrix | None, *, patience: int, n_threads: int
    ) -> None:
        self.X, self.observed, self.patience, self.n_threads = X, observed, patience, n_threads
        self.Y = Y if observed is None else sp.csr_matrix(Y.multiply(observed))

    def score(self, factors: Factors) -> float:
        """How well these factors rank the rows."""
        A, b = self.X.matmul(factors.W), factors.b.astype(factors.H.dtype)
        if self.observed is None:
            ranking, _ = top_k_of_factors(A, factors.H, _PLACES, intercept=b, n_threads=self.n_threads)
        else:
            known = self.observed
            scores = sampled_product(known, A, factors.H, n_threads=self.n_threads) + b[known.indices]
            ranking = sp.csr_matrix((scores, known.indices, known.indptr), shape=known.shape)
        return float(ndcg_at_k(self.Y, ranking, k=_PLACES))


def hold_out(
    X: sp.csr_matrix | np.ndarray,
    Y: sp.csr_matrix,
    observed: sp.csr_matrix | None,
    fraction: float,
    random_state: Any,
    *,
    patience: int,
    n_threads: int,
) -> tuple[sp.csr_matrix | np.ndarray, sp.csr_matrix, sp.csr_matrix | None, ValidationRows]:
    """Split rows off: what is left to train on, and the validation rows. Rare labels stay in training."""
    # By the known labels: what Y says outside the mask must not even decide which rows are held out.
    known = Y if observed is None else sp.csr_matrix(Y.multiply(observed))
    train, held = split_rows(known, fraction, random_state)
    if len(held) == 0:
        raise InvalidInputError(
            f"validation_fraction={fraction} of {X.shape[0]} rows holds no row out (every row is needed to keep its "
            "labels in training); raise it or switch early_stopping off."
        )
    held_mask = None if observed is None else observed[held]
    if held_mask is not None and held_mask.nnz == 0:
        raise InvalidInputError("none of the held-out rows has a known label; switch early_stopping off.")
    rows = ValidationRows(
        feature_matrix(X[held], n_threads=n_threads), Y[held], held_mask, patience=patience, n_threads=n_threads
    )
    return X[train], Y[train], None if observed is None else observed[train], rows
