"""Trees of FastXML (Prabhu & Varma 2014): growing one, and sending rows through a forest of them.

A node splits in three steps. Rows start on random sides; in turn each side ranks the labels by the weighted number of
its rows that have them, and each row moves to the side whose ranking has the larger nDCG for its own labels, until none
moves. Then a sparse linear separator learns the sides, and the node's rows go where it sends them.

The separator is a logistic regression with a 1-norm penalty, F(w) = ‖w‖₁ + Σ_i c_i·log(1 + exp(−y_i·(Xw)_i)), by
proximal Newton steps. Each outer step takes the columns that violate optimality or carry a weight, lowers the quadratic
model of F over them by cyclic coordinate descent with exact soft-threshold steps, and moves along the direction found
as far as a backtracking line search allows (the scheme of newGLMNET: Yuan, Ho, Lin 2012).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tagwise.kernels.compiled import compiled
from tagwise.kernels.random_stream import next_bits, random_stream
from tagwise.kernels.vectors import sigmoid

__all__ = ["Growth", "build_tree", "find_leaves", "ideal_gains", "l1_logistic", "mean_leaves"]

_MOST_ROUNDS = 50
_LOW_BIT = np.uint64(1)

_SUFFICIENT_FALL = 0.01
_MOST_HALVINGS = 20
_MOST_SWEEPS = 10
# The quadratic model is solved to this share of the outer violation: steps get more exact as they get smaller.
_INNER_SHARE = 0.1
# Keeps the curvature of a column whose rows are all decided above 0.
_LEAST_CURVATURE = 1e-12


class Growth(NamedTuple):
    """When a node is a leaf and how its separator is learnt.

    ``cost`` is that of a row of the larger side in the separator; rows of the smaller side weigh as much together. A
    leaf has at most ``max_leaf`` rows, unless they cannot be separated, and keeps ``leaf_labels`` labels. A separator
    ends at a violation of ``tol`` times that at its start or after ``max_steps``.
    """

    cost: float
    max_leaf: int
    leaf_labels: int
    tol: float
    max_steps: int


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
def build_tree(rows, labels, gains, n_columns, growth, seed, number):
    """Grow one tree on all rows.

    Parameters
    ----------
    rows, labels : (indptr, indices, data) of X (n×d) and (indptr, indices) of Y (n×L)
    gains : array (n,), see :func:`ideal_gains`
    n_columns : int
        The larger of the numbers of features and labels.
    growth : Growth
    seed, number : int
        Of the random stream: that of all trees, and the tree's own.

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
    slot = np.full(n_columns, -1, dtype=np.int64)
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
        if len(part) > growth.max_leaf:
            side = _rank_sides(labels, gains, part, slot, stream)
            features, w, bias, middle = _separate(rows, part, side, slot, growth)
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
            kept = (leaf_names, leaf_shares, growth.leaf_labels)
            end, missed = _make_leaf(labels, gains, part, slot, kept, begin)
            leaf_indptr[n_leaves + 1] = end
            lost += missed
            n_leaves += 1
        if parent >= 0:
            children[parent, branch] = place
    used, filled = weight_indptr[n_nodes], leaf_indptr[n_leaves]
    return (
        children[:n_nodes].copy(),
        weight_indptr[: n_nodes + 1].copy(),
        weight_features[:used].copy(),
        weights[:used].copy(),
        biases[:n_nodes].copy(),
        leaf_indptr[: n_leaves + 1].copy(),
        leaf_names[:filled].copy(),
        leaf_shares[:filled].copy(),
        lost,
    )


@compiled(inner=True)
def _grown(values, room):
    grown = np.empty(room, dtype=values.dtype)
    grown[: len(values)] = values
    return grown


@compiled(inner=True)
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


@compiled(inner=True)
def _discounts(scores, discounts):
    """1 / log₂(1 + rank) of each label in the order of its score, ties to the first; 0 for labels that nobody has."""
    discounts[:] = 0
    ranking = np.argsort(-scores, kind="mergesort")
    for place in range(len(ranking)):
        if scores[ranking[place]] <= 0:
            break
        discounts[ranking[place]] = 1 / np.log2(place + 2)


@compiled(inner=True)
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


@compiled(inner=True)
def _separate(rows, part, side, slot, growth):
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
        costs[at] = growth.cost * larger / (n_positive if side[at] > 0 else n_rows - n_positive)
    features, indptr, local, data = _columns(rows, part, slot)
    w = np.zeros(len(features) + 1)
    margins = np.zeros(n_rows)
    l1_logistic((indptr, local, data), side, costs, growth.tol, growth.max_steps, w, margins)
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


@compiled(inner=True)
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


@compiled(inner=True)
def _make_leaf(labels, gains, part, slot, kept, begin):
    """Write the most frequent labels and their shares from ``begin`` on; returns the end and the nDCG missed."""
    indptr, indices = labels
    leaf_names, leaf_shares, leaf_labels = kept
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
    first = np.sort(np.argsort(-counts, kind="mergesort")[:leaf_labels])
    end = begin + len(first)
    leaf_names[begin:end] = names[first]
    leaf_shares[begin:end] = counts[first] / len(part)
    return end, missed


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


@compiled()
def l1_logistic(columns, y, cost, tol, max_iter, w, margins):
    """Change ``w`` (columns) and ``margins`` = Xw (rows) in place, from any start; returns the steps taken.

    ``columns`` = (indptr, rows, data) is X by columns, y is ±1, ``cost`` is c. Ends when the sum of the violations
    of optimality is at most ``tol`` times that at the start, or after ``max_iter`` steps.
    """
    indptr, rows, data = columns
    n_rows, n_columns = len(y), len(w)
    slope = np.empty(n_rows)
    weight = np.empty(n_rows)
    change = np.empty(n_rows)
    gradient = np.empty(n_columns)
    curvature = np.empty(n_columns)
    direction = np.zeros(n_columns)
    working = np.empty(n_columns, dtype=np.int64)
    at_start = -1.0
    for step in range(max_iter):
        for i in range(n_rows):
            probability = sigmoid(-y[i] * margins[i])
            slope[i] = -cost[i] * y[i] * probability
            weight[i] = cost[i] * probability * (1 - probability)
        violation, n_working = 0.0, 0
        for column in range(n_columns):
            total = 0.0
            for position in range(indptr[column], indptr[column + 1]):
                total += slope[rows[position]] * data[position]
            gradient[column] = total
            excess = _violation(total, w[column])
            violation += excess
            if excess > 0 or w[column] != 0:
                working[n_working] = column
                n_working += 1
                squares = 0.0
                for position in range(indptr[column], indptr[column + 1]):
                    squares += weight[rows[position]] * np.float64(data[position]) ** 2
                curvature[column] = max(squares, _LEAST_CURVATURE)
        if at_start < 0:
            at_start = violation
        if violation <= tol * at_start:
            return step
        change[:] = 0
        model = gradient, curvature, weight
        _lower_model(columns, model, working[:n_working], w, direction, change, violation)
        moved = _search(y, cost, margins, change, gradient, working[:n_working], w, direction)
        for at in range(n_working):
            direction[working[at]] = 0
        if not moved:
            return step + 1
    return max_iter


@compiled(inner=True)
def _log_loss(score):
    """log(1 + e^{score}), without overflow."""
    return max(score, 0.0) + np.log1p(np.exp(-abs(score)))


@compiled(inner=True)
def _violation(gradient, weight):
    """Distance of 0 from the subgradient of F in one column."""
    if weight > 0:
        return abs(gradient + 1)
    if weight < 0:
        return abs(gradient - 1)
    return max(0.0, abs(gradient) - 1)


@compiled(inner=True)
def _lower_model(columns, model, working, w, direction, change, violation):
    """Coordinate descent on the quadratic model; ``direction`` and ``change`` = X·direction start at 0."""
    indptr, rows, data = columns
    gradient, curvature, weight = model
    for _ in range(_MOST_SWEEPS):
        moved = 0.0
        for column in working:
            slope = gradient[column]
            for position in range(indptr[column], indptr[column + 1]):
                row = rows[position]
                slope += weight[row] * change[row] * data[position]
            here = w[column] + direction[column]
            target = here - slope / curvature[column]
            shrunk = max(abs(target) - 1 / curvature[column], 0.0)
            step = (shrunk if target > 0 else -shrunk) - here
            if step != 0:
                moved += abs(step) * curvature[column]
                direction[column] += step
                for position in range(indptr[column], indptr[column + 1]):
                    change[rows[position]] += step * data[position]
        if moved <= _INNER_SHARE * violation:
            return


@compiled(inner=True)
def _search(y, cost, margins, change, gradient, working, w, direction):
    """Halve the step until F falls enough, and take it; returns False where rounding leaves no step that falls."""
    expected = 0.0
    for column in working:
        expected += gradient[column] * direction[column] + abs(w[column] + direction[column]) - abs(w[column])
    if expected >= 0:
        return False
    share = 1.0
    for _ in range(_MOST_HALVINGS):
        fall = 0.0
        for i in range(len(y)):
            if change[i] != 0:
                before = _log_loss(-y[i] * margins[i])
                fall += cost[i] * (_log_loss(-y[i] * (margins[i] + share * change[i])) - before)
        for column in working:
            fall += abs(w[column] + share * direction[column]) - abs(w[column])
        if fall <= _SUFFICIENT_FALL * share * expected:
            for column in working:
                w[column] += share * direction[column]
            for i in range(len(y)):
                margins[i] += share * change[i]
            return True
        share *= 0.5
    return False
