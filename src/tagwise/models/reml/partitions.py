"""Divide and conquer over labels (Algorithm 1 of REML): parts alone, their low ranks in the first one's space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tagwise.fields import Fields, value
from tagwise.kernels import CSRWithTranspose, dense_matmul, gram
from tagwise.models.leml.steps import FACTORS, Factors
from tagwise.objectives.squared import weighed
from tagwise.parallel import single_threaded_blas
from tagwise.validation import check_flag, check_real

__all__ = ["Part", "project_onto_first", "random_parts"]


@dataclass(frozen=True)
class Part:
    """The low rank of some labels alone: W (d, k), H (m, k), b (m), and how its rounds ended."""

    labels: np.ndarray
    factors: Factors
    objective: float
    converged: bool
    fall: float

    def kept(self) -> dict[str, Any]:
        """The part as a checkpoint holds it; its labels follow from the seed."""
        factors = self.factors
        ended = {"objective": self.objective, "converged": self.converged, "fall": self.fall}
        return {"W": factors.W, "H": factors.H, "b": factors.b, **ended}


PART = FACTORS | Fields(
    objective=value(check_real, "Equation 5 at its end."),
    converged=value(check_flag, "Whether its rounds met the stopping rule."),
    fall=value(check_real, "Share of the first round's fall in the last one's."),
)
"""A part in a checkpoint."""


def random_parts(labels: np.ndarray, partitions: int, rng: np.random.Generator) -> list[np.ndarray]:
    """These labels in ``partitions`` random parts of about equal size; ids rise within a part."""
    return [np.sort(part) for part in np.array_split(rng.permutation(labels), partitions)]


def project_onto_first(
    X: CSRWithTranspose, parts: list[Part], intercept: np.ndarray, row_weight: np.ndarray | None = None
) -> Factors:
    """The scores XW_iH_iᵀ of all parts, projected onto the column space of XW_1: factors of one rank for all labels.

    With A = XW_1, part i becomes A·(AᵀA)⁺AᵀXW_i·H_iᵀ, whose label factors are H_i((AᵀA)⁺AᵀXW_i)ᵀ. Labels that are in
    no part have factors 0 and the intercepts given (L). Where rows have weights V, Aᵀ is AᵀV. Time O(nnz(X)k + nk²)
    per part.
    """
    threads = X.n_threads
    A = X.matmul(parts[0].factors.W)
    with single_threaded_blas():
        weighted = A if row_weight is None else weighed(A.copy(), row_weight)
        inverse = np.linalg.pinv(gram(A, weighted, n_threads=threads), hermitian=True)
    b = intercept.astype(np.float64)
    H = np.zeros((len(b), A.shape[1]), dtype=A.dtype)
    for place, part in enumerate(parts):
        b[part.labels] = part.factors.b
        if place == 0:
            H[part.labels] = part.factors.H
            continue
        onto = inverse @ gram(weighted, X.matmul(part.factors.W), n_threads=threads)
        H[part.labels] = dense_matmul(part.factors.H, np.ascontiguousarray(onto.T, dtype=A.dtype), n_threads=threads)
    return Factors(parts[0].factors.W, H, b)
