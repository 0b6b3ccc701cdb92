"""What the contract suite does not reach: the checks themselves."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tagwise import validation
from tagwise.exceptions import InvalidInputError, InvalidTypeError


@given(arrays(np.int8, (5, 4), elements=st.integers(0, 1)))
def test_dense_and_sparse_labels_are_the_same_thing(Y):
    dense, sparse = validation.check_labels(Y), validation.check_labels(sp.coo_matrix(Y))
    for result in (dense, sparse):
        assert result.has_canonical_format
        assert (result.data == 1).all()
        np.testing.assert_array_equal(result.toarray(), Y)


def test_checks_do_not_copy_what_is_fine():
    X = sp.random(5, 4, 0.5, format="csr", dtype=np.float32)
    assert np.shares_memory(validation.check_features(X).data, X.data)
    dense = np.ones((3, 2))
    assert np.shares_memory(validation.check_features(dense), dense)


def test_unusual_values_that_pass():
    validation.check_features(np.full((2, 2), np.finfo(np.float64).max))
    for values, columns, expected in (
        ([0.0, 0.0], [0, 0], [[0, 0, 0]]),
        ([1.0, 0.0], [2, 2], [[0, 0, 1]]),  # twice, and on once
    ):
        labels = validation.check_labels(sp.csr_matrix((values, columns, [0, 2]), shape=(1, 3)))
        np.testing.assert_array_equal(labels.toarray(), expected)
        assert labels.nnz == sum(expected[0])
    labels = validation.check_labels(np.array([["0", "1"]], dtype=object))
    np.testing.assert_array_equal(labels.toarray(), [[0, 1]])
    mask = validation.check_observed(sp.csr_matrix(([1, 1], [2, 2], [0, 2]), shape=(1, 3)), shape=(1, 3))
    assert (mask.nnz, mask.data[0]) == (1, 1)


def test_features_that_cannot_be_used():
    for X, error, words in [
        (np.ones((0, 3)), InvalidInputError, "0 sample"),
        (np.ones((3, 0)), InvalidInputError, "0 feature"),
        (sp.csr_matrix((0, 3)), InvalidInputError, "0 sample"),
        (np.ones(3), InvalidInputError, "two dimensions"),
        (np.ones((2, 2, 2)), InvalidInputError, "two dimensions"),
        (np.array([["a", "b"]]), InvalidInputError, "must hold numbers"),
        (np.array([["a", 1]], dtype=object), InvalidInputError, "not a number"),
        (np.array([[{}, 1]], dtype=object), InvalidTypeError, "not a number"),
        (np.ones((2, 2), dtype=complex), InvalidInputError, "Complex data not supported"),
        (sp.csr_matrix(np.ones((2, 2), dtype=complex)), InvalidInputError, "Complex data not supported"),
        ([[1, 2], [3]], InvalidInputError, "rows of equal length"),
    ]:
        with pytest.raises(error, match=words):
            validation.check_features(X)


def test_labels_that_cannot_be_used():
    for Y, words in [
        (None, "the target y is None"),
        (np.ones(3), "two dimensions"),
        (np.ones((3, 0)), "no label columns"),
        ([["a", "b"]], "found type"),
        (np.array([["a", 1]], dtype=object), "objects that are not numbers"),
        ([[0, 1], [1]], "rows of equal length"),
        ([[0, np.nan]], "observed mask, not by NaN"),
        (sp.csr_matrix([[0, 3]]), "found 3"),
        (np.array([["0", "2"]], dtype=object), "found 2"),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            validation.check_labels(Y)


def test_label_shapes_that_do_not_fit():
    with pytest.raises(InvalidInputError, match="2 rows but X has 3"):
        validation.check_labels(np.ones((2, 2)), n_rows=3)
    with pytest.raises(InvalidInputError, match="2 labels where 5 are expected"):
        validation.check_labels(np.ones((2, 2)), n_labels=5)
    with pytest.raises(InvalidInputError, match="row 1, label 2 more than once"):
        validation.check_labels(sp.csr_matrix(([1, 1], [2, 2], [0, 0, 2]), shape=(2, 3)))


def test_numbers():
    assert validation.check_integer(np.int32(4), "k") == 4
    assert validation.check_real(2, "reg") == 2.0
    with pytest.raises(InvalidTypeError, match="k must be a whole number; found True"):
        validation.check_integer(True, "k")
    with pytest.raises(InvalidInputError, match="share must be finite at least 0 and at most 1; found 2"):
        validation.check_real(2, "share", minimum=0, maximum=1)
    with pytest.raises(InvalidInputError, match="kind must be one of 'a', 'b'; found 'c'"):
        validation.check_choice("c", "kind", ("a", "b"))
    assert validation.check_choice("a", "kind", ("a", "b")) == "a"


def test_masks_that_cannot_be_used():
    for mask, words in [
        (np.array([[np.nan, 1.0]]), "NaN or infinity"),
        (np.array([[None, 1]], dtype=object), "type object"),
        ([["0", "1"]], "entries of type"),
        ([[1], [1, 0]], "rows of equal length"),
        ([1, 0], "two dimensions"),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            validation.check_observed(mask, shape=(1, 2))


def test_numpy_masked_arrays_are_refused_rather_than_unmasked():
    masked = np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2))
    for check in (
        validation.check_features,
        validation.check_labels,
        lambda value: validation.check_observed(value, shape=(2, 2)),
    ):
        with pytest.raises(InvalidTypeError, match="as observed"):
            check(masked)


def test_flags():
    assert validation.check_flag(np.True_, "normalize") is True
    with pytest.raises(InvalidTypeError, match="normalize must be True or False; found 'no'"):
        validation.check_flag("no", "normalize")
