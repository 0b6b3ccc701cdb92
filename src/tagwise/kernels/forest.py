"""Rows through trees of sparse linear separators, and the mean of the leaves that they end in."""

from __future__ import annotations

import numpy as np

from tagwise.kernels.compiled import compiled

__all__ = ["find_leaves", "mean_leaves"]


@compiled()
def find_leaves(rows, roots, children, separators, biases, leaves, start, stop):
    """The leaf of each tree that each of the rows ``start`` to ``stop`` ends in, into ``leaves`` (n×trees).

    ``rows`` and ``separators`` are (indptr, indices, data) of CSR matrices with sorted indices. A margin of 0 or less
    goes to the first child. Roots and children are nodes from 0 on, or −1 − a leaf.
    """
    indptr, indices, data = rows
    weight_indptr, weight_features, weights = separators
    for row in range(start, stop):
        for tree in range(len(roots)):
            place = roots[tree]
            while place >= 0:
                margin = np.float64(biases[place])
                low, end = weight_indptr[place], weight_indptr[place + 1]
                for position in range(indptr[row], indptr[row + 1]):
                    feature = indices[position]
                    high = end
                    # Both lists rise, so a search never needs to look left of the last one.
                    while low < high:
                        middle = (low + high) // 2
                        if weight_features[middle] < feature:
                            low = middle + 1
                        else:
                            high = middle
                    if low == end:
                        break
                    if weight_features[low] == feature:
                        margin += np.float64(weights[low]) * data[position]
                place = children[place, 1 if margin > 0 else 0]
            leaves[row, tree] = -1 - place


@compiled()
def mean_leaves(leaves, leaf_indptr, leaf_labels, leaf_shares, n_labels, start, stop):
    """The mean over the trees of the leaves of the rows ``start`` to ``stop``.

    Returns the number of labels of each row, and all labels and means one row after the other; the labels of a row come
    in the order in which its trees name them.
    """
    n_trees = leaves.shape[1]
    room = 0
    for row in range(start, stop):
        for leaf in leaves[row]:
            room += leaf_indptr[leaf + 1] - leaf_indptr[leaf]
    sizes = np.empty(stop - start, dtype=np.int64)
    names = np.empty(room, dtype=np.int32)
    means = np.empty(room)
    place_of = np.full(n_labels, -1, dtype=np.int64)
    end = 0
    for row in range(start, stop):
        begin = end
        for leaf in leaves[row]:
            for position in range(leaf_indptr[leaf], leaf_indptr[leaf + 1]):
                label = leaf_labels[position]
                if place_of[label] < begin:
                    place_of[label] = end
                    names[end], means[end] = label, 0.0
                    end += 1
                means[place_of[label]] += leaf_shares[position]
        for place in range(begin, end):
            means[place] /= n_trees
        sizes[row - start] = end - begin
    return sizes, names[:end].copy(), means[:end].copy()
