r"""X as a sum of one low-rank part per group of rows and a sparse rest (problem 3 of MSE), kept in factors throughout.

.. math:: \min_{L, S} \Bigl\lVert X - \sum_g L^g - S \Bigr\rVert_F^2 \quad\text{s.t.}\quad
    \operatorname{rank} L^g \le r_g,\; L^g = 0 \text{ outside the rows } \Omega_g \text{ of group } g,\;
    \operatorname{card} S \le K .

:class:`SubspaceParts` holds ΣL and S and has the two steps of the alternation, which :class:`tagwise.MSE` runs: improve
one L^g, find S.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import DenseFeatures, FeatureMatrix, csr_matmul, dense_matmul, gram
from tagwise.kernels.products import _SUMMED_ROWS as GRAM_ROWS
from tagwise.kernels.products import add_scaled_rows
from tagwise.parallel import single_threaded_blas
from tagwise.solvers.low_rank_plus_sparse import _BLOCK_RESIDUALS as BLOCK_RESIDUALS
from tagwise.solvers.low_rank_plus_sparse import largest_residuals
from tagwise.validation import Features, shape_text

__all__ = ["SubspaceParts", "decomposition_memory", "dictionary_memory", "project_bilaterally", "usable_ranks"]

# Bytes of an index of a sparse matrix; 4 would do for small ones.
_INDEX = 8
# Bytes of group borders, curvatures, and whatever else is small.
_REST = 2**20


def usable_ranks(groups: sp.csr_matrix, ranks: np.ndarray, n_features: int) -> np.ndarray:
    """The rank of each group's part (G,): as asked for, but at most its number of rows and of features."""
    return np.minimum(np.minimum(ranks, _group_sizes(groups)), n_features).astype(np.int64)


def _group_sizes(groups: sp.csr_matrix) -> np.ndarray:
    return np.bincount(groups.indices, minlength=groups.shape[1])


class SubspaceParts:
    """ΣL = ZV and S, and the two steps that lower ‖X − ZV − S‖².

    Row i of X (n×p) is in the groups that row i of ``groups`` (CSR, n×G) stores; ``ranks`` holds r_g ≥ 1, cut down by
    :func:`usable_ranks`. The result has the same bits for any number of threads.

    Attributes
    ----------
    Z : CSR (n, R)
        Coefficients, R = Σ r_g; row i has entries in the columns of its groups only, so that Z_g V_g is L^g.
    V : array (R, p)
        Orthonormal rows within each group; those of group g are starts[g] to starts[g + 1], none if it has no row.
    S : CSR (n, p)

    Notes
    -----
    The start is the paper's (6), L^g = D⁻¹X on Ω_g with D the number of groups of each row. It is not of low rank, so
    Theorem 1, by which the objective never rises, holds from the end of the first round on.

    Neither ΣL nor the residual is ever stored whole, and X is used in the form it has. Memory: a few times
    Σ|Ω_g|r_g + K numbers, R·p, one dense |Ω_g|×p for the current group (two with exact decompositions, plus Gram
    matrices of m below), and a block of residuals; :func:`decomposition_memory` counts the bytes. Time per round:
    O(Σ_g |Ω_g|·p·r_g) by projections; exact decompositions add O(|Ω_g|·p·m + m³), m = min(|Ω_g|, p); S takes O(n·p).
    """

    def __init__(self, X: Features, groups: sp.csr_matrix, ranks: np.ndarray, *, n_threads: int = 1) -> None:
        self.X, self.n_threads = X, n_threads
        self.ranks = ranks = usable_ranks(groups, ranks, X.shape[1])
        self.sizes = _group_sizes(groups)
        self.starts = np.concatenate([[0], np.cumsum(ranks)]).astype(np.int64)
        n_rows, n_features = X.shape
        widths = ranks[groups.indices]
        # Where in Z.data the coefficients of each pair of a row and a group begin.
        self._offsets = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        columns = np.arange(self._offsets[-1])
        columns -= np.repeat(self._offsets[:-1] - self.starts[groups.indices], widths)
        self.Z = sp.csr_matrix(
            (np.zeros(len(columns), dtype=X.dtype), columns, self._offsets[groups.indptr]),
            shape=(n_rows, int(self.starts[-1])),
        )
        pairs = sp.csr_matrix((np.arange(groups.nnz), groups.indices, groups.indptr), shape=groups.shape).tocsc()
        self._rows, self._pairs, self._borders = pairs.indices, pairs.data, pairs.indptr
        self.V = np.zeros((int(self.starts[-1]), n_features), dtype=X.dtype)
        self.S = sp.csr_matrix(X.shape, dtype=X.dtype)
        self._visited = np.zeros(groups.shape[1], dtype=bool)
        n_groups = np.diff(groups.indptr)
        self._share = np.where(n_groups > 0, 1 / np.maximum(n_groups, 1), 0)
        # The share of a row that the start assigns to groups not yet visited in the first round.
        self._reserved = n_groups * self._share

    def improve(self, number: int, rng: np.random.Generator | None) -> None:
        """Replace L^g by a low-rank approximation of N = X − Σ_{l≠g} L^l − S on Ω_g.

        Without ``rng`` the best one, by the eigenvectors of N's smaller Gram matrix. With it, one bilateral random
        projection: from a Gaussian matrix in the first round, and from the group's last subspace later. The paper
        draws anew every time, by which the objective may rise; from the last subspace it cannot.
        """
        at = slice(self._borders[number], self._borders[number + 1])
        rows, first, rank = self._rows[at], self.starts[number], int(self.ranks[number])
        group = slice(first, first + rank)
        entries = self._offsets[self._pairs[at]][:, None] + np.arange(rank)
        self.Z.data[entries] = 0
        visited = self._visited[number]
        if not visited:
            self._reserved[rows] -= self._share[rows]
        N = self._remainder(rows)
        if rng is None:
            coefficients, subspace = _best_projection(N, rank, self.n_threads)
        else:
            start = self.V[group].T if visited else rng.standard_normal((N.shape[1], rank)).astype(N.dtype)
            coefficients, subspace = project_bilaterally(DenseFeatures(N, n_threads=self.n_threads), start)
        self._visited[number] = True
        self.V[group] = subspace.T
        self.Z.data[entries] = coefficients

    def find_outliers(self, n_outliers: int) -> float:
        """Replace S by the K largest entries of X − ΣL, with their signs; returns ‖X − ΣL − S‖²."""
        self.S, objective = largest_residuals(self.X, self.Z, self.V.T, n_outliers)
        return objective

    def canonical(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Each part's singular vectors, strongest first, without those of strength 0; strengths; borders.

        A strength counts as 0 if it is within the rounding of the group's own coefficients Z_g = NV_g (m×r). Each of
        these is off by about eps times the length of its row, so the error has a spectral norm of about eps·‖N‖_F, and
        ‖NV_g‖_F is at most √r times the largest singular value.
        """
        by_group = self.Z.tocsc()
        bases, strengths, kept_sizes = [], [], np.zeros(len(self.ranks), dtype=np.int64)
        dtype = self.V.dtype
        for number in np.flatnonzero(self.ranks):
            group = slice(self.starts[number], self.starts[number + 1])
            rows = int(self.sizes[number])
            # Every row of the group stores all of its coefficients, so the columns have equal length.
            stored = slice(by_group.indptr[group.start], by_group.indptr[group.stop])
            coefficients = by_group.data[stored].reshape(-1, rows).T.astype(np.float64)
            left, values, rotation = np.linalg.svd(coefficients, full_matrices=False)
            sums = left.sum(axis=0) * values
            kept = values > values[0] * 10 * np.sqrt(len(values)) * np.finfo(dtype).eps
            signs = np.where(sums < 0, -1.0, 1.0)
            bases.append((signs[:, None] * (rotation @ self.V[group]))[kept].astype(dtype, copy=False))
            strengths.append(values[kept] / np.sqrt(rows))
            kept_sizes[number] = np.count_nonzero(kept)
        starts = np.concatenate([[0], np.cumsum(kept_sizes)]).astype(np.int64)
        if not bases:
            return np.zeros((0, self.V.shape[1]), dtype), np.zeros(0, dtype), starts
        return np.concatenate(bases), np.concatenate(strengths).astype(dtype), starts

    def _remainder(self, rows: np.ndarray) -> np.ndarray:
        """X − ZV − S on some rows, dense, less what the start still assigns to unvisited groups."""
        N = csr_matmul(self.Z[rows], self.V, n_threads=self.n_threads)
        np.negative(N, out=N)
        add_scaled_rows(N, self.X, rows, 1 - self._reserved[rows], n_threads=self.n_threads)
        if self.S.nnz:
            add_scaled_rows(N, self.S, rows, np.full(len(rows), -1.0), n_threads=self.n_threads)
        return N


def _best_projection(N: np.ndarray, rank: int, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
    """The rank-r truncated singular value decomposition of N (m×p): coefficients (m×r) and orthonormal basis (p×r)."""
    m, p = N.shape
    with single_threaded_blas():
        if m <= p:
            products = gram(np.ascontiguousarray(N.T), n_threads=n_threads)
            _, left = scipy.linalg.eigh(products, subset_by_index=(m - rank, m - 1))
            basis = np.linalg.qr(N.T.astype(np.float64) @ left[:, ::-1])[0]
        else:
            _, right = scipy.linalg.eigh(gram(N, n_threads=n_threads), subset_by_index=(p - rank, p - 1))
            basis = right[:, ::-1]
    basis = np.ascontiguousarray(basis.astype(N.dtype))
    return dense_matmul(N, basis, n_threads=n_threads), basis


def project_bilaterally(X: FeatureMatrix, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A bilateral projection of X (m×p) from a given A₁ (p×k): left (m×k), and right (p×k) with orthonormal columns.

    Equation 14 of the paper with the adaptive choice A₂ := XA₁, A₁ := XᵀA₂ is L = Y₁(A₂ᵀY₁)⁻¹Y₂ᵀ, Y₂ = XᵀA₂, Y₁ = XY₂.
    As A₂ᵀY₁ = Y₂ᵀY₂, L is X projected onto the columns of Y₂ = XᵀXA₁. It is computed by an orthonormal basis of Y₂ in
    place of the inverse, whose condition number is the fourth power of that of X. A step with XᵀX never loses energy
    from a subspace, so a good start (the last round's) can only get better. Three products with X, and O(pk²).
    """
    if start.shape[0] != X.shape[1] or start.shape[1] > min(X.shape):
        raise InvalidInputError(
            f"start of shape {shape_text(start.shape)} does not fit a matrix of shape {shape_text(X.shape)}."
        )
    with single_threaded_blas():
        # Scaling a column of Y1 scales the same column of Y2 and changes no subspace, but keeps X³ from overflowing.
        left = _unit_columns(X.matmul(start))
        right = np.linalg.qr(_unit_columns(X.rmatmul(left)).astype(np.float64))[0]
    right = np.ascontiguousarray(right.astype(start.dtype))
    return X.matmul(right), right


def _unit_columns(columns: np.ndarray) -> np.ndarray:
    """Columns of length 1; those of zeros stay zero."""
    largest = np.abs(columns).max(axis=0, initial=0)
    scaled = columns / np.where(largest > 0, largest, 1)
    length = np.sqrt(np.einsum("ij,ij->j", scaled, scaled))
    return scaled / np.where(length > 0, length, 1)


def decomposition_memory(
    X: Features, groups: sp.csr_matrix, ranks: np.ndarray, n_outliers: int, *, decomposition: str, n_threads: int = 1
) -> float:
    """Bytes of a decomposition of X at its peak, without X and the groups; ``ranks`` are :func:`usable_ranks`.

    An upper bound, tight within a small factor: what stays (Z, V, S, the pairs of rows and groups), and the larger of
    what the most expensive group and the search for outliers need besides.
    """
    n_rows, n_features = X.shape
    number = X.dtype.itemsize
    sizes = _group_sizes(groups).astype(np.float64)
    coefficients = float(sizes @ ranks)
    outliers = float(min(n_outliers, n_rows * n_features))
    size = float(ranks.sum())

    stays = coefficients * (number + _INDEX) + size * n_features * number + outliers * (number + _INDEX)
    # For each pair its id, row and offset in Z, by rows and by groups; for each row its share of the start.
    stays += 6.0 * _INDEX * groups.nnz + 5.0 * _INDEX * (n_rows + groups.shape[1])
    numbering = coefficients * 2 * _INDEX
    # Canonical bases come from a second copy of Z, by group, and exist twice while they are joined.
    largest = float((sizes * ranks).max(initial=0))
    canonical = coefficients * (number + _INDEX) + 2 * size * n_features * number + 4 * 8 * largest
    # While a group's part is replaced: its dense rows, and their coefficients, for all of their groups, out of Z.
    block = sizes * n_features
    copied = np.minimum(coefficients, sizes * size) * (number + _INDEX)
    replaced = block * number + copied + sizes * ranks * (2 * _INDEX + 2 * number)
    if decomposition == "svd":
        smaller, longer = np.minimum(sizes, n_features), np.maximum(sizes, n_features)
        products = (8 + number * _partial_products(longer, n_threads)) * smaller**2
        # The Gram matrix, LAPACK's copy of it, and a transposed N, in its own type first, then in float64.
        replaced += products + 2 * 8 * smaller**2 + np.where(sizes <= n_features, 8 * block, 0)
    else:
        replaced += number * _partial_products(sizes, n_threads) * n_features * ranks
    # The start, its product, and QR factors in float64.
    group = float(np.max(replaced + 6 * 8 * n_features * ranks, initial=0))
    return _REST + stays + max(numbering, canonical, group, _search_memory(n_rows, n_features, outliers, number))


def dictionary_memory(size: float, n_features: int, *, n_threads: int = 1) -> float:
    """Bytes of the dictionary that prediction uses, for R = ``size`` directions: C, CCᵀ, and partial products."""
    return _REST + 8 * size * n_features + 8 * size**2 * (1 + float(_partial_products(n_features, n_threads)))


def _search_memory(n_rows: int, n_features: int, outliers: float, number: int) -> float:
    """Bytes of the search for the largest residuals: a block, and candidates besides those found so far."""
    block = float(min(n_rows * n_features, max(BLOCK_RESIDUALS, n_features)))
    needed = 2 * block * number
    if outliers:
        # As many candidates as are kept may wait to be merged; together they are at most all entries.
        joined = min(2 * outliers + block, float(n_rows * n_features))
        # The block's candidates; pieces, whole and result; absolute values with a copy to partition; indices.
        needed += block * (number + 2 * _INDEX + 1) + (2 * joined + outliers) * (number + _INDEX)
        needed += joined * (2 * number + 2) + 2 * outliers * _INDEX
    return needed


def _partial_products(rows: np.ndarray | float, n_threads: int) -> np.ndarray:
    """Number of partial products that ``gram`` holds at a time for this many rows."""
    return np.minimum(np.ceil(np.asarray(rows) / GRAM_ROWS), 4 * n_threads)
