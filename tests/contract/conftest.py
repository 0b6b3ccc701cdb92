"""The models under contract. A new model or baseline adds one line here and inherits every test of this folder."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML
from tagwise.exceptions import ConvergenceWarning

MODELS = {
    "LEML": lambda **changes: LEML(**{"rank": 3, "max_iter": 4, **changes}),
}


def pytest_generate_tests(metafunc):
    if "make" in metafunc.fixturenames:
        metafunc.parametrize("make", MODELS.values(), ids=MODELS.keys())


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
