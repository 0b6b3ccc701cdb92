"""The fusion of opinions against its slow twin, and what it learns."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reference_fusion as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from tagwise.kernels.shortlists import behind_shortlist
from tagwise.models.cascade import fusion as fusion_module
from tagwise.models.cascade.fusion import Fusion, Lesson, learn_fusion, n_terms, own_prior
from tagwise.models.cascade.opinions import LabelFacts, Opinions, cooccurrence_counts

REPOSITORY = Path(__file__).parents[3]


def label_facts(rng, n_labels, n_rows=200):
    share = rng.uniform(0, 0.5, n_labels) * (rng.random(n_labels) < 0.8)  # some labels have no row
    Y = sp.csr_matrix(rng.random((n_rows, n_labels)) < share)
    frequency = np.asarray(Y.sum(axis=0)).ravel()
    named, names = rng.integers(0, 10, n_labels), sp.csr_matrix(rng.random((n_labels, 1)))
    return LabelFacts.of(rng.random(n_labels) < 0.7, frequency, n_rows, cooccurrence_counts(Y), named, names)


@st.composite
def shortlists(draw, dtype=np.float64, gaps=False):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_labels = draw(st.integers(0, 4)), draw(st.integers(1, 40))
    width = draw(st.integers(1, n_labels))
    listed = draw(st.integers(1, width))
    labels = np.array([rng.permutation(n_labels)[:width] for _ in range(n_rows)], dtype=int).reshape(n_rows, width)
    proposed = -np.sort(-rng.normal(size=(n_rows, width)), axis=1)
    margins = rng.normal(size=(n_rows, listed)) * draw(st.sampled_from([1.0, 300.0]))
    names = rng.random((n_rows, listed if draw(st.booleans()) else 0))
    names[rng.random(names.shape) < 0.3] = 0
    if gaps:
        labels[rng.random(labels.shape) < 0.2] = -1
    meanings = rng.uniform(-1, 1, (n_rows, listed if draw(st.booleans()) else 0))
    cosines = rng.uniform(-0.2, 1.2, (n_rows, listed))
    opinions = Opinions(labels, proposed.astype(dtype), margins, cosines, names, meanings)
    own = rng.normal(size=n_terms(4 + (names.shape[1] > 0) + (meanings.shape[1] > 0))) / 3
    fusion = Fusion(own, rng.normal(size=8) / 3, rng.normal(size=6) / 3, rng.normal(size=4))
    return fusion, opinions, label_facts(rng, n_labels)


@given(shortlists())
def test_scores_are_those_of_the_formula(problem):
    fusion, opinions, facts = problem
    width = opinions.margins.shape[1]
    shortlisted = opinions._replace(labels=opinions.labels[:, :width], proposed=opinions.proposed[:, :width])
    expected = reference.fused_scores(fusion, opinions, facts)
    np.testing.assert_allclose(fusion.scores(shortlisted, facts), expected, atol=1e-9)


@given(shortlists(), st.sampled_from([1, 3, 50]), st.booleans())
def test_the_best_are_the_largest_scores(problem, k, hide):
    fusion, opinions, facts = problem
    width = opinions.margins.shape[1]
    scores = np.concatenate(
        [reference.fused_scores(fusion, opinions, facts), behind_shortlist(opinions.proposed[:, width:])], axis=1
    )
    hidden = np.random.default_rng(0).random(scores.shape) < 0.3 if hide else None
    labels, best = fusion.best(opinions, facts, k, hidden)
    if hidden is not None:
        scores[hidden] = -np.inf
    expected = -np.sort(-scores, axis=1)[:, :k]
    expected = np.pad(expected, ((0, 0), (0, k - expected.shape[1])), constant_values=-np.inf)
    np.testing.assert_allclose(best, expected, atol=1e-9)
    np.testing.assert_array_equal(labels < 0, np.isneginf(best))
    for row in range(len(labels)):
        assert len(set(labels[row][labels[row] >= 0])) == (labels[row] >= 0).sum()


@given(shortlists(gaps=True))
def test_a_label_that_is_not_there_is_as_if_never_listed(problem):
    fusion, opinions, facts = problem
    labels, scores = fusion.best(opinions, facts, 40)
    width = opinions.margins.shape[1]
    for row in range(len(labels)):
        kept = opinions.labels[row] >= 0
        kept_short = kept[:width]
        alone = Opinions(
            opinions.labels[row : row + 1, kept],
            opinions.proposed[row : row + 1, kept],
            opinions.margins[row : row + 1, kept_short],
            opinions.cosines[row : row + 1, kept_short],
            opinions.names[row : row + 1, kept_short] if opinions.names.shape[1] else np.zeros((1, 0)),
            opinions.meanings[row : row + 1, kept_short] if opinions.meanings.shape[1] else np.zeros((1, 0)),
        )
        if (opinions.names.shape[1] or opinions.meanings.shape[1]) and not kept_short.any():
            continue  # no shortlist, so no names or meanings: the twin's coefficients would not fit
        found, expected = fusion.best(alone, facts, 40)
        np.testing.assert_array_equal(labels[row], found[0])
        np.testing.assert_array_equal(scores[row], expected[0])


@given(shortlists(np.float32))
def test_scores_of_all_have_the_bits_of_the_best(problem):
    fusion, opinions, facts = problem
    width = opinions.margins.shape[1]
    shortlisted = opinions._replace(labels=opinions.labels[:, :width], proposed=opinions.proposed[:, :width])
    scores = np.concatenate([fusion.scores(shortlisted, facts), behind_shortlist(opinions.proposed[:, width:])], axis=1)
    assert scores.dtype == np.float32
    _, best = fusion.best(opinions, facts, opinions.labels.shape[1])
    np.testing.assert_array_equal(-np.sort(-scores, axis=1), best)


@pytest.mark.parametrize("listed", [3, 8])
def test_labels_that_occur_with_most_others_are_looked_up(listed):
    """Their lists are long enough for bitmaps; labels behind the shortlist are candidates, and vouch for nothing."""
    rng = np.random.default_rng(listed)
    Y = rng.random((500, 300)) < 0.02
    Y[:, :4] = rng.random((500, 4)) < 0.9
    frequency, pairs = Y.sum(axis=0), cooccurrence_counts(sp.csr_matrix(Y))
    facts = LabelFacts.of(np.ones(300, dtype=bool), frequency, 500, pairs)
    assert (facts.pairs.bitmap_of[:4] >= 0).all()
    labels = np.array([np.append(rng.permutation(4)[:2], 4 + rng.permutation(296)[:6]) for _ in range(5)])
    proposed = -np.sort(-rng.normal(size=labels.shape), axis=1)
    margins, cosines = 3 + rng.normal(size=(5, listed)), rng.random((5, listed))
    opinions = Opinions(labels, proposed, margins, cosines, np.zeros((5, 0)))
    _, best = Fusion.prior().best(opinions, facts, 8)
    fused = reference.fused_scores(Fusion.prior(), opinions, facts)
    expected = np.concatenate([fused, behind_shortlist(proposed[:, listed:])], axis=1)
    np.testing.assert_allclose(best, -np.sort(-expected, axis=1), atol=1e-9)


def test_equal_scores_come_in_the_order_of_their_labels():
    opinions = Opinions(
        np.array([[7, 3, 5, 1]]),
        np.full((1, 4), 0.1, np.float32),
        *(np.zeros((1, 3), np.float32) for _ in range(2)),
        np.zeros((1, 0)),
    )
    facts = LabelFacts.of(np.ones(8, bool), np.full(8, 5), 50, sp.csr_matrix((8, 8), dtype=np.int32))
    context = np.zeros(8)
    context[0] = 1.0
    labels, scores = replace(Fusion.prior(), context=context).best(opinions, facts, 4)
    np.testing.assert_array_equal(labels, [[3, 5, 7, 1]])
    assert scores[0, 0] == scores[0, 2] > -0.5 > scores[0, 3]


def test_the_same_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    labels = np.array([rng.permutation(60)[:20] for _ in range(5_000)])
    proposed = -np.sort(-rng.normal(size=labels.shape), axis=1)
    opinions = Opinions(labels, proposed, rng.normal(size=(5_000, 12)), rng.random((5_000, 12)), np.zeros((5_000, 0)))
    facts = label_facts(rng, 60)
    first, second = (Fusion.prior().best(opinions, facts, 7, n_threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


def test_pairs_are_counted_once_and_long_rows_left_out():
    Y = np.array([[1, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 0]])
    pairs = cooccurrence_counts(sp.csr_matrix(Y)).toarray()
    np.testing.assert_array_equal(pairs, np.triu(Y.T @ Y, 1))
    crowded = sp.csr_matrix(np.concatenate([np.ones((1, 400)), np.eye(400)[:2]]))
    assert cooccurrence_counts(crowded).nnz == 0


# ---------------------------------------------------------------------- learning


def lesson(rng, coefficients, n_rows, known=1.0, width=20, n_labels=40):
    """Opinions at random, and labels that are on as the coefficients of the opinions say."""
    labels = np.array([rng.permutation(n_labels)[:width] for _ in range(n_rows)])
    facts = LabelFacts.of(
        np.ones(n_labels, bool), rng.integers(1, 100, n_labels), 500, sp.csr_matrix((n_labels,) * 2, dtype=np.int32)
    )
    numbers = rng.normal(size=(n_rows, width)), rng.random((n_rows, width))
    proposed = -np.sort(-rng.uniform(-0.5, 0.5, (n_rows, width)), axis=1)
    opinions = Opinions(labels, proposed, *numbers, np.zeros((n_rows, 0)))
    terms = np.array(
        [
            reference.own_terms(
                reference.own_numbers(facts, labels[i, j], proposed[i, j], numbers[0][i, j], numbers[1][i, j])
            )
            for i in range(n_rows)
            for j in range(width)
        ]
    )
    on = (rng.random(len(terms)) < expit(terms @ coefficients)).reshape(n_rows, width)
    return Lesson(opinions, facts, on, rng.random((n_rows, width)) < known, np.ones(n_rows))


def rows_of(whole, rows):
    """Some rows of a lesson."""
    opinions = Opinions(*(numbers[rows] for numbers in whole.opinions[:5]))
    return whole._replace(opinions=opinions, on=whole.on[rows], known=whole.known[rows], weight=whole.weight[rows])


def planted_coefficients(rng, away):
    """Of the prior's mean, ``away`` deviations from it in directions at random; and the prior (2, 15)."""
    prior = np.column_stack([own_prior(names=False), fusion_module._SCALE_PRIOR[:, 1]])
    return prior[0] + away * prior[1] * rng.choice([-1, 1], 15), prior


def test_planted_coefficients_are_found():
    rng = np.random.default_rng(0)
    planted, (mean, deviation) = planted_coefficients(rng, 0.7)
    found = learn_fusion([lesson(rng, planted, 3000), lesson(rng, planted, 3000)])
    assert np.abs((found.own - planted) / deviation).max() < 1
    nearer = np.linalg.norm((found.own - planted) / deviation)
    assert nearer < 0.5 * np.linalg.norm((mean - planted) / deviation)


def test_few_rows_leave_the_prior_and_more_leave_it_gradually():
    rng = np.random.default_rng(1)
    planted, (_, deviation) = planted_coefficients(rng, 2)
    whole = lesson(rng, planted, 800)
    start = Fusion.prior().own

    def away_by(many):
        return np.linalg.norm((learn_fusion([rows_of(whole, np.arange(many))]).own - start) / deviation)

    away = [away_by(many) for many in (1, 10, 100, 800)]
    planted_away = 2 * 15**0.5
    assert away[0] < planted_away / 3
    assert away[-1] > planted_away / 2
    assert away == sorted(away)


def test_whole_weights_are_repeated_rows():
    rng = np.random.default_rng(2)
    whole = lesson(rng, planted_coefficients(rng, 1)[0], 60, known=0.8)
    times = rng.integers(0, 4, 60)
    repeated = learn_fusion([rows_of(whole, np.repeat(np.arange(60), times))])
    weighted = learn_fusion([whole._replace(weight=times.astype(float))])
    for name in ("own", "context", "level"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), atol=1e-6)
    assert np.abs(weighted.own - learn_fusion([whole]).own).max() > 0.01


def test_unknown_pairs_teach_nothing():
    rng = np.random.default_rng(3)
    one = lesson(rng, Fusion.prior().own, 60, known=0.4)
    other = one._replace(on=np.where(one.known, one.on, ~one.on))
    first, second = learn_fusion([one]), learn_fusion([other])
    np.testing.assert_array_equal(first.own, second.own)
    np.testing.assert_array_equal(first.context, second.context)


def test_labels_that_belong_together_lift_each_other():
    """Pairs of labels that always occur together; the second of a pair has no opinion of its own that helps."""
    rng = np.random.default_rng(4)
    n_labels, n_rows, width = 20, 600, 10
    pairs = sp.csr_matrix((np.full(10, 40, np.int32), (np.arange(0, 20, 2), np.arange(1, 20, 2))), shape=(20, 20))
    facts = LabelFacts.of(np.ones(n_labels, bool), np.full(n_labels, 50), 500, pairs)
    labels = np.array([rng.permutation(n_labels)[:width] for _ in range(n_rows)])
    group = labels // 2
    chosen = rng.integers(0, 10, n_rows)
    on = group == chosen[:, None]
    margins = np.where(on & (labels % 2 == 0), 2.0, -1.0) + rng.normal(size=labels.shape) / 3
    opinions = Opinions(labels, np.zeros(labels.shape), margins, np.full(labels.shape, 0.3), np.zeros((n_rows, 0)))
    fusion = learn_fusion([Lesson(opinions, facts, on, np.ones_like(on), np.ones(n_rows))])
    scores = fusion.scores(opinions, facts)
    both = on & (labels % 2 == 1) & (on & (labels % 2 == 0)).any(axis=1, keepdims=True)
    assert scores[both].mean() > scores[~on].mean() + 0.2


BY_MEANING = ("meaning", "name_meaning", "unseen_meaning")


def test_the_prior_is_the_measured_one():
    measured = json.loads((REPOSITORY / "benchmarks" / "results" / "fusion_prior.json").read_text(encoding="utf-8"))
    tables = {
        name: getattr(fusion_module, f"_{name.upper()}_PRIOR").T
        for name in ("own", "scale", "context", "level", "name", "unseen", *BY_MEANING)
    }
    for name, table in tables.items():
        np.testing.assert_array_equal(table, measured[name])


@pytest.mark.parametrize("names", [False, True])
def test_the_prior_of_a_dense_block_stands_beside_the_others(names):
    """Every term keeps its prior; those of the meaning come last of the numbers and of each number's products."""
    numbers = ["ranker", "proposer", "prototype", "frequency", *["name"] * names]
    without, beside = own_prior(names=names), own_prior(names=names, dense=True)
    terms = [*numbers, "meaning"]
    terms += [f"{a} {b}" for i, a in enumerate(terms) for b in terms[i:]]
    others = [at for at, term in enumerate(terms) if "meaning" not in term]
    np.testing.assert_array_equal(beside[:, others], without)
    assert beside.shape == (2, n_terms(len(numbers) + 1) - 1)
    assert beside[0, terms.index("meaning")] > 0


@pytest.mark.parametrize("names", [False, True])
def test_the_prior_of_the_meaning_of_names_stands_beside_that_of_rows(names):
    numbers = ["ranker", "proposer", "prototype", "frequency", *["name"] * names, "meaning"]
    without, beside = (own_prior(names=names, dense=True, name_meanings=each) for each in (False, True))
    terms = [*numbers, "its name's"]
    terms += [f"{a} {b}" for i, a in enumerate(terms) for b in terms[i:]]
    others = [at for at, term in enumerate(terms) if "its name's" not in term]
    np.testing.assert_array_equal(beside[:, others], without)
    table = fusion_module._NAME_MEANING_PRIOR
    table = table if names else np.delete(table, 5, axis=1)  # the product with the name
    np.testing.assert_array_equal(beside[:, [at for at in range(len(terms)) if at not in others]], table)
    unseen = fusion_module.unseen_prior(name_meanings=True)
    np.testing.assert_array_equal(unseen[:, :4], fusion_module.unseen_prior())
