"""Folders written by earlier versions stay readable. The folders under ``golden`` are never written again."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from tagwise.persistence import read_model

GOLDEN = Path(__file__).parent / "golden"


def test_version_1():
    record = read_model(GOLDEN / "v1")
    assert record.class_name == "LEML"
    weights = record.parameters.pop("positive_weight")
    assert weights.dtype == np.float64
    assert weights.tolist() == [1.0, 2.0, 4.0]
    assert record.parameters == {
        "rank": 3,
        "reg": 0.1,
        "tol": math.inf,
        "ngram_range": (1, 2),
        "loss": "squared",
        "random_state": None,
        "normalize": True,
        "nested": {"low": -math.inf, "list": [1, "zwei", [2**64 - 1]]},
    }
    assert math.isnan(record.values.pop("gap_"))
    assert record.values == {"n_iter_": 7, "objective_": [3.5, 2.25]}
    assert record.label_names == ["red", "grün", "line\nbreak", '"quoted"', "𝛌"]

    tensors = record.tensors
    assert tensors["W"].dtype == np.float32
    assert tensors["W"].tolist() == [[0.0, 0.25, 0.5], [0.75, 1.0, 1.25]]
    assert tensors["scale"].shape == ()
    assert tensors["scale"] == 0.1
    assert tensors["empty"].shape == (0, 3)
    assert isinstance(tensors["S"], sp.csr_matrix)
    assert tensors["S"].toarray().tolist() == [[0, 1.5, 0], [0, 0, 0], [-2.0, 0, 0.25]]
    assert tensors["S64"].indices.dtype == np.int64
    assert tensors["S64"].toarray().tolist() == [[0, 0, 0, 0, 1], [2, 0, 0, 0, 0]]
    narrow = ["float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
    for dtype in narrow:
        assert tensors[dtype].dtype == np.dtype(dtype)
        assert tensors[dtype].tolist() == [0, 1, 1]
    assert set(tensors) == {"W", "scale", "empty", "S", "S64", *narrow}
