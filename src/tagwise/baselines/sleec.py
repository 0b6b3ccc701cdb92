"""SLEEC: local embeddings that keep near labels near, and neighbours in them (Bhatia, Jain, Kar, Varma, Jain 2015)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.answers import finite_scores
from tagwise.baselines.neighbor_votes import OFF, Power, centered_votes, sum_neighbor_labels, vote_weights
from tagwise.baselines.sparse_score_model import SparseScoreModel
from tagwise.exceptions import ConvergenceWarning, warn
from tagwise.fields import Fields, csr, dense, value
from tagwise.kernels import matmul_in_order, unit_rows
from tagwise.kernels.neighbors import inverted_index, nearest_dense_rows, nearest_sparse_rows
from tagwise.parallel import run_chunks, thread_count
from tagwise.parameters import Count, NonNegative, Positive, Seed, parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.solvers.admm import L1FitRidge
from tagwise.solvers.singular_value_projection import singular_value_projection
from tagwise.solvers.spherical_k_means import nearest_center, spherical_k_means
from tagwise.validation import Features, check_flag, check_real

__all__ = ["SLEEC", "near_label_products"]

_ROWS_PER_CLUSTER = 4000
_K_MEANS_ROUNDS = 20
# Above these sizes the regression uses conjugate gradients: bytes of ADMM's factorization (5,600 rows or features), and
# the side of the system of one ridge regression.
_FACTOR_BYTES = 2.0**29
_LARGEST_FACTOR = 2000
_REGRESSION_STEPS = 200


def _generator(state: Any, name: str) -> np.random.Generator:
    """The generator with this state, which numpy checks."""
    rng = np.random.default_rng(0)
    rng.bit_generator.state = state
    return rng


_CLUSTER = Fields(
    members=dense("m", numbers="count", meaning="Rows."),
    embedding=dense("m", "r", meaning="Their embeddings."),
    features=dense("f", numbers="count", meaning="Features."),
    regressors=dense("f", "r", meaning="V."),
    error=value(check_real, "The relative error of singular value projection."),
    projected=value(check_flag, "Whether projection converged."),
    regressed=value(check_flag, "Whether regression converged."),
)
_LEARNERS = Fields(
    centers=dense("clusters", "d", numbers="float64", meaning="Centers of the clusters of all learners so far."),
    rng=value(_generator, "The state of the random generator."),
)
"""A cluster (r is the rank asked for, or m if that is less), and the learners so far beside their ``clusters``."""


@parameters
class SLEEC(SparseScoreModel):
    r"""Votes of nearest neighbors in local embeddings that keep near label vectors near.

    Rows are clustered; each cluster learns an embedding of its label vectors, and a linear map from features to it. For
    a cluster with rows X (n×d) and label vectors y_i of unit length, with Ω the pairs of which one is among the k̄
    nearest of the other by ⟨y_i, y_j⟩, first

    .. math:: \min_{Z\in\mathbb R^{n\times r}} \sum_{(i,j)\in\Omega} \big(\langle y_i, y_j\rangle - z_i^\top z_j\big)^2

    by singular value projection of M = ZZᵀ, then

    .. math:: \min_V \|Z - XV\|_F^2 + \lambda\|V\|_F^2 + \mu\|XV\|_1

    by ADMM (for μ = 0 ridge regression). The training rows' embeddings are XV. A new row goes to the nearest center,
    and its score for a label is the share of its k nearest rows there, by cosine of the embeddings, that have the
    label, weighted by cosineᵖ, minus ½ (a share within 1e-12 of ½ is ½, and on). Several learners with random
    clusterings are averaged.

    Parameters
    ----------
    n_learners : int
        Clusterings that vote together.
    n_clusters : int or None
        Per learner, at most the number of rows. None: one for every 4,000 rows or part of them.
    rank : int
        r. A cluster of fewer rows uses as many; the model keeps no more than its largest cluster has rows.
    label_neighbors : int
        k̄, the row itself included.
    n_neighbors : int
        k at prediction; all rows of a cluster if there are fewer.
    similarity_power : float
        p, from 0, the plain vote, to 1,000.
    sparsity : float
        μ ≥ 0.
    max_iter : int
        At most this many steps of singular value projection per cluster.
    tol : float
        Converged when a step lowers the squared error on Ω by less than ``tol`` times its value at Z = 0.
    normalize : bool
        Scale rows of X to unit length, at fit and at prediction. Clustering goes by cosine in either case.
    n_jobs : int or None
        Threads, as in joblib; clusters are spread over them. The result is bit-identical for every number.

    Attributes
    ----------
    objective_ : array (rounds,)
        A step is a learner: the squared error on Ω over its value at Z = 0, mean over the learner's clusters weighted
        by rows; with ``cosine`` (mean to the centers) and ``largest_cluster`` (rows).

    Notes
    -----
    A callback that stops the fit leaves a model of the learners made so far. For a cluster of m rows: O(m²) to find Ω
    by inverted index, O(m·r·(k̄ + r)) per step of the projection, and the regression
    (:class:`tagwise.solvers.admm.L1FitRidge`). Memory per cluster under way (one per thread): a few copies of the
    at most 2m·k̄ pairs of Ω (16 bytes each), about ten arrays of m×r in float64, and the regression's factor, 32 MiB at
    most, with μ > 0 512 MiB. The model takes learners·(n + features of all clusters)·r numbers.

    Deviations: clusters are found by spherical k-means; label vectors have unit length in ⟨y_i, y_j⟩, so that rows with
    many labels do not dominate; Ω is symmetric; the projection adapts its step length, and its eigenvectors come from
    one block Rayleigh-Ritz step each; votes are weighted by similarity (p = 0 is the published vote); no L1 term by
    default.
    """

    fields: ClassVar[Fields] = Fields(
        centers_=dense(
            "clusters",
            "d",
            meaning="Of unit length; the clusters of a learner follow one another, as everywhere below.",
        ),
        members_=dense("members", numbers="int", meaning="The training rows of each cluster, one after the other."),
        embedding_=dense("members", "r", meaning="Their embeddings XV, scaled to unit length."),
        member_pointer_=dense("clusters+1", numbers="int", meaning="Where each cluster begins in both."),
        features_=dense("f", numbers="int", meaning="Features that the rows of each cluster have."),
        regressors_=dense("f", "r", meaning="V of each cluster for these features: for all others it is 0."),
        feature_pointer_=dense("clusters+1", numbers="int", meaning="Where each cluster begins in both."),
        labels_=csr("n", "L", numbers="ones", meaning="The training labels."),
    )
    base_score = OFF
    _iteration_name = "learner"

    n_learners: Count = 5
    n_clusters: Count | None = None
    rank: Count = 100
    label_neighbors: Count = 50
    n_neighbors: Count = 25
    similarity_power: Power = 6.0
    reg: Positive = 1.0
    sparsity: NonNegative = 0.0
    max_iter: Count = 100
    tol: NonNegative = 1e-3
    random_state: Seed = 0

    def _iterations(self) -> int:
        return self.n_learners

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        n_rows = X.shape[0]
        n_clusters = -(-n_rows // _ROWS_PER_CLUSTER) if self.n_clusters is None else min(self.n_clusters, n_rows)
        threads, rng = thread_count(self.n_jobs), random_generator(self.random_state)
        directions = unit_rows(X, n_threads=threads)
        rows = directions if self.normalize else X
        centers, clusters = np.empty((0, X.shape[1])), list[dict[str, Any]]()
        kept = progress.resume(_LEARNERS, X.dtype, d=X.shape[1])
        if kept is not None:
            centers, rng = kept["centers"], _generator(kept["rng"], "rng")
            clusters = [progress.resume(_CLUSTER, X.dtype, cluster) or {} for cluster in progress.kept["clusters"]]
            if len(clusters) != len(centers) or len(clusters) != len(progress.history) * n_clusters:
                raise ValueError(f"{len(clusters)} clusters and {len(centers)} centers of {n_clusters} per learner")
        for _ in range(len(progress.history), self.n_learners):
            found = spherical_k_means(directions, n_clusters, rng=rng, max_iter=_K_MEANS_ROUNDS, n_threads=threads)
            seeds = rng.integers(2**32, size=n_clusters)
            groups = [np.flatnonzero(found.assignment == cluster) for cluster in range(n_clusters)]

            tasks = list(zip(groups, seeds.tolist()))

            def learn(cluster: int, _: int, tasks: list[tuple[np.ndarray, int]] = tasks) -> dict[str, Any]:
                return self._learn_cluster(rows, Y, *tasks[cluster])

            learnt = run_chunks(learn, [(cluster, cluster + 1) for cluster in range(n_clusters)], threads)
            centers = np.concatenate([centers, found.centers])
            clusters = [*clusters, *learnt]
            sizes = np.array([len(group) for group in groups])
            error = float(sizes @ [cluster["error"] for cluster in learnt]) / n_rows
            progress.keep(centers=centers, rng=rng.bit_generator.state, clusters=clusters)
            if progress.step(error, cosine=found.mean_cosine, largest_cluster=int(sizes.max())):
                break
        if not progress.stopped:
            self._warn_of(clusters)
        self.labels_, self.centers_ = Y, centers.astype(X.dtype)
        rank = max(cluster["regressors"].shape[1] for cluster in clusters)

        def joined(name: str) -> np.ndarray:
            parts = [cluster[name] for cluster in clusters]
            if parts[0].ndim == 2:  # clusters of few rows have a smaller rank
                parts = [np.pad(part, ((0, 0), (0, rank - part.shape[1]))) for part in parts]
            return np.concatenate(parts)

        self.members_, self.embedding_ = joined("members"), joined("embedding")
        self.features_, self.regressors_ = joined("features"), joined("regressors")
        self.member_pointer_, self.feature_pointer_ = (
            np.cumsum([0] + [len(cluster[name]) for cluster in clusters]) for name in ("members", "features")
        )

    def _learn_cluster(self, rows: Features, Y: sp.csr_matrix, members: np.ndarray, seed: int) -> dict[str, Any]:
        """Embed the label vectors of some rows, then regress the embedding on their features."""
        threads = thread_count(self.n_jobs)
        own = rows[members]
        rng = np.random.default_rng(seed)
        known = near_label_products(Y[members], self.label_neighbors, n_threads=threads)
        projection = singular_value_projection(
            known, self.rank, rng=rng, tol=self.tol, max_iter=self.max_iter, n_threads=threads
        )
        has = (
            (own != 0).any(axis=0) if isinstance(own, np.ndarray) else np.bincount(own.indices, minlength=own.shape[1])
        )
        features = np.flatnonzero(has) if np.any(has) else np.zeros(1, dtype=np.int64)
        own = own[:, features]
        # In float64 throughout: a dense product has the type of the rows.
        own = np.ascontiguousarray(own, dtype=np.float64) if isinstance(own, np.ndarray) else sp.csr_matrix(own)
        Z = projection.factor
        cross = np.ascontiguousarray(own.T @ Z, dtype=np.float64)
        # One ridge solution needs no eigenvectors, which ADMM's many steps reuse.
        method = "auto" if self.sparsity > 0 else "cholesky" if min(own.shape) <= _LARGEST_FACTOR else "cg"
        problem = L1FitRidge(own, self.reg, self.sparsity, method=method, memory_limit=_FACTOR_BYTES, n_threads=threads)
        solved = problem.solve(cross, np.einsum("ij,ij->j", Z, Z), max_iter=_REGRESSION_STEPS)
        V = solved.solution.astype(rows.dtype)
        embedding = _embedded(own, V, n_threads=threads)
        return {
            "members": members,
            "embedding": embedding,
            "features": features,
            "regressors": V,
            "error": projection.relative_value,
            "projected": projection.status == "converged",
            "regressed": bool(solved.converged.all()),
        }

    def _warn_of(self, clusters: list[dict[str, Any]]) -> None:
        unprojected, unregressed = (
            sum(not cluster[name] for cluster in clusters) for name in ("projected", "regressed")
        )
        if unprojected:
            warn(
                f"SLEEC: in {unprojected} of {len(clusters)} clusters singular value projection stopped after "
                f"max_iter={self.max_iter} steps before tol={self.tol:g} was met; raise max_iter or tol.",
                ConvergenceWarning,
            )
        if unregressed:
            warn(
                f"SLEEC: in {unregressed} of {len(clusters)} clusters the regression onto the embedding did not "
                f"converge; raise reg or lower sparsity.",
                ConvergenceWarning,
            )

    def _sparse_scores(self, X: Features) -> sp.csr_matrix:
        threads = thread_count(self.n_jobs)
        directions = unit_rows(X, n_threads=threads)
        rows = directions if self.normalize else X
        n_learners = len(self.members_) // self.labels_.shape[0]
        per_learner = len(self.centers_) // n_learners
        most = min(self.n_neighbors, int(np.diff(self.member_pointer_).max()))
        ids = np.zeros((rows.shape[0], n_learners, most), dtype=np.int64)
        weights = np.zeros(ids.shape)
        for learner in range(n_learners):
            first = learner * per_learner
            centers = self.centers_[first : first + per_learner].astype(np.float64)
            nearest, _ = nearest_center(directions, centers, n_threads=threads)
            for cluster in np.unique(nearest):
                asking = np.flatnonzero(nearest == cluster)
                found, cosines = self._neighbors(rows[asking], first + int(cluster), threads)
                count = found.shape[1]
                ids[asking, learner, :count] = found
                weights[asking, learner, :count] = vote_weights(cosines, self.similarity_power) / n_learners
        flat = (rows.shape[0], n_learners * most)
        # Unfilled entries vote for row 0 with weight 0, which changes no score.
        return centered_votes(sum_neighbor_labels(ids.reshape(flat), weights.reshape(flat), self.labels_, threads))

    def _neighbors(self, rows: Features, cluster: int, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
        """Training rows nearest in the embedding of a cluster, and their cosines."""
        of_features = slice(*self.feature_pointer_[cluster : cluster + 2])
        of_members = slice(*self.member_pointer_[cluster : cluster + 2])
        own = rows[:, self.features_[of_features]]
        queries = _embedded(own, self.regressors_[of_features], n_threads=n_threads)
        embedding = self.embedding_[of_members]
        k = min(self.n_neighbors, len(embedding))
        ids, cosines = nearest_dense_rows(queries, embedding, k, n_threads=n_threads)
        return self.members_[of_members][ids], finite_scores(cosines)

    def _check_fitted(self) -> None:
        n_rows, n_clusters, n_members = self.labels_.shape[0], len(self.centers_), len(self.members_)
        if not n_rows or not n_clusters or not self.embedding_.shape[1]:
            raise ValueError("labels_, centers_ and embedding_ must have a row, a cluster and a rank of at least 1")
        if n_members % n_rows or n_clusters % max(1, n_members // n_rows):
            raise ValueError(f"{n_members:,} members and {n_clusters:,} clusters of {n_rows:,} rows")
        _check_parts("members_", self.members_, n_rows, self.member_pointer_)
        _check_parts("features_", self.features_, self.n_features_in_, self.feature_pointer_)


def near_label_products(Y: sp.csr_matrix, k: int, *, n_threads: int = 1) -> sp.csr_matrix:
    """Cosines of label rows (n, n) on Ω: pairs of which one is among the k nearest of the other; float64, symmetric.

    A row is its own nearest (unless it is empty). Zeros among the k nearest are stored.
    """
    rows = unit_rows(Y.astype(np.float64))
    k = min(k, rows.shape[0])
    ids, cosines = nearest_sparse_rows(rows, inverted_index(rows), k, n_threads=n_threads)
    # Raised above 0, so that a stored 0 survives the union with pairs that are not stored.
    pairs = (cosines.ravel() + 2, ids.ravel(), np.arange(0, ids.size + 1, k))
    chosen = sp.csr_matrix(pairs, shape=(rows.shape[0], rows.shape[0]))
    both = sp.csr_matrix(chosen.maximum(sp.csr_matrix(chosen.T)))
    both.data -= 2
    both.sort_indices()
    return both


def _embedded(rows: Features, regressors: np.ndarray, *, n_threads: int = 1) -> np.ndarray:
    """XV of rows (m, f), scaled to unit length, in the type of V (f, r).

    Computed in float64 in a fixed order, then rounded once: equal rows have one embedding, at fit and at prediction.
    """
    products = finite_scores(matmul_in_order(rows, regressors, n_threads=n_threads))
    return np.asarray(unit_rows(products, n_threads=n_threads), dtype=regressors.dtype)


def _check_parts(name: str, ids: np.ndarray, limit: int, pointer: np.ndarray) -> None:
    if len(ids) == 0 or ids.min() < 0 or ids.max() >= limit:
        raise ValueError(f"{name} must be numbers from 0 to {limit - 1}")
    if (pointer[0], pointer[-1]) != (0, len(ids)) or (np.diff(pointer) < 1).any():
        raise ValueError(f"the pointer into {name} must rise from 0 to {len(ids)}")
