"""Memory of a fit of squared loss: the factors, some n×k, and the scaled values and the transpose of X."""

import json
import subprocess
import sys

import pytest

# In a process of its own, so that nothing else is counted; numpy reports its arrays to tracemalloc.
FIT = """
import json, sys, tracemalloc, warnings
from tagwise import LEML
from tagwise.data import make_power_law
warnings.simplefilter("ignore")
sizes, per_row, rank = json.loads(sys.argv[1])
X, Y = make_power_law(*sizes, features_per_row=per_row, labels_per_row=5, n_topics=30, random_state=0)
LEML(rank, max_iter=1, n_jobs=2).fit(X[:500], Y[:500])  # compiles all that the measured fit needs
model = LEML(rank, max_iter=2, tol=0, n_jobs=2)
tracemalloc.start()
model.fit(X, Y)
print(json.dumps([tracemalloc.get_traced_memory()[1], X.nnz, *model.objective_]))
"""
# Rows, features and labels; features per row; rank.
PROBLEMS = {"long rows": ((12_000, 2000, 3000), 250, 60), "many rows": ((36_000, 9000, 300), 60, 64)}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_peak_is_within_the_factors_five_workspaces_and_copies_of_x(problem):
    (n_rows, n_features, n_labels), _, rank = PROBLEMS[problem]
    command = [sys.executable, "-c", FIT, json.dumps(PROBLEMS[problem])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, nnz, *objective = json.loads(done.stdout)
    assert peak <= 1.1 * (4 * rank * (n_features + n_labels + 5 * n_rows) + 12 * nnz)
    assert objective[1] < objective[0]
