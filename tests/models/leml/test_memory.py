"""A fit of squared loss takes W + H + XW + two n×k and a tenth beside the data, and saves without changing models."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML
from tagwise.data import hide_labels, make_power_law
from tagwise.kernels.blocked_csr import BlockedCSR
from tagwise.models.leml import steps

TENTH = 1.1
PLAIN = {"fit_intercept": False, "normalize": False, "init": "random"}

# In a process of its own, so that nothing else is counted; numpy reports its arrays to tracemalloc.
FIT = """
import json, sys, tracemalloc, warnings
from tagwise import LEML
from tagwise.data import make_power_law
warnings.simplefilter("ignore")
sizes, per_row, settings, rank = json.loads(sys.argv[1])
X, Y = make_power_law(*sizes, **per_row, n_topics=30, random_state=0)
LEML(rank, max_iter=1, n_jobs=2, **settings).fit(X, Y)  # compiles all that the measured fit needs
model = LEML(rank, max_iter=2, tol=0, n_jobs=2, **settings)
tracemalloc.start()
model.fit(X, Y)
print(json.dumps([tracemalloc.get_traced_memory()[1], *model.objective_]))
"""


class Problem(NamedTuple):
    """Sizes of a problem, the settings of its fit, and the bytes that it may take beyond the rule."""

    rows: int
    features: int
    labels: int
    features_per_row: int
    rank: int
    settings: dict = {}  # noqa: RUF012 - never changed
    beyond: int = 0


PROBLEMS = {
    "wiki-shape": Problem(30_000, 9000, 4000, features_per_row=60, rank=100),
    # X takes 8 times as much as n×k: any copy of it would show.
    "long rows": Problem(12_000, 2000, 3000, features_per_row=250, rank=60),
    "plain": Problem(36_000, 9000, 300, features_per_row=60, rank=64, settings=PLAIN),
    "small wiki-shape": Problem(20_000, 9000, 4000, features_per_row=60, rank=100),
    "small and plain": Problem(12_000, 9000, 300, features_per_row=60, rank=64, settings=PLAIN),
    # Conjugate gradients' four d×k fill what is allowed.
    "d = n": Problem(30_000, 30_000, 200, features_per_row=45, rank=100),
    "d = n, wide": Problem(20_000, 20_000, 300, features_per_row=60, rank=250),
    # Of small features a transpose is stored beyond that, and n×k is made at once.
    "bibtex's shape": Problem(5_000, 1800, 160, features_per_row=68, rank=64, beyond=5_000_000 + 4 * 64 * 5_000),
}


# Enough for every run; the slow one has them all.
QUICK = ("long rows", "small and plain", "bibtex's shape")


@pytest.mark.parametrize(
    "problem",
    [pytest.param(p, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, p in PROBLEMS.items()],
)
def test_the_peak_is_within_the_factors_and_two_workspaces(problem):
    sizes = (problem.rows, problem.features, problem.labels)
    per_row = {"features_per_row": problem.features_per_row, "labels_per_row": 5}
    arguments = json.dumps([sizes, per_row, problem.settings, problem.rank])
    done = subprocess.run([sys.executable, "-c", FIT, arguments], capture_output=True, text=True, check=True)
    peak, *objective = json.loads(done.stdout)
    allowed = TENTH * 4 * problem.rank * (problem.features + problem.labels + 3 * problem.rows)
    assert peak <= allowed + problem.beyond
    assert objective[1] < objective[0]


@pytest.mark.slow
def test_resident_memory_on_the_shape_of_the_paper_s_largest_problem():
    script = Path(__file__).parents[3] / "benchmarks" / "wiki.py"
    command = [sys.executable, str(script), "--scale", "0.05", "--rounds", "2"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["ratio"] <= TENTH
    assert found["objective"][1] < found["objective"][0] < found["nothing_learnt"]


@pytest.fixture
def always_streamed(monkeypatch):
    """A transpose of features this small would be stored."""
    monkeypatch.setattr(steps, "_STORED_BYTES", -1)


@pytest.mark.parametrize(("bytes_allowed", "streamed"), [(12 * 7200 - 1, True), (12 * 7200, False)])
def test_small_features_are_stored(bytes_allowed, streamed, monkeypatch):
    X, Y = problem()
    X = sp.csr_matrix((np.ones(7200, np.float32), np.tile(np.arange(12), 600), np.arange(601) * 12), shape=(600, 80))
    monkeypatch.setattr(steps, "_STORED_BYTES", bytes_allowed)
    found = steps.feature_products(X, Y, 5, unit_length=True, streamed=True, n_threads=1)
    assert isinstance(found, BlockedCSR) == streamed


def problem(dtype=np.float32):
    X, Y = make_power_law(600, 80, 40, features_per_row=12, labels_per_row=3, n_topics=5, random_state=0)
    return X.astype(dtype), Y


@pytest.mark.usefixtures("always_streamed")
@pytest.mark.filterwarnings("ignore:LEML stopped")
@pytest.mark.parametrize("settings", [{}, {"positive_weight": 3.0}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_streamed_features_give_the_model_of_stored_ones(settings, masked, monkeypatch):
    X, Y = problem(np.float64)
    observed = hide_labels(Y, 0.6, random_state=0) if masked else None
    lengths = np.random.default_rng(0).uniform(0.1, 10, 600)
    X = sp.csr_matrix(sp.diags(lengths) @ X)
    settings = {"rank": 6, "max_iter": 4, "tol": 0, **settings}
    streamed = LEML(**settings).fit(X, Y, observed)

    def stored(X, Y, rank, **options):
        return steps.feature_products(X, Y, rank, **options | {"streamed": False})

    monkeypatch.setattr("tagwise.models.leml.leml.feature_products", stored)
    again = LEML(**settings).fit(X, Y, observed)
    np.testing.assert_allclose(streamed.decision_function(X), again.decision_function(X), atol=1e-9)


@pytest.mark.usefixtures("always_streamed")
@pytest.mark.filterwarnings("ignore:LEML stopped")
@pytest.mark.parametrize("length", [1e-30, 1e30])
def test_rows_of_extreme_length_are_scaled_before_they_are_multiplied(length):
    X, Y = problem()
    lengths = np.where(np.arange(600) % 2, length, 1).astype(np.float32)
    extreme = sp.csr_matrix(sp.diags(lengths) @ X)
    plain, other = (LEML(6, max_iter=3).fit(features, Y) for features in (X, extreme))
    np.testing.assert_allclose(other.decision_function(X), plain.decision_function(X), atol=1e-3)


@pytest.mark.usefixtures("always_streamed")
@pytest.mark.filterwarnings("ignore:LEML stopped")
def test_what_is_kept_for_the_transposed_product_does_not_show(monkeypatch):
    X, Y = problem(np.float64)
    models = []
    for planned in (0, 10**9):
        monkeypatch.setattr(steps, "_PLANNED", planned)
        models.append(LEML(6, max_iter=3).fit(X, Y))
    np.testing.assert_allclose(models[0].feature_factors_, models[1].feature_factors_, atol=1e-9)
    np.testing.assert_allclose(models[0].label_factors_, models[1].label_factors_, atol=1e-9)
