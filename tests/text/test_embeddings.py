"""Embeddings beside words: any function, a fingerprint in the folder, a cache by text."""

import sqlite3
from importlib.util import find_spec

import numpy as np
import pytest

from tagwise import Tagger, load
from tagwise.data import FeatureBlocks
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning
from tagwise.inspection import ask
from tagwise.text import embeddings
from tagwise.text.embeddings import EMBEDDING, EmbeddingCache, TextEmbedder

TEXTS = ["a cat and a dog", "a dog barks", "red wine and cheese", "white wine"] * 10
TAGS = [["pets"], ["pets"], ["food", "drinks"], ["drinks"]] * 10


def letters(texts):
    """Counts of some letters, and 1."""
    return np.array([[text.count(letter) for letter in "adeinost"] + [1] for text in texts], dtype=float)


class Counted:
    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return letters(texts)


@pytest.fixture(scope="module")
def tagger():
    return Tagger(embedder=letters).fit(TEXTS, TAGS)


def answers(tagger):
    return tagger.suggest(["my dog", "some wine"], top=3)


def test_words_and_embedding_are_blocks(tagger):
    X = tagger.transform(["a dog", ""])
    assert isinstance(X, FeatureBlocks)
    np.testing.assert_array_equal(X.dense, letters(["a dog", ""]))
    np.testing.assert_array_equal(X.sparse.toarray(), tagger.features_.words.transform(["a dog", ""]).toarray())
    assert tagger.model_.n_dense_features_in_ == 9
    assert len(tagger.features_.feature_names) == X.shape[1]
    assert tagger.training_["rows_without_words"] == 0
    assert [row[0].tag for row in answers(tagger)] == ["pets", "drinks"]


def test_an_explanation_has_exact_words_and_one_part_for_the_embedding(tagger):
    (row,) = tagger.suggest(["dog, wine"], top=3, explain=20)
    for suggestion in row:
        parts = {share.word: share.contribution for share in suggestion.why}
        assert len(parts) == len(suggestion.why) == 3
        label = tagger.tags_.index(suggestion.tag)
        rows = tagger.model_.scored_rows(tagger.transform(["dog, wine"]))
        weights = tagger.model_.label_weights([label])[0]
        for word in ("dog", "wine"):
            column = tagger.features_.feature_names.index(word)
            assert parts[word] == pytest.approx(rows.sparse[0, column] * weights[column], rel=1e-6)
        assert parts[EMBEDDING] == pytest.approx(float(rows.dense[0] @ weights[-9:]), rel=1e-5, abs=1e-7)
    assert EMBEDDING not in dict(tagger.words_of("pets"))


def test_a_folder_needs_the_same_function(tagger, tmp_path):
    tagger.save(tmp_path / "tagger")
    loaded = load(tmp_path / "tagger")
    with pytest.raises(InvalidInputError, match=r"the embedder letters, a function, .* use_embedder\(function\) first"):
        answers(loaded)
    with pytest.raises(InvalidInputError, match=r"is not the model letters that .* cosines down to"):
        loaded.use_embedder(lambda texts: letters(texts)[:, ::-1])
    with pytest.raises(InvalidInputError, match="it makes 3 numbers of a text, where 9 are expected"):
        loaded.use_embedder(lambda texts: letters(texts)[:, :3])
    assert answers(loaded.use_embedder(letters)) == answers(tagger)
    loaded.save(tmp_path / "again")


def test_a_named_embedder_is_opened_when_it_is_needed_and_compared(tmp_path, monkeypatch):
    monkeypatch.setitem(embeddings.EMBEDDERS, "static", lambda: letters)
    fitted = Tagger("leml", embedder="static").fit(TEXTS, TAGS)
    fitted.save(tmp_path / "tagger")
    loaded = load(tmp_path / "tagger")
    assert loaded.get_params()["embedder"] == "static"
    assert answers(loaded) == answers(fitted)
    monkeypatch.setitem(embeddings.EMBEDDERS, "static", lambda: lambda texts: -letters(texts))
    with pytest.raises(InvalidInputError, match="embedder: static is not the model static that the tagger was trained"):
        answers(load(tmp_path / "tagger"))


def test_no_text_is_embedded_twice(tmp_path):
    counted = Counted()
    fitted = Tagger("leml", embedder=counted, embedding_cache=tmp_path).fit(TEXTS, TAGS)
    n_probes, asked = 4, len(counted.texts)
    assert asked == n_probes + len(TEXTS)
    expected = fitted.transform(TEXTS).dense
    assert len(counted.texts) == asked
    np.testing.assert_array_equal(expected, letters(TEXTS))
    fitted.transform(["new", *TEXTS])
    assert counted.texts[asked:] == ["new"]
    # Another embedder has embeddings of its own; the file holds no text.
    other = TextEmbedder.of(lambda texts: 2 - letters(texts))
    other.cache = EmbeddingCache(tmp_path)
    np.testing.assert_array_equal(other(TEXTS[:2]), 2 - letters(TEXTS[:2]))
    assert b"barks" not in (tmp_path / "embeddings.sqlite").read_bytes()
    with sqlite3.connect(tmp_path / "embeddings.sqlite") as connection:
        assert connection.execute("SELECT COUNT(*) FROM embeddings").fetchone() == (len(set(TEXTS)) + 1 + 2,)


def test_a_cache_can_be_set_later(tagger, tmp_path):
    tagger.set_params(embedding_cache=tmp_path / "cache")
    answers(tagger)
    tagger.set_params(embedding_cache=None)
    assert (tmp_path / "cache" / "embeddings.sqlite").exists()
    (tmp_path / "embeddings.sqlite").write_bytes(b"no database" * 100)
    embedder = TextEmbedder.of(letters)
    embedder.cache = EmbeddingCache(tmp_path)
    with pytest.raises(InvalidInputError, match=r"embedding_cache: .*embeddings.sqlite cannot be opened"):
        embedder(["text"])
    with pytest.raises(InvalidTypeError, match="embedding_cache must be the path of a folder; found 3"):
        Tagger(embedder=letters, embedding_cache=3).fit(TEXTS, TAGS)


def test_answers_of_an_embedder_are_checked():
    for wrong, sentence in (
        (lambda texts: letters(texts)[:-1], "with a row for each of 4 texts; found shape"),
        (lambda texts: letters(texts)[:, 0], "with a row for each of 4 texts; found shape"),
        (lambda texts: letters(texts) * np.nan, "embedder returned NaN or infinity"),
        (lambda texts: [[str(text)] for text in texts], "must return an array of numbers"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            Tagger(embedder=wrong).fit(TEXTS, TAGS)
    widths = iter([9, 8])
    embedder = TextEmbedder.of(lambda texts: letters(texts)[:, : next(widths)])
    with pytest.raises(InvalidInputError, match="returned 8 numbers per text, and 9 for other texts"):
        embedder(["text"])


def test_tags_without_texts_are_suggested_by_the_meaning_of_their_names(tmp_path):
    """The embedder knows what belongs together; no text has a word of the new tags' names."""
    words = ("cat dog hound pets", "wine claret drinks", "car van vehicle vehicles", "oak elm trees")
    kinds = {word: kind for kind, alike in enumerate(words) for word in alike.split()}

    def embed(texts):
        words = [[kinds[word] for word in text.replace("::", " ").split() if word in kinds] for text in texts]
        counts = np.array([np.bincount(found, minlength=4) for found in words], dtype=float)
        return counts @ np.random.default_rng(0).standard_normal((4, 8)) + 0.01

    rng = np.random.default_rng(1)
    known = [("cat", "dog", "hound"), ("wine", "claret"), ("oak", "elm")]
    texts, tags = [], []
    for _ in range(120):
        kind = rng.integers(3)
        texts.append(f"a {rng.choice(known[kind])} and {rng.choice(['more', 'less', 'other', 'some'])} things")
        tags.append([["kind::pets", "kind::drinks", "kind::trees"][kind]])
    vocabulary = ["kind::pets", "kind::drinks", "kind::trees", "kind::vehicles", "p1"]
    with pytest.warns(TagwiseWarning, match="1 tag that no text has, such as 'p1', and that will rarely be suggested"):
        fitted = Tagger("cascade", embedder=embed, vocabulary=vocabulary).fit(texts, tags)
    names = fitted.model_.name_meanings_
    assert names.shape == (5, 8)
    assert names.any(axis=1).tolist() == [tag != "p1" for tag in fitted.tags_]
    assert fitted.training_["named_tags"] == 4
    with pytest.warns(TagwiseWarning, match="rarely be suggested"):
        plain = Tagger("cascade", vocabulary=vocabulary).fit(texts, tags)

    def place(tagger):
        (found,) = tagger.suggest(["a van and more things"], top=5)
        return [suggestion.tag for suggestion in found].index("kind::vehicles")

    assert place(fitted) < place(plain)
    van, cat = fitted.model_.decision_function(fitted.transform(["a van and more things", "a cat and more things"]))
    vehicles = fitted.tags_.index("kind::vehicles")
    assert van[vehicles] > cat[vehicles] + 0.01
    fitted.save(tmp_path / "tagger")
    assert place(load(tmp_path / "tagger").use_embedder(embed)) == place(fitted)


def test_what_is_no_embedder_is_named(monkeypatch):
    with pytest.raises(InvalidInputError, match="embedder must be one of 'static', 'minilm'"):
        Tagger(embedder="bert").fit(TEXTS, TAGS)
    with pytest.raises(InvalidTypeError, match="or a function from a list of texts to an array; found 7"):
        Tagger(embedder=7).fit(TEXTS, TAGS)
    with pytest.raises(InvalidInputError, match="trained without an embedder"):
        Tagger("leml").fit(TEXTS, TAGS).use_embedder(letters)
    monkeypatch.setattr(embeddings, "find_spec", lambda name: None)
    with pytest.raises(InvalidInputError, match=r"needs the package wordllama, .*: pip install tagwise\[embeddings\]"):
        Tagger(embedder="static").fit(TEXTS, TAGS)


@pytest.mark.skipif(find_spec("wordllama") is None, reason="needs the extra embeddings")
def test_the_static_embedder_is_a_mean_of_pieces():
    embedder = TextEmbedder.of("static")
    assert embedder.n_dimensions == 256
    near, far, empty = embedder(["wine and cheese", "cheese and wine", ""])[[0, 1, 2]]
    cosine = near @ far / np.linalg.norm(near) / np.linalg.norm(far)
    assert cosine > 0.9
    assert not empty.any()


@pytest.mark.parametrize("model", ["cascade", "binary-relevance"])
def test_recent_texts_are_compared_and_asked_about_with_embeddings_too(model):
    tagger = Tagger(model, embedder=letters).fit(TEXTS, TAGS).calibrate(TEXTS, TAGS)
    found = tagger.drift(["zebras", *TEXTS[:3]])
    assert (found.recent.rows, found.recent.empty_rows) == (4, 1)
    assert found.recent.unknown_mean > found.reference.unknown_mean
    questions = ask(tagger.model_, tagger.transform(["zebras", *TEXTS[:3]]), 3, calibration=tagger.calibration_)
    assert len(questions) == 3
