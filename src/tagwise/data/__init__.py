"""Data files, tables of texts and tags, data sets, masks of known labels, splits, and synthetic problems.

Readers of files return :class:`LabelledRows`; :func:`read_table`, which reads tables of texts and tags as the command
line does, a :class:`Table` for ``Tagger.fit``; and :func:`read_vocabulary` a dictionary. They read ``.gz`` and
``.bz2`` as they are, and are strict: what breaks the format is a :class:`tagwise.exceptions.ParseError` with file,
line, column and reason. Line-based readers take ``errors="skip"`` to leave faulty rows out and count them. Writers
check what they are given and replace their file in one step. Names are imported on first use, so that ``import
tagwise.data`` pulls in neither numba nor scikit-learn.

From a table to texts and tags: ``formats`` knows who reads a file, ``streams`` gives its lines, ``records`` (and
``parquet``) make a dictionary of each, ``columns`` finds what is text and what is tags, ``tables`` makes the rows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tagwise.data.arff import read_arff as read_arff
    from tagwise.data.arff import write_arff as write_arff
    from tagwise.data.columns import Dialect as Dialect
    from tagwise.data.datasets import Dataset as Dataset
    from tagwise.data.datasets import available_datasets as available_datasets
    from tagwise.data.datasets import load_dataset as load_dataset
    from tagwise.data.feedback import Feedback as Feedback
    from tagwise.data.feedback import read_feedback as read_feedback
    from tagwise.data.feedback import with_feedback as with_feedback
    from tagwise.data.labelled_rows import LabelledRows as LabelledRows
    from tagwise.data.npz import read_npz as read_npz
    from tagwise.data.npz import write_npz as write_npz
    from tagwise.data.sparse_text import read_svmlight as read_svmlight
    from tagwise.data.sparse_text import read_xmc as read_xmc
    from tagwise.data.sparse_text import write_svmlight as write_svmlight
    from tagwise.data.sparse_text import write_xmc as write_xmc
    from tagwise.data.splits import TrainTestSplit as TrainTestSplit
    from tagwise.data.splits import hide_labels as hide_labels
    from tagwise.data.splits import split_rows as split_rows
    from tagwise.data.splits import split_train_test as split_train_test
    from tagwise.data.synthetic import SyntheticProblem as SyntheticProblem
    from tagwise.data.synthetic import make_low_rank_plus_sparse as make_low_rank_plus_sparse
    from tagwise.data.synthetic import make_power_law as make_power_law
    from tagwise.data.tables import Table as Table
    from tagwise.data.tables import read_table as read_table
    from tagwise.data.text_files import read_csv as read_csv
    from tagwise.data.text_files import read_jsonl as read_jsonl
    from tagwise.data.text_files import write_csv as write_csv
    from tagwise.data.text_files import write_jsonl as write_jsonl
    from tagwise.data.vocabularies import read_vocabulary as read_vocabulary
    from tagwise.feature_blocks import FeatureBlocks as FeatureBlocks

_NAMES_IN = {
    "tagwise.data.arff": ("read_arff", "write_arff"),
    "tagwise.data.columns": ("Dialect",),
    "tagwise.data.datasets": ("Dataset", "available_datasets", "load_dataset"),
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
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tagwise.data' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
