"""Words and embeddings beside each other: a sparse block of features and a dense one, of the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError

__all__ = ["FeatureBlocks", "column_sums"]


# What is recognised as a dense block: so many columns at least, that are not 0 in this share of the rows.
_LEAST_DENSE, _DENSE_SHARE = 32, 0.9
# Entries that are counted at a time: some megabytes of memory beside the matrix.
_CHUNK = 1 << 18


class FeatureBlocks:
    """Features X = [S, D] (n×d) of two kinds: sparse ones S (n×p), words say, and dense ones D (n×q), an embedding.

    Every model takes it, or the list ``[S, D]``, wherever it takes a matrix. :class:`~tagwise.LEML`,
    :class:`~tagwise.REML`, :class:`~tagwise.BinaryRelevance` and :class:`~tagwise.Cascade` work on both blocks as they
    are, the dense one by BLAS; other models read them as one CSR matrix. Where a model scales rows to unit length
    (``normalize``), it does so to each block, and then multiplies D by its ``dense_weight``. Features are numbered
    from 0 to p − 1 in S and on from there in D.

    Parameters
    ----------
    blocks : [sparse matrix (n, p), array (n, q)]
        Nothing is copied here.

    Attributes
    ----------
    sparse : sparse matrix (n, p)
    dense : array (n, q)
    shape : (int, int)
        (n, p + q).
    dtype : numpy dtype
        That of S and D, or the smallest that holds both.

    Notes
    -----
    Memory is that of the blocks. Rows are taken as of a matrix: ``X[start:stop]``, or ``X[ids]``.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from tagwise.data import FeatureBlocks
    >>> X = FeatureBlocks([sp.eye(3, format="csr"), np.ones((3, 2))])
    >>> X.shape, X[1:].shape
    ((3, 5), (2, 5))
    """

    sparse: Any
    dense: np.ndarray

    def __init__(self, blocks: Any) -> None:
        if not isinstance(blocks, (list, tuple)) or len(blocks) != 2:
            raise InvalidTypeError(
                f"blocks must be a list of two, a sparse matrix and an array; found {_described(blocks)}."
            )
        sparse, dense = blocks
        if not sp.issparse(sparse):
            raise InvalidTypeError(f"blocks: the first one must be a sparse matrix; found {_described(sparse)}.")
        if sp.issparse(dense):
            raise InvalidTypeError(
                "blocks: the second one must be an array; found a sparse matrix. Stack sparse matrices with "
                "scipy.sparse.hstack and give them as one."
            )
        dense = np.asarray(dense)
        for what, block in (("sparse", sparse), ("dense", dense)):
            if block.ndim != 2:
                raise InvalidInputError(f"blocks: the {what} one must have two dimensions; found {block.ndim}.")
        if sparse.shape[0] != dense.shape[0]:
            raise InvalidInputError(
                f"blocks: the sparse one has {sparse.shape[0]:,} rows and the dense one {dense.shape[0]:,}; they must "
                "describe the same rows."
            )
        self.sparse, self.dense = sparse, dense

    @classmethod
    def split(cls, matrix: Any, n_dense: int) -> FeatureBlocks:
        """A matrix (n, d), CSR or array, whose last ``n_dense`` columns are the dense block."""
        first = matrix.shape[1] - n_dense
        sparse, dense = matrix[:, :first], matrix[:, first:]
        if sp.issparse(dense):
            dense = dense.toarray()
        return cls([sp.csr_matrix(sparse), np.ascontiguousarray(dense)])

    @classmethod
    def recognised(cls, matrix: Any) -> Any:
        """The matrix, or blocks of it where its last columns, 32 or more, are dense: not 0 in nine of ten rows each."""
        if isinstance(matrix, FeatureBlocks):
            return matrix
        n_rows, n_columns = matrix.shape
        if sp.issparse(matrix) and matrix.nnz < _DENSE_SHARE * _LEAST_DENSE * n_rows:
            return matrix
        if sp.issparse(matrix):
            if matrix.has_sorted_indices:  # most matrices have no dense column at their end, which is seen at once
                ends = matrix.indptr[1:][np.diff(matrix.indptr) > 0] - 1
                if np.count_nonzero(matrix.indices[ends] == n_columns - 1) < _DENSE_SHARE * n_rows:
                    return matrix
            counts = np.zeros(n_columns, dtype=np.int64)
            for start in range(0, matrix.nnz, _CHUNK):
                part = slice(start, start + _CHUNK)
                counts += np.bincount(matrix.indices[part][matrix.data[part] != 0], minlength=n_columns)
        else:
            counts = np.count_nonzero(matrix, axis=0)
        others = np.flatnonzero(counts < _DENSE_SHARE * n_rows)
        n_dense = n_columns - (int(others[-1]) + 1 if len(others) else 0)
        return cls.split(matrix, n_dense) if n_dense >= _LEAST_DENSE else matrix

    @staticmethod
    def are_meant(value: Any) -> bool:
        """Whether this is the list [sparse matrix, array], the short form of an object of this class."""
        return isinstance(value, (list, tuple)) and len(value) == 2 and sp.issparse(value[0])

    @property
    def shape(self) -> tuple[int, int]:
        """(n, p + q)."""
        return self.sparse.shape[0], self.sparse.shape[1] + self.dense.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Data type of the numbers."""
        return np.result_type(self.sparse.dtype, self.dense.dtype)

    @property
    def nnz(self) -> int:
        """Stored numbers of both blocks."""
        return int(self.sparse.nnz + self.dense.size)

    @property
    def n_dense(self) -> int:
        """Number of columns of the dense block."""
        return int(self.dense.shape[1])

    @property
    def words(self) -> sp.csr_matrix:
        """The sparse block (n, p + q): the dense block's columns are there, and empty. Arrays are shared."""
        S = self.sparse
        return sp.csr_matrix((S.data, S.indices, S.indptr), shape=self.shape)

    def tocsr(self) -> sp.csr_matrix:
        """Both as one CSR matrix (n, p + q), in which D takes 8 bytes a number and more."""
        return sp.csr_matrix(sp.hstack([self.sparse, sp.csr_matrix(self.dense)], format="csr", dtype=self.dtype))

    def __getitem__(self, rows: Any) -> FeatureBlocks:
        if isinstance(rows, tuple) or np.ndim(rows) > 1:
            raise InvalidTypeError("FeatureBlocks are indexed by rows alone: X[start:stop], or X[ids].")
        if not isinstance(rows, slice) and np.ndim(rows) == 0:
            rows = [rows]
        return FeatureBlocks([self.sparse[rows], self.dense[rows]])

    def __iter__(self) -> Iterator[Any]:
        """The two blocks."""
        yield self.sparse
        yield self.dense

    def __repr__(self) -> str:
        (n, p), q = self.sparse.shape, self.n_dense
        return f"<FeatureBlocks of {n:,} rows: {p:,} sparse features and {q:,} dense ones>"


def _described(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"{len(value)} of them"
    return f"a {type(value).__name__}"


def column_sums(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sums of each feature and of its squares over the rows (d), float64."""
    if isinstance(X, FeatureBlocks):
        sums, squares = zip(*(column_sums(block) for block in X))
        return np.concatenate(sums), np.concatenate(squares)
    if isinstance(X, np.ndarray):
        return np.einsum("ij->j", X, dtype=np.float64), np.einsum("ij,ij->j", X, X, dtype=np.float64)
    values = X.data.astype(np.float64)
    weights = (values, values * values)
    total, squares = (np.bincount(X.indices, weights=some, minlength=X.shape[1]) for some in weights)
    return total, squares
