"""What models take: all forms of X and Y, odd but legal problems, and bad input that they name."""

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from comparison import assert_same_model

from tagwise.exceptions import InvalidInputError, InvalidTypeError, NotFittedError

N_ROWS, N_FEATURES, N_LABELS = 60, 12, 7


def unsorted(matrix):
    shuffled = matrix.copy()
    for start, stop in zip(matrix.indptr, matrix.indptr[1:]):
        for array in (shuffled.indices, shuffled.data):
            array[start:stop] = array[start:stop][::-1].copy()
    shuffled.has_sorted_indices = False
    return shuffled


def with_wide_indices(matrix):
    copy = matrix.copy()
    copy.indices, copy.indptr = copy.indices.astype(np.int64), copy.indptr.astype(np.int64)
    return copy


def read_only(matrix):
    copy = matrix.copy()
    for array in (copy.data, copy.indices, copy.indptr):
        array.setflags(write=False)
    return copy


def with_all_zeros(matrix):
    full = sp.csr_matrix(np.ones(matrix.shape))
    full.data = matrix.toarray().ravel()
    return full


def doubled(matrix):
    """Every entry in two halves."""
    return sp.csr_matrix((np.repeat(matrix.data / 2, 2), np.repeat(matrix.indices, 2), 2 * matrix.indptr), matrix.shape)


SAME_X = {"unsorted": unsorted, "int64": with_wide_indices, "read-only": read_only, "doubled": doubled}
OTHER_X = [
    sp.csc_matrix,
    sp.csr_array,
    sp.coo_array,
    sp.lil_matrix,
    lambda X: X.toarray(),
    lambda X: np.asfortranarray(X.toarray()),
    lambda X: X.toarray().tolist(),
]
SAME_Y = [
    unsorted,
    with_wide_indices,
    read_only,
    with_all_zeros,
    lambda Y: Y.astype(bool),
    lambda Y: Y.toarray().astype(np.int8),
    lambda Y: Y.toarray().astype(int).tolist(),
]


@pytest.mark.of_base
def test_every_form_of_the_data_gives_the_same_model(make, fitted, problem):
    X, Y = problem
    for name, form in SAME_X.items():
        given = form(X)
        before = given.indices.copy()
        assert_same_model(make().fit(given, Y), fitted)
        np.testing.assert_array_equal(given.indices, before, err_msg=f"{name}: the caller's matrix was changed")
    for form in SAME_Y:
        assert_same_model(make().fit(X, form(Y)), fitted)
    expected = fitted.decision_function(X)
    for form in OTHER_X:
        np.testing.assert_allclose(make().fit(form(X), Y).decision_function(form(X)), expected, atol=1e-8)


def test_arrays_and_float32_features_give_the_same_scores(make, fitted, problem):
    X, Y = problem
    expected = fitted.decision_function(X)
    np.testing.assert_allclose(make().fit(X.toarray(), Y).decision_function(X.toarray()), expected, atol=1e-8)
    narrow = make().fit(X.astype(np.float32), Y).decision_function(X.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, expected, atol=2e-3)


def test_the_input_is_left_alone(make, problem):
    frozen = [read_only(matrix) for matrix in problem]
    model = make().fit(*frozen)
    model.predict_topk(frozen[0], 3)
    for now, then in zip(frozen, problem):
        assert (now != then).nnz == 0
        assert now.nnz == then.nnz


def test_odd_but_legal_problems(make, fitted, problem):
    X, Y = problem
    assert make(rank=1).fit(X[:1], Y[:1]).decision_function(X[:1]).shape == (1, N_LABELS)
    assert fitted.predict_topk(X[:1], 2)[0].shape == (1, 2)
    assert make(rank=1).fit(X, Y[:, :1]).predict(X).shape == (N_ROWS, 1)
    kept = sp.diags(np.r_[np.zeros(10), np.ones(N_ROWS - 10)])
    padded = sp.csr_matrix(sp.hstack([X, sp.csr_matrix((N_ROWS, 2)), np.ones((N_ROWS, 1))]))
    for rows, labels in ((sp.csr_matrix(kept @ X), Y), (X, sp.csr_matrix(kept @ Y)), (padded, Y)):
        assert np.isfinite(make().fit(rows, labels).decision_function(rows)).all()
    labels, scores = fitted.predict_topk(sp.csr_matrix((4, N_FEATURES)), 3)
    assert np.isfinite(scores).all()
    assert (labels == labels[0]).all()
    constant = Y.toarray()
    constant[:, 0], constant[:, 1] = 0, 1
    scores = make().fit(X, constant).decision_function(X)
    assert np.isfinite(scores).all()
    assert (scores[:, 1] > scores[:, 0]).all()
    assert make().fit(X, sp.csr_matrix((N_ROWS, N_LABELS))).predict(X).nnz == 0


def test_the_scale_of_the_features_does_not_matter_with_unit_rows(make, fitted, problem):
    X, Y = problem
    expected = fitted.decision_function(X)
    for scale in (1e-200, 1e200):
        np.testing.assert_allclose(make().fit(scale * X, Y).decision_function(scale * X), expected, atol=1e-8)


def test_features_that_overflow_a_fit_are_refused_or_fitted_never_mangled(make, problem):
    """A model that scales its problem may well fit what overflows another one: then its scores are numbers."""
    X, Y = problem
    huge = (1e30 * X).astype(np.float32)
    model, refusal = make(normalize=False), ""
    with np.errstate(all="ignore"):
        try:
            model.fit(huge, Y)
        except InvalidInputError as error:
            refusal = str(error)
    if refusal:
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


# ---------------------------------------------------------------------- bad input


def with_entry(matrix, row, column, value):
    changed = matrix.toarray()
    changed[row, column] = value
    return changed


@pytest.mark.of_base
def test_bad_input_is_named(make, fitted, problem):
    X, Y = problem
    twice = sp.csr_matrix((np.ones(2 * Y.nnz), np.repeat(Y.indices, 2), 2 * Y.indptr), shape=Y.shape)
    widest = np.iinfo(np.int64).max // 64
    wide_x, wide_y = (
        sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=(N_ROWS, widest)) for matrix in problem
    )
    fits = [
        (X, twice, "more than once"),
        (X, Y[:-1], "59 rows but X has 60"),
        (X, np.ones((N_ROWS, 0)), "no label columns"),
        (wide_x, Y, f"{widest:,} features"),
        (X, wide_y, f"{widest:,} labels"),
    ]
    for value in (2, -1, 0.5, np.nan):
        bad = with_entry(Y, 2, 3, value)
        fits += [(X, form(bad), "only 0 and 1") for form in (np.asarray, sp.csr_matrix)]
    for value in (np.nan, np.inf, -np.inf):
        bad = with_entry(X, 2, 3, value)
        fits += [(form(bad), Y, "NaN or infinity") for form in (np.asarray, sp.csr_matrix)]
    for rows, labels, words in fits:
        with pytest.raises(InvalidInputError, match=words):
            make().fit(rows, labels)
    asked = [
        (lambda: fitted.predict(with_entry(X, 2, 3, np.nan)), "NaN or infinity"),
        (lambda: fitted.predict(X[:, :-1]), "11 features"),
        (lambda: fitted.predict(X.toarray()[0]), "two dimensions"),
        (lambda: fitted.predict_topk(X, 2, exclude=Y[:-1]), "exclude has shape"),
        (lambda: fitted.predict_topk(X, 0), "k must be at least 1"),
        (lambda: fitted.predict_topk(X, 1008), "k must be at most 1,007, .*; found 1,008"),
        (lambda: fitted.predict_topk(X, 10**12), "k must be at most 1,007, .*; found 1,000,000,000,000"),
        (lambda: fitted.predict_topk(X, "five"), "k must be a whole number"),
        (lambda: make(n_jobs=0).fit(X, Y), "n_jobs must not be 0"),
        (lambda: make(n_jobs="two").fit(X, Y), "n_jobs"),
        (lambda: make().fit(X, Y, callback=3), "callback must be callable"),
        (lambda: make(normalize="no").fit(X, Y), "normalize"),
        (lambda: make(verbose="no").fit(X, Y), "verbose"),
    ]
    for call, words in asked:
        with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
            call()


@pytest.mark.of_base
def test_unfitted_models_say_so(make, problem, tmp_path):
    X, _ = problem
    for use in (make().predict, make().predict_topk, make().decision_function):
        with pytest.raises(NotFittedError, match="not fitted"):
            use(X)
    with pytest.raises(NotFittedError, match="not fitted"):
        make().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.of_base
def test_a_failed_or_interrupted_fit_leaves_the_model_alone(make, fitted, problem):
    X, Y = problem
    scores = fitted.decision_function(X)

    def interrupt(iteration, info):
        raise KeyboardInterrupt

    with pytest.raises(InvalidInputError):
        fitted.fit(X[:, :5], Y + Y)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X[:, :5], Y[:, :3], callback=interrupt)
    np.testing.assert_array_equal(fitted.decision_function(X), scores)
    fresh = make()
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, Y, callback=interrupt)
    with pytest.raises(NotFittedError):
        fresh.predict(X)
