"""Model folders for the verbs: where one may be written, and reading one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tagwise.exceptions import InvalidInputError
from tagwise.persistence.folder import MANIFEST_NAME

__all__ = ["check_free", "folder_bytes", "load_tagger", "require_matrix_model"]


def check_free(path: str, overwrite: bool) -> None:
    """Refuse a folder that a model must not be written to, before hours of work are put into the model.

    Raises
    ------
    InvalidInputError
        It exists and is not to be replaced, or holds other things than a model.
    """
    folder = Path(path)
    if not os.path.lexists(folder):
        _check_home(path)
        return
    if not folder.is_dir():
        raise InvalidInputError(f"--out: {path} is a file; name a new folder.")
    content = sorted(os.listdir(folder))
    if not content:
        return
    if MANIFEST_NAME not in content:
        raise InvalidInputError(f"--out: {path} holds {content[0]!r} and no model; name a new or empty folder.")
    if not overwrite:
        raise InvalidInputError(
            f"--out: {path} holds a model already; name another folder, or pass --overwrite to replace it."
        )


def _check_home(path: str) -> None:
    """Refuse a new folder where none can be made."""
    home = Path(path).absolute().parent
    while not os.path.lexists(home):
        home = home.parent
    if not home.is_dir():
        raise InvalidInputError(f"--out: {home} is a file, in which {path} cannot be; name another folder.")
    if not os.access(home, os.W_OK | os.X_OK):
        raise InvalidInputError(
            f"--out: {home} may not be written to, so that {path} cannot be made; name another folder."
        )


def load_tagger(path: str, what: str) -> Any:
    """The tagger of a folder; a model that knows no texts is refused, since ``what`` needs them."""
    from tagwise import Tagger, load

    model = load(path)
    if not isinstance(model, Tagger):
        raise InvalidInputError(
            f"{path} holds a {type(model).__name__} that was trained on a matrix and knows no words; {what} needs a "
            "tagger, trained on texts."
        )
    return model


def require_matrix_model(model: Any, path: str, file: str) -> None:
    """Refuse a tagger where a file holds a matrix."""
    from tagwise import Tagger

    if isinstance(model, Tagger):
        raise InvalidInputError(f"{path} holds a tagger, which reads texts; {file} holds a matrix.")


def folder_bytes(path: str) -> int:
    """What the files of a folder take on disk."""
    return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
