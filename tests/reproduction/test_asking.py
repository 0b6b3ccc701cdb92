"""Which cells ``--table`` means."""

import click
import pytest

from tagwise.cli.reproduce import _same, _wanted
from tagwise.reproduction.configuration import Table


def test_every_item_is_found_by_the_number_that_is_listed(studies):
    for number in ("table 3 (top-3)", "figures 2-4 (values)", "theory, L", "table 2 (averages over labels)"):
        assert _same(Table(number=number, title="", metrics=("P@1",), rows=("dataset",)), number)
    for item in studies[0].shown:
        assert _wanted(studies, item.number, False)


def test_a_figure_is_found_by_its_number_where_no_table_has_it(studies):
    # Table 1 shows all; figure 1 would, too. There is no table 3.
    assert len(_wanted(studies, "1", False)) == 5
    renamed = [type(studies[0])(**{**vars(studies[0]), "tables": studies[0].tables[1:]})]
    assert _wanted(renamed, "1", False) == _wanted(renamed, "figure 1", False)
    with pytest.raises(click.BadParameter, match="there is no '3'; there are table 1, table 2, figure 1"):
        _wanted(studies, "3", False)


def test_a_quick_run_that_would_do_nothing_is_refused(studies):
    nothing = [type(studies[0])(**{**vars(studies[0]), "quick": None})]
    with pytest.raises(click.BadParameter, match="--quick leaves nothing of 'table 1'; run it without"):
        _wanted(nothing, "table 1", True)
    assert len(_wanted(studies, "table 1", True)) == 1
