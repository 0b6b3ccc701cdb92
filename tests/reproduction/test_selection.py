"""Hyper-parameters come from training rows by the stated rule."""

import numpy as np
import pytest
import scipy.sparse as sp

from reproduction.configuration import Cell, Method, Selection, Study
from reproduction.metrics import metrics_on_known
from reproduction.selection import choose
from tagwise import MSE, BinaryRelevance
from tagwise.data import hide_labels, load_dataset
from tagwise.metrics import ndcg_at_k, precision_at_k
from tagwise.models.mse.selection import select_parameters


def choice(kind, fixed, grid, rule, X, Y, observed, *, seed):
    """What is chosen for a cell with this method, grid and rule."""
    method = Method("made", kind, grid=grid, selection=rule)
    study = Study("toy", "small", "", (rule.metric,), {"made": method}, ())
    return choose(Cell(study, "made", method, {}, seed, choice=True), fixed, X, Y, observed, threads=1)


@pytest.fixture(scope="module")
def sample():
    data = load_dataset("debtags-sample")
    return data.X_train[:400], data.Y_train[:400]


def test_folds_are_what_is_said(sample):
    X, Y = sample
    rule = Selection(rule="folds", metric="P@1", folds=2)
    found = choice("BinaryRelevance", {}, {"reg": [1.0, 30.0]}, rule, X, Y, None, seed=3)
    fold = np.random.default_rng(3).permutation(400) % 2
    for entry in found["tried"]:
        values = []
        for k in range(2):
            model = BinaryRelevance(reg=entry["reg"]).fit(X[fold != k], Y[fold != k])
            values.append(precision_at_k(Y[fold == k], model.predict_topk(X[fold == k], 1)[0], 1))
        assert entry["value"] == pytest.approx(np.mean(values))
    best = max(found["tried"], key=lambda entry: entry["value"])
    assert found["chosen"] == {"reg": best["reg"]}
    assert found["rows"] == 400


def test_unknown_labels_do_not_count(sample):
    """Whatever Y says outside the mask, the choice and its value stay the same."""
    X, Y = sample
    observed = hide_labels(Y, 0.3, random_state=0)
    rule = Selection(rule="validation", metric="nDCG@5", fraction=0.25)
    known = sp.csr_matrix(Y.multiply(observed))
    everything = sp.csr_matrix(known + (sp.csr_matrix(np.ones(Y.shape, np.float32)) - observed))
    model = BinaryRelevance().fit(X, Y, observed)
    values = {metrics_on_known(model, "nDCG@5", X, labels, observed) for labels in (Y, known, everything)}
    assert len(values) == 1
    scores = model.decision_function(X)
    candidates = sp.csr_matrix(np.where(observed.toarray() > 0, np.exp(scores), 0))
    assert values.pop() == pytest.approx(ndcg_at_k(known, candidates, 5))
    found = choice("LEML", {"rank": 5, "max_iter": 2}, {"reg": [1.0, 1e4]}, rule, X, Y, observed, seed=0)
    assert found["chosen"] == {"reg": 1.0}


def test_mse_chooses_as_its_own_selection_does(sample):
    X, Y = sample[0][:150], sample[1][:150, :6]
    grid = {"subspace_rank": [1, 2], "reg": [0.2, 0.4]}
    rule = Selection(rule="mse", metric="F1", folds=2)
    found = choice("MSE", {}, grid, rule, X, Y, None, seed=0)
    best = select_parameters(MSE, X, Y, grid, n_folds=2, random_state=0, fixed={})[0]
    assert found["chosen"] == {name: best[name] for name in ("subspace_rank", "reg", "threshold")}
    assert max(entry["value"] for entry in found["tried"]) == pytest.approx(best["f1"])


MEASURED = {"precision": "precision of predicted rows", "recall": "recall"}
