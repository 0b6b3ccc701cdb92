"""Models by name, and which one `auto` picks."""

import pytest

from tagwise import LEML, BinaryRelevance
from tagwise.baselines import SLEEC
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.models.choice import ModelChoice, build_model, choose_model, model_class
from tagwise.registry import MODEL_NAMES, info_of

FEW = {"n_rows": 1_000, "n_features": 500, "n_labels": 20, "nnz_labels": 1_500}
SMALL = {"n_rows": 24_240, "n_features": 17_736, "n_labels": 581, "nnz_labels": 89_688}
LARGE = {"n_rows": 588_303, "n_features": 66_471, "n_labels": 27_754, "nnz_labels": 1_400_000}


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_name_builds_its_model(name):
    model = build_model(name, n_jobs=1, random_state=3, verbose=0)
    assert info_of(type(model)).name == name
    assert model.get_params().get("random_state", 3) == 3
    assert model_class(name.upper()) is type(model)


@pytest.mark.parametrize("name", ["binary-relevance", "BinaryRelevance", "binary_relevance", "Binary Relevance"])
def test_spelling_does_not_matter(name):
    assert model_class(name) is BinaryRelevance


def test_parameters_are_handed_on():
    model = build_model("leml", {"rank": 7, "n_jobs": 2}, n_jobs=1)
    assert isinstance(model, LEML)
    assert (model.rank, model.n_jobs) == (7, 2)
    assert isinstance(build_model("sleec"), SLEEC)


def test_unknown_names_and_parameters():
    with pytest.raises(InvalidInputError, match=r"one of bayesiancs, binary-relevance, .*; found 'svm'"):
        build_model("svm")
    with pytest.raises(InvalidTypeError, match="found 3"):
        model_class(3)
    with pytest.raises(InvalidInputError, match=r"LEML has no parameter 'sparsity'; it has .*rank"):
        build_model("leml", {"sparsity": 1})


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sizes", [FEW, SMALL, LARGE], ids=["few", "small", "large"])
def test_cascade_suits_every_size_and_the_choice_says_why(sizes, masked):
    found = choose_model(**sizes, masked=masked)
    assert isinstance(found, ModelChoice)
    assert (found.name, found.parameters) == ("cascade", {})
    assert found.reason.startswith(f"cascade: {sizes['n_rows']:,} rows")
    assert ("some of them unknown" in found.reason) == masked
    assert found.reason.endswith(".")
    assert choose_model(**{**sizes, "n_labels": 9}, masked=masked).parameters == {"rank": 9}


def test_where_only_positives_are_known_models_are_told_so():
    found = choose_model(**{**FEW, "n_labels": 9}, masked=False, unlisted="unknown")
    assert found.parameters == {"rank": 9, "unlisted": "unknown"}
    assert "unlisted ones unknown" in found.reason
    assert build_model("cascade", {"rank": 3}, unlisted="unknown").unlisted == "unknown"
    for name in ("leml", "reml", "binary-relevance"):
        assert build_model(name, unlisted="unknown").positive_weight == "propensity"
        assert build_model(name, {"positive_weight": 2.0}, unlisted="unknown").positive_weight == 2.0
        assert build_model(name).positive_weight == 1.0
    with pytest.raises(InvalidInputError, match="unlisted: KNN takes every label that is not listed as off"):
        build_model("knn", unlisted="unknown")
    with pytest.raises(InvalidInputError, match="unlisted must be one of 'off', 'unknown'; found 'on'"):
        build_model("knn", unlisted="on")
