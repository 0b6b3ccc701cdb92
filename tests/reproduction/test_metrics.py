"""Metrics as the papers define and print them."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score, jaccard_score

from reproduction.metrics import SHOWN, metric_values


@pytest.mark.parametrize(
    ("metric", "ours", "paper", "expected"),
    [
        ("P@1", 0.59, 60.0, True),
        ("P@1", 0.5899, 60.0, False),
        ("P@1", 0.99, 60.0, True),
        ("AUC", 0.89, 0.90, True),
        ("AUC", 0.88, 0.90, False),
        ("hamming", 0.0132, 0.0122, True),
        ("hamming", 0.0133, 0.0122, False),
        ("hamming", 0.0001, 0.0122, True),
    ],
)
def test_within_one_point_or_better(metric, ours, paper, expected):
    assert SHOWN[metric].reproduces(ours, paper) is expected


def test_averages_over_labels_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    truth, predicted = ((rng.random((60, 9)) < share).astype(np.float32) for share in (0.3, 0.2))
    truth[:, 0] = predicted[:, 1] = 0
    values = metric_values(
        SimpleNamespace(predict=lambda X: sp.csr_matrix(predicted)),
        ("label precision", "label recall", "label accuracy", "micro F1"),
        None,
        None,
        sp.csr_matrix(truth),
    )[0]
    hits, on, true = (matrix.sum(axis=0) for matrix in (truth * predicted, predicted, truth))
    assert values["label precision"] == pytest.approx(np.mean(hits[on > 0] / on[on > 0]))
    assert values["label recall"] == pytest.approx(np.mean(hits[true > 0] / true[true > 0]))
    assert values["label accuracy"] == pytest.approx(jaccard_score(truth, predicted, average="macro"))
    assert values["micro F1"] == pytest.approx(f1_score(truth, predicted, average="micro"))
    nothing = SimpleNamespace(predict=lambda X: sp.csr_matrix(truth.shape))
    assert metric_values(nothing, ("label precision",), None, None, sp.csr_matrix(truth))[0]["label precision"] == 0
