"""A data set stored as a folder of files.

Required are ``X.trn.npz``, ``X.tst.npz``, ``Y.trn.npz`` and ``Y.tst.npz`` (scipy sparse matrices). Optional
are ``labels.txt`` and ``features.txt`` (one name a line) and ``text.trn.jsonl.gz`` and ``text.tst.jsonl.gz``
(a JSON object with ``text`` and ``labels`` a line, in the order of the matrices' rows).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import scipy.sparse as sp

from tagwise.data.dataset import Dataset
from tagwise.data.formats import LabelledRows, read_jsonl, read_npz
from tagwise.exceptions import ParseError
from tagwise.metrics import propensity_constants

__all__ = ["missing_files", "read_folder", "read_labelled_texts", "read_texts"]

_REQUIRED = ("X.trn.npz", "X.tst.npz", "Y.trn.npz", "Y.tst.npz")


def missing_files(folder: Path) -> list[str]:
    """The required files that a folder lacks; none when it is a data set."""
    return [name for name in _REQUIRED if not (folder / name).is_file()]


def read_folder(folder: Path, name: str) -> Dataset:
    """Read a data set; its texts only when they are asked for.

    Raises
    ------
    ParseError
        If a file is damaged or does not fit the others.
    """
    X_train, Y_train = _matrices(folder, "trn")
    X_test, Y_test = _matrices(folder, "tst")
    for kind, train, test in (("X", X_train, X_test), ("Y", Y_train, Y_test)):
        if train.shape[1] != test.shape[1]:
            raise ParseError(
                folder / f"{kind}.tst.npz",
                0,
                0,
                f"has {test.shape[1]:,} columns, but {kind}.trn.npz has {train.shape[1]:,}.",
            )
    propensity_a, propensity_b = propensity_constants(name)
    return Dataset(
        name=name,
        X_train=X_train,
        Y_train=Y_train,
        X_test=X_test,
        Y_test=Y_test,
        feature_names=_names(folder / "features.txt", X_train.shape[1], "features"),
        label_names=_names(folder / "labels.txt", Y_train.shape[1], "labels"),
        propensity_a=propensity_a,
        propensity_b=propensity_b,
        read_texts_train=_text_reader(folder / "text.trn.jsonl.gz", X_train.shape[0]),
        read_texts_test=_text_reader(folder / "text.tst.jsonl.gz", X_test.shape[0]),
    )


def _matrices(folder: Path, side: str) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    features, labels = folder / f"X.{side}.npz", folder / f"Y.{side}.npz"
    rows = read_npz(features, labels)
    if rows.X is None or 0 in rows.X.shape:
        raise ParseError(features, 0, 0, "holds no rows or no features.")
    return rows.X, rows.Y


def _names(path: Path, expected: int, what: str) -> list[str] | None:
    if not path.is_file():
        return None
    try:
        content = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(path, 0, 0, f"not valid UTF-8: {error.reason} at byte {error.start}.") from error
    # Not str.splitlines: a name may hold one of the rarer characters that Unicode counts as a line end.
    names = [line.removesuffix("\r") for line in content.removesuffix("\n").split("\n")] if content else []
    if len(names) != expected:
        raise ParseError(path, 0, 0, f"holds {len(names):,} names but the matrices have {expected:,} {what}.")
    return names


def _text_reader(path: Path, n_rows: int) -> Callable[[], list[str]] | None:
    return partial(read_texts, path, n_rows) if path.is_file() else None


def read_texts(path: Path, n_rows: int) -> list[str]:
    """The ``text`` of each line of a JSONL file, which must have ``n_rows`` lines."""
    texts, _ = read_labelled_texts(path)
    if len(texts) != n_rows:
        raise ParseError(path, 0, 0, f"holds {len(texts):,} texts but the matrices have {n_rows:,} rows.")
    return texts


def read_labelled_texts(path: Path) -> tuple[list[str], LabelledRows]:
    """Texts of a JSONL file with the fields ``text`` and ``labels``, and all that was read with them."""
    rows = read_jsonl(path, text="text", tags="labels")
    return rows.texts or [], rows
