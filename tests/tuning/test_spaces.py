"""Where settings come from."""

import numpy as np
import pytest

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.models.choice import model_class
from tagwise.registry import MODEL_NAMES
from tagwise.tuning import Choice, LogRange, search_space
from tagwise.tuning.spaces import check_space, draw_settings

SIZES = {"n_rows": 1000, "n_features": 800, "n_labels": 300}


def test_every_model_has_a_space_of_its_own_parameters():
    for name in MODEL_NAMES:
        space, model = search_space(name, **SIZES), model_class(name)
        assert set(space) <= set(model().get_params(deep=False))
        drawn = draw_settings(space, 10, np.random.default_rng(0))
        assert drawn, name
        for settings in drawn:
            model(**settings)._check_all_parameters()


def test_ranks_stay_within_the_problem_and_losses_that_cost_all_pairs_are_searched_on_small_ones_only():
    assert search_space("leml", **SIZES)["rank"] == Choice((25, 50, 100, 200))
    assert search_space("leml", n_rows=9, n_features=7, n_labels=8)["rank"] == Choice((7,))
    large = {"n_rows": 100_000, "n_features": 50, "n_labels": 1000}
    assert "loss" in search_space("leml", **SIZES)
    assert "loss" not in search_space("leml", **large)
    assert "loss" in search_space("leml", **large, n_pairs=1_000_000)


def test_numbers_are_spread_over_their_logarithms():
    drawn = draw_settings({"reg": LogRange(0.01, 100.0)}, 2000, np.random.default_rng(0))
    values = [settings["reg"] for settings in drawn]
    assert min(values) >= 0.01
    assert max(values) <= 100
    assert np.mean(np.array(values) < 1) == pytest.approx(0.5, abs=0.04)
    assert all(value == float(f"{value:.3g}") for value in values)


def test_settings_differ_and_end_with_the_space():
    space = {"rank": Choice((1, 2)), "loss": Choice(("a", "b"))}
    drawn = draw_settings(space, 50, np.random.default_rng(1))
    assert len(drawn) == len({tuple(sorted(settings.items())) for settings in drawn}) == 4
    assert draw_settings(space, 3, np.random.default_rng(1)) == drawn[:3]


def test_bad_spaces():
    for space, error, words in (
        ({"rang": Choice((1,))}, InvalidInputError, "no parameter 'rang'"),
        ({"rank": [1, 2]}, InvalidTypeError, r"space\['rank'\] must be a Choice"),
        ({}, InvalidTypeError, "not be empty"),
        ({"reg": LogRange(0, 1)}, InvalidInputError, "low must be finite above 0"),
        ({"reg": LogRange(2, 1)}, InvalidInputError, "high must be"),
    ):
        with pytest.raises(error, match=words):
            check_space(space, "leml")
    assert draw_settings({"reg": LogRange(2, 2)}, 1, np.random.default_rng(0)) == [{"reg": 2}]
