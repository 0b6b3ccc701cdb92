"""k-means of rows on the unit sphere: clusters of rows that point the same way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import matmul_in_order
from tagwise.kernels.products import as_dense
from tagwise.validation import Features

__all__ = ["Clusters", "nearest_center", "spherical_k_means"]


@dataclass(frozen=True)
class Clusters:
    """The cluster of each row (n), the centers (c×d, float64) and the mean cosine to them."""

    assignment: np.ndarray
    centers: np.ndarray
    mean_cosine: float


def spherical_k_means(
    rows: Features,
    n_clusters: int,
    *,
    rng: np.random.Generator,
    max_iter: int,
    weights: np.ndarray | None = None,
    n_threads: int = 1,
) -> Clusters:
    r"""Maximise Σ_i w_i x_i·c_{a(i)} over assignments a and centers c of unit length, by Lloyd's rounds.

    Begins with distinct random rows for centers. A cluster that loses all its rows restarts at the row that fits its
    own center worst. Ends when no row moves, or after ``max_iter`` rounds.

    Rows (n×d) have unit length; rows of zeros go to the first cluster. There are at most n clusters. ``weights`` (n)
    say how much a row counts in its center, 1 by default; they neither move rows between centers nor choose the row
    that an empty cluster restarts at.

    Notes
    -----
    Time O(nnz(X)·c) per round, memory O((n + d)·c).
    """
    n_rows = rows.shape[0]
    chosen = rng.choice(n_rows, size=n_clusters, replace=False)
    centers = as_dense(rows[chosen]).astype(np.float64)
    assignment = np.full(n_rows, -1, dtype=np.int64)
    cosines = np.zeros(n_rows)
    pull = np.ones(n_rows) if weights is None else weights
    for _ in range(max_iter):
        moved, cosines = nearest_center(rows, centers, n_threads=n_threads)
        _fill_empty(moved, cosines, n_clusters)
        if (moved == assignment).all():
            break
        assignment = moved
        members = sp.csr_matrix((pull, (assignment, np.arange(n_rows))), shape=(n_clusters, n_rows))
        sums = as_dense(members @ rows).astype(np.float64, copy=False)
        lengths = np.sqrt(np.einsum("ij,ij->i", sums, sums))
        centers = sums / np.where(lengths > 0, lengths, 1)[:, None]
    return Clusters(assignment, centers, float(cosines.mean()))


def nearest_center(rows: Features, centers: np.ndarray, *, n_threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The center with the largest inner product of each row (the lower id on ties), and that product."""
    # In a fixed order of sums: of equal centers the first wins, for a row alone and among others.
    cosines = matmul_in_order(rows, centers.T, n_threads=n_threads)
    nearest = np.argmax(cosines, axis=1)
    return nearest, cosines[np.arange(len(nearest)), nearest]


def _fill_empty(assignment: np.ndarray, cosines: np.ndarray, n_clusters: int) -> None:
    sizes = np.bincount(assignment, minlength=n_clusters)
    empty = np.flatnonzero(sizes == 0)
    worst_first = iter(np.argsort(cosines, kind="stable"))
    for cluster in empty:
        # A cluster of one row would be left empty in turn.
        row = next(row for row in worst_first if sizes[assignment[row]] > 1)
        sizes[assignment[row]] -= 1
        assignment[row] = cluster
