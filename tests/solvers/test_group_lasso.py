"""Group lasso: agreement with a long proximal run, gaps, safe screening, closed forms, and rows that stay strangers."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_kernels import accelerated_group_lasso, group_lasso_gap, group_lasso_objective

from tagwise.exceptions import InvalidInputError
from tagwise.kernels import group_lasso as kernel
from tagwise.solvers.group_lasso import GroupDictionary, group_lasso, group_one_norms


def random_dictionary(seed, sizes=(3, 1, 4, 2, 3, 2), p=20, *, alike=0.5, orthonormal=True):
    """Groups of atoms around a few directions that all share, which makes them as alike as subspaces of labels are."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((max(sizes), p))
    groups = []
    for size in sizes:
        atoms = alike * common[:size] + (1 - alike) * rng.standard_normal((size, p))
        groups.append(np.linalg.qr(atoms.T)[0].T if orthonormal else atoms / 3)
    return np.concatenate(groups), np.concatenate([[0], np.cumsum(sizes)])


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def rows_near(atoms, n, seed=0):
    rng = np.random.default_rng(seed)
    return unit(rng.standard_normal((n, len(atoms))) @ atoms + rng.standard_normal((n, atoms.shape[1])))


@settings(max_examples=30)
@given(
    st.integers(0, 10**6), st.floats(0.02, 0.8), st.sampled_from([0.0, 0.5, 0.9, 0.99]), st.booleans(), st.booleans()
)
def test_the_objective_agrees_with_a_long_proximal_run_to_a_millionth(seed, reg, alike, orthonormal, few):
    sizes = (2, 3) if few else (3, 1, 4, 2, 3, 2)
    atoms, starts = random_dictionary(seed, sizes, alike=alike, orthonormal=orthonormal)
    X = rows_near(atoms, 5, seed)
    found = group_lasso(X, GroupDictionary.build(atoms, starts), reg, tol=1e-9)
    assert found.converged
    value = group_lasso_objective(X, atoms, starts, reg, found.coefficients)
    long = accelerated_group_lasso(X, atoms, starts, reg, tol=1e-9, max_iter=20_000)
    np.testing.assert_allclose(value, group_lasso_objective(X, atoms, starts, reg, long), atol=1e-6)
    # The gap is a proof of its own: it is made from rows and atoms here, and from the Gram matrix there.
    gap = group_lasso_gap(X, atoms, starts, reg, found.coefficients)
    assert (gap <= 0.5e-9 + 1e-13).all()
    assert (gap >= -1e-13).all()


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.1, 0.7), st.integers(0, 40))
def test_a_screened_group_is_zero_in_the_solution(seed, reg, steps):
    atoms, starts = random_dictionary(seed, (2,) * 8)
    X = rows_near(atoms, 1, seed)
    gram, c = atoms @ atoms.T, (X @ atoms.T)[0]
    n_groups = len(starts) - 1
    beta, change = np.zeros(len(c)), np.empty(len(c))
    gradient = c.copy()
    for _ in range(steps):
        kernel._one_pass(gram, starts, np.ones(n_groups), reg, beta, gradient, change)
    in_play, norms = np.ones(n_groups, dtype=bool), np.empty(n_groups)
    gap, scale = kernel._gap(c, gradient, beta, 1.0, starts, reg, in_play, norms)
    assert gap == pytest.approx(group_lasso_gap(X, atoms, starts, reg, beta[None])[0], abs=1e-12)
    kernel._screen(kernel.GroupedGram(gram, starts, np.ones(n_groups)), beta, 1.0, reg, gap, scale, in_play, norms)
    solution = accelerated_group_lasso(X, atoms, starts, reg, tol=1e-12, max_iter=20_000)[0]
    in_use = np.sqrt(np.add.reduceat(solution**2, starts[:-1])) > 1e-5
    assert not (in_use & ~in_play).any()


def test_optimality_conditions():
    atoms, starts = random_dictionary(2)
    X = rows_near(atoms, 20)
    reg = 0.15
    beta = group_lasso(X, GroupDictionary.build(atoms, starts), reg, tol=1e-12).coefficients
    correlation = (X - beta @ atoms) @ atoms.T
    for a, b in pairwise(starts):
        length = np.linalg.norm(beta[:, a:b], axis=1)
        used = length > 1e-4
        np.testing.assert_allclose(correlation[used, a:b], reg * beta[used, a:b] / length[used, None], atol=1e-4)
        assert (np.linalg.norm(correlation[:, a:b], axis=1) <= reg + 1e-5).all()


def test_one_orthonormal_group_is_a_soft_threshold():
    atoms, starts = random_dictionary(3, (4,))
    c = rows_near(atoms, 10) @ atoms.T
    length = np.linalg.norm(c, axis=1, keepdims=True)
    dictionary = GroupDictionary.build(atoms, starts)
    for reg in (0.4, 0.999 * length.max(), 1.0001 * length.max()):
        found = group_lasso(c @ atoms, dictionary, reg, tol=1e-12).coefficients
        np.testing.assert_allclose(found, np.maximum(0, 1 - reg / length) * c, atol=1e-12)


def test_groups_that_are_nearly_one_subspace_converge_in_few_passes():
    """Coordinate descent alone, or Newton steps that stop at the first vanishing group, took 20,000 and more."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal((3, 30))
    groups = [
        np.linalg.qr(np.vstack([common + 3e-3 * rng.standard_normal((3, 30)), rng.standard_normal((2, 30))]).T)[0].T
        for _ in range(6)
    ]
    atoms, starts = np.concatenate(groups), np.arange(0, 31, 5)
    X = unit(rng.standard_normal((50, 3)) @ common + 0.1 * rng.standard_normal((50, 30)))
    found = group_lasso(X, GroupDictionary.build(atoms, starts), 0.1, tol=1e-8)
    assert found.converged
    assert found.passes.max() < 1500
    assert group_lasso_gap(X, atoms, starts, 0.1, found.coefficients).max() <= 0.5e-8 + 1e-13


def test_a_row_has_the_same_bits_alone_in_company_and_in_any_form_or_number_of_threads():
    atoms, starts = random_dictionary(5)
    X = rows_near(atoms, 200) * (np.random.default_rng(1).random((200, 20)) < 0.7)
    dictionary = GroupDictionary.build(atoms, starts)
    together = group_lasso(X, dictionary, 0.1)
    assert together.screened.mean() > 0.5
    np.testing.assert_array_equal(group_lasso(sp.csr_matrix(X), dictionary, 0.1).coefficients, together.coefficients)
    expected = np.add.reduceat(np.abs(together.coefficients), starts[:-1], axis=1)
    for n_threads in (1, 3):
        norms, gap, converged = group_one_norms(X, dictionary, 0.1, n_threads=n_threads)
        np.testing.assert_array_equal(norms, expected)
        np.testing.assert_array_equal(gap, together.gap)
        assert converged
    for row in (0, 63, 64, 199):
        alone = group_lasso(X[row : row + 1], dictionary, 0.1)
        np.testing.assert_array_equal(alone.coefficients[0], together.coefficients[row])
    reverse = group_lasso(X[::-1], dictionary, 0.1)
    np.testing.assert_array_equal(reverse.coefficients[::-1], together.coefficients)


def test_rows_of_zeros_and_too_few_passes():
    atoms, starts = random_dictionary(8)
    dictionary = GroupDictionary.build(atoms, starts)
    nothing = group_lasso(np.zeros((2, 20)), dictionary, 0.1)
    assert (nothing.coefficients == 0).all()
    assert nothing.converged
    short = group_lasso(rows_near(atoms, 20), dictionary, 0.01, tol=1e-12, max_iter=1)
    assert not short.converged
    assert short.gap.max() > 1e-12


def test_bad_input():
    atoms, starts = random_dictionary(9)
    dictionary = GroupDictionary.build(atoms, starts)
    X = rows_near(atoms, 3)
    with pytest.raises(InvalidInputError, match="X overflows"), np.errstate(over="ignore"):
        group_lasso(1e200 * X, dictionary, 0.1)
    for wrong in (starts[1:], starts[:-1], starts[:, None]):
        with pytest.raises(InvalidInputError, match="starts must lead from 0"):
            GroupDictionary.build(atoms, wrong)
    with pytest.raises(InvalidInputError, match="starts must rise"):
        GroupDictionary.build(atoms, np.insert(starts, 1, 0))
    with pytest.raises(InvalidInputError, match="nothing but zeros"):
        GroupDictionary.build(np.vstack([atoms, np.zeros((1, 20))]), np.append(starts, starts[-1] + 1))
