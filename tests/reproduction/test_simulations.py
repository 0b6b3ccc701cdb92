"""Simulations of the papers' theory: planted problems, and that what the theory says is what comes out."""

import numpy as np
import pytest

from reproduction.configuration import Cell, Method, Study
from reproduction.figures import fitted_slope, serial_share
from reproduction.simulations import planted_subspaces, tail_labels


def cell(method, options, settings, seed=0):
    study = Study("toy", "small", "", (), {method.name: method}, (), options=options)
    return Cell(study, "planted", method, settings, seed)


def test_planted_rows_lie_in_the_subspaces_of_their_labels():
    bases, Y, X = planted_subspaces(np.random.default_rng(0), 30, 12, 4, 2)
    for row, labels in zip(X, Y):
        span = np.vstack(bases[labels > 0])
        rest = row - np.linalg.lstsq(span.T, row, rcond=None)[0] @ span
        np.testing.assert_allclose(rest, 0, atol=1e-12)
        assert 1 <= labels.sum() <= 2


def test_a_sparse_part_takes_tail_labels_off_the_low_rank():
    options = {"rows": 500, "features": 40, "labels": 40, "rank": 3}
    shared = {"rank": 3, "max_iter": 10, "normalize": False}
    low = Method("low rank", "LEML", parameters=shared)
    both = Method("both", "REML", parameters={**shared, "sparse_part": "support", "support": 3})
    shares = [0.1, 0.4]
    alone = [tail_labels(cell(low, options, {"tail": share}), 1)["values"]["excess squared error"] for share in shares]
    beside = [
        tail_labels(cell(both, options, {"tail": share}), 1)["values"]["excess squared error"] for share in shares
    ]
    assert fitted_slope((shares, alone)) == pytest.approx(1, abs=0.3)
    assert max(beside) < 0.5 * min(alone)


@pytest.mark.parametrize("serial", [0.0, 0.25, 1.0])
def test_amdahls_law_is_fitted(serial):
    threads = [1, 2, 4]
    line = (threads, [1 / (serial + (1 - serial) / p) for p in threads])
    assert serial_share(line) == pytest.approx(serial)
    assert serial_share(([1, 2], [1.0, 2.5])) == 0
