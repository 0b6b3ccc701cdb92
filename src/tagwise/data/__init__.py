"""Data sets, file formats, masks of known labels, splits, and synthetic problems.

Names are imported on first use, so that ``import tagwise.data`` pulls in neither numba nor scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tagwise.data.dataset import Dataset
    from tagwise.data.formats import (
        LabelledRows,
        read_arff,
        read_csv,
        read_jsonl,
        read_npz,
        read_svmlight,
        read_xmc,
        write_arff,
        write_csv,
        write_jsonl,
        write_npz,
        write_svmlight,
        write_xmc,
    )
    from tagwise.data.masks import hide_labels
    from tagwise.data.registry import available_datasets, load_dataset
    from tagwise.data.splits import TrainTestSplit, split_rows, split_train_test
    from tagwise.data.synthetic import SyntheticProblem, make_low_rank_plus_sparse, make_power_law

__all__ = [
    "Dataset",
    "LabelledRows",
    "SyntheticProblem",
    "TrainTestSplit",
    "available_datasets",
    "hide_labels",
    "load_dataset",
    "make_low_rank_plus_sparse",
    "make_power_law",
    "read_arff",
    "read_csv",
    "read_jsonl",
    "read_npz",
    "read_svmlight",
    "read_xmc",
    "split_rows",
    "split_train_test",
    "write_arff",
    "write_csv",
    "write_jsonl",
    "write_npz",
    "write_svmlight",
    "write_xmc",
]

_NAMES_IN = {
    "tagwise.data.dataset": ("Dataset",),
    "tagwise.data.formats": (
        "LabelledRows",
        *(
            f"{verb}_{kind}"
            for verb in ("read", "write")
            for kind in ("arff", "csv", "jsonl", "npz", "svmlight", "xmc")
        ),
    ),
    "tagwise.data.masks": ("hide_labels",),
    "tagwise.data.registry": ("available_datasets", "load_dataset"),
    "tagwise.data.splits": ("TrainTestSplit", "split_rows", "split_train_test"),
    "tagwise.data.synthetic": ("SyntheticProblem", "make_low_rank_plus_sparse", "make_power_law"),
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
