"""An approximate index: what it finds, that it is the same every time, and its folder."""

import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML, REML, ApproximateIndex, BinaryRelevance, load
from tagwise.baselines import PLST
from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError, NotFittedError, TagwiseError
from tagwise.models.factor_model import LOWEST_SCORE
from tagwise.persistence import ModelRecord, read_model, write_model


def large_model(n_labels=3000, rank=8, dtype=np.float32, seed=0):
    """LEML with many labels in clusters, whose lengths fall as those of rare labels do."""
    rng = np.random.default_rng(seed)
    X = sp.random(60, 40, 0.3, "csr", dtype=dtype, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LEML(rank=rank, max_iter=1).fit(X, (rng.random((60, 10)) < 0.3).astype(dtype))
    centers = rng.standard_normal((40, rank))
    H = centers[rng.integers(40, size=n_labels)] + 0.2 * rng.standard_normal((n_labels, rank))
    model.feature_factors_ = rng.standard_normal((40, rank)).astype(dtype)
    model.label_factors_ = (H * rng.random(n_labels)[:, None] ** 2).astype(dtype)
    model.intercept_ = (0.1 * rng.standard_normal(n_labels)).astype(dtype)
    model.n_labels_, model.classes_ = n_labels, np.arange(n_labels)
    model._build_prediction_cache()
    return model, sp.random(200, 40, 0.3, "csr", dtype=dtype, random_state=seed + 1)


@pytest.fixture(scope="module")
def made():
    model, X = large_model()
    return model, X, ApproximateIndex(model)


def test_it_finds_most_with_an_eighth_of_the_lists_and_all_with_all(made):
    model, X, index = made
    assert (index.n_lists, index.n_probes) == (55, 6)
    assert repr(index) == "ApproximateIndex(LEML of 3,000 labels, 6 of 55 lists per row)"
    assert index.recall(X, 5) > 0.85
    index = ApproximateIndex(model, n_lists=12)
    recalls = []
    for index.n_probes in (1, 3, 12):
        recalls.append(index.recall(X, 5))
    assert recalls[0] < recalls[1] < recalls[2] == 1


def test_recall_counts_the_exact_labels_that_are_found(made):
    model, X, index = made
    labels, exact = index.predict_topk(X, 5)[0], model.predict_topk(X, 5)[0]
    shares = [len(set(row) & set(best)) / 5 for row, best in zip(labels, exact)]
    assert index.recall(X, 5) == pytest.approx(np.mean(shares))
    assert ApproximateIndex(model, n_lists=1).recall(X, 4000) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_the_models_own(dtype):
    model, X = large_model(dtype=dtype)
    labels, scores = ApproximateIndex(model).predict_topk(X, 5)
    exact = model.decision_function(X)
    assert scores.dtype == dtype
    np.testing.assert_allclose(scores, np.take_along_axis(exact, labels, axis=1), rtol=1e-4)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_with_all_lists_ties_and_exclusions_are_those_of_the_model():
    model, X = large_model(n_labels=300)
    model.label_factors_ = np.round(model.label_factors_)
    model.intercept_ = np.zeros_like(model.intercept_)
    rows = sp.csr_matrix(np.round(3 * X.toarray()[:50]))
    model.feature_factors_ = np.round(model.feature_factors_)
    model.set_params(normalize=False)
    index = ApproximateIndex(model, n_lists=7, n_probes=7)
    exclude = sp.random(50, 300, 0.3, "csr", random_state=0)
    for hidden in (None, exclude):
        for k in (1, 20, 250):
            expected = model.predict_topk(rows, k, exclude=hidden)
            for ours, theirs in zip(index.predict_topk(rows, k, exclude=hidden), expected):
                np.testing.assert_array_equal(ours, theirs)


def test_rows_whose_lists_are_too_short_are_answered_exactly(made):
    model, X, _ = made
    index = ApproximateIndex(model, n_lists=500, n_probes=1)
    labels, scores = index.predict_topk(X, 2900)
    exact, best = model.predict_topk(X, 2900)
    np.testing.assert_array_equal(labels, exact)
    np.testing.assert_array_equal(scores, best)
    assert (index.predict_topk(X[:3], 3100)[0][:, 3000:] == -1).all()


def test_excluded_labels_are_never_found(made):
    model, X, index = made
    best, _ = model.predict_topk(X, 20)
    rows = np.repeat(np.arange(X.shape[0]), 20)
    exclude = sp.csr_matrix((np.ones(best.size), (rows, best.ravel())), shape=(X.shape[0], 3000))
    labels, _ = index.predict_topk(X, 5, exclude=exclude)
    assert (labels >= 0).all()
    assert not (labels[:, :, None] == best[:, None, :]).any()


def test_the_same_every_time_on_any_number_of_threads_alone_and_in_company(made):
    model, X, index = made
    again = ApproximateIndex(model)
    expected = index.predict_topk(X, 5)
    for n_jobs in (1, 2, 3):
        model.set_params(n_jobs=n_jobs)
        for ours, theirs in zip(again.predict_topk(X, 5), expected):
            assert ours.tobytes() == theirs.tobytes()
    model.set_params(n_jobs=None)
    for row in range(0, 200, 9):
        for ours, theirs in zip(index.predict_topk(X[row], 5), expected):
            assert ours[0].tobytes() == theirs[row].tobytes()
    other = ApproximateIndex(model, random_state=1)
    assert not np.array_equal(other._lists, index._lists)


def test_labels_of_which_nothing_is_known_come_last():
    model, X = large_model()
    model.intercept_ = np.where(np.arange(3000) % 3 == 0, LOWEST_SCORE, model.intercept_).astype(np.float32)
    labels, _ = ApproximateIndex(model).predict_topk(X, 5)
    assert (labels % 3 != 0).all()
    assert ApproximateIndex(model).recall(X, 5) > 0.8


def test_other_low_rank_models_and_kernels():
    data = load_dataset("debtags-sample")
    X, Y = data.X_train[:300], data.Y_train[:300]
    for model in (PLST(rank=10), LEML(rank=10, kernel="rbf", tol=1.0)):
        index = ApproximateIndex(model.fit(X, Y), n_lists=4, n_probes=4)
        assert index.recall(data.X_test[:100], 5) > 0.99


# ---------------------------------------------------------------------- folders


def test_a_saved_index_answers_the_same(made, tmp_path):
    model, X, index = made
    model.save(tmp_path / "model")
    index.save(tmp_path / "index")
    read = ApproximateIndex.load(tmp_path / "index", load(tmp_path / "model"))
    assert (read.n_lists, read.n_probes, read.random_state) == (55, 6, 0)
    for ours, theirs in zip(read.predict_topk(X, 5), index.predict_topk(X, 5)):
        assert ours.tobytes() == theirs.tobytes()
    with pytest.raises(InvalidInputError, match="overwrite is False"):
        index.save(tmp_path / "index", overwrite=False)


def test_an_index_that_load_would_refuse_is_not_saved(made, tmp_path):
    index = ApproximateIndex(made[0], n_lists=5)
    index.n_probes = 6
    with pytest.raises(InvalidInputError, match="n_probes must be at most the 5 lists"):
        index.save(tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_the_folder_of_another_model_is_refused(made, tmp_path):
    model, _, index = made
    index.save(tmp_path / "index")
    other, _ = large_model(seed=5)
    with pytest.raises(ModelFormatError, match="made for another model"):
        ApproximateIndex.load(tmp_path / "index", other)
    with pytest.raises(ModelFormatError, match=r"read it with ApproximateIndex\.load"):
        load(tmp_path / "index")
    model.save(tmp_path / "model")
    with pytest.raises(ModelFormatError, match="holds a LEML, no index"):
        ApproximateIndex.load(tmp_path / "model", model)
    with pytest.raises(ModelFormatError, match="does not exist"):
        ApproximateIndex.load(tmp_path / "nothing", model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.tensors.update(lists=r.tensors["lists"][1:]), "lists must be 3000 numbers"),
        (lambda r: r.tensors.update(lists=r.tensors["lists"].astype(np.int64)), "type int32"),
        (lambda r: r.tensors.update(lists=r.tensors["lists"] + np.int32(9)), "lists must name them"),
        (lambda r: r.tensors.update(lists=r.tensors["lists"] - np.int32(9)), "lists must name them"),
        (lambda r: r.tensors.update(lists=sp.csr_matrix((3, 3))), "lists must be 3000 numbers"),
        (lambda r: r.tensors.update(centres=r.tensors["centres"][:, 1:]), "must be float32 and have 9 columns"),
        (lambda r: r.tensors.update(centres=r.tensors["centres"].astype(float)), "must be float32"),
        (lambda r: r.tensors.update(centres=r.tensors["centres"] * np.float32(np.inf)), "must be finite"),
        (lambda r: r.tensors.update(centres=r.tensors["centres"][:0]), "must be finite"),
        (lambda r: r.tensors.update(centres=sp.csr_matrix((3, 9), dtype=np.float32)), "must be float32"),
        (lambda r: r.tensors.pop("lists"), "tensors missing"),
        (lambda r: r.parameters.update(n_probes=56), "n_probes must be at most the 55 lists"),
        (lambda r: r.parameters.update(n_probes="all"), "n_probes must be a whole number"),
        (lambda r: r.parameters.update(random_state=-1), "random_state must be at least 0"),
        (lambda r: r.parameters.update(more=1), "parameters missing"),
        (lambda r: r.values.pop("intercept"), "made for another model"),
    ],
)
def test_a_forged_folder_is_refused(made, tmp_path, change, message):
    model, _, index = made
    index.save(tmp_path / "index")
    read = read_model(tmp_path / "index")
    record = ModelRecord(read.class_name, dict(read.parameters), dict(read.tensors), dict(read.values))
    change(record)
    write_model(tmp_path / "index", record)
    with pytest.raises(ModelFormatError, match=message):
        ApproximateIndex.load(tmp_path / "index", model)


# ---------------------------------------------------------------------- bad input


def test_models_without_inner_products_are_refused():
    X, Y = sp.random(30, 8, 0.5, "csr", random_state=0), np.eye(30, 4)
    warnings.simplefilter("ignore")
    for model in (BinaryRelevance().fit(X, Y), REML(rank=2, max_iter=1).fit(X, Y)):
        with pytest.raises(InvalidInputError, match=f"{type(model).__name__} are not inner products"):
            ApproximateIndex(model)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        ApproximateIndex(LEML())
    with pytest.raises(InvalidTypeError, match="model must be a fitted model of tagwise; found str"):
        ApproximateIndex("LEML")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"n_lists": 0}, InvalidInputError, "n_lists must be at least 1"),
        ({"n_lists": 3001}, InvalidInputError, "n_lists must be at most the 3000 labels"),
        ({"n_lists": 2.5}, InvalidTypeError, "n_lists must be a whole number"),
        ({"n_probes": 0}, InvalidInputError, "n_probes must be at least 1"),
        ({"n_lists": 5, "n_probes": 6}, InvalidInputError, "n_probes must be at most the 5 lists"),
        ({"random_state": -1}, InvalidInputError, "random_state must be at least 0"),
        ({"random_state": None}, InvalidTypeError, "random_state must be a whole number"),
    ],
)
def test_bad_parameters_are_named(made, given, error, message):
    with pytest.raises(error, match=message):
        ApproximateIndex(made[0], **given)


def test_bad_questions_are_named(made):
    model, X, index = made
    with pytest.raises(InvalidInputError, match="k must be at least 1"):
        index.predict_topk(X, 0)
    with pytest.raises(InvalidInputError, match="features"):
        index.predict_topk(X[:, :5])
    with pytest.raises(InvalidInputError, match="exclude has shape"):
        index.predict_topk(X, exclude=sp.csr_matrix((3, 3)))
    index = ApproximateIndex(model, n_lists=3)
    index.n_probes = 4
    with pytest.raises(InvalidInputError, match="n_probes must be at most the 3 lists"):
        index.predict_topk(X)


def test_a_model_that_was_fitted_again_is_noticed(tmp_path):
    model, X = large_model()
    index = ApproximateIndex(model)
    model.label_factors_ = model.label_factors_.copy()
    for act in (lambda: index.predict_topk(X), lambda: index.save(tmp_path / "index")):
        with pytest.raises(InvalidInputError, match="fitted again since the index was made"):
            act()


def test_factors_too_large_for_float32_are_named():
    model, _ = large_model(dtype=np.float64)
    model.label_factors_ = model.label_factors_ * 1e300
    with pytest.raises(InvalidInputError, match="too large for float32"):
        ApproximateIndex(model)


def test_without_the_library_the_message_says_what_to_install(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(TagwiseError, match=r"pip install 'tagwise\[index\]'"):
        ApproximateIndex(made[0])


def test_faiss_is_imported_on_use_only(tmp_path):
    import subprocess

    code = "import sys, tagwise; tagwise.ApproximateIndex; print('faiss' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
