"""The reliability diagram as a file."""

import sys

import numpy as np
import pytest

from tagwise.exceptions import InvalidInputError, TagwiseError
from tagwise.inspection.reliability import reliability_bins
from tagwise.reports import plot_reliability

BINS = reliability_bins(np.linspace(0, 1, 200), np.arange(200) % 3 == 0)


@pytest.mark.parametrize(("name", "start"), [("a.svg", b"<?xml"), ("a.PNG", b"\x89PNG")])
def test_a_picture_is_drawn(tmp_path, name, start):
    plot_reliability(BINS, tmp_path / name, title="On held-out rows")
    first = (tmp_path / name).read_bytes()
    assert first.startswith(start)
    plot_reliability(BINS, tmp_path / name, title="On held-out rows")
    assert (tmp_path / name).read_bytes() == first
    plot_reliability(reliability_bins([], []), tmp_path / name)
    assert (tmp_path / name).read_bytes() != first


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"\.svg or \.png"):
        plot_reliability(BINS, tmp_path / "a.jpeg")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(TagwiseError, match=r"pip install 'tagwise\[plots\]'"):
        plot_reliability(BINS, tmp_path / "a.svg")
