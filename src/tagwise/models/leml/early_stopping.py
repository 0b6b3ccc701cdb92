"""Early stopping: validation rows, and how well a round ranks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.data.splits import split_rows
from tagwise.exceptions import InvalidInputError
from tagwise.kernels import FeatureMatrix, feature_matrix, sampled_product, top_k_of_factors
from tagwise.metrics import ndcg_at_k
from tagwise.models.leml.steps import Factors

__all__ = ["ValidationRows", "split_validation_rows"]

_K = 5


class ValidationRows:
    """Rows by which nDCG@5 judges a round; with a mask, only the known pairs of a row are ranked."""

    def __init__(self, X: FeatureMatrix, Y: sp.csr_matrix, observed: sp.csr_matrix | None, *, n_threads: int) -> None:
        self.X, self.observed, self.n_threads = X, observed, n_threads
        self.Y = Y if observed is None else sp.csr_matrix(Y.multiply(observed))

    def score(self, factors: Factors) -> float:
        """How well these factors rank the rows."""
        A, b = self.X.matmul(factors.W), factors.b.astype(factors.H.dtype)
        if self.observed is None:
            ranking, _ = top_k_of_factors(A, factors.H, _K, intercept=b, n_threads=self.n_threads)
        else:
            known = self.observed
            scores = sampled_product(known, A, factors.H, n_threads=self.n_threads) + b[known.indices]
            ranking = sp.csr_matrix((scores, known.indices, known.indptr), shape=known.shape)
        return float(ndcg_at_k(self.Y, ranking, k=_K))


def split_validation_rows(
    X: sp.csr_matrix | np.ndarray,
    Y: sp.csr_matrix,
    observed: sp.csr_matrix | None,
    fraction: float,
    random_state: Any,
    *,
    n_threads: int,
) -> tuple[sp.csr_matrix | np.ndarray, sp.csr_matrix, sp.csr_matrix | None, ValidationRows]:
    """What is left to train on, and the validation rows. Rare labels stay in training."""
    # By the known labels: what Y says outside the mask must not even decide which rows these are.
    known = Y if observed is None else sp.csr_matrix(Y.multiply(observed))
    train, chosen = split_rows(known, fraction, random_state)
    if len(chosen) == 0:
        raise InvalidInputError(
            f"validation_fraction={fraction} of {X.shape[0]} rows holds no row out (every row is needed to keep its "
            "labels in training); raise it or switch early_stopping off."
        )
    mask = None if observed is None else observed[chosen]
    if mask is not None and mask.nnz == 0:
        raise InvalidInputError("none of the validation rows has a known label; switch early_stopping off.")
    features = feature_matrix(X[chosen], n_threads=n_threads)
    rows = ValidationRows(features, Y[chosen], mask, n_threads=n_threads)
    return X[train], Y[train], None if observed is None else observed[train], rows
