"""Results on disk: one JSON file a cell, written in one step; and what the pages read from them."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from tagwise.exceptions import InvalidInputError
from tagwise.persistence.atomic import atomic_write
from tagwise.reproduction.cells import Cell

__all__ = ["ResultFolder", "StudyResults"]

FORMAT = 1


class ResultFolder:
    """``<root>/<paper>/<study>/<cell>.json``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, cell: Cell) -> Path:
        """Where the cell's result is, or will be."""
        return self.root / cell.study.paper / cell.study.name / cell.file_name

    def read(self, cell: Cell) -> dict[str, Any] | None:
        """The stored result; None where there is none, or one to another question, or a failure."""
        path = self.path(cell)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise InvalidInputError(f"{path} is no valid JSON ({error}); delete it to have it made again.") from None
        answers = content.get("format") == FORMAT and content.get("question") == _as_json(cell.question())
        return content if answers and "error" not in content else None

    def write(self, cell: Cell, content: dict[str, Any]) -> None:
        """Store a result; the file appears whole or not at all."""
        path = self.path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = {"format": FORMAT, "question": cell.question(), **content}
        text = json.dumps(stored, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        atomic_write(path, lambda stream: stream.write(text.encode("utf-8")))


class StudyResults:
    """The results of a study's cells that are there, looked up by method, data set and settings."""

    def __init__(self, folder: ResultFolder, cells: list[Cell]) -> None:
        self.cells = cells
        self._read = [(cell, folder.read(cell)) for cell in cells]

    @cached_property
    def done(self) -> list[tuple[Cell, dict[str, Any]]]:
        """Cells with a result."""
        return [(cell, result) for cell, result in self._read if result is not None]

    def values(self, metric: str, dataset: str, method: str, settings: dict[str, Any]) -> list[float]:
        """The metric of all seeds; a cell fits where every setting that it has is the one asked for."""
        found = []
        for cell, result in self.done:
            same = cell.dataset == dataset and cell.method.name == method
            if same and all(settings.get(axis, value) == value for axis, value in cell.settings.items()):
                value = result["values"].get(metric)
                if value is not None:
                    found.append(float(value))
        return found

    def mean(self, metric: str, dataset: str, method: str, settings: dict[str, Any]) -> float | None:
        """Their mean; None where there is none."""
        values = self.values(metric, dataset, method, settings)
        return sum(values) / len(values) if values else None


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
