"""The page on asking says what the curves show."""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import ask


def report(figures):
    """Two seeds of every way, in straight lines to the last P@1 and PSP@5 of each, which ``figures`` has."""
    curves = []
    for seed in (0, 1):
        for name in ask.DATASETS:
            for way, last in figures.items():
                points = [
                    {"pairs": pairs, "texts": pairs // 5, "right": pairs // 2}
                    | dict.fromkeys(ask.METRICS, 0.5 + (last - 0.5) * pairs / ask.ROUNDS[-1])
                    for pairs in (0, *ask.ROUNDS)
                ]
                curves.append({"on": "test", "dataset": name, "way": way, "seed": seed, "points": points})
    return {"curves": curves}


def test_the_page_says_how_many_answers_are_enough():
    best, middle, worst = ask.WAYS
    found = ask.page(report({best: 0.7, middle: 0.6, worst: 0.5}))
    assert "| 4,000 | 70.0 / 70.0 | 60.0 / 60.0 | 50.0 / 50.0 |" in found
    assert "For what 4,000 answers on top suggestions of random texts reach, `ask` needs 2,000 (50 %) for P@1" in found
    assert "For what 4,000 answers on random pairs reach, `ask` needs 0 (0 %) for P@1 and 0 (0 %) for PSP@5." in found
    assert "Means over 2 draws" in found
    lost = ask.page(report({best: 0.6, middle: 0.7, worst: 0.5}))
    assert "top suggestions of random texts reach, `ask` needs more than that for P@1 and more than that" in lost


def test_seeds_that_are_not_complete_do_not_count():
    best, middle, worst = ask.WAYS
    one = report({best: 0.7, middle: 0.6, worst: 0.5})
    one["curves"].pop()
    assert {curve["seed"] for curve in ask.complete(one, "test")} == {0}
    assert "Means over 1 draw of" in ask.page(one)


def test_the_stored_figures_are_those_of_the_page():
    stored = json.loads(ask.RESULT.read_text(encoding="utf-8"))
    written = ask.PAGE.read_text(encoding="utf-8")
    assert ask.page(stored) in written
    assert ask.choice_table(stored) in written
