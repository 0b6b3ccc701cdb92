"""Readers and writers of data files: extreme-classification text, svmlight, ARFF, npz pairs, JSONL and CSV.

Every reader returns :class:`LabelledRows`, reads ``.gz`` and ``.bz2`` as they are, and is strict: what
breaks the format is a :class:`tagwise.exceptions.ParseError` with file, line, column and reason. Line-based
readers take ``errors="skip"`` to leave faulty rows out and count them. Writers check what they are given and
replace their file in one step.
"""

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
