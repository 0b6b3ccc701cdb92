"""Pairs of npz files: every kind that scipy writes, and damage of every kind as one clear error."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.data import read_npz
from tagwise.exceptions import ParseError


def _save(path, **members):
    members = {"format": b"csr", "shape": (2, 3)} | members
    np.savez(path, **{name: np.asarray(value) for name, value in members.items() if value is not None})


GOOD_CSR = {"data": np.ones(2, np.float32), "indices": [0, 2], "indptr": [0, 1, 2]}


def test_bad_members(tmp_path):
    x, y = tmp_path / "X.npz", tmp_path / "Y.npz"
    _save(y, **GOOD_CSR)
    assert read_npz(y, y).n_rows == 2
    coo = {"format": b"coo", "row": [0, 5], "col": [0, 1]}
    for members in (
        *({"format": value} for value in (None, 3, b"bsr", b"unknown")),
        *({"shape": value} for value in ((2, 3, 4), (-2, 3), (2.0, 3.0))),
        *({"data": value} for value in (None, [1j, 1], [["a"]], [1.0, np.nan], [1.0, 1e50], [1.0, 1e-60], [1.0])),
        *({"data": np.array(value, dtype=object)} for value in ([1.0, "x"], [{}, {}])),
        *({"indices": value} for value in ([0, 3], [0, -1], np.array([0, 2**63], dtype=np.uint64))),
        *({"indptr": value} for value in ([0, 2], [0, 3, 2], [1, 1, 2], [0, 1, 3])),
        {"indptr": [0, 2, 2], "indices": [1, 1]},
        coo,
        coo | {"shape": (10**12, 3)},
    ):
        _save(x, **(GOOD_CSR | members))
        with pytest.raises(ParseError) as caught:
            read_npz(x, y)
        assert (caught.value.path, caught.value.line) == (str(x), 0), members


def test_labels_and_rows(tmp_path, assert_parse_error):
    x, y = tmp_path / "X.npz", tmp_path / "Y.npz"
    _save(x, **GOOD_CSR)
    _save(y, **(GOOD_CSR | {"data": [1, 2]}))
    assert_parse_error(lambda: read_npz(x, y), y, 0, 0, "0 and 1")
    _save(y, **(GOOD_CSR | {"shape": (1, 3), "indptr": [0, 2]}))
    assert_parse_error(lambda: read_npz(x, y), y, 0, 0, "1 rows", "have 2")
    _save(y, **(GOOD_CSR | {"data": [1, 0]}))
    assert read_npz(x, y).Y.toarray().tolist() == [[1, 0, 0], [0, 0, 0]]


def test_kinds(tmp_path):
    for make in (sp.csr_array, sp.csc_matrix, sp.coo_matrix):
        for dtype in (np.float64, np.int8, bool, np.float32):
            matrix = make(np.array([[0, 1, 0], [1, 0, 1]], dtype=dtype))
            for name in ("X.npz", "Y.npz"):
                sp.save_npz(tmp_path / name, matrix)
            found = read_npz(tmp_path / "X.npz", tmp_path / "Y.npz")
            assert isinstance(found.X, sp.csr_matrix)
            assert found.X.dtype == found.Y.dtype == np.float32
            assert found.X.toarray().tolist() == found.Y.toarray().tolist() == [[0, 1, 0], [1, 0, 1]]
    for dtype in (">f4", ">f8", np.float16, np.longdouble, ">i4", np.uint64):
        unsorted = {"data": np.array([1, 2, 3], dtype), "indices": np.array([2, 0, 1], ">i4"), "indptr": [0, 2, 3]}
        _save(tmp_path / "X.npz", **unsorted)
        assert read_npz(tmp_path / "X.npz", tmp_path / "Y.npz").X.toarray().tolist() == [[2, 0, 1], [0, 3, 0]]


def test_sizes_that_are_only_announced(tmp_path):
    x, y = tmp_path / "X.npz", tmp_path / "Y.npz"
    _save(y, **GOOD_CSR)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**11,)})
    with zipfile.ZipFile(y) as source, zipfile.ZipFile(x, "w") as target:
        for name in source.namelist():
            target.writestr(name, header.getvalue() if name == "data.npy" else source.read(name))
    with pytest.raises(ParseError, match="not a readable scipy"):
        read_npz(x, y)


def test_what_is_no_npz_file(tmp_path):
    x = tmp_path / "X.npz"
    for content in (b"", b"PK", b"not a zip file at all", b"PK\x05\x06" + b"\x00" * 18):
        x.write_bytes(content)
        with pytest.raises(ParseError, match="not a readable scipy"):
            read_npz(x, x)
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "none.npz", x)
