"""What verbs write: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from tagwise.progress import echo_err, visible

__all__ = [
    "echo_err",
    "json_text",
    "plain_value",
    "sentences_for_warnings",
    "show",
    "show_json",
    "show_table",
    "size_text",
    "warn",
]

_GAP = 2
_NARROW_TEXT = 16
_NUMBER = re.compile(r"[-+−]?[0-9][0-9.,e+-]*%?|-|")


def warn(message: str) -> None:
    """A warning for people, on standard error."""
    echo_err(f"warning: {message}")


def show(*fields: str) -> None:
    """A line of the result, on standard output: fields between tabs, each as :func:`visible` shows it.

    Characters that standard output cannot encode are escaped.
    """
    line = "\t".join(map(visible, fields))
    try:
        _write(line)
    except UnicodeEncodeError as error:
        _write(line.encode(error.encoding, "backslashreplace").decode(error.encoding))


def show_json(value: Any, *, indent: int | None = 2) -> None:
    """The result as JSON, on standard output: UTF-8, numpy values as plain ones, NaN and infinity as null."""
    # Where standard output has another encoding, escapes keep the JSON readable for every program.
    escaped = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    _write(json_text(value, indent=indent, escaped=escaped))


def json_text(value: Any, *, indent: int | None = None, escaped: bool = False) -> str:
    """A value as JSON for a terminal or a file."""
    # JSON escapes only some of the characters that a terminal would heed.
    return visible(json.dumps(plain_value(value), ensure_ascii=escaped, indent=indent, allow_nan=False), keep="\n")


def _write(line: str) -> None:
    try:
        click.echo(line)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from None


def plain_value(value: Any) -> Any:
    """The value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(item) for item in value]
    if hasattr(value, "tolist"):  # numpy's arrays and scalars, without importing numpy
        return plain_value(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on standard output: with rich on a terminal that is wide enough, aligned text elsewhere.

    Columns of numbers, also in percent, are right-aligned.
    """
    cells = [[visible(_cell(value)) for value in row] for row in rows]
    numeric = [all(_NUMBER.fullmatch(row[place]) for row in cells) for place in range(len(columns))]
    widths = [max(map(len, column)) for column in zip(columns, *cells)]
    if sys.stdout.isatty() and _show_rich(title, columns, cells, numeric, widths):
        return
    if title:
        show(title)
    for row in [list(columns), *cells]:
        parts = [text.rjust(width) if right else text.ljust(width) for text, width, right in zip(row, widths, numeric)]
        show("  ".join(parts).rstrip())


def _show_rich(
    title: str, columns: Sequence[str], cells: list[list[str]], numeric: list[bool], widths: list[int]
) -> bool:
    """Show a table on a terminal unless that would cut numbers; returns whether it did."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    narrowest = [width if right else min(width, _NARROW_TEXT) for width, right in zip(widths, numeric)]
    if sum(narrowest) + _GAP * len(columns) > console.width:
        return False
    if title:  # not as the table's own, which would be folded to the width of the table
        console.print(escape(visible(title)), style="italic")
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for name, right, least in zip(columns, numeric, narrowest):
        table.add_column(
            escape(name), justify="right" if right else "left", overflow="fold", no_wrap=right, min_width=least
        )
    for row in cells:
        table.add_row(*map(escape, row))
    console.print(table)
    return True


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def size_text(n_bytes: int) -> str:
    """A number of bytes: "850 B", "7.5 kB", "10.5 MB"."""
    size, unit = float(n_bytes), "B"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:,.0f} B" if unit == "B" else f"{size:,.1f} {unit}"


@contextmanager
def sentences_for_warnings() -> Iterator[None]:
    """Show Python's warnings as sentences, without file names and source lines of the library."""

    def show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
        warn(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show_warning
        yield
