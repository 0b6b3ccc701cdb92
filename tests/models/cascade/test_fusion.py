"""The fusion of opinions against its slow twin, and what it learns."""

import json
from pathlib import Path

import numpy as np
import pytest
import reference_fusion as reference
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from tagwise.kernels.shortlists import behind_shortlist
from tagwise.models.cascade.cooccurrence import Together, cooccurrence_counts
from tagwise.models.cascade.frequency import log_frequency
from tagwise.models.cascade.fusion import Candidates, Fusion, own_terms
from tagwise.models.cascade.fusion_training import SCALE_TERMS, Lesson, learn_fusion, own_design, prior_fusion, prior_of
from tagwise.models.cascade.labels_without_rows import NO_ODDS, TERMS

REPOSITORY = Path(__file__).parents[3]
FOUR = ("ranker", "proposer", "prototype", "frequency")
NO_TERMS = np.zeros((0, 0, len(TERMS)))


def counted(Y):
    """What is counted of labels (n, L): for the fusion, and for its twin."""
    frequency, pairs = np.asarray(Y.sum(axis=0)).ravel(), cooccurrence_counts(sp.csr_matrix(Y))
    together = Together.of(frequency, Y.shape[0], pairs)
    return together, reference.Counts(frequency, (pairs + pairs.T).toarray(), Y.shape[0])


def random_counts(rng, n_labels, n_rows=200):
    share = rng.uniform(0, 0.5, n_labels) * (rng.random(n_labels) < 0.8)  # some labels have no row
    return counted(rng.random((n_rows, n_labels)) < share)


@st.composite
def shortlists(draw, gaps=False):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_labels, many = draw(st.integers(0, 4)), draw(st.integers(1, 40)), draw(st.integers(1, 8))
    width = draw(st.integers(1, n_labels))
    listed = draw(st.integers(1, width))
    labels = np.array([rng.permutation(n_labels)[:width] for _ in range(n_rows)], dtype=int).reshape(n_rows, width)
    proposed = -np.sort(-rng.normal(size=(n_rows, width)), axis=1)
    opinions = rng.normal(size=(many, n_rows, listed)) * draw(st.sampled_from([1.0, 30.0]))
    by_name = np.where(rng.random((n_rows, listed)) < 0.3, rng.normal(size=(n_rows, listed)), np.nan)
    if gaps:
        labels[rng.random(labels.shape) < 0.2] = -1
    candidates = Candidates(labels, proposed, opinions, by_name if draw(st.booleans()) else NO_ODDS)
    own = rng.normal(size=many * (many + 3) // 2 + 1) / 3
    fusion = Fusion(own, rng.normal(size=8) / 3, rng.normal(size=6) / 3, rng.normal(size=6))
    return fusion, candidates, *random_counts(rng, n_labels)


@given(shortlists(), st.sampled_from([1, 3, 50]), st.booleans())
def test_the_best_are_the_largest_scores(problem, k, hide):
    fusion, candidates, together, counts = problem
    width = candidates.opinions.shape[2]
    fused = reference.fused_scores(fusion, candidates, counts)
    scores = np.concatenate([fused, behind_shortlist(candidates.proposed[:, width:])], axis=1)
    hidden = np.random.default_rng(0).random(scores.shape) < 0.3 if hide else None
    labels, best = fusion.best(candidates, together, k, hidden)
    if hidden is not None:
        scores[hidden] = -np.inf
    expected = -np.sort(-scores, axis=1)[:, :k]
    expected = np.pad(expected, ((0, 0), (0, k - expected.shape[1])), constant_values=-np.inf)
    np.testing.assert_allclose(best, expected, atol=1e-9)
    np.testing.assert_array_equal(labels < 0, np.isneginf(best))
    for row in range(len(labels)):
        there = labels[row] >= 0
        assert len(set(labels[row][there])) == there.sum()
        score_of = dict(zip(candidates.labels[row], scores[row]))
        np.testing.assert_allclose([score_of[label] for label in labels[row][there]], best[row][there], atol=1e-9)


@given(shortlists(gaps=True))
def test_a_label_that_is_not_there_is_as_if_never_listed(problem):
    fusion, candidates, together, _ = problem
    labels, scores = fusion.best(candidates, together, 40)
    width = candidates.opinions.shape[2]
    for row in range(len(labels)):
        kept = candidates.labels[row] >= 0
        short = kept[:width]
        alone = Candidates(
            candidates.labels[row : row + 1, kept],
            candidates.proposed[row : row + 1, kept],
            candidates.opinions[:, row : row + 1, short],
            candidates.by_name[row : row + 1, short] if len(candidates.by_name) else NO_ODDS,
        )
        found, expected = fusion.best(Candidates(*map(np.ascontiguousarray, alone)), together, 40)
        np.testing.assert_array_equal(labels[row], found[0])
        np.testing.assert_array_equal(scores[row], expected[0])


@pytest.mark.parametrize("listed", [3, 8])
def test_labels_that_occur_with_most_others_are_looked_up(listed):
    """Their lists are long enough for bitmaps; labels behind the shortlist are candidates, and vouch for nothing."""
    rng = np.random.default_rng(listed)
    Y = rng.random((500, 300)) < 0.02
    Y[:, :4] = rng.random((500, 4)) < 0.9
    together, counts = counted(Y)
    assert (together.pairs.bitmap_of[:4] >= 0).all()
    labels = np.array([np.append(rng.permutation(4)[:2], 4 + rng.permutation(296)[:6]) for _ in range(5)])
    proposed = -np.sort(-rng.normal(size=labels.shape), axis=1)
    candidates = Candidates(labels, proposed, 1 + rng.normal(size=(4, 5, listed)), NO_ODDS)
    fusion = prior_fusion(FOUR)
    _, best = fusion.best(candidates, together, 8)
    fused = reference.fused_scores(fusion, candidates, counts)
    expected = np.concatenate([fused, behind_shortlist(proposed[:, listed:])], axis=1)
    np.testing.assert_allclose(best, -np.sort(-expected, axis=1), atol=1e-9)


def test_equal_scores_come_in_the_order_of_their_labels():
    candidates = Candidates(
        np.array([[7, 3, 5, 1]]), np.full((1, 4), 0.1, np.float32), np.zeros((4, 1, 3), np.float32), NO_ODDS
    )
    together = Together.of(np.full(8, 5), 50, sp.csr_matrix((8, 8), dtype=np.int32))
    context = np.zeros(8)
    context[0] = 1.0
    labels, scores = prior_fusion(FOUR)._replace(context=context).best(candidates, together, 4)
    np.testing.assert_array_equal(labels, [[3, 5, 7, 1]])
    assert scores[0, 0] == scores[0, 2] > -0.5 > scores[0, 3]


def test_the_same_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    labels = np.array([rng.permutation(60)[:20] for _ in range(5_000)])
    proposed = -np.sort(-rng.normal(size=labels.shape), axis=1)
    candidates = Candidates(labels, proposed, rng.normal(size=(4, 5_000, 12)), NO_ODDS)
    together, _ = random_counts(rng, 60)
    first, second = (prior_fusion(FOUR).best(candidates, together, 7, n_threads=threads) for threads in (1, 2))
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
    frequency = rng.integers(1, 100, n_labels)
    together = Together.of(frequency, 500, sp.csr_matrix((n_labels,) * 2, dtype=np.int32))
    proposed = -np.sort(-rng.uniform(-0.5, 0.5, (n_rows, width)), axis=1)
    margins, cosines = rng.normal(size=(n_rows, width)), rng.random((n_rows, width))
    logs = np.log(np.maximum(proposed + 0.5, 1e-3)) + 1.5, np.log((cosines + 0.1) / 1.1) + 1.2
    opinions = np.array([margins, *logs, log_frequency(frequency)[labels]])
    on = rng.random((n_rows, width)) < expit(own_design(opinions) @ coefficients)
    candidates = Candidates(labels, proposed, opinions, NO_ODDS)
    return Lesson(FOUR, candidates, together, NO_TERMS, on, rng.random((n_rows, width)) < known, np.ones(n_rows))


def rows_of(whole, rows):
    """Some rows of a lesson."""
    labels, proposed, opinions, _ = whole.candidates
    candidates = Candidates(labels[rows], proposed[rows], np.ascontiguousarray(opinions[:, rows]), NO_ODDS)
    return whole._replace(candidates=candidates, on=whole.on[rows], known=whole.known[rows], weight=whole.weight[rows])


def planted_coefficients(rng, away):
    """Of the prior's mean, ``away`` deviations from it in directions at random; and the prior (2, 15)."""
    prior = np.column_stack([prior_of("own", own_terms(FOUR)[:-1]), prior_of("scale", SCALE_TERMS)[:, 1]])
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
    start = prior_fusion(FOUR).own

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
    one = lesson(rng, prior_fusion(FOUR).own, 60, known=0.4)
    other = one._replace(on=np.where(one.known, one.on, ~one.on))
    first, second = learn_fusion([one]), learn_fusion([other])
    np.testing.assert_array_equal(first.own, second.own)
    np.testing.assert_array_equal(first.context, second.context)


def test_labels_that_belong_together_lift_each_other():
    """Pairs of labels that always occur together; the second of a pair has no opinion of its own that helps."""
    rng = np.random.default_rng(4)
    n_labels, n_rows, width = 20, 600, 10
    pairs = sp.csr_matrix((np.full(10, 40, np.int32), (np.arange(0, 20, 2), np.arange(1, 20, 2))), shape=(20, 20))
    together = Together.of(np.full(n_labels, 50), 500, pairs)
    labels = np.array([rng.permutation(n_labels)[:width] for _ in range(n_rows)])
    group = labels // 2
    chosen = rng.integers(0, 10, n_rows)
    on = group == chosen[:, None]
    margins = np.where(on & (labels % 2 == 0), 2.0, -1.0) + rng.normal(size=labels.shape) / 3
    same = np.zeros(labels.shape)
    candidates = Candidates(labels, same, np.array([margins, same, same, same]), NO_ODDS)
    fusion = learn_fusion([Lesson(FOUR, candidates, together, NO_TERMS, on, np.ones_like(on), np.ones(n_rows))])
    best, values = fusion.best(candidates, together, width)
    scores = np.take_along_axis(values, np.argsort(best), axis=1)  # by label, as the next
    scores = np.take_along_axis(scores, np.argsort(np.argsort(labels)), axis=1)
    both = on & (labels % 2 == 1) & (on & (labels % 2 == 0)).any(axis=1, keepdims=True)
    assert scores[both].mean() > scores[~on].mean() + 0.2


def test_the_design_is_that_of_the_formula():
    opinions = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)
    expected = [[reference.own_terms(opinions[:, row, at].astype(float)) for at in range(4)] for row in range(2)]
    np.testing.assert_allclose(own_design(opinions), expected)
    assert own_terms(("a", "b")) == ["a", "b", "a*a", "a*b", "b*b", "1"]


def test_the_prior_is_the_measured_one_and_none_is_of_a_new_opinion():
    measured = json.loads((REPOSITORY / "benchmarks" / "results" / "fusion_prior.json").read_text(encoding="utf-8"))
    for table, values in measured["priors"].items():
        np.testing.assert_array_equal(prior_of(table, values), np.array(list(values.values())).T)
    np.testing.assert_array_equal(prior_of("own", ["ranker", "ranker*new"])[:, 1], [0, 1])
    beside = own_terms((*FOUR, "new"))[:-1]
    others = [at for at, term in enumerate(beside) if "new" not in term]
    np.testing.assert_array_equal(prior_of("own", beside)[:, others], prior_of("own", own_terms(FOUR)[:-1]))
