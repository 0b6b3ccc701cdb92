"""From texts and tags to suggestions."""

from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp

import tagwise
from tagwise import LEML, BinaryRelevance, Cascade, Tagger
from tagwise.baselines import KNN
from tagwise.data import load_dataset
from tagwise.exceptions import (
    ExplanationError,
    InvalidInputError,
    InvalidTypeError,
    NotFittedError,
    TagwiseError,
    TagwiseWarning,
)
from tagwise.inspection.calibration import fit_calibration
from tagwise.inspection.explanations import explain_labels
from tagwise.metrics.purposes import PURPOSES, LabelCounts, choose_labels
from tagwise.models.choice import choose_model
from tagwise.registry import MODELS
from tagwise.text import tagger
from tagwise.text.features import TextFeatures

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.TagwiseWarning")
LINEAR = BinaryRelevance(reg=0.1)


# --- fit


def test_a_tagger_is_features_and_a_model(rows, fitted):
    texts, tags = rows
    features = TextFeatures()
    X = features.fit_transform(texts)
    assert fitted.tags_ == ["mixed", "pets", "ships", "wine"]
    Y = sp.csr_matrix([[float(name in row) for name in fitted.tags_] for row in tags])
    model = BinaryRelevance(reg=0.1).fit(X, Y)
    np.testing.assert_array_equal(fitted.model_.feature_weights_, model.feature_weights_)
    assert fitted.model_.label_names_ == fitted.tags_
    assert fitted.features_.feature_names == features.feature_names
    assert (fitted.transform(texts) != X).nnz == 0


def test_suggestions_are_the_best_labels(rows, fitted):
    texts, _ = rows
    X = fitted.transform(texts)
    labels, scores = fitted.model_.predict_topk(X, 3)
    for row, found in enumerate(fitted.suggest(texts, top=3)):
        assert [suggestion.tag for suggestion in found] == [fitted.tags_[label] for label in labels[row]]
        assert [suggestion.score for suggestion in found] == [float(score) for score in scores[row]]
        assert all(suggestion.probability is suggestion.why is None for suggestion in found)
    options = {"top": 3, "threshold": 0.0, "explain": 2}
    assert fitted.suggest_features(X, **options) == fitted.suggest(texts, **options)
    assert [row[0].tag for row in fitted.suggest(["a dog on a leash", "grape and vintage"])] == ["pets", "wine"]
    (found,) = fitted.suggest(["dog and cat"], top=100)
    assert len(found) == 4
    assert fitted.suggest(["dog and cat"], top=100, threshold=found[1].score) == [found[:2]]
    assert fitted.suggest(["dog and cat"], threshold=99) == [[]]
    assert fitted.suggest([]) == []


def test_figures_of_the_training_rows(rows):
    texts, tags = rows
    fitted = Tagger(LINEAR, features=TextFeatures(characters=True)).fit(
        [*texts, "zebra", "xylophone"], [*tags, [], ["pets", "pets"]]
    )
    training = fitted.training_
    assert training["rows"] == 122
    assert training["tags"] == 4
    assert training["features"] == len(fitted.features_.feature_names)
    assert training["words"] == fitted.features_.n_words_ < training["features"]
    assert training["assignments"] == sum(len(row) for row in tags) + 1 == training["tag_rows"].sum()
    assert training["tag_rows"][1] == sum("pets" in row for row in tags) + 1
    assert (training["rows_without_tags"], training["known_pairs"], training["known_without_rows"]) == (1, None, 0)
    assert Tagger(LINEAR).fit([*texts, "zebra"], [*tags, []]).training_["rows_without_words"] == 1


def test_the_model_is_named_given_or_chosen(rows):
    texts, tags = rows
    for name, expected in (("LEML", LEML), ("binary-relevance", BinaryRelevance), ("knn", KNN)):
        fitted = Tagger(name, n_jobs=2, random_state=5).fit(texts, tags)
        assert type(fitted.model_) is expected
        assert fitted.model_.n_jobs == 2
        assert fitted.choice_.reason.endswith("was asked for.")
    model = LEML(rank=2, max_iter=2, tol=1.0)
    fitted = Tagger(model).fit(texts, tags)
    assert fitted.model_ is not model
    assert not hasattr(model, "n_iter_")
    assert (fitted.model_.rank, fitted.choice_.reason) == (2, "leml was given as an estimator.")
    chosen = Tagger().fit(texts, tags)
    shape = (120, len(chosen.features_.feature_names))
    assert chosen.choice_ == choose_model(*shape, 4, sum(map(len, tags)), False)
    assert "120 rows" in chosen.choice_.reason
    masked = Tagger().fit(texts, tags, known=[["pets"], *[None] * 119])
    assert "some of them unknown" in masked.choice_.reason


def test_tags_that_nobody_looked_at(rows, tmp_path):
    texts, tags = rows
    fitted = Tagger(unlisted="unknown").fit(texts, tags)
    assert fitted.model_.unlisted == "unknown"
    assert "unlisted ones unknown" in fitted.choice_.reason
    fitted.save(tmp_path / "m")
    assert tagwise.load(tmp_path / "m").unlisted == "unknown"
    given = Tagger(BinaryRelevance(reg=0.1), unlisted="unknown")
    assert given.fit(texts, tags).model_.positive_weight == "propensity"
    assert given.model.positive_weight == 1.0
    own = Tagger(BinaryRelevance(positive_weight=np.full(4, 2.0)), unlisted="unknown").fit(texts, tags)
    np.testing.assert_array_equal(own.model_.positive_weight, np.full(4, 2.0))
    with pytest.raises(InvalidInputError, match="known \\(which tags were checked\\) and unlisted='unknown'"):
        Tagger(unlisted="unknown").fit(texts, tags, known=[["pets"], *[None] * 119])
    with pytest.raises(InvalidInputError, match="unlisted: KNN takes every label"):
        Tagger("knn", unlisted="unknown").fit(texts, tags)


def test_the_same_bits_for_every_number_of_threads(rows):
    texts, tags = rows
    one, two = (
        Tagger("reml", n_jobs=jobs, features=TextFeatures(characters=True)).fit(texts, tags).suggest(texts)
        for jobs in (1, 2)
    )
    assert one == two


def test_a_callback_sees_the_fit_and_can_stop_it(rows):
    seen = []
    Tagger(LEML(rank=2, max_iter=5, tol=0.0)).fit(*rows, callback=lambda iteration, info: seen.append(info) or True)
    assert len(seen) == 1


def test_a_fit_that_fails_leaves_the_tagger_as_it_was(rows, fitted):
    before = fitted.suggest(["a dog"])
    with pytest.raises(InvalidInputError):
        fitted.fit(["one", "two"], [["a"], ["b"]])
    assert fitted.suggest(["a dog"]) == before


def test_one_tag_only(rows):
    texts, tags = rows
    for model in ("auto", "leml", "reml", LINEAR):
        fitted = Tagger(model).fit(texts, [["pets"] if "pets" in row else [] for row in tags])
        assert [row[0].tag for row in fitted.suggest(["dog", "wine"])] == ["pets", "pets"]
        assert fitted.suggest(["dog"])[0][0].score > fitted.suggest(["bottle"])[0][0].score
    everywhere = Tagger(LINEAR).fit(texts, [["pets"]] * len(texts))
    assert everywhere.predict(["anything"]) == [["pets"]]


# --- unknown tags


def test_unknown_tags_never_influence_the_fit(rows):
    """Each text was looked at for one tag only: what is off elsewhere is unknown, not wrong."""
    texts, tags = rows
    names = ["mixed", "pets", "ships", "wine"]
    known = [[names[row % 4]] for row in range(len(texts))]
    shown = [[name for name in row if name in looked_at] for row, looked_at in zip(tags, known)]
    fitted = Tagger(LINEAR).fit(texts, shown, known)
    assert fitted.training_["known_pairs"] == 120
    by_hand = BinaryRelevance(reg=0.1).fit(
        fitted.transform(texts), fitted.label_matrix(shown)[0], fitted.label_matrix(known)[0]
    )
    np.testing.assert_array_equal(fitted.model_.feature_weights_, by_hand.feature_weights_)
    as_negative = Tagger(LINEAR).fit(texts, shown)
    held = fitted.evaluate(texts, tags).metrics["nDCG@3"], as_negative.evaluate(texts, tags).metrics["nDCG@3"]
    assert held[0] > held[1]


def test_the_tags_of_a_text_count_as_looked_at_and_all_tags_are_no_mask(rows):
    texts, tags = rows
    for known, same, pairs in (
        ([["mixed", *row] for row in tags], [["mixed"]] * len(texts), sum(len({"mixed", *row}) for row in tags)),
        ([["mixed", "pets", "ships", "wine"]] * len(texts), None, None),
        ([None] * len(texts), None, None),
    ):
        fitted, other = Tagger(LINEAR).fit(texts, tags, known), Tagger(LINEAR).fit(texts, tags, same)
        np.testing.assert_array_equal(fitted.model_.feature_weights_, other.model_.feature_weights_)
        assert fitted.training_["known_pairs"] == other.training_["known_pairs"] == pairs


def test_known_names_without_a_row_are_reported(rows):
    texts, tags = rows
    with pytest.warns(TagwiseWarning, match="known names 1 tag that no row has, such as 'cars'"):
        fitted = Tagger(LINEAR).fit(texts, tags, [["cars", "pets"]] * len(texts))
    assert fitted.training_["known_without_rows"] == 1
    assert "cars" not in fitted.tags_


def test_models_say_what_they_cannot_do(rows):
    texts, tags = rows
    with pytest.raises(InvalidInputError, match="known: KNN does not support unknown tags"):
        Tagger("knn").fit(texts, tags, [["pets"]] * len(texts))
    fitted = Tagger("knn").fit(texts, tags)
    fitted.suggest(["dog"])
    with pytest.raises(ExplanationError, match="KNN has no exact"):
        fitted.suggest(["dog"], explain=1)


# --- suggest


def test_a_text_without_known_words_gets_the_intercepts(fitted):
    empty, unknown = fitted.suggest(["", "zebra crossing"], explain=3)
    assert empty == unknown
    assert [suggestion.score for suggestion in empty] == sorted(map(float, fitted.model_.intercept_), reverse=True)
    assert all(suggestion.why == () and suggestion.intercept == suggestion.score for suggestion in empty)


def test_explanations_are_exact(rows, fitted):
    texts, _ = rows
    for row in fitted.suggest(texts[:20], top=4, explain=100):
        for suggestion in row:
            total = sum(share.contribution for share in suggestion.why)
            assert total + suggestion.intercept == pytest.approx(suggestion.score, abs=1e-5)
            assert sum(abs(share.share) for share in suggestion.why) == pytest.approx(1)
            assert all((share.share > 0) == (share.contribution > 0) for share in suggestion.why)
    ((first, *_),) = fitted.suggest(["the dog and the cat"], explain=2)
    assert (first.tag, {share.word for share in first.why}) == ("pets", {"dog", "cat"})
    fitted = Tagger(LINEAR, features=TextFeatures(characters=True)).fit(*rows)
    ((first, *_),) = fitted.suggest(["hamsters"], explain=50)
    assert first.tag == "pets"
    assert first.why
    assert all(share.word.startswith("char:") for share in first.why)


def test_texts_stream(rows, fitted, monkeypatch):
    texts, _ = rows
    monkeypatch.setattr(tagger, "_BLOCK_TEXTS", 7)
    read = []
    answers = fitted.suggest_each((read.append(text) or text for text in texts), top=2)
    assert read == []
    first = next(answers)
    assert len(read) == 7
    assert [first, *answers] == fitted.suggest(texts, top=2)
    answers = fitted.suggest_each(iter([*texts[:8], None]))
    assert len([next(answers) for _ in range(7)]) == 7
    with pytest.raises(InvalidTypeError, match="found None at position 8"):
        next(answers)


def test_words_of_a_tag(fitted):
    words = fitted.words_of("pets", top=4)
    assert {word for word, _ in words} == {"dog", "cat", "hamster", "leash"}
    assert [weight for _, weight in words] == sorted((weight for _, weight in words), reverse=True)
    with pytest.raises(InvalidInputError, match="'cars' is not one of the 4"):
        fitted.words_of("cars")


# --- decisions, calibration, evaluation


def test_decisions_without_calibration_are_the_models(rows, fitted):
    texts, _ = rows
    expected = fitted.model_.predict(fitted.transform(texts))
    for row, names in enumerate(fitted.predict(texts)):
        assert set(names) == {fitted.tags_[label] for label in expected[row].indices}
    assert fitted.predict([]) == []
    names = [f"tag {number:03}" for number in range(130)]  # more than are ranked at first
    fitted = Tagger(LINEAR, features=TextFeatures(min_df=1)).fit(["word other", "word"], [names, names])
    assert fitted.predict(["word"]) == [names]


def test_calibration_is_used(rows, fitted):
    texts, tags = rows
    assert fitted.calibrate(texts[:60], tags[:60], target="example") is fitted
    ((first, *_),) = fitted.suggest(["dog and cat"])
    assert 0.8 < first.probability <= 1
    decided = fitted.predict(texts)
    kept = [[s.tag for s in row] for row in fitted.suggest(texts, top=4, threshold="calibrated")]
    assert kept == decided
    sure = fitted.suggest(texts, top=4, min_probability=0.9)
    assert any(sure)
    assert all(suggestion.probability >= 0.9 for row in sure for suggestion in row)
    assert fitted.evaluate(texts, tags).metrics["example-F1"] > 0.9
    assert fitted.reliability(texts[60:], tags[60:], n_bins=5).count.shape == (5,)
    assert fitted.fit(texts, tags).calibration_ is None


@pytest.mark.parametrize("purpose", PURPOSES)
def test_tags_are_chosen_for_a_purpose_by_probabilities_of_the_calibration(rows, fitted, purpose):
    texts, tags = rows
    with pytest.raises(InvalidInputError, match="optimise must be one of"):
        fitted.suggest(texts, optimise="f2")
    with pytest.raises(InvalidInputError, match="scores of BinaryRelevance are not probabilities; call calibrate with"):
        fitted.suggest(texts, optimise=purpose)
    fitted.calibrate(texts[:60], tags[:60])
    labels, scores = fitted.model_.predict_topk(fitted.transform(texts), 4)
    probabilities = fitted.calibration_.probabilities(labels, scores)
    counts = LabelCounts(fitted.training_["tag_rows"], 120)
    chosen = choose_labels(labels, probabilities, 2, purpose, counts)
    found = fitted.suggest(texts, top=2, optimise=purpose)
    for row, answer in enumerate(found):
        assert [suggestion.tag for suggestion in answer] == [fitted.tags_[label] for label in labels[row, chosen[row]]]
        assert [suggestion.probability for suggestion in answer] == probabilities[row, chosen[row]].tolist()
    assert fitted.suggest_features(fitted.transform(texts), 2, optimise=purpose) == found
    # Whatever the size of a block: what needs all texts waits for them.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tagger, "_BLOCK_TEXTS", 7)
        assert list(fitted.suggest_each(iter(texts), 2, optimise=purpose)) == found


def test_tags_are_chosen_for_a_purpose_by_the_models_own_probabilities(rows):
    texts, _ = rows
    fitted = Tagger(Cascade(rank=3, validation_fraction=0)).fit(*rows)
    for purpose in PURPOSES:
        labels, scores = fitted.model_.predict_topk(fitted.transform(texts), 2, optimise=purpose)
        for row, answer in enumerate(fitted.suggest(texts, top=2, optimise=purpose)):
            assert [suggestion.tag for suggestion in answer] == [fitted.tags_[label] for label in labels[row]]
            assert [suggestion.score for suggestion in answer] == scores[row].tolist()


def test_a_model_with_probabilities_needs_no_calibration(rows):
    texts, tags = rows
    fitted = Tagger(Cascade(rank=3)).fit(texts[:90], tags[:90])
    found = fitted.suggest(texts[90:], top=4)
    for suggestion in (suggestion for row in found for suggestion in row):
        assert suggestion.probability == pytest.approx(min(1.0, max(0.0, suggestion.score + 0.5)))
    sure = fitted.suggest(texts[90:], top=4, min_probability=0.7)
    assert sure == [[suggestion for suggestion in row if suggestion.probability >= 0.7] for row in found]
    assert 0 < sum(map(len, sure)) < sum(map(len, found))
    bins = fitted.reliability(texts[90:], tags[90:])
    assert bins.count.sum() == 30 * 4
    assert fitted.calibration_ is None
    with pytest.raises(InvalidInputError, match='threshold="calibrated" needs a calibrated tagger'):
        fitted.suggest(texts, threshold="calibrated")
    fitted.calibrate(texts[90:], tags[90:])
    labels, scores = fitted.model_.predict_topk(fitted.transform(texts[90:]), 4)
    expected = fit_calibration(labels, scores, fitted.label_matrix(tags[90:])[0], probabilistic=True)
    np.testing.assert_array_equal(fitted.calibration_.maps.pooled_probabilities, expected.maps.pooled_probabilities)


def test_calibration_ignores_unseen_tags_and_unknown_pairs(rows, fitted):
    texts, tags = rows
    with pytest.warns(TagwiseWarning, match="ignores 1 tag of the validation rows .* such as 'cars'"):
        fitted.calibrate(texts, [["cars", *row] for row in tags])
    lies = [[*row] if "pets" in row else [] for row in tags]
    fitted.calibrate(texts, lies, [["pets"]] * len(texts))
    assert fitted.calibration_.reliability.count.sum() == sum(max(1, len(row)) for row in lies)


def test_evaluation_counts_what_training_never_saw(rows, fitted):
    texts, tags = rows
    found = fitted.evaluate(texts, tags)
    assert (found.rows, found.unseen, found.metrics["P@1"]) == (120, Counter(), 1)
    worse = fitted.evaluate([*texts, "zebra"], [*[["cars", *row] for row in tags], []])
    assert worse.unseen == Counter({"cars": 120})
    assert (worse.rows_without_words, worse.rows_without_tags) == (1, 1)
    for name in ("R@5", "nDCG@5", "PSP@5", "micro-F1", "macro-F1", "example-F1"):
        assert worse.metrics[name] < found.metrics[name]
    with pytest.raises(InvalidInputError, match="ks is an empty sequence; name at least one k"):
        fitted.evaluate(*rows, ks=())
    two = Tagger(LINEAR, features=TextFeatures(min_df=1)).fit(["dog", "wine"], [["pets"], ["drinks"]])
    metrics = two.evaluate(["dog"], [["pets"]], ks=[1]).metrics  # two rows have no propensities
    assert metrics["P@1"] == 1
    assert not any(name.startswith("PSP") for name in metrics)


def test_evaluation_with_known_ranks_only_what_was_looked_at(rows, fitted):
    texts, tags = rows
    known = [["wine", "ships"]] * len(texts)
    shown = [[name for name in row if name in ("wine", "ships")] for row in tags]
    some = [row for row in range(len(texts)) if shown[row]]
    found = fitted.evaluate([texts[i] for i in some], [shown[i] for i in some], [known[i] for i in some])
    assert found.metrics["P@1"] == 1
    assert found.metrics["micro-F1"] > 0.95


# --- names and vocabularies


@pytest.fixture
def given(monkeypatch):
    """Names, labels and mask that the last fit of a cascade was given."""
    seen = {}

    def fit(self, X, Y, observed=None, *, label_features=None, **more):
        seen.update(names=label_features, Y=Y, observed=observed)
        return whole_fit(self, X, Y, observed, label_features=label_features, **more)

    whole_fit = Cascade.fit
    monkeypatch.setattr(Cascade, "fit", fit)
    return seen


@pytest.mark.parametrize("tags_are_words", [True, False])
def test_names_are_used_when_they_are_words(rows, given, tags_are_words):
    texts, tags = rows
    ids = {"pets": "p1", "wine": "p2", "ships": "p3", "mixed": "p4"}
    texts = [f"{text} {' '.join(row)}" for text, row in zip(texts, tags)]
    shown = tags if tags_are_words else [[ids[tag] for tag in row] for row in tags]
    fitted = Tagger(Cascade(rank=3, validation_fraction=0)).fit(texts, shown)
    if not tags_are_words:
        assert given["names"] is None
        assert fitted.training_["named_tags"] == 0
        names = {tag: name for name, tag in ids.items()}
        fitted.set_params(vocabulary=names).fit(texts, shown)
    else:
        names = {tag: tag for tag in ids}
    assert fitted.training_["named_tags"] == 4
    for tag, row in zip(fitted.tags_, given["names"]):
        assert [fitted.features_.feature_names[column] for column in row.indices] == [names[tag]]


def test_a_vocabulary_adds_tags_that_no_text_has(rows, given):
    texts, tags = rows
    vocabulary = {"anchors": "an anchor", "pets": "pets", "grape": "a grape"}
    fitted = Tagger(Cascade(rank=3, validation_fraction=0), vocabulary=vocabulary).fit(texts, tags)
    assert fitted.tags_ == ["anchors", "grape", "mixed", "pets", "ships", "wine"]
    assert given["observed"] is None
    np.testing.assert_array_equal(np.diff(given["Y"].tocsc().indptr)[:2], 0)
    np.testing.assert_array_equal(fitted.training_["tag_rows"][:2], 0)
    # With known tags, those of the vocabulary that nobody looked at are unknown.
    known = [[*row, "anchors"] if number % 2 else row for number, row in enumerate(tags)]
    fitted.fit(texts, tags, known)
    mask = given["observed"].toarray()
    np.testing.assert_array_equal(mask[:, 0] > 0, np.arange(120) % 2 == 1)
    assert not mask[:, 1].any()
    assert fitted.fit(texts, tags, [None] * 120).tags_[0] == "anchors"
    assert given["observed"] is None


def test_a_tag_that_no_text_has_is_suggested_by_its_name():
    """Forty tags that are words of their texts, of which training never saw the last four."""
    chance = np.random.default_rng(0)
    names = [
        f"{a}{b}"
        for a in ("ban", "cor", "del", "fim", "gus")
        for b in ("ado", "ela", "iro", "ona", "uta", "ymi", "ipe", "osk")
    ]
    known, new = names[:-4], names[-4:]

    def drawn(words, many):
        rows = [chance.choice(words, 3, replace=False).tolist() for _ in range(many)]
        return [" ".join([*row, *chance.choice(["the", "of", "and", "with"], 3)]) for row in rows], rows

    vocabulary = {f"id{place}": name for place, name in enumerate(new)}
    fitted = Tagger(vocabulary=vocabulary).fit(*drawn(known, 600))
    assert not set(new) - set(fitted.features_.feature_names)
    found = fitted.suggest([f"the {name} of {known[0]}" for name in new], top=5)
    for place, row in enumerate(found):
        assert f"id{place}" in [suggestion.tag for suggestion in row]
        assert not {f"id{other}" for other in range(4) if other != place} & {suggestion.tag for suggestion in row[:2]}
    texts, rows = drawn(names, 100)
    metrics = fitted.evaluate(
        texts, [[f"id{new.index(name)}" if name in new else name for name in row] for row in rows]
    )
    assert metrics.metrics["new-R@5"] > 0.8


def test_a_name_that_texts_had_without_the_tag_is_no_evidence():
    """The same name, once new to the texts and once in many of them that do not have the tag."""
    chance = np.random.default_rng(0)
    words = [f"{a}{b}" for a in ("ban", "cor", "del", "fim", "gus") for b in ("ado", "ela", "iro", "ona", "uta", "ymi")]
    rows = [chance.choice(words, 3, replace=False).tolist() for _ in range(400)]

    def probability(texts):
        fitted = Tagger(vocabulary=["anchor"]).fit(texts, rows)
        found = {suggestion.tag: suggestion.probability for suggestion in fitted.suggest(["anchor banado"], top=31)[0]}
        return found["anchor"]

    often = [" ".join([*row, "anchor"]) if place % 4 == 0 else " ".join(row) for place, row in enumerate(rows)]
    assert probability([" ".join(row) for row in rows]) > 5 * probability(often)


def test_tags_that_can_never_be_suggested_are_named(rows):
    texts, tags = rows
    with pytest.warns(TagwiseWarning, match=r"has 1 tag that no text has, such as 'anchor'.*does not learn from names"):
        fitted = Tagger(LINEAR, vocabulary=["anchor"]).fit(texts, tags)
    assert "anchor" in fitted.tags_
    vocabulary = {"p1": "anchor", "p2": "12"}
    with pytest.warns(TagwiseWarning, match=r"has 1 tag .*'p2'.*: their names have no words"):
        Tagger(Cascade(rank=3, validation_fraction=0), vocabulary=vocabulary).fit(texts, tags)


def test_every_model_takes_a_vocabulary(rows):
    for info in MODELS:
        rank = {"rank": 3} if "rank" in info.load_class()().get_params() else {}
        fitted = Tagger(info.load_class()(**rank), vocabulary=["anchor"]).fit(*rows)
        assert fitted.tags_[0] == "anchor"
        assert fitted.suggest(["dog and cat"], top=1)[0][0].tag != "anchor", info.name


def test_new_tags_are_measured_apart(rows):
    texts, tags = rows
    with pytest.warns(TagwiseWarning, match="rarely be suggested"):
        fitted = Tagger(LINEAR, vocabulary=["anchor", "sail"]).fit(texts, tags)
    plain = fitted.evaluate(texts, tags)
    assert (plain.new, plain.rows_with_new) == (Counter(), 0)
    assert not any(name.startswith("new-") for name in plain.metrics)
    shown = [[*row, "anchor"] if number < 30 else row for number, row in enumerate(tags)]
    shown[0] = ["sail", "car", *shown[0]]
    found = fitted.evaluate(texts, shown, ks=[1, 6])
    assert found.unseen == Counter(car=1)
    assert found.new == Counter(anchor=30, sail=1)
    assert found.rows_with_new == 30
    assert (found.metrics["new-R@1"], found.metrics["new-R@6"]) == (0, 1)
    labels, _ = fitted.model_.predict_topk(fitted.transform(texts), 5)
    anchor, sail = fitted.tags_.index("anchor"), fitted.tags_.index("sail")
    hits = (labels[:30] == anchor).any(axis=1).astype(float)
    hits[0] = (hits[0] + (labels[0] == sail).any()) / 2
    assert fitted.evaluate(texts, shown).metrics["new-R@5"] == pytest.approx(hits.mean())


# --- bad input


def test_bad_training_rows_and_parameters(rows):
    pair = ["a text", "a text"]
    for arguments, words in (
        (([], []), "texts is empty"),
        ((["a text"], [["a"], ["b"]]), "2 rows but texts has 1"),
        ((pair, [[], []]), "no tag in any of the 2 rows"),
        ((["one", "two"], [["a"], ["b"]]), "no word that is in at least min_df=2"),
        ((pair, [["a"], ["b"]], [["a"]]), "known has 1 rows"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            Tagger(LINEAR).fit(*arguments)
    for parameters, error, words in (
        ({"model": "svm"}, InvalidInputError, "model must be auto or one of"),
        ({"model": 3}, InvalidTypeError, "model must be"),
        ({"model": LEML}, InvalidTypeError, "model must be"),
        ({"unlisted": None}, InvalidInputError, "unlisted must be one of"),
        ({"features": TextFeatures(min_df=0)}, InvalidInputError, "min_df"),
        ({"n_jobs": 0}, InvalidInputError, "n_jobs"),
        ({"random_state": "x"}, TagwiseError, "random_state"),
        ({"verbose": "x"}, InvalidTypeError, "verbose"),
    ):
        with pytest.raises(error, match=words):
            Tagger(**parameters).fit(*rows)


def test_bad_questions(fitted):
    for arguments, error, words in (
        ({"texts": "a dog"}, InvalidTypeError, "found one string"),
        ({"texts": 5}, InvalidTypeError, "found int"),
        ({"texts": ["a", 5]}, InvalidTypeError, "found 5 at position 1"),
        ({"top": 0}, InvalidInputError, "top must be at least 1"),
        ({"explain": -1}, InvalidInputError, "explain must be at least 0"),
        ({"threshold": "high"}, InvalidTypeError, "threshold must be a number"),
        ({"threshold": float("nan")}, InvalidInputError, "threshold"),
        ({"threshold": "calibrated"}, InvalidInputError, "call calibrate with validation rows"),
        ({"min_probability": 0.5}, InvalidInputError, "call calibrate with validation rows"),
    ):
        given = {"texts": ["a dog"], **arguments}
        with pytest.raises(error, match=words):
            fitted.suggest(**given)
        with pytest.raises(error, match=words):
            list(fitted.suggest_each(**given))


def test_bad_validation_rows(rows, fitted):
    texts, tags = rows
    for method in (fitted.calibrate, fitted.evaluate):
        with pytest.raises(InvalidInputError, match="texts is empty"):
            method([], [])
        with pytest.raises(InvalidInputError, match="tags has 1 rows"):
            method(texts, [["a"]])
    with pytest.raises(InvalidInputError, match="target must be one of"):
        fitted.calibrate(texts, tags, target="f1")
    with pytest.raises(InvalidInputError, match="calibration is impossible"), pytest.warns(TagwiseWarning):
        fitted.calibrate(["dog"], [["cars"]])
    with pytest.raises(
        InvalidInputError,
        match="reliability needs probabilities, but the scores of BinaryRelevance are not probabilities",
    ):
        fitted.reliability(texts, tags)
    fitted.calibrate(texts, tags)
    with pytest.raises(InvalidInputError, match="min_probability"):
        fitted.suggest(["dog"], min_probability=1.5)


def test_not_fitted(rows, tmp_path):
    unfitted = Tagger()
    calls = {"suggest_features": (None,), "label_matrix": ([["a"]],), "words_of": ("a",), "save": (tmp_path / "m",)}
    calls |= dict.fromkeys(("suggest", "suggest_each", "transform", "predict"), (["a"],))
    calls |= dict.fromkeys(("calibrate", "evaluate", "reliability"), rows)
    for method, arguments in calls.items():
        with pytest.raises(NotFittedError, match=r"call fit\(texts, tags\)"):
            getattr(unfitted, method)(*arguments)


# --- real texts


def test_debtags_with_default_settings():
    """The bundled sample: quality, exact explanations, and a calibration on one half that holds on the other."""
    data = load_dataset("debtags-sample")
    training, tags = (
        [[data.label_names[label] for label in labels.indices] for labels in Y] for Y in (data.Y_train, data.Y_test)
    )
    texts, fitted = data.texts_test, Tagger().fit(data.texts_train, training)
    found = fitted.evaluate(texts, tags)
    assert found.metrics["P@1"] >= 0.95
    assert found.rows == len(texts)
    assert found.unseen == Counter(name for row in tags for name in row if name not in set(fitted.tags_))
    explained = fitted.suggest(texts[:50], explain=10_000)
    assert fitted.explained_score != "the score"
    labels = [[fitted.tags_.index(suggestion.tag) for suggestion in row] for row in explained]
    scores = explain_labels(fitted.model_, fitted.transform(texts[:50]), np.array(labels)).scores()
    for row, expected in zip(explained, scores):
        for suggestion, score in zip(row, expected):
            total = sum(share.contribution for share in suggestion.why)
            assert total + suggestion.intercept == pytest.approx(score, abs=1e-4)
    zero = fitted.evaluate(texts[1::2], tags[1::2]).metrics
    fitted.calibrate(texts[::2], tags[::2])
    assert fitted.reliability(texts[1::2], tags[1::2]).error < 0.01
    assert fitted.calibration_.reliability.error < 0.01
    # Cascade's probabilities are calibrated as they are; thresholds of tags still raise F1, that of rare tags most.
    after = fitted.evaluate(texts[1::2], tags[1::2]).metrics
    assert after["micro-F1"] > zero["micro-F1"] + 0.005
    assert after["macro-F1"] > zero["macro-F1"] + 0.04
