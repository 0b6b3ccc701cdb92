"""FastXML: a forest whose splits rank the labels of both sides well."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.baselines.sparse_score_model import SparseScoreModel
from tagwise.fields import Fields, csr, dense, value
from tagwise.kernels.trees import Growth, build_tree, find_leaves, ideal_gains, mean_leaves
from tagwise.parallel import even_chunks, run_chunks, thread_count
from tagwise.parameters import Count, Positive, Seed, parameters, random_generator
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.validation import Features, canonical_csr, check_real

__all__ = ["FastXML"]

# Trees between two reports of progress, grown side by side.
_TREES_PER_ROUND = 10
_ROWS_PER_CHUNK = 64
# The score of a share of 0. A label is on with more than half of the votes; the smallest step of float32 beyond ½ keeps
# ties, which few trees often have, below 0.
_OFF = -0.5 - 2.0**-24
# A separator only has to send rows to the right side: a hundredth of the first violation is accurate enough.
_SEPARATOR_TOL = 0.01
_SEPARATOR_STEPS = 20


_LOST = Fields(lost=value(check_real, "The sum over the trees so far of 1 − nDCG of their training rows."))


@parameters
class FastXML(SparseScoreModel):
    r"""A forest of sparse linear splits, learnt for the ranking of labels.

    Every node minimizes over the sides δ (±1 per row), the rankings r⁺ and r⁻ of the labels and a separator w

    .. math:: \|w\|_1 + \sum_i C_i \log\bigl(1 + e^{-\delta_i w^\top x_i}\bigr)
              - C_r \sum_{i:\,\delta_i = 1} \mathrm{nDCG}(r^+, y_i)
              - C_r \sum_{i:\,\delta_i = -1} \mathrm{nDCG}(r^-, y_i)

    and sends its rows where w sends them. A leaf keeps the share of its rows that have each label; the score of a label
    is the mean of these shares over the leaves that a row ends in, minus ½; it is on if the mean is above ½.

    Parameters
    ----------
    n_trees : int
    max_leaf : int
        Nodes with at most this many rows are leaves, as are nodes whose rows w cannot tell apart.
    C : float
        C_i of a row on the larger side, > 0; rows on the smaller side weigh as much together.
    leaf_labels : int
        Labels that a leaf keeps, the most frequent.

    Attributes
    ----------
    objective_ : array (rounds,)
        The mean 1 − nDCG of the training rows under the rankings of their leaves, over the trees so far; 10 per round.

    Notes
    -----
    A node starts from random sides. In turn, both sides rank their labels by Σ_i y_ij / (ideal DCG of row i), which is
    the best ranking, and each row moves to the side whose ranking suits it better, until none moves. Then w is learnt
    by proximal Newton steps (:mod:`tagwise.kernels.trees`): w is optimized once and C_r does not matter, as in
    the publication's practice. A level of a tree costs O((nnz(X) + nnz(Y))·steps); memory is one copy of the data per
    thread and the trees.

    Deviations: separators weigh both sides equally; labels that score the same on a side rank by their ids; a label
    that nobody on a side has gains nothing there, where a full ranking would put it last; a row whose labels neither
    side prefers stays where it is; 100 trees, not 50. docs/notes/baselines.md says what was tried.

    References
    ----------
    Prabhu, Varma, "FastXML: a fast, accurate and stable tree-classifier for extreme multi-label learning", KDD 2014.
    """

    fields: ClassVar[Fields] = Fields(
        roots_=dense(
            "trees", numbers="int", meaning="The first node of each tree, or −1 − a leaf for a tree without nodes."
        ),
        children_=dense(
            "nodes",
            2,
            numbers="int",
            meaning="Where rows with a margin of 0 or less go, and all others; nodes and leaves as in ``roots_``.",
        ),
        separators_=csr("nodes", "d", meaning="w."),
        biases_=dense("nodes", meaning="Weights of a constant feature."),
        leaves_=csr("leaves", "L", meaning="Shares of labels."),
    )

    base_score = _OFF

    n_trees: Count = 100
    max_leaf: Count = 10
    C: Positive = 5.0
    leaf_labels: Count = 100
    random_state: Seed = 0

    def _iterations(self) -> int:
        return -(-self.n_trees // _TREES_PER_ROUND)

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        X, Y = problem.X, problem.Y
        threads = thread_count(self.n_jobs)
        rows = canonical_csr(self._prepared(X))
        if (rows.data == 0).any():
            # A node numbers its columns as they come up: a stored zero would change the order of sums.
            rows = rows.copy()
            rows.eliminate_zeros()
        gains = ideal_gains(Y.indptr)
        seed = int(random_generator(self.random_state).integers(2**31))
        growth = Growth(float(self.C), self.max_leaf, self.leaf_labels, _SEPARATOR_TOL, _SEPARATOR_STEPS)

        def grow(number: int, _: int) -> tuple[Any, ...]:
            features, labels = (rows.indptr, rows.indices, rows.data), (Y.indptr, Y.indices)
            return build_tree(features, labels, gains, max(X.shape[1], Y.shape[1]), growth, seed, number)

        shape, rounds = (X.shape[1], Y.shape[1]), even_chunks(self.n_trees, _TREES_PER_ROUND)
        kept = progress.resume(self.fields | _LOST, X.dtype, d=shape[0], L=shape[1])
        forest, lost = kept, 0.0
        if forest is not None:
            lost = forest.pop("lost")
            self.__dict__.update(forest)
            self._check_fitted()
        for first, last in rounds[len(progress.history) :]:
            trees = [] if forest is None else [forest]
            for *tree, missed in run_chunks(grow, [(number, number + 1) for number in range(first, last)], threads):
                # Converted to the types of the folder at once: trees pile up.
                trees.append(_as_stored(tree, *shape, X.dtype))
                lost += missed
            forest = _joined(trees)
            progress.keep(lost=lost, **forest)
            if progress.step(lost / (last * X.shape[0]), trees=last):
                break
        self.__dict__.update(forest or {})

    def _sparse_scores(self, X: Features) -> sp.csr_matrix:
        rows, nodes, leaves = canonical_csr(self._prepared(X)), self.separators_, self.leaves_
        features, separators = (rows.indptr, rows.indices, rows.data), (nodes.indptr, nodes.indices, nodes.data)
        found = np.empty((X.shape[0], len(self.roots_)), dtype=np.int64)

        def part(start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            find_leaves(features, self.roots_, self.children_, separators, self.biases_, found, start, stop)
            return mean_leaves(found, leaves.indptr, leaves.indices, leaves.data, self.n_labels_, start, stop)

        parts = run_chunks(part, even_chunks(X.shape[0], _ROWS_PER_CHUNK), thread_count(self.n_jobs))
        sizes, names, means = (np.concatenate(part) for part in zip(*parts))
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        return sp.csr_matrix((means + _OFF, names, indptr), shape=(X.shape[0], self.n_labels_))

    def _check_fitted(self) -> None:
        roots, children, n_leaves = self.roots_, self.children_, self.leaves_.shape[0]
        if not len(roots):
            raise ValueError("roots_ must have a tree")
        for places in (roots, children):
            if places.size and (places.min() < -n_leaves or places.max() >= len(children)):
                raise ValueError("a node or leaf lies outside the trees")
        # Children come after their parents, so every path down ends.
        if ((children >= 0) & (children <= np.arange(len(children))[:, None])).any():
            raise ValueError("a node is its own ancestor")


def _as_stored(tree: list[Any], n_features: int, n_labels: int, dtype: np.dtype) -> dict[str, Any]:
    """The arrays that :func:`tagwise.kernels.trees.build_tree` returns, as the attributes of a forest of one tree."""
    children, weight_indptr, features, weights, biases, leaf_indptr, names, shares = tree
    return {
        "roots_": np.array([0 if len(children) else -1], dtype=np.int64),
        "children_": children,
        "separators_": sp.csr_matrix(
            (weights.astype(dtype), features, weight_indptr), shape=(len(children), n_features)
        ),
        "biases_": biases.astype(dtype),
        "leaves_": sp.csr_matrix((shares.astype(dtype), names, leaf_indptr), shape=(len(leaf_indptr) - 1, n_labels)),
    }


def _joined(forests: list[dict[str, Any]]) -> dict[str, Any]:
    """All trees of these forests, in order, with nodes and leaves numbered through."""
    node = leaf = 0
    moved: dict[str, list[Any]] = {name: [] for name in forests[0]}
    for forest in forests:
        for name, part in forest.items():
            places = name in ("roots_", "children_")
            moved[name].append(np.where(part >= 0, part + node, part - leaf) if places else part)
        node, leaf = node + len(forest["children_"]), leaf + forest["leaves_"].shape[0]
    return {
        name: sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)
        for name, parts in moved.items()
    }
