"""What the plots show: every point inside, small values beside large ones, slopes of the part that is spoken of."""

import pytest

from reproduction import figures
from reproduction.configuration import Figure, cells_of
from reproduction.figures import draw
from reproduction.results import PaperValues, Results, StudyResults


@pytest.fixture
def drawn(studies, toy, tmp_path, monkeypatch):
    """The axes of a figure over made-up values of LEML at 2% and 4%."""
    axes = []
    monkeypatch.setattr(figures, "_save", lambda drawing, stem: axes.extend(drawing.axes))

    def run(values, **options):
        axes.clear()
        study = studies[0]
        folder = Results(tmp_path / "results")
        for cell in cells_of(study):
            if cell.settings:
                folder.write(cell, {"values": dict.fromkeys(study.metrics, values[cell.settings["share"]])})
        figure = Figure(number="f", title="t", x="share", **{"metrics": ("hamming",), **options})
        results = StudyResults(folder, cells_of(study))
        draw(study, figure, results, PaperValues.read(toy / "toy" / "paper.csv"), tmp_path / "f")
        return list(axes)

    return run


def test_a_speed_up_starts_at_zero_and_has_room_above(drawn):
    (axis,) = drawn({"2%": 0.4, "4%": 0.1}, relative_to="2%")
    assert list(axis.lines[0].get_ydata()) == [1.0, 4.0]
    assert axis.get_ylim()[0] == 0
    assert axis.get_ylim()[1] > 4


@pytest.mark.parametrize(("high", "scale"), [(0.05, "linear"), (0.4, "log")])
def test_values_far_apart_are_shown_on_a_logarithmic_axis(drawn, high, scale):
    (axis,) = drawn({"2%": 0.01, "4%": high})
    assert axis.get_yscale() == scale


def test_panels_of_a_data_set_stand_side_by_side(drawn):
    values = {"2%": 0.1, "4%": 0.2}
    assert len({axis.get_position().y0 for axis in drawn(values, metrics=("P@1", "hamming"))}) == 1
    assert figures._panels_per_row(Figure(number="", title="", metrics=("P@1",), x="curve"), 4) == 2
    assert figures._panels_per_row(Figure(number="", title="", metrics=("P@1",) * 6, x="method"), 12) == 3


def test_the_legend_gives_the_slope_of_the_part_first():
    line = ([8, 16, 32, 64], [1.0, 2.0, 2.0, 2.0])
    plain = Figure(number="", title="", metrics=("P@1",), x="n")
    assert figures._slope_text(plain, line) == ""
    whole = Figure(number="", title="", metrics=("P@1",), x="n", slopes=True)
    assert figures._slope_text(whole, line) == ", slope 0.30"
    part = Figure(number="", title="", metrics=("P@1",), x="n", slopes=True, slope_limit=16)
    assert figures._slope_text(part, line) == "\nslope 1.00 up to 16, 0.30 in all"
    assert figures._slope_text(part, ([8], [1.0])) == ""
