"""The cells of a study: data set × method × setting × seed, and the choices of hyper-parameters that they share."""

from __future__ import annotations

import itertools
import re
from dataclasses import asdict, dataclass
from typing import Any

from tagwise.exceptions import InvalidInputError
from tagwise.reproduction.configuration import Figure, Method, Quick, Study, Table

__all__ = ["Cell", "cells_of", "choice_of", "needed_by"]


@dataclass(frozen=True)
class Cell:
    """One result to be had; ``choice`` marks the selection of hyper-parameters, which is a result of its own."""

    study: Study
    dataset: str
    method: Method
    settings: dict[str, Any]
    seed: int
    choice: bool = False

    @property
    def file_name(self) -> str:
        """The name of the cell's JSON file, unique in its study."""
        parts = [self.dataset, self.method.name]
        parts += [f"{axis}-{value}" for axis, value in sorted(self.settings.items())]
        parts.append(f"seed-{self.seed}")
        name = "--".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in parts)
        return f"choice--{name}.json" if self.choice else f"{name}.json"

    @property
    def title(self) -> str:
        """For the progress report."""
        settings = "".join(f" {axis}={value}" for axis, value in self.settings.items())
        what = "choose parameters of " if self.choice else ""
        return f"{self.dataset}: {what}{self.method.name}{settings} seed={self.seed}"

    def question(self) -> dict[str, Any]:
        """All that the result depends on; a stored result to another question is not an answer to this one."""
        study, method = self.study, self.method
        selection = study.selection_of(method)
        asked: dict[str, Any] = {
            "experiment": study.experiment,
            "dataset": self.dataset,
            "class": method.kind,
            "parameters": method.fixed(self.dataset),
            "settings": self.settings,
            "seed": self.seed,
            "options": study.options,
        }
        if self.dataset in study.generated:
            asked["generated"] = study.generated[self.dataset]
        if selection is not None:
            asked |= {"grid": method.grid_for(self.dataset), "selection": asdict(selection)}
        if not self.choice:
            asked["metrics"] = list(study.metrics)
        return asked


def cells_of(study: Study, *, quick: bool = False) -> list[Cell]:
    """All cells in the order of the file, or those that a quick run keeps."""
    found: dict[str, Cell] = {}
    for block in study.cells:
        for dataset, name, *values, seed in itertools.product(
            block.datasets, block.methods, *block.settings.values(), block.seeds
        ):
            settings = dict(zip(block.settings, values))
            cell = Cell(study, dataset, study.methods[name], settings, seed)
            twin = found.setdefault(cell.file_name, cell)
            if (twin.dataset, twin.method, twin.settings, twin.seed) != (dataset, cell.method, settings, seed):
                raise InvalidInputError(f"two cells of {study.name} would share the file {cell.file_name}.")
    cells = list(found.values())
    return [cell for cell in cells if _kept(cell, study.quick)] if quick else cells


def choice_of(cell: Cell) -> Cell | None:
    """The selection of hyper-parameters that this cell needs; None where its parameters are all given."""
    selection = cell.study.selection_of(cell.method)
    if selection is None:
        return None
    settings = {axis: selection.at.get(axis, value) for axis, value in cell.settings.items()}
    return Cell(cell.study, cell.dataset, cell.method, settings, cell.seed, choice=True)


def needed_by(item: Table | Figure, cell: Cell) -> bool:
    """Whether a table or figure shows the cell."""
    return (
        (item.methods is None or cell.method.name in item.methods)
        and (item.datasets is None or cell.dataset in item.datasets)
        and all(cell.settings.get(axis, value) == value for axis, value in item.where.items())
        and (isinstance(item, Figure) or _among(cell, item.only))
    )


def _kept(cell: Cell, quick: Quick | None) -> bool:
    if quick is None:
        return False
    return (
        (quick.datasets is None or cell.dataset in quick.datasets)
        and (quick.methods is None or cell.method.name in quick.methods)
        and (quick.seeds is None or cell.seed in quick.seeds)
        and _among(cell, quick.settings)
    )


def _among(cell: Cell, kept: dict[str, list[Any]]) -> bool:
    return all(value in kept.get(axis, [value]) for axis, value in cell.settings.items())
