"""Models that learn on a cluster are those that learn from all rows on one machine."""

import gc
import os
import subprocess
import sys
from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML, REML, BinaryRelevance, Cascade, Checkpoint, load
from tagwise.baselines import PLST
from tagwise.data import hide_labels, make_low_rank_plus_sparse
from tagwise.data.datasets import read_folder
from tagwise.distributed import fit
from tagwise.distributed.executor import DaskExecutor, Packed
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
    "REML-admm": lambda **more: REML(4, sparse_part="admm", max_iter=2, **more),
    "REML-partitions": lambda **more: REML(4, sparse_part="support", support=8, partitions=2, **more),
    "BinaryRelevance": lambda **more: BinaryRelevance(tol=1e-6, **more),
    "BinaryRelevance-hinge": lambda **more: BinaryRelevance(loss="hinge", tol=1e-6, **more),
    # Small sets are learnt from in up to ten parts in turn otherwise; one test has them.
    "Cascade": lambda **more: Cascade(rank=4, support=10, shortlist=6, hard_negatives=6, **{"refit": False} | more),
}


@pytest.fixture(scope="module")
def problem():
    made = make_low_rank_plus_sparse(400, 60, 30, rank=4, features_per_row=8, noise=0.5, random_state=0)
    return made.X, made.Y


def parts(matrix, cuts=CUTS):
    return [matrix[start:stop] for start, stop in pairwise(cuts)]


def dense(array):
    return array.toarray() if sp.issparse(array) else array


@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_that_of_all_rows(client, problem, name):
    X, Y = problem
    X = X.astype(np.float64)
    observed = hide_labels(Y, 0.6, random_state=1)
    weights = np.random.default_rng(2).integers(0, 4, 400).astype(float)
    for mask, weight, options in ((None, None, {}), (observed, None, {"positive_weight": 2.0}), (None, weights, {})):
        local = MODELS[name](**options).fit(X, Y, mask, sample_weight=weight)
        ours = fit(
            MODELS[name](**options),
            parts(X),
            parts(Y),
            None if mask is None else parts(mask),
            sample_weight=None if weight is None else parts(weight),
            client=client,
        )
        assert ours.n_iter_ == local.n_iter_
        np.testing.assert_allclose(ours.objective_, local.objective_, rtol=1e-6)
        np.testing.assert_allclose(ours.decision_function(X), local.decision_function(X), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LEML", "REML", "BinaryRelevance", "Cascade"])
def test_on_real_data_the_answers_are_those_of_a_local_fit(client, data_folder, name):
    models = {
        "LEML": lambda: LEML(50),
        "REML": lambda: REML(50, sparse_part="support"),
        # Its tolerance, 1e-3, is above the differences between the scores of some labels.
        "BinaryRelevance": lambda: BinaryRelevance(tol=1e-5),
        "Cascade": Cascade,
    }
    X, Y, X_test, _ = read_folder(data_folder / "debtags", "debtags")
    local = models[name]().fit(X, Y)
    ours = fit(models[name](), X, Y, client=client)
    expected, found = (np.sort(model.predict_topk(X_test, 5)[0], axis=1) for model in (local, ours))
    assert (expected == found).all(axis=1).mean() >= 0.999


def test_data_in_any_form(client, problem):
    X, Y = problem
    expected = fit(LEML(4, max_iter=2), X, Y, client=client)
    forms = {
        "parts": parts,
        "delayed": lambda matrix: [dask.delayed(part) for part in parts(matrix)],
        "futures": lambda matrix: client.scatter(parts(matrix)),
        "dask array": lambda matrix: da.concatenate(
            [
                da.from_delayed(dask.delayed(part), part.shape, meta=sp.csr_matrix((0, 0), dtype=part.dtype))
                for part in parts(matrix)
            ]
        ),
    }
    for name, given in forms.items():
        found = fit(LEML(4, max_iter=2), given(X), given(Y))  # the client of this process
        assert found.feature_factors_.tobytes() == expected.feature_factors_.tobytes(), name
    arrays = fit(LEML(4, max_iter=2), parts(X.toarray()), parts(Y.toarray()), client=client)
    np.testing.assert_allclose(arrays.feature_factors_, expected.feature_factors_, atol=1e-4)


def test_names_and_validation_rows_of_a_cascade(client, problem, tmp_path):
    """Several folds teach the fusion, and labels have names."""
    X, Y = problem
    names = sp.csr_matrix((np.ones(30), (np.arange(30), np.arange(30))), shape=(30, 60))
    local = MODELS["Cascade"](refit=True).fit(X, Y, label_features=names)
    ours = MODELS["Cascade"](refit=True)
    assert fit(ours, parts(X), parts(Y), label_features=names, client=client) is ours
    for name in ("name_rows_", "label_frequency_", "cooccurrence_"):
        np.testing.assert_array_equal(dense(getattr(ours, name)), dense(getattr(local, name)))
    np.testing.assert_allclose(ours.fusion_own_, local.fusion_own_, atol=1e-3)
    np.testing.assert_allclose(ours.decision_function(X), local.decision_function(X), atol=1e-3)
    ours.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_topk(X, 3)[0], ours.predict_topk(X, 3)[0])
    with pytest.raises(InvalidInputError, match="label_features: LEML does not learn from names"):
        fit(LEML(), parts(X), parts(Y), label_features=names, client=client)


@pytest.mark.parametrize("name", ["LEML", "Cascade"])
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
    rounds = []
    resumed = fit(
        MODELS[name](),
        parts(X),
        parts(Y),
        client=client,
        checkpoint=checkpoint,
        callback=lambda iteration, info: rounds.append(iteration),
    )
    assert rounds[0] == 2
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))


def test_what_is_refused(client, problem):
    X, Y = (parts(matrix) for matrix in problem)
    for given, words in (
        ((X, Y[:-1]), "Y has 6 parts where X has 7"),
        (([], []), "no parts"),
        (([part[:0] for part in X], [part[:0] for part in Y]), "X has 0 sample"),
        (([*X[:4], X[4][:, :5], *X[5:]], Y), "X: its parts do not fit together"),
        ((X, [*Y[:-2], Y[-2][:4], Y[-1]]), "Part 5 of Y has 4 rows where that of X has 249"),
        (([*X[:5], X[5] * np.nan, X[6]], Y), "X .*NaN"),
        ((X, Y, PLST(2)), "PLST does not learn on a cluster; use LEML"),
    ):
        model = given[2] if len(given) > 2 else LEML(2)
        with pytest.raises(InvalidInputError, match=words):
            fit(model, *given[:2], client=client)
        assert not hasattr(model, "n_labels_")
    for model, rows, connected, words in (
        (LEML(2), "X", client, "X must be a list of parts"),
        (LEML(2), X, "tcp://localhost:1", r"client must be a dask\.distributed\.Client"),
        (object(), X, client, "model must be a model of tagwise"),
    ):
        with pytest.raises(InvalidTypeError, match=words):
            fit(model, rows, Y, client=connected)


def test_warnings_of_a_local_fit(client, problem):
    X, Y = problem
    with pytest.warns(TagwiseWarning, match="contains no negatives"):
        fit(LEML(4, max_iter=1), parts(X), parts(Y), parts(Y), client=client)


# --- the executor


def test_a_packed_value_is_the_value(tmp_path):
    """Arrays of any types and layouts, matrices, and arrays that are there twice."""
    twice = np.arange(7, dtype=np.float32)
    value = {
        "arrays": [twice, twice, np.zeros(0), np.ones((3, 5))[:, ::2], np.asfortranarray(np.ones((2, 3)))],
        "matrix": sp.csr_matrix(np.eye(4, dtype=np.float32)),
        "others": ("text", 3, None, np.float32(2)),
    }
    packed = Packed.of(value)
    packed.write(tmp_path / "value")
    for one in (packed, Packed.read(tmp_path / "value")):
        found = one.value()
        for ours, theirs in zip(found["arrays"], value["arrays"]):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
            assert ours.flags.writeable
        np.testing.assert_array_equal(found["matrix"].toarray(), np.eye(4))
        assert found["others"] == value["others"]
        assert found["arrays"][0] is found["arrays"][1]
    for part in Packed.read(tmp_path / "value").arrays:
        assert part.ctypes.data % 64 == 0


def scaled(block, matrix, factor):
    return block * factor * matrix


def nested(block, pair):
    return block * pair[0].sum() + pair[1]


def test_shared_values_reach_every_task_and_are_gone_afterwards(client):
    matrix = np.random.default_rng(0).random((300, 400))
    with DaskExecutor(client) as executor:
        shared = executor.share(matrix)
        blocks = [1.0, 2.0, np.full((300, 400), 3.0)]
        for found, factor in zip(executor.stream(scaled, blocks, shared, 0.5), (0.5, 1.0, 1.5)):
            np.testing.assert_array_equal(found, factor * matrix)
            found[0] = 0  # writable
        np.testing.assert_allclose(executor.sum(scaled, blocks, shared, 1.0), 6 * matrix)
        pair = executor.share((shared, 5.0))  # a shared value within another
        np.testing.assert_allclose(executor.map(nested, [1, 2], pair), [matrix.sum() + 5, 2 * matrix.sum() + 5])
        assert executor.tasks == 8
        assert executor.bytes_shared < 5 * matrix.nbytes
        files = set(executor.folder.iterdir())
        del shared, pair
        assert set(executor.folder.iterdir()) < files
    assert not executor.folder.exists()


def difference(block, kept):
    return block * (kept[1] - kept[0])


def test_equal_arrays_are_shared_once_and_results_stay_where_they_were_made(client):
    matrix = np.random.default_rng(0).random((300, 400))
    with DaskExecutor(client) as executor:
        shared = executor.share(matrix)
        before = executor.bytes_shared
        again = executor.share({"equal": matrix.copy(), "other": 1})
        assert executor.bytes_shared - before < 1000
        kept = executor.keep(scaled, [1.0, 2.0], shared, 1.0)
        assert before < executor.bytes_shared + executor.bytes_returned < before + 2.1 * matrix.nbytes
        (found,) = executor.map(difference, [3.0], kept)
        np.testing.assert_allclose(found, 3 * matrix)
        np.testing.assert_array_equal(executor.value(kept[1]), 2 * matrix)
        files = set(executor.folder.iterdir())
        del shared
        gc.collect()  # errors of waiting hold frames
        assert set(executor.folder.iterdir()) < files
        np.testing.assert_array_equal(executor.value(again)["equal"], matrix)


FILLING = """
import os, sys, time
from tagwise.executor import filled_together

def fill(array, chunk):
    if chunk[0] == int(sys.argv[1]):
        os._exit(1)
    with open(sys.argv[2], "a") as log:
        log.write(f"{chunk[0]}\\n")
    time.sleep(0.05)
    array[slice(*chunk)] = range(*chunk)

array = filled_together("folder/array", 20, "int64", [(i, i + 2) for i in range(0, 20, 2)], fill)
assert array.tolist() == list(range(20))
"""


def test_processes_of_a_machine_fill_an_array_together_and_without_one_that_dies(tmp_path):
    pytest.importorskip("fcntl")
    log, environment = tmp_path / "log", {**os.environ, "TMPDIR": str(tmp_path)}

    def started(dies_at):
        return subprocess.Popen([sys.executable, "-c", FILLING, dies_at, str(log)], env=environment)

    assert started("6").wait() == 1
    assert [process.wait() for process in [started("-1"), started("-1")]] == [0, 0]
    assert sorted(map(int, log.read_text().split())) == list(range(0, 20, 2))


class Elsewhere(DaskExecutor):
    """Its workers are taken to be on another machine."""

    def _look_around(self):
        self._machines = {"another": {*self.client.nthreads(), "tcp://gone:1"}, "of the dead": {"tcp://gone:2"}}
        self._distant = set(self._machines)


def test_a_machine_that_does_not_see_the_folder_is_sent_what_is_shared(client, tmp_path):
    matrix = np.random.default_rng(0).random((300, 400))
    with Elsewhere(client, tmp_path) as executor:
        shared = executor.share(matrix)
        assert executor.bytes_shared >= 2 * matrix.nbytes
        hidden = executor.folder.rename(executor.folder.with_name("hidden-" + executor.folder.name))
        try:
            np.testing.assert_array_equal(executor.map(scaled, [2.0], shared, 1.0)[0], 2 * matrix)
        finally:
            hidden.rename(executor.folder)
        assert executor._distant == {"another"}  # what has no worker left is sent nothing, and waited for by nobody
