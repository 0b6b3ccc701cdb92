"""What the tests of the contract share. Every model of the registry inherits all of them.

``make`` is every model in every variant, or only LEML and KNN where a test is marked ``of_base``, as the code under
test is that of the base class. Beside ``mask`` it is only those that learn from one. ``fitted`` is the model of
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
_OF_BASE = [make for make in FIRST_MAKERS if make.name in ("LEML", "KNN")]


def pytest_generate_tests(metafunc):
    if "make" not in metafunc.fixturenames:
        return
    found = _OF_BASE if metafunc.definition.get_closest_marker("of_base") else MAKERS
    if "mask" in metafunc.fixturenames:
        found = [make for make in found if make.learns_from_mask]
    slow = metafunc.definition.get_closest_marker("variants_slow")
    marks = [pytest.mark.slow if slow and make not in FIRST_MAKERS else () for make in found]
    metafunc.parametrize("make", [pytest.param(make, id=make.name, marks=mark) for make, mark in zip(found, marks)])


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
