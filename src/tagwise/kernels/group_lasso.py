"""Group lasso, row by row, on a Gram matrix that all rows share: working sets, coordinate descent, safe screening.

For a row x and a dictionary C (R×p) whose atoms fall into groups, with G = CCᵀ and c = Cx, each row minimises

    ½‖x − βC‖² + λ Σ_g ‖β_g‖ = ½‖x‖² − c·β + ½ βGβ + λ Σ_g ‖β_g‖,

which needs x no more once c and ‖x‖² are known. With ρ = x − βC and the correlations Cρ = c − Gβ, every multiple sρ of
the residual with |s|·‖C_g ρ‖ ≤ λ in all groups is a feasible dual point of value s ρ·x − ½s²‖ρ‖²; the best such s gives
the duality gap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tagwise.kernels.compiled import compiled

__all__ = ["GroupedGram", "solve_group_lasso"]

# Violating groups that join a working set at a time, unless the solution is larger than that itself.
_LEAST_JOINING = 8
# A gap costs about as much as a pass over the working set.
_PASSES_PER_GAP = 5
# A working set is solved to this share of the gap of the whole problem: more would be wasted on the wrong set.
_INNER_SHARE = 0.1
# And, near the end, below the wanted gap, so that the gap of the whole problem has some room.
_INNER_MARGIN = 0.5

# Where atoms of different groups are nearly parallel, coordinate descent alone may take tens of thousands of passes. A
# Newton step on the m coefficients in use costs as much as some m/3 passes, so one comes after m passes, and not before
# so many.
_LEAST_PATIENCE = 20
_HALVINGS = 8
# Added to the Newton system, relative to its largest diagonal entry: it may be singular.
_RIDGE = 1e-11

# A gap is the difference of two numbers of the size of ‖x‖², so it is only known to this share of that.
_ROUNDING = 1e-14

# Sums may be reordered into vector registers; the order is fixed at compile time, so a row's result is always the same.
_FAST = {"reassoc", "contract", "nsz"}


class GroupedGram(NamedTuple):
    """G (R×R), the borders ``starts`` (groups + 1) of its groups, none of them empty, and their ``curvature`` (groups).

    The curvature of a group is the largest eigenvalue of its diagonal block.
    """

    gram: np.ndarray
    starts: np.ndarray
    curvature: np.ndarray


@compiled(fastmath=_FAST)
def solve_group_lasso(correlations, squared_norms, grouped, reg, tol, max_passes, found):
    """Solve for every row of ``correlations`` (n×R); rows know nothing of one another.

    Row i stops at a duality gap of at most ``tol`` · ½‖x_i‖² or after ``max_passes`` over its working sets. ``found`` =
    (coefficients (n×R), gaps, passes, screened groups (n each)) takes the results.

    Steps: find the gap; drop the groups that no solution can use (gap-safe sphere: |s|·‖C_g ρ‖ + √(2·gap)·‖C_g‖ < λ);
    take those in use and the worst violators of ‖C_g ρ‖ ≤ λ as the working set; descend on it, with its part of the
    Gram matrix copied together, and with Newton steps where that takes long; repeat. Time O(R) for each
    coefficient in use at each change of the working set, and O(w) for each that changes in a pass over w atoms.
    """
    gram, starts, _ = grouped
    coefficients, gaps, passes, screened = found
    n_rows, n_atoms = correlations.shape
    n_groups = len(starts) - 1
    gradient = np.empty(n_atoms)
    norms = np.empty(n_groups)
    in_play = np.empty(n_groups, dtype=np.bool_)
    chosen = np.empty(n_groups, dtype=np.bool_)
    for row in range(n_rows):
        c, beta, squared = correlations[row], coefficients[row], squared_norms[row]
        wanted = tol * 0.5 * squared
        beta[:] = 0
        gradient[:] = c
        in_play[:] = True
        done = 0
        while True:
            gap, scale = _gap(c, gradient, beta, squared, starts, reg, in_play, norms)
            if gap <= wanted or done >= max_passes:
                break
            _screen(grouped, beta, squared, reg, gap, scale, in_play, norms)
            size = _choose(beta, starts, reg, in_play, norms, chosen)
            until = max(_INNER_MARGIN * wanted, _INNER_SHARE * gap), max_passes - done
            done += _solve_working_set(grouped, c, squared, reg, until, chosen, size, beta)
            gradient[:] = c
            for atom in range(n_atoms):
                if beta[atom] != 0:
                    _subtract(gradient, beta[atom], gram[atom])
        gaps[row] = gap
        passes[row] = done
        screened[row] = n_groups - in_play.sum()


@compiled(inner=True, fastmath=_FAST)
def _subtract(target, factor, values):
    for i in range(len(target)):
        target[i] -= factor * values[i]


@compiled(fastmath=_FAST)
def _gap(c, gradient, beta, squared, starts, reg, in_play, norms):
    """The duality gap over the groups in play and the scale s of the dual point; sets ``norms`` to ‖C_g ρ‖."""
    fitted, rest, penalty, largest = 0.0, 0.0, 0.0, 0.0
    for group in range(len(starts) - 1):
        if not in_play[group]:
            continue
        here, own = 0.0, 0.0
        for atom in range(starts[group], starts[group + 1]):
            here += gradient[atom] * gradient[atom]
            own += beta[atom] * beta[atom]
            fitted += beta[atom] * c[atom]
            rest += beta[atom] * gradient[atom]
        norms[group] = np.sqrt(here)
        penalty += np.sqrt(own)
        largest = max(largest, norms[group])
    against_row = squared - fitted
    residual = max(squared - fitted - rest, 0.0)
    scale = 1.0 if residual == 0 else against_row / residual
    if largest > 0:
        scale = min(max(scale, -reg / largest), reg / largest)
    primal = 0.5 * residual + reg * penalty
    dual = scale * against_row - 0.5 * scale * scale * residual
    return max(primal - dual, 0.0), scale


@compiled()
def _screen(grouped, beta, squared, reg, gap, scale, in_play, norms):
    """Take groups out of play that are zero in every solution."""
    _, starts, curvature = grouped
    radius = np.sqrt(2 * (gap + _ROUNDING * squared))
    for group in range(len(starts) - 1):
        if in_play[group] and abs(scale) * norms[group] + radius * np.sqrt(curvature[group]) < reg:
            in_play[group] = False
            beta[starts[group] : starts[group + 1]] = 0


@compiled(inner=True)
def _choose(beta, starts, reg, in_play, norms, chosen):
    """Mark the working set: groups in use, and the worst violators; returns its number of atoms."""
    size, in_use, violating = 0, 0, 0
    for group in range(len(starts) - 1):
        chosen[group] = False
        if not in_play[group]:
            continue
        for atom in range(starts[group], starts[group + 1]):
            if beta[atom] != 0:
                chosen[group] = True
        if chosen[group]:
            size += starts[group + 1] - starts[group]
            in_use += 1
        elif norms[group] > reg:
            violating += 1
    for _ in range(min(violating, max(_LEAST_JOINING, in_use))):
        worst, height = -1, reg
        for group in range(len(starts) - 1):
            if in_play[group] and not chosen[group] and norms[group] > height:
                worst, height = group, norms[group]
        chosen[worst] = True
        size += starts[worst + 1] - starts[worst]
    return size


@compiled(inner=True, fastmath=_FAST)
def _solve_working_set(grouped, c, squared, reg, until, chosen, size, beta):
    """Descend on the chosen groups ``until`` = (their own gap, number of passes); returns the number of passes."""
    gram, starts, curvature = grouped
    wanted, max_passes = until
    n_groups = chosen.sum()
    atoms = np.empty(size, dtype=np.int64)
    local_starts = np.zeros(n_groups + 1, dtype=np.int64)
    local_curvature = np.empty(n_groups)
    place, number = 0, 0
    for group in range(len(chosen)):
        if chosen[group]:
            for atom in range(starts[group], starts[group + 1]):
                atoms[place] = atom
                place += 1
            local_curvature[number] = curvature[group]
            number += 1
            local_starts[number] = place
    local_gram = np.empty((size, size))
    local_c, local_beta, gradient, change = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    for i in range(size):
        local_c[i] = c[atoms[i]]
        local_beta[i] = beta[atoms[i]]
        for j in range(size):
            local_gram[i, j] = gram[atoms[i], atoms[j]]
    gradient[:] = local_c
    for i in range(size):
        if local_beta[i] != 0:
            _subtract(gradient, local_beta[i], local_gram[i])
    everything, norms = np.ones(n_groups, dtype=np.bool_), np.empty(n_groups)
    done, since_newton = 0, 0
    while done < max(max_passes, 1):
        moved = False
        for _ in range(_PASSES_PER_GAP):
            done += 1
            since_newton += 1
            moved = _one_pass(local_gram, local_starts, local_curvature, reg, local_beta, gradient, change)
            if not moved:
                break
        in_use = np.count_nonzero(local_beta)
        if moved and since_newton >= _LEAST_PATIENCE and since_newton >= in_use:
            # A step that ends where a group vanishes is short; the next one goes on without that group. A pass in
            # between would bring it back.
            while _newton_step(local_gram, local_starts, reg, local_beta, gradient):
                pass
            since_newton = 0
        if not moved or _gap(local_c, gradient, local_beta, squared, local_starts, reg, everything, norms)[0] <= wanted:
            break
    for i in range(size):
        beta[atoms[i]] = local_beta[i]
    return done


@compiled(fastmath=_FAST)
def _one_pass(gram, starts, curvature, reg, beta, gradient, change):
    """One proximal step in each group, the exact minimum where its atoms are orthonormal; returns whether any moved."""
    moved = False
    for group in range(len(starts) - 1):
        begin, end = starts[group], starts[group + 1]
        length = 0.0
        for atom in range(begin, end):
            change[atom] = curvature[group] * beta[atom] + gradient[atom]
            length += change[atom] * change[atom]
        length = np.sqrt(length)
        shrink = (1 - reg / length) / curvature[group] if length > reg else 0.0
        # Every step of the group is known before the first one changes the gradient.
        for atom in range(begin, end):
            new = shrink * change[atom]
            change[atom] = new - beta[atom]
            beta[atom] = new
        for atom in range(begin, end):
            if change[atom] != 0:
                moved = True
                _subtract(gradient, change[atom], gram[atom])
    return moved


@compiled(inner=True, fastmath=_FAST)
def _newton_step(gram, starts, reg, beta, gradient):
    """One damped Newton step over the groups in use, where the objective is smooth; only taken if it lowers it.

    Group g contributes λ(I/‖β_g‖ − β_g β_gᵀ/‖β_g‖³) to the Hessian, beside the Gram matrix. A group that the step would
    carry beyond zero ends at zero; returns whether there was one.
    """
    atoms = np.flatnonzero(beta)
    size = len(atoms)
    system, step, trial = np.empty((size, size)), np.empty(size), np.empty(size)
    for i in range(size):
        step[i] = gradient[atoms[i]]
        for j in range(i + 1):
            system[i, j] = gram[atoms[i], atoms[j]]
    place = 0
    for group in range(len(starts) - 1):
        first = place
        length = 0.0
        while place < size and atoms[place] < starts[group + 1]:
            length += beta[atoms[place]] * beta[atoms[place]]
            place += 1
        length = np.sqrt(length)
        for i in range(first, place):
            value = beta[atoms[i]] / length
            step[i] -= reg * value
            system[i, i] += reg / length
            for j in range(first, i + 1):
                system[i, j] -= reg * value * beta[atoms[j]] / (length * length)
    if size == 0 or not _solve_symmetric(system, step):
        return False
    for _ in range(_HALVINGS):
        vanishing, longest = _stop_at_zero(starts, beta, atoms, step, trial)
        if _change(gram, starts, reg, beta, gradient, atoms, trial) < 0:
            for i in range(size):
                # A sum that is meant to be zero must be zero exactly, to be known as unused.
                beta[atoms[i]] = 0.0 if trial[i] == -beta[atoms[i]] else beta[atoms[i]] + trial[i]
                _subtract(gradient, trial[i], gram[atoms[i]])
            return vanishing
        # First back to where one group is zero: where the system is nearly singular the step may be far too long.
        step *= longest if longest < 0.5 else 0.5
    return False


@compiled(inner=True)
def _stop_at_zero(starts, beta, atoms, step, trial):
    """``step``, but −β_g in groups where β_g + step is at no acute angle to β_g.

    Returns whether there is such a group, and the share of the step at which the first one gets there.
    """
    place, size, longest, vanishing = 0, len(atoms), 1.0, False
    for group in range(len(starts) - 1):
        first, squared, along = place, 0.0, 0.0
        while place < size and atoms[place] < starts[group + 1]:
            squared += beta[atoms[place]] ** 2
            along += beta[atoms[place]] * step[place]
            place += 1
        if place > first and squared + along <= 0:
            vanishing = True
            longest = min(longest, squared / -along)
            for i in range(first, place):
                trial[i] = -beta[atoms[i]]
        else:
            trial[first:place] = step[first:place]
    # A little further than the first of them, so that rounding does not leave it in use.
    return vanishing, longest * (1 + 1e-9)


@compiled(inner=True, fastmath=_FAST)
def _change(gram, starts, reg, beta, gradient, atoms, step):
    """By how much the objective changes with a step in some atoms."""
    change, place, size = 0.0, 0, len(atoms)
    for group in range(len(starts) - 1):
        before, after = 0.0, 0.0
        while place < size and atoms[place] < starts[group + 1]:
            atom = atoms[place]
            moved = beta[atom] + step[place]
            before += beta[atom] * beta[atom]
            after += moved * moved
            along = 0.0
            for j in range(size):
                along += gram[atom, atoms[j]] * step[j]
            change += step[place] * (0.5 * along - gradient[atom])
            place += 1
        change += reg * (np.sqrt(after) - np.sqrt(before))
    return change


@compiled(inner=True, fastmath=_FAST)
def _solve_symmetric(system, right):
    """Solve in place by Cholesky, from the lower triangle; False, with ``right`` spoilt, if it is not positive."""
    size = len(right)
    largest = 0.0
    for i in range(size):
        largest = max(largest, system[i, i])
    for i in range(size):
        for j in range(i + 1):
            total = system[i, j]
            for k in range(j):
                total -= system[i, k] * system[j, k]
            if i > j:
                system[i, j] = total / system[j, j]
            else:
                total += _RIDGE * largest
                if not total > 0:
                    return False
                system[i, i] = np.sqrt(total)
    for i in range(size):
        for k in range(i):
            right[i] -= system[i, k] * right[k]
        right[i] /= system[i, i]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            right[i] -= system[k, i] * right[k]
        right[i] /= system[i, i]
    return True
