"""Every model takes a sparse and a dense block of features side by side."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import load
from tagwise.data import FeatureBlocks
from tagwise.exceptions import InvalidInputError, InvalidTypeError


@pytest.fixture
def blocks(problem):
    """The features of the problem beside five dense ones that know half of its labels."""
    X, Y = problem
    rng = np.random.default_rng(2)
    dense = Y.toarray() @ rng.standard_normal((Y.shape[1], 5)) + 0.3 * rng.standard_normal((X.shape[0], 5))
    return FeatureBlocks([X, dense])


def test_blocks_are_learnt_from(make, problem, blocks):
    Y = problem[1]
    model = make().fit(blocks, Y)
    labels, scores = model.predict_topk(blocks, k=3)
    assert labels.shape == scores.shape == (blocks.shape[0], 3)
    assert model.n_features_in_ == blocks.shape[1]
    np.testing.assert_allclose(
        np.take_along_axis(model.decision_function(blocks), labels, axis=1), scores, rtol=1e-5, atol=1e-5
    )


@pytest.mark.of_base
def test_a_list_and_one_matrix_are_the_same_rows(make, problem, blocks):
    model = make().fit([blocks.sparse, blocks.dense], problem[1])
    expected = model.predict_topk(blocks, k=3)
    for form in (list(blocks), blocks.tocsr(), blocks.tocsr().toarray()):
        for found, wanted in zip(model.predict_topk(form, k=3), expected):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.of_base
def test_threads_do_not_change_what_blocks_teach(make, problem, blocks):
    one, many = (make().set_params(n_jobs=jobs).fit(blocks, problem[1]) for jobs in (1, 3))
    np.testing.assert_array_equal(one.decision_function(blocks), many.decision_function(blocks))


def test_pairs_outside_the_mask_do_not_matter(make, problem, mask, blocks):
    Y = problem[1].toarray()
    known = mask.toarray() > 0
    others = np.where(known, Y, 1 - Y)
    first, second = (make().fit(blocks, labels, observed=mask).decision_function(blocks) for labels in (Y, others))
    np.testing.assert_array_equal(first, second)


@pytest.mark.of_base
def test_a_folder_answers_as_the_model_did(make, problem, blocks, tmp_path):
    model = make().fit(blocks, problem[1])
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(blocks), model.decision_function(blocks))


def test_weights_add_up_to_what_they_explain(make, problem, blocks):
    model = make().fit(blocks, problem[1])
    if hasattr(model, "coef_"):
        rows = model.scored_rows(blocks)
        rows = rows.tocsr() if isinstance(rows, FeatureBlocks) else rows
        scores = model.decision_function(blocks)
        np.testing.assert_allclose(rows @ model.coef_.T + model.intercept_, scores, rtol=1e-6, atol=1e-8)


@pytest.mark.of_base
def test_other_numbers_of_dense_features_are_refused(make, problem, blocks):
    model = make().fit(blocks, problem[1])
    with pytest.raises(InvalidInputError, match="dense features, but the model was trained with 5"):
        model.predict_topk([blocks.sparse[:, :-1], np.hstack([blocks.dense, blocks.dense[:, :1]])])
    with pytest.raises(InvalidInputError, match="features"):
        model.predict_topk([blocks.sparse, blocks.dense[:, 1:]])


@pytest.mark.of_base
def test_faulty_blocks_are_named(make, problem, blocks):
    Y, (X, dense) = problem[1], blocks
    for given, words in (
        ([X, np.full_like(dense, np.nan)], "NaN or infinity"),
        ([X, dense[1:]], "60 rows and the dense one 59"),
        ([X, sp.csr_matrix(dense)], "the second one must be an array; found a sparse matrix"),
    ):
        with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
            make().fit(given, Y)


def test_blocks_themselves_are_checked(blocks):
    for given, words in (
        ([1, 2, 3], "a list of two, a sparse matrix and an array; found 3 of them"),
        ([blocks.dense, blocks.dense], "the first one must be a sparse matrix; found a ndarray"),
        ([blocks.sparse, blocks.dense[:, 0]], "the dense one must have two dimensions; found 1"),
    ):
        with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
            FeatureBlocks(given)
    with pytest.raises(InvalidTypeError, match="indexed by rows alone"):
        blocks[:, 0]
    assert repr(blocks) == "<FeatureBlocks of 60 rows: 12 sparse features and 5 dense ones>"
    assert blocks[3].shape == (1, 17)
    np.testing.assert_array_equal(
        FeatureBlocks.split(blocks.tocsr(), 5).dense, FeatureBlocks.split(blocks.tocsr().toarray(), 5).dense
    )
