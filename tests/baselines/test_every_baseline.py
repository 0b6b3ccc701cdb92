"""Checks that all baselines share: bad parameters, forged folders, ranks, equal rows, published figures."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from linear_labels import linear_labels

from tagwise import baselines, load
from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError, TagwiseWarning
from tagwise.metrics import precision_at_k
from tagwise.store import read_model, write_model

# Values that each parameter refuses, and the end of the sentence that says so.
LESS = {
    "BayesianCS": "n_measurements n_sweeps max_iter",
    "CPLST": "rank max_iter",
    "CompressedSensing": "n_measurements n_nonzero",
    "FastXML": "n_trees max_leaf leaf_labels",
    "KNN": "n_neighbors",
    "LPSR": "n_partitions labels_per_partition n_visited rank",
    "MDDM": "n_components n_neighbors",
    "MLCSSP": "rank",
    "MLKNN": "n_neighbors",
    "PLST": "rank",
    "SLEEC": "n_learners n_clusters rank label_neighbors n_neighbors max_iter",
    "WSABIE": "rank max_iter max_trials",
}
POSITIVE = {
    "BayesianCS": "reg feature_noise code_noise prior_shape prior_rate",
    "CPLST": "memory_limit",
    "CompressedSensing": "reg",
    "FastXML": "C",
    "LPSR": "reg",
    "MDDM": "kept smoothing memory_limit",
    "MLCSSP": "reg",
    "MLKNN": "smoothing",
    "PLST": "reg",
    "SLEEC": "reg",
    "WSABIE": "learning_rate max_norm",
}
BAD = [
    *((name, p, 0, "be at least 1; found 0") for name, names in LESS.items() for p in names.split()),
    *((name, p, 0, "be finite above 0") for name, names in POSITIVE.items() for p in names.split()),
    *((name, "random_state", -1, "be from 0") for name in LESS if name not in ("KNN", "MLKNN")),
    ("BayesianCS", "n_sweeps", 1001, "be at most 1,000"),
    ("BayesianCS", "tol", -1, "be finite at least 0"),
    ("BayesianCS", "posterior", "exact", "be one of 'factored', 'joint'"),
    ("CPLST", "reg", -1, "be finite at least 0"),
    ("CPLST", "tol", -1, "be finite at least 0"),
    ("CPLST", "solver", "newton", "be one of"),
    ("CompressedSensing", "recovery", "lasso", "be one of 'omp', 'cosamp'"),
    ("KNN", "n_neighbors", 2.5, "be a whole number"),
    ("KNN", "similarity_power", np.inf, "be finite at least 0 and at most 1000"),
    ("KNN", "similarity_power", "cosine", "be a number"),
    ("LPSR", "base", "naive", "be one of"),
    ("MDDM", "n_components", 1.5, "be a whole number"),
    ("MDDM", "kept", 1.1, "be finite above 0 and at most 1"),
    ("MDDM", "correlation", -0.1, "be finite at least 0 and at most 1"),
    ("MDDM", "correlation", 1, "be below 1"),
    ("MDDM", "beyond", "none", "be one of"),
    ("MLKNN", "smoothing", None, "be a number"),
    ("SLEEC", "sparsity", -1, "be finite at least 0"),
    ("SLEEC", "similarity_power", -1, "be finite at least 0"),
    ("SLEEC", "tol", -1, "be finite at least 0"),
    ("SLEEC", "random_state", "seed", "be None, a whole number"),
    ("WSABIE", "deterministic", 1, "be True or False"),
]


def test_bad_parameters():
    X, Y = linear_labels(20, 5, 4, 0.5, 0)
    for name, parameter, value, words in BAD:
        with pytest.raises((InvalidInputError, InvalidTypeError), match=rf"^{parameter} must {words}"):
            getattr(baselines, name)(**{parameter: value}).fit(X, Y)
    with pytest.raises(InvalidInputError, match='reg must be above 0 for solver="subspace"'):
        baselines.CPLST(reg=0, solver="subspace").fit(X, Y)


@pytest.mark.parametrize("name", ["PLST", "CPLST", "MLCSSP"])
def test_too_large_a_rank_is_clipped_with_a_warning(name):
    X, Y = linear_labels(60, 9, 8, 0.4, 0)
    with pytest.warns(TagwiseWarning, match=r"rank=20 is more than .*8.*; using 8") as caught:
        getattr(baselines, name)(rank=20).fit(X, Y)
    assert caught[0].filename == __file__


# ------------------------------------------------------------------ folders

# What axes and types do not say; tests/test_fields.py has those. Constructor parameters, an attribute, and what a
# forger makes of it.
FORGED = [
    ("CompressedSensing", {}, "n_nonzero_", lambda n: -3, "n_nonzero_"),
    ("CompressedSensing", {}, "feature_factors_", lambda a: a[:, :0], "_ must"),
    ("FastXML", {"n_trees": 2}, "roots_", lambda a: a + 10**6, "outside the trees"),
    ("FastXML", {"n_trees": 2}, "roots_", lambda a: a[:0], "must have a tree"),
    ("FastXML", {"n_trees": 2}, "children_", np.zeros_like, "its own ancestor"),
    ("FastXML", {"n_trees": 2}, "children_", lambda a: a - 10**6, "outside the trees"),
    ("KNN", {}, "rows_", lambda a: a[:, 1:], "rows_|labels_"),
    ("KNN", {}, "labels_", lambda a: 2 * a, "ones"),
    ("LPSR", {}, "centers_", lambda a: a[:-1], "partition_labels_"),
    ("LPSR", {}, "partition_labels_", lambda a: 2 * a, "ones"),
    ("LPSR", {}, "base", lambda base: "wsabie", "scorer_ is a BinaryRelevance"),
    ("MDDM", {}, "projection_", lambda a: a[:, :-1], "eigenvalues_"),
    ("MLCSSP", {"rank": 3}, "selected_labels_", lambda a: a[::-1], "ascending order"),
    ("MLCSSP", {"rank": 3}, "selected_labels_", lambda a: a + 99, "ascending order"),
    ("MLCSSP", {"rank": 3}, "selected_labels_", lambda a: a - 99, "ascending order"),
    ("MLKNN", {"n_neighbors": 3}, "log_odds_", lambda a: np.tile(a, 40), "columns for 60 rows"),
    ("SLEEC", {}, "members_", lambda a: a + 1, "numbers from 0 to 59"),
    ("SLEEC", {}, "members_", lambda a: a[:-1], "members"),
    ("SLEEC", {}, "member_pointer_", lambda a: a - 1, "must rise from 0"),
    ("SLEEC", {"n_clusters": 4}, "member_pointer_", lambda a: a[[0, 2, 1, 3, *range(4, len(a))]], "must rise"),
    ("SLEEC", {}, "features_", lambda a: a + 1, "numbers from 0 to 8"),
    ("SLEEC", {}, "centers_", lambda a: a[:-1], "member_pointer_"),
]


@pytest.mark.parametrize("name", sorted({name for name, *_ in FORGED}))
def test_folders_that_no_fit_makes_are_refused(tmp_path, name):
    X, Y = linear_labels(60, 9, 8, 0.8, 0)
    for _, parameters, attribute, forge, words in (row for row in FORGED if row[0] == name):
        getattr(baselines, name)(**parameters).fit(X.toarray(), Y).save(tmp_path / "model")
        record = read_model(tmp_path / "model")
        for part in ("tensors", "values", "parameters"):
            content = getattr(record, part)
            if attribute in content:
                changed = {**content, attribute: forge(content[attribute])}
                write_model(tmp_path / "model", replace(record, **{part: changed}))
        with pytest.raises(ModelFormatError, match=words):
            pytest.fail(f"{attribute}: loaded as {load(tmp_path / 'model')}")


# ------------------------------------------------------------------ rows that are equal, and real data


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_repeated_float32_rows_have_one_place(form):
    """BLAS in float32 projects a row alone and in company to different places, and ties between copies are lost."""
    rng = np.random.default_rng(0)
    copy_of = rng.permutation(np.repeat(np.arange(40), 20))
    rows = (rng.random((40, 100)) * (rng.random((40, 100)) < 0.7)).astype(np.float32)[copy_of]
    Y = (rng.random((800, 20)) < 0.2 + 0.4 * (rows[:, :20] > 0.4)).astype(np.float32)
    sleec = baselines.SLEEC(rank=10, n_learners=1, n_clusters=1, n_neighbors=7).fit(form(rows), Y)
    mddm = baselines.MDDM(n_neighbors=7).fit(form(rows), Y)
    for model, kept in [(sleec, sleec.embedding_), (mddm, mddm.rows_)]:
        assert len(np.unique(kept, axis=0)) == 40
        together = model.decision_function(form(rows))
        alone = np.concatenate([model.decision_function(form(rows[row : row + 1])) for row in range(0, 800, 8)])
        np.testing.assert_array_equal(alone, together[::8])


slow = pytest.mark.slow
# P@1 that is reached at least. Published: 54.8 and 64.1 for WSABIE, 63.4 and 69.6 for FastXML, which ours misses by 2
# points on delicious, 62.1 and 65.0 for LPSR, 65.1 and 67.6 for SLEEC; for the others a point above these.
FIGURES = [
    ("BayesianCS", {}, "bibtex", 0.59),
    ("CPLST", {"rank": 100}, "bibtex", 0.614),
    ("CPLST", {"rank": 100}, "delicious", 0.643),
    ("CompressedSensing", {}, "bibtex", 0.579),
    ("CompressedSensing", {"recovery": "cosamp"}, "bibtex", 0.579),
    pytest.param("CompressedSensing", {}, "delicious", 0.604, marks=slow),
    pytest.param("CompressedSensing", {"recovery": "cosamp"}, "delicious", 0.604, marks=slow),
    ("FastXML", {"n_trees": 10}, "bibtex", 0.57),
    pytest.param("FastXML", {}, "bibtex", 0.624, marks=slow),
    pytest.param("FastXML", {}, "delicious", 0.67, marks=slow),
    ("KNN", {}, "bibtex", 0.56),
    ("KNN", {}, "delicious", 0.64),
    ("LPSR", {}, "bibtex", 0.635),
    ("LPSR", {}, "delicious", 0.65),
    ("MDDM", {}, "bibtex", 0.60),
    ("MLCSSP", {"rank": 100}, "bibtex", 0.44),
    ("MLCSSP", {"rank": 100}, "delicious", 0.62),
    ("MLKNN", {}, "bibtex", 0.56),
    ("PLST", {"rank": 100}, "bibtex", 0.61),
    ("SLEEC", {"n_learners": 1, "n_clusters": 1}, "bibtex", 0.641),
    ("SLEEC", {"n_learners": 1, "n_clusters": 1}, "delicious", 0.666),
    ("SLEEC", {}, "bibtex", 0.641),
    pytest.param("SLEEC", {}, "delicious", 0.666, marks=slow),
    ("WSABIE", {}, "bibtex", 0.60),
    ("WSABIE", {"max_iter": 10}, "delicious", 0.65),
    pytest.param("WSABIE", {}, "delicious", 0.65, marks=slow),
]


@pytest.mark.parametrize(("name", "parameters", "dataset", "floor"), FIGURES)
def test_published_figures(data_folder, name, parameters, dataset, floor):
    X, Y, X_test, Y_test = load_dataset(dataset)
    model = getattr(baselines, name)(**parameters, n_jobs=2).fit(X, Y)
    assert precision_at_k(Y_test, model.predict_topk(X_test, 1)[0], 1) >= floor
