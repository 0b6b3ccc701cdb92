"""What labels are called: weights of names, and labels without rows that are proposed by them."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import tagwise
from tagwise import Cascade
from tagwise.data import FeatureBlocks
from tagwise.exceptions import InvalidInputError
from tagwise.models.cascade.labels_without_rows import TERMS, LabelsWithoutRows
from tagwise.models.cascade.name import name_weights, rows_with_name
from tagwise.models.cascade.name_meaning import name_directions


def test_weights_of_names_say_how_much_of_a_name_a_row_has():
    """The square of the sum: the information of the name times the squared share that the row has, over ten."""
    X = sp.csr_matrix(np.array([[1.0, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0]]))
    idf = 1 + np.log(4 / (np.array([3, 1, 1, 0]) + 1))
    names = sp.csr_matrix(np.array([[5.0, -2, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]))
    found = name_weights(names, np.bincount(X.indices, minlength=X.shape[1]), X.shape[0])
    whole = idf[0] + idf[1]
    rows = np.array([[1, 1, 0, 0], [0, 1, 0, 0]])
    expected = [whole / 10, (idf[1] / whole) ** 2 * whole / 10]
    np.testing.assert_allclose((rows @ found.toarray().T)[:, 0] ** 2, expected)
    assert found.dtype == X.dtype
    assert found[2].nnz == 0
    assert names[0, 0] == 5


def unseen_labels(names, frequency, meanings, opinions):
    return LabelsWithoutRows(
        SimpleNamespace(
            name_weights_=names,
            name_meanings_=meanings,
            label_frequency_=frequency,
            name_rows_=np.arange(len(frequency)),
            opinions_=opinions,
        )
    )


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3]), st.sampled_from(["name", "name meaning"]))
def test_unseen_labels_come_after_the_shortlist_the_nearest_first(seed, n_threads, opinion):
    rng = np.random.default_rng(seed)
    n_labels, n_features, n_rows, listed, width, many = 30, 12, 20, 10, 6, 5
    frequency = rng.integers(0, 2, n_labels)
    labels = np.array([rng.permutation(n_labels)[:listed] for _ in range(n_rows)])
    proposed = -np.sort(-rng.random((n_rows, listed)), axis=1)
    given = labels.copy()
    if opinion == "name":
        names = sp.random(n_labels, n_features, 0.3, format="csr", random_state=seed % 2**31)
        rows, meanings = (rng.random((n_rows, n_features)) < 0.2).astype(float), np.zeros((n_labels, 0))
        asked = SimpleNamespace(present=sp.csr_matrix(rows), n_threads=n_threads)
        nearness = rows @ names.T.toarray()
    else:
        names, rows = sp.csr_matrix((n_labels, n_features)), rng.standard_normal((n_rows, 4))
        meanings = rng.standard_normal((n_labels, 4)) * (rng.random(n_labels) < 0.8)[:, None]
        asked = SimpleNamespace(directions=rows, n_threads=n_threads)
        nearness = rows @ meanings.T
    unseen = unseen_labels(names, frequency, meanings, [opinion])
    found, scores, wider = unseen.propose(asked, labels, proposed, width)
    assert wider == width + many
    np.testing.assert_array_equal(labels, given)
    for row in range(n_rows):
        candidates = [j for j in range(n_labels) if frequency[j] == 0 and nearness[row, j] != 0]
        best = sorted(candidates, key=lambda j: (-nearness[row, j], j))[:many]
        added = [j if j not in given[row, :width] else -1 for j in best] + [-1] * (many - len(best))
        behind = [-1 if j in added else j for j in given[row, width:]]
        assert found[row].tolist() == [*given[row, :width], *added, *behind]
        np.testing.assert_array_equal(np.delete(scores[row], np.arange(width, wider)), proposed[row])


def test_what_has_no_direction_is_not_proposed_by_meaning():
    """A cosine of 0 with a name says nothing; the label would have the place of one with an even chance."""
    meanings = np.array([[1.0, 0], [0, 0], [-1, 0]])
    unseen = unseen_labels(sp.csr_matrix(np.eye(3)), np.zeros(3, dtype=np.int64), meanings, ["name meaning"])
    directions = np.array([[1.0, 0], [0, 0]])
    asked = SimpleNamespace(directions=directions, n_threads=1)
    found, _, _ = unseen.propose(asked, np.full((2, 1), 7), np.zeros((2, 1)), 1)
    assert [[label for label in row if label >= 0] for row in found.tolist()] == [[7, 0, 2], [7]]


def test_the_odds_of_unseen_labels_are_those_of_the_formula():
    """Label 2 has rows, label 3 no name that the row has; the row has the whole name of label 1."""
    N = sp.csr_matrix(np.array([[0.5, 0.5], [0, 0.7], [0.3, 0], [0, 0]]))
    unseen = unseen_labels(N, np.array([0, 0, 4, 0]), np.zeros((4, 2)), ["name", "name meaning"])
    labels, n = np.array([[0, 1, 2, 3, -1]]), np.array([1.0, 2, 3, 4, 5, 6])
    shares, meanings = np.array([[0.25, 0.49, 0.09, 0, 0]]), np.array([[0.0, -2, 1, 0, 1]])
    opinions = {"name": shares, "name meaning": meanings}
    expected = [0.25 + 4, 0.49 + 2 + 3 * np.log(2) + 4 - 10 + 24, np.nan, np.nan, np.nan]
    np.testing.assert_allclose(unseen.odds(labels, opinions, n), [expected])
    terms = unseen.terms(labels, opinions)
    assert terms.shape == (1, 5, len(TERMS))
    np.testing.assert_allclose(terms @ n, [expected])
    np.testing.assert_allclose(unseen.odds(labels, {"name": shares}, n)[0, 1], 0.49 + 2 + 3 * np.log(2) + 4)


def test_names_have_directions_from_their_mean():
    embeddings = np.array([[3.0, 0, 0], [0, 0.5, 0], [0, 0, 0]])
    expected = np.array([[1.0, -1, 0], [-1, 1, 0], [0, 0, 0]]) / np.sqrt(2)
    np.testing.assert_allclose(name_directions(embeddings), expected)
    assert name_directions(np.zeros((4, 3))).shape == (4, 0)


@pytest.fixture(scope="module")
def meant_problem():
    """Rows that are noisy sums of directions in 24 dimensions, one per label; the last six labels have no rows."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((30, 24))
    Y = rng.random((700, 30)) < 0.07
    dense = Y @ directions + 0.5 * rng.standard_normal((700, 24))
    X = FeatureBlocks([sp.random(700, 8, 0.3, format="csr", random_state=0), dense])
    seen = ~Y[:, 24:].any(axis=1)
    names = FeatureBlocks([sp.csr_matrix((30, 8)), directions])
    return X[seen], sp.csr_matrix(Y[seen]), X[~seen], Y[~seen], names


@pytest.fixture(scope="module")
def by_meaning(meant_problem):
    X, Y, _, _, names = meant_problem
    return Cascade(shortlist=8).fit(X, Y, label_features=names)


def test_labels_without_rows_are_suggested_by_the_meaning_of_their_names(meant_problem, by_meaning, tmp_path):
    X, Y, rows, truth, _ = meant_problem
    plain = Cascade(shortlist=8).fit(X, Y)
    new = truth[:, 24:]

    def recall(model):
        labels, _ = model.predict_topk(rows, 5)
        return sum(new[row, label - 24] for row, found in enumerate(labels) for label in found if label >= 24)

    assert recall(by_meaning) > 0.5 * new.sum() > 2 * recall(plain)
    scores = by_meaning.decision_function(rows)
    assert (scores[:, 24:][new] > -0.5).mean() > 0.9
    labels, values = by_meaning.predict_topk(rows, 30)
    np.testing.assert_allclose(values, np.take_along_axis(scores, labels, axis=1), atol=1e-6)
    by_meaning.save(tmp_path / "model")
    np.testing.assert_array_equal(tagwise.load(tmp_path / "model").decision_function(rows), scores)


def test_names_without_an_embedding_change_nothing(meant_problem):
    X, Y, rows, _, names = meant_problem
    plain = Cascade(shortlist=8).fit(X, Y)
    nameless = Cascade(shortlist=8).fit(X, Y, label_features=FeatureBlocks([names.sparse, 0 * names.dense]))
    assert nameless.name_meanings_.shape == (30, 0)
    np.testing.assert_array_equal(nameless.decision_function(rows), plain.decision_function(rows))


def test_the_meaning_of_names_does_not_depend_on_threads(meant_problem, by_meaning):
    X, Y, rows, _, names = meant_problem
    parallel = Cascade(shortlist=8, n_jobs=2).fit(X, Y, label_features=names)
    np.testing.assert_array_equal(parallel.fusion_own_, by_meaning.fusion_own_)
    np.testing.assert_array_equal(parallel.decision_function(rows), by_meaning.decision_function(rows))


def test_names_and_rows_must_be_embedded_alike(meant_problem):
    X, Y, _, _, names = meant_problem
    other = FeatureBlocks([sp.csr_matrix((30, 10)), names.dense[:, :22]])
    with pytest.raises(InvalidInputError, match="label_features has 22 dense features, and X has 24; use the same"):
        Cascade().fit(X, Y, label_features=other)


@pytest.fixture(scope="module")
def named_problem():
    """Rows of 40 words, with a label for each of the first 30 words: a row has the labels of its words, but for noise.

    Training rows have neither the last six labels nor their words.
    """
    rng = np.random.default_rng(0)
    X = (rng.random((900, 40)) < 0.1).astype(float)
    Y = (X[:, :30] > 0) & (rng.random((900, 30)) < 0.8)
    seen = ~X[:, 24:30].any(axis=1)
    return sp.csr_matrix(X[seen]), sp.csr_matrix(Y[seen]), sp.csr_matrix(X[~seen]), Y[~seen]


def test_labels_without_rows_are_suggested_by_their_names(named_problem, tmp_path):
    X, Y, rows, truth = named_problem
    names = sp.csr_matrix(np.eye(30, 40))
    model = Cascade(shortlist=8).fit(X, Y, label_features=names)
    plain = Cascade(shortlist=8).fit(X, Y)
    assert (model.label_frequency_[24:] == 0).all()

    def recall(model):
        labels, _ = model.predict_topk(rows, 8)
        found = np.zeros(truth.shape, dtype=bool)
        np.put_along_axis(found, labels, True, axis=1)
        return (found & truth)[:, 24:].sum() / truth[:, 24:].sum()

    assert recall(plain) < 0.5
    assert recall(model) > 0.9
    scores = model.decision_function(rows)
    there = rows[:, 24:30].toarray() > 0
    assert scores[:, 24:][there].min() > scores[:, 24:][~there].max()

    # The k best are those of all scores, whatever k is and whatever is hidden.
    everything = np.argsort(-scores, axis=1, kind="stable")
    for k in (3, 12, 30):
        labels, values = model.predict_topk(rows, k)
        np.testing.assert_allclose(values, np.take_along_axis(scores, everything[:, :k], axis=1), atol=1e-6)
    hidden = sp.csr_matrix(truth)
    labels, values = model.predict_topk(rows, 12, exclude=hidden)
    assert not truth[np.arange(len(truth))[:, None], labels].any()
    np.testing.assert_allclose(values, np.take_along_axis(scores, labels, axis=1), atol=1e-6)

    model.save(tmp_path / "model")
    again = tagwise.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(rows), scores)


def test_unseen_labels_learn_from_labels_that_only_validation_rows_have():
    """Where names of new labels tell nothing, the fusion learns not to trust them."""
    rng = np.random.default_rng(1)
    n_rows, n_labels = 1200, 600
    words = (rng.random((n_rows, 600)) < 0.02).astype(float)
    Y = sp.csr_matrix((np.ones(n_rows), (np.arange(n_rows), rng.integers(0, n_labels, n_rows))), (n_rows, n_labels))
    misleading = Cascade().fit(sp.csr_matrix(words), Y, label_features=sp.csr_matrix(np.eye(n_labels, 600)))
    own = words.copy()
    own[np.arange(n_rows), Y.indices] = 1
    telling = Cascade().fit(sp.csr_matrix(own), Y, label_features=sp.csr_matrix(np.eye(n_labels, 600)))
    assert (np.bincount(Y.indices, minlength=n_labels) <= 2).any()
    assert telling.fusion_unseen_.sum() > misleading.fusion_unseen_.sum() + 1


def test_a_fusion_that_weighs_names_does_so_without_the_last_of_them(tmp_path):
    rng = np.random.default_rng(0)
    X = sp.csr_matrix((rng.random((200, 9)) < 0.4).astype(np.float32))
    Y = sp.csr_matrix((rng.random((200, 6)) < 0.3).astype(np.float32))
    names = sp.csr_matrix(([1.0], ([5], [0])), (6, 9))
    model = Cascade().fit(X, Y, label_features=names).remove_labels([5])
    assert not model.name_weights_.nnz
    assert model.opinions_[-1] == "name"
    assert not model._candidates(X, 5).opinions[-1].any()
    model.save(tmp_path / "model")
    again = tagwise.load(tmp_path / "model")
    for ours, theirs in zip(model.predict_topk(X, 3), again.predict_topk(X, 3), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@given(st.integers(0, 2**32 - 1))
def test_rows_with_a_name_have_all_of_its_features(seed):
    rng = np.random.default_rng(seed)
    X, names = rng.random((25, 8)) < 0.5, rng.random((10, 8)) < 0.3
    rows = sp.csr_matrix(X.astype(np.float32))
    rows.indices, rows.data = rows.indices.copy(), rows.data.copy()
    for row in range(25):  # in any order
        part = slice(rows.indptr[row], rows.indptr[row + 1])
        rows.indices[part] = rng.permutation(rows.indices[part])
    rows.has_sorted_indices = False
    known = rng.random((25, 10)) < 0.5
    for observed in (None, sp.csr_matrix(known)):
        counted = np.ones_like(known) if observed is None else known
        has = np.array([X[:, name].all(axis=1) if name.any() else np.zeros(25, dtype=bool) for name in names]).T
        found = rows_with_name((rows, observed), sp.csr_matrix(names.astype(np.float32)))
        np.testing.assert_array_equal(found, (has & counted).sum(axis=0))
        assert found.dtype == np.int64


def test_parts_with_more_and_fewer_unseen_labels_teach_together():
    """Labels of one row each: every part of the validation rows leaves other labels, and other numbers, unseen."""
    rng = np.random.default_rng(2)
    for n_rows in (25, 60):
        X = (rng.random((n_rows, 12)) < 0.3).astype(float)
        Y = np.zeros((n_rows, 8))
        Y[np.arange(n_rows), rng.integers(0, 3, n_rows)] = 1
        Y[np.arange(3), [5, 6, 7]] = 1
        model = Cascade().fit(sp.csr_matrix(X), sp.csr_matrix(Y), label_features=sp.csr_matrix(np.eye(8, 12)))
        assert np.isfinite(model.decision_function(sp.csr_matrix(X))).all()
