"""What every model takes: all forms of X and Y, odd but legal problems, and bad input that it names."""

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from comparison import assert_same_model

from tagwise.exceptions import InvalidInputError, InvalidTypeError, NotFittedError

N_ROWS, N_FEATURES, N_LABELS = 60, 12, 7


@pytest.mark.parametrize("form", [sp.csc_matrix, lambda X: X.toarray()], ids=["csc", "dense"])
def test_every_form_of_x_gives_the_same_scores(make, fitted, problem, form):
    X, Y = problem
    expected = fitted.decision_function(X)
    np.testing.assert_allclose(make().fit(form(X), Y).decision_function(form(X)), expected, atol=1e-8)


@pytest.mark.per_class
@pytest.mark.parametrize(
    "form",
    [
        sp.csr_array,
        sp.coo_array,
        sp.lil_matrix,
        lambda X: np.asfortranarray(X.toarray()),
        lambda X: X.toarray().tolist(),
    ],
    ids=["csr_array", "coo", "lil", "fortran", "lists"],
)
def test_less_usual_forms_of_x(make, fitted, problem, form):
    X, Y = problem
    expected = fitted.decision_function(X)
    np.testing.assert_allclose(make().fit(form(X), Y).decision_function(form(X)), expected, atol=1e-8)


@pytest.mark.per_class
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8, bool])
def test_label_types_do_not_matter(make, fitted, problem, dtype):
    X, Y = problem
    assert_same_model(make().fit(X, Y.astype(dtype)), fitted)
    assert_same_model(make().fit(X, Y.toarray().astype(dtype)), fitted)


def test_labels_as_integers_or_lists(make, fitted, problem):
    X, Y = problem
    assert_same_model(make().fit(X, Y.astype(np.int64)), fitted)
    assert_same_model(make().fit(X, Y.toarray().astype(int).tolist()), fitted)


def test_float32_features_are_learnt_in_float32_and_agree_with_float64(make, fitted, problem):
    X, Y = problem
    narrow = make().fit(X.astype(np.float32), Y).decision_function(X.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, fitted.decision_function(X), atol=2e-3)


def test_unsorted_indices(make, fitted, problem):
    X, Y = problem
    shuffled_X, shuffled_Y = X.copy(), Y.copy()
    for matrix in (shuffled_X, shuffled_Y):
        for row in range(N_ROWS):
            stored = slice(matrix.indptr[row], matrix.indptr[row + 1])
            matrix.indices[stored] = matrix.indices[stored][::-1].copy()
            matrix.data[stored] = matrix.data[stored][::-1].copy()
        matrix.has_sorted_indices = False
    before = shuffled_X.indices.copy()
    assert_same_model(make().fit(shuffled_X, shuffled_Y), fitted)
    np.testing.assert_array_equal(shuffled_X.indices, before, err_msg="the caller's matrix was changed")


def test_duplicate_features_add_up(make, fitted, problem):
    X, Y = problem
    doubled = sp.csr_matrix((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)
    stored = doubled.nnz
    assert_same_model(make().fit(doubled, Y), fitted)
    assert doubled.nnz == stored, "the caller's matrix was changed"


@pytest.mark.per_class
def test_duplicate_labels_are_refused(make, problem):
    X, Y = problem
    doubled = sp.csr_matrix((np.ones(2 * Y.nnz), np.repeat(Y.indices, 2), 2 * Y.indptr), shape=Y.shape)
    with pytest.raises(InvalidInputError, match="more than once"):
        make().fit(X, doubled)


def test_explicit_zeros_mean_zero(make, fitted, problem):
    X, Y = problem
    with_zeros = sp.csr_matrix(np.ones(Y.shape))
    with_zeros.data = Y.toarray().ravel()
    assert_same_model(make().fit(X, with_zeros), fitted)
    assert with_zeros.nnz == N_ROWS * N_LABELS, "the caller's matrix was changed"
    X_zeros = X.copy()
    X_zeros.data[:5] = 0
    cleaned = X_zeros.copy()
    cleaned.eliminate_zeros()
    np.testing.assert_allclose(
        make().fit(X_zeros, Y).decision_function(X), make().fit(cleaned, Y).decision_function(X), atol=1e-9
    )


def test_int64_indices(make, fitted, problem):
    X, Y = problem
    wide = []
    for matrix in (X, Y):
        copy = matrix.copy()
        copy.indices, copy.indptr = copy.indices.astype(np.int64), copy.indptr.astype(np.int64)
        wide.append(copy)
    assert_same_model(make().fit(*wide), fitted)


def test_read_only_arrays(make, fitted, problem):
    X, Y = problem
    frozen = [X.copy(), Y.copy()]
    for matrix in frozen:
        for array in (matrix.data, matrix.indices, matrix.indptr):
            array.setflags(write=False)
    model = make().fit(*frozen)
    assert_same_model(model, fitted)
    model.predict_topk(frozen[0], 3)
    dense = X.toarray()
    dense.setflags(write=False)
    make().fit(dense, Y).predict(dense)


def test_one_row(make, fitted, problem):
    X, Y = problem
    model = make(rank=1).fit(X[:1], Y[:1])
    assert model.decision_function(X[:1]).shape == (1, N_LABELS)
    labels, _ = fitted.predict_topk(X[:1], 2)
    assert labels.shape == (1, 2)


def test_one_label(make, problem):
    X, Y = problem
    model = make(rank=1).fit(X, Y[:, :1])
    assert model.predict(X).shape == (N_ROWS, 1)


def test_rows_without_features(make, fitted, problem):
    X, Y = problem
    blank = X.copy()
    blank.data[blank.indptr[3] : blank.indptr[4]] = 0
    blank.eliminate_zeros()
    assert np.isfinite(make().fit(blank, Y).decision_function(blank)).all()
    nothing = sp.csr_matrix((4, N_FEATURES))
    labels, scores = fitted.predict_topk(nothing, 3)
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


@pytest.mark.per_class
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_in_x(make, fitted, problem, value):
    X, Y = problem
    bad = X.copy()
    bad.data[3] = value
    for form in (bad, bad.toarray()):
        with pytest.raises(InvalidInputError, match="NaN or infinity"):
            make().fit(form, Y)
        with pytest.raises(InvalidInputError, match="NaN or infinity"):
            fitted.predict(form)


@pytest.mark.per_class
@pytest.mark.parametrize("value", [2, -1, 0.5, np.nan])
def test_labels_other_than_zero_and_one(make, problem, value):
    X, Y = problem
    bad = Y.toarray()
    bad[2, 3] = value
    for form in (bad, sp.csr_matrix(bad)):
        with pytest.raises(InvalidInputError, match="only 0 and 1"):
            make().fit(X, form)


@pytest.mark.per_class
def test_shapes_that_do_not_fit(make, fitted, problem):
    X, Y = problem
    with pytest.raises(InvalidInputError, match="59 rows but X has 60"):
        make().fit(X, Y[:-1])
    with pytest.raises(InvalidInputError, match="11 features"):
        fitted.predict(X[:, :-1])
    with pytest.raises(InvalidInputError, match="two dimensions"):
        fitted.predict(X.toarray()[0])
    with pytest.raises(InvalidInputError, match="exclude has shape"):
        fitted.predict_topk(X, 2, exclude=Y[:-1])
    with pytest.raises(InvalidInputError, match="no label columns"):
        make().fit(X, np.ones((N_ROWS, 0)))


@pytest.mark.per_class
def test_bad_k(fitted, problem):
    for k in (0, -1):
        with pytest.raises(InvalidInputError, match="k must be at least 1"):
            fitted.predict_topk(problem[0], k)
    with pytest.raises(InvalidTypeError, match="k must be a whole number"):
        fitted.predict_topk(problem[0], "five")


@pytest.mark.per_class
def test_bad_n_jobs_and_callback(make, problem):
    with pytest.raises(InvalidInputError, match="n_jobs must not be 0"):
        make(n_jobs=0).fit(*problem)
    with pytest.raises(InvalidTypeError, match="n_jobs"):
        make(n_jobs="two").fit(*problem)
    with pytest.raises(InvalidTypeError, match="callback must be callable"):
        make().fit(*problem, callback=3)


@pytest.mark.per_class
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


@pytest.mark.per_class
def test_a_failed_or_interrupted_fit_leaves_the_model_alone(make, fitted, problem):
    X, Y = problem
    model = fitted
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


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_scale_of_the_features_does_not_matter_with_unit_rows(make, fitted, problem, scale):
    X, Y = problem
    expected = fitted.decision_function(X)
    np.testing.assert_allclose(make().fit(scale * X, Y).decision_function(scale * X), expected, atol=1e-8)


def test_features_that_overflow_a_fit_are_refused_or_fitted_never_mangled(make, problem):
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


@pytest.mark.per_class
def test_flags_must_be_flags(make, problem):
    for name, value in (("normalize", "no"), ("fit_intercept", 1), ("verbose", "no")):
        if name != "fit_intercept" or name in make.parameters:
            with pytest.raises(InvalidTypeError, match=name):
                make(**{name: value}).fit(*problem)


@pytest.mark.per_class
def test_more_columns_than_the_memory_holds_are_refused(make, problem):
    """In 0.1.0 a svmlight file of one row, `0 2147483646:1`, took 11.7 GB. Here no machine has enough."""
    X, Y = (sp.csr_matrix(matrix) for matrix in problem)
    widest = np.iinfo(np.int64).max // 64
    for wide_x, wide_y in ((widest, Y.shape[1]), (X.shape[1], widest)):
        wide = [
            sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], width))
            for matrix, width in ((X, wide_x), (Y, wide_y))
        ]
        with pytest.raises(InvalidInputError, match=f"{widest:,} (features|labels)"):
            make().fit(*wide)
