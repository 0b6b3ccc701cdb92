"""A tree of FastXML (Prabhu & Varma 2014): splits whose two sides rank the labels of their rows well, and leaves.

A node splits in three steps. Rows start on random sides; in turn each side ranks the labels by the weighted number of
its rows that have them, and each row moves to the side whose ranking has the larger nDCG for its own labels, until none
moves. Then a sparse linear separator learns the sides, and the node's rows go where it sends them.
"""

from __future__ import annotations

import numpy as np

from tagwise.kernels.compiled import compiled
from tagwise.kernels.l1_logistic import l1_logistic
from tagwise.kernels.random_stream import next_bits, random_stream

__all__ = ["build_tree", "ideal_gains"]

_MOST_ROUNDS = 50
_LOW_BIT = np.uint64(1)


@compiled()
def ideal_gains(label_indptr):
    """1 / DCG of a row's labels ranked first, for every row; 0 for rows without labels."""
    gains = np.zeros(len(label_indptr) - 1)
    for row in range(len(gains)):
        best = 0.0
        for place in range(label_indptr[row + 1] - label_indptr[row]):
            best += 1 / np.log2(place + 2)
        if best > 0:
            gains[row] = 1 / best
    return gains


@compiled()
def build_tree(rows, labels, gains, n_features, n_labels, cost, max_leaf, leaf_labels, tol, max_steps, seed, number):
    """Grow one tree on all rows.

    Parameters
    ----------
    rows, labels : (indptr, indices, data) of X (n×d) and (indptr, indices) of Y (n×L)
    gains : array (n,), see :func:`ideal_gains`
    cost : float
        Of a row of the larger side in the separator; rows of the smaller side weigh as much together.
    max_leaf : int
        Rows of a leaf at the most, unless they cannot be separated.
    leaf_labels : int
        Labels that a leaf keeps.
    tol, max_steps
        Of the separators, see :mod:`tagwise.kernels.l1_logistic`.

    Returns
    -------
    children : int array (nodes, 2)
        Where rows with a margin of 0 or less go, and all others: a node, or −1 − a leaf.
    weight_indptr, weight_features, weights : CSR of the separators; biases : array (nodes,)
    leaf_indptr, leaf_names, leaf_shares : CSR of the share of a leaf's rows that have each label
    lost : float
        The sum over all rows of 1 − nDCG of their leaf's ranking.
    """
    n_rows = len(gains)
    order = np.arange(n_rows)
    stream = random_stream(seed, number)
    slot = np.full(max(n_features, n_labels), -1, dtype=np.int64)
    children = np.empty((max(1, n_rows - 1), 2), dtype=np.int64)
    biases = np.empty(len(children))
    weight_indptr = np.zeros(len(children) + 1, dtype=np.int64)
    weight_features = np.empty(1024, dtype=np.int32)
    weights = np.empty(1024)
    leaf_indptr = np.zeros(n_rows + 1, dtype=np.int64)
    leaf_names = np.empty(len(labels[1]), dtype=np.int32)
    leaf_shares = np.empty(len(labels[1]))
    # Parts of ``order`` that wait for their node: first row, behind the last row, the parent and its side.
    waiting = np.empty((n_rows + 1, 4), dtype=np.int64)
    waiting[0] = (0, n_rows, -1, 0)
    n_waiting, n_nodes, n_leaves = 1, 0, 0
    lost = 0.0
    while n_waiting > 0:
        n_waiting -= 1
        start, stop, parent, branch = waiting[n_waiting]
        part = order[start:stop]
        middle = 0
        if len(part) > max_leaf:
            side = _rank_sides(labels, gains, part, slot, stream)
            features, w, bias, middle = _separate(rows, part, side, slot, cost, tol, max_steps)
        if 0 < middle < len(part):
            place = n_nodes
            begin = weight_indptr[n_nodes]
            end = begin + len(w)
            if end > len(weights):
                room = max(end, 2 * len(weights))
                weights, weight_features = _grown(weights, room), _grown(weight_features, room)
            weights[begin:end], weight_features[begin:end] = w, features
            biases[n_nodes] = bias
            weight_indptr[n_nodes + 1] = end
            waiting[n_waiting] = (start, start + middle, n_nodes, 0)
            waiting[n_waiting + 1] = (start + middle, stop, n_nodes, 1)
            n_waiting += 2
            n_nodes += 1
        else:
            place = -1 - n_leaves
            begin = leaf_indptr[n_leaves]
            end, missed = _make_leaf(labels, gains, part, slot, leaf_labels, leaf_names, leaf_shares, begin)
            leaf_indptr[n_leaves + 1] = end
            lost += missed
            n_leaves += 1
        if parent >= 0:
            children[parent, branch] = place
    used, kept = weight_indptr[n_nodes], leaf_indptr[n_leaves]
    return (
        children[:n_nodes].copy(),
        weight_indptr[: n_nodes + 1].copy(),
        weight_features[:used].copy(),
        weights[:used].copy(),
        biases[:n_nodes].copy(),
        leaf_indptr[: n_leaves + 1].copy(),
        leaf_names[:kept].copy(),
        leaf_shares[:kept].copy(),
        lost,
    )


@compiled()
def _grown(values, room):
    grown = np.empty(room, dtype=values.dtype)
    grown[: len(values)] = values
    return grown


@compiled()
def _labels_of(labels, part, slot):
    """The labels of the rows in ``part``, rising; ``slot`` gets the place of each and must be cleared after use."""
    indptr, indices = labels
    total = 0
    for row in part:
        total += indptr[row + 1] - indptr[row]
    names = np.empty(total, dtype=np.int64)
    count = 0
    for row in part:
        for position in range(indptr[row], indptr[row + 1]):
            if slot[indices[position]] < 0:
                slot[indices[position]] = count
                names[count] = indices[position]
                count += 1
    # Whatever the order of the rows, equal scores then fall to the lower label.
    names = np.sort(names[:count])
    for place in range(count):
        slot[names[place]] = place
    return names


@compiled()
def _discounts(scores, discounts):
    """1 / log₂(1 + rank) of each label in the order of its score, ties to the first; 0 for labels that nobody has."""
    discounts[:] = 0
    ranking = np.argsort(-scores, kind="mergesort")
    for place in range(len(ranking)):
        if scores[ranking[place]] <= 0:
            break
        discounts[ranking[place]] = 1 / np.log2(place + 2)


@compiled()
def _rank_sides(labels, gains, part, slot, stream):
    """Sides (−1 or 1) of the rows such that the rankings of both sides have a large nDCG: a local optimum."""
    indptr, indices = labels
    side = np.empty(len(part))
    for at in range(len(part)):
        side[at] = 1.0 if next_bits(stream) & _LOW_BIT else -1.0
    names = _labels_of(labels, part, slot)
    scores = np.empty((2, len(names)))
    discounts = np.empty((2, len(names)))
    for _ in range(_MOST_ROUNDS):
        scores[:] = 0
        for at in range(len(part)):
            row = part[at]
            own = scores[1] if side[at] > 0 else scores[0]
            for position in range(indptr[row], indptr[row + 1]):
                own[slot[indices[position]]] += gains[row]
        _discounts(scores[0], discounts[0])
        _discounts(scores[1], discounts[1])
        moved = False
        for at in range(len(part)):
            row = part[at]
            advantage = 0.0
            for position in range(indptr[row], indptr[row + 1]):
                label = slot[indices[position]]
                advantage += discounts[1, label] - discounts[0, label]
            if advantage * side[at] < 0:
                side[at] = -side[at]
                moved = True
        if not moved:
            break
    slot[names] = -1
    return side


@compiled()
def _separate(rows, part, side, slot, cost, tol, max_steps):
    """Learn the sides and reorder ``part``: first the rows with a margin of 0 or less, then all others.

    Returns the separator (features in rising order, weights, bias) and the number of rows in the first group.
    """
    n_rows = len(part)
    n_positive = np.sum(side > 0)
    if n_positive in (0, n_rows):
        return np.empty(0, dtype=np.int32), np.empty(0), 0.0, 0
    costs = np.empty(n_rows)
    larger = max(n_positive, n_rows - n_positive)
    for at in range(n_rows):
        costs[at] = cost * larger / (n_positive if side[at] > 0 else n_rows - n_positive)
    features, indptr, local, data = _columns(rows, part, slot)
    w = np.zeros(len(features) + 1)
    margins = np.zeros(n_rows)
    l1_logistic(indptr, local, data, side, costs, tol, max_steps, w, margins)
    # From here on as a prediction sees it, weights in their stored type and sums in its order: rows train the leaves
    # that they will reach.
    w = w.astype(data.dtype).astype(np.float64)
    margins[:] = w[-1]
    kept = np.flatnonzero(w[:-1])
    kept = kept[np.argsort(features[kept])]
    for column in kept:
        for position in range(indptr[column], indptr[column + 1]):
            margins[local[position]] += w[column] * data[position]

    others = np.empty(n_rows, dtype=part.dtype)
    n_first, n_others = 0, 0
    for at in range(n_rows):
        if margins[at] > 0:
            others[n_others] = part[at]
            n_others += 1
        else:
            part[n_first] = part[at]
            n_first += 1
    part[n_first:] = others[:n_others]
    return features[kept].astype(np.int32), w[kept], w[-1], n_first


@compiled()
def _columns(rows, part, slot):
    """The rows in ``part`` by columns (those that have an entry, and a constant column of ones at the end)."""
    indptr, indices, data = rows
    total = 0
    for row in part:
        total += indptr[row + 1] - indptr[row]
    features = np.empty(min(total, len(slot)), dtype=np.int64)
    sizes = np.zeros(len(features) + 2, dtype=np.int64)
    count = 0
    for row in part:
        for position in range(indptr[row], indptr[row + 1]):
            feature = indices[position]
            if slot[feature] < 0:
                slot[feature] = count
                features[count] = feature
                count += 1
            sizes[slot[feature] + 1] += 1
    starts = np.cumsum(sizes[: count + 2])
    starts[count + 1] = starts[count] + len(part)
    free = starts.copy()
    local = np.empty(total + len(part), dtype=np.int32)
    values = np.empty(total + len(part), dtype=data.dtype)
    for at in range(len(part)):
        row = part[at]
        for position in range(indptr[row], indptr[row + 1]):
            column = slot[indices[position]]
            local[free[column]], values[free[column]] = at, data[position]
            free[column] += 1
        local[total + at], values[total + at] = at, 1
    slot[features[:count]] = -1
    return features[:count], starts, local, values


@compiled()
def _make_leaf(labels, gains, part, slot, leaf_labels, leaf_names, leaf_shares, begin):
    """Write the most frequent labels and their shares from ``begin`` on; returns the end and the nDCG missed."""
    indptr, indices = labels
    names = _labels_of(labels, part, slot)
    counts, scores, discounts = np.zeros(len(names)), np.zeros(len(names)), np.empty(len(names))
    for row in part:
        for position in range(indptr[row], indptr[row + 1]):
            counts[slot[indices[position]]] += 1
            scores[slot[indices[position]]] += gains[row]
    _discounts(scores, discounts)
    missed = 0.0
    for row in part:
        found = 0.0
        for position in range(indptr[row], indptr[row + 1]):
            found += discounts[slot[indices[position]]]
        missed += 1 - found * gains[row] if gains[row] > 0 else 0.0
    slot[names] = -1
    kept = np.sort(np.argsort(-counts, kind="mergesort")[:leaf_labels])
    end = begin + len(kept)
    leaf_names[begin:end] = names[kept]
    leaf_shares[begin:end] = counts[kept] / len(part)
    return end, missed
