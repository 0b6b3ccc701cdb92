import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagwise.kernels.vectors import dot_all, dot_columns
from tagwise.solvers.cg import conjugate_gradient


def positive_definite(size, seed, condition=100.0):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
    return basis @ np.diag(np.geomspace(1, condition, size)) @ basis.T


@given(st.integers(1, 12), st.integers(0, 999))
def test_finds_a_planted_solution(size, seed):
    matrix = positive_definite(size, seed)
    planted = np.random.default_rng(seed + 1).standard_normal((size, 3))
    for dtype, error in ((np.float64, 1e-8), (np.float32, 1e-2)):
        right = (matrix @ planted).astype(dtype)
        before = right.copy()
        result = conjugate_gradient(lambda s: matrix.astype(s.dtype) @ s, right, tol=1e-12, max_iter=200)
        assert result.solution.dtype == dtype
        np.testing.assert_allclose(result.solution, planted, atol=error)
        np.testing.assert_array_equal(right, before)


def test_every_step_lowers_the_quadratic():
    matrix = positive_definite(30, 0, condition=1e4)
    right = np.random.default_rng(1).standard_normal(30)
    values = []
    for steps in range(1, 15):
        s = conjugate_gradient(lambda s: matrix @ s, right, tol=0, max_iter=steps).solution
        values.append(0.5 * s @ matrix @ s - right @ s)
        # From 0, the fall is half the product of right side and solution: models use this as Newton decrement.
        assert values[-1] == pytest.approx(-0.5 * right @ s)
    assert (np.diff([0, *values]) < 0).all()


def test_reports_how_it_ended():
    matrix = positive_definite(30, 0, condition=1e6)
    right = np.ones(30)
    result = conjugate_gradient(lambda s: matrix @ s, right, tol=1e-10, max_iter=3)
    assert result.status == "max_iter"
    assert result.n_iter == 3
    residual = np.linalg.norm(matrix @ result.solution - right) / np.linalg.norm(right)
    assert result.relative_residual == pytest.approx(residual)
    assert conjugate_gradient(lambda s: -s, right, tol=0.1, max_iter=3).status == "not_positive"
    nothing = conjugate_gradient(lambda s: s, np.zeros(3), tol=0.1, max_iter=3)
    assert (nothing.status, nothing.n_iter) == ("converged", 0)


@pytest.mark.parametrize("inner", [dot_all, dot_columns])
def test_the_fall_is_that_of_the_quadratic(inner):
    matrix = positive_definite(30, 0, condition=1e3)
    right = np.random.default_rng(1).standard_normal((30, 4))
    result = conjugate_gradient(lambda s: matrix @ s, right, tol=0, max_iter=6, inner=inner)
    s = result.solution
    np.testing.assert_allclose(result.fall, inner(right, s) - 0.5 * inner(s, matrix @ s), rtol=1e-10)


def test_adds_to_an_array_in_place_of_keeping_one_more():
    matrix = positive_definite(20, 0)
    right = np.random.default_rng(1).standard_normal((20, 3))
    start = np.random.default_rng(2).standard_normal((20, 3))
    apart = conjugate_gradient(lambda s: matrix @ s, right, tol=0, max_iter=5)
    added = start.copy()
    together = conjugate_gradient(lambda s: matrix @ s, right, tol=0, max_iter=5, add_to=added)
    assert together.solution is added
    np.testing.assert_allclose(added, start + apart.solution, rtol=1e-12)
    assert (together.status, together.n_iter) == (apart.status, apart.n_iter)


def test_a_right_side_that_overflows_is_told_and_leaves_the_others_alone():
    right = np.array([[1.0, 1e200], [2.0, 1e200]])
    found = conjugate_gradient(lambda s: 2 * s, right, tol=1e-10, max_iter=5, inner=dot_columns)
    assert found.status == "not_finite"
    np.testing.assert_allclose(found.solution, [[0.5, 0], [1, 0]])
