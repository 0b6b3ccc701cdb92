"""The folder of configurations: beside the sources, or wherever ``--folder`` says."""

from __future__ import annotations

from pathlib import Path

from tagwise.exceptions import InvalidInputError

__all__ = ["PAPERS", "find_folder", "papers_in"]

PAPERS = ("leml", "reml", "mse")


def papers_in(folder: Path) -> tuple[str, ...]:
    """The papers with configurations in the folder: the known ones first, others by name."""
    found = sorted({path.parent.name for path in folder.glob("*/*.toml")})
    return tuple(sorted(found, key=lambda name: PAPERS.index(name) if name in PAPERS else len(PAPERS)))


def find_folder(given: str | None, paper: str) -> Path:
    """The folder ``given``, or ``reproduction`` in the current folder or one above it.

    Raises
    ------
    InvalidInputError
        If there is none, or it has no configuration of this paper.
    """
    here = Path.cwd()
    tried = [Path(given)] if given else [place / "reproduction" for place in (here, *here.parents)]
    for folder in tried:
        if any((folder / paper).glob("*.toml")):
            return folder
    if given:
        raise InvalidInputError(f"--folder {given} holds no configuration of {paper} ({paper}/*.toml).")
    raise InvalidInputError(
        f"There is no folder reproduction with configurations of {paper} in {here} or above it. It comes with the "
        "sources of tagwise: run the command there, or name the folder with --folder."
    )
