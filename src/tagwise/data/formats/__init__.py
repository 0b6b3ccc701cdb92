"""Readers and writers of data files: extreme-classification text, svmlight, ARFF, npz pairs, JSONL and CSV.

Every reader returns :class:`LabelledRows`, reads ``.gz`` and ``.bz2`` as they are, and is strict: what
breaks the format is a :class:`tagwise.exceptions.ParseError` with file, line, column and reason. Line-based
readers take ``errors="skip"`` to leave faulty rows out and count them. Writers check what they are given and
replace their file in one step. Names are imported on first use: most runs need one format.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tagwise.data.formats.arff import read_arff, write_arff
    from tagwise.data.formats.delimited import read_csv, write_csv
    from tagwise.data.formats.jsonl import read_jsonl, write_jsonl
    from tagwise.data.formats.labelled_rows import LabelledRows
    from tagwise.data.formats.npz import read_npz, write_npz
    from tagwise.data.formats.svmlight import read_svmlight, write_svmlight
    from tagwise.data.formats.xmc import read_xmc, write_xmc

__all__ = [
    "LabelledRows",
    "read_arff",
    "read_csv",
    "read_jsonl",
    "read_npz",
    "read_svmlight",
    "read_xmc",
    "write_arff",
    "write_csv",
    "write_jsonl",
    "write_npz",
    "write_svmlight",
    "write_xmc",
]

_MODULE_OF = {"csv": "delimited"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tagwise.data.formats' has no attribute {name!r}")
    kind = "labelled_rows" if name == "LabelledRows" else name.partition("_")[2]
    value = getattr(import_module(f"tagwise.data.formats.{_MODULE_OF.get(kind, kind)}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
