"""The papers' own figures, from ``<paper>/paper.csv``; no page prints a paper's value that is not in there.

Columns: ``table`` (as the paper numbers it, such as "table 6"), ``dataset``, ``method``, ``settings`` ("share=20%",
several joined by ";"), ``metric`` and ``value``, in the paper's unit.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from tagwise.exceptions import InvalidInputError

__all__ = ["PaperValues"]

COLUMNS = ["table", "dataset", "method", "settings", "metric", "value"]
Key = tuple[str, str, str, tuple[tuple[str, str], ...], str]


class PaperValues:
    """What a paper reports."""

    def __init__(self, values: dict[Key, str]) -> None:
        self.values = values

    @classmethod
    def read(cls, path: Path) -> PaperValues:
        """From a CSV file; a paper without one has no values."""
        if not path.exists():
            return cls({})
        values: dict[Key, str] = {}
        with open(path, newline="", encoding="utf-8") as stream:
            rows = csv.DictReader(stream)
            if rows.fieldnames != COLUMNS:
                raise InvalidInputError(f"{path}: the columns must be {','.join(COLUMNS)}; found {rows.fieldnames}.")
            for row in rows:
                key = _key(row["table"], row["dataset"], row["method"], _settings(row["settings"]), row["metric"])
                if key in values:
                    raise InvalidInputError(f"{path}, line {rows.line_num}: there is a value for {key} already.")
                try:
                    float(row["value"])
                except ValueError:
                    raise InvalidInputError(
                        f"{path}, line {rows.line_num}: value must be a number; found {row['value']!r}."
                    ) from None
                values[key] = row["value"]
        return cls(values)

    def text(self, table: str, dataset: str, method: str, settings: dict[str, Any], metric: str) -> str | None:
        """The value as the paper prints it; None where it has none."""
        return self.values.get(_key(table, dataset, method, settings, metric))

    def number(self, table: str, dataset: str, method: str, settings: dict[str, Any], metric: str) -> float | None:
        """The value as a number."""
        text = self.text(table, dataset, method, settings, metric)
        return None if text is None else float(text)


def _key(table: str, dataset: str, method: str, settings: dict[str, Any], metric: str) -> Key:
    return table, dataset, method, tuple(sorted((name, str(value)) for name, value in settings.items())), metric


def _settings(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(";")) if text else {}
