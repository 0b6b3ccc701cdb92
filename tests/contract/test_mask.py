"""What the mask of known labels means: outside it nothing matters, inside it everything does."""

import numpy as np
import pytest
import scipy.sparse as sp
from comparison import assert_same_model
from contract_models import FIRST_MAKERS

from tagwise import LEML, Known
from tagwise.exceptions import InvalidInputError, TagwiseWarning

N_ROWS, N_FEATURES, N_LABELS = 60, 12, 7


def test_only_known_values_matter(make, problem, mask):
    X, Y = problem
    known, dense = mask.toarray() != 0, Y.toarray()
    model = make().fit(X, Y, observed=mask)
    assert_same_model(make().fit(X, np.where(known, dense, 1 - dense), observed=mask), model)
    other = make().fit(X, np.where(known, 1 - dense, dense), observed=mask)
    assert np.abs(model.decision_function(X) - other.decision_function(X)).max() > 0.05


def test_forms_of_a_mask(make, fitted, problem, mask):
    """Presence counts in a sparse mask, not its value; a full one is none; complete rows need not be written out."""
    X, Y = problem
    np.testing.assert_allclose(
        make().fit(X, Y, observed=np.ones(Y.shape)).decision_function(X), fitted.decision_function(X), atol=1e-6
    )
    zeros, partly = mask.copy(), mask.toarray()
    zeros.data[:] = 0
    assert_same_model(make().fit(X, Y, observed=zeros), make().fit(X, Y, observed=mask.toarray().astype(bool)))
    partly[:40] = 1
    model = make().fit(X, Y, observed=Known(mask, np.arange(N_ROWS) < 40))
    assert_same_model(make().fit(X, Y, observed=sp.csr_matrix(partly)), model)


def test_labels_and_rows_of_which_nothing_is_known(make, problem, mask):
    X, Y = problem
    hidden = mask.toarray()
    hidden[:, 4] = 0
    hidden[:5] = 0
    scores = make().fit(X, Y, observed=sp.csr_matrix(hidden)).decision_function(X)
    assert np.isfinite(scores).all()
    assert (scores.argmin(axis=1) == 4).all()


@pytest.mark.of_base
def test_a_mask_without_a_known_negative_is_warned_of(make, problem, mask, recwarn):
    X, Y = problem
    with pytest.warns(TagwiseWarning, match="contains no negatives.*unlisted='unknown'"):
        make().fit(X, Y, observed=sp.csr_matrix(Y) != 0)
    make().fit(X, Y, observed=mask)
    assert not any("contains no negatives" in str(warning.message) for warning in recwarn)


def test_bad_masks(problem):
    X, Y = problem
    for observed, words in (
        (sp.csr_matrix((N_ROWS, N_LABELS)), "nothing to learn from"),
        (sp.csr_matrix(np.ones((N_ROWS, N_LABELS + 1))), "same shape"),
        (np.ones(N_ROWS), "two dimensions"),
        (Known(sp.csr_matrix((N_ROWS, N_LABELS)), complete=[]), "nothing to learn from"),
        (Known(sp.csr_matrix((N_ROWS, N_LABELS + 1)), complete=[0]), "same shape"),
        (Known(sp.csr_matrix((9, N_LABELS)), complete=[0]), "9 truth values, and there are 60 rows"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            LEML(3).fit(X, Y, observed=observed)


def test_a_model_without_a_notion_of_unknown_labels_refuses_a_mask(problem):
    X, Y = problem
    for make in FIRST_MAKERS:
        if not make.learns_from_mask:
            with pytest.raises(InvalidInputError, match=r"observed: .* does not support unknown labels"):
                make().fit(X, Y, observed=sp.csr_matrix(np.eye(N_ROWS, N_LABELS)))
            make().fit(X, Y, observed=np.ones(Y.shape))
