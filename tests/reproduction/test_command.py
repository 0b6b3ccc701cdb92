"""Which cells ``--table`` means."""

import click
import pytest

from reproduction.__main__ import is_named, wanted_cells
from reproduction.configuration import Table


def table(number):
    return Table(number=number, title="", metrics=("P@1",), rows=("dataset",))


def test_every_item_is_found_by_the_number_that_is_listed(studies):
    for number in ("table 3 (top-3)", "figures 2-4 (values)", "theory, L"):
        assert is_named(table(number), number)
    for item in studies[0].shown:
        assert wanted_cells(studies, item.number, False)


@pytest.mark.parametrize(
    ("number", "asked"),
    [
        ("table 6", "6"),
        ("table 6", "Table 6"),
        ("figure 2b", "figure-2b"),
        ("table 3 (AUC)", "3"),
        ("theory, n", "theory"),
    ],
)
def test_numbers_are_found_however_they_are_written(number, asked):
    assert is_named(table(number), asked)


def test_a_quick_run_that_would_do_nothing_is_refused(studies):
    nothing = [type(studies[0])(**{**vars(studies[0]), "quick": None})]
    with pytest.raises(click.BadParameter, match="--quick leaves nothing of 'table 1'; run it without"):
        wanted_cells(nothing, "table 1", True)
    assert len(wanted_cells(studies, "table 1", True)) == 1
