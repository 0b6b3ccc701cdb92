"""Complete rows beside partly known ones: terms and batches are those of the mask that lists every known pair."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML, REML, BinaryRelevance
from tagwise.exceptions import InvalidInputError
from tagwise.losses import get_loss
from tagwise.objectives.labels import TrainingLabels
from tagwise.objectives.squared import SquaredTerms
from tagwise.problem import Known, Problem
from tagwise.progress import FitProgress

RNG = np.random.default_rng(0)
N_ROWS, N_LABELS = 40, 6
X = sp.csr_matrix(RNG.random((N_ROWS, 9)) * (RNG.random((N_ROWS, 9)) < 0.6))
MASK = RNG.random((N_ROWS, N_LABELS)) < 0.5
MASK[::3] = True
Y = sp.csr_matrix(((RNG.random(MASK.shape) < 0.3) & MASK).astype(float))
# One and the same knowledge: complete rows as such, and every pair listed.
KNOWN = Known.of_mask(sp.csr_matrix(MASK.astype(float)))
LISTED = Known(sp.csr_matrix(MASK.astype(float)), np.zeros(N_ROWS, dtype=bool))


@pytest.mark.parametrize("weight", [None, np.linspace(0.5, 3, N_LABELS)])
@pytest.mark.parametrize("row_weight", [None, np.linspace(0.5, 2, N_ROWS)])
def test_terms_and_batches(weight, row_weight):
    assert KNOWN.complete.sum() >= 14
    both = [TrainingLabels(Y, known, weight, row_weight=row_weight) for known in (KNOWN, LISTED)]
    np.testing.assert_allclose(both[0].rates(), both[1].rates(), atol=1e-12)
    A, H, b = RNG.random((N_ROWS, 3)), RNG.random((N_LABELS, 3)), RNG.random(N_LABELS)
    terms = [SquaredTerms.build(labels) for labels in both]
    values = [some.value(A, H, b) for some in terms]
    solved = [some.solve_labels(A, 0.7, fit_intercept=True) for some in terms]
    assert values[0] == pytest.approx(values[1], rel=1e-10)
    for one, other in zip(*solved):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-8)
    batches = [labels.batch(np.array([4, 1]), get_loss("squared"), with_start=True) for labels in both]
    np.testing.assert_allclose(batches[0].weights, batches[1].weights)
    np.testing.assert_allclose(batches[0].start, batches[1].start)


@pytest.mark.parametrize(
    "model",
    [
        LEML(3, max_iter=4, tol=0),
        LEML(3, max_iter=4, tol=0, positive_weight=2.0, fit_intercept=False),
        LEML(3, loss="logistic", max_iter=2, tol=0),
        REML(3, sparse_part="support", support=4, max_iter=3, tol=0),
        REML(3, sparse_part="admm", max_iter=2, tol=0, prune=0),
        BinaryRelevance(tol=1e-9, max_iter=500),
        BinaryRelevance(loss="hinge", tol=1e-7, max_iter=5000),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")
def test_fits(model):
    found = []
    for known in (KNOWN, LISTED):
        model.fit(X, Y)
        model._fit(Problem(X, Y, known), FitProgress("", 9))
        model._build_prediction_cache()
        found.append(model.decision_function(X))
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_complete_rows_by_truth_values_or_numbers():
    for complete in ([True, False, True], np.array([True, False, True]), [0, 2], np.array([2, 0])):
        assert Known(sp.csr_matrix((3, 4)), complete).complete.tolist() == [True, False, True]
    for wrong in ([3], [-1], [0.5, 1.2], [[0, 1]], ["0"]):
        with pytest.raises(InvalidInputError, match="numbers of rows, from 0 to 2"):
            Known(sp.csr_matrix((3, 4)), wrong)
    with pytest.raises(InvalidInputError, match="complete has 2 truth values, and there are 3 rows"):
        Known(sp.csr_matrix((3, 4)), [True, False])
    listed_too = Known(sp.csr_matrix([[1, 1, 0], [0, 1, 0]]), [0])  # pairs of complete rows do not matter
    assert (listed_too.n_pairs, listed_too.mask().toarray().tolist()) == (4, [[1, 1, 1], [0, 1, 0]])


def test_complete_rows_cost_no_memory():
    """3,000 rows × 20,000 labels, one of them partly known: a mask would take 720 MB."""
    rows = sp.random(3000, 30, 0.2, format="csr", random_state=0, dtype=np.float32)
    labels = sp.random(3000, 20_000, 2e-4, format="csr", random_state=1, dtype=np.float32)
    labels.data[:] = 1
    pairs = sp.csr_matrix(([1.0], ([7], [3])), shape=labels.shape)
    known = Known(pairs, complete=np.arange(3000) != 7)
    model = LEML(2, max_iter=1)
    model.fit(rows, labels[:, :50], Known(pairs[:, :50], known.complete))  # compiles before memory is measured
    tracemalloc.start()
    model.fit(rows, labels, known)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30_000_000
