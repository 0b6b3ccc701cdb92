"""Features that are chosen on validation rows of a sample."""

import numpy as np

from tagwise import BinaryRelevance, Tagger, TextFeatures, load
from tagwise.text import choice
from tagwise.text.choice import EVERY, choose_features
from tagwise.text.tags import TrainingRows

STEMS = {"fish": "rokav", "bread": "timel", "tea": "susop", "salt": "ganud"}


def unspaced(count):
    """Texts that are one long word each, all different: only parts of the words say what the tags are."""
    rng = np.random.default_rng(0)
    texts, tags = [], []
    for number in range(count):
        mine = rng.choice(list(STEMS), size=2, replace=False).tolist()
        letters = "".join(rng.choice(list("xyzw"), size=6))
        texts.append(f"{letters[:3]}{STEMS[mine[0]]}{letters[3:]}{STEMS[mine[1]]}{number} text")
        tags.append(sorted(mine))
    return texts, tags


def test_characters_where_words_say_nothing():
    found = choose_features(TrainingRows.of(*unspaced(400), None))
    assert found.features.get_params() == TextFeatures(characters=True).get_params()
    assert [settings for settings, _ in found.compared] == [{}, {"bigrams": True}, {"characters": True}]
    words, _, characters = (score for _, score in found.compared)
    assert characters > words + 0.1
    assert found.reason == (
        f"Features are words, character n-grams: nDCG@5 {100 * words:.1f}% on 80 validation rows of a sample with "
        f"words alone, {100 * characters:.1f}%."
    )


def test_pairs_of_words_where_only_they_tell():
    """Tags say which of two words comes first."""
    rng = np.random.default_rng(1)
    firsts = rng.integers(0, 2, (600, 3))
    pairs = [("red", "wine"), ("old", "ship"), ("dog", "cat")]
    texts, tags = [], []
    for row in firsts:
        texts.append(". ".join(" ".join(pair[:: 1 if first else -1]) for first, pair in zip(row, pairs)))
        tags.append([f"{first}-{number}" for number, first in enumerate(row)])
    found = choose_features(TrainingRows.of(texts, tags, None), EVERY)
    assert found.features.bigrams
    assert len(found.compared) == 1 + len(EVERY)


def test_words_where_others_gain_little_or_rows_are_few(rows):
    few, many = TrainingRows.of(*rows, None), TrainingRows.of(rows[0] * 3, rows[1] * 3, None)
    for found, reason in (
        (choose_features(many), "others are not clearly better"),
        (choose_features(few), "Features are words: rows are too few to compare others."),
    ):
        assert found.features.get_params() == TextFeatures().get_params()
        assert reason in found.reason
    assert found.compared == []


def test_few_rows_without_words_have_characters():
    texts, tags = unspaced(60)
    texts = [text.removesuffix(" text") for text in texts]  # no two share a word
    found = choose_features(TrainingRows.of(texts, tags, None))
    assert found.features.get_params() == TextFeatures(characters=True).get_params()
    assert found.reason.startswith("Features are words, character n-grams: rows are too few to compare others")
    assert Tagger(BinaryRelevance(), features="auto").fit(texts, tags).score(texts, tags) > 0.9


def test_known_tags_alone_judge():
    texts, tags = unspaced(400)
    known = [list({*row, "fish", "tea"}) for row in tags]
    assert choose_features(TrainingRows.of(texts, tags, known)).features.characters


def test_the_sample_is_small(monkeypatch):
    """Whatever the number of rows: as many fits, of as many rows and characters."""
    seen = []
    fit = choice.TextFeatures.fit_transform
    monkeypatch.setattr(
        choice.TextFeatures, "fit_transform", lambda self, texts: seen.append(texts) or fit(self, texts)
    )
    monkeypatch.setattr(choice, "_SAMPLE", 150)
    choose_features(TrainingRows.of(*unspaced(1000), None))
    assert [len(texts) for texts in seen] == [150, 150, 150]
    monkeypatch.setattr(choice, "_CHARACTERS", 3000)
    seen.clear()
    choose_features(TrainingRows.of(*unspaced(1000), None))
    assert all(2900 < sum(map(len, texts)) <= 3000 for texts in seen)


def test_a_tagger_says_what_it_chose(tmp_path):
    texts, tags = unspaced(400)
    tagger = Tagger(BinaryRelevance(), features="auto").fit(texts, tags)
    assert tagger.features_.characters
    assert "Features are words, character n-grams: nDCG@5" in tagger.choice_.reason
    again = Tagger(BinaryRelevance(), features="auto").fit(texts, tags)
    assert again.choice_ == tagger.choice_
    tagger.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.features == "auto"
    assert loaded.predict(texts) == tagger.predict(texts)
