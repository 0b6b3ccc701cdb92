"""``tagwise reproduce``: finds and calls the package ``reproduction``, which comes with the sources, not the wheel."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click

import tagwise
from tagwise.cli.options import Given, flag, option, verb


@verb(
    "paper",
    option("--table", 'Only this table or figure, such as 6, "figure 1" or theory.', name="number"),
    flag("--quick", "A small part of the cells, in a few minutes, into quick-results."),
    flag("--list", "List the tables and figures with the number of cells that are done.", name="only_list"),
    option("--out", "Folder for results [default: results in the folder].", type=click.Path(file_okay=False)),
    option("--folder", "The folder `reproduction` [default: in the sources, here or above].", type=click.Path()),
    option("--threads", "Threads; -1 uses all cores.", default=-1),
    flag("--pages-only", "Only write the pages again, from the stored results."),
    "--json",
    examples=(
        "tagwise reproduce leml --quick",
        "tagwise reproduce leml --table 6",
        "tagwise reproduce mse --list",
        "tagwise reproduce reml --list --json",
    ),
)
def command(given: Given) -> None:
    """Run the tables and figures of PAPER (leml, reml or mse) and write pages: the paper's value beside ours.

    Stored results are not computed again, so a run that was interrupted resumes where it stopped. Code and
    configurations are in the folder `reproduction` of the sources; there, `python -m reproduction` is the same command.
    """
    asked = {name: value for name, value in vars(given).items() if name != "stated"}
    code = _find_code(asked.pop("folder"))
    sys.path.insert(0, str(code.parent))
    try:
        package = import_module("reproduction.__main__")
    finally:
        sys.path.remove(str(code.parent))
    package.reproduce(package.Request(folder=Path(given.folder) if given.folder else code, **asked))


def _find_code(folder: str | None) -> Path:
    """The package: the folder given, the one beside ``src``, or ``reproduction`` in the current folder or above it.

    A folder of configurations without code is run with the code that is found elsewhere.
    """
    here = Path.cwd()
    beside = Path(tagwise.__file__).parents[2] / "reproduction"
    for place in (Path(folder or beside).absolute(), beside, *(up / "reproduction" for up in (here, *here.parents))):
        if place.name == "reproduction" and (place / "__main__.py").exists():
            return place
    raise click.ClickException(
        f"There is no folder `reproduction` in {here} or above it. It comes with the sources of tagwise, not with the "
        "installed package: run the command in a checkout, or name the folder with --folder."
    )
