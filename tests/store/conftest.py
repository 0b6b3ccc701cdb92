"""Helpers for the tests of model folders."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.store import ModelRecord


def _same(a, b) -> bool:
    if sp.issparse(a):
        return (
            isinstance(b, sp.csr_matrix)
            and a.shape == b.shape
            and all(_same(getattr(a, part), getattr(b, part)) for part in ("data", "indices", "indptr"))
        )
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    # JSON has lists alone.
    a, b = (list(one) if isinstance(one, tuple) else one for one in (a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return set(a) == set(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return a == b


@pytest.fixture(scope="session")
def identical():
    """Whether two records are the same in every value, type, shape and bit."""

    def check(a: ModelRecord, b: ModelRecord) -> bool:
        return all(
            _same(getattr(a, name), getattr(b, name))
            for name in ("class_name", "parameters", "tensors", "values", "label_names")
        )

    return check


@pytest.fixture(scope="session")
def make_record():
    """A record with something of every kind; different seeds differ everywhere."""

    def make(seed: int = 0, width: int = 5) -> ModelRecord:
        rng = np.random.default_rng(seed)
        sparse = sp.random(4, 7, 0.4, format="csr", random_state=seed)
        return ModelRecord(
            class_name="LEML",
            parameters={
                "rank": seed,
                "reg": 0.1,
                "tol": math.inf,
                "positive_weight": rng.random(3),
                "ngram_range": (1, 2),
                "nothing": None,
            },
            tensors={
                "W": rng.random((width, 3)),
                "H": rng.random((4, 3)).astype(np.float32),
                "S": sparse,
                "flags": np.array([True, False, seed % 2 == 0]),
            },
            values={"objective_": [3.0, 2.0 + seed, math.nan], "n_iter_": seed, "converged": True},
            label_names=["läßt", 'quote"', "line\nbreak", f"seed {seed}"],
        )

    return make
