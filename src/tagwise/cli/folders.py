"""Model folders for the verbs: loading one, and checking where one may be written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tagwise import Tagger, load
from tagwise.exceptions import InvalidInputError
from tagwise.persistence.folder import MANIFEST_NAME

__all__ = ["check_free", "folder_bytes", "load_model"]


def load_model(path: str, what: str, *, texts: bool) -> Any:
    """The tagger of a folder, for ``texts``, or else the plain model; ``what`` (a file, a verb) is why it is needed.

    A folder that holds the other kind is an :class:`InvalidInputError`.
    """
    model = load(path)
    if texts and not isinstance(model, Tagger):
        raise InvalidInputError(
            f"{path} holds a {type(model).__name__} that was trained on a matrix and knows no words; {what} needs a "
            "tagger, trained on texts."
        )
    if not texts and isinstance(model, Tagger):
        raise InvalidInputError(f"{path} holds a tagger, which reads texts; {what} holds a matrix.")
    return model


def folder_bytes(path: str) -> int:
    """What the files of a folder take on disk."""
    return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())


def check_free(path: str, overwrite: bool) -> None:
    """Refuse a folder that a model must not be written to, before hours of work are put into the model."""
    if not os.path.lexists(path):
        _check_parent(path)
        return
    if not os.path.isdir(path):
        raise InvalidInputError(f"--out: {path} is a file; name a new folder.")
    content = sorted(os.listdir(path))
    if not content:
        return
    if MANIFEST_NAME not in content:
        raise InvalidInputError(f"--out: {path} holds {content[0]!r} and no model; name a new or empty folder.")
    if not overwrite:
        raise InvalidInputError(
            f"--out: {path} already holds a model; name another folder, or pass --overwrite to replace it."
        )


def _check_parent(path: str) -> None:
    """Refuse a new folder where none can be made."""
    parent = Path(path).absolute().parent
    while not os.path.lexists(parent):
        parent = parent.parent
    if not parent.is_dir():
        raise InvalidInputError(f"--out: {path} cannot be made, since {parent} is a file; name another folder.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InvalidInputError(
            f"--out: {path} cannot be made, since {parent} may not be written to; name another folder."
        )
