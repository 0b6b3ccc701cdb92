"""Models that learn on a cluster are those that learn from all rows on one machine."""

from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from dask.distributed import Client, LocalCluster

from tagwise import LEML, REML, BinaryRelevance, Cascade, Checkpoint, load
from tagwise.baselines import PLST
from tagwise.data import hide_labels, make_low_rank_plus_sparse
from tagwise.data.datasets import read_folder
from tagwise.distributed import fit, leml
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning

pytestmark = pytest.mark.filterwarnings(
    "ignore::tagwise.exceptions.ConvergenceWarning", "ignore::tagwise.exceptions.TagwiseWarning"
)

# Unbalanced, and with empty parts at the start, in the middle and at the end.
CUTS = [0, 0, 3, 3, 150, 151, 400, 400]

MODELS = {
    "LEML": lambda **more: LEML(4, max_iter=3, **more),
    "LEML-logistic": lambda **more: LEML(4, loss="logistic", max_iter=2, **more),
    "REML": lambda **more: REML(4, sparse_part="support", support=8, max_iter=3, tol=0.01, **more),
    "BinaryRelevance": lambda **more: BinaryRelevance(tol=1e-6, **more),
    "BinaryRelevance-logistic": lambda **more: BinaryRelevance(loss="logistic", **more),
    # Small sets are learnt from in up to ten parts in turn otherwise; one test has them.
    "Cascade": lambda **more: Cascade(rank=4, support=10, shortlist=6, hard_negatives=6, **{"refit": False} | more),
}


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def problem():
    made = make_low_rank_plus_sparse(400, 60, 30, rank=4, features_per_row=8, noise=0.5, random_state=0)
    return made.X.astype(np.float64), made.Y


def parts(matrix, cuts=CUTS):
    return [matrix[start:stop] for start, stop in pairwise(cuts)]


@pytest.mark.parametrize("kind", ["plain", "mask", "weights"])
@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_that_of_all_rows(client, problem, name, kind):
    X, Y = problem
    observed = hide_labels(Y, 0.6, random_state=1) if kind == "mask" else None
    weights = np.random.default_rng(2).integers(0, 4, 400).astype(float) if kind == "weights" else None
    options = {} if kind == "plain" else {"positive_weight": 2.0}
    local = MODELS[name](**options).fit(X, Y, observed, sample_weight=weights)
    ours = fit(
        MODELS[name](**options),
        parts(X),
        parts(Y),
        None if observed is None else parts(observed),
        sample_weight=None if weights is None else parts(weights),
        client=client,
    )
    assert ours.n_iter_ == local.n_iter_
    np.testing.assert_allclose(ours.objective_, local.objective_, rtol=1e-6)
    np.testing.assert_allclose(ours.decision_function(X), local.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("name", ["LEML", "REML"])
def test_a_mask_that_hides_nothing_is_none(client, problem, name):
    X, Y = problem
    everything = sp.csr_matrix(np.ones(Y.shape))
    plain, masked = (fit(MODELS[name](), parts(X), parts(Y), mask, client=client) for mask in (None, parts(everything)))
    for attribute in plain._saved_arrays:
        ours, theirs = (getattr(model, attribute) for model in (plain, masked))
        ours, theirs = (part.toarray() if sp.issparse(part) else part for part in (ours, theirs))
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["LEML", "REML"])
def test_columns_in_several_blocks_are_those_of_one(client, problem, name, monkeypatch):
    """Two columns of W to a block, and the last block with one."""
    X, Y = problem
    monkeypatch.setattr(leml, "_COLUMN_BYTES", 2 * X.shape[1] * X.dtype.itemsize)
    local = MODELS[name]().set_params(rank=5).fit(X, Y)
    ours = fit(MODELS[name]().set_params(rank=5), parts(X), parts(Y), client=client)
    np.testing.assert_allclose(ours.objective_, local.objective_, rtol=1e-9)
    np.testing.assert_allclose(ours.feature_factors_, local.feature_factors_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(ours.label_factors_, local.label_factors_, rtol=1e-5, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LEML", "REML", "BinaryRelevance", "Cascade"])
def test_on_real_data_the_answers_are_those_of_a_local_fit(client, data_folder, name):
    """Seven unequal parts; in the numbers of the data, which are float32."""
    models = {
        "LEML": lambda: LEML(50),
        "REML": lambda: REML(50, sparse_part="support"),
        # Its tolerance, 1e-3, is above the differences between the scores of some labels.
        "BinaryRelevance": lambda: BinaryRelevance(tol=1e-5),
        "Cascade": Cascade,
    }
    X, Y, X_test, _ = read_folder(data_folder / "debtags", "debtags")
    cuts = [0, 485, 7757, 8969, 13817, 16968, 19392, X.shape[0]]
    local = models[name]().fit(X, Y)
    ours = fit(models[name](), parts(X, cuts), parts(Y, cuts), client=client)
    found, expected = (np.sort(model.predict_topk(X_test, 5)[0], axis=1) for model in (ours, local))
    assert (found == expected).all(axis=1).mean() >= 0.999


def test_it_is_an_ordinary_model(client, problem, tmp_path):
    X, Y = problem
    model = MODELS["Cascade"]()
    assert fit(model, parts(X), parts(Y), client=client) is model
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_topk(X, 3)[0], model.predict_topk(X, 3)[0])


@pytest.mark.parametrize("form", ["delayed", "futures", "dask array"])
def test_data_in_any_form(client, problem, form):
    X, Y = problem
    expected = fit(LEML(4, max_iter=2), parts(X), parts(Y), client=client)
    given = {
        "delayed": lambda matrix: [dask.delayed(part) for part in parts(matrix)],
        "futures": lambda matrix: client.scatter(parts(matrix)),
        "dask array": lambda matrix: da.concatenate(
            [
                da.from_delayed(dask.delayed(part), part.shape, meta=sp.csr_matrix((0, 0), dtype=part.dtype))
                for part in parts(matrix)
            ]
        ),
    }[form]
    found = fit(LEML(4, max_iter=2), given(X), given(Y))  # the client of this process
    assert found.feature_factors_.tobytes() == expected.feature_factors_.tobytes()


@pytest.mark.parametrize("name", ["LEML", "REML", "Cascade"])
def test_the_same_parts_give_the_same_bits_on_any_number_of_workers(client, problem, name):
    X, Y = problem
    two = fit(MODELS[name](), parts(X), parts(Y), client=client)
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as alone:
        one = fit(MODELS[name](), parts(X), parts(Y), client=alone)
    for attribute in two._saved_arrays:
        ours, theirs = (getattr(model, attribute) for model in (two, one))
        ours, theirs = (part.toarray() if sp.issparse(part) else part for part in (ours, theirs))
        assert ours.tobytes() == theirs.tobytes(), attribute


def test_names_and_validation_rows_of_a_cascade(client, problem):
    """Several folds teach the fusion, and labels have names."""
    X, Y = problem
    names = sp.csr_matrix((np.ones(30), (np.arange(30), np.arange(30))), shape=(30, 60))
    local = MODELS["Cascade"](refit=True).fit(X, Y, label_features=names)
    ours = fit(MODELS["Cascade"](refit=True), parts(X), parts(Y), label_features=names, client=client)
    np.testing.assert_array_equal(ours.name_rows_, local.name_rows_)
    np.testing.assert_array_equal(ours.label_frequency_, local.label_frequency_)
    assert (ours.cooccurrence_ != local.cooccurrence_).nnz == 0
    np.testing.assert_allclose(ours.fusion_own_, local.fusion_own_, atol=1e-6)
    np.testing.assert_allclose(ours.decision_function(X), local.decision_function(X), atol=1e-5)
    with pytest.raises(InvalidInputError, match="label_features: LEML does not learn from names"):
        fit(LEML(), parts(X), parts(Y), label_features=names, client=client)


@pytest.mark.parametrize("name", ["LEML", "REML", "Cascade"])
def test_a_fit_that_was_stopped_resumes(client, problem, tmp_path, name):
    X, Y = problem
    whole = fit(MODELS[name](), parts(X), parts(Y), client=client)

    class Cut(Exception):
        pass

    def cut(*_):
        raise Cut

    checkpoint = Checkpoint(tmp_path / "checkpoint", every=1)
    with pytest.raises(Cut):
        fit(MODELS[name](), parts(X), parts(Y), client=client, callback=cut, checkpoint=checkpoint)
    with pytest.raises(InvalidInputError, match="parts"):
        fit(MODELS[name](), parts(X, [0, 200, 400]), parts(Y, [0, 200, 400]), client=client, checkpoint=checkpoint)
    resumed = fit(MODELS[name](), parts(X), parts(Y), client=client, checkpoint=checkpoint)
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, Y: (X, Y[:-1]), "Y has 6 parts where X has 7"),
        (lambda X, Y: ([], []), "no parts"),
        (lambda X, Y: ([part[:0] for part in X], [part[:0] for part in Y]), "no rows in any"),
        (lambda X, Y: ([X[0][:, :5], *X[1:]], Y), "Part 1 has 60 features where part 0 has 5"),
        (lambda X, Y: (X, [*Y[:-2], Y[-2][:4], Y[-1]]), "Part 5: .*rows"),
        (lambda X, Y: ([*X[:5], X[5] * np.nan, X[6]], Y), "Part 5: X .*NaN"),
    ],
)
def test_data_that_does_not_fit(client, problem, change, words):
    X, Y = change(*(parts(matrix) for matrix in problem))
    with pytest.raises(InvalidInputError, match=words):
        fit(LEML(2), X, Y, client=client)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (PLST(2), "PLST does not learn on a cluster; use LEML"),
        (LEML(2, kernel="rbf"), "kernel='rbf' is not for a cluster"),
        (LEML(2, early_stopping=True), "early_stopping=True"),
        (REML(2, sparse_part="admm"), "sparse_part='admm'"),
        (REML(2, partitions=2), "partitions=2"),
        (BinaryRelevance(loss="hinge"), "loss='hinge'"),
    ],
)
def test_what_is_not_for_a_cluster(client, problem, model, words):
    X, Y = problem
    with pytest.raises(InvalidInputError, match=words):
        fit(model, parts(X), parts(Y), client=client)
    assert not hasattr(model, "n_labels_")


def test_things_that_are_no_parts_and_no_client(client, problem):
    X, Y = problem
    with pytest.raises(InvalidTypeError, match="X must be a list of parts"):
        fit(LEML(2), X, Y, client=client)
    with pytest.raises(InvalidTypeError, match=r"client must be a dask\.distributed\.Client"):
        fit(LEML(2), parts(X), parts(Y), client="tcp://localhost:1")
    with pytest.raises(InvalidTypeError, match="model must be a model of tagwise"):
        fit(object(), parts(X), parts(Y), client=client)


def test_what_a_local_fit_says_is_said(client, problem):
    X, Y = problem
    model = LEML(4, max_iter=1, warm_start=True)
    fit(model, parts(X), parts(Y), client=client)
    with pytest.warns(TagwiseWarning, match="Nothing is known to be off"):
        fit(LEML(4, max_iter=1), parts(X), parts(Y), parts(Y), client=client)
    with pytest.raises(InvalidInputError, match="warm_start needs the features, labels and rank of the last fit"):
        fit(model, parts(X), parts(Y[:, :20]), client=client)
