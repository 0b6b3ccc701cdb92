"""A tagger that learns further texts: new words and tags become known, old ones stay, and failures change nothing."""

from copy import deepcopy

import numpy as np
import pytest

from tagwise import Tagger, TextFeatures, load
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning

pytestmark = pytest.mark.filterwarnings("ignore:rank=:tagwise.exceptions.TagwiseWarning")
MODELS = ["binary-relevance", "cascade"]
NEW_TEXTS = ["rocket engine and the sail", "rocket moon orbit", "the moon and an engine", "orbit rocket the cat"] * 3
NEW_TAGS = [["space", "ships"], ["space"], ["space"], ["space", "pets"]] * 3


def fitted(rows, model="binary-relevance", **settings):
    return Tagger(model, updatable=True, **settings).fit(*rows)


@pytest.mark.parametrize("model", MODELS)
def test_new_words_and_tags_are_learnt_and_old_ones_stay(rows, model, tmp_path):
    tagger = fitted(rows, model)
    words, tags = list(tagger.features_.feature_names), list(tagger.tags_)
    weights = dict(zip(words, tagger.features_.idf_, strict=True))
    assert tagger.update(NEW_TEXTS, NEW_TAGS) is tagger
    assert tagger.tags_ == [*tags, "space"]
    assert set(tagger.features_.feature_names) == {*words, "rocket", "engine", "moon", "orbit", "an"}
    assert tagger.features_.feature_names == sorted(tagger.features_.feature_names)
    after = dict(zip(tagger.features_.feature_names, tagger.features_.idf_, strict=True))
    assert {word: after[word] for word in words} == weights
    assert after["rocket"] == np.float32(1 + np.log(133 / 10))
    (best,), (old,) = tagger.suggest(["a rocket to the moon"], top=1), tagger.suggest(["dog and leash"], top=1)
    assert (best[0].tag, old[0].tag) == ("space", "pets")
    assert (tagger.training_["rows"], tagger.training_["tags"]) == (132, 5)
    assert tagger.training_["tag_rows"][-1] == 12
    tagger.save(tmp_path / "tagger")
    again = load(tmp_path / "tagger")
    assert again.suggest(NEW_TEXTS) == tagger.suggest(NEW_TEXTS)
    assert again.update(*rows).suggest(NEW_TEXTS) == tagger.update(*rows).suggest(NEW_TEXTS)


def test_rows_made_before_stay_as_they_are(rows):
    features = TextFeatures().fit(rows[0])
    extended, source = features.extended(NEW_TEXTS, len(rows[0]))
    before, after = features.transform(rows[0]), extended.transform(rows[0])
    np.testing.assert_array_equal(after.toarray()[:, source >= 0], before.toarray()[:, source[source >= 0]])
    assert not after.toarray()[:, source < 0].any()
    full = TextFeatures(max_features=len(features.feature_names)).fit(rows[0])
    assert (full.extended(NEW_TEXTS, 120)[1] >= 0).all()


def test_answers_alone_are_known_of_some_texts(rows):
    tagger = fitted(rows)
    tagger.update(["dog sail", "cat anchor"], [["pets"], []], known=[["ships"], ["pets", "ships"]])
    assert tagger.training_["known_pairs"] == 120 * 4 + 2 + 2
    assert tagger.model_.kept_complete_.sum() == 120
    assert tagger.model_.kept_observed_.nnz == 4
    # A new tag is known of the texts of which everything is.
    tagger.update(["rocket moon"], [["space"]])
    assert tagger.training_["known_pairs"] == 121 * 5 + 4
    assert tagger.remove_tags(["space"]).training_["known_pairs"] == 121 * 4 + 4


def test_what_texts_are_compared_with_stays_where_scores_do(rows):
    tagger = Tagger("binary-relevance", updatable=True).fit(rows[0][:80], rows[1][:80])
    tagger.calibrate(rows[0][80:], rows[1][80:])
    reference = tagger.reference_
    assert tagger.rename_tags({"pets": "beasts"}).reference_ is reference
    assert tagger.drift(rows[0][80:]).label_p.min() == 1
    tagger.remove_tags(["wine"])  # others take its place among the suggestions
    with pytest.raises(InvalidInputError, match="has been updated since"):
        tagger.drift(rows[0][80:])


def test_bad_input_changes_nothing(rows):
    tagger = fitted(rows)
    before = tagger.suggest(rows[0][:20])
    for call, error, message in (
        (lambda: tagger.update([], []), InvalidInputError, "texts is empty; at least one"),
        (lambda: tagger.update(["dog"], [[3]]), InvalidTypeError, "tags differ in type from those of the fit"),
        (lambda: tagger.update(["dog"], [["pets"], []]), InvalidInputError, "tags has 2 rows but texts has 1"),
        (lambda: tagger.remove_tags(["zebras"]), InvalidInputError, "'zebras' is not one of the 4 tags"),
        (lambda: tagger.remove_tags("pets"), InvalidTypeError, "tags must be a list of tags"),
        (lambda: tagger.remove_tags([]), InvalidInputError, "tags is empty"),
        (lambda: tagger.rename_tags({"pets": "wine"}), InvalidInputError, "use merge_tags to merge them"),
        (lambda: tagger.rename_tags({}), InvalidTypeError, "names must be a dictionary"),
    ):
        with pytest.raises(error, match=message):
            call()
        assert tagger.suggest(rows[0][:20]) == before, message


def test_a_tagger_that_keeps_nothing_says_so(rows):
    tagger = Tagger("binary-relevance").fit(*rows)
    for call in (lambda: tagger.update(*rows), lambda: tagger.merge_tags(["pets"], "wine")):
        with pytest.raises(InvalidInputError, match="does not keep the texts of its fit"):
            call()
    with pytest.raises(InvalidInputError, match="KNN does not support updates"):
        Tagger("knn", updatable=True).fit(*rows)
    unknown = Tagger("leml", unlisted="unknown", updatable=True).fit(*rows)
    with pytest.raises(InvalidInputError, match="give one"):
        unknown.update(*rows, known=[None] * 120)


def test_tags_are_removed_renamed_and_merged(rows, tmp_path):
    tagger = fitted(rows, vocabulary={"pets": "animals", "wine": "wines"})
    pets = {text for text, tags in zip(*rows, strict=True) if {"pets", "wine"} & set(tags)}
    scores = tagger.decision_function(rows[0])
    tagger.remove_tags(["mixed"])
    assert tagger.tags_ == ["pets", "ships", "wine"]
    np.testing.assert_array_equal(tagger.decision_function(rows[0]), scores[:, 1:])
    tagger.rename_tags({"pets": "beasts"})
    assert tagger.names_ == {"beasts": "animals", "wine": "wines"}
    tagger.merge_tags(["wine"], "beasts")
    assert tagger.tags_ == ["beasts", "ships"]
    count = sum(text in pets for text in rows[0])
    assert tagger.training_["tag_rows"][0] == count
    tagger.save(tmp_path / "tagger")
    assert load(tmp_path / "tagger").suggest(rows[0][:9]) == tagger.suggest(rows[0][:9])


def test_tags_written_nearly_alike_are_one_and_a_change_that_fails_leaves_them_alone(rows):
    tagger = fitted(rows, normalise_tags=True)
    tagger.update(["dog leash", "rocket", "rocket"], [["PETS"], ["Space"], ["space"]])
    assert tagger.tags_[:4] == ["mixed", "pets", "ships", "wine"]
    assert len(tagger.tags_) == 5
    tagger.set_params(vocabulary=["pets", 3])
    with pytest.raises(InvalidTypeError, match="vocabulary holds numbers and names"):
        tagger.rename_tags({"pets": "beasts"})
    assert tagger.vocabulary == ["pets", 3]
    assert "pets" in tagger.tags_


def test_a_calibration_follows_its_tags(rows, tmp_path):
    tagger = Tagger("binary-relevance", updatable=True).fit(rows[0][:80], rows[1][:80])
    tagger.calibrate(rows[0][80:], rows[1][80:])
    before = tagger.predict_proba(rows[0][:30], dense=True)
    fewer = deepcopy(tagger).remove_tags(["mixed"])
    fewer.save(tmp_path / "tagger")
    np.testing.assert_array_equal(load(tmp_path / "tagger").predict_proba(rows[0][:30], dense=True), before[:, 1:])
    with pytest.warns(TagwiseWarning, match="calibration is dropped"):
        tagger.update(rows[0][:10], rows[1][:10])
    assert tagger.calibration_ is None
