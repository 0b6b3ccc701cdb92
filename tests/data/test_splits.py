"""Splits of rows, masks of known labels, and frequencies of labels."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import tagwise.data.splits
from tagwise import label_frequencies
from tagwise.data import hide_labels, make_power_law, split_rows, split_train_test
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


def test_rows_without_rare_labels_are_tested_alike():
    Y = sp.csr_matrix(np.ones((20, 1), dtype=np.float32))
    rng = np.random.default_rng(0)
    for keep in (False, True):
        tested = np.zeros(20)
        for _ in range(2000):
            tested[split_rows(Y, 0.25, rng, keep_labels=keep)[1]] += 1
        assert abs(tested - 500).max() < 4.5 * np.sqrt(2000 * 0.25 * 0.75)


def test_large_split():
    _, Y = make_power_law(600_000, 10, 30_000, features_per_row=1, labels_per_row=2.4, random_state=0)
    train, test = split_rows(Y, 0.1, 0, keep_labels=True)
    assert len(test) == 60_000
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


# ---------------------------------------------------------------------- masks


def labels(n_rows, n_labels):
    return sp.csr_matrix((n_rows, n_labels), dtype=np.float32)


@given(st.integers(0, 30), st.integers(1, 30), st.floats(0.001, 1), st.integers(0, 2**32))
def test_mask_is_canonical_and_of_the_shape_of_y(n_rows, n_labels, fraction, seed):
    mask = hide_labels(labels(n_rows, n_labels), fraction, seed)
    assert type(mask) is sp.csr_matrix
    assert mask.shape == (n_rows, n_labels)
    assert mask.dtype == np.float32
    mask.check_format(full_check=True)
    assert (mask.data == 1).all()
    # Strictly rising columns in each row: sorted and without duplicates.
    dense = mask.toarray()
    assert dense.sum() == mask.nnz
    assert mask.has_canonical_format


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_same_seed_same_mask_whatever_y_holds(seed, n_rows):
    Y = sp.random(n_rows, 7, 0.3, format="csr", random_state=0)
    Y.data[:] = 1
    one, other = hide_labels(Y, 0.4, seed), hide_labels(labels(n_rows, 7), 0.4, seed)
    assert (one != other).nnz == 0


def test_different_seeds_differ_and_a_generator_advances():
    Y = labels(50, 50)
    assert (hide_labels(Y, 0.5, 0) != hide_labels(Y, 0.5, 1)).nnz
    rng = np.random.default_rng(0)
    first, second = hide_labels(Y, 0.5, rng), hide_labels(Y, 0.5, rng)
    assert (first != second).nnz
    assert (first != hide_labels(Y, 0.5, 0)).nnz == 0


@pytest.mark.parametrize("fraction", [0.02, 0.2, 0.5, 0.9])
def test_every_entry_is_known_with_the_same_probability(fraction):
    n_rows, n_labels, repeats = 6, 5, 4000
    rng = np.random.default_rng(0)
    known = sum(hide_labels(labels(n_rows, n_labels), fraction, rng).toarray() for _ in range(repeats))
    deviation = np.sqrt(repeats * fraction * (1 - fraction))
    assert abs(known - repeats * fraction).max() < 4.5 * deviation
    # Independent entries: neighbours in the walk are known together with probability p².
    masks = [hide_labels(labels(1, 2), fraction, rng).toarray()[0] for _ in range(repeats)]
    both = sum(mask.all() for mask in masks)
    assert abs(both - repeats * fraction**2) < 4.5 * np.sqrt(repeats * fraction**2)


def test_chunks_join_without_a_seam(monkeypatch):
    monkeypatch.setattr(tagwise.data.splits, "_CHUNK", 7)
    mask = hide_labels(labels(200, 30), 0.3, 0)
    mask.check_format(full_check=True)
    assert mask.has_canonical_format
    assert abs(mask.nnz - 1800) < 4.5 * np.sqrt(6000 * 0.3 * 0.7)
    per_row = np.diff(mask.indptr)
    assert abs(per_row.mean() - 9) < 1
    for form in (labels(20, 3), np.eye(20, 3)):
        assert (hide_labels(form, 1.0, 0).toarray() == 1).all()


def test_many_entries_and_few_known_ones():
    mask = hide_labels(sp.csr_matrix((3_000_000, 3_000_000), dtype=np.float32), 1e-9, 0)
    assert abs(mask.nnz - 9000) < 4.5 * np.sqrt(9000)
    mask.check_format(full_check=True)
    assert hide_labels(sp.csr_matrix((3_000_000, 3_000_000), dtype=np.float32), 1e-300, 0).nnz == 0


def test_bad_fractions_seeds_and_labels():
    for fraction in (0, -0.1, 1.01, np.nan, np.inf, "0.5", None, True):
        with pytest.raises((InvalidInputError, InvalidTypeError), match="fraction_observed"):
            hide_labels(labels(3, 3), fraction)
    for seed in (-1, "a", 1.5, True):
        with pytest.raises((InvalidInputError, InvalidTypeError), match="random_state"):
            hide_labels(labels(3, 3), 0.5, seed)
    with pytest.raises(InvalidInputError, match="only 0 and 1"):
        hide_labels(np.full((2, 2), 3), 0.5)
    with pytest.raises(InvalidInputError, match="two dimensions"):
        hide_labels(np.ones(3), 0.5)


# ---------------------------------------------------------------------- frequencies


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 999))
def test_frequencies_are_counts(n_rows, n_labels, seed):
    Y = sp.random(n_rows, n_labels, 0.2, format="csr", random_state=seed, data_rvs=np.ones)
    expected = sorted((int(count) for count in Y.toarray().sum(axis=0)), reverse=True)
    for given_form in (Y, Y.toarray(), sp.coo_matrix(Y)):
        assert label_frequencies(given_form).tolist() == expected


def test_stored_zeros_are_no_labels():
    Y = sp.csr_matrix((np.array([1.0, 0.0, 1.0]), np.array([0, 1, 0]), np.array([0, 2, 3])), shape=(2, 3))
    assert label_frequencies(Y).tolist() == [2, 0, 0]
