"""Finite numbers whose products are not: answers are right or an error says so, and no warning of numpy's escapes."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from contract_models import FIRST_MAKERS

from tagwise import LEML, MSE, REML, Cascade, Checkpoint, load
from tagwise.baselines import CPLST, KNN, SLEEC, WSABIE, BayesianCS
from tagwise.exceptions import InvalidInputError, ModelFormatError, TagwiseError
from tagwise.executor import Threads
from tagwise.metrics import top_k
from tagwise.models.cascade.ranker import hard_negatives
from tagwise.problem import Problem
from tagwise.store import read_model, write_model

RNG = np.random.default_rng(0)
X = sp.csr_matrix(sp.random(60, 12, 0.4, random_state=1, dtype=np.float64))
Y = sp.csr_matrix((X @ RNG.standard_normal((12, 7)) > 0.6).astype(np.float64))
OVERFLOW = "scores of its rows overflow"

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.TagwiseWarning", "error::RuntimeWarning")


def scaled(dtype, factor):
    matrix = X.astype(dtype)
    matrix.data *= dtype(factor)
    return matrix


def overflows(model, rows):
    """Whether scores do; those that come out are finite."""
    try:
        assert np.isfinite(model.decision_function(rows)).all()
    except InvalidInputError:
        return True
    return False


@pytest.mark.parametrize("make", FIRST_MAKERS, ids=lambda make: make.name)
@pytest.mark.parametrize("normalize", [True, False])
def test_extreme_rows_are_answered_or_refused(make, normalize):
    settings = {"normalize": normalize} if "normalize" in make.parameters else {}
    for model in (make(**settings).fit(X, Y), make(**settings).fit(X.astype(np.float32), Y)):
        for rows in (scaled(np.float64, 1e300), scaled(np.float32, 1e37), scaled(np.float64, 1e-300)):
            for given in (rows, rows.toarray()):
                refused = pytest.raises(InvalidInputError, match="overflow")
                with refused if overflows(model, given) else nullcontext():
                    labels, scores = model.predict_topk(given, k=2)
                    assert ((labels >= 0) & (labels < 7)).all()
                    assert np.isfinite(scores).all()
                    model.predict(given)


@pytest.mark.parametrize("make", FIRST_MAKERS, ids=lambda make: make.name)
@pytest.mark.parametrize("factor", [1e300, 1e160, 1e-160, 1e-300])
def test_extreme_rows_fit_or_are_refused(make, factor):
    settings = {"normalize": False} if "normalize" in make.parameters else {}
    rows = scaled(np.float64, factor)
    with suppress(TagwiseError):
        labels, scores = make(**settings).fit(rows, Y).predict_topk(rows, k=2)
        assert (labels >= 0).all()
        assert np.isfinite(scores).all()


@pytest.mark.parametrize("model", [WSABIE(rank=2, normalize=False), CPLST(rank=2, normalize=False)])
def test_squares_that_overflow_are_a_sentence(model):
    with pytest.raises(InvalidInputError, match="overflow"):
        model.fit(scaled(np.float64, 1e300), Y)


# ---------------------------------------------------------------------- folders


def changed(folder, tensors=(), values=(), parameters=()):
    """The folder with other content and right digests."""
    record = read_model(folder)
    record.tensors.update(tensors)
    record.values.update(values)
    record.parameters.update(parameters)
    write_model(folder, record)


@pytest.mark.parametrize("model", [LEML(rank=3), REML(rank=3, sparse_part="support", support=5)])
def test_folders_of_huge_factors_are_refused_when_asked(model, tmp_path):
    model.fit(X.astype(np.float32), Y).save(tmp_path / "m")
    huge = {
        name: np.where(RNG.random(getattr(model, name).shape) < 0.5, 1e38, -1e38).astype(np.float32)
        for name in ("feature_factors_", "label_factors_")
    }
    changed(tmp_path / "m", huge)
    loaded = load(tmp_path / "m")
    for ask in (lambda: loaded.predict_topk(X, 2), lambda: loaded.predict(X), lambda: loaded.decision_function(X)):
        with pytest.raises(InvalidInputError, match=OVERFLOW):
            ask()
    with pytest.raises(InvalidInputError, match=OVERFLOW):
        loaded.predict_topk(X[:1], 2)
    with pytest.raises(InvalidInputError, match="overflow"):
        loaded.label_weights([0, 1])


def test_one_label_that_overflows_is_not_left_out_in_silence(tmp_path):
    model = LEML(rank=3).fit(X.astype(np.float32), Y)
    model.save(tmp_path / "m")
    factors = model.label_factors_.copy()
    factors[3] = 3e38, -3e38, 3e38
    features = np.abs(model.feature_factors_) + 100
    changed(tmp_path / "m", {"label_factors_": factors, "feature_factors_": features})
    with pytest.raises(InvalidInputError, match=OVERFLOW):
        load(tmp_path / "m").predict_topk(X, 2)


def test_huge_weights_of_names_are_refused_when_asked(tmp_path):
    names = sp.csr_matrix(np.eye(7, 12, dtype=np.float32))
    Cascade(rank=3).fit(X.astype(np.float32), Y, label_features=names).save(tmp_path / "m")
    weights = load(tmp_path / "m").name_weights_.copy()
    weights.data[:] = 1e30
    changed(tmp_path / "m", {"name_weights_": weights})
    with pytest.raises(InvalidInputError, match=OVERFLOW):
        load(tmp_path / "m").predict_topk(X, 2)


def test_features_over_tiny_scales_are_refused_when_asked(tmp_path):
    MSE(subspace_rank=2, max_iter=2).fit(X.astype(np.float32), Y).save(tmp_path / "m")
    changed(tmp_path / "m", {"feature_scales_": np.full(12, 1e-45, np.float32)})
    with pytest.raises(InvalidInputError, match=OVERFLOW):
        load(tmp_path / "m").predict_topk(X.astype(np.float32), 2)


def test_gamma_of_a_kernel_is_checked(tmp_path):
    LEML(rank=3, kernel="rbf", gamma=1.0).fit(X, Y).save(tmp_path / "m")
    for gamma in (-1.0, 0, "x", None, float("inf"), [1], True):
        changed(tmp_path / "m", values={"gamma_": gamma})
        with pytest.raises(ModelFormatError, match="gamma_"):
            load(tmp_path / "m")


@pytest.mark.parametrize("make", FIRST_MAKERS, ids=lambda make: make.name)
def test_tensors_of_half_precision_are_refused(make, tmp_path):
    make().fit(X, Y).save(tmp_path / "m")
    tensors = {
        name: tensor.astype(np.float16)
        for name, tensor in read_model(tmp_path / "m").tensors.items()
        if isinstance(tensor, np.ndarray) and tensor.dtype.kind == "f"
    }
    if tensors:
        changed(tmp_path / "m", tensors)
        with pytest.raises(ModelFormatError, match=r"float16|one floating type"):
            load(tmp_path / "m")


@pytest.mark.parametrize(
    ("model", "name", "value", "words"),
    [
        (KNN(), "similarity_power", 1e308, "must be finite at least 0 and at most 1000"),
        (SLEEC(rank=2, n_learners=1, label_neighbors=5), "similarity_power", 1e308, "must be finite at least 0"),
        (BayesianCS(n_measurements=5), "n_sweeps", 10**6, "must be at most 1,000; found 1,000,000"),
    ],
)
def test_powers_that_overflow_and_sweeps_without_end_are_refused(model, name, value, words, tmp_path):
    model.fit(X, Y).save(tmp_path / "m")
    changed(tmp_path / "m", parameters={name: value})
    with pytest.raises(ModelFormatError, match=f"{name} {words}"):
        load(tmp_path / "m")
    with pytest.raises(InvalidInputError, match=f"{name} {words}"):
        model.set_params(**{name: value}).fit(X, Y)


# ---------------------------------------------------------------------- labels of half precision


@pytest.mark.parametrize("make", FIRST_MAKERS, ids=lambda make: make.name)
def test_labels_of_half_precision(make, tmp_path):
    model = make().fit(X, Y.toarray().astype(np.float16))
    answer = model.predict(X)
    assert answer.dtype == np.float16
    assert (answer == make().fit(X, Y.toarray()).predict(X)).all()
    model.save(tmp_path / "m")
    assert (load(tmp_path / "m").predict(X) == answer).all()


@pytest.mark.parametrize("kind", ["csr_matrix", "csr_array"])
def test_sparse_answers_of_half_precision_are_refused(kind, tmp_path):
    LEML(rank=2).fit(X, Y).save(tmp_path / "m")
    changed(tmp_path / "m", values={"output_format": [kind, "<f2"]})
    with pytest.raises(ModelFormatError, match="labels of type '<f2'"):
        load(tmp_path / "m")


# ---------------------------------------------------------------------- checkpoints


def test_a_forged_proposer_is_refused(tmp_path):
    make = {"rank": 3, "support": 5, "shortlist": 4, "hard_negatives": 3, "max_iter": 2}
    data = X.astype(np.float32), Y
    Cascade(**make).fit(*data, checkpoint=Checkpoint(tmp_path / "c"))
    record = read_model(tmp_path / "c")
    for name, tensor in record.tensors.items():
        if name.startswith("proposer_.") and isinstance(tensor, np.ndarray) and tensor.dtype.kind == "f":
            record.tensors[name] = np.where(RNG.random(tensor.shape) < 0.5, 3e38, -3e38).astype(tensor.dtype)
    write_model(tmp_path / "c", replace(record, values={**record.values, "kept": {}}))
    with pytest.raises(ModelFormatError, match=r"checkpoint cannot be used.*overflow.*discard"):
        Cascade(**make).fit(*data, checkpoint=Checkpoint(tmp_path / "c"))


def test_no_label_is_no_wrong_proposal():
    class Proposer:
        n_jobs, sparse_weights_ = None, sp.csr_matrix((X.shape[1], Y.shape[1]))

        n_jobs = 1

        def predict_topk(self, X, k):
            return np.full((X.shape[0], k), -1), np.full((X.shape[0], k), -np.inf)

    (found,) = hard_negatives(Proposer(), Problem.of(X, Y), 3, Threads())
    assert found.counts.sum() == 0


# ---------------------------------------------------------------------- how many


@pytest.mark.parametrize("prediction", [X, X.toarray()])
def test_k_of_metrics_beyond_all_labels(prediction):
    assert top_k(prediction, 1000).shape == (60, 1000)
    with pytest.raises(InvalidInputError, match="k must be at most 1,012"):
        top_k(prediction, 10**12)


def test_shortlists_longer_than_all_labels():
    model = Cascade(rank=3, support=5, shortlist=10**9, hard_negatives=10**9).fit(X, Y)
    assert model.predict_topk(X, k=3)[0].shape == (60, 3)


@pytest.mark.parametrize("number", [2**63, 2**200, 10**5000], ids=["64 bits", "200 bits", "5,000 digits"])
@pytest.mark.parametrize("name", ["rank", "random_state", "max_iter"])
def test_numbers_of_more_than_64_bits_are_refused_before_the_fit(name, number):
    if (name, number) == ("random_state", 2**63):
        number = 2**64
    rounds = []
    with pytest.raises(InvalidInputError, match=rf"{name} must be .*2(\^64 - 1|⁶³ − 1); found (9,223|a number of)"):
        LEML(**{name: number}).fit(X, Y, callback=lambda *_: rounds.append(1))
    assert not rounds
