"""Stored results, one JSONL file per study with one line per cell; and the papers' own values."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagwise.exceptions import InvalidInputError
from tagwise.store.atomic import atomic_write

if TYPE_CHECKING:
    from reproduction.configuration import Cell

__all__ = ["PaperValues", "Results", "StudyResults"]

PAPER_COLUMNS = ["table", "dataset", "method", "settings", "metric", "value"]
PaperKey = tuple[str, str, str, tuple[tuple[str, str], ...], str]


class Results:
    """Results by cell, in ``<root>/<paper>/<study>.jsonl``.

    A result is appended as one line as soon as it is there. If the process dies while it writes, the last line has no
    end: it is ignored, and cut off by the next write. Each line holds the ``key`` and the ``question`` of its cell.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lines: dict[Path, dict[str, dict[str, Any]]] = {}

    def path(self, cell: Cell) -> Path:
        """The file of the cell's study."""
        return self.root / cell.study.paper / f"{cell.study.name}.jsonl"

    def stored(self, path: Path) -> dict[str, dict[str, Any]]:
        """All results of a file by key, also failed ones and those to other questions."""
        if path not in self._lines:
            self._lines[path] = _read_lines(path)
        return self._lines[path]

    def read(self, cell: Cell) -> dict[str, Any] | None:
        """The stored result; None where there is none, it answers another question, or it is a failure."""
        content = self.stored(self.path(cell)).get(cell.key)
        if content is None or "error" in content:
            return None
        return content if content.get("question") == _as_json(cell.question()) else None

    def write(self, cell: Cell, content: dict[str, Any]) -> None:
        """Append a result; a result with the same key is replaced."""
        path = self.path(cell)
        lines = self._lines[path] = _read_lines(path)  # another run may have added to it
        replaces = cell.key in lines
        lines[cell.key] = _as_json({"key": cell.key, "question": cell.question(), **content})
        path.parent.mkdir(parents=True, exist_ok=True)
        if replaces:
            atomic_write(path, lambda stream: stream.write(b"".join(map(_line, lines.values()))))
            return
        with open(path, "ab+") as stream:
            stream.seek(0)
            stream.truncate(stream.read().rfind(b"\n") + 1)
            stream.write(_line(lines[cell.key]))
            stream.flush()
            os.fsync(stream.fileno())


def _read_lines(path: Path) -> dict[str, dict[str, Any]]:
    try:
        *lines, _unfinished = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    found = {}
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line)
            found[content["key"]] = content
        except (ValueError, KeyError, TypeError):
            raise InvalidInputError(
                f"{path}, line {number}: not the JSON of a result; delete the line to have the cell run again."
            ) from None
    return found


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


class StudyResults:
    """The results of a study's cells, looked up by method, data set and settings."""

    def __init__(self, results: Results, cells: list[Cell]) -> None:
        self.cells = cells
        read = [(cell, results.read(cell)) for cell in cells]
        self.done = [(cell, result) for cell, result in read if result is not None]

    def values(self, metric: str, dataset: str, method: str, settings: dict[str, Any]) -> list[float]:
        """The metric for all seeds; a cell fits where each of its settings is the one asked for."""
        return [
            float(result["values"][metric])
            for cell, result in self.done
            if (cell.dataset, cell.method.name) == (dataset, method)
            and all(settings.get(axis, value) == value for axis, value in cell.settings.items())
            and result["values"].get(metric) is not None
        ]

    def mean(self, metric: str, dataset: str, method: str, settings: dict[str, Any]) -> float | None:
        """Their mean; None where there is none."""
        values = self.values(metric, dataset, method, settings)
        return sum(values) / len(values) if values else None


class PaperValues:
    """A paper's own values, from ``<paper>/paper.csv``; pages print no other values of a paper.

    Columns: ``table`` (as the paper numbers it, such as "table 6"), ``dataset``, ``method``, ``settings`` ("share=20%",
    several joined by ";"), ``metric`` and ``value``, in the paper's unit.
    """

    def __init__(self, values: dict[PaperKey, str]) -> None:
        self.values = values

    @classmethod
    def read(cls, path: Path) -> PaperValues:
        """Read the CSV file; a paper without one has no values."""
        if not path.exists():
            return cls({})
        values: dict[PaperKey, str] = {}
        with open(path, newline="", encoding="utf-8") as stream:
            rows = csv.DictReader(stream)
            if rows.fieldnames != PAPER_COLUMNS:
                raise InvalidInputError(
                    f"{path}: the columns must be {','.join(PAPER_COLUMNS)}; found {rows.fieldnames}."
                )
            for row in rows:
                where = f"{path}, line {rows.line_num}"
                settings = dict(part.split("=", 1) for part in row["settings"].split(";") if part)
                key = _paper_key(row["table"], row["dataset"], row["method"], settings, row["metric"])
                if key in values:
                    raise InvalidInputError(f"{where}: there is already a value for {key}.")
                try:
                    float(row["value"])
                except ValueError:
                    raise InvalidInputError(f"{where}: value must be a number; found {row['value']!r}.") from None
                values[key] = row["value"]
        return cls(values)

    def text(self, table: str, dataset: str, method: str, settings: dict[str, Any], metric: str) -> str | None:
        """The value as the paper prints it; None where it has none."""
        return self.values.get(_paper_key(table, dataset, method, settings, metric))

    def number(self, table: str, dataset: str, method: str, settings: dict[str, Any], metric: str) -> float | None:
        """The value as a number."""
        text = self.text(table, dataset, method, settings, metric)
        return None if text is None else float(text)


def _paper_key(table: str, dataset: str, method: str, settings: dict[str, Any], metric: str) -> PaperKey:
    return table, dataset, method, tuple(sorted((name, str(value)) for name, value in settings.items())), metric
