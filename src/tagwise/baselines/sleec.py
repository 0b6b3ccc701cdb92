"""SLEEC: local embeddings that keep near labels near, and neighbours in them (Bhatia, Jain, Kar, Varma, Jain 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.base import finite_scores
from tagwise.baselines.neighbor_votes import (
    MOST_POWER,
    OFF,
    centered_votes,
    check_label_rows,
    sum_neighbor_labels,
    vote_weights,
)
from tagwise.baselines.sparse_score_model import SparseScoreModel
from tagwise.exceptions import ConvergenceWarning, warn
from tagwise.kernels import matmul_in_order, unit_rows
from tagwise.kernels.neighbors import inverted_index, nearest_dense_rows, nearest_sparse_rows
from tagwise.parallel import run_chunks, thread_count
from tagwise.persistence.fit_state import State, array, each, flag, generator, real
from tagwise.persistence.loading import require_dense, require_finite_floats, require_sparse
from tagwise.progress import FitProgress
from tagwise.randomness import check_random_state, random_generator
from tagwise.solvers.admm import ADMMOptions, L1FitRidge
from tagwise.solvers.singular_value_projection import singular_value_projection
from tagwise.solvers.spherical_k_means import nearest_center, spherical_k_means
from tagwise.validation import Features, check_integer, check_real

__all__ = ["SLEEC", "near_label_products"]

_ROWS_PER_CLUSTER = 4000
_K_MEANS_ROUNDS = 20
# Above these sizes the regression uses conjugate gradients: bytes of ADMM's factorization (5,600 rows or features), and
# the side of the system of one ridge regression.
_FACTOR_BYTES = 2.0**29
_LARGEST_FACTOR = 2000
_REGRESSION_STEPS = 200


@dataclass(frozen=True)
class _Cluster(State):
    """A fitted cluster: its rows (m), their embeddings (m×r), their features (f) and V for these (f×r).

    r is the rank asked for, or m if that is less. ``error`` is the relative error of singular value projection;
    ``projected`` and ``regressed`` say whether projection and regression converged.
    """

    members: np.ndarray = array("m", dtype=np.int64)
    embedding: np.ndarray = array("m", "r")
    features: np.ndarray = array("f", dtype=np.int64)
    regressors: np.ndarray = array("f", "r")
    error: float = real()
    projected: bool = flag()
    regressed: bool = flag()


@dataclass
class _Learners(State):
    """The learners fitted so far: centers (clusters×d) and clusters of all of them in order, and the generator."""

    centers: np.ndarray = array(None, "d", dtype=np.float64)
    clusters: list[_Cluster] = each(_Cluster)
    rng: np.random.Generator = generator()

    def require_learners(self, n_learners: int, n_clusters: int) -> None:
        """Raise ValueError unless there are 1 to ``n_learners`` learners of ``n_clusters`` clusters."""
        found = len(self.clusters)
        if found != len(self.centers) or found % n_clusters or not n_clusters <= found <= n_learners * n_clusters:
            raise ValueError(f"{found} clusters and {len(self.centers)} centers for learners of {n_clusters} clusters")


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
        p, from 0, the plain vote, to 1,000.
        r. A cluster of fewer rows uses as many; the model keeps no more than its largest cluster has rows.
    label_neighbors : int
        k̄, the row itself included.
    n_neighbors : int
        k at prediction; all rows of a cluster if there are fewer.
    similarity_power : float
        p ≥ 0. 0 is the plain vote.
    reg : float
        λ > 0.
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
    random_state : int, Generator, RandomState or None
        Seeds the clusterings and the start of each projection.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    centers_ : array (learners·clusters, d)
        Of unit length; the clusters of a learner follow one another, as everywhere below.
    members_ : int array (learners·n,)
        The training rows of each cluster, one after the other.
    embedding_ : array (learners·n, r)
        Their embeddings XV, scaled to unit length.
    member_pointer_ : int array (learners·clusters + 1,)
        Where each cluster begins in both.
    features_, regressors_, feature_pointer_ : int array (f,), array (f, r), int array (learners·clusters + 1,)
        V of each cluster, only for the features that its rows have: for all others it is 0.
    labels_ : CSR (n, L)
        The training labels.
    objective_, history_, n_iter_
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
    default. The method has no notion of unknown labels: ``observed`` is refused.

    Examples
    --------
    >>> from tagwise.baselines import SLEEC
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> model = SLEEC(n_learners=1, rank=20).fit(data.X_train, data.Y_train)
    >>> labels, scores = model.predict_topk(data.X_test, k=3)
    >>> labels.shape == (data.X_test.shape[0], 3)
    True
    """

    _saved_arrays = (
        "centers_",
        "members_",
        "embedding_",
        "member_pointer_",
        "features_",
        "regressors_",
        "feature_pointer_",
        "labels_",
    )
    _iteration_name = "learner"

    def __init__(
        self,
        n_learners: int = 5,
        n_clusters: int | None = None,
        rank: int = 100,
        label_neighbors: int = 50,
        n_neighbors: int = 25,
        similarity_power: float = 6.0,
        reg: float = 1.0,
        sparsity: float = 0.0,
        max_iter: int = 100,
        tol: float = 1e-3,
        normalize: bool = True,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.n_learners = n_learners
        self.n_clusters = n_clusters
        self.rank = rank
        self.label_neighbors = label_neighbors
        self.n_neighbors = n_neighbors
        self.similarity_power = similarity_power
        self.reg = reg
        self.sparsity = sparsity
        self.max_iter = max_iter
        self.tol = tol
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        for name in ("n_learners", "rank", "label_neighbors", "n_neighbors", "max_iter"):
            check_integer(getattr(self, name), name, minimum=1)
        if self.n_clusters is not None:
            check_integer(self.n_clusters, "n_clusters", minimum=1)
        check_real(self.similarity_power, "similarity_power", minimum=0, maximum=MOST_POWER)
        check_real(self.reg, "reg", minimum=0, open_minimum=True)
        check_real(self.sparsity, "sparsity", minimum=0)
        check_real(self.tol, "tol", minimum=0)
        check_random_state(self.random_state)

    def _iterations(self) -> int:
        return self.n_learners

    def _fit(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress) -> None:
        n_rows = X.shape[0]
        n_clusters = -(-n_rows // _ROWS_PER_CLUSTER) if self.n_clusters is None else min(self.n_clusters, n_rows)
        threads, rng = thread_count(self.n_jobs), random_generator(self.random_state)
        directions = unit_rows(X, n_threads=threads)
        rows = directions if self.normalize else X
        complete = partial(_Learners.require_learners, n_learners=self.n_learners, n_clusters=n_clusters)
        learners = progress.resume(_Learners, check=complete, d=X.shape[1], dtype=X.dtype)
        learners = learners or _Learners(np.empty((0, X.shape[1])), [], rng)
        rng = learners.rng
        for _ in range(len(learners.clusters) // n_clusters, self.n_learners):
            found = spherical_k_means(directions, n_clusters, rng=rng, max_iter=_K_MEANS_ROUNDS, n_threads=threads)
            seeds = rng.integers(2**32, size=n_clusters)
            groups = [np.flatnonzero(found.assignment == cluster) for cluster in range(n_clusters)]

            def learn(cluster: int, _: int, groups: list[np.ndarray] = groups, seeds: np.ndarray = seeds) -> _Cluster:
                return self._learn_cluster(rows, Y, groups[cluster], int(seeds[cluster]))

            learnt = run_chunks(learn, [(cluster, cluster + 1) for cluster in range(n_clusters)], threads)
            learners.centers = np.concatenate([learners.centers, found.centers])
            learners.clusters.extend(learnt)
            sizes = np.array([len(group) for group in groups])
            error = float(sizes @ [cluster.error for cluster in learnt]) / n_rows
            if progress.step(error, state=learners, cosine=found.mean_cosine, largest_cluster=int(sizes.max())):
                break
        if not progress.stopped:
            self._warn_of(learners.clusters)
        self._keep(learners.centers, learners.clusters, Y, X.dtype)

    def _learn_cluster(self, rows: Features, Y: sp.csr_matrix, members: np.ndarray, seed: int) -> _Cluster:
        """Embed the label vectors of some rows, then regress the embedding on their features."""
        threads = thread_count(self.n_jobs)
        own = rows[members]
        rng = np.random.default_rng(seed)
        known = near_label_products(Y[members], self.label_neighbors, n_threads=threads)
        projection = singular_value_projection(
            known, self.rank, rng=rng, tol=self.tol, max_iter=self.max_iter, n_threads=threads
        )
        features = _features_of(own)
        own = own[:, features]
        # In float64 throughout: a dense product has the type of the rows.
        own = np.ascontiguousarray(own, dtype=np.float64) if isinstance(own, np.ndarray) else sp.csr_matrix(own)
        Z = projection.factor
        cross = np.ascontiguousarray(own.T @ Z, dtype=np.float64)
        # One ridge solution needs no eigenvectors, which ADMM's many steps reuse.
        method = "auto" if self.sparsity > 0 else "cholesky" if min(own.shape) <= _LARGEST_FACTOR else "cg"
        problem = L1FitRidge(own, self.reg, self.sparsity, method=method, memory_limit=_FACTOR_BYTES, n_threads=threads)
        solved = problem.solve(cross, np.einsum("ij,ij->j", Z, Z), options=ADMMOptions(max_iter=_REGRESSION_STEPS))
        V = solved.solution.astype(rows.dtype)
        embedding = _embedded(own, V, n_threads=threads)
        converged = (projection.status == "converged", solved.status == "converged")
        return _Cluster(members, embedding, features, V, projection.relative_value, *converged)

    def _warn_of(self, clusters: list[_Cluster]) -> None:
        unprojected = sum(not cluster.projected for cluster in clusters)
        unregressed = sum(not cluster.regressed for cluster in clusters)
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

    def _keep(self, centers: np.ndarray, clusters: list[_Cluster], Y: sp.csr_matrix, dtype: np.dtype[Any]) -> None:
        self.centers_ = centers.astype(dtype)
        self.members_ = np.concatenate([cluster.members for cluster in clusters])
        rank = max(cluster.regressors.shape[1] for cluster in clusters)

        def widened(matrix: np.ndarray) -> np.ndarray:  # clusters of few rows have a smaller rank
            return np.pad(matrix, ((0, 0), (0, rank - matrix.shape[1])))

        self.embedding_ = np.concatenate([widened(cluster.embedding) for cluster in clusters])
        self.member_pointer_ = np.cumsum([0] + [len(cluster.members) for cluster in clusters])
        self.features_ = np.concatenate([cluster.features for cluster in clusters])
        self.regressors_ = np.concatenate([widened(cluster.regressors) for cluster in clusters])
        self.feature_pointer_ = np.cumsum([0] + [len(cluster.features) for cluster in clusters])
        self.labels_ = Y

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

    def _base_scores(self) -> np.ndarray:
        return np.full(self.n_labels_, OFF, dtype=self.embedding_.dtype)

    def _check_restored(self) -> None:
        require_sparse(labels_=self.labels_)
        require_dense(2, centers_=self.centers_, embedding_=self.embedding_, regressors_=self.regressors_)
        require_dense(1, members_=self.members_, member_pointer_=self.member_pointer_)
        require_dense(1, features_=self.features_, feature_pointer_=self.feature_pointer_)
        n_rows, n_clusters = self.labels_.shape[0], len(self.centers_)
        check_label_rows(self.labels_, n_rows, self.n_labels_)
        if self.centers_.shape != (n_clusters, self.n_features_in_) or n_clusters < 1 or n_rows < 1:
            raise ValueError(f"centers_ of shape {self.centers_.shape} for {self.n_features_in_} features")
        if len(self.members_) % n_rows or n_clusters % max(1, len(self.members_) // n_rows):
            raise ValueError(f"{len(self.members_)} members and {n_clusters} clusters of {n_rows} rows")
        _check_parts("members_", self.members_, n_rows, self.member_pointer_, n_clusters)
        _check_parts("features_", self.features_, self.n_features_in_, self.feature_pointer_, n_clusters)
        if (len(self.members_), len(self.features_)) != (len(self.embedding_), len(self.regressors_)):
            raise ValueError("embedding_ and regressors_ must have a row for each of members_ and features_")
        if not self.embedding_.shape[1] == self.regressors_.shape[1] >= 1:
            raise ValueError("embedding_ and regressors_ must have one rank of at least 1")
        require_finite_floats(centers_=self.centers_, embedding_=self.embedding_, regressors_=self.regressors_)


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


def _features_of(rows: Features) -> np.ndarray:
    """The features that any of the rows has; the first one where none has any."""
    found = np.flatnonzero((rows != 0).any(axis=0)) if isinstance(rows, np.ndarray) else np.unique(rows.indices)
    return found.astype(np.int64) if len(found) else np.zeros(1, dtype=np.int64)


def _check_parts(name: str, ids: np.ndarray, limit: int, pointer: np.ndarray, n_clusters: int) -> None:
    if any(array.dtype.kind != "i" for array in (ids, pointer)):
        raise ValueError(f"{name} and its pointer must be integer arrays")
    if len(ids) == 0 or ids.min() < 0 or ids.max() >= limit:
        raise ValueError(f"{name} must be numbers from 0 to {limit - 1}")
    ends = (pointer[0], pointer[-1]) if len(pointer) == n_clusters + 1 else (-1, -1)
    if ends != (0, len(ids)) or (np.diff(pointer) < 1).any():
        raise ValueError(f"the pointer into {name} must rise from 0 to {len(ids)} in {n_clusters} parts")
