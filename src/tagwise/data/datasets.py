"""Data sets by name: the bundled sample, and folders in ``$TAGWISE_DATA`` and the user's cache folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import scipy.sparse as sp

from tagwise.data.npz import read_npz
from tagwise.data.streams import read_name_lines
from tagwise.data.text_files import read_jsonl
from tagwise.exceptions import DatasetNotFoundError, InvalidInputError, InvalidTypeError, ParseError
from tagwise.metrics import propensity_constants

__all__ = ["Dataset", "available_datasets", "dataset_folders", "load_dataset", "read_folder"]

_SAMPLE = "debtags-sample"
_SAMPLE_FOLDER = Path(__file__).parent / "sample"
_REQUIRED = ("X.trn.npz", "X.tst.npz", "Y.trn.npz", "Y.tst.npz")


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A multi-label data set, split into training and test rows.

    Unpacks into its four matrices: ``X_train, Y_train, X_test, Y_test = load_dataset("bibtex")``.

    Attributes
    ----------
    name : str
        The name it was loaded by.
    X_train, Y_train, X_test, Y_test : csr_matrix of float32, shapes (rows, features) and (rows, labels)
        Features, and labels: every stored entry is 1.
    feature_names, label_names : list of str, or None
        One name per column, where names are known.
    propensity_a, propensity_b : float
        Constants for the propensity-scored metrics (see :func:`tagwise.metrics.propensity_constants`).
    texts_train, texts_test : list of str, or None
        The rows as raw text, where there is text. They are read from disk on first use and then kept.
    read_texts_train, read_texts_test : callable, or None
        Their readers.
    """

    name: str
    X_train: sp.csr_matrix
    Y_train: sp.csr_matrix
    X_test: sp.csr_matrix
    Y_test: sp.csr_matrix
    feature_names: list[str] | None = None
    label_names: list[str] | None = None
    propensity_a: float = 0.55
    propensity_b: float = 1.5
    read_texts_train: Callable[[], list[str]] | None = None
    read_texts_test: Callable[[], list[str]] | None = None

    @cached_property
    def texts_train(self) -> list[str] | None:
        """The training rows as raw text, or None."""
        return None if self.read_texts_train is None else self.read_texts_train()

    @cached_property
    def texts_test(self) -> list[str] | None:
        """The test rows as raw text, or None."""
        return None if self.read_texts_test is None else self.read_texts_test()

    def __iter__(self) -> Iterator[sp.csr_matrix]:
        yield from (self.X_train, self.Y_train, self.X_test, self.Y_test)

    def __repr__(self) -> str:
        train, test = self.X_train.shape[0], self.X_test.shape[0]
        return (
            f"Dataset({self.name!r}: {train:,} training and {test:,} test rows, "
            f"{self.X_train.shape[1]:,} features, {self.Y_train.shape[1]:,} labels)"
        )


def load_dataset(name: str) -> Dataset:
    """Load a data set by its name.

    ``"debtags-sample"`` comes with tagwise. Any other name is a folder in ``$TAGWISE_DATA`` or, failing that, in the
    user's cache folder (``tagwise/datasets`` in ``$XDG_CACHE_HOME``, ``~/.cache``, ``~/Library/Caches`` or
    ``%LOCALAPPDATA%``). The folder holds ``X.trn.npz``, ``X.tst.npz``, ``Y.trn.npz`` and ``Y.tst.npz``: scipy sparse
    matrices. It may hold ``labels.txt`` and ``features.txt`` (one name per line), and ``text.trn.jsonl.gz`` and
    ``text.tst.jsonl.gz`` (``text`` and ``labels`` of each row, in the order of the matrices). Nothing is downloaded.

    Parameters
    ----------
    name : str
        The data set's name; :func:`available_datasets` lists the available ones.

    Returns
    -------
    Dataset
        Unpacks into ``X_train, Y_train, X_test, Y_test``; texts are read when they are asked for. Memory is
        that of the four matrices and the names.

    Raises
    ------
    DatasetNotFoundError
        If there is no such data set; the message lists the folders searched and what they hold.
    ParseError
        If a file of the data set is damaged or does not fit the others.
    InvalidInputError, InvalidTypeError
        If ``name`` is not a plain name.
    """
    if not isinstance(name, str):
        raise InvalidTypeError(f"name must be a string; found {name!r}.")
    if not _is_plain(name):
        raise InvalidInputError(
            f"name must be a plain data set name, without path separators, ':', '..' or a leading dot; found "
            f"{name!r:.80}. To use another folder, set the environment variable TAGWISE_DATA."
        )
    if name == _SAMPLE:
        return read_folder(_SAMPLE_FOLDER, _SAMPLE)
    incomplete, places = "", []
    for folder in dataset_folders():
        place = folder / name
        missing = _missing_files(place)
        if not missing:
            return read_folder(place, name)
        if place.is_dir():
            incomplete += f" {place} is there but lacks {', '.join(missing)}."
        names = _names_in(folder)
        found = ", ".join(names) if names else ("no data sets" if folder.is_dir() else "no such folder")
        places.append(f"{folder} ({found})")
    hint = "" if os.environ.get("TAGWISE_DATA") else " The environment variable TAGWISE_DATA is not set."
    raise DatasetNotFoundError(
        f"There is no data set {name!r}.{incomplete} Looked in {' and in '.join(places)}; "
        f"{_SAMPLE} is always there.{hint}"
    )


def available_datasets() -> list[str]:
    """Names that :func:`load_dataset` finds now, sorted; folders that lack a needed file are left out."""
    return sorted({_SAMPLE}.union(*map(_names_in, dataset_folders())))


def dataset_folders() -> list[Path]:
    """The folders that data sets are looked for in, in order."""
    chosen, cache = os.environ.get("TAGWISE_DATA", ""), os.environ.get("XDG_CACHE_HOME", "")
    # os.path.expanduser leaves "~" alone when there is no home folder, where Path.home would raise.
    home = Path(os.path.expanduser("~"))
    if sys.platform == "win32":
        user = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif os.path.isabs(cache):  # the XDG specification has relative paths ignored
        user = Path(cache)
    else:
        user = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return ([Path(chosen)] if chosen else []) + [user / "tagwise" / "datasets"]


def _is_plain(name: str) -> bool:
    # 255 bytes is the longest file name of the usual file systems; beyond, looking for it would be an error of its own.
    fits = 0 < len(name.encode("utf-8", "surrogatepass")) <= 255
    return fits and not name.startswith(".") and ".." not in name and not set(name) & set("/\\:\0")


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(place.name for place in folder.iterdir() if _is_plain(place.name) and not _missing_files(place))
    except OSError:
        return []


def _missing_files(folder: Path) -> list[str]:
    """The required files that a folder lacks; none when it is a data set."""
    return [name for name in _REQUIRED if not (folder / name).is_file()]


def read_folder(folder: Path, name: str) -> Dataset:
    """Read the data set that a folder holds; its texts only when they are asked for."""
    train, test = (read_npz(folder / f"X.{side}.npz", folder / f"Y.{side}.npz") for side in ("trn", "tst"))
    X_train, Y_train, X_test, Y_test = train.X, train.Y, test.X, test.Y
    assert X_train is not None
    assert X_test is not None
    for file, matrix in (("X.trn.npz", X_train), ("X.tst.npz", X_test)):
        if 0 in matrix.shape:
            raise ParseError(folder / file, 0, 0, "holds no rows or no features.")
    for kind, one, other in (("X", X_train, X_test), ("Y", Y_train, Y_test)):
        if one.shape[1] != other.shape[1]:
            reason = f"has {other.shape[1]:,} columns, but {kind}.trn.npz has {one.shape[1]:,}."
            raise ParseError(folder / f"{kind}.tst.npz", 0, 0, reason)

    def names(what: str, expected: int) -> list[str] | None:
        path = folder / f"{what}.txt"
        found = read_name_lines(path) if path.is_file() else None
        if found is not None and len(found) != expected:
            raise ParseError(path, 0, 0, f"holds {len(found):,} names but the matrices have {expected:,} {what}.")
        return found

    def texts(side: str, expected: int) -> Callable[[], list[str]] | None:
        path = folder / f"text.{side}.jsonl.gz"
        return partial(_read_texts, path, expected) if path.is_file() else None

    propensity_a, propensity_b = propensity_constants(name)
    return Dataset(
        name,
        X_train,
        Y_train,
        X_test,
        Y_test,
        feature_names=names("features", X_train.shape[1]),
        label_names=names("labels", Y_train.shape[1]),
        propensity_a=propensity_a,
        propensity_b=propensity_b,
        read_texts_train=texts("trn", X_train.shape[0]),
        read_texts_test=texts("tst", X_test.shape[0]),
    )


def _read_texts(path: Path, n_rows: int) -> list[str]:
    texts = read_jsonl(path, tags="labels").texts or []
    if len(texts) != n_rows:
        raise ParseError(path, 0, 0, f"holds {len(texts):,} texts but the matrices have {n_rows:,} rows.")
    return texts
