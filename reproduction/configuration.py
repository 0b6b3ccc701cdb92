"""Studies: what is run for a paper, one TOML file per group of tables and figures that share their fits; and its cells.

::

    title = "All labels known"
    metrics = ["P@1", "P@3"]
    assumptions = ["What the paper leaves open, and what is done here."]

    [selection]                              # of hyper-parameters, on training rows only
    rule = "validation"                      # or "folds", "mse"
    metric = "P@3"
    fraction = 0.2
    at = { share = "40%" }                   # settings at which it is done, for all others too

    [methods."LEML SQ"]
    class = "LEML"
    parameters = { rank = "$share of labels" }
    grid = { reg = [0.3, 1.0] }

    [[cells]]
    datasets = ["bibtex"]
    methods = ["LEML SQ"]
    settings = { share = ["20%", "40%"] }

    [quick]                                  # what --quick keeps of the cells
    settings = { share = ["20%"] }

    [[tables]]
    number = "table 6"
    title = "Top-1 accuracy"
    metrics = ["P@1"]
    rows = ["dataset", "share"]
    columns = "method"
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from reproduction.methods import METHOD_CLASSES
from reproduction.metrics import SET_METRICS, SHOWN
from tagwise.exceptions import InvalidInputError

__all__ = [
    "PAPERS",
    "Block",
    "Cell",
    "Figure",
    "Method",
    "Quick",
    "Selection",
    "Study",
    "Table",
    "cells_of",
    "choice_of",
    "needed_by",
    "papers_in",
    "read_studies",
    "read_study",
]

PAPERS = ("leml", "reml", "mse")

EXPERIMENTS = ("scores", "label-counts", "speed-up", "parts", "excess-risk", "tail-labels", "subspace-angle")
RULES = ("validation", "folds", "mse")
COLUMNS = ("method", "metric")


@dataclass(frozen=True)
class Selection:
    """How hyper-parameters are chosen, on training rows only.

    ``rule`` is "validation" (a share ``fraction`` of the rows), "folds" (cross-validation with ``folds`` folds) or
    "mse" (:meth:`tagwise.MSE.select`, which also finds the threshold). ``metric`` decides; higher is better. A table of
    weights, ``{ F1 = 2, recall = 1 }``, stands for the weighted mean of metrics of label sets; each is measured as the
    study's tables measure the method (``measured``). ``at`` overrides settings, or the ``seed``: one choice then serves
    all cells that differ only in them. With more than ``rows`` training rows, a random sample of that size is used.
    """

    rule: str = "validation"
    metric: str | dict[str, float] = "P@3"
    fraction: float = 0.2
    folds: int = 3
    rows: int | None = None
    at: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """An estimator with fixed parameters and a grid of those to choose."""

    name: str
    kind: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    grid: Any = field(default_factory=dict)
    by_dataset: dict[str, dict[str, Any]] = field(default_factory=dict)
    grid_by_dataset: dict[str, Any] = field(default_factory=dict)
    selection: Selection | None = None

    def fixed(self, dataset: str) -> dict[str, Any]:
        """The parameters that are not chosen, including those specific to this data set."""
        return {**self.parameters, **self.by_dataset.get(dataset, {})}

    def grid_for(self, dataset: str) -> Any:
        """The grid, or this data set's own one."""
        return self.grid_by_dataset.get(dataset, self.grid)


@dataclass(frozen=True)
class Block:
    """Cells: every combination of data set, method, setting and seed; perhaps with a grid and rule of their own."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    settings: dict[str, list[Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    grid: Any = None
    selection: Selection | None = None

    def own(self, method: Method) -> Method:
        """The method as this block's cells have it."""
        changes = {"grid": self.grid, "selection": self.selection}
        if self.grid is not None:
            changes["grid_by_dataset"] = {}
        return replace(method, **{name: value for name, value in changes.items() if value is not None})


@dataclass(frozen=True)
class Quick:
    """The cells that a quick run keeps; an axis that is not named keeps all its values."""

    datasets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    settings: dict[str, list[Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Table:
    """A table of a page.

    ``rows`` are axes ("dataset", "method" or settings), ``columns`` is "method" or "metric". ``only`` keeps some values
    of an axis. With ``counts = false`` the paper's values are shown but not compared with: they are of other data.
    ``measured`` names, by method, the metric that stands in a column whose name is another one (the paper's).
    """

    number: str
    title: str
    metrics: tuple[str, ...]
    rows: tuple[str, ...]
    columns: str = "method"
    methods: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None
    where: dict[str, Any] = field(default_factory=dict)
    only: dict[str, list[Any]] = field(default_factory=dict)
    counts: bool = True
    measured: dict[str, dict[str, str]] = field(default_factory=dict)
    discussion: str = ""

    def measure(self, method: str, column: str) -> str:
        """The metric of a method in a column."""
        return self.measured.get(method, {}).get(column, column)


@dataclass(frozen=True)
class Figure:
    """A plot: one panel per data set and metric, one line (or bar) per method.

    ``x`` is a setting, or "method" for bars, or "curve" for the curve that a cell stores. ``relative_to`` divides the
    value there by each value (a speed-up); ``amdahl`` then fits the share of serial work. ``slopes`` fits a line to the
    logarithms of both, and a second one to x up to ``slope_limit`` where that is given; ``predicted`` are the slopes
    that the theory gives, by method, drawn as dotted lines from the method's first point.
    """

    number: str
    title: str
    metrics: tuple[str, ...]
    x: str
    methods: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None
    where: dict[str, Any] = field(default_factory=dict)
    relative_to: Any = None
    log: bool = False
    slopes: bool = False
    slope_limit: float | None = None
    predicted: dict[str, float] = field(default_factory=dict)
    amdahl: bool = False
    paper_tables: tuple[str, ...] = ()
    discussion: str = ""


@dataclass(frozen=True)
class Study:
    """One configuration file."""

    paper: str
    name: str
    title: str
    metrics: tuple[str, ...]
    methods: dict[str, Method]
    cells: tuple[Block, ...]
    experiment: str = "scores"
    options: dict[str, Any] = field(default_factory=dict)
    timed: bool = False
    selection: Selection | None = None
    quick: Quick | None = None
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    generated: dict[str, dict[str, Any]] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()

    def weights_for(self, method: Method) -> dict[str, float]:
        """The metrics of label sets whose weighted mean decides the method's grid; empty where one metric does."""
        selection = self.selection_of(method)
        if selection is None or isinstance(selection.metric, str):
            return {}
        measured = self.tables[0].measured.get(method.name, {}) if self.tables else {}
        return {measured.get(name, name): weight for name, weight in selection.metric.items()}

    def axis_title(self, axis: str) -> str:
        """The name of a setting as shown on pages."""
        return self.axes.get(axis, axis)

    @property
    def shown(self) -> tuple[Table | Figure, ...]:
        """Tables, then figures."""
        return (*self.tables, *self.figures)

    def selection_of(self, method: Method) -> Selection | None:
        """The rule that decides this method's grid; None where there is nothing to choose."""
        return (method.selection or self.selection) if method.grid else None


@dataclass(frozen=True)
class Cell:
    """One result of a study; ``choice`` marks the choice of hyper-parameters, which is a result of its own."""

    study: Study
    dataset: str
    method: Method
    settings: dict[str, Any]
    seed: int
    choice: bool = False

    @property
    def key(self) -> str:
        """The name of the cell in the results, unique in its study."""
        parts = [self.dataset, self.method.name]
        parts += [f"{axis}-{value}" for axis, value in sorted(self.settings.items())]
        parts.append(f"seed-{self.seed}")
        name = "--".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in parts)
        return f"choice--{name}" if self.choice else name

    @property
    def title(self) -> str:
        """The cell in the progress report."""
        settings = "".join(f" {axis}={value}" for axis, value in self.settings.items())
        what = "choose parameters of " if self.choice else ""
        return f"{self.dataset}: {what}{self.method.name}{settings} seed={self.seed}"

    def question(self) -> dict[str, Any]:
        """All that the result depends on; a stored result answers the cell only if its question is the same."""
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
            weights = study.weights_for(method)
            if weights:
                asked["weights"] = weights
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
            cell = Cell(study, dataset, block.own(study.methods[name]), dict(zip(block.settings, values)), seed)
            if found.setdefault(cell.key, cell) != cell:
                raise InvalidInputError(f"two cells of {study.name} would share the key {cell.key}.")
    cells = list(found.values())
    return [cell for cell in cells if _kept(cell, study.quick)] if quick else cells


def choice_of(cell: Cell) -> Cell | None:
    """The choice of hyper-parameters that this cell needs; None where all its parameters are given."""
    selection = cell.study.selection_of(cell.method)
    if selection is None:
        return None
    settings = {axis: selection.at.get(axis, value) for axis, value in cell.settings.items()}
    return Cell(cell.study, cell.dataset, cell.method, settings, selection.at.get("seed", cell.seed), choice=True)


def needed_by(item: Table | Figure, cell: Cell) -> bool:
    """Whether a table or figure shows the cell."""
    return (
        (item.methods is None or cell.method.name in item.methods)
        and (item.datasets is None or cell.dataset in item.datasets)
        and all(cell.settings.get(axis, value) == value for axis, value in item.where.items())
        and (isinstance(item, Figure) or _among(cell, item.only))
    )


def _kept(cell: Cell, quick: Quick | None) -> bool:
    return (
        quick is not None
        and (quick.datasets is None or cell.dataset in quick.datasets)
        and (quick.methods is None or cell.method.name in quick.methods)
        and (quick.seeds is None or cell.seed in quick.seeds)
        and _among(cell, quick.settings)
    )


def _among(cell: Cell, kept: dict[str, list[Any]]) -> bool:
    return all(value in kept.get(axis, [value]) for axis, value in cell.settings.items())


def papers_in(folder: Path) -> tuple[str, ...]:
    """The papers with configurations in the folder: the known ones first, others by name."""
    found = sorted({path.parent.name for path in folder.glob("*/*.toml")})
    return tuple(sorted(found, key=lambda name: PAPERS.index(name) if name in PAPERS else len(PAPERS)))


def read_studies(folder: Path, paper: str) -> list[Study]:
    """The studies of a paper, sorted by file name."""
    return [read_study(path, paper) for path in sorted((folder / paper).glob("*.toml"))]


def read_study(path: Path, paper: str) -> Study:
    """Read and check one file; errors name the file and the entry."""
    try:
        content = _load_toml(path)
        study = _study(content, paper, path.stem)
        _check(study)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from None
    return study


def _load_toml(path: Path) -> dict[str, Any]:
    try:
        reader: Any = import_module("tomllib")
    except ModuleNotFoundError:  # Python 3.10
        try:
            reader = import_module("tomli")
        except ModuleNotFoundError:
            raise InvalidInputError("Python 3.10 needs the package tomli here: pip install tomli.") from None
    try:
        content: dict[str, Any] = reader.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInputError(f"not valid TOML: {error}.") from None
    return content


def _study(content: dict[str, Any], paper: str, name: str) -> Study:
    content = dict(content)
    methods = {}
    for key, entry in _section(content.pop("methods", {}), "methods").items():
        values = {("kind" if k == "class" else k): v for k, v in _section(entry, f"methods.{key}").items()}
        if "selection" in values:
            values["selection"] = _build(Selection, values["selection"], f"methods.{key}.selection")
        methods[key] = _build(Method, {**values, "name": key}, f"methods.{key}")
    values = {
        **content,
        "paper": paper,
        "name": name,
        "methods": methods,
        "cells": tuple(_block(entry) for entry in content.pop("cells", [])),
        "tables": tuple(_build(Table, entry, "tables") for entry in content.pop("tables", [])),
        "figures": tuple(_build(Figure, entry, "figures") for entry in content.pop("figures", [])),
    }
    for key, kind in (("selection", Selection), ("quick", Quick)):
        if key in values:
            values[key] = _build(kind, values[key], key)
    return _build(Study, values, "the file")


def _block(entry: Any) -> Block:
    values = dict(_section(entry, "cells"))
    if "selection" in values:
        values["selection"] = _build(Selection, values["selection"], "cells.selection")
    made: Block = _build(Block, values, "cells")
    return made


def _build(kind: type[Any], values: Any, where: str) -> Any:
    """A dataclass from a TOML table; lists become tuples where the field is one."""
    values = _section(values, where)
    known = {entry.name: entry for entry in fields(kind)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise InvalidInputError(f"{where} has unknown entries: {', '.join(unknown)}.")
    missing = [
        name
        for name, entry in known.items()
        if name not in values and entry.default is MISSING and entry.default_factory is MISSING
    ]
    if missing:
        raise InvalidInputError(f"{where} lacks {', '.join(missing)}.")
    made = {}
    for name, value in values.items():
        wants_tuple = str(known[name].type).startswith("tuple")
        if wants_tuple and not isinstance(value, (list, tuple)):
            raise InvalidInputError(f"{where}: {name} must be a list; found {value!r}.")
        made[name] = tuple(value) if wants_tuple else value
    return kind(**made)


def _section(values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise InvalidInputError(f"{where} must be a table; found {values!r}.")
    return values


def _check(study: Study) -> None:
    _one_of(study.experiment, EXPERIMENTS, "experiment")
    _all_known(study.metrics, SHOWN, "metrics")
    for method in study.methods.values():
        _check_method(study, method)
    for block in study.cells:
        _all_known(block.methods, study.methods, "cells.methods")
        for name in block.methods:
            _check_method(study, block.own(study.methods[name]))
    if study.quick and study.quick.methods:
        _all_known(study.quick.methods, study.methods, "quick.methods")
    axes = list(dict.fromkeys(axis for block in study.cells for axis in block.settings))
    _all_known(study.axes, axes, "axes")
    for item in study.shown:
        _all_known(item.metrics, study.metrics, f"{item.number}: metrics")
        _all_known(item.methods or (), study.methods, f"{item.number}: methods")
        if isinstance(item, Table):
            _all_known(item.rows, ("dataset", "method", *axes), f"{item.number}: rows")
            _all_known(item.only, axes, f"{item.number}: only")
            _all_known(item.measured, study.methods, f"{item.number}: measured")
            for columns in item.measured.values():
                _all_known(columns, item.metrics, f"{item.number}: measured")
                _all_known(columns.values(), study.metrics, f"{item.number}: measured")
            _one_of(item.columns, COLUMNS, f"{item.number}: columns")
            if item.columns == "method" and len(item.metrics) != 1:
                raise InvalidInputError(f"{item.number}: one metric is needed where the columns are methods.")
            if "method" not in (item.columns, *item.rows) and len(item.methods or ()) != 1:
                raise InvalidInputError(
                    f"{item.number}: one method must be named where neither rows nor columns are methods."
                )
            if "dataset" not in item.rows and len(item.datasets or ()) != 1:
                raise InvalidInputError(f"{item.number}: one data set must be named where rows are not data sets.")
        else:
            _one_of(item.x, ("method", "curve", *axes), f"{item.number}: x")


def _check_method(study: Study, method: Method) -> None:
    where = f"methods.{method.name}"
    if method.kind is not None:
        _one_of(method.kind, METHOD_CLASSES, f"{where}.class")
    elif study.experiment == "scores":
        raise InvalidInputError(f"{where} lacks class.")
    selection = study.selection_of(method)
    if method.grid and selection is None:
        raise InvalidInputError(f"{where} has a grid, but there is no selection rule to decide it.")
    if selection is not None:
        _one_of(selection.rule, RULES, f"{where}: selection.rule")
        _all_known(study.weights_for(method), SET_METRICS, f"{where}: selection.metric")


def _one_of(value: Any, known: Iterable[str], what: str) -> None:
    if value not in known:
        raise InvalidInputError(f"{what} must be one of {', '.join(known)}; found {value!r}.")


def _all_known(values: Iterable[str], known: Iterable[str], what: str) -> None:
    for value in values:
        _one_of(value, known, what)
