"""Divide and conquer over labels (Algorithm 1 of REML): parts alone, their low ranks in the first one's space."""

from __future__ import annotations

import numpy as np

from tagwise.kernels import CSRWithTranspose, dense_matmul, gram
from tagwise.models.leml.steps import Factors
from tagwise.objectives.squared import weighed
from tagwise.parallel import single_threaded_blas

__all__ = ["project_onto_first", "random_parts"]


def random_parts(labels: np.ndarray, partitions: int, rng: np.random.Generator) -> list[np.ndarray]:
    """These labels in ``partitions`` random parts of about equal size; ids rise within a part."""
    return [np.sort(part) for part in np.array_split(rng.permutation(labels), partitions)]


def project_onto_first(
    X: CSRWithTranspose,
    parts: list[tuple[np.ndarray, Factors]],
    intercept: np.ndarray,
    row_weight: np.ndarray | None = None,
) -> Factors:
    """The scores XW_iH_iᵀ of all parts, projected onto the column space of XW_1: factors of one rank for all labels.

    ``parts`` are the labels and factors of each.
    With A = XW_1, part i becomes A·(AᵀA)⁺AᵀXW_i·H_iᵀ, whose label factors are H_i((AᵀA)⁺AᵀXW_i)ᵀ. Labels that are in
    no part have factors 0 and the intercepts given (L). Where rows have weights V, Aᵀ is AᵀV. Time O(nnz(X)k + nk²)
    per part.
    """
    threads, W = X.n_threads, parts[0][1].W
    A = X.matmul(W)
    with single_threaded_blas():
        weighted = A if row_weight is None else weighed(A.copy(), row_weight)
        inverse = np.linalg.pinv(gram(A, weighted, n_threads=threads), hermitian=True)
    b = intercept.astype(np.float64)
    H = np.zeros((len(b), A.shape[1]), dtype=A.dtype)
    for place, (labels, part) in enumerate(parts):
        b[labels], H_part = part.b, part.H
        if place:
            onto = inverse @ gram(weighted, X.matmul(part.W), n_threads=threads)
            H_part = dense_matmul(part.H, np.ascontiguousarray(onto.T, dtype=A.dtype), n_threads=threads)
        H[labels] = H_part
    return Factors(W, H, b)
