"""Predictions and metrics of data in parts are those of all rows on one machine."""

from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import Cascade, Tagger
from tagwise.data import load_dataset
from tagwise.distributed import evaluate, predict_topk
from tagwise.exceptions import InvalidInputError, InvalidTypeError, NotFittedError
from tagwise.inspection.validation_pairs import known_ranking
from tagwise.metrics import inverse_propensity, ranking_report

# Unbalanced, and with empty parts at the start, in the middle and at the end.
CUTS = [0, 0, 3, 3, 150, 151, 380, 380]


@pytest.fixture(scope="module")
def rows():
    return load_dataset("debtags-sample")


@pytest.fixture(scope="module")
def model(rows):
    return Cascade(rank=20).fit(rows.X_train, rows.Y_train)


def parts(matrix):
    cuts = [min(cut, matrix.shape[0]) for cut in CUTS] + [matrix.shape[0]]
    return [matrix[start:stop] for start, stop in pairwise(cuts)]


def test_the_best_labels_are_those_of_the_model(client, model, rows):
    X = parts(rows.X_test)
    expected = model.predict_topk(rows.X_test, 3)
    lazy = [dask.delayed(part) for part in X]
    futures = client.scatter(X)
    for given in (X, lazy, futures):
        answers = predict_topk(model, given, 3, client=client)
        assert len(answers) == len(X)
        found = client.gather(client.compute(answers))
        for place in (0, 1):
            assert np.concatenate([answer[place] for answer in found]).tobytes() == expected[place].tobytes()


def test_nothing_is_computed_before_it_is_asked_for(client, model, rows):
    @dask.delayed
    def never():
        raise AssertionError("nobody asked")

    assert len(predict_topk(model, [never(), never()], client=client)) == 2


def test_a_dask_array_of_sparse_blocks(client, model, rows):
    """Blocks of rows, each of them CSR."""
    n_rows, n_columns = rows.X_test.shape
    blocks = [
        da.from_delayed(dask.delayed(part), shape=part.shape, dtype=part.dtype, meta=sp.csr_matrix((0, 0)))
        for part in parts(rows.X_test)
        if part.shape[0]
    ]
    X = da.concatenate(blocks)
    assert X.shape == (n_rows, n_columns)
    found = dask.compute(*predict_topk(model, X, 2))
    assert np.array_equal(np.concatenate([labels for labels, _ in found]), model.predict_topk(rows.X_test, 2)[0])


def test_metrics_are_those_of_all_rows(client, model, rows):
    ks = (1, 3, 5, 8)
    ranked = model.predict_topk(rows.X_test, 8)[0]
    expected = ranking_report(rows.Y_test, ranked, ks, inverse_propensity(rows.Y_train))
    found = evaluate(model, parts(rows.X_test), parts(rows.Y_test), ks=ks, Y_train=parts(rows.Y_train), client=client)
    assert list(found) == list(expected)
    for name, value in expected.items():
        if name[0] in "Pc" and not name.startswith("PS"):  # counts over counts: precision and coverage
            assert found[name] == value, name
        assert found[name] == pytest.approx(value, rel=1e-13), name
    whole = evaluate(model, [rows.X_test], [rows.Y_test], ks=ks, Y_train=rows.Y_train, client=client)
    assert whole == expected


def test_metrics_of_known_labels_alone(client, model, rows):
    known = sp.csr_matrix(np.random.default_rng(0).random(rows.Y_test.shape) < 0.3).astype(np.float32)
    observed = sp.csr_matrix(((known + rows.Y_test) > 0).astype(np.float32))
    expected = ranking_report(rows.Y_test, known_ranking(model, rows.X_test, 5, observed)[0])
    found = evaluate(model, parts(rows.X_test), parts(rows.Y_test), parts(observed), client=client)
    assert found == pytest.approx(expected, rel=1e-13)


def test_what_is_refused(client, model, rows):
    X, Y = parts(rows.X_test), parts(rows.Y_test)
    with pytest.raises(InvalidInputError, match="Y has 7 parts where X has 8"):
        evaluate(model, X, Y[1:], client=client)
    with pytest.raises(InvalidInputError, match="no rows in any of its parts"):
        evaluate(model, X[:1], Y[:1], client=client)
    with pytest.raises(InvalidTypeError, match="fitted model of tagwise; found Tagger"):
        predict_topk(Tagger(), X, client=client)
    with pytest.raises(NotFittedError):
        predict_topk(Cascade(), X, client=client)
    with pytest.raises(InvalidInputError, match="k must be"):
        predict_topk(model, X, 0, client=client)
    with pytest.raises(InvalidInputError, match="labels, but the model has"):
        evaluate(model, X, [part[:, 1:] for part in Y], client=client)
