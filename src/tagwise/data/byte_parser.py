"""Compiled parser of lines ``l1,l2 f:v f:v``, from bytes into CSR arrays.

One call parses a block of whole lines into arrays that the caller made large enough, and stops at the first
line it cannot finish: a fault, or a row with numbers that need Python's ``float``. A line is committed whole
or not at all, so the caller can continue after a line that it decides to skip.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from tagwise.kernels.compiled import compiled

__all__ = ["LineFormat", "RowArrays", "parse_rows", "sort_row"]

# Outcomes of a line.
OK: Final = 0
SLOW_NUMBERS: Final = 1  # not a fault: a row with numbers that Python must convert
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

NEWLINE, RETURN, SPACE, TAB = 10, 13, 32, 9
COMMA, COLON, HASH, DOT, PLUS, MINUS = 44, 58, 35, 46, 43, 45
ZERO, NINE, LOWER_E, UPPER_E = 48, 57, 101, 69

# 10**18 < 2**63, so this many digits never overflow the int64 mantissa or id.
MAX_DIGITS = 18
# Stands for an id of more digits than that; it is out of every range.
HUGE_ID = (1 << 63) - 1
# The product or quotient of two exact doubles is correctly rounded: mantissas up to 2**53, powers to 10**22.
EXACT_MANTISSA = 1 << 53
EXACT_POWER = 22
# Correctly rounded powers; 18 digits scaled by 10**-64 reach the smallest float32.
POWERS = np.array([float(f"1e{power}") for power in range(81)])
MAX_POWER = 80
# Mantissa, power and quotient each carry a relative error of at most 2**-53.
WIDTH = 2.0**-51


@compiled(inline="always")
def _ends_token(buffer: Any, position: int, end: int, comments: bool) -> bool:
    if position >= end:
        return True
    byte = buffer[position]
    if byte in (SPACE, NEWLINE, TAB):
        return True
    if byte == RETURN:
        return position + 1 >= end or buffer[position + 1] == NEWLINE
    return comments and byte == HASH


@compiled(inline="always")
def _read_id(buffer: Any, position: int, end: int) -> tuple[np.int64, int]:
    """A whole number and the position after it, which is ``position`` where there is none."""
    start = position
    number = np.int64(0)
    while position < end and ZERO <= buffer[position] <= NINE:
        number = number * 10 + np.int64(buffer[position] - ZERO) if position - start < MAX_DIGITS else np.int64(HUGE_ID)
        position += 1
    return number, position


@compiled(inline="always")
def _is_negative(buffer: Any, position: int, end: int) -> bool:
    return position + 1 < end and buffer[position] == MINUS and ZERO <= buffer[position + 1] <= NINE


@compiled(inline="always")
def _after_line(buffer: Any, position: int, end: int) -> int:
    while position < end and buffer[position] != NEWLINE:
        position += 1
    return position + 1


@compiled()
def _read_value(buffer: Any, position: int, end: int, narrow: bool) -> tuple[int, float, bool]:
    """(end of the number or -1, value, needs Python's float); ``narrow``: the value is for float32."""
    negative = False
    if position < end and (buffer[position] == MINUS or buffer[position] == PLUS):
        negative = buffer[position] == MINUS
        position += 1
    mantissa = np.int64(0)
    exponent = np.int64(0)
    digits = 0
    significant = 0
    after_point = False
    slow = False
    while position < end:
        byte = buffer[position]
        if byte == DOT and not after_point:
            after_point = True
        elif ZERO <= byte <= NINE:
            digits += 1
            if significant < MAX_DIGITS:
                mantissa = mantissa * 10 + np.int64(byte - ZERO)
                significant += int(mantissa > 0)
                exponent -= after_point
            else:
                slow = True
        else:
            break
        position += 1
    if digits == 0:
        return -1, 0.0, False
    if position < end and (buffer[position] == LOWER_E or buffer[position] == UPPER_E):
        position += 1
        below = False
        if position < end and (buffer[position] == MINUS or buffer[position] == PLUS):
            below = buffer[position] == MINUS
            position += 1
        if position >= end or not ZERO <= buffer[position] <= NINE:
            return -1, 0.0, False
        power = np.int64(0)
        while position < end and ZERO <= buffer[position] <= NINE:
            if power < 100_000:
                power = power * 10 + np.int64(buffer[position] - ZERO)
            position += 1
        exponent += -power if below else power
    sign = -1.0 if negative else 1.0
    if mantissa == 0 and not slow:
        return position, sign * 0.0, False
    is_exact = mantissa <= EXACT_MANTISSA and -EXACT_POWER <= exponent <= EXACT_POWER
    if slow or not (is_exact or (narrow and -MAX_POWER <= exponent <= MAX_POWER)):
        return position, 0.0, True
    value = float(mantissa)
    value = value / POWERS[-exponent] if exponent < 0 else value * POWERS[exponent]
    # All numbers this close round to one float32, or Python decides.
    if not is_exact and np.float32(value * (1.0 - WIDTH)) != np.float32(value * (1.0 + WIDTH)):
        return position, 0.0, True
    if narrow and (np.float32(value) == 0.0 or not np.isfinite(np.float32(value))):
        return position, 0.0, True
    return position, sign * value, False


@compiled()
def sort_row(indices: Any, values: Any, low: int, high: int) -> int:
    """Sort ``indices[low:high]`` with their values; return an index that occurs twice, or -1."""
    order = np.argsort(indices[low:high], kind="mergesort")
    sorted_indices = indices[low:high][order]
    if values.size:
        values[low:high] = values[low:high][order]
    indices[low:high] = sorted_indices
    for position in range(low + 1, high):
        if indices[position] == indices[position - 1]:
            return int(indices[position])
    return -1


class LineFormat(NamedTuple):
    """What lines may hold. With ``comments`` a blank line is a fault; ``narrow``: values are for float32."""

    first_feature: int
    n_features: int
    n_labels: int
    row_limit: int
    comments: bool
    narrow: bool


class RowArrays(NamedTuple):
    """The CSR arrays that are appended to, and room for (place, first byte, last byte + 1) of slow numbers."""

    x_indptr: Any
    x_indices: Any
    x_values: Any
    y_indptr: Any
    y_indices: Any
    slow_tokens: Any


@compiled()
def parse_rows(
    buffer: Any, start: int, n_rows: int, rules: LineFormat, arrays: RowArrays
) -> tuple[int, int, int, int, int, int]:
    """Parse the lines of ``buffer[start:]``, appending to the CSR arrays after row ``n_rows``.

    Returns
    -------
    (code, line start, fault, n_rows, n_lines, n_slow)
        ``code`` is OK at the end of the buffer. ``fault`` is the byte where the fault is, for a duplicate the id.
        ``n_lines`` counts finished lines. A row with ``n_slow`` numbers to convert, listed in ``slow_tokens``, is in
        the arrays but not committed: its features are not sorted yet.
    """
    first_feature, n_features, n_labels, row_limit, comments, narrow = rules
    x_indptr, x_indices, x_values, y_indptr, y_indices, slow_tokens = arrays
    end = len(buffer)
    position = start
    n_lines = 0
    no_values = x_values[:0]
    while position < end:
        line_start = position
        byte = buffer[position]
        if comments and byte == HASH:
            position = _after_line(buffer, position, end)
            n_lines += 1
            continue
        x_low = x_indptr[n_rows]
        y_low = y_indptr[n_rows]
        x_used = x_low
        y_used = y_low
        if _ends_token(buffer, position, end, False) and byte != SPACE and byte != TAB:
            if comments:  # svmlight, where a blank line may be an accident
                return BLANK_LINE, line_start, position, n_rows, n_lines, 0
        elif byte != SPACE and byte != TAB:
            previous = np.int64(-1)
            ascending = True
            while True:
                token = position
                label, position = _read_id(buffer, position, end)
                if token == line_start and position > token and position < end and buffer[position] == COLON:
                    position = line_start
                    break
                if _is_negative(buffer, token, end):
                    return NEGATIVE_LABEL, line_start, token, n_rows, n_lines, 0
                more = position < end and buffer[position] == COMMA
                if position == token or not (more or _ends_token(buffer, position, end, comments)):
                    return BAD_LABEL, line_start, token, n_rows, n_lines, 0
                if label >= n_labels:
                    return LABEL_RANGE, line_start, token, n_rows, n_lines, 0
                y_indices[y_used] = label
                y_used += 1
                if label <= previous:
                    ascending = False
                previous = label
                if not more:
                    break
                position += 1
            if not ascending:
                duplicate = sort_row(y_indices, no_values, y_low, y_used)
                if duplicate >= 0:
                    return DUPLICATE_LABEL, line_start, duplicate, n_rows, n_lines, 0
        previous = np.int64(-1)
        ascending = True
        n_slow = 0
        while True:
            while position < end and (buffer[position] == SPACE or buffer[position] == TAB):
                position += 1
            if position >= end:
                break
            byte = buffer[position]
            if byte == NEWLINE:
                position += 1
                break
            if byte == RETURN and (position + 1 >= end or buffer[position + 1] == NEWLINE):
                position += 2
                break
            if comments and byte == HASH:
                position = _after_line(buffer, position, end)
                break
            token = position
            feature, position = _read_id(buffer, position, end)
            if _is_negative(buffer, token, end):
                return NEGATIVE_FEATURE, line_start, token, n_rows, n_lines, 0
            if position == token or position >= end or buffer[position] != COLON:
                return BAD_FEATURE, line_start, token, n_rows, n_lines, 0
            feature -= first_feature
            if feature < 0 or feature >= n_features:
                return FEATURE_RANGE, line_start, token, n_rows, n_lines, 0
            position += 1
            after, value, slow = _read_value(buffer, position, end, narrow)
            if after < 0 or not _ends_token(buffer, after, end, comments):
                return BAD_VALUE, line_start, position, n_rows, n_lines, 0
            if slow:
                slow_tokens[n_slow, 0] = x_used
                slow_tokens[n_slow, 1] = position
                slow_tokens[n_slow, 2] = after
                n_slow += 1
            position = after
            x_indices[x_used] = feature
            x_values[x_used] = value
            x_used += 1
            if feature <= previous:
                ascending = False
            previous = feature
        x_indptr[n_rows + 1] = x_used
        y_indptr[n_rows + 1] = y_used
        if n_slow:
            return SLOW_NUMBERS, line_start, line_start, n_rows, n_lines, n_slow
        if not ascending:
            duplicate = sort_row(x_indices, x_values, x_low, x_used)
            if duplicate >= 0:
                return DUPLICATE_FEATURE, line_start, duplicate, n_rows, n_lines, 0
        if n_rows >= row_limit:
            return TOO_MANY_ROWS, line_start, line_start, n_rows, n_lines, 0
        n_rows += 1
        n_lines += 1
    return OK, end, end, n_rows, n_lines, 0
