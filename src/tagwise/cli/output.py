"""What verbs write: results to standard output, all that is said on the way to standard error."""

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

__all__ = ["ProgressBar", "plain_value", "say", "sentences_for_warnings", "show", "show_json", "show_table", "warn"]


_NUMBER = re.compile(r"[-+−]?[0-9][0-9.,e+-]*%?|-|")


def say(message: str) -> None:
    """Tell a person what is going on, on standard error."""
    click.echo(message, err=True)


def warn(message: str) -> None:
    """Tell a person of something that may not be meant, on standard error."""
    click.echo(f"warning: {message}", err=True)


def show(line: str = "") -> None:
    """A line of the result, on standard output."""
    click.echo(line)


def show_json(value: Any, *, indent: int | None = 2) -> None:
    """The result for programs, on standard output: UTF-8, numpy values as plain ones, NaN and infinity as null."""
    click.echo(json.dumps(plain_value(value), ensure_ascii=False, indent=indent, allow_nan=False))


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
    """A table on standard output: with rich on a terminal, aligned text elsewhere.

    Columns of numbers, also in percent, are set to the right.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [all(_NUMBER.fullmatch(row[place]) for row in cells) for place in range(len(columns))]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(title), title_justify="left")
        for name, right in zip(columns, numeric):
            table.add_column(escape(name), justify="right" if right else "left", overflow="fold")
        for row in cells:
            table.add_row(*map(escape, row))
        Console(highlight=False).print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells)]
    if title:
        show(title)
    for row in [list(columns), *cells]:
        parts = [text.rjust(width) if right else text.ljust(width) for text, width, right in zip(row, widths, numeric)]
        show("  ".join(parts).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


class ProgressBar:
    """A bar on a terminal, nothing elsewhere: for what has a known end, in any unit."""

    def __init__(self, description: str, total: float | None) -> None:
        self._description, self._total = description, total
        self._bar: Any = None

    def __enter__(self) -> ProgressBar:
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True, highlight=False),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._description, total=self._total, note="")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def at(self, completed: float, note: str = "") -> None:
        """How far it is."""
        if self._bar is not None:
            self._bar.update(self._task, completed=completed, note=note)


@contextmanager
def sentences_for_warnings() -> Iterator[None]:
    """Show Python's warnings as sentences, without file names and source lines of the library."""

    def show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
        warn(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show_warning
        yield
