"""SLEEC's part for one cluster of rows: an embedding that keeps near label vectors near, and a linear map to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import matmul_in_order
from tagwise.kernels.neighbours import inverted_index, nearest_sparse_rows
from tagwise.models.factor_model import unit_rows
from tagwise.randomness import generator_words, set_generator
from tagwise.solvers.admm import SparseFitRidge
from tagwise.solvers.singular_value_projection import SVPResult, singular_value_projection

if TYPE_CHECKING:
    from tagwise.persistence.checkpoints import SavedState

__all__ = ["Learners", "LocalEmbedding", "learn_embedding", "near_label_products", "placed_rows"]

# Beyond these the regression goes by conjugate gradients: in ADMM a factorisation for 5,600 rows or features, for one
# ridge regression for 2,000.
_FACTOR_BYTES = 2.0**29
_LARGEST_FACTOR = 2000
_REGRESSION_STEPS = 200


@dataclass(frozen=True)
class LocalEmbedding:
    """What a cluster has learnt.

    Attributes
    ----------
    members : int array (m,)
        Its rows.
    embedding : array (m, r)
        XV of these rows, scaled to unit length (:func:`placed_rows`); r is the rank asked for, or m if that is less.
    features : int array (f,)
        The features that the rows have.
    regressors : array (f, r)
        V for these features; for all others it is 0.
    projection : SVPResult
        How the singular value projection ended.
    regressed : bool
        Whether the regression converged.
    """

    members: np.ndarray
    embedding: np.ndarray
    features: np.ndarray
    regressors: np.ndarray
    projection: SVPResult
    regressed: bool


@dataclass
class Learners:
    """The learners that are ready: a state to go on from.

    Attributes
    ----------
    centres : list of arrays (clusters, d)
        One array a learner.
    clusters : list of LocalEmbedding
        Those of all learners, one after the other.
    rng : Generator
        As the next learner finds it.
    """

    centres: list[np.ndarray]
    clusters: list[LocalEmbedding]
    rng: np.random.Generator

    def arrays(self) -> dict[str, Any]:
        """Centres, embeddings and regressors; the factors Z, which nobody needs any more, are left out."""
        names = ("members", "embedding", "features", "regressors")
        parts = {f"{i}.{name}": getattr(part, name) for i, part in enumerate(self.clusters) for name in names}
        return {"generator": generator_words(self.rng), "centres": np.concatenate(self.centres), **parts}

    def values(self) -> dict[str, Any]:
        """How each cluster ended."""
        ended = [(part.projection.status == "converged", part.regressed) for part in self.clusters]
        return {"learners": len(self.centres), "converged": [list(flags) for flags in ended]}

    def go_on(self, saved: SavedState, n_learners: int, n_clusters: int, X: sp.csr_matrix | np.ndarray) -> Learners:
        """The learners as they were saved, and the generator in the state of then."""
        done = saved.count("learners", 1, n_learners)
        centres = saved.dense("centres", (done * n_clusters, X.shape[1]), np.float64)
        ended = saved.values()["converged"]
        clusters = []
        for i in range(done * n_clusters):
            members, features = (saved.dense(f"{i}.{name}", (None,), np.int64) for name in ("members", "features"))
            regressors = saved.dense(f"{i}.regressors", (len(features), None), X.dtype)
            embedding = saved.dense(f"{i}.embedding", (len(members), regressors.shape[1]), X.dtype)
            projected, regressed = ended[i]
            projection = SVPResult(np.empty((0, 0)), 0.0, "converged" if projected else "max_iter", 0)
            clusters.append(LocalEmbedding(members, embedding, features, regressors, projection, bool(regressed)))
        set_generator(self.rng, saved.dense("generator", (6,), np.uint64))
        return Learners(np.split(centres, done), clusters, self.rng)


def learn_embedding(
    rows: sp.csr_matrix | np.ndarray,
    Y: sp.csr_matrix,
    members: np.ndarray,
    *,
    rank: int,
    label_neighbors: int,
    reg: float,
    sparsity: float,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    n_threads: int = 1,
) -> LocalEmbedding:
    """Learn from the rows ``members`` of X (n, d) and Y (n, L); see :class:`tagwise.baselines.SLEEC` for the rest."""
    own = rows[members]
    known = near_label_products(Y[members], label_neighbors, n_threads=n_threads)
    projection = singular_value_projection(known, rank, rng=rng, tol=tol, max_iter=max_iter, n_threads=n_threads)
    features = _features_of(own)
    own = own[:, features]
    # In float64 throughout: a dense product has the type of the rows.
    own = np.ascontiguousarray(own, dtype=np.float64) if isinstance(own, np.ndarray) else sp.csr_matrix(own)
    Z = projection.factor
    cross = np.ascontiguousarray(own.T @ Z, dtype=np.float64)
    side = min(own.shape)
    # One ridge solution needs no eigenvectors, which ADMM's many steps reuse.
    method = "auto" if sparsity > 0 else "cholesky" if side <= _LARGEST_FACTOR else "cg"
    problem = SparseFitRidge(own, reg, sparsity, method=method, memory_limit=_FACTOR_BYTES, n_threads=n_threads)
    solved = problem.solve(cross, np.einsum("ij,ij->j", Z, Z), max_iter=_REGRESSION_STEPS)
    V = solved.solution.astype(rows.dtype)
    return LocalEmbedding(
        members=members,
        embedding=placed_rows(own, V, n_threads=n_threads),
        features=features,
        regressors=V,
        projection=projection,
        regressed=solved.status == "converged",
    )


def near_label_products(Y: sp.csr_matrix, k: int, *, n_threads: int = 1) -> sp.csr_matrix:
    """Cosines of label rows (n, n) on Ω: pairs of which one is among the k nearest of the other; float64, symmetric.

    A row is its own nearest (unless it is empty). Zeros among the k nearest are stored.
    """
    rows = unit_rows(Y.astype(np.float64))
    k = min(k, rows.shape[0])
    ids, cosines = nearest_sparse_rows(rows, inverted_index(rows), k, n_threads=n_threads)
    # Above every cosine, so that a stored 0 outlives the union with pairs that are not stored.
    pairs = (cosines.ravel() + 2, ids.ravel(), np.arange(0, ids.size + 1, k))
    chosen = sp.csr_matrix(pairs, shape=(rows.shape[0], rows.shape[0]))
    both = sp.csr_matrix(chosen.maximum(sp.csr_matrix(chosen.T)))
    both.data -= 2
    both.sort_indices()
    return both


def placed_rows(rows: sp.csr_matrix | np.ndarray, regressors: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """XV of rows (m, f), scaled to unit length, in the type of V (f, r).

    Made in float64 and in a fixed order, then rounded once: equal rows have one place, at fit and at prediction.
    """
    placed = unit_rows(matmul_in_order(rows, regressors, n_threads=n_threads), n_threads=n_threads)
    return np.asarray(placed, dtype=regressors.dtype)


def _features_of(rows: sp.csr_matrix | np.ndarray) -> np.ndarray:
    """The features that any of the rows has; the first one where none has any."""
    present = (
        (rows != 0).any(axis=0) if isinstance(rows, np.ndarray) else np.bincount(rows.indices, minlength=rows.shape[1])
    )
    found = np.flatnonzero(present)
    return found if len(found) else np.zeros(1, dtype=np.int64)
