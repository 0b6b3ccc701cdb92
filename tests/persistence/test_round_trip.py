"""What is written is what is read."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.persistence import ModelRecord, folder, read_model, tensors, write_model
from tagwise.persistence.tensors import DTYPE_CODES

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
DENSE = st.sampled_from(list(DTYPE_CODES)).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


@st.composite
def csr_matrices(draw):
    rows, columns = draw(st.integers(0, 4)), draw(st.integers(0, 5))
    row = st.lists(st.integers(0, columns - 1), max_size=6) if columns else st.just([])
    lists = draw(st.lists(row, min_size=rows, max_size=rows))
    index_dtype = draw(st.sampled_from([np.int32, np.int64]))
    dtype = draw(st.sampled_from([name for name in DTYPE_CODES if name != "float16"]))
    matrix = sp.csr_matrix((rows, columns), dtype=dtype)
    matrix.indices = np.array([column for columns in lists for column in columns], dtype=index_dtype)
    matrix.indptr = np.cumsum([0, *map(len, lists)]).astype(index_dtype)
    matrix.data = draw(hnp.arrays(dtype, matrix.indices.shape))
    return matrix


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXT
KEYS = TEXT.filter(lambda key: not key.startswith("$"))
VALUES = st.recursive(
    SCALARS | DENSE | csr_matrices(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.builds(
    ModelRecord,
    class_name=st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True),
    parameters=st.dictionaries(KEYS, VALUES, max_size=4),
    tensors=st.dictionaries(
        TEXT.filter(lambda name: name and name.isprintable() and "/" not in name),
        DENSE | csr_matrices(),
        max_size=4,
    ),
    values=st.dictionaries(KEYS, VALUES, max_size=3),
    label_names=st.none() | st.lists(TEXT, max_size=5),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(record=RECORDS)
def test_random_records_come_back_identical(record, identical):
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, record)
        assert identical(record, read_model(folder))


def test_the_same_record_makes_the_same_bytes(tmp_path, make_record):
    for name in ("a", "b"):
        write_model(tmp_path / name, make_record(3))
    files = [{file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("a", "b")]
    assert files[0] == files[1]
    assert len(files[0]) == 2


def test_other_tools_can_read_the_tensors(tmp_path, make_record):
    record = make_record()
    write_model(tmp_path / "m", record)
    (file,) = (tmp_path / "m").glob("*.safetensors")
    arrays = load_file(file)
    np.testing.assert_array_equal(arrays["tensors/W"], record.tensors["W"])
    np.testing.assert_array_equal(arrays["tensors/S/indices"], record.tensors["S"].indices)
    np.testing.assert_array_equal(arrays["arrays/0"], record.parameters["positive_weight"])


def test_a_model_without_arrays_is_one_file(tmp_path, identical):
    record = ModelRecord("Prior", values={"shape": [3]})
    write_model(tmp_path / "m", record)
    assert os.listdir(tmp_path / "m") == ["manifest.json"]
    assert identical(record, read_model(tmp_path / "m"))


def test_a_million_label_names(tmp_path):
    names = [f"label {number}" for number in range(1_000_000)]
    write_model(tmp_path / "m", ModelRecord("LEML", label_names=names))
    assert read_model(tmp_path / "m").label_names == names


def test_memory_layouts_do_not_matter(tmp_path):
    base = np.arange(24.0).reshape(4, 6)
    matrix = sp.csr_array((np.ones(3), [0, 1, 1], [0, 1, 3]), shape=(2, 2))
    spare = sp.csr_matrix(matrix)
    spare.data, spare.indices = np.append(spare.data, 9.0), np.append(spare.indices, 7).astype(np.int32)
    read_only = base.copy()
    read_only.flags.writeable = False
    tensors = {
        "fortran": np.asfortranarray(base),
        "strided": base[::2, ::-3],
        "big": base.astype(">f8"),
        "read_only": read_only,
        "array": matrix,
        "spare": spare,
    }
    write_model(tmp_path / "m", ModelRecord("LEML", tensors=tensors))
    loaded = read_model(tmp_path / "m").tensors
    for name in ("fortran", "strided", "big", "read_only"):
        np.testing.assert_array_equal(loaded[name], tensors[name])
        assert loaded[name].flags.c_contiguous
        assert loaded[name].dtype == np.float64
    for name in ("array", "spare"):
        assert isinstance(loaded[name], sp.csr_matrix)
        np.testing.assert_array_equal(loaded[name].toarray(), matrix.toarray())
        assert loaded[name].data.shape == (3,)


def test_loaded_matrices_work(tmp_path):
    matrix = sp.random(30, 20, 0.3, format="csr", random_state=0)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    write_model(tmp_path / "m", ModelRecord("LEML", tensors={"S": matrix}))
    loaded = read_model(tmp_path / "m").tensors["S"]
    np.testing.assert_array_equal((loaded @ np.ones(20)), matrix @ np.ones(20))
    np.testing.assert_array_equal(loaded.T.tocsr().toarray(), matrix.toarray().T)
    loaded.data[:] = 0
    assert loaded.sum() == 0


def test_numpy_scalars_become_python_numbers(tmp_path):
    scalars = {
        "a": np.float64(0.1),
        "b": np.int32(-7),
        "c": np.bool_(True),
        "d": np.float32(0.1),
        "e": np.str_("x"),
    }
    write_model(tmp_path / "m", ModelRecord("LEML", parameters=scalars))
    loaded = read_model(tmp_path / "m").parameters
    assert loaded == scalars
    assert [type(value) for value in loaded.values()] == [float, int, bool, float, str]


def _nested(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_is_kept_up_to_the_limit(tmp_path):
    write_model(tmp_path / "m", ModelRecord("LEML", values={"deep": _nested(63)}))
    assert read_model(tmp_path / "m").values["deep"] == _nested(63)


def _broken(**changes):
    matrix = sp.csr_matrix(np.eye(3))
    for name, value in changes.items():
        setattr(matrix, name, value)
    return matrix


@pytest.mark.parametrize(
    ("record", "error", "words"),
    [
        (ModelRecord("not a name"), InvalidInputError, "class_name"),
        (ModelRecord("A", parameters={"f": len}), InvalidTypeError, r"parameters\['f'\].*builtin_function"),
        (
            ModelRecord("A", parameters={"n": [{"x": {1}}]}),
            InvalidTypeError,
            r"\['n'\]\[0\]\['x'\].*type set",
        ),
        (ModelRecord("A", parameters={"z": 1j}), InvalidTypeError, "complex"),
        (ModelRecord("A", parameters={"l": np.longdouble(1)}), InvalidTypeError, "longdouble"),
        (ModelRecord("A", values={"n": 2**64}), InvalidInputError, "more than 64 bits"),
        (ModelRecord("A", values={"n": -(2**63) - 1}), InvalidInputError, "more than 64 bits"),
        (ModelRecord("A", values={1: 2}), InvalidTypeError, "keys must be strings"),
        (ModelRecord("A", values={"$array": 0}), InvalidInputError, "does not start with"),
        (ModelRecord("A", values={"s": "\ud800"}), InvalidInputError, "surrogate"),
        (ModelRecord("A", values={"\ud800": 1}), InvalidInputError, "Unicode text"),
        (ModelRecord("A", values={"deep": _nested(64)}), InvalidInputError, "nested more than 64"),
        (ModelRecord("A", values={"deep": _nested(5000)}), InvalidInputError, "nested more than 64"),
        (ModelRecord("A", label_names=["a", 3]), InvalidTypeError, r"label_names\[1\]"),
        (ModelRecord("A", label_names=["\udcff"]), InvalidInputError, r"label_names\[0\].*surrogate"),
        (ModelRecord("A", tensors={"a/b": np.ones(1)}), InvalidInputError, "without '/'"),
        (ModelRecord("A", tensors={"": np.ones(1)}), InvalidInputError, "names must be"),
        (ModelRecord("A", tensors={"x": [1.0]}), InvalidTypeError, r"tensors\['x'\].*found list"),
        (ModelRecord("A", tensors={"x": np.array(["a"])}), InvalidTypeError, "entries of type <U1"),
        (ModelRecord("A", tensors={"x": np.array([None])}), InvalidTypeError, "entries of type object"),
        (ModelRecord("A", tensors={"x": np.ones(1, complex)}), InvalidTypeError, "complex128"),
        (ModelRecord("A", tensors={"x": np.ma.ones(1)}), InvalidTypeError, "masked"),
        (ModelRecord("A", tensors={"x": sp.eye(3).tocsc()}), InvalidTypeError, "tocsr"),
        (
            ModelRecord("A", tensors={"x": _broken(indices=np.array([0, 1, 3]))}),
            InvalidInputError,
            "outside the 3",
        ),
        (
            ModelRecord("A", tensors={"x": _broken(indptr=np.array([0, 2, 1, 3]))}),
            InvalidInputError,
            "decreases",
        ),
        (ModelRecord("A", tensors={"x": _broken(indptr=np.array([0, 2, 3]))}), InvalidInputError, "3 rows"),
        (
            ModelRecord("A", tensors={"x": _broken(indptr=np.array([0, 1, 2, 9]))}),
            InvalidInputError,
            "ends with 9",
        ),
        (ModelRecord("A", tensors={"x": _broken(data=np.ones(3, np.float16))}), InvalidInputError, "float16"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_before_the_disk_is_touched(tmp_path, record, error, words):
    with pytest.raises(error, match=words):
        write_model(tmp_path / "m", record)
    assert not os.listdir(tmp_path)


def test_a_manifest_that_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "MAX_MANIFEST_BYTES", 2000)
    with pytest.raises(InvalidInputError, match="manifest would have"):
        write_model(tmp_path / "m", ModelRecord("A", label_names=["x" * 50] * 50))
    monkeypatch.setattr(tensors, "MAX_HEADER_BYTES", 100)
    with pytest.raises(InvalidInputError, match="arrays, too many"):
        write_model(tmp_path / "m", ModelRecord("A", tensors={"a": np.ones(1), "b": np.ones(1)}))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("path", [b"bytes", 3, None])
def test_paths_of_wrong_types(path):
    for call in (read_model, lambda p: write_model(p, ModelRecord("A"))):
        with pytest.raises(InvalidTypeError, match="path must be"):
            call(path)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_paths_that_name_nothing(path):
    for call in (read_model, lambda p: write_model(p, ModelRecord("A"))):
        with pytest.raises(InvalidInputError, match="path must name"):
            call(path)


def test_reading_imports_nothing_heavy(tmp_path, make_record):
    write_model(tmp_path / "m", make_record())
    code = """
import sys
import tagwise.exceptions, scipy.sparse
before = set(sys.modules)
from tagwise.persistence import read_model
read_model(sys.argv[1])
new = {name.partition(".")[0] for name in set(sys.modules) - before}
assert "numba" not in sys.modules, "numba"
assert not new & {"sklearn", "joblib", "pandas", "torch", "click", "rich"}, new
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "m")], check=True)
