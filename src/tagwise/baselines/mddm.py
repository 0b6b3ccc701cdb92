"""MDDM: a projection that depends most on the labels, then ML-kNN (Zhang & Zhou, ACM TKDD 4(3), 2010)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.baselines.linear_map import LARGEST_DIRECT, LinearMap
from tagwise.baselines.ml_knn import MLKNN
from tagwise.baselines.neighbor_votes import SearchableRows
from tagwise.exceptions import InvalidInputError
from tagwise.fields import Fields, dense
from tagwise.kernels import csr_matmul, dense_matmul, feature_matrix, matmul_in_order
from tagwise.parallel import even_chunks, thread_count
from tagwise.parameters import Count, Positive, Seed, parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.validation import Features, check_real, require_memory

__all__ = ["MDDM", "completed", "dependence_projection", "projection_memory"]

# Labels whose n×B and d×B arrays are held at a time, and how many such arrays there are at most.
_BATCH = 128
_BATCH_ARRAYS = 6
# Eigenvalues below this share of the largest are rounding.
_NEGLIGIBLE = 1e-10


def projection_memory(X: Features, n_labels: int) -> int:
    """The most bytes that :func:`dependence_projection` takes at its peak, beside X and Y.

    d×L and three of L×L; the ridge regression's system, min(n, d)² twice, where that side is at most 4,000; a batch of
    labels; and the copies of X: by columns, or three of a dense one.
    """
    n_rows, n_features = X.shape
    side = min(n_rows, n_features)
    system = 2 * side**2 if side <= LARGEST_DIRECT else 0
    batch = _BATCH_ARRAYS * min(n_labels, _BATCH) * (n_rows + n_features)
    copies = 3 * X.size if isinstance(X, np.ndarray) else 4 * X.nnz
    return int(8 * (n_features * n_labels + 3 * n_labels**2 + system + batch + copies))


def dependence_projection(
    X: Features,
    Y: sp.csr_matrix,
    correlation: float,
    *,
    n_components: int | None = None,
    kept: float = 1.0,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Directions P (d×p) of positive dependence on the labels, strongest first, and their eigenvalues.

    They solve X_cᵀY_cY_cᵀX_c p = λ B p with B = μX_cᵀX_c + (1 − μ)I and PᵀBP = I. With M = X_cᵀY_c, all of them lie
    in the span of Z = B⁻¹M, so the L×L matrix MᵀZ = VΛVᵀ is decomposed instead, and P = ZVΛ^{-1/2}. For μ > 0, μZ are
    the coefficients of a ridge regression of Y on X with penalty (1 − μ)/μ. ``correlation`` is μ, in [0, 1).
    p is ``n_components``, or as many as hold ``kept`` of the sum of the eigenvalues.

    In float64. Time: a ridge regression with L targets and O(L³ + d·L·p); memory :func:`projection_memory`.
    """
    n_features, n_labels = X.shape[1], Y.shape[1]
    matrix = feature_matrix(X if sp.issparse(X) else X.astype(np.float64), n_threads=n_threads)
    ridge = LinearMap(X, (1 - correlation) / correlation, n_threads=n_threads) if correlation > 0 else None
    by_label = sp.csr_matrix(Y.T)
    spanning = np.empty((n_features, n_labels))
    inner = np.empty((n_labels, n_labels))
    for start, stop in even_chunks(n_labels, _BATCH):
        targets = np.ascontiguousarray(by_label[start:stop].toarray().T, dtype=np.float64)
        if ridge is None:
            columns = matrix.rmatmul(targets - targets.mean(axis=0))
        else:
            columns = ridge.fit(targets).coefficients / correlation
        spanning[:, start:stop] = columns
        projected = matrix.matmul(np.ascontiguousarray(columns))
        projected -= projected.mean(axis=0)
        inner[:, start:stop] = csr_matmul(by_label, projected, n_threads=n_threads)
    del ridge, matrix
    inner += inner.T
    inner *= 0.5
    # The transpose of a symmetric matrix in C order is the same matrix in the order that LAPACK overwrites.
    values, vectors = scipy.linalg.eigh(inner.T, overwrite_a=True, check_finite=False)
    del inner
    values = values[::-1]
    values = values[values > _NEGLIGIBLE * max(float(values[0]), 0.0)]
    if n_components is None:
        shares = np.cumsum(values) / max(float(values.sum()), np.finfo(np.float64).tiny)
        n_components = int(np.searchsorted(shares, kept)) + 1
    values = values[:n_components]
    turn = vectors[:, ::-1][:, : len(values)] / np.sqrt(values)
    del vectors
    return dense_matmul(spanning, turn, n_threads=n_threads), values


def completed(
    directions: np.ndarray,
    size: int,
    X: Features,
    correlation: float,
    rng: np.random.Generator,
    *,
    n_threads: int = 1,
) -> np.ndarray:
    r"""``directions`` P (d×p) and, behind them, random ones Q up to ``size`` in all, with [P Q]ᵀB[P Q] = I.

    B = μX_cᵀX_c + (1 − μ)I as in :func:`dependence_projection`. Q comes from a Gaussian G (d×q): what P explains is
    taken out, R = G − P PᵀBG, and Q = RC⁻ᵀ with the Cholesky factor C of RᵀBR. They are eigenvectors of eigenvalue 0
    only where all directions of positive dependence are in P. Time O(nnz(X)·q + d·size·q + q³); memory O((n + d)·size).
    """
    n_features, found = directions.shape
    extra = min(size, n_features) - found
    if extra <= 0:
        return directions
    matrix = feature_matrix(X if sp.issparse(X) else X.astype(np.float64), n_threads=n_threads)

    def constrained(columns: np.ndarray) -> np.ndarray:
        """B times the columns."""
        if correlation == 0:
            return columns
        projected = matrix.matmul(np.ascontiguousarray(columns))
        projected -= projected.mean(axis=0)
        return correlation * matrix.rmatmul(projected) + (1 - correlation) * columns

    rest = rng.standard_normal((n_features, extra))
    rest -= directions @ (directions.T @ constrained(rest))
    factor = np.linalg.cholesky(rest.T @ constrained(rest))
    return np.hstack([directions, scipy.linalg.solve_triangular(factor, rest.T, lower=True).T])


@parameters
class MDDM(MLKNN):
    r"""Features are projected to where they depend most on the labels; ML-kNN classifies there.

    The projection P (d×p) maximises the Hilbert-Schmidt independence criterion between projected features and labels,
    with linear kernels on both,

    .. math:: \max_P\; \operatorname{tr}\big(P^\top X_c^\top Y_c Y_c^\top X_c P\big) \quad\text{subject to}\quad
              P^\top\big(\mu X_c^\top X_c + (1-\mu) I\big) P = I ,

    X_c and Y_c being centered by columns (never formed). μ = 0 asks for orthonormal directions (the publication's
    MDDM_p), μ > 0 for uncorrelated features (MDDM_f). :func:`dependence_projection` finds P by a ridge regression of
    all labels and an L×L eigendecomposition; :class:`~tagwise.baselines.MLKNN` classifies the projected rows by
    Euclidean distance.

    Parameters
    ----------
    n_components : int or None
        p. None: as many as hold ``kept`` of the sum of the eigenvalues.
    kept : float in (0, 1]
        Used where ``n_components`` is None.
    correlation : float in [0, 1)
        μ.
    beyond : {"stop", "random"}
        Treatment of an ``n_components`` above the number of directions that depend on the labels, at most L.
        "stop" keeps those alone. "random" adds random directions under the same constraint (:func:`completed`), as an
        eigensolver does that returns arbitrary vectors for the eigenvalue 0: distances then follow the original
        features, too, and fewer labels are predicted (docs/baselines.md).
    n_neighbors : int
        k of ML-kNN.
    smoothing : float
        s > 0 of ML-kNN.
    normalize : bool
        Scale rows of X to unit length before they are projected.
    memory_limit : float
        Bytes for finding the projection (:func:`projection_memory`); a problem that needs more is refused.

    Attributes
    ----------
    objective_ : array (rounds,)
        One step: ML-kNN's mean log loss on the training rows.

    Notes
    -----
    For few labels: time O(L³), memory as :func:`projection_memory` counts it. Training and prediction compare dense
    rows, O(n²·p) and O(n·p) per row, with two copies of n×p. Rows are projected and compared in float64 and in a fixed
    order of sums, and rounded once to the type of X: equal rows have equal neighbors in any block.

    Deviations: X is centered in the constraint, too; p follows from ``kept`` instead of being tuned; B⁻¹M is found by
    ridge regression instead of a d×d eigenproblem, with the same result.
    """

    fields: ClassVar[Fields] = Fields(
        projection_=dense("d", "p", meaning="P."),
        eigenvalues_=dense(
            "p",
            meaning="How strongly each direction depends on the labels, descending; 0 for those of "
            '``beyond="random"``.',
        ),
        rows_=dense("n", "p", meaning="The projected training rows XP."),
    ) | MLKNN.fields.without("rows_")

    n_components: Count | None = None
    kept: Annotated[float, partial(check_real, minimum=0, maximum=1, open_minimum=True)] = 0.9
    correlation: Annotated[float, partial(check_real, minimum=0, maximum=1)] = 0.5
    memory_limit: Positive = 2**32
    beyond: Literal["stop", "random"] = "stop"
    random_state: Seed = 0

    def _check_parameters(self) -> None:
        if self.correlation == 1:
            raise InvalidInputError("correlation must be below 1: at 1 the directions are not determined; found 1.")

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        require_memory(
            projection_memory(X, Y.shape[1]),
            self.memory_limit,
            f"MDDM, with dense matrices of {X.shape[1]:,} features × {Y.shape[1]:,} labels and labels × labels,",
            "use MLKNN, which needs neither, or raise memory_limit",
        )
        threads, rows = thread_count(self.n_jobs), self._prepared(X)
        directions, values = dependence_projection(
            rows, Y, self.correlation, n_components=self.n_components, kept=self.kept, n_threads=threads
        )
        if len(values) == 0:
            # Nothing depends on the labels (there are none, or features never vary): all rows are equally near.
            directions, values = np.zeros((X.shape[1], 1)), np.zeros(1)
        elif self.beyond == "random" and self.n_components is not None:
            rng = random_generator(self.random_state)
            directions = completed(directions, self.n_components, rows, self.correlation, rng, n_threads=threads)
            values = np.append(values, np.zeros(directions.shape[1] - len(values)))
        self.projection_ = np.ascontiguousarray(directions, dtype=X.dtype)
        self.eigenvalues_ = values.astype(X.dtype)
        super()._fit(problem, progress)

    def _compared(self, X: Features) -> np.ndarray:
        projected = matmul_in_order(self._prepared(X), self.projection_, n_threads=thread_count(self.n_jobs))
        return projected.astype(self.projection_.dtype, copy=False)

    def _search(self) -> SearchableRows:
        return SearchableRows(self.rows_, by_cosine=False)

    def _fields(self) -> Fields:
        return self.fields

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if not self.projection_.shape[1]:
            raise ValueError("projection_ must have a direction")
