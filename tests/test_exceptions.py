"""Warnings point at the caller's line, and errors keep their parts."""

import sys
import warnings

from tagwise.exceptions import TagwiseWarning, warn


def test_a_warning_points_outside_tagwise():
    inner = type(sys)("tagwise.some.module")
    exec("def deep(warn): warn('careful')\ndef outer(warn): deep(warn)", inner.__dict__)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        inner.outer(warn)
    (only,) = caught
    assert only.filename == __file__
    assert only.category is TagwiseWarning
