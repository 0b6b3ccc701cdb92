"""Sparse matrices that scipy builds without a look at their indices.

On 0.1.0 most of these cases killed the process, wrote over other memory or were answered with arbitrary numbers.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from contract_models import FIRST_MAKERS

from tagwise.data import hide_labels, split_rows, split_train_test, write_svmlight
from tagwise.exceptions import InvalidInputError
from tagwise.metrics import average_auc, hamming_loss, inverse_propensity, precision_at_k
from tagwise.tuning import tune
from tagwise.validation import checked_csr

N_ROWS, N_FEATURES, N_LABELS = 40, 12, 6

RNG = np.random.default_rng(0)
X = sp.csr_matrix(sp.random(N_ROWS, N_FEATURES, density=0.4, random_state=0, dtype=np.float32))
Y = sp.csr_matrix((RNG.random((N_ROWS, N_LABELS)) < 0.4).astype(np.float32))
MASK = sp.csr_matrix((RNG.random((N_ROWS, N_LABELS)) < 0.7).astype(np.float32))


def malformed(matrix, fault):
    """A copy with one fault, made as scipy allows it."""
    matrix = matrix.copy()
    if fault == "ids from 1":
        return sp.csr_matrix((matrix.data, matrix.indices + 1, matrix.indptr), shape=matrix.shape)
    if fault == "out of range":
        matrix.indices[-1] = 10**9
    elif fault == "negative":
        matrix.indices[0] = -7
    elif fault == "decreasing indptr":
        matrix.indptr[3] = matrix.indptr[-1]
    elif fault == "indptr beyond the entries":
        matrix.indptr[-1] += 1000
    return matrix


FAULTS = {
    "ids from 1": r"stores an entry in column \d+, but has \d+ columns, .*If your ids start at 1, subtract 1",
    "out of range": r"stores an entry in column 1,000,000,000, but has",
    "negative": r"stores an entry in column -7, but has",
    "decreasing indptr": r"indptr must be [\d,]+ integers that rise from 0",
    "indptr beyond the entries": r"indptr must be .* at most \d+, the stored entries",
}


@pytest.mark.filterwarnings("ignore::tagwise.exceptions.TagwiseWarning")
@pytest.mark.parametrize("make", FIRST_MAKERS, ids=lambda make: make.name)
def test_every_model_refuses_them(make):
    fitted = make().fit(X, Y)
    calls = [
        ("X", lambda fault: make().fit(malformed(X, fault), Y)),
        ("Y", lambda fault: make().fit(X, malformed(Y, fault))),
        ("observed", lambda fault: make().fit(X, Y, malformed(MASK, fault))),
        ("X", lambda fault: fitted.predict_topk(malformed(X, fault))),
        ("X", lambda fault: fitted.predict(malformed(X, fault))),
        ("X", lambda fault: fitted.decision_function(malformed(X, fault))),
        ("exclude", lambda fault: fitted.predict_topk(X, 2, exclude=malformed(Y, fault))),
    ]
    for (fault, words), (name, call) in product(FAULTS.items(), calls):
        with pytest.raises(InvalidInputError, match=f"{name}.*{words}"):
            call(fault)


CALLS = {
    "metrics, truth": lambda bad: precision_at_k(bad, Y.toarray(), k=1),
    "metrics, scores": lambda bad: precision_at_k(Y, bad, k=1),
    "auc": lambda bad: average_auc(Y, bad),
    "setwise": lambda bad: hamming_loss(Y, bad),
    "setwise, cut": lambda bad: hamming_loss(Y, bad, threshold=0.5),
    "propensity": inverse_propensity,
    "hide_labels": lambda bad: hide_labels(bad, 0.5, random_state=0),
    "split_train_test, X": lambda bad: split_train_test(bad, Y, random_state=0),
    "split_train_test, Y": lambda bad: split_train_test(X, bad, random_state=0),
    "split_rows": lambda bad: split_rows(bad, 0.2, 0),
    "tune": lambda bad: tune("leml", bad, Y),
}


def test_functions_and_writers_refuse_them(tmp_path):
    calls = CALLS | {"write_svmlight": lambda bad: write_svmlight(tmp_path / "rows.svm", X, bad)}
    for fault, words in FAULTS.items():
        for call in calls.values():
            with pytest.raises(InvalidInputError, match=words):
                call(malformed(Y, fault))
    assert not list(tmp_path.iterdir())


def test_other_formats_are_checked():
    for make in (sp.csc_matrix, sp.csc_array, sp.bsr_matrix, sp.coo_matrix):
        matrix = make(X.copy())
        assert abs(checked_csr(matrix, "X") - X).nnz == 0
        (matrix.col if matrix.format == "coo" else matrix.indices)[0] = 10**6
        what = "row" if matrix.format == "csc" else "column"
        with pytest.raises(InvalidInputError, match=f"X stores an entry in {what} 1,000,000"):
            checked_csr(matrix, "X")
    matrix = X.copy().tocoo()
    matrix.row[0] = -1
    with pytest.raises(InvalidInputError, match="X stores an entry in row -1"):
        checked_csr(matrix, "X")


def test_unusual_but_valid_matrices_pass():
    """64-bit indices, mixed types, spare room behind the last entry, unsorted and repeated entries, many columns."""
    wide = X.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    mixed = X.copy()
    mixed.indptr = mixed.indptr.astype(np.int64)
    spare = X.copy()
    spare.indices, spare.data = np.append(spare.indices, -5).astype(np.int32), np.append(spare.data, np.float32(1))
    for matrix in (wide, mixed, spare):
        assert (checked_csr(matrix, "X")[:3].toarray() == X[:3].toarray()).all()
    unsorted = sp.csr_matrix((np.ones(3), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    assert checked_csr(unsorted, "X").nnz == 3
    assert checked_csr(sp.csr_matrix((2, 2**40)), "X").shape == (2, 2**40)
    far = sp.csr_matrix((np.ones(1), np.array([2**33]), np.array([0, 1])), shape=(1, 2**40))
    assert checked_csr(far, "X").nnz == 1
    far.indices[0] = -1
    with pytest.raises(InvalidInputError, match="column -1"):
        checked_csr(far, "X")
