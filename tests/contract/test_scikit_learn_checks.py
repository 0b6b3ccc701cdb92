"""scikit-learn's own checks. The few that cannot hold for a multi-label estimator are named with the reason."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tagwise import LEML, MSE, REML, BinaryRelevance, Cascade
from tagwise.baselines import (
    CPLST,
    KNN,
    LPSR,
    MDDM,
    MLCSSP,
    MLKNN,
    PLST,
    SLEEC,
    WSABIE,
    BayesianCS,
    CompressedSensing,
    FastXML,
)

NOT_FOR_MULTI_LABEL = {
    "check_classifiers_train": "asks for one-dimensional predictions; labels are a matrix",
    "check_classifiers_classes": "passes a one-dimensional y of class names",
    "check_classifier_data_not_an_array": "passes the classes 1 and 2; labels are 0 and 1",
    "check_estimators_dtypes": "passes classes other than 0 and 1",
    "check_fit2d_1feature": "passes classes other than 0 and 1",
}


@pytest.mark.filterwarnings("ignore::tagwise.exceptions.TagwiseWarning")
@parametrize_with_checks(
    [
        LEML(rank=2),
        REML(rank=2),
        Cascade(rank=2),
        BinaryRelevance(),
        BinaryRelevance(loss="hinge"),
        FastXML(n_trees=2),
        LPSR(n_partitions=3),
        WSABIE(rank=2, max_iter=3),
        PLST(rank=2),
        CPLST(rank=2),
        MLCSSP(rank=2),
        CompressedSensing(),
        BayesianCS(),
        MSE(),
        KNN(),
        MDDM(),
        MLKNN(),
        SLEEC(rank=2, n_learners=1),
    ],
    expected_failed_checks=lambda estimator: NOT_FOR_MULTI_LABEL,
)
def test_scikit_learn(estimator, check):
    check(estimator)
