"""Fixtures of the tests of data: matrices to write, errors to expect, a small data set folder to read and damage."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

from tagwise.exceptions import ParseError


@pytest.fixture(scope="session")
def assert_same_matrix() -> Callable[[sp.csr_matrix, sp.csr_matrix], None]:
    """Equal to the last bit, explicit zeros and signs of zeros included."""

    def check(found: sp.csr_matrix, expected: sp.csr_matrix) -> None:
        assert isinstance(found, sp.csr_matrix)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        assert found.has_canonical_format
        assert np.array_equal(found.indptr, expected.indptr)
        assert np.array_equal(found.indices, expected.indices)
        assert found.data.tobytes() == expected.data.tobytes()

    return check


@pytest.fixture(scope="session")
def assert_parse_error() -> Callable[..., ParseError]:
    """Run a reader and check type, place and words of its error."""

    def check(read: Callable[[], Any], path: Path, line: int, column: int, *words: str) -> ParseError:
        with pytest.raises(ParseError) as caught:
            read()
        error = caught.value
        assert error.path == os.fspath(path)
        assert (error.line, error.column) == (line, column), error
        for word in words:
            assert word in error.reason, error
        return error

    return check


@st.composite
def _csr(draw: st.DrawFn, n_rows: int, n_columns: int, values: st.SearchStrategy[float], dtype: Any) -> sp.csr_matrix:
    rows = [sorted(draw(st.sets(st.integers(0, n_columns - 1), max_size=6))) for _ in range(n_rows)]
    indices = [column for row in rows for column in row]
    data = [draw(values) for _ in indices]
    indptr = np.cumsum([0] + [len(row) for row in rows])
    return sp.csr_matrix(
        (np.array(data, dtype=dtype), np.array(indices, dtype=np.int32), indptr.astype(np.int32)),
        shape=(n_rows, n_columns),
    )


@st.composite
def _pairs(draw: st.DrawFn, width: int = 32) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    dtype = np.float32 if width == 32 else np.float64
    n = draw(st.integers(1, 6))
    d, labels = draw(st.sampled_from([1, 3, 40, 70_000])), draw(st.sampled_from([1, 4, 1000]))
    values = st.floats(allow_nan=False, allow_infinity=False, width=width)
    X = draw(_csr(n, d, values, dtype))
    Y = draw(_csr(n, labels, st.just(1.0), np.float32))
    return X, Y


@pytest.fixture(scope="session")
def pairs() -> Callable[..., st.SearchStrategy[tuple[sp.csr_matrix, sp.csr_matrix]]]:
    """A hypothesis strategy of (X, Y), with empty rows, rows without labels, explicit zeros and extreme floats."""
    return _pairs


@pytest.fixture(scope="session")
def example_pair() -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Four rows: ordinary, without labels, without features, with neither."""
    X = sp.csr_matrix(np.array([[0.5, 0, 2], [0, -1e-7, 0], [0, 0, 0], [0, 0, 0]], dtype=np.float32))
    Y = sp.csr_matrix(np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=np.float32))
    return X, Y


@pytest.fixture
def write(tmp_path) -> Callable[..., str]:
    """A function that writes a file and gives back its path."""

    def write(name: str, content: str | bytes, encoding: str = "utf-8") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return str(path)

    return write


@pytest.fixture
def data_home(tmp_path, monkeypatch) -> Path:
    """An empty folder that TAGWISE_DATA points to, with an empty user cache beside it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("TAGWISE_DATA", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    return home


@pytest.fixture
def write_folder():
    """A function that writes a whole data set: 6 training and 4 test rows, 5 features, 3 labels."""

    def write(folder: Path, **changed) -> Path:
        rng = np.random.default_rng(0)
        folder.mkdir(parents=True)
        matrices = {
            "X.trn": sp.random(6, 5, 0.5, format="csr", dtype=np.float32, random_state=1),
            "X.tst": sp.random(4, 5, 0.5, format="csr", dtype=np.float32, random_state=2),
            "Y.trn": sp.csr_matrix((rng.random((6, 3)) < 0.5).astype(np.float32)),
            "Y.tst": sp.csr_matrix((rng.random((4, 3)) < 0.5).astype(np.float32)),
        }
        for name, matrix in {**matrices, **changed}.items():
            sp.save_npz(folder / f"{name}.npz", matrix)
        (folder / "features.txt").write_text("".join(f"word{j}\n" for j in range(5)), encoding="utf-8")
        (folder / "labels.txt").write_text("red\ngrün\nblue\n", encoding="utf-8")
        for side, rows in (("trn", 6), ("tst", 4)):
            with gzip.open(folder / f"text.{side}.jsonl.gz", "wt", encoding="utf-8") as lines:
                for row in range(rows):
                    lines.write(json.dumps({"text": f"{side} {row}", "labels": ["red"]}) + "\n")
        return folder

    return write
