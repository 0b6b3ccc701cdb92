"""The subspaces of MSE beside its estimator: ranks, canonical bases, what a saved model must hold, explanations."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.solvers.group_lasso import GroupDictionary
from tagwise.solvers.subspace_decomposition import SubspaceDecomposition
from tagwise.validation import check_integer

__all__ = [
    "Direction",
    "canonical_subspaces",
    "check_subspaces",
    "describe",
    "outlier_count",
    "prediction_dictionary",
    "resolve_ranks",
]

# Products such as 0.07 · 100 lie a little above the whole number that is meant.
_ROUNDING = 1e-9
# Mean squared sine of the angles between two subspaces that count as the same: a thousandth of a radian, which is what
# bases in float32 can tell.
_SAME = 1e-6


@dataclass(frozen=True)
class Direction:
    """One direction of a label's subspace, as features.

    Attributes
    ----------
    strength : float
        Root mean square of the coefficients that the label's training rows have along it.
    features : list of (name or id, weight)
        Largest absolute weight first. All weights of a direction, not only those listed, have squares that sum to 1.
        Signs are chosen so that the label's training rows lie on the positive side on average.
    """

    strength: float
    features: list[tuple[Any, float]]


def canonical_subspaces(found: SubspaceDecomposition, Y: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular vectors of each label's part, strongest first, without those of strength 0; strengths; borders.

    A strength counts as 0 when it is within the rounding of the label's own coefficients Z_g = NV_g (m×r). Each of
    these is off by about eps times the length of its row, so that the error has a spectral norm of about eps·‖N‖_F,
    and ‖N V_g‖_F is at most √r times the largest singular value.
    """
    by_group = found.coefficients.tocsc()
    rows_of_label = np.bincount(Y.indices, minlength=Y.shape[1])
    bases, strengths, sizes = [], [], np.zeros(Y.shape[1], dtype=np.int64)
    dtype, p = found.subspaces.dtype, found.subspaces.shape[1]
    for label in np.flatnonzero(np.diff(found.starts)):
        group = slice(found.starts[label], found.starts[label + 1])
        rows = int(rows_of_label[label])
        # Every row of the label stores all coefficients of its group, so the columns have equal length.
        stored = slice(by_group.indptr[group.start], by_group.indptr[group.stop])
        coefficients = by_group.data[stored].reshape(-1, rows).T.astype(np.float64)
        left, values, turn = np.linalg.svd(coefficients, full_matrices=False)
        sums = left.sum(axis=0) * values
        kept = values > values[0] * 10 * np.sqrt(len(values)) * np.finfo(dtype).eps
        signs = np.where(sums < 0, -1.0, 1.0)
        bases.append((signs[:, None] * (turn @ found.subspaces[group]))[kept].astype(dtype, copy=False))
        strengths.append(values[kept] / np.sqrt(rows))
        sizes[label] = np.count_nonzero(kept)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if not bases:
        return np.zeros((0, p), dtype), np.zeros(0, dtype), starts
    return np.concatenate(bases), np.concatenate(strengths).astype(dtype), starts


def prediction_dictionary(
    C: np.ndarray, starts: np.ndarray, *, n_threads: int = 1
) -> tuple[GroupDictionary, np.ndarray]:
    """The dictionary of all distinct subspaces, and for each label that has one the number of its group.

    Between two labels of one subspace the group lasso has no preference: it would give every coefficient to the first
    of them. So these share a group, with the basis of the lowest id. Time O(R²p), as for the dictionary itself.
    """
    own = np.flatnonzero(np.diff(starts))
    dictionary = GroupDictionary.build(C, starts[np.append(own, len(starts) - 1)], n_threads=n_threads)
    group_of = _first_same_group(dictionary)
    distinct, group_of = np.unique(group_of, return_inverse=True)
    if len(distinct) < len(own):
        sizes = np.diff(dictionary.starts)
        atoms = C[np.repeat(np.isin(np.arange(len(own)), distinct), sizes)]
        borders = np.concatenate([[0], np.cumsum(sizes[distinct])])
        del dictionary
        dictionary = GroupDictionary.build(atoms, borders, n_threads=n_threads)
    return dictionary, group_of


def _first_same_group(dictionary: GroupDictionary) -> np.ndarray:
    """For each group the first of all groups that span the same subspace."""
    sizes, borders = np.diff(dictionary.starts), dictionary.starts
    first = np.arange(len(sizes))
    for group, size in enumerate(sizes):
        products = dictionary.gram[borders[group] : borders[group + 1], : borders[group]]
        # Σ cos² of the angles to each earlier subspace; it is the dimension if all angles are 0.
        cosines = np.add.reduceat(np.einsum("ij,ij->j", products, products), borders[:group]) if group else np.zeros(0)
        same = np.flatnonzero((sizes[:group] == size) & (cosines >= size * (1 - _SAME)))
        if len(same):
            first[group] = first[same[0]]
    return first


def outlier_count(fraction: float, n_entries: int) -> int:
    """K: MSE's ``outlier_fraction`` of all entries, rounded down."""
    return min(int(fraction * n_entries + _ROUNDING), n_entries)


def resolve_ranks(given: Any, Y: sp.csr_matrix | None) -> np.ndarray:
    """MSE's ``subspace_rank`` for each label; without Y it checks what can be checked without data."""
    if isinstance(given, (float, np.floating)):
        if not 0 < given < 1:
            raise InvalidInputError(
                "subspace_rank must be a whole number of at least 1, or a share of each label's rows above 0 and "
                f"below 1; found {given!r}."
            )
        rows_of_label = np.zeros(1) if Y is None else np.bincount(Y.indices, minlength=Y.shape[1])
        return np.maximum(np.ceil(given * rows_of_label - _ROUNDING), 1).astype(np.int64)
    try:
        ranks = np.asarray(given)
    except ValueError:
        raise InvalidTypeError(
            f"subspace_rank must be a number, or a list of whole numbers, one per label; found {given!r:.60}."
        ) from None
    if ranks.ndim == 0:
        # More than any label has rows is cut down in any case, so numbers beyond 64 bits mean the same.
        rank = min(check_integer(given, "subspace_rank", minimum=1), np.iinfo(np.int64).max)
        return np.full(1 if Y is None else Y.shape[1], rank, dtype=np.int64)
    if ranks.ndim != 1 or ranks.dtype.kind not in "iu":
        raise InvalidTypeError(
            f"subspace_rank must be a number, or a list of whole numbers, one per label; found {given!r:.60}."
        )
    if (ranks < 1).any():
        raise InvalidInputError(f"subspace_rank must be at least 1 for every label; found {ranks.min()}.")
    if Y is not None and len(ranks) != Y.shape[1]:
        raise InvalidInputError(
            f"subspace_rank has {len(ranks):,} numbers but Y has {Y.shape[1]:,} labels; give one number, or one for "
            "each label."
        )
    return ranks


def check_subspaces(C: np.ndarray, strengths: np.ndarray, starts: np.ndarray, n_features: int, n_labels: int) -> None:
    """Raise ValueError unless the arrays of a loaded model fit together."""
    if C.ndim != 2 or C.shape[1] != n_features or strengths.shape != (len(C),):
        raise ValueError(f"subspaces of shape {C.shape} with {strengths.shape} strengths for {n_features} features")
    if starts.shape != (n_labels + 1,) or starts.dtype.kind != "i":
        raise ValueError(f"subspace_starts_ of shape {starts.shape} for {n_labels} labels")
    if starts[0] != 0 or starts[-1] != len(C) or (np.diff(starts) < 0).any():
        raise ValueError("subspace_starts_ must lead from 0 to the number of directions")
    if C.dtype.kind != "f" or strengths.dtype != C.dtype or not np.isfinite(strengths).all():
        raise ValueError("subspaces and strengths must be finite and share one floating type")
    if not np.allclose(np.einsum("ij,ij->i", C, C, dtype=np.float64), 1, atol=1e-3):
        raise ValueError("the directions of the subspaces must have unit length")


def describe(
    directions: np.ndarray, strengths: np.ndarray, feature_names: Sequence[str] | None, default: Sequence[Any], top: int
) -> list[Direction]:
    """Directions (rows) as their features of largest absolute weight."""
    top = check_integer(top, "top", minimum=1)
    names: Sequence[Any] = default
    if feature_names is not None:
        if isinstance(feature_names, (str, bytes, Mapping, Set)) or not hasattr(feature_names, "__len__"):
            raise InvalidTypeError(f"feature_names must be a list of names; found {feature_names!r:.60}.")
        if len(feature_names) != len(default):
            raise InvalidInputError(
                f"feature_names has {len(feature_names):,} names but the model has {len(default):,} features."
            )
        names = list(feature_names)
        for name in names:
            if not isinstance(name, Hashable):
                raise InvalidTypeError(f"feature_names must be a list of names; it holds {name!r:.60}.")
    found = []
    for weights, strength in zip(directions, strengths):
        order = np.argsort(-np.abs(weights), kind="stable")[:top]
        features = [(names[i], float(weights[i])) for i in order if weights[i] != 0]
        found.append(Direction(float(strength), features))
    return found
