"""A forest as one set of arrays, made of single trees or of forests: what FastXML keeps, saves and goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from tagwise.persistence.checkpoints import SavedState

__all__ = ["Forest", "GrownTrees"]


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees with their nodes and leaves numbered through.

    Attributes
    ----------
    roots : int array (trees,)
        A node, or −1 − a leaf, as everywhere below.
    children : int array (nodes, 2)
    separators : CSR (nodes, d)
    biases : array (nodes,)
    leaves : CSR (leaves, L)
        The shares of the labels in each leaf.
    """

    roots: np.ndarray
    children: np.ndarray
    separators: sp.csr_matrix
    biases: np.ndarray
    leaves: sp.csr_matrix

    @classmethod
    def of_tree(cls, tree: list[Any], n_features: int, n_labels: int, dtype: np.dtype) -> Forest:
        """The arrays that :func:`tagwise.kernels.ndcg_tree.build_tree` returns, in the types of a model folder."""
        children, weight_indptr, features, weights, biases, leaf_indptr, names, shares = tree
        return cls(
            np.array([0 if len(children) else -1], dtype=np.int64),
            children,
            sp.csr_matrix((weights.astype(dtype), features, weight_indptr), shape=(len(children), n_features)),
            biases.astype(dtype),
            sp.csr_matrix((shares.astype(dtype), names, leaf_indptr), shape=(len(leaf_indptr) - 1, n_labels)),
        )

    @classmethod
    def joined(cls, forests: list[Forest]) -> Forest:
        """All trees of these forests, in order."""
        nodes = np.cumsum([0] + [len(forest.children) for forest in forests])
        leaves = np.cumsum([0] + [forest.leaves.shape[0] for forest in forests])

        def moved(places: np.ndarray, node: int, leaf: int) -> np.ndarray:
            return np.where(places >= 0, places + node, places - leaf)

        shifts = list(zip(forests, nodes, leaves))
        return cls(
            np.concatenate([moved(forest.roots, node, leaf) for forest, node, leaf in shifts]),
            np.concatenate([moved(forest.children, node, leaf) for forest, node, leaf in shifts]),
            _stacked([forest.separators for forest in forests]),
            np.concatenate([forest.biases for forest in forests]),
            _stacked([forest.leaves for forest in forests]),
        )


@dataclass
class GrownTrees:
    """The trees that are ready, in how many rounds, and what they lost in all: a state to go on from."""

    forests: list[Forest]
    rounds: int = 0
    lost: float = 0.0

    def arrays(self) -> dict[str, Any]:
        """Of one forest."""
        return dict(vars(Forest.joined(self.forests)))

    def values(self) -> dict[str, Any]:
        """How far the forest is."""
        return {"rounds": self.rounds, "lost": self.lost}

    @classmethod
    def restored(
        cls, saved: SavedState, bounds: list[tuple[int, int]], n_features: int, n_labels: int, dtype: np.dtype
    ) -> GrownTrees:
        """The trees as they were saved, of rounds with these ``bounds``.

        Whether they are trees at all is for the finished model to check.
        """
        rounds = saved.count("rounds", 1, len(bounds))
        roots = saved.dense("roots", (bounds[rounds - 1][1],), np.int64)
        separators = saved.sparse("separators", (None, n_features), dtype)
        n_nodes = separators.shape[0]
        children = saved.dense("children", (n_nodes, 2), np.int64)
        biases = saved.dense("biases", (n_nodes,), dtype)
        leaves = saved.arrays()["leaves"]
        if not sp.issparse(leaves) or leaves.shape[1] != n_labels or leaves.dtype != dtype:
            raise ValueError("leaves do not hold the labels of the model")
        return cls([Forest(roots, children, separators, biases, leaves.copy())], rounds, saved.real("lost"))


def _stacked(matrices: list[sp.csr_matrix]) -> sp.csr_matrix:
    """One below the other, entries in the order that they have."""
    starts = np.cumsum([0] + [matrix.nnz for matrix in matrices])
    parts = (matrix.indptr[1:].astype(np.int64) + start for matrix, start in zip(matrices, starts))
    indptr = np.concatenate([[0], *parts])
    data, indices = (np.concatenate([getattr(matrix, name) for matrix in matrices]) for name in ("data", "indices"))
    return sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, matrices[0].shape[1]))
