"""What the tests of the contract share. Every model of the registry inherits all of them.

``make`` is every model in every variant, or only in its first one where a test is marked ``per_class`` as the code
under test is that of the base class; where it is marked ``variants_slow``, the other variants are of the slow run.
Beside ``mask`` it is only those that learn from one, and ``make_maskless`` is all others. ``fitted`` is the model of
``make``, fitted to ``problem`` once for all tests.
"""

import warnings
from copy import deepcopy

import numpy as np
import pytest
import scipy.sparse as sp
from contract_models import FIRST_MAKERS, MAKERS

from tagwise.exceptions import ConvergenceWarning

_FITTED = {}


def pytest_generate_tests(metafunc):
    makers = FIRST_MAKERS if metafunc.definition.get_closest_marker("per_class") else MAKERS
    learners = [make for make in makers if make.learns_from_mask]
    others = [make for make in makers if not make.learns_from_mask]
    chosen = {"make": learners if "mask" in metafunc.fixturenames else makers, "make_maskless": others}
    for fixture, found in chosen.items():
        if fixture in metafunc.fixturenames:
            slow = [
                metafunc.definition.get_closest_marker("variants_slow") and make not in FIRST_MAKERS for make in found
            ]
            marks = [pytest.mark.slow if other else () for other in slow]
            metafunc.parametrize(
                fixture, [pytest.param(make, id=make.name, marks=mark) for make, mark in zip(found, marks)]
            )


@pytest.fixture(autouse=True)
def _short_fits_do_not_converge():
    """The contract is about behaviour, not about optima: its fits are too short to converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@pytest.fixture
def problem():
    """60 rows, 12 features, 7 labels that depend on the features; sparse; some rows and labels are empty."""
    rng = np.random.default_rng(0)
    X = sp.random(60, 12, 0.4, format="csr", random_state=1, dtype=np.float64)
    truth = rng.standard_normal((12, 7))
    Y = sp.csr_matrix((X @ truth > 0.6).astype(np.float64))
    return X, Y


@pytest.fixture
def mask(problem):
    """Four of ten label entries are known."""
    return sp.csr_matrix((np.random.default_rng(5).random(problem[1].shape) < 0.4).astype(np.int8))


@pytest.fixture
def fitted(make, problem):
    """The model fitted to the problem, as a copy that the test may change."""
    if make.name not in _FITTED:
        _FITTED[make.name] = make().fit(*problem)
    return deepcopy(_FITTED[make.name])
