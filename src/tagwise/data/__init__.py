"""Data files, tables of texts and tags, data sets, masks of known labels, splits, and synthetic problems.

Readers of files return :class:`LabelledRows`; :func:`read_table`, which reads tables of texts and tags as the command
line does, a :class:`Table` for ``Tagger.fit``; and :func:`read_vocabulary` a dictionary. They read ``.gz`` and
``.bz2`` as they are, and are strict: what breaks the format is a :class:`tagwise.exceptions.ParseError` with file,
line, column and reason. Line-based readers take ``errors="skip"`` to leave faulty rows out and count them. Writers
check what they are given and replace their file in one step. Names are imported on first use, so that ``import
tagwise.data`` pulls in neither numba nor scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tagwise.data.arff import read_arff, write_arff
    from tagwise.data.datasets import Dataset, available_datasets, load_dataset
    from tagwise.data.dialects import Dialect
    from tagwise.data.feedback import Feedback, read_feedback, with_feedback
    from tagwise.data.labelled_rows import LabelledRows
    from tagwise.data.npz import read_npz, write_npz
    from tagwise.data.sparse_text import read_svmlight, read_xmc, write_svmlight, write_xmc
    from tagwise.data.splits import TrainTestSplit, hide_labels, split_rows, split_train_test
    from tagwise.data.synthetic import SyntheticProblem, make_low_rank_plus_sparse, make_power_law
    from tagwise.data.tables import Table, read_table
    from tagwise.data.text_files import read_csv, read_jsonl, write_csv, write_jsonl
    from tagwise.data.vocabularies import read_vocabulary
    from tagwise.feature_blocks import FeatureBlocks

__all__ = [
    "Dataset",
    "Dialect",
    "FeatureBlocks",
    "Feedback",
    "LabelledRows",
    "SyntheticProblem",
    "Table",
    "TrainTestSplit",
    "available_datasets",
    "hide_labels",
    "load_dataset",
    "make_low_rank_plus_sparse",
    "make_power_law",
    "read_arff",
    "read_csv",
    "read_feedback",
    "read_jsonl",
    "read_npz",
    "read_svmlight",
    "read_table",
    "read_vocabulary",
    "read_xmc",
    "split_rows",
    "split_train_test",
    "with_feedback",
    "write_arff",
    "write_csv",
    "write_jsonl",
    "write_npz",
    "write_svmlight",
    "write_xmc",
]

_NAMES_IN = {
    "tagwise.data.arff": ("read_arff", "write_arff"),
    "tagwise.data.datasets": ("Dataset", "available_datasets", "load_dataset"),
    "tagwise.data.dialects": ("Dialect",),
    "tagwise.data.feedback": ("Feedback", "read_feedback", "with_feedback"),
    "tagwise.data.labelled_rows": ("LabelledRows",),
    "tagwise.data.npz": ("read_npz", "write_npz"),
    "tagwise.data.sparse_text": ("read_svmlight", "read_xmc", "write_svmlight", "write_xmc"),
    "tagwise.data.splits": ("TrainTestSplit", "hide_labels", "split_rows", "split_train_test"),
    "tagwise.data.synthetic": ("SyntheticProblem", "make_low_rank_plus_sparse", "make_power_law"),
    "tagwise.data.tables": ("Table", "read_table"),
    "tagwise.data.text_files": ("read_csv", "read_jsonl", "write_csv", "write_jsonl"),
    "tagwise.data.vocabularies": ("read_vocabulary",),
    "tagwise.feature_blocks": ("FeatureBlocks",),
}
_HOME_OF = {name: module for module, names in _NAMES_IN.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tagwise.data' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
