"""Group lasso of many rows on one dictionary: the prediction step of MSE (equation 19)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import csr_matmul, gram
from tagwise.kernels.group_lasso import GroupedGram, solve_group_lasso
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas
from tagwise.validation import Features

__all__ = ["GroupDictionary", "GroupLasso", "group_lasso", "group_one_norms"]

# Rows of one chunk: many enough that dispatch costs nothing, few enough to balance two threads on small batches.
_ROWS = 64
# Far more than any row has needed; a row that gets there is reported.
_MOST_PASSES = 20_000


@dataclass(frozen=True)
class GroupDictionary:
    """Atoms in groups, and what all rows share of them.

    Attributes
    ----------
    by_feature : array (p, R), float64
        The atoms as columns.
    gram : array (R, R), float64
        Inner products of the atoms.
    starts : int64 array (groups + 1,)
        Group g holds the atoms starts[g] to starts[g + 1]; none is empty.
    curvature : array (groups,)
        The largest eigenvalue of each group's block of the Gram matrix; 1 for orthonormal atoms.
    """

    by_feature: np.ndarray
    gram: np.ndarray
    starts: np.ndarray
    curvature: np.ndarray

    @classmethod
    def build(cls, atoms: np.ndarray, starts: np.ndarray, *, n_threads: int = 1) -> GroupDictionary:
        """From the atoms as rows (R, p) and the borders of the groups. Time O(R²p), memory 8(Rp + R²) bytes."""
        starts = np.ascontiguousarray(starts, dtype=np.int64)
        if atoms.ndim != 2 or starts.ndim != 1 or len(starts) < 1 or starts[0] != 0 or starts[-1] != len(atoms):
            raise InvalidInputError(
                f"starts must lead from 0 to the number of atoms; found {starts} for atoms of shape {atoms.shape}."
            )
        if (np.diff(starts) < 1).any():
            raise InvalidInputError("starts must rise: a group without atoms has no coefficients to find.")
        by_feature = np.ascontiguousarray(atoms.T, dtype=np.float64)
        products = gram(by_feature, n_threads=n_threads)
        with single_threaded_blas():
            curvature = np.array(
                [np.linalg.eigvalsh(products[a:b, a:b])[-1] for a, b in pairwise(starts)], dtype=np.float64
            )
        if not (curvature > 0).all():
            raise InvalidInputError("atoms: a group holds nothing but zeros.")
        return cls(by_feature, products, starts, curvature)


@dataclass(frozen=True)
class GroupLasso:
    """Solutions of n rows.

    Attributes
    ----------
    coefficients : array (n, R)
        β.
    gap : array (n,)
        Duality gap: by so much at most is the objective above its minimum.
    passes : int array (n,)
        Passes of coordinate descent over working sets.
    screened : int array (n,)
        Groups that were proved to be zero before the end.
    converged : bool
        Whether every gap is at most what was asked for.
    """

    coefficients: np.ndarray
    gap: np.ndarray
    passes: np.ndarray
    screened: np.ndarray
    converged: bool


def group_lasso(
    X: Features, dictionary: GroupDictionary, reg: float, *, tol: float = 1e-6, max_iter: int = _MOST_PASSES
) -> GroupLasso:
    r"""Represent each row by few groups of atoms.

    Minimises for each row x of X, over β (R),

    .. math:: \tfrac12 \lVert x - \beta C\rVert^2 + \lambda \sum_g \lVert\beta_g\rVert_2 .

    Parameters
    ----------
    X : CSR or array (n, p)
    dictionary : GroupDictionary
        C and its groups.
    reg : float
        λ > 0.
    tol : float
        A row is solved when its duality gap is at most ``tol`` · ½‖x‖², the objective at β = 0.
    max_iter : int
        Maximum number of passes per row.

    Notes
    -----
    Block coordinate descent on working sets with gap-safe screening (Ndiaye, Fercoq, Gramfort and Salmon 2017); see
    :mod:`tagwise.kernels.group_lasso`. Rows meet the features only in Cx, at O(nnz(X)·R). Memory n·R numbers. A row's
    solution has the same bits in any company.
    """
    # Dense rows take the same way as sparse ones: a BLAS product would round a row differently in other company.
    rows = sp.csr_matrix(X).astype(np.float64)
    squared = np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64).ravel()
    if not np.isfinite(squared).all():
        raise InvalidInputError("X overflows: the squared length of a row is infinite; scale the rows down.")
    correlations = csr_matmul(rows, dictionary.by_feature)
    coefficients, gap = np.zeros_like(correlations), np.zeros(len(squared))
    passes, screened = np.zeros((2, len(squared)), dtype=np.int64)
    grouped = GroupedGram(dictionary.gram, dictionary.starts, dictionary.curvature)
    found = (coefficients, gap, passes, screened)
    solve_group_lasso(correlations, squared, grouped, float(reg), float(tol), max_iter, found)
    return GroupLasso(*found, converged=bool((gap <= tol * 0.5 * squared).all()))


def group_one_norms(
    X: Features,
    dictionary: GroupDictionary,
    reg: float,
    *,
    tol: float = 1e-6,
    max_iter: int = _MOST_PASSES,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray, bool]:
    """1-norms of each group's coefficients (n, groups) (equation 20 of MSE), the gaps (n,), and whether all converged.

    Parameters as in :func:`group_lasso`. Memory n·groups numbers and n·R for a chunk of 64 rows per thread.
    """
    n_groups = len(dictionary.starts) - 1
    norms, gap = np.zeros((X.shape[0], n_groups)), np.zeros(X.shape[0])

    def rows(start: int, stop: int) -> bool:
        found = group_lasso(X[start:stop], dictionary, reg, tol=tol, max_iter=max_iter)
        gap[start:stop] = found.gap
        if n_groups:
            np.add.reduceat(np.abs(found.coefficients), dictionary.starts[:-1], axis=1, out=norms[start:stop])
        return found.converged

    finished = run_chunks(rows, even_chunks(X.shape[0], _ROWS), n_threads)
    return norms, gap, all(finished)
