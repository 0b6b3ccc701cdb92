"""Output of verbs: results to standard output, everything else to standard error."""

from __future__ import annotations

import io
import json
import logging
import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from tagwise.progress import echo_err, visible

__all__ = ["echo_err", "json_text", "sentences", "show", "show_json", "show_table", "warn"]

_GAP = 2
_NARROW_TEXT = 16
_NUMBER = re.compile(r"[-+−]?[0-9][0-9.,e+-]*%?|-|")


def warn(message: str) -> None:
    """Print a warning to standard error."""
    echo_err(f"warning: {message}")


def show(*fields: str) -> None:
    """A line of the result, on standard output: fields between tabs, each as :func:`visible` shows it."""
    _write("\t".join(map(visible, fields)))


def show_json(value: Any, *, indent: int | None = 2) -> None:
    """The result as JSON, on standard output: UTF-8, numpy values as plain ones, NaN and infinity as null."""
    # Where standard output has another encoding, escapes keep the JSON readable for every program.
    escaped = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    _write(json_text(value, indent=indent, escaped=escaped))


def json_text(value: Any, *, indent: int | None = None, escaped: bool = False) -> str:
    """A value as JSON for a terminal or a file."""
    # JSON escapes only some of the characters that a terminal would heed.
    return visible(json.dumps(_plain(value), ensure_ascii=escaped, indent=indent, allow_nan=False), keep="\n")


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on standard output; columns of numbers, also in percent, are right-aligned.

    A terminal that is wide enough for the numbers folds long texts; a narrower one, and a file, gets whole lines.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[visible(_cell(value)) for value in row] for row in rows]
    numeric = [all(_NUMBER.fullmatch(row[place]) for row in cells) for place in range(len(columns))]
    widths = [max(map(len, column)) for column in zip(columns, *cells)]
    narrowest = [width if right else min(width, _NARROW_TEXT) for width, right in zip(widths, numeric)]
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=sys.stdout.isatty(), highlight=False)
    if not sys.stdout.isatty() or sum(narrowest) + _GAP * len(columns) > console.width:
        console.width = sum(widths) + _GAP * len(columns)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for name, right, least in zip(columns, numeric, narrowest):
        justify: Any = "right" if right else "left"
        table.add_column(Text(name), justify=justify, overflow="fold", no_wrap=right, min_width=least)
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)
    if title:
        show(title)
    for line in drawn.getvalue().splitlines():
        _write(line.rstrip())


def _write(line: str) -> None:
    """A line on standard output; characters that it cannot encode are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        click.echo(line.encode(encoding, "backslashreplace").decode(encoding))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from None


def _plain(value: Any) -> Any:
    """The value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy's arrays and scalars, without importing numpy
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


class _ToStandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        echo_err(record.getMessage())


@contextmanager
def sentences() -> Iterator[None]:
    """Show Python's warnings and the library's log (level INFO) without file names and line numbers."""

    def show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
        warn(str(message))

    logger, handler = logging.getLogger("tagwise"), _ToStandardError()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = show_warning
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
