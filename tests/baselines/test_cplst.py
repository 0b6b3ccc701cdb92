"""CPLST: equals LEML's closed form; the subspace iteration finds the same model."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from linear_labels import linear_labels

from tagwise import LEML
from tagwise.baselines import CPLST, cplst
from tagwise.exceptions import ConvergenceWarning, InvalidInputError

N, D, L = 80, 15, 12
data = partial(linear_labels, N, D, L, 0.4)


@pytest.mark.parametrize("reg", [0.0, 0.7])
@pytest.mark.parametrize("normalize", [True, False])
def test_it_is_lemls_closed_form(reg, normalize):
    X, Y = data()
    ours = CPLST(rank=4, reg=reg, normalize=normalize).fit(X, Y)
    leml = LEML(rank=4, reg=reg, normalize=normalize, solver="closed_form").fit(X, Y)
    np.testing.assert_allclose(ours.decision_function(X), leml.decision_function(X), atol=1e-9)
    assert ours.objective_[-1] == pytest.approx(leml.objective_[-1])


def test_the_definition_by_the_hat_matrix():
    X, Y = data()
    model = CPLST(rank=3, reg=0, normalize=False).fit(X, Y)
    Xc, Yc = (matrix.toarray() - matrix.toarray().mean(axis=0) for matrix in (X, Y))
    hat = Xc @ np.linalg.pinv(Xc)
    H = np.linalg.eigh(Yc.T @ hat @ Yc)[1][:, ::-1][:, :3]
    expected = Y.toarray().mean(axis=0) + hat @ Yc @ H @ H.T
    np.testing.assert_allclose(model.decision_function(X), expected - 0.5, atol=1e-8)


@pytest.mark.parametrize("storage", [sp.csr_matrix, lambda X: X.toarray()], ids=["sparse", "dense"])
@pytest.mark.parametrize("all_labels", [6, 0], ids=["all labels at once", "rounds"])
def test_the_subspace_iteration_finds_the_closed_form(monkeypatch, all_labels, storage):
    monkeypatch.setattr(cplst, "_ALL_LABELS", all_labels)
    monkeypatch.setattr(cplst, "_SPARE", 3)
    X, Y = data()
    exact = CPLST(rank=3, reg=0.4, solver="closed_form").fit(storage(X), Y)
    model = CPLST(rank=3, reg=0.4, solver="subspace", max_iter=300, tol=0).fit(storage(X), Y)
    np.testing.assert_allclose(model.decision_function(storage(X)), exact.decision_function(storage(X)), atol=1e-6)
    assert model.objective_[-1] == pytest.approx(exact.objective_[-1], rel=1e-9)
    assert (model.n_iter_ == 1) == (all_labels > 0)
    assert (np.diff(model.objective_) <= 1e-9).all()


def test_an_unfinished_subspace_warns(monkeypatch):
    monkeypatch.setattr(cplst, "_ALL_LABELS", 0)
    monkeypatch.setattr(cplst, "_SPARE", 1)
    with pytest.warns(ConvergenceWarning, match="CPLST stopped after max_iter=2 rounds"):
        CPLST(rank=3, solver="subspace", max_iter=2, tol=0).fit(*data())


def test_auto_takes_the_subspace_for_many_features_or_labels_and_where_the_closed_form_does_not_fit(monkeypatch):
    X, Y = data()
    expected = CPLST(rank=3, solver="subspace").fit(X, Y).decision_function(X)
    monkeypatch.setattr(cplst, "reduced_rank_ridge", None)
    np.testing.assert_array_equal(CPLST(rank=3, memory_limit=1000).fit(X, Y).decision_function(X), expected)
    monkeypatch.setattr(cplst, "LARGEST_DIRECT", 5)
    np.testing.assert_array_equal(CPLST(rank=3).fit(X, Y).decision_function(X), expected)
    with pytest.raises(TypeError):
        CPLST(rank=3, reg=0).fit(X, Y)


def test_a_closed_form_that_does_not_fit_names_the_memory():
    for settings in ({"reg": 0}, {"solver": "closed_form"}):
        with pytest.raises(
            InvalidInputError,
            match="closed form for 80 rows, 15 features and 12 labels needs memory of 9,.* bytes, above memory_limit "
            r"\(1,000 bytes\); use the iterative solver",
        ):
            CPLST(rank=3, memory_limit=1000, **settings).fit(*data())
