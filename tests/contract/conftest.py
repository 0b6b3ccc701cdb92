"""The models under contract. A new model or baseline adds one line here and inherits every test of this folder."""

import inspect
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML, MSE, REML, BinaryRelevance, Cascade
from tagwise.baselines import (
    CPLST,
    KNN,
    LPSR,
    MDDM,
    MLCSSP,
    MLKNN,
    PLST,
    SLEEC,
    WSABIE,
    BayesianCS,
    CompressedSensing,
    FastXML,
)
from tagwise.exceptions import ConvergenceWarning
from tagwise.registry import info_of

# What the tests change in any model, though not every model has it.
OPTIONAL = {"rank", "random_state", "max_iter", "n_neighbors"}


def short(model_class, **defaults):
    """A maker of models with these parameters, which passes over optional ones that the class does not have."""
    accepted = set(inspect.signature(model_class).parameters)

    def make(**changes):
        given = {**defaults, **changes}
        return model_class(**{name: given[name] for name in given if name in accepted or name not in OPTIONAL})

    make.parameters = accepted
    make.learns_from_mask = info_of(model_class).learns_from_mask
    return make


MODELS = {
    "MSE": short(MSE, subspace_rank=2, max_iter=4, memory_limit=2**24),
    "MSE-svd": short(MSE, subspace_rank=2, max_iter=4, decomposition="svd", memory_limit=2**24),
    "LEML": short(LEML, rank=3, max_iter=4),
    "LEML-logistic": short(LEML, rank=3, max_iter=4, loss="logistic", reg=0.1),
    "LEML-squared_hinge": short(LEML, rank=3, max_iter=4, loss="squared_hinge", reg=0.1),
    "LEML-rbf": short(LEML, rank=3, max_iter=4, kernel="rbf", gamma=1.0, memory_limit=2**21),
    "REML": short(REML, rank=3, max_iter=4),
    "REML-support": short(REML, rank=3, max_iter=4, sparse_part="support", support=5),
    "REML-admm": short(
        REML, rank=3, max_iter=4, sparse_part="admm", sparsity=0.5, positive_weight=2.0, memory_limit=2**23
    ),
    "Cascade": short(Cascade, rank=3, max_iter=4, support=5, shortlist=4, hard_negatives=3),
    "Cascade-wide": short(Cascade, rank=3, max_iter=4, support=5, shortlist=50),
    "REML-parts": short(REML, rank=3, max_iter=4, sparse_part="support", support=5, partitions=2),
    "BinaryRelevance": short(BinaryRelevance),
    "BinaryRelevance-cg": short(BinaryRelevance, solver="cg", tol=1e-8),
    "BinaryRelevance-logistic": short(BinaryRelevance, loss="logistic", reg=0.1, tol=1e-6, max_iter=20),
    "BinaryRelevance-hinge": short(BinaryRelevance, loss="hinge", reg=0.1, tol=1e-7, max_iter=500),
    "WSABIE": short(WSABIE, rank=3, learning_rate=0.3, max_iter=20),
    "KNN": short(KNN, n_neighbors=7),
    "MLKNN": short(MLKNN, n_neighbors=5),
    "MDDM": short(MDDM, n_neighbors=5),
    "SLEEC": short(SLEEC, rank=3, n_learners=2, n_clusters=3, label_neighbors=10, n_neighbors=5),
    "SLEEC-sparse": short(SLEEC, rank=3, n_learners=2, n_clusters=2, label_neighbors=10, n_neighbors=5, sparsity=0.01),
    "PLST": short(PLST, rank=3, reg=0.1),
    "CPLST": short(CPLST, rank=3, reg=0.1),
    "CPLST-subspace": short(CPLST, rank=3, reg=0.1, solver="subspace", max_iter=4),
    "MLCSSP": short(MLCSSP, rank=4, reg=0.1),
    "CompressedSensing": short(CompressedSensing, n_measurements=20, n_nonzero=4, reg=0.1),
    "CompressedSensing-cosamp": short(CompressedSensing, n_measurements=20, n_nonzero=4, recovery="cosamp", reg=0.1),
    "BayesianCS": short(BayesianCS, n_measurements=20, reg=0.1, max_iter=4),
    "FastXML": short(FastXML, n_trees=12, C=10.0),
    "LPSR": short(LPSR, n_partitions=4, labels_per_partition=5),
    "LPSR-wsabie": short(LPSR, base="wsabie", rank=50, n_partitions=3),
}


def pytest_generate_tests(metafunc):
    """``make`` is every model; beside ``mask`` those that learn from one, ``make_maskless`` is all others."""
    learners = {name: make for name, make in MODELS.items() if make.learns_from_mask}
    others = {name: make for name, make in MODELS.items() if not make.learns_from_mask}
    for fixture, models in (
        ("make", learners if "mask" in metafunc.fixturenames else MODELS),
        ("make_maskless", others),
    ):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, models.values(), ids=models.keys())


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
