"""Search over candidates: order, ties, halving, failures and resuming."""

import pytest

from tagwise.solvers.search import Outcome, Rung, search


def test_a_plain_search_evaluates_all_in_order_and_the_first_of_equals_wins():
    seen = []

    def evaluate(candidate, budget):
        assert budget is None
        seen.append(candidate)
        return Outcome(candidate % 3, f"details of {candidate}")

    result = search([0, 2, 1, 5], evaluate)
    assert seen == [0, 2, 1, 5]
    assert [trial.candidate for trial in result.ranked] == [2, 5, 1, 0]
    assert (result.best.position, result.best.score, result.best.details) == (1, 2, "details of 2")
    assert [trial.position for trial in result.trials] == [0, 1, 2, 3]


def test_halving_keeps_the_best_and_the_protected_ones():
    calls = []

    def evaluate(candidate, budget):
        calls.append((candidate, budget))
        # With more budget the order changes.
        return Outcome(candidate if budget < 100 else -candidate)

    result = search([0, 1, 2, 3, 4, 5, 6], evaluate, rungs=[Rung(6, 1), Rung(3, 10), Rung(2, 100)], n_protected=1)
    assert calls[7:] == [(0, 10), (6, 10), (5, 10), (4, 10), (0, 100), (6, 100), (5, 100)]
    assert [trial.candidate for trial in result.ranked] == [0, 5, 6]


def test_failures_rank_last_and_do_not_end_the_search():
    def evaluate(candidate, budget):
        return Outcome(None, "too small") if candidate < 2 else Outcome(-float(candidate))

    result = search([1, 3, 0, 2], evaluate)
    assert [trial.candidate for trial in result.ranked] == [2, 3, 1, 0]
    assert result.ranked[-1].details == "too small"
    assert search([1, 0], evaluate).best.score is None


def test_more_candidates_wanted_than_there_are():
    totals = []
    result = search(
        ["a", "b"],
        lambda candidate, budget: Outcome(budget),
        rungs=[Rung(9, 1), Rung(3, 2)],
        callback=lambda trial, done, total: totals.append((done, total)),
    )
    assert totals == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert len(result.trials) == 4


@pytest.mark.parametrize("stopped_after", range(1, 10))
def test_a_stopped_search_resumes_to_the_same_result(stopped_after):
    evaluated = []

    def evaluate(candidate, budget):
        evaluated.append((candidate, budget))
        return Outcome((candidate * 7 + budget) % 5)

    def stop(trial, done, total):
        if done == stopped_after:
            raise KeyboardInterrupt

    rungs = [Rung(5, 1), Rung(2, 2)]
    whole = search(range(6), evaluate, rungs=rungs, n_protected=1)
    wanted = evaluated.copy()
    evaluated.clear()
    record = {}
    with pytest.raises(KeyboardInterrupt):
        search(range(6), evaluate, rungs=rungs, n_protected=1, record=record, callback=stop)
    assert len(record) == stopped_after
    resumed = search(range(6), evaluate, rungs=rungs, n_protected=1, record=record)
    assert evaluated == wanted
    assert [t.position for t in resumed.ranked] == [t.position for t in whole.ranked]
    assert len(record) == len(whole.trials)
