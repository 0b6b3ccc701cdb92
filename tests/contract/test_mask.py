"""What the mask of known labels means: outside it nothing matters, inside it everything does."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from comparison import assert_same_model

from tagwise.exceptions import InvalidInputError, TagwiseWarning

N_ROWS, N_FEATURES, N_LABELS = 60, 12, 7


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


def test_everything_known_equals_no_mask(make, fitted, problem):
    X, Y = problem
    full = fitted.decision_function(X)
    masked = make().fit(X, Y, observed=np.ones(Y.shape)).decision_function(X)
    np.testing.assert_allclose(masked, full, atol=1e-6)


def test_a_mask_without_a_known_negative_is_warned_of(make, problem, mask):
    X, Y = problem
    with pytest.warns(TagwiseWarning, match="Nothing is known to be off in any row: .*unlisted='unknown'"):
        make().fit(X, Y, observed=sp.csr_matrix(Y) != 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make().fit(X, Y, observed=mask)
    assert not any("known to be off" in str(warning.message) for warning in caught)


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


@pytest.mark.per_class
@pytest.mark.parametrize(
    ("observed", "words"),
    [
        (sp.csr_matrix((N_ROWS, N_LABELS)), "nothing to learn from"),
        (sp.csr_matrix(np.ones((N_ROWS, N_LABELS + 1))), "same shape"),
        (np.ones(N_ROWS), "two dimensions"),
    ],
    ids=["empty", "shape", "one-dimensional"],
)
def test_bad_masks(make, problem, observed, words):
    with pytest.raises(InvalidInputError, match=words):
        make().fit(*problem, observed=observed)


@pytest.mark.per_class
def test_a_model_without_a_notion_of_unknown_labels_refuses_a_mask(make_maskless, problem):
    X, Y = problem
    some = sp.csr_matrix(np.eye(N_ROWS, N_LABELS))
    with pytest.raises(InvalidInputError, match=r"observed: .* has no notion of unknown labels"):
        make_maskless().fit(X, Y, observed=some)
    make_maskless().fit(X, Y, observed=np.ones(Y.shape))
