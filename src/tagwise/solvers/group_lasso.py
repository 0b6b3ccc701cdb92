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
from tagwise.validation import Features, check_features, check_integer, check_real

__all__ = ["GroupDictionary", "GroupLasso", "GroupNorms", "group_lasso", "group_one_norms"]

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

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.starts) - 1


@dataclass(frozen=True)
class GroupLasso:
    """Solutions of all rows.

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


@dataclass(frozen=True)
class GroupNorms:
    """Σ|β_j| over each group (n, groups), and the gaps (n,) of the solutions they are made of."""

    norms: np.ndarray
    gap: np.ndarray
    converged: bool


def group_lasso(
    X: Features,
    dictionary: GroupDictionary,
    reg: float,
    *,
    tol: float = 1e-6,
    max_iter: int = _MOST_PASSES,
    n_threads: int = 1,
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
    n_threads : int
        Threads over chunks of rows. A row's solution has the same bits for any number, and in any company.

    Returns
    -------
    GroupLasso

    Notes
    -----
    Block coordinate descent on working sets with gap-safe screening (Ndiaye, Fercoq, Gramfort and Salmon 2017); see
    :mod:`tagwise.kernels.group_lasso`. Rows meet the features only in Cx, at O(nnz(X)·R). Memory n·R numbers for the
    result; :func:`group_one_norms` holds a chunk of them at a time.
    """
    features, reg, tol, max_iter = _checked(X, dictionary, reg, tol, max_iter)
    n_rows, n_atoms = features.shape[0], len(dictionary.gram)
    coefficients = np.zeros((n_rows, n_atoms))
    gap, passes, screened = np.zeros(n_rows), np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)

    def rows(start: int, stop: int) -> bool:
        at = slice(start, stop)
        return _solve(features[at], dictionary, reg, tol, max_iter, coefficients[at], gap[at], passes[at], screened[at])

    finished = run_chunks(rows, even_chunks(n_rows, _ROWS), n_threads)
    return GroupLasso(coefficients, gap, passes, screened, all(finished))


def group_one_norms(
    X: Features,
    dictionary: GroupDictionary,
    reg: float,
    *,
    tol: float = 1e-6,
    max_iter: int = _MOST_PASSES,
    n_threads: int = 1,
) -> GroupNorms:
    """The 1-norm of each group's coefficients (equation 20 of MSE), without keeping the coefficients.

    Parameters as in :func:`group_lasso`. Memory n·groups numbers and n·R for a chunk of 64 rows per thread.
    """
    features, reg, tol, max_iter = _checked(X, dictionary, reg, tol, max_iter)
    n_rows, n_atoms = features.shape[0], len(dictionary.gram)
    norms, gap = np.zeros((n_rows, dictionary.n_groups)), np.zeros(n_rows)

    def rows(start: int, stop: int) -> bool:
        size = stop - start
        coefficients = np.empty((size, n_atoms))
        counts = np.empty((2, size), dtype=np.int64)
        ended = _solve(
            features[start:stop], dictionary, reg, tol, max_iter, coefficients, gap[start:stop], counts[0], counts[1]
        )
        if dictionary.n_groups:
            np.add.reduceat(np.abs(coefficients), dictionary.starts[:-1], axis=1, out=norms[start:stop])
        return ended

    finished = run_chunks(rows, even_chunks(n_rows, _ROWS), n_threads)
    return GroupNorms(norms, gap, all(finished))


def _checked(
    X: Features, dictionary: GroupDictionary, reg: float, tol: float, max_iter: int
) -> tuple[sp.csr_matrix | np.ndarray, float, float, int]:
    return (
        check_features(X, n_features=len(dictionary.by_feature)),
        check_real(reg, "reg", minimum=0, open_minimum=True),
        check_real(tol, "tol", minimum=0, open_minimum=True),
        check_integer(max_iter, "max_iter", minimum=1),
    )


def _solve(
    X: Features,
    dictionary: GroupDictionary,
    reg: float,
    tol: float,
    max_iter: int,
    coefficients: np.ndarray,
    gap: np.ndarray,
    passes: np.ndarray,
    screened: np.ndarray,
) -> bool:
    """Write the solutions of a few rows; whether all of them reached the gap."""
    # Dense rows take the same way as sparse ones: a BLAS product would round a row differently in other company.
    rows = sp.csr_matrix(X).astype(np.float64)
    squared = np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64).ravel()
    if not np.isfinite(squared).all():
        raise InvalidInputError("X overflows: the squared length of a row is infinite; scale the rows down.")
    correlations = csr_matmul(rows, dictionary.by_feature)
    grouped = GroupedGram(dictionary.gram, dictionary.starts, dictionary.curvature)
    solve_group_lasso(correlations, squared, grouped, reg, tol, max_iter, (coefficients, gap, passes, screened))
    return bool((gap <= tol * 0.5 * squared).all())
