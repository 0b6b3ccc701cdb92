import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tagwise.data import load_dataset, make_power_law, split_rows, split_train_test
from tagwise.data.splits import fold_numbers
from tagwise.exceptions import InvalidInputError, InvalidTypeError


@st.composite
def label_matrices(draw):
    n_rows, n_labels = draw(st.integers(2, 40)), draw(st.integers(1, 30))
    density = draw(st.sampled_from([0.0, 0.03, 0.1, 0.5, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return sp.csr_matrix((rng.random((n_rows, n_labels)) < density).astype(np.float32))


def counts(Y):
    return np.bincount(Y.indices, minlength=Y.shape[1])


@given(label_matrices(), st.floats(0.05, 0.95), st.integers(0, 2**32))
def test_every_label_keeps_a_training_row_and_the_test_side_is_as_large_as_can_be(Y, fraction, seed):
    train, test = split_rows(Y, fraction, seed, keep_labels=True)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(Y.shape[0]))
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()
    in_training = counts(Y[train])
    assert (in_training[counts(Y) > 0] > 0).all()
    wanted = min(max(round(fraction * Y.shape[0]), 1), Y.shape[0] - 1)
    assert len(test) <= wanted
    if len(test) < wanted:
        # No training row could still move: each carries some label's last training row.
        for row in train:
            assert (in_training[Y[row].indices] == 1).any()


@given(label_matrices(), st.integers(0, 2**32), st.booleans())
def test_same_seed_same_split(Y, seed, keep):
    for one, other in zip(*(split_rows(Y, 0.3, seed, keep_labels=keep) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_are_drawn_whatever_their_labels():
    """As many test rows as asked for, the same for all labels, and rare labels on both sides alike."""
    Y = sp.identity(400, format="csr")
    train, test = split_rows(Y, 0.3, 0)
    assert len(test) == 120
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(400))
    other = split_rows(sp.csr_matrix((400, 3)), 0.3, 0)
    np.testing.assert_array_equal(test, other[1])


def test_labels_that_chain_rows_together_are_settled():
    # Row i has the labels i and i + 1: of two neighbours at most one can be tested.
    n = 2001
    Y = sp.diags([np.ones(n), np.ones(n)], [0, 1], shape=(n, n + 1)).tocsr()
    train, test = split_rows(Y, 0.9, 0, keep_labels=True)
    assert (np.diff(test) > 1).all()
    assert len(test) > n / 3
    assert len(train) + len(test) == n


@pytest.mark.parametrize("keep", [False, True])
def test_rows_without_rare_labels_are_tested_alike(keep):
    Y = sp.csr_matrix(np.ones((20, 1), dtype=np.float32))
    rng = np.random.default_rng(0)
    tested = np.zeros(20)
    for _ in range(2000):
        tested[split_rows(Y, 0.25, rng, keep_labels=keep)[1]] += 1
    assert abs(tested - 500).max() < 4.5 * np.sqrt(2000 * 0.25 * 0.75)


def test_large_split():
    _, Y = make_power_law(600_000, 10, 30_000, features_per_row=1, labels_per_row=2.4, random_state=0)
    train, test = split_rows(Y, 0.1, 0, keep_labels=True)
    assert len(test) == 60_000
    assert (counts(Y[train])[counts(Y) > 0] > 0).all()


def test_rare_labels_of_real_data_stay_in_training(data_folder):
    Y = load_dataset("yso-finna-en-min4").Y_train
    train, test = split_rows(Y, 0.1, 0, keep_labels=True)
    assert len(test) == round(0.1 * Y.shape[0])
    assert (counts(Y[train])[counts(Y) > 0] > 0).all()


@pytest.mark.parametrize("convert", [sp.csr_matrix, sp.csc_matrix, sp.csr_array, np.asarray, list])
def test_wrapper_slices_whatever_x_is(convert):
    dense = np.arange(40.0).reshape(20, 2)
    Y = sp.csr_matrix(np.ones((20, 1)))
    texts = [f"text {row}" for row in range(20)]
    parts = split_train_test(convert(dense), Y, test_fraction=0.25, random_state=3, texts=texts)
    train, test = split_rows(Y, 0.25, 3)
    np.testing.assert_array_equal(parts.train_rows, train)
    np.testing.assert_array_equal(parts.test_rows, test)
    X_train, Y_train, X_test, Y_test = parts
    for found, rows in ((X_train, train), (X_test, test)):
        if convert is list:
            assert isinstance(found, list)
        elif convert is np.asarray:
            assert isinstance(found, np.ndarray)
        else:
            assert type(found) is sp.csr_matrix
            found = found.toarray()
        np.testing.assert_array_equal(np.asarray(found), dense[rows])
    assert Y_train.shape == (15, 1)
    assert Y_test.shape == (5, 1)
    assert parts.texts_train == [texts[row] for row in train]
    assert parts.texts_test == [texts[row] for row in test]
    assert split_train_test(texts, Y).texts_train is None
    assert repr(parts) == "TrainTestSplit(15 training and 5 test rows)"


def test_folds_are_of_about_equal_size_and_by_the_seed():
    folds = fold_numbers(11, 3, 0)
    assert sorted(np.bincount(folds)) == [3, 4, 4]
    np.testing.assert_array_equal(folds, fold_numbers(11, 3, 0))
    assert (folds != fold_numbers(11, 3, 1)).any()


def test_bad_arguments():
    ones = np.ones((4, 1))
    for call, error, words in (
        (lambda: split_rows(ones, 0), InvalidInputError, "test_fraction"),
        (lambda: split_rows(ones, 1), InvalidInputError, "test_fraction"),
        (lambda: split_rows(ones, np.nan), InvalidInputError, "test_fraction"),
        (lambda: split_rows(ones, "half"), InvalidTypeError, "test_fraction"),
        (lambda: split_rows(ones, 0.5, "seed"), InvalidTypeError, "random_state"),
        (lambda: split_rows(ones, 0.5, keep_labels="yes"), InvalidTypeError, "keep_labels must be True or False"),
        (lambda: split_rows(ones[:1], 0.5), InvalidInputError, "at least 2 are needed"),
        (lambda: split_rows(5 * ones, 0.5), InvalidInputError, "only 0 and 1"),
        (lambda: split_train_test(np.ones((3, 2)), ones), InvalidInputError, "X has 3 rows but Y has 4"),
        (lambda: split_train_test(ones, ones, texts=["a"]), InvalidInputError, "texts has 1 rows but Y has 4"),
        (lambda: split_train_test(ones, ones, texts="abcd"), InvalidTypeError, "texts must be .* found str"),
        (lambda: split_train_test(4, ones), InvalidTypeError, "X must be .* found int"),
    ):
        with pytest.raises(error, match=words):
            call()
