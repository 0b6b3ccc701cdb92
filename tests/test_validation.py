"""What the contract suite does not reach: the checks themselves."""

from functools import partial

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


def test_what_cannot_be_used():
    masked = np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2))
    X, Y, Omega = validation.check_features, validation.check_labels, partial(validation.check_observed, shape=(1, 2))
    for check, value, words in [
        (X, np.ones((0, 3)), "0 sample"),
        (X, np.ones((3, 0)), "0 feature"),
        (X, sp.csr_matrix((0, 3)), "0 sample"),
        (X, np.ones(3), "two dimensions"),
        (X, np.ones((2, 2, 2)), "two dimensions"),
        (X, np.array([["a", "b"]]), "must hold numbers"),
        (X, np.array([["a", 1]], dtype=object), "not a number"),
        (X, np.ones((2, 2), dtype=complex), "Complex data not supported"),
        (X, sp.csr_matrix(np.ones((2, 2), dtype=complex)), "Complex data not supported"),
        (X, [[1, 2], [3]], "rows of equal length"),
        (Y, None, "the target y is None"),
        (Y, np.ones(3), "two dimensions"),
        (Y, np.ones((3, 0)), "no label columns"),
        (Y, [["a", "b"]], "found type"),
        (Y, np.array([["a", 1]], dtype=object), "objects that are not numbers"),
        (Y, [[0, 1], [1]], "rows of equal length"),
        (Y, [[0, np.nan]], "observed mask, not by NaN"),
        (Y, sp.csr_matrix([[0, 3]]), "found 3"),
        (Y, np.array([["0", "2"]], dtype=object), "found 2"),
        (partial(Y, n_rows=3), np.ones((2, 2)), "2 rows but X has 3"),
        (partial(Y, n_labels=5), np.ones((2, 2)), "2 labels where 5 are expected"),
        (Y, sp.csr_matrix(([1, 1], [2, 2], [0, 0, 2]), shape=(2, 3)), "row 1, label 2 more than once"),
        (Omega, np.array([[np.nan, 1.0]]), "NaN or infinity"),
        (Omega, np.array([[None, 1]], dtype=object), "type object"),
        (Omega, [["0", "1"]], "entries of type"),
        (Omega, [[1], [1, 0]], "rows of equal length"),
        (Omega, [1, 0], "two dimensions"),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            check(value)
    for check, value, words in [
        (X, np.array([[{}, 1]], dtype=object), "not a number"),
        *((check, masked, "as observed") for check in (X, Y, Omega)),
    ]:
        with pytest.raises(InvalidTypeError, match=words):
            check(value)


def test_numbers_names_and_flags():
    assert validation.check_integer(np.int32(4), "k") == 4
    assert validation.check_real(2, "reg") == 2.0
    with pytest.raises(InvalidTypeError, match="k must be a whole number; found True"):
        validation.check_integer(True, "k")
    with pytest.raises(InvalidInputError, match="share must be finite at least 0 and at most 1; found 2"):
        validation.check_real(2, "share", minimum=0, maximum=1)
    with pytest.raises(InvalidInputError, match="kind must be one of 'a', 'b'; found 'c'"):
        validation.check_choice("c", "kind", ("a", "b"))
    assert validation.check_choice("a", "kind", ("a", "b")) == "a"
    assert validation.check_flag(np.True_, "normalize") is True
    with pytest.raises(InvalidTypeError, match="normalize must be True or False; found 'no'"):
        validation.check_flag("no", "normalize")
