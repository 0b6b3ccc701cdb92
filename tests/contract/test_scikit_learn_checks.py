"""scikit-learn's own checks. The few that cannot hold for a multi-label estimator are named with the reason."""

import pytest
from contract_models import FIRST_MAKERS, MAKERS
from sklearn.utils.estimator_checks import parametrize_with_checks

NOT_FOR_MULTI_LABEL = {
    "check_classifiers_train": "asks for one-dimensional predictions; labels are a matrix",
    "check_classifiers_classes": "passes a one-dimensional y of class names",
    "check_classifier_data_not_an_array": "passes the classes 1 and 2; labels are 0 and 1",
    "check_estimators_dtypes": "passes classes other than 0 and 1",
    "check_fit2d_1feature": "passes classes other than 0 and 1",
}

# Every model, and the one variant whose solver is that of no other.
ESTIMATORS = [make() for make in MAKERS if make in FIRST_MAKERS or make.name == "BinaryRelevance-hinge"]


@pytest.mark.filterwarnings("ignore::tagwise.exceptions.TagwiseWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: NOT_FOR_MULTI_LABEL)
def test_scikit_learn(estimator, check):
    check(estimator)
