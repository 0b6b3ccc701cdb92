"""What every model promises: input forms, mask semantics, outputs, determinism, refits, callbacks and folders."""

import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from sklearn.base import clone

from tagwise import load
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError, NotFittedError, TagwiseError
from tagwise.persistence import read_model, write_model

N_ROWS, N_FEATURES, N_LABELS = 60, 12, 7


def fitted_arrays(model):
    return {name: getattr(model, name) for name in model._saved_arrays}


def assert_same_model(one, two):
    for name, value in fitted_arrays(one).items():
        other = getattr(two, name)
        if sp.issparse(value):
            value, other = value.toarray(), other.toarray()
        np.testing.assert_array_equal(value, other, err_msg=name)


# ---------------------------------------------------------------------------- forms of input


@pytest.mark.parametrize(
    "form",
    [
        sp.csr_matrix,
        sp.csr_array,
        sp.csc_matrix,
        sp.coo_array,
        sp.lil_matrix,
        lambda X: X.toarray(),
        lambda X: np.asfortranarray(X.toarray()),
        lambda X: X.toarray().tolist(),
    ],
    ids=["csr_matrix", "csr_array", "csc", "coo", "lil", "dense", "fortran", "lists"],
)
def test_every_form_of_x_gives_the_same_scores(make, problem, form):
    X, Y = problem
    expected = make().fit(X, Y).decision_function(X)
    np.testing.assert_allclose(make().fit(form(X), Y).decision_function(form(X)), expected, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.int8, bool])
def test_label_types_do_not_matter(make, problem, dtype):
    X, Y = problem
    expected = make().fit(X, Y)
    assert_same_model(make().fit(X, Y.astype(dtype)), expected)
    assert_same_model(make().fit(X, Y.toarray().astype(dtype)), expected)


def test_labels_as_lists(make, problem):
    X, Y = problem
    assert_same_model(make().fit(X, Y.toarray().astype(int).tolist()), make().fit(X, Y))


def test_float32_features_are_learnt_in_float32_and_agree_with_float64(make, problem):
    X, Y = problem
    narrow = make().fit(X.astype(np.float32), Y).decision_function(X.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, make().fit(X, Y).decision_function(X), atol=2e-3)


def test_unsorted_indices(make, problem):
    X, Y = problem
    shuffled_X, shuffled_Y = X.copy(), Y.copy()
    for matrix in (shuffled_X, shuffled_Y):
        for row in range(N_ROWS):
            stored = slice(matrix.indptr[row], matrix.indptr[row + 1])
            matrix.indices[stored] = matrix.indices[stored][::-1].copy()
            matrix.data[stored] = matrix.data[stored][::-1].copy()
        matrix.has_sorted_indices = False
    before = shuffled_X.indices.copy()
    assert_same_model(make().fit(shuffled_X, shuffled_Y), make().fit(X, Y))
    np.testing.assert_array_equal(shuffled_X.indices, before, err_msg="the caller's matrix was changed")


def test_duplicate_features_add_up(make, problem):
    X, Y = problem
    doubled = sp.csr_matrix((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)
    stored = doubled.nnz
    assert_same_model(make().fit(doubled, Y), make().fit(X, Y))
    assert doubled.nnz == stored, "the caller's matrix was changed"


def test_duplicate_labels_are_refused(make, problem):
    X, Y = problem
    doubled = sp.csr_matrix((np.ones(2 * Y.nnz), np.repeat(Y.indices, 2), 2 * Y.indptr), shape=Y.shape)
    with pytest.raises(InvalidInputError, match="more than once"):
        make().fit(X, doubled)


def test_explicit_zeros_mean_zero(make, problem):
    X, Y = problem
    with_zeros = sp.csr_matrix(np.ones(Y.shape))
    with_zeros.data = Y.toarray().ravel()
    assert_same_model(make().fit(X, with_zeros), make().fit(X, Y))
    assert with_zeros.nnz == N_ROWS * N_LABELS, "the caller's matrix was changed"
    X_zeros = X.copy()
    X_zeros.data[:5] = 0
    cleaned = X_zeros.copy()
    cleaned.eliminate_zeros()
    np.testing.assert_allclose(
        make().fit(X_zeros, Y).decision_function(X), make().fit(cleaned, Y).decision_function(X), atol=1e-9
    )


def test_int64_indices(make, problem):
    X, Y = problem
    wide = []
    for matrix in (X, Y):
        copy = matrix.copy()
        copy.indices, copy.indptr = copy.indices.astype(np.int64), copy.indptr.astype(np.int64)
        wide.append(copy)
    assert_same_model(make().fit(*wide), make().fit(X, Y))


def test_read_only_arrays(make, problem):
    X, Y = problem
    frozen = [X.copy(), Y.copy()]
    for matrix in frozen:
        for array in (matrix.data, matrix.indices, matrix.indptr):
            array.setflags(write=False)
    model = make().fit(*frozen)
    assert_same_model(model, make().fit(X, Y))
    model.predict_topk(frozen[0], 3)
    dense = X.toarray()
    dense.setflags(write=False)
    make().fit(dense, Y).predict(dense)


# ---------------------------------------------------------------------------- odd but legal problems


def test_one_row(make, problem):
    X, Y = problem
    model = make(rank=1).fit(X[:1], Y[:1])
    assert model.decision_function(X[:1]).shape == (1, N_LABELS)
    labels, _ = make().fit(X, Y).predict_topk(X[:1], 2)
    assert labels.shape == (1, 2)


def test_one_label(make, problem):
    X, Y = problem
    model = make(rank=1).fit(X, Y[:, :1])
    assert model.predict(X).shape == (N_ROWS, 1)


def test_rows_without_features(make, problem):
    X, Y = problem
    blank = X.copy()
    blank.data[blank.indptr[3] : blank.indptr[4]] = 0
    blank.eliminate_zeros()
    assert np.isfinite(make().fit(blank, Y).decision_function(blank)).all()
    nothing = sp.csr_matrix((4, N_FEATURES))
    labels, scores = make().fit(X, Y).predict_topk(nothing, 3)
    assert np.isfinite(scores).all()
    assert (labels == labels[0]).all()


def test_rows_without_labels(make, problem):
    X, Y = problem
    dropped = sp.csr_matrix(sp.diags(np.r_[np.zeros(10), np.ones(N_ROWS - 10)]) @ Y)
    assert np.isfinite(make().fit(X, dropped).decision_function(X)).all()


def test_label_never_on_and_label_always_on(make, problem):
    X, Y = problem
    dense = Y.toarray()
    dense[:, 0], dense[:, 1] = 0, 1
    scores = make().fit(X, dense).decision_function(X)
    assert np.isfinite(scores).all()
    assert (scores[:, 1] > scores[:, 0]).all()


def test_no_label_on_at_all(make, problem):
    X, _ = problem
    prediction = make().fit(X, sp.csr_matrix((N_ROWS, N_LABELS))).predict(X)
    assert prediction.nnz == 0


def test_constant_and_empty_features(make, problem):
    X, Y = problem
    padded = sp.csr_matrix(sp.hstack([X, sp.csr_matrix((N_ROWS, 2)), np.ones((N_ROWS, 1))]))
    assert np.isfinite(make().fit(padded, Y).decision_function(padded)).all()


# ---------------------------------------------------------------------------- the mask of known labels


def test_a_masked_value_never_matters(make, problem, mask):
    X, Y = problem
    flipped = Y.toarray()
    outside = mask.toarray() == 0
    flipped[outside] = 1 - flipped[outside]
    assert_same_model(make().fit(X, Y, observed=mask), make().fit(X, flipped, observed=mask))


def test_a_known_value_does_matter(make, problem, mask):
    X, Y = problem
    flipped = Y.toarray()
    inside = mask.toarray() != 0
    flipped[inside] = 1 - flipped[inside]
    one, two = (make().fit(X, labels, observed=mask).decision_function(X) for labels in (Y, flipped))
    assert np.abs(one - two).max() > 0.05


def test_everything_known_equals_no_mask(make, problem):
    X, Y = problem
    full = make().fit(X, Y).decision_function(X)
    masked = make().fit(X, Y, observed=np.ones(Y.shape)).decision_function(X)
    np.testing.assert_allclose(masked, full, atol=1e-6)


def test_presence_in_a_sparse_mask_counts_not_its_value(make, problem, mask):
    X, Y = problem
    zeros = mask.copy()
    zeros.data[:] = 0
    expected = make().fit(X, Y, observed=mask)
    assert_same_model(make().fit(X, Y, observed=zeros), expected)
    assert_same_model(make().fit(X, Y, observed=mask.toarray().astype(bool)), expected)


def test_a_label_of_which_nothing_is_known_ranks_last(make, problem, mask):
    X, Y = problem
    hidden = mask.toarray()
    hidden[:, 4] = 0
    model = make().fit(X, Y, observed=sp.csr_matrix(hidden))
    scores = model.decision_function(X)
    assert np.isfinite(scores).all()
    assert (scores.argmin(axis=1) == 4).all()


def test_a_row_of_which_nothing_is_known(make, problem, mask):
    X, Y = problem
    hidden = mask.toarray()
    hidden[:5] = 0
    assert np.isfinite(make().fit(X, Y, observed=sp.csr_matrix(hidden)).decision_function(X)).all()


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        (sp.csr_matrix((N_ROWS, N_LABELS)), "nothing to learn from"),
        (sp.csr_matrix(np.ones((N_ROWS, N_LABELS + 1))), "one shape"),
        (np.ones(N_ROWS), "two dimensions"),
    ],
    ids=["empty", "shape", "one-dimensional"],
)
def test_bad_masks(make, problem, observed, words):
    with pytest.raises(InvalidInputError, match=words):
        make().fit(*problem, observed=observed)


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_in_x(make, problem, value):
    X, Y = problem
    bad = X.copy()
    bad.data[3] = value
    for form in (bad, bad.toarray()):
        with pytest.raises(InvalidInputError, match="NaN or infinity"):
            make().fit(form, Y)
        with pytest.raises(InvalidInputError, match="NaN or infinity"):
            make().fit(X, Y).predict(form)


@pytest.mark.parametrize("value", [2, -1, 0.5, np.nan])
def test_labels_other_than_zero_and_one(make, problem, value):
    X, Y = problem
    bad = Y.toarray()
    bad[2, 3] = value
    for form in (bad, sp.csr_matrix(bad)):
        with pytest.raises(InvalidInputError, match="only 0 and 1"):
            make().fit(X, form)


def test_shapes_that_do_not_fit(make, problem):
    X, Y = problem
    with pytest.raises(InvalidInputError, match="59 rows but X has 60"):
        make().fit(X, Y[:-1])
    model = make().fit(X, Y)
    with pytest.raises(InvalidInputError, match="11 features"):
        model.predict(X[:, :-1])
    with pytest.raises(InvalidInputError, match="two dimensions"):
        model.predict(X.toarray()[0])
    with pytest.raises(InvalidInputError, match="exclude has shape"):
        model.predict_topk(X, 2, exclude=Y[:-1])
    with pytest.raises(InvalidInputError, match="no label columns"):
        make().fit(X, np.ones((N_ROWS, 0)))


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one(make, problem, k):
    with pytest.raises(InvalidInputError, match="k must be at least 1"):
        make().fit(*problem).predict_topk(problem[0], k)


def test_k_that_is_no_number(make, problem):
    with pytest.raises(InvalidTypeError, match="k must be a whole number"):
        make().fit(*problem).predict_topk(problem[0], "five")


def test_bad_n_jobs_and_callback(make, problem):
    with pytest.raises(InvalidInputError, match="n_jobs must not be 0"):
        make(n_jobs=0).fit(*problem)
    with pytest.raises(InvalidTypeError, match="n_jobs"):
        make(n_jobs="two").fit(*problem)
    with pytest.raises(InvalidTypeError, match="callback must be callable"):
        make().fit(*problem, callback=3)


def test_unfitted_models_say_so(make, problem, tmp_path):
    X, _ = problem
    for use in (
        lambda: make().predict(X),
        lambda: make().predict_topk(X),
        lambda: make().decision_function(X),
        lambda: make().save(tmp_path / "model"),
    ):
        with pytest.raises(NotFittedError, match="not fitted"):
            use()
    assert not (tmp_path / "model").exists()


def test_the_input_is_left_alone(make, problem):
    X, Y = problem
    before = X.copy(), Y.copy()
    make().fit(X, Y)
    for now, then in zip((X, Y), before):
        np.testing.assert_array_equal(now.toarray(), then.toarray())
        assert now.nnz == then.nnz


def test_a_failed_or_interrupted_fit_leaves_the_model_alone(make, problem):
    X, Y = problem
    model = make().fit(X, Y)
    scores = model.decision_function(X)

    def interrupt(iteration, info):
        raise KeyboardInterrupt

    with pytest.raises(InvalidInputError):
        model.fit(X[:, :5], Y + Y)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :5], Y[:, :3], callback=interrupt)
    np.testing.assert_array_equal(model.decision_function(X), scores)
    fresh = make()
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, Y, callback=interrupt)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_the_scale_of_the_features_does_not_matter_with_unit_rows(make, problem, scale):
    X, Y = problem
    expected = make().fit(X, Y).decision_function(X)
    np.testing.assert_allclose(make().fit(scale * X, Y).decision_function(scale * X), expected, atol=1e-8)


def test_features_that_overflow_the_fit_are_refused(make, problem):
    """A model that scales its problem may well fit what overflows another one: then its scores are numbers."""
    X, Y = problem
    huge = (1e30 * X).astype(np.float32)
    model, refusal = make(normalize=False), None
    with np.errstate(all="ignore"):
        try:
            model.fit(huge, Y)
        except InvalidInputError as error:
            refusal = str(error)
    if refusal is not None:
        assert "overflow" in refusal
        return
    scores = model.decision_function(huge)
    assert np.isfinite(scores).all()
    assert ((scores >= 0) == (Y.toarray() > 0)).mean() > 0.8


def test_blas_keeps_to_one_thread_during_a_fit(make, problem):
    seen = set()

    def look(iteration, info):
        libraries = threadpoolctl.threadpool_info()
        seen.update(library["num_threads"] for library in libraries if library["user_api"] == "blas")

    make().fit(*problem, callback=look)
    assert seen == {1}


@pytest.mark.parametrize(("name", "value"), [("normalize", "no"), ("fit_intercept", 1), ("verbose", "no")])
def test_flags_must_be_flags(make, problem, name, value):
    with pytest.raises(InvalidTypeError, match=name):
        make(**{name: value}).fit(*problem)


# ---------------------------------------------------------------------------- answers


def test_top_k_is_the_head_of_the_sorted_scores(make, problem):
    X, Y = problem
    model = make().fit(X, Y)
    scores = model.decision_function(X)
    labels, best = model.predict_topk(X, 3)
    assert labels.dtype.kind == "i"
    np.testing.assert_array_equal(labels, np.argsort(-scores, axis=1, kind="stable")[:, :3])
    np.testing.assert_allclose(best, np.take_along_axis(scores, labels, axis=1), rtol=1e-6)
    assert (np.diff(best, axis=1) <= 0).all()


def test_k_larger_than_the_number_of_labels(make, problem):
    X, Y = problem
    labels, scores = make().fit(X, Y).predict_topk(X, N_LABELS + 3)
    assert labels.shape == scores.shape == (N_ROWS, N_LABELS + 3)
    assert (np.sort(labels[:, :N_LABELS], axis=1) == np.arange(N_LABELS)).all()
    assert (labels[:, N_LABELS:] == -1).all()
    assert np.isneginf(scores[:, N_LABELS:]).all()


def test_excluded_pairs_are_never_returned(make, problem):
    X, Y = problem
    model = make().fit(X, Y)
    labels, _ = model.predict_topk(X, N_LABELS, exclude=Y)
    dense = Y.toarray()
    for row in range(N_ROWS):
        kept = labels[row][labels[row] >= 0]
        assert dense[row, kept].sum() == 0
        assert len(kept) == N_LABELS - dense[row].sum()


def test_predict_is_the_sign_of_the_score(make, problem):
    X, Y = problem
    model = make().fit(X, Y)
    np.testing.assert_array_equal(model.predict(X).toarray(), model.decision_function(X) >= 0)


@pytest.mark.parametrize("dtype", [np.int64, np.float32, bool])
def test_predictions_come_in_the_type_of_the_labels(make, problem, dtype):
    X, Y = problem
    for given, kind in (
        (sp.csr_matrix(Y.astype(dtype)), sp.csr_matrix),
        (sp.csr_array(Y.astype(dtype)), sp.csr_array),
        (sp.csc_matrix(Y.astype(dtype)), sp.csr_matrix),
        (Y.toarray().astype(dtype), np.ndarray),
    ):
        prediction = make().fit(X, given).predict(X)
        assert isinstance(prediction, kind)
        assert prediction.dtype == dtype
        assert prediction.shape == Y.shape


def test_a_row_is_scored_the_same_alone_and_in_company(make, problem):
    X, Y = problem
    model = make().fit(X, Y)
    together = model.decision_function(X)
    alone = np.concatenate([model.decision_function(X[row : row + 1]) for row in range(N_ROWS)])
    np.testing.assert_allclose(alone, together, atol=1e-10)


def test_it_learns(make, problem):
    X, Y = problem
    labels, _ = make(max_iter=10).fit(X, Y).predict_topk(X, 1)
    dense = Y.toarray()
    hits = dense[np.arange(N_ROWS), labels[:, 0]].mean()
    assert hits > dense.mean(axis=0).max() + 0.1


# ---------------------------------------------------------------------------- determinism and state


@pytest.fixture(scope="module")
def large_problem():
    """Enough rows and entries for several chunks of every kernel, so that threads really share the work."""
    rng = np.random.default_rng(0)
    X = sp.random(5000, 30, 0.5, format="csr", random_state=1)
    Y = sp.csr_matrix(X @ rng.standard_normal((30, 9)) > 2).astype(np.float64)
    return X, Y, sp.csr_matrix((rng.random(Y.shape) < 0.6).astype(np.int8))


@pytest.mark.parametrize("n_jobs", [2, 3])
@pytest.mark.parametrize("known", ["all", "some"])
def test_bit_identical_for_every_number_of_threads(make, large_problem, n_jobs, known):
    X, Y, mask = large_problem
    observed = None if known == "all" else mask
    one, many = make(n_jobs=1).fit(X, Y, observed), make(n_jobs=n_jobs).fit(X, Y, observed)
    assert_same_model(one, many)
    for ours, theirs in zip(one.predict_topk(X, 4), many.predict_topk(X, 4)):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(one.decision_function(X), many.decision_function(X))
    assert (one.predict(X) != many.predict(X)).nnz == 0


def test_all_cores(make, problem):
    assert_same_model(make(n_jobs=-1).fit(*problem), make().fit(*problem))


def test_same_seed_same_model(make, problem):
    X, Y = problem
    assert_same_model(make(random_state=3).fit(X, Y), make(random_state=3).fit(X, Y))


def test_refit_forgets_the_first_fit(make, problem):
    X, Y = problem
    model = make().fit(X[:30, :5], Y[:30, :3])
    model.fit(X, Y)
    assert_same_model(model, make().fit(X, Y))
    assert model.n_features_in_ == N_FEATURES
    assert model.n_labels_ == N_LABELS


def test_clone_and_parameters(make, problem):
    model = make().fit(*problem)
    copy = clone(model)
    assert not hasattr(copy, "n_iter_")
    assert copy.get_params() == model.get_params()
    assert_same_model(copy.fit(*problem), model)
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(no_such_parameter=1)


def test_fit_returns_self_and_keeps_its_parameters(make, problem):
    model = make()
    before = model.get_params()
    assert model.fit(*problem) is model
    assert model.get_params() == before


# ---------------------------------------------------------------------------- progress


def test_history_objective_and_iterations_agree(make, problem):
    model = make().fit(*problem)
    assert model.n_iter_ == len(model.objective_) == len(model.history_) >= 1
    assert [info["iteration"] for info in model.history_] == list(range(1, model.n_iter_ + 1))
    seconds = [info["seconds"] for info in model.history_]
    assert seconds == sorted(seconds)


def test_callback_sees_every_iteration(make, problem):
    seen = []
    model = make().fit(*problem, callback=lambda iteration, info: seen.append((iteration, info["objective"])))
    assert seen == list(zip(range(1, model.n_iter_ + 1), model.objective_))


def test_callback_stops_the_fit_without_a_warning(make, problem):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make(max_iter=50).fit(*problem, callback=lambda iteration, info: iteration == 1)
    assert model.n_iter_ == 1
    model.predict(problem[0])


def test_an_error_in_the_callback_is_not_swallowed(make, problem):
    def broken(iteration, info):
        raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        make().fit(*problem, callback=broken)


def test_verbose_writes_a_line_per_iteration_to_standard_error(make, problem, capsys):
    model = make(verbose=1).fit(*problem)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("iteration") == model.n_iter_
    make(verbose=0).fit(*problem)
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------------------- model folders


def test_a_loaded_model_is_the_saved_one(make, problem, tmp_path):
    X, Y = problem
    model = make().fit(X, Y)
    model.save(tmp_path / "model", label_names=[f"label {j}" for j in range(N_LABELS)])
    again = load(tmp_path / "model")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert again.label_names_ == [f"label {j}" for j in range(N_LABELS)]
    assert again.history_ == model.history_
    assert_same_model(again, model)
    for ours, theirs in zip(again.predict_topk(X, 5), model.predict_topk(X, 5)):
        np.testing.assert_array_equal(ours, theirs)
    assert type(again.predict(X)) is type(model.predict(X))
    again.save(tmp_path / "copy")
    assert load(tmp_path / "copy").label_names_ == again.label_names_


def test_a_loaded_model_can_be_fitted_again(make, problem, tmp_path):
    model = make().fit(*problem)
    model.save(tmp_path / "model")
    assert_same_model(load(tmp_path / "model").fit(*problem), model)


def test_saving_refuses_what_it_should(make, problem, tmp_path):
    model = make().fit(*problem)
    with pytest.raises(InvalidInputError, match="label_names has 2 names"):
        model.save(tmp_path / "model", label_names=["a", "b"])
    for bad in (5, "abcdefg", list(range(N_LABELS))):
        with pytest.raises(InvalidTypeError, match="label_names must"):
            model.save(tmp_path / "model", label_names=bad)
    model.save(tmp_path / "model")
    with pytest.raises((TagwiseError, OSError)):
        model.save(tmp_path / "model", overwrite=False)
    model.save(tmp_path / "model")
    if "random_state" in model.get_params():
        model.random_state = np.random.RandomState(0)
        with pytest.raises(InvalidInputError, match="random_state is a RandomState"):
            model.save(tmp_path / "model")


def rewritten(folder, **changes):
    """The folder's manifest with some fields replaced, made consistent again: what a forger would write."""
    record = read_model(folder)
    values = {**record.values, **changes.get("values", {})}
    parameters = {**record.parameters, **changes.get("parameters", {})}
    tensors = {**record.tensors, **changes.get("tensors", {})}
    write_model(folder, replace(record, values=values, parameters=parameters, tensors=tensors))


@pytest.mark.parametrize(
    "changes",
    [
        {"values": {"n_labels_": 3 * 10**8}},
        {"values": {"n_labels_": 10**15}},
        {"values": {"n_labels_": True}},
        {"values": {"n_labels_": -1}},
        {"values": {"n_features_in_": 3}},
        {"values": {"output_format": ["csr_matrix", "O"]}},
        {"values": {"output_format": ["csr_matrix", "V1000000"]}},
        {"values": {"output_format": ["list", "<f8"]}},
        {"values": {"output_format": 5}},
        {"values": {"history_": 5}},
        {"values": {"history_": [{}]}},
        {"values": {"feature_names_in_": 5}},
        {"values": {"feature_names_in_": ["a"]}},
        {"values": {"surprise": 1}},
        {"parameters": {"n_jobs": "x"}},
        {"parameters": {"normalize": [1, 2]}},
        {"parameters": {"verbose": {}}},
        {"parameters": {"surprise": 1}},
        {"tensors": {"surprise": np.ones(3)}},
        {"tensors": {"intercept_": np.ones(3)}},
        {"tensors": {"intercept_": np.full(N_LABELS, np.nan)}},
    ],
    ids=str,
)
def test_forged_folders_are_refused(make, problem, tmp_path, changes):
    make().fit(*problem).save(tmp_path / "model")
    rewritten(tmp_path / "model", **changes)
    tracemalloc.start()
    with pytest.raises(ModelFormatError):
        load(tmp_path / "model")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


def test_folders_of_unknown_classes_are_refused(make, problem, tmp_path):
    make().fit(*problem).save(tmp_path / "model")
    record = read_model(tmp_path / "model")
    write_model(tmp_path / "model", replace(record, class_name="Popen"))
    with pytest.raises(ModelFormatError, match="the class 'Popen', which this version of tagwise does not know"):
        load(tmp_path / "model")
    write_model(tmp_path / "model", replace(record, label_names=["one"]))
    with pytest.raises(ModelFormatError, match="1 label names for 7 labels"):
        load(tmp_path / "model")


def test_a_model_with_parameters_spoilt_after_the_fit_is_not_saved(make, problem, tmp_path):
    model = make().fit(*problem)
    model.save(tmp_path / "model")
    model.set_params(n_jobs="many")
    with pytest.raises(InvalidTypeError):
        model.save(tmp_path / "model")
    load(tmp_path / "model")


def test_scores_never_need_rows_times_labels_memory(make):
    """20,000 labels for 3,000 rows: a dense n×L would be 240 MB as float32; a tenth of it is the limit."""
    rng = np.random.default_rng(0)
    X = sp.random(3000, 50, 0.1, format="csr", dtype=np.float32, random_state=0)
    Y = sp.csr_matrix(
        (np.ones(6000, np.float32), (np.arange(6000) % 3000, rng.integers(0, 20_000, 6000))), (3000, 20_000)
    )
    Y.data[:] = 1
    model = make(max_iter=2)
    model.fit(X[:50], Y[:50, :100])  # compiles before memory is measured
    tracemalloc.start()
    model.fit(X, Y)
    model.predict_topk(X, 5)
    model.predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3000 * 20_000 * 4 / 10
