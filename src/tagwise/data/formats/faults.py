"""What can be wrong with a line ``l1,l2 f:v f:v``: the compiled parser's codes and their sentences."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tagwise.data.formats.number_text import parse_number

__all__ = ["explain"]

OK: Final = 0
SLOW_NUMBERS: Final = 1  # no fault: a row with numbers that Python must convert
BLANK_LINE: Final = 2
BAD_LABEL: Final = 3
NEGATIVE_LABEL: Final = 4
LABEL_RANGE: Final = 5
DUPLICATE_LABEL: Final = 6
BAD_FEATURE: Final = 7
NEGATIVE_FEATURE: Final = 8
FEATURE_RANGE: Final = 9
DUPLICATE_FEATURE: Final = 10
BAD_VALUE: Final = 11
TOO_MANY_ROWS: Final = 12


def explain(
    code: int, token: str, *, n_features: int | None, n_labels: int | None, first: int, dtype: np.dtype[Any]
) -> str:
    """The sentence for a fault; ``n_features``/``n_labels`` are None where nobody declared them."""
    shown = repr(token if len(token) <= 40 else token[:37] + "...")
    if code == BLANK_LINE:
        return "the line is empty; a row without labels and features is a line with a single space"
    if code == BAD_LABEL:
        if token.startswith(","):
            return f"a label id is missing at {shown}; labels are whole numbers with commas between them"
        if token == "":
            return "a label id is missing behind the comma (is the line truncated?)"
        return f"{shown} is not a label id; labels are whole numbers with commas between them"
    if code == NEGATIVE_LABEL:
        return f"the label id at {shown} is negative; ids start at 0"
    if code == LABEL_RANGE:
        return f"the label id at {shown} is out of range; {_range('labels', n_labels, 0)}"
    if code == DUPLICATE_LABEL:
        return f"label {token} is listed twice in this row"
    if code == BAD_FEATURE:
        if ":" not in token:
            return f"{shown} is not a feature:value pair; the colon is missing (is the line truncated?)"
        return f"{shown} is not a feature:value pair; the feature id must be a whole number"
    if code == NEGATIVE_FEATURE:
        return f"the feature id in {shown} is negative; ids start at {first}"
    if code == FEATURE_RANGE:
        return f"the feature id in {shown} is out of range; {_range('features', n_features, first)}"
    if code == DUPLICATE_FEATURE:
        return f"feature {token} is listed twice in this row"
    if code == BAD_VALUE:
        if token == "":
            return "the value after the colon is missing (is the line truncated?)"
        try:
            parse_number(token, dtype)
        except ValueError as error:
            return str(error)
        return f"{shown} is not a number"
    return "there are more rows than the header announces"


def _range(what: str, size: int | None, first: int) -> str:
    if size is None:
        return f"without n_{what}= ids may go up to {2**31 - 2 + first:,}; pass n_{what}= for more"
    if size == 0:
        return f"the file has no {what}"
    return f"with {size:,} {what} ids go from {first} to {size - 1 + first:,}"
