"""What is run for a paper: one TOML file for each group of tables and figures that share their fits.

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

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from tagwise.exceptions import InvalidInputError
from tagwise.reproduction.shown_metrics import SHOWN

__all__ = ["Block", "Figure", "Method", "Quick", "Selection", "Study", "Table", "read_studies", "read_study"]

EXPERIMENTS = ("scores", "label-counts", "speed-up", "excess-risk")
RULES = ("validation", "folds", "mse")
COLUMNS = ("method", "metric")


@dataclass(frozen=True)
class Selection:
    """How hyper-parameters are chosen, on training rows alone.

    ``rule`` is "validation" (a share ``fraction`` of the rows is held out), "folds" (cross-validation in ``folds``)
    or "mse" (:meth:`tagwise.MSE.select`, which also finds the threshold). ``metric`` decides, the higher the better.
    ``at`` overrides settings: one choice then serves all cells that differ in them only. Where there are more than
    ``rows`` training rows, as many drawn at random stand for all.
    """

    rule: str = "validation"
    metric: str = "P@3"
    fraction: float = 0.2
    folds: int = 3
    rows: int | None = None
    at: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A line of a table: an estimator with fixed parameters and a grid of those to choose."""

    name: str
    kind: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    grid: Any = field(default_factory=dict)
    by_dataset: dict[str, dict[str, Any]] = field(default_factory=dict)
    grid_by_dataset: dict[str, Any] = field(default_factory=dict)
    selection: Selection | None = None

    def fixed(self, dataset: str) -> dict[str, Any]:
        """The parameters that are not chosen, with what differs for this data set."""
        return {**self.parameters, **self.by_dataset.get(dataset, {})}

    def grid_for(self, dataset: str) -> Any:
        """The grid, or the one of its own that this data set has."""
        return self.grid_by_dataset.get(dataset, self.grid)


@dataclass(frozen=True)
class Block:
    """Cells: every combination of data set, method, setting and seed."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    settings: dict[str, list[Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Quick:
    """What of the cells a quick run keeps; an axis that is not named keeps all its values."""

    datasets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    settings: dict[str, list[Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Table:
    """A table of a page.

    ``rows`` are axes ("dataset", "method" or settings), ``columns`` is "method" or "metric". ``only``
    keeps some values of an axis. With ``counts = false`` the paper's values are shown but not compared with: they are
    of other data.
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
    discussion: str = ""


@dataclass(frozen=True)
class Figure:
    """A plot: a panel for each data set and metric, a line (or bar) for each method.

    ``x`` is a setting, or "method" for bars, or "curve" for what a cell stores as a curve. ``relative_to`` divides the
    value there by each value (a speed-up). ``slopes`` fits a line in both logarithms, and another
    one to x up to ``slope_limit`` where that is given.
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

    def axis_title(self, axis: str) -> str:
        """The name of a setting as pages show it."""
        return self.axes.get(axis, axis)

    @property
    def shown(self) -> tuple[Table | Figure, ...]:
        """Tables and figures, in this order."""
        return (*self.tables, *self.figures)

    def selection_of(self, method: Method) -> Selection | None:
        """The rule by which this method's grid is decided; None where there is nothing to choose."""
        return (method.selection or self.selection) if method.grid else None


def read_studies(folder: Path, paper: str) -> list[Study]:
    """The studies of a paper, by the names of their files."""
    return [read_study(path, paper) for path in sorted((folder / paper).glob("*.toml"))]


def read_study(path: Path, paper: str) -> Study:
    """Read and check one file; every fault names the file and the entry."""
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
            raise InvalidInputError("on Python 3.10 this needs the package tomli: pip install tomli.") from None
    try:
        content: dict[str, Any] = reader.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInputError(f"no valid TOML: {error}.") from None
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
        "cells": tuple(_build(Block, entry, "cells") for entry in content.pop("cells", [])),
        "tables": tuple(_build(Table, entry, "tables") for entry in content.pop("tables", [])),
        "figures": tuple(_build(Figure, entry, "figures") for entry in content.pop("figures", [])),
    }
    for key, kind in (("selection", Selection), ("quick", Quick)):
        if key in values:
            values[key] = _build(kind, values[key], key)
    return _build(Study, values, "the file")


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
            _one_of(item.columns, COLUMNS, f"{item.number}: columns")
            if item.columns == "method" and len(item.metrics) != 1:
                raise InvalidInputError(f"{item.number}: one metric is needed where the columns are methods.")
            if "method" not in (item.columns, *item.rows) and len(item.methods or ()) != 1:
                raise InvalidInputError(
                    f"{item.number}: one method must be named where no row or column is for methods."
                )
            if "dataset" not in item.rows and len(item.datasets or ()) != 1:
                raise InvalidInputError(f"{item.number}: one data set must be named where no row is for data sets.")
        else:
            _one_of(item.x, ("method", "curve", *axes), f"{item.number}: x")


def _check_method(study: Study, method: Method) -> None:
    where = f"methods.{method.name}"
    if method.kind is not None:
        from tagwise.reproduction.methods import METHOD_CLASSES

        _one_of(method.kind, METHOD_CLASSES, f"{where}.class")
    elif study.experiment == "scores":
        raise InvalidInputError(f"{where} lacks class.")
    selection = study.selection_of(method)
    if method.grid and selection is None:
        raise InvalidInputError(f"{where} has a grid but there is no selection rule to decide it.")
    if selection is not None:
        _one_of(selection.rule, RULES, f"{where}: selection.rule")


def _one_of(value: Any, known: Iterable[str], what: str) -> None:
    if value not in known:
        raise InvalidInputError(f"{what} must be one of {', '.join(known)}; found {value!r}.")


def _all_known(values: Iterable[str], known: Iterable[str], what: str) -> None:
    for value in values:
        _one_of(value, known, what)
