"""The bar of a fit."""

import io
import re
import sys

import pytest

from tagwise.progress import FitProgress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, steps, error=None):
    monkeypatch.setattr(sys, "stderr", Terminal())
    try:
        with FitProgress("LEML", 10, verbose=1) as progress:
            for step in range(steps):
                progress.step(100.0 - step)
            if error is not None:
                raise error
    except KeyboardInterrupt:
        pass
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sys.stderr.getvalue())
    return re.findall(r"\d+/\d+", plain)[-1]


@pytest.mark.parametrize("steps", [1, 3])
def test_a_fit_that_converged_early_ends_with_a_full_bar(monkeypatch, steps):
    assert shown(monkeypatch, steps) == f"{steps}/{steps}"


def test_a_fit_that_was_cut_off_does_not_look_finished(monkeypatch):
    assert shown(monkeypatch, 3, KeyboardInterrupt()) == "3/10"
