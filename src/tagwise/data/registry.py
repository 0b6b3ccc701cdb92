"""Data sets by name: the bundled sample, ``$TAGWISE_DATA``, and the user's cache folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tagwise.data.dataset import Dataset
from tagwise.data.folder import missing_files, read_folder
from tagwise.exceptions import DatasetNotFoundError, InvalidInputError, InvalidTypeError

__all__ = ["SAMPLE_NAME", "available_datasets", "dataset_folders", "load_dataset"]

SAMPLE_NAME = "debtags-sample"


def load_dataset(name: str) -> Dataset:
    """Load a data set by its name.

    ``"debtags-sample"`` comes with tagwise. Any other name is a folder in ``$TAGWISE_DATA`` or, failing that,
    in the user's cache folder (``tagwise/datasets`` in ``$XDG_CACHE_HOME``, ``~/.cache``,
    ``~/Library/Caches`` or ``%LOCALAPPDATA%``). The folder holds ``X.trn.npz``, ``X.tst.npz``, ``Y.trn.npz``
    and ``Y.tst.npz``, and may hold ``labels.txt``, ``features.txt``, ``text.trn.jsonl.gz`` and
    ``text.tst.jsonl.gz``. Nothing is downloaded.

    Parameters
    ----------
    name : str
        The data set's name; :func:`available_datasets` lists those at hand.

    Returns
    -------
    Dataset
        Unpacks into ``X_train, Y_train, X_test, Y_test``; texts are read when they are asked for. Memory is
        that of the four matrices and the names.

    Raises
    ------
    DatasetNotFoundError
        If there is no such data set; the message lists where it was looked for and what there is.
    ParseError
        If a file of the data set is damaged or does not fit the others.
    InvalidInputError, InvalidTypeError
        If ``name`` is no plain name.
    """
    if not isinstance(name, str):
        raise InvalidTypeError(f"name must be a string; found {name!r}.")
    if not _is_plain(name):
        raise InvalidInputError(
            f"name must be a plain data set name, without path separators, ':', '..' or a leading dot; found "
            f"{name!r:.80}. To use another folder, set the environment variable TAGWISE_DATA."
        )
    if name == SAMPLE_NAME:
        from tagwise.data.sample import load_sample

        return load_sample()
    incomplete = []
    for folder in dataset_folders():
        place = folder / name
        if place.is_dir():
            missing = missing_files(place)
            if not missing:
                return read_folder(place, name)
            incomplete.append(f"{place} is there but lacks {', '.join(missing)}")
    raise DatasetNotFoundError(_not_found(name, incomplete))


def available_datasets() -> list[str]:
    """Names that :func:`load_dataset` finds now, sorted; folders that lack a needed file are left out."""
    names = {SAMPLE_NAME}
    for folder in dataset_folders():
        names.update(_names_in(folder))
    return sorted(names)


def dataset_folders() -> list[Path]:
    """The folders that data sets are looked for in, first one first."""
    chosen = os.environ.get("TAGWISE_DATA", "")
    return ([Path(chosen)] if chosen else []) + [_user_cache() / "tagwise" / "datasets"]


def _user_cache() -> Path:
    # os.path.expanduser leaves "~" alone when there is no home folder, where Path.home would raise.
    home = Path(os.path.expanduser("~"))
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    if os.path.isabs(chosen):
        return Path(chosen)
    return home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"


def _is_plain(name: str) -> bool:
    # 255 bytes is the longest file name of the usual file systems; beyond, looking for it would be an error of its own.
    fits = 0 < len(name.encode("utf-8", "surrogatepass")) <= 255
    return fits and not name.startswith(".") and ".." not in name and not set(name) & set("/\\:\0")


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(place.name for place in folder.iterdir() if _is_plain(place.name) and not missing_files(place))
    except OSError:
        return []


def _not_found(name: str, incomplete: list[str]) -> str:
    places = []
    for folder in dataset_folders():
        names = _names_in(folder)
        found = ", ".join(names) if names else ("no data sets" if folder.is_dir() else "no such folder")
        places.append(f"{folder} ({found})")
    hint = "" if os.environ.get("TAGWISE_DATA") else " The environment variable TAGWISE_DATA is not set."
    unusable = "".join(f" {reason}." for reason in incomplete)
    return (
        f"There is no data set {name!r}.{unusable} Looked in {' and in '.join(places)}; "
        f"{SAMPLE_NAME} is always there.{hint}"
    )
