"""scikit-learn's own checks. The few that cannot hold for a multi-label estimator are named with the reason."""

from functools import partial

import pytest
from contract_models import FIRST_MAKERS, MAKERS
from sklearn.utils.estimator_checks import parametrize_with_checks

from tagwise.registry import info_of

NOT_FOR_MULTI_LABEL = {
    "check_classifiers_train": "asks for one-dimensional predictions; labels are a matrix",
    "check_classifiers_classes": "passes a one-dimensional y of class names",
    "check_classifier_data_not_an_array": "passes the classes 1 and 2; labels are 0 and 1",
    "check_estimators_dtypes": "passes classes other than 0 and 1",
    "check_fit2d_1feature": "passes classes other than 0 and 1",
    "check_decision_proba_consistency": "passes a one-dimensional y of class names",
    "check_estimator_sparse_array": "asks for two columns of probabilities of one label",
    "check_estimator_sparse_matrix": "asks for two columns of probabilities of one label",
    "check_sample_weights_pandas_series": "passes the classes 1 and 2; labels are 0 and 1",
    "check_sample_weights_not_an_array": "passes the classes 1 and 2; labels are 0 and 1",
    "check_sample_weights_shape": "passes the classes 1 and 2; labels are 0 and 1",
    "check_sample_weights_not_overwritten": "passes the classes 1 and 2; labels are 0 and 1",
    # test_scikit_learn_use.py has the same with labels.
    "check_sample_weight_equivalence_on_dense_data": "passes classes other than 0 and 1",
    "check_sample_weight_equivalence_on_sparse_data": "passes classes other than 0 and 1",
}
REFUSED = {
    "check_sample_weights_list": "the method does not weigh rows, and says so",
    "check_all_zero_sample_weights_error": "the method does not weigh rows, and says so",
}

# Every model, and the one variant whose solver is that of no other.
ESTIMATORS = [make() for make in MAKERS if make in FIRST_MAKERS or make.name == "BinaryRelevance-hinge"]


@pytest.mark.filterwarnings("ignore::tagwise.exceptions.TagwiseWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn(estimator, check):
    """Not by marks of expected failures: pytest would write out the traceback of each of them, half a second's work."""
    refused = NOT_FOR_MULTI_LABEL if info_of(type(estimator)).weighs_rows else NOT_FOR_MULTI_LABEL | REFUSED
    name = (check.func if isinstance(check, partial) else check).__name__
    if name not in refused:
        check(estimator)
        return
    with pytest.raises((ValueError, TypeError, AssertionError)):
        check(estimator)
