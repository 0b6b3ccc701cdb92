"""What is written is what is read; where a model may be saved, and what is left when saving fails or is raced."""

from __future__ import annotations

import errno
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

from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError
from tagwise.store import ModelRecord, folder, read_model, write_model

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
DTYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint64", "bool")
DENSE = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


@st.composite
def csr_matrices(draw):
    rows, columns = draw(st.integers(0, 4)), draw(st.integers(0, 5))
    row = st.lists(st.integers(0, columns - 1), max_size=6) if columns else st.just([])
    lists = draw(st.lists(row, min_size=rows, max_size=rows))
    indices = np.array([column for columns in lists for column in columns], dtype=np.int32)
    indptr = np.cumsum([0, *map(len, lists)]).astype(np.int32)
    data = draw(hnp.arrays(draw(st.sampled_from(DTYPES[1:])), indices.shape))
    return sp.csr_matrix((data, indices, indptr), shape=(rows, columns))


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
    tensors=st.dictionaries(st.from_regex("[a-z_]{1,9}", fullmatch=True), DENSE | csr_matrices(), max_size=4),
    values=st.dictionaries(KEYS, VALUES, max_size=3),
    label_names=st.none() | st.lists(TEXT, max_size=5),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(record=RECORDS, mapped=st.booleans())
def test_random_records_come_back_identical_from_identical_bytes(record, mapped, identical):
    with tempfile.TemporaryDirectory() as path:
        write_model(path, record)
        first = snapshot(path)
        found = read_model(path, mapped=mapped)
        assert identical(record, found)
        write_model(path, found)
        assert snapshot(path) == first


def snapshot(path):
    return {entry.name: open(entry, "rb").read() for entry in os.scandir(path)}


def test_other_tools_can_read_the_tensors(tmp_path, make_record):
    record = make_record()
    write_model(tmp_path / "m", record)
    (file,) = (tmp_path / "m").glob("*.safetensors")
    arrays = load_file(file)
    np.testing.assert_array_equal(arrays["W"], record.tensors["W"])
    np.testing.assert_array_equal(arrays["S.indices"], record.tensors["S"].indices)
    np.testing.assert_array_equal(arrays["parameters.positive_weight"], record.parameters["positive_weight"])


def test_a_million_label_names_one_per_line(tmp_path):
    names = [f"label [{number}]" for number in range(1_000_000)]
    write_model(tmp_path / "m", ModelRecord("LEML", label_names=names))
    assert os.listdir(tmp_path / "m") == ["manifest.json"]
    assert read_model(tmp_path / "m").label_names == names
    assert (tmp_path / "m" / "manifest.json").read_bytes().count(b"\n") > 1_000_000


def test_memory_layouts_do_not_matter(tmp_path):
    base = np.arange(24.0).reshape(4, 6)
    matrix = sp.csr_array((np.ones(3), [0, 1, 1], [0, 1, 3]), shape=(2, 2))
    spare = sp.csr_matrix(matrix)
    spare.data, spare.indices = np.append(spare.data, 9.0), np.append(spare.indices, 7).astype(np.int32)
    read_only = base.copy()
    read_only.flags.writeable = False
    arrays = {
        "fortran": np.asfortranarray(base),
        "strided": base[::2, ::-3],
        "big": base.astype(">f8"),
        "read_only": read_only,
    }
    wide = sp.random(30, 20, 0.3, format="csr", random_state=0)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    matrices = {"array": matrix, "spare": spare, "wide": wide}
    for mapped in (False, True):
        write_model(tmp_path / "m", ModelRecord("LEML", tensors={**arrays, **matrices}))
        loaded = read_model(tmp_path / "m", mapped=mapped).tensors
        for name, array in arrays.items():
            np.testing.assert_array_equal(loaded[name], array)
            assert loaded[name].flags.c_contiguous
            assert loaded[name].dtype == np.float64
        np.testing.assert_array_equal(loaded["spare"].toarray(), matrix.toarray())
        for name, given_matrix in matrices.items():
            assert isinstance(loaded[name], sp.csr_matrix)
            assert loaded[name].data.shape == (given_matrix.indptr[-1],)
            np.testing.assert_array_equal(loaded[name].T.tocsr().toarray(), loaded[name].toarray().T)
            loaded[name].data[:] = 0  # writable, and the file stays as it is


def test_numpy_scalars_become_python_numbers(tmp_path):
    scalars = {"a": np.float64(0.1), "b": np.int32(-7), "c": np.bool_(True), "d": np.float32(0.1), "e": np.str_("x")}
    write_model(tmp_path / "m", ModelRecord("LEML", parameters={**scalars, "f": np.float64("nan")}))
    loaded = read_model(tmp_path / "m").parameters
    assert np.isnan(loaded.pop("f"))
    assert loaded == scalars
    assert [type(value) for value in loaded.values()] == [float, int, bool, float, str]


def test_what_the_format_cannot_hold_is_refused_before_the_disk_is_touched(tmp_path, monkeypatch):
    nested = 0
    for _ in range(100_000):
        nested = [nested]
    monkeypatch.setattr(folder, "MAX_MANIFEST_BYTES", 2000)
    refused = [
        (ModelRecord("not a name"), "class_name"),
        (ModelRecord("A", parameters={"f": len}), r"parameters\.f is of type builtin_function"),
        (ModelRecord("A", parameters={"n": [{"x": {1}}]}), r"parameters\.n\.0\.x is of type set"),
        (ModelRecord("A", parameters={"z": 1j}), "complex"),
        (ModelRecord("A", values={1: 2}), "key 1"),
        (ModelRecord("A", values={"$array": 0}), "does not start with"),
        (ModelRecord("A", values={"s": "\ud800"}), "surrogate"),
        (ModelRecord("A", values={"deep": nested}), "nested too deep"),
        (ModelRecord("A", label_names=["\udcff"]), "surrogate"),
        (ModelRecord("A", label_names=["x" * 50] * 50), "manifest would have"),
        (ModelRecord("A", tensors={"x": [1.0]}), "found list"),
        (ModelRecord("A", tensors={"x": np.array(["a"])}), "entries of type <U1"),
        (ModelRecord("A", tensors={"x": np.ma.ones(1)}), "MaskedArray"),
        (ModelRecord("A", tensors={"x": sp.eye(3).tocsc()}), "CSR"),
    ]
    for record, words in refused:
        with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
            write_model(tmp_path / "m", record)
    assert not os.listdir(tmp_path)
    for path in (b"bytes", 3, None, "", "a\0b"):
        for call in (read_model, lambda path: write_model(path, ModelRecord("A"))):
            with pytest.raises((InvalidInputError, InvalidTypeError), match="path must"):
                call(path)


def test_reading_imports_nothing_heavy(tmp_path, make_record):
    write_model(tmp_path / "m", make_record())
    code = """
import sys
import tagwise.exceptions, scipy.sparse
before = set(sys.modules)
from tagwise.store import read_model
read_model(sys.argv[1])
new = {name.partition(".")[0] for name in set(sys.modules) - before}
assert "numba" not in sys.modules, "numba"
assert not new & {"sklearn", "joblib", "pandas", "torch", "click", "rich"}, new
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "m")], check=True)


# ---------------------------------------------------------------------- places


def test_models_are_replaced_where_that_is_wanted_and_other_files_stay(tmp_path, make_record, identical):
    path = tmp_path / "a" / "b" / "m"
    for seed in range(3):
        write_model(path, make_record(seed))
        assert identical(make_record(seed), read_model(str(path)))
        assert len(os.listdir(path)) == 2
    (path / "README.txt").write_text("about this model")
    (tmp_path / "link").symlink_to(path)
    write_model(tmp_path / "link", make_record(0))
    assert identical(make_record(0), read_model(path))
    assert len(os.listdir(path)) == 3
    before = snapshot(path)
    with pytest.raises(InvalidInputError, match="overwrite is False"):
        write_model(path, make_record(1), overwrite=False)
    assert snapshot(path) == before
    manifest = path / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:300])  # damaged, and still ours
    write_model(path, make_record(1))
    assert identical(make_record(1), read_model(path))


def test_what_is_not_ours_is_refused_untouched(tmp_path, make_record):
    others = [
        ("notes.txt", b"mine", "'notes.txt'"),
        ("manifest.json", b'{"name": "a web page"}', "not a manifest of a tagwise model"),
        ("manifest.json", b"", "not a manifest of a tagwise model"),
        ("model-1.safetensors", b"", "'model-1.safetensors'"),
        (".other.0123456789abcdef.tmp", b"", "other"),
    ]
    for number, (name, content, words) in enumerate(others):
        path = tmp_path / str(number)
        path.mkdir()
        (path / name).write_bytes(content)
        with pytest.raises(InvalidInputError, match=words):
            write_model(path, make_record())
        assert snapshot(path) == {name: content}
        for place, refusal in ((path / name, "is a file"), (path, words)):
            with pytest.raises(InvalidInputError, match=refusal):
                folder.check_destination(place)
    write_model(tmp_path / "a", make_record())
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "manifest.json").symlink_to(tmp_path / "a" / "manifest.json")
    with pytest.raises(InvalidInputError, match="not a manifest of a tagwise model"):
        write_model(tmp_path / "b", make_record(1))
    folder.check_destination(tmp_path / "a")
    folder.check_destination(tmp_path / "new" / "m")
    with pytest.raises(InvalidInputError, match=r"cannot be made, since .* is a file"):
        folder.check_destination(tmp_path / "a" / "manifest.json" / "m")
    with pytest.raises(NotADirectoryError, match="could not be saved"):
        write_model(tmp_path / "a" / "manifest.json" / "m", make_record())


def test_leftovers_of_a_crashed_first_save_are_no_obstacle(tmp_path, make_record, identical):
    (tmp_path / f"model-{'0' * 32}.safetensors").write_bytes(b"half")
    (tmp_path / ".manifest.json.0123456789abcdef.tmp").write_bytes(b"{")
    (tmp_path / f".model-{'1' * 32}.safetensors.0123456789abcdef.tmp").write_bytes(b"half")
    (tmp_path / ".tmpLgWacD").write_bytes(b"what safetensors had written")
    with pytest.raises(ModelFormatError, match=r"no manifest\.json"):
        read_model(tmp_path)
    folder.check_destination(tmp_path, overwrite=False)
    write_model(tmp_path, make_record(), overwrite=False)
    assert identical(make_record(), read_model(tmp_path))
    assert len(os.listdir(tmp_path)) == 2


# ---------------------------------------------------------------------- failures


def test_failed_and_interrupted_saves_leave_what_was_there(tmp_path, make_record, monkeypatch):
    """Also where old and new model share the file of tensors."""
    tensors = {"W": np.arange(5.0)}
    write_model(tmp_path / "m", ModelRecord("LEML", {"reg": 1.0}, tensors))
    before = snapshot(tmp_path / "m")
    for name, error in (("replace", OSError(errno.ENOSPC, "No space left")), ("fsync", KeyboardInterrupt())):
        with monkeypatch.context() as patched:

            def fail(*_, error=error):
                raise error

            patched.setattr(os, name, fail)
            for path in (tmp_path / "m", tmp_path / "new" / "m"):
                with pytest.raises(type(error)):
                    write_model(path, ModelRecord("LEML", {"reg": 2.0}, tensors))
        assert snapshot(tmp_path / "m") == before
        assert os.listdir(tmp_path) == ["m"]
    write_model(tmp_path / "m", ModelRecord("LEML", {"reg": 2.0}, tensors))
    assert read_model(tmp_path / "m").parameters == {"reg": 2.0}


def test_a_reader_that_loses_the_race_reads_the_new_model(tmp_path, make_record, identical, monkeypatch):
    write_model(tmp_path / "m", make_record(0))
    read_tensors, races = folder.read_tensors, iter([1, 2])

    def save_first(*args, **options):
        for seed in races:
            write_model(tmp_path / "m", make_record(seed))
            break
        return read_tensors(*args, **options)

    monkeypatch.setattr(folder, "read_tensors", save_first)
    assert identical(make_record(2), read_model(tmp_path / "m"))
