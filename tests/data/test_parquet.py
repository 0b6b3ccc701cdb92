"""Parquet files: every type of column, damage of every kind, and files that are packed tightly."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path

import numpy as np
import pytest

from tagwise.data.columns import Dialect
from tagwise.data.tables import TableReader, read_table
from tagwise.exceptions import InvalidInputError, ParseError

pa = pytest.importorskip("pyarrow", reason="pyarrow, which reads Parquet, is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow, which reads Parquet, is not installed")

DAY = datetime.datetime(2020, 1, 2, 3, 4, 5)
ODD = {
    "nanoseconds": pa.array([1_600_000_000_123_456_789, None], pa.timestamp("ns")),
    "zone": pa.array([DAY, None], pa.timestamp("ns", "UTC")),
    "duration": pa.array([1, 5], pa.duration("ns")),
    "time": pa.array([1, 5], pa.time64("ns")),
    "day": pa.array([DAY.date(), None], pa.date32()),
    "far": pa.array([2**30, -(2**30)], pa.int32()).cast(pa.date32()),
    "far second": pa.array([2**62, 0], pa.int64()).cast(pa.timestamp("us")),
    "price": pa.array([decimal.Decimal("1.50"), None]),
    "bytes": pa.array([b"\xff\x00", b""]),
    "invalid": pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"\xffa")]
    ),
    "map": pa.array([[("k", "v")], []], pa.map_(pa.string(), pa.string())),
    "struct": pa.array([{"s": "x", "t": ["q", None]}, None]),
    "nothing": pa.nulls(2),
    "category": pa.array(["x", "y"]).dictionary_encode(),
    "large": pa.array(["x", "y"], pa.large_string()),
    "many": pa.array([["x"], ["y", "z"]], pa.large_list(pa.string())),
    "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
}


@pytest.fixture
def parquet(tmp_path):
    def write(columns, **options):
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table({"text": ["one", "two"], "tags": [["a"], ["b"]]} | columns), path, **options)
        return str(path)

    return write


def test_columns_that_nobody_asks_for_do_no_harm(parquet):
    for name, values in ODD.items():
        assert read_table(parquet({name: values}), Dialect()).tags == [["a"], ["b"]], name


def test_times_and_decimals_are_texts(parquet):
    names = ("nanoseconds", "day", "time", "price", "duration")
    with TableReader(parquet({name: ODD[name] for name in names}), Dialect()) as reader:
        first = next(iter(reader)).fields
    assert first["nanoseconds"] == "2020-09-13 12:26:40.123456789"
    assert (first["day"], first["price"], first["duration"]) == ("2020-01-02", "1.50", 1)
    assert first["time"].startswith("00:00:00.000000001")


def test_a_column_that_is_asked_for_is_a_fault_of_its_row(parquet):
    for name, reason in (("invalid", "not valid UTF-8"), ("far", "a date out of range"), ("bytes", "found bytes")):
        with pytest.raises(ParseError, match=f"line 1: .*{reason}"):
            read_table(parquet({name: ODD[name]}), Dialect(text=name))
    path = parquet({"invalid": ODD["invalid"]})
    assert read_table(path, Dialect(text="invalid", skip_faulty=True)).texts == ["a"]


def test_a_column_that_occurs_twice(tmp_path):
    path = tmp_path / "rows.parquet"
    table = pa.Table.from_arrays([pa.array(["one"]), pa.array([["a"]]), pa.array(["two"])], ["text", "tags", "text"])
    pq.write_table(table, path)
    with pytest.raises(ParseError, match="the column 'text' occurs 2 times"):
        read_table(str(path), Dialect())


def test_damage_of_every_byte(parquet, tmp_path):
    path = parquet({"n": [1, 2], "day": ODD["day"]}, compression="none", write_page_checksum=True)
    content = Path(path).read_bytes()
    damaged = tmp_path / "damaged.parquet"
    messages = []
    for place in range(0, len(content), 3):
        damaged.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        try:
            read_table(str(damaged), Dialect())
        except (ParseError, InvalidInputError) as error:  # the latter where the name of a column was changed
            messages.append(str(error))
    assert len(messages) > len(content) // 10
    assert all(message.startswith(str(damaged)) for message in messages)


def test_what_is_no_parquet_file(tmp_path):
    path = tmp_path / "rows.parquet"
    for content in (b"", b"PAR1", b"PAR1PAR1", b"text,tags\none,a\n", b"PAR1" + bytes(100) + b"PAR1"):
        path.write_bytes(content)
        with pytest.raises(ParseError, match=r"rows.parquet: not a readable Parquet file: .*; get or write the file"):
            read_table(str(path), Dialect())


def equal(text: str, count: int):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def test_files_that_expand_are_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    usual = pa.default_memory_pool()
    for columns in (
        {"text": equal("a" * 10**6, 2000), "tags": equal("t", 2000)},
        {"text": equal("a", 10**6), "tags": equal("t", 10**6)},
        {"text": ["a"], "tags": pa.ListArray.from_arrays(pa.array([0, 10**7]), equal("t", 10**7))},
        {"text": ["a" * (3 * 10**7)], "tags": ["t"]},
        {"text": ["a"] * 4, "tags": [["t"]] * 4, "x": pa.array([[1.0] * 10**6] * 4)},
    ):
        pq.write_table(pa.table(columns), path, compression="zstd")
        assert path.stat().st_size < 100_000
        counted = pa.proxy_memory_pool(pa.system_memory_pool())
        pa.set_memory_pool(counted)
        try:
            with pytest.raises(ParseError, match=r"expands to more than|the row has more than"):
                read_table(str(path), Dialect())
        finally:
            pa.set_memory_pool(usual)
        assert counted.max_memory() < 256 * 2**20


def test_a_wide_table_of_nothing_is_read(parquet):
    empty = {f"c{number}": pa.nulls(2) for number in range(3000)}
    assert read_table(parquet(empty), Dialect()).texts == ["one", "two"]
