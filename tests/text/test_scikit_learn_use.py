"""A tagger among scikit-learn's tools: searches, pipelines, matrices of tags, data frames and other vectorizers."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer
from sklearn.utils.estimator_checks import check_estimator

from tagwise import BinaryRelevance, Tagger, TextFeatures, load
from tagwise.baselines import PLST
from tagwise.data import load_dataset
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError
from tagwise.metrics import micro_f1, ndcg_at_k, scorer
from tagwise.reports.findings import gather_findings
from tagwise.reports.pages import report_html
from tagwise.store import write_model

LINEAR = BinaryRelevance(reg=0.1)
NAMES = ["mixed", "pets", "ships", "wine"]


def lower(texts):
    return [text.lower() for text in texts]


# ---------------------------------------------------------------------- an estimator


@pytest.mark.parametrize("estimator", [Tagger(LINEAR), Tagger(features=TextFeatures()), TextFeatures()])
def test_scikit_learns_checks_of_estimators(estimator):
    """Those that need no matrix as X, which are those of parameters, clones and attributes."""
    check_estimator(estimator)


def test_scores_and_probabilities_of_all_tags(rows, fitted):
    texts, tags = rows
    assert fitted.classes_.tolist() == fitted.tags_ == NAMES
    X = fitted.transform(texts)
    np.testing.assert_array_equal(fitted.decision_function(texts), fitted.model_.decision_function(X))
    found = fitted.predict_proba(texts, k=2)
    assert found.shape == (120, 4)
    np.testing.assert_array_equal(np.diff(found.indptr), 2)
    dense = fitted.predict_proba(texts, dense=True)
    np.testing.assert_array_equal(dense, fitted.model_.predict_proba(X, dense=True))
    np.testing.assert_allclose(found[3].data, dense[3, found[3].indices], rtol=1e-5)
    fitted.calibrate(texts[90:], tags[90:])
    found = fitted.predict_proba(texts, k=3)
    for row, suggestions in enumerate(fitted.suggest(texts, top=3)):
        for each in suggestions:
            assert found[row, fitted.tags_.index(each.tag)] == each.probability
    dense = fitted.predict_proba(texts, dense=True)
    np.testing.assert_allclose(dense[sp.coo_matrix(found).coords], sp.coo_matrix(found).data, atol=1e-6)


def test_score_is_ndcg_at_5_and_counts_new_tags_as_missed(rows, fitted):
    texts, tags = rows
    assert fitted.score(texts, tags) == fitted.evaluate(texts, tags, ks=(5,)).metrics["nDCG@5"]
    unseen = [[*row, "new"] for row in tags]
    assert fitted.score(texts, unseen) == fitted.evaluate(texts, unseen, ks=(5,)).metrics["nDCG@5"]
    assert fitted.score(texts, unseen) < fitted.score(texts, tags)
    assert scorer("micro_f1")(fitted, texts, unseen) == fitted.evaluate(texts, unseen).metrics["micro-F1"]


@pytest.mark.parametrize("scoring", [None, scorer("precision_at_1"), scorer("example_f1")])
def test_cross_validation(rows, scoring):
    texts, tags = rows
    found = cross_val_score(Tagger(LINEAR), texts, tags, cv=KFold(3), scoring=scoring)
    train, test = np.arange(40, 120), np.arange(40)
    by_hand = Tagger(LINEAR).fit([texts[i] for i in train], [tags[i] for i in train])
    measure = scoring or scorer("ndcg_at_5")
    assert found[0] == measure(by_hand, [texts[i] for i in test], [tags[i] for i in test])


def test_searches_over_its_parts(rows):
    texts, tags = rows
    grid = {"features__min_df": [1, 200], "model__reg": [0.1, 1.0], "n_jobs": [1]}
    search = GridSearchCV(Tagger(LINEAR, features=TextFeatures()), grid, cv=3, error_score=0.0)
    with pytest.warns(match="fits failed"):  # no word is in 200 texts
        search.fit(texts, tags)
    assert search.best_params_["features__min_df"] == 1
    assert search.predict(texts[:2]) == search.best_estimator_.predict(texts[:2])
    assert search.best_estimator_.features_.get_params() == search.best_estimator_.features.get_params()


@pytest.mark.parametrize("name", ["model__reg", "features__min_df"])
def test_a_search_over_parts_that_are_names(rows, name):
    """A name has no parameters; the sentence says what to give instead."""
    part = name.partition("__")[0]
    with pytest.raises(InvalidInputError, match=rf"{name}: {part} is the name '.*', .* such as {part}=\w+\(\)"):
        GridSearchCV(Tagger("binary-relevance"), {name: [1, 2]}, cv=2).fit(*rows)
    # What is set at the same time counts.
    given = {"model": BinaryRelevance(), "features": TextFeatures(), name: 3}
    assert Tagger("binary-relevance").set_params(**given).get_params()[name] == 3


def test_the_end_of_a_pipeline(rows):
    texts, tags = rows
    pipeline = clone(make_pipeline(FunctionTransformer(lower), Tagger(LINEAR))).fit([t.upper() for t in texts], tags)
    plain = Tagger(LINEAR).fit(texts, tags)
    assert pipeline.predict(texts) == plain.predict(texts)
    assert pipeline.score(texts, tags) == plain.score(texts, tags) == scorer("ndcg_at_5")(pipeline, texts, tags)
    np.testing.assert_array_equal(pipeline.decision_function(texts), plain.decision_function(texts))


def test_weights_of_texts(rows):
    texts, tags = rows
    # Counts, as inverse document frequencies would differ.
    twice, weighted = (Tagger(LINEAR, features=CountVectorizer()) for _ in range(2))
    twice.fit([*texts, *texts[:30]], [*tags, *tags[:30]])
    weighted.fit(texts, tags, sample_weight=np.where(np.arange(120) < 30, 2, 1))
    np.testing.assert_allclose(weighted.model_.coef_, twice.model_.coef_, atol=1e-9)
    with pytest.raises(InvalidInputError, match="PLST does not support row weights"):
        Tagger(PLST(2)).fit(texts, tags, sample_weight=np.ones(120))


# ---------------------------------------------------------------------- tags as matrices and numbers


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_matrices_of_a_binarizer(rows, fitted, sparse):
    texts, tags = rows
    binarizer = MultiLabelBinarizer(sparse_output=sparse)
    Y = binarizer.fit_transform(tags)
    tagger = Tagger(LINEAR).fit(texts, Y)
    assert tagger.classes_.tolist() == tagger.tags_ == [0, 1, 2, 3]
    np.testing.assert_array_equal(tagger.decision_function(texts), fitted.decision_function(texts))
    found = tagger.predict(texts)
    assert sp.issparse(found) == sparse == sp.issparse(tagger.predict_proba(texts))
    assert found.dtype == Y.dtype
    assert [set(row) for row in binarizer.inverse_transform(found)] == [set(row) for row in fitted.predict(texts)]
    assert tagger.score(texts, Y) == ndcg_at_k(Y, tagger.decision_function(texts), 5) == fitted.score(texts, tags)
    if not sparse:  # scikit-learn takes no sparse y here
        scores = cross_val_score(Tagger(LINEAR), texts, Y, cv=3, scoring="f1_micro")
        np.testing.assert_allclose(scores, cross_val_score(Tagger(LINEAR), texts, Y, cv=3, scoring=scorer("micro_f1")))
        assert micro_f1(Y, cross_val_predict(Tagger(LINEAR), texts, Y, cv=3)) > 0.9


@pytest.mark.parametrize("form", ["array", "csr", "csc", "coo", "csr_array", "pandas", "polars"])
def test_forms_of_matrices(rows, form):
    """Columns are tags, and nothing is respelt. Decisions are arrays, or CSR for sparse matrices of every format."""
    texts, tags = rows
    Y = MultiLabelBinarizer().fit_transform(tags).astype(np.int8)
    looked_at = np.ones_like(Y)
    looked_at[::7, 1] = Y[::7, 1]

    def made(matrix):
        if form in ("pandas", "polars"):
            return pytest.importorskip(form).DataFrame(dict(zip(NAMES, matrix.T)))
        if form == "csr_array":
            return sp.csr_array(matrix)
        return matrix if form == "array" else sp.csr_matrix(matrix).asformat(form)

    given, known = made(Y), made(looked_at)
    plain = Tagger(LINEAR).fit(texts, given, known)
    tagger = Tagger(LINEAR, normalise_tags=True).fit(texts, given, known)
    assert tagger.tags_ == plain.tags_
    assert tagger.score(texts, given) == plain.score(texts, given) > 0.9
    assert tagger.evaluate(texts, given, known).metrics == plain.evaluate(texts, given, known).metrics
    assert (tagger.label_matrix(given)[0] != plain.label_matrix(given)[0]).nnz == 0
    assert tagger.calibrate(texts, given, known).calibration_ is not None
    found = plain.predict(texts)
    sparse = {"csr_array": sp.csr_array}.get(form, sp.csr_matrix)
    assert type(found) is (sparse if sp.issparse(given) else np.ndarray)
    assert found.dtype == np.int8
    expected = Tagger(LINEAR).fit(texts, Y, looked_at).predict(texts)
    np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, expected)


def test_columns_without_a_text_keep_their_place_and_those_of_a_frame_are_respelt(rows, fitted):
    texts, tags = rows
    Y = MultiLabelBinarizer().fit_transform(tags)
    tagger = Tagger(LINEAR).fit(texts, np.insert(Y, 1, 0, axis=1))
    assert tagger.tags_ == [0, 1, 2, 3, 4]
    assert not tagger.predict(texts)[:, 1].any()
    frame = pytest.importorskip("pandas").DataFrame(Y, columns=[name.upper() for name in NAMES])
    tagger = Tagger(LINEAR, normalise_tags=True).fit(texts, tags)
    assert tagger.score(texts, frame) == fitted.score(texts, tags)


def test_numbers_are_tags(rows, fitted):
    texts, tags = rows
    number = {"mixed": 30, "pets": 7, "ships": -2, "wine": np.int64(100)}
    lists = [[number[tag] for tag in row] for row in tags]
    tagger = Tagger(LINEAR).fit(texts, lists)
    assert tagger.tags_ == [-2, 7, 30, 100]
    assert tagger.classes_.dtype == np.int64
    names = {value: name for name, value in number.items()}
    assert [{names[tag] for tag in row} for row in tagger.predict(texts)] == [set(row) for row in fitted.predict(texts)]
    assert type(tagger.suggest(texts[:1])[0][0].tag) is int
    assert tagger.words_of(7) == fitted.words_of("pets")
    assert tagger.title(7) == "7"
    assert tagger.evaluate(texts, lists).metrics == fitted.evaluate(texts, tags).metrics
    pytest.importorskip("matplotlib", reason="matplotlib, which draws the report, is not installed")
    assert "<html" in report_html(gather_findings(tagger, texts, lists, None))


@pytest.mark.parametrize("kind", ["numbers", "matrix", "sparse"])
def test_numbers_and_forms_are_saved(rows, kind, tmp_path):
    texts, tags = rows
    Y = MultiLabelBinarizer(sparse_output=kind == "sparse").fit_transform(tags)
    given = [np.flatnonzero(row).tolist() for row in Y] if kind == "numbers" else Y
    tagger = Tagger(LINEAR, vocabulary=None if kind != "numbers" else {0: "both", 3: "wine"}).fit(texts, given)
    tagger.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.tags_ == tagger.tags_
    assert again.vocabulary == tagger.vocabulary
    one, other = tagger.predict(texts), again.predict(texts)
    assert type(one) is type(other)
    assert one == other if kind == "numbers" else (one != other).sum() == 0


def test_tags_of_no_form(rows, fitted):
    for tags, words in (
        ([["a"], [1]], "tags holds numbers and names"),
        ([["a"], [True]], "must hold names as text; found True"),
        ([[2**70], ["a"]], "at most 2"),
        (np.array([[0, 2], [1, 0]]), "must hold only 0 and 1; found 2"),
        (np.array([0, 1]), "must hold lists of tag names"),
    ):
        with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
            Tagger(LINEAR).fit(["one text", "another text"], tags)
    with pytest.raises(InvalidTypeError, match="tags differ in type from those of the fit: 0 and 'mixed'"):
        fitted.score(rows[0], np.ones((120, 2)))


# ---------------------------------------------------------------------- data frames


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(rows, fitted, library):
    frames = pytest.importorskip(library)
    texts, tags = rows
    frame = frames.DataFrame({"text": texts, "tags": tags})
    tagger = Tagger(LINEAR).fit(frame["text"], frame["tags"])
    assert tagger.predict(frame["text"]) == fitted.predict(texts)
    assert cross_val_score(Tagger(LINEAR), frame["text"], frame["tags"], cv=3).mean() > 0.9
    Y = MultiLabelBinarizer().fit_transform(tags)
    wide = frames.DataFrame({NAMES[column]: Y[:, column] for column in (3, 1, 0, 2)})
    by_column = Tagger(LINEAR).fit(frame["text"], wide)
    assert by_column.tags_ == ["wine", "pets", "mixed", "ships"]
    assert by_column.score(frame["text"], tags) == fitted.score(texts, tags)
    found = tagger.suggest(frame["text"].head(3), top=2, explain=2, as_frame=True)
    assert isinstance(found, frames.DataFrame)
    assert list(found.columns) == ["row", "rank", "tag", "score", "probability", "words"]
    expected = [suggestion.tag for row in fitted.suggest(texts[:3], top=2) for suggestion in row]
    assert (found["tag"].to_list(), found["rank"].to_list()) == (expected, [1, 2] * 3)
    # Numbers also where no suggestion has a probability, and where there is no suggestion.
    nothing = tagger.suggest(frame["text"], threshold=1e9, as_frame=True)
    assert len(nothing) == 0
    for table in (found, nothing):
        assert [str(table[name].dtype).lower() for name in ("score", "probability")] == ["float64"] * 2
    assert (found["probability"].is_null() if library == "polars" else found["probability"].isna()).all()
    with pytest.raises(InvalidTypeError, match=r"texts must be one column of strings; found a table of 2 columns"):
        tagger.predict(frame)


def test_the_index_of_pandas_names_rows(rows, fitted, monkeypatch):
    pandas = pytest.importorskip("pandas")
    texts, tags = rows
    series = pandas.Series(texts[:3], index=["row 0", "row 1", "row 2"])
    assert fitted.suggest(series, top=2, as_frame=True)["row"].tolist() == [f"row {place // 2}" for place in range(6)]
    assert fitted.suggest(texts[:1], as_frame=True)["row"].tolist() == [0, 0, 0, 0]
    wide = pandas.DataFrame(MultiLabelBinarizer().fit_transform(tags), columns=NAMES)
    with pytest.raises(InvalidInputError, match="two columns of the same name"):
        Tagger(LINEAR).fit(texts, pandas.concat([wide, wide], axis=1))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidInputError, match=r"as_frame needs pandas.* extra frames"):
        fitted.suggest(texts[:1], as_frame=True)


# ---------------------------------------------------------------------- other vectorizers

VECTORIZERS = {
    "tfidf": TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2),
    "no idf": TfidfVectorizer(use_idf=False, norm="l1", stop_words="english"),
    "float32": TfidfVectorizer(dtype=np.float32, analyzer="char", ngram_range=(1, 3)),
    "count": CountVectorizer(binary=True, stop_words=["the", "and"]),
    "vocabulary": CountVectorizer(vocabulary=["dog", "cat", "bottle", "sail", "a\nb"]),
    "hashing": HashingVectorizer(n_features=64, alternate_sign=False),
}


@pytest.mark.parametrize("name", VECTORIZERS)
def test_vectorizers_of_scikit_learn_are_saved(rows, name, tmp_path):
    texts, tags = rows
    tagger = Tagger(LINEAR, features=VECTORIZERS[name]).fit(texts, tags)
    expected = clone(VECTORIZERS[name]).fit_transform(texts)
    np.testing.assert_allclose(tagger.transform(texts).toarray(), expected.toarray(), rtol=1e-12)
    tagger.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert (again.transform(texts) != tagger.transform(texts)).nnz == 0
    assert again.suggest(texts, explain=2) == tagger.suggest(texts, explain=2)
    given, back = VECTORIZERS[name].get_params(), again.features.get_params()
    given["dtype"], back["dtype"] = np.dtype(given["dtype"]), np.dtype(back["dtype"])
    assert back == given
    assert again.fit(texts, tags).predict(texts) == tagger.predict(texts)
    again.save(tmp_path / "again")


def test_names_of_features(rows):
    texts, tags = rows
    tagger = Tagger(LINEAR, features=VECTORIZERS["tfidf"]).fit(texts, tags)
    assert {word for word, _ in tagger.words_of("pets", 4)} <= set(tagger.features_.transformer.vocabulary_)
    hashed = Tagger(LINEAR, features=VECTORIZERS["hashing"]).fit(texts, tags)
    words = hashed.words_of("pets")
    assert words
    assert all(word.startswith("feature ") for word, _ in words)
    # Cascade learns from names; one of four tags that is a word is taken for an id.
    for more, named in (("pets", 0), ("pets ship", 2)):
        tagger = Tagger(features=TfidfVectorizer(min_df=1)).fit([f"{text} {more}" for text in texts], tags)
        assert tagger.training_["named_tags"] == named


class Lengths:
    """A transformer of one's own: dense features, without names."""

    def get_params(self, deep=True):
        return {}

    def fit(self, texts, y=None):
        return self

    def transform(self, texts):
        return np.array([[len(text), text.count("a") + 1] for text in texts], dtype=float)


def test_others_work_but_are_not_saved(rows, tmp_path):
    unnamed = r"features: a \w+ cannot be saved with a tagger.* TextFeatures, Count"
    for features, words in (
        (Lengths(), unnamed),
        (make_pipeline(TfidfVectorizer(), FunctionTransformer()), unnamed),
        (TfidfVectorizer(tokenizer=str.split, token_pattern=None), "tokenizer is a function, which a model folder"),
    ):
        tagger = Tagger(LINEAR, features=features).fit(*rows)
        assert len(tagger.predict(rows[0])) == 120
        assert tagger.predict([]) == []
        with pytest.raises(InvalidInputError, match=words):
            tagger.save(tmp_path / "m")
        assert not (tmp_path / "m").exists()
    for features in ("words and more", None, 5, TfidfVectorizer, TextFeatures):
        with pytest.raises((InvalidInputError, InvalidTypeError), match="features must be"):
            Tagger(LINEAR, features=features).fit(*rows)


def test_forged_vectorizers_are_refused(rows, tmp_path):
    tagger = Tagger(LINEAR, features=TfidfVectorizer(min_df=1)).fit(*rows)
    for part, forged in (
        (None, {"class": "Pipeline"}),
        (None, {"class": ["TextFeatures"]}),
        (None, {"terms": "cat"}),
        (None, {"terms": ["cat", "dog"]}),
        (None, {"terms": ["cat", 5]}),
        ("parameters", {"analyzer": 5}),
        ("parameters", {"token_pattern": "("}),
        ("parameters", {"ngram_range": [2, 1]}),
        ("parameters", {"ngram_range": 3}),
        ("parameters", {"dtype": "O"}),
        ("parameters", {"input": "filename"}),
        ("parameters", {"stop_words": 5}),
        ("parameters", {"lowercase": "yes"}),
        ("parameters", {"use_idf": False}),
        ("arrays", {"idf": np.ones(3)}),
        ("arrays", {"idf": np.full(100, np.nan)}),
    ):
        record = tagger.to_parts()
        described = record.values["features"]
        (described if part is None else described[part]).update(forged)
        write_model(tmp_path / "m", record)
        with pytest.raises(ModelFormatError):
            pytest.fail(f"{forged}: {load(tmp_path / 'm')}")


# ---------------------------------------------------------------------- real texts


def test_descriptions_of_packages_in_scikit_learns_tools():
    """The bundled part of debtags, as texts and a matrix, in cross-validation and a search over features."""
    data = load_dataset("debtags-sample")
    frequent = np.bincount(data.Y_train.indices) >= 40
    texts, Y = data.texts_train[:600], data.Y_train[:600].toarray()[:, frequent]
    folds = KFold(2, shuffle=True, random_state=0)
    found = cross_val_score(Tagger(BinaryRelevance(), features=TextFeatures()), texts, Y, cv=folds)
    matrices = cross_val_score(BinaryRelevance(), data.X_train[:600], Y, cv=folds)
    np.testing.assert_allclose(found, matrices, atol=0.03)  # document frequencies of X are those of all rows
    grid = {"features__ngram_range": [(1, 1), (1, 2)]}
    tagger = Tagger(BinaryRelevance(), features=TfidfVectorizer(sublinear_tf=True, min_df=2))
    search = GridSearchCV(tagger, grid, scoring=scorer("precision_at_1"), cv=folds).fit(texts, Y)
    assert scorer("precision_at_1")(search, data.texts_test, data.Y_test.toarray()[:, frequent]) > 0.6
