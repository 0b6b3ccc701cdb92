"""``tagwise reproduce``: calls the package ``reproduction``, which comes with the sources and not with the wheel."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click

import tagwise
from tagwise.cli.options import examples

__all__ = ["command"]


@click.command(
    name="reproduce",
    short_help="Run a paper's tables again, its values beside ours.",
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        "tagwise reproduce leml --quick",
        "tagwise reproduce leml --table 6",
        "tagwise reproduce mse --list",
        "tagwise reproduce reml --list --json",
    ),
)
@click.option("--folder", type=click.Path(), help="The folder `reproduction` [default: in the sources, here or above].")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="PAPER [OPTIONS]")
def command(folder: str | None, arguments: tuple[str, ...]) -> None:
    r"""Run the tables and figures of PAPER (leml, reml or mse) and write pages: the paper's value beside ours.

    Stored results are not computed again, so a run that was interrupted resumes where it stopped. The code and the
    configurations are in the folder `reproduction` of the sources; in that checkout, `python -m reproduction` is the
    same command.

    \b
    Options of PAPER:
      --table TEXT       Only this table or figure, such as 6, "figure 1" or theory.
      --quick            A small part of the cells, in a few minutes, into quick-results.
      --list             List the tables and figures and how many cells are done.
      --out DIRECTORY    Folder for results [default: results in the folder].
      --threads INTEGER  Threads; -1 uses all cores  [default: -1].
      --pages-only       Only write the pages again, from the stored results.
      --json             Write the result as JSON, for programs.
    """
    given = [] if folder is None else ["--folder", folder]
    code = _find_code(folder)
    sys.path.insert(0, str(code.parent))
    try:
        runner: click.Command = import_module(f"{code.name}.__main__").command
    finally:
        sys.path.remove(str(code.parent))
    runner.main([*arguments, *given], prog_name="tagwise reproduce", standalone_mode=False)


def _find_code(folder: str | None) -> Path:
    """The package: the folder given, the one beside ``src``, or ``reproduction`` in the current folder or above it."""
    here = Path.cwd()
    beside = Path(tagwise.__file__).parents[2] / "reproduction"
    tried = [beside, *(place / "reproduction" for place in (here, *here.parents))]
    for place in ([Path(folder).absolute()] if folder else []) + tried:
        if place.name == "reproduction" and (place / "__main__.py").exists():
            return place
    raise click.ClickException(
        f"There is no folder `reproduction` in {here} or above it. It comes with the sources of tagwise, not with the "
        "installed package: run the command in a checkout, or name the folder with --folder."
    )
