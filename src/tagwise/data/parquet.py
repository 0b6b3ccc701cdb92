"""Records of Parquet files, which pyarrow reads and writes: an extra.

A Parquet file can be packed very tightly: a text that a million rows share is stored once, and so is a list of a
million equal numbers. What a file announces is therefore checked before pyarrow takes memory for it, and texts are
spelled out only so many rows at a time as are within the limits of :mod:`tagwise.data.streams`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from tagwise.data.records import Records, Unreadable
from tagwise.data.streams import (
    LINE_BYTES,
    NUMBER_BYTES,
    Expansion,
    UnskippableError,
    checked_path,
    longest_line,
    open_file,
)
from tagwise.exceptions import InvalidInputError, TagwiseError

__all__ = ["ParquetRecords", "ParquetRows", "column_kind"]

_BATCH = 1024
_LONGEST_LIST = 10**6  # of the metadata; pyarrow has the same limit
# Fields of Parquet's metadata, by their numbers in its Thrift definition.
_ROWS_IN_ALL, _ROW_GROUPS = 3, 4
_COLUMNS, _BYTES = 1, 2  # of a row group
_METADATA, _VALUES = 3, 5  # of a column, and of its metadata
_OUT_OF_RANGE = "<value out of range"


class ParquetRecords(Records):
    """The rows of a Parquet file; ``line`` is the number of the row, from 1.

    Dates, times and decimals are given as texts, durations as whole numbers of their unit. A value that Python has no
    object for is :class:`Unreadable`, so that a column that nobody asks for does no harm.
    """

    def __init__(self, path: str) -> None:
        with _pyarrow_needed(path):
            import pyarrow
            import pyarrow.compute
            from pyarrow.parquet import ParquetFile
        self.path, self._arrow = checked_path(path), pyarrow
        with open_file(self.path) as stream:
            self._expansion = Expansion(self.path, os.fstat(stream.fileno()).st_size)
        self._longest = longest_line()
        with self._damage_as_parse_error():
            self._file = ParquetFile(self.path)
            leaves = [self._file.schema.column(leaf) for leaf in range(len(self._file.schema))]
            self._count_what_is_announced(leaves)
            texts = [leaf for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
            self._single_texts = [leaf.path for leaf in texts if leaf.max_repetition_level == 0]
            # Lists of texts are read as places in a dictionary. For single texts that would be slow where all differ.
            listed = [leaf.path for leaf in texts if leaf.max_repetition_level > 0]
            self._longest_fixed = max([leaf.length for leaf in leaves if "FIXED" in leaf.physical_type], default=0)
            metadata = self._file.metadata
            self._file.close()
            self._file = ParquetFile(self.path, metadata=metadata, read_dictionary=listed)
            self._dictionaries = ParquetFile(self.path, metadata=metadata, read_dictionary=self._single_texts)
            self._total = metadata.num_rows
            self.columns: list[str] = list(self._file.schema_arrow.names)
        self._rows = self._all()

    def next(self) -> dict[str, Any] | None:
        """The next row, or None at the end."""
        record = next(self._rows, None)
        self.line += record is not None
        return record

    def fraction_read(self) -> float:
        """The part of the rows consumed so far, in [0, 1]."""
        return self.line / self._total if self._total else 1.0

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._dictionaries.close()

    def _count_what_is_announced(self, leaves: list[Any]) -> None:
        """Refuse what would expand too much, by what the file says about itself."""
        # Not by pyarrow's metadata of columns: version 26 ends the process where these are damaged.
        with open_file(self.path) as stream:
            stream.seek(-8, os.SEEK_END)
            size = int.from_bytes(stream.read(4), "little")
            stream.seek(-8 - size, os.SEEK_END)
            footer = _thrift_struct(stream.read(size), 0)[0]
        self._expansion.count(LINE_BYTES * max(0, footer[_ROWS_IN_ALL]))
        for group in footer.get(_ROW_GROUPS, ()):
            self._expansion.count(max(0, group[_BYTES]))
            for leaf, column in zip(leaves, group[_COLUMNS]):
                if leaf.max_repetition_level:
                    width = max(NUMBER_BYTES, leaf.length or 0)
                    self._expansion.count(width * max(0, column[_METADATA][_VALUES]))

    def _all(self) -> Iterator[dict[str, Any]]:
        with self._damage_as_parse_error():
            self._expansion.used = 0  # from here on what is really there is counted
            for group in range(self._file.num_row_groups):
                for batch in self._file.iter_batches(batch_size=self._rows_at_once(group), row_groups=[group]):
                    for part in self._parts(batch):
                        values = [self._values(column) for column in part.columns]
                        for row in zip(*values):
                            yield dict(zip(self.columns, row))

    def _rows_at_once(self, group: int) -> int:
        """So few rows that even the longest text of the dictionaries in all of them would be within the limit."""
        longest = self._longest_fixed
        if self._single_texts:
            rows = self._dictionaries.iter_batches(batch_size=1, row_groups=[group], columns=self._single_texts)
            first = next(rows, None)
            longest = max([longest, *map(self._longest_text, first.columns if first is not None else ())])
        return max(1, min(_BATCH, self._longest // max(1, longest)))

    def _longest_text(self, array: Any) -> int:
        if self._arrow.types.is_dictionary(array.type):
            return self._arrow.compute.max(self._arrow.compute.binary_length(array.dictionary)).as_py() or 0
        nested = array.flatten() if self._arrow.types.is_struct(array.type) else ()
        return max(map(self._longest_text, nested), default=0)

    def _parts(self, batch: Any) -> Iterator[Any]:
        """The batch in parts that may be spelled out at once."""
        size = sum(self._spelled_bytes(column) for column in batch.columns if column.null_count < len(column))
        if size <= self._longest:
            self._expansion.count(max(size, LINE_BYTES * batch.num_rows), self.line + 1)
            yield batch
        elif batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self._parts(batch.slice(0, half))
            yield from self._parts(batch.slice(half))
        else:
            reason = (
                f"the row has more than {self._longest:,} bytes; shorten it, or raise the environment variable "
                "TAGWISE_LONGEST_LINE"
            )
            raise UnskippableError(self.path, self.line + 1, 0, reason)

    def _spelled_bytes(self, array: Any) -> int:
        """The bytes of an array whose texts are spelled out; at least one per value."""
        types, compute = self._arrow.types, self._arrow.compute
        if types.is_dictionary(array.type):
            lengths = compute.binary_length(array.dictionary).take(array.indices)
            return len(array) + (compute.sum(lengths).as_py() or 0)
        if types.is_struct(array.type):
            return len(array) + sum(map(self._spelled_bytes, array.flatten()))
        if types.is_map(array.type):
            start, stop = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
            inner = (array.keys.slice(start, stop - start), array.items.slice(start, stop - start))
            return len(array) + sum(map(self._spelled_bytes, inner))
        if types.is_nested(array.type):
            return len(array) + self._spelled_bytes(array.flatten())
        return max(len(array), array.nbytes)

    def _values(self, array: Any) -> list[Any]:
        """The values as Python's objects."""
        types = self._arrow.types
        if types.is_list(array.type) and types.is_dictionary(array.type.value_type):
            array = array.cast(self._arrow.list_(array.type.value_type.value_type))
        try:
            if types.is_duration(array.type):
                return array.cast("int64").to_pylist()
            if not types.is_temporal(array.type) and not types.is_decimal(array.type):
                return array.to_pylist()
            texts = array.cast("string").to_pylist()
        except Exception:
            # One by one: the others are good.
            return [self._value(scalar) for scalar in array]
        return [Unreadable("a date out of range") if _OUT_OF_RANGE in (text or "") else text for text in texts]

    @staticmethod
    def _value(scalar: Any) -> Any:
        try:
            return scalar.as_py()
        except UnicodeDecodeError:
            return Unreadable("a text that is not valid UTF-8")
        except Exception:
            return Unreadable(f"a value of the type {scalar.type}, which Python has no object for")

    @contextmanager
    def _damage_as_parse_error(self) -> Iterator[None]:
        try:
            yield
        except (TagwiseError, GeneratorExit):
            raise
        except Exception as error:
            # pyarrow reports damage by a dozen types of exceptions. Faults of the disk have a number.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            what = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            reason = f"not a readable Parquet file: {what[:300]}; get or write the file again"
            raise UnskippableError(self.path, self.line + 1 if self.line else 0, 0, reason) from None


@contextmanager
def _pyarrow_needed(path: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise InvalidInputError(
            f"{path} is a Parquet file, which needs pyarrow; install it: pip install 'tagwise[parquet]'"
        ) from None


# ---------------------------------------------------------------------- write


def column_kind(before: str | None, value: Any) -> str | None:
    """What a column holds that was of the kind ``before`` and has this value too; None while nothing is known.

    ``"text"``, ``"whole"``, ``"number"``, ``"truth"`` and ``"texts"``, lists of texts, have columns of their own types;
    ``"json"`` is anything else, and mixtures.
    """
    if value is None:
        return before
    kinds = {str: "text", bool: "truth", float: "number"}
    kind = kinds.get(type(value), "json")
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        kind = "whole"
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        kind = "texts"
    if before in (None, kind):
        return kind
    return "number" if {before, kind} == {"whole", "number"} else "json"


class ParquetRows:
    """Writes rows to an open stream, in groups; use as a context manager.

    ``kinds`` says what each column holds (:func:`column_kind`), in the order of the columns; a value of a ``"json"``
    column is a text already.
    """

    def __init__(self, path: str, stream: IO[bytes], kinds: Mapping[str, str | None]) -> None:
        with _pyarrow_needed(path):
            import pyarrow
            from pyarrow.parquet import ParquetWriter
        types = {
            "text": pyarrow.string(),
            "json": pyarrow.string(),
            "whole": pyarrow.int64(),
            "number": pyarrow.float64(),
            "truth": pyarrow.bool_(),
            "texts": pyarrow.list_(pyarrow.string()),
        }
        self._arrow, self._rows = pyarrow, list[dict[str, Any]]()
        self._schema = pyarrow.schema([(name, types[kind or "text"]) for name, kind in kinds.items()])
        self._writer = ParquetWriter(stream, self._schema)

    def __enter__(self) -> ParquetRows:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self._flush()
        self._writer.close()

    def write(self, row: dict[str, Any]) -> None:
        """Add a row; columns that it lacks are null. Raises UnicodeEncodeError for text that is no Unicode."""
        for value in row.values():
            for text in value if isinstance(value, list) else (value,):
                if isinstance(text, str):
                    text.encode()
        self._rows.append(row)
        if len(self._rows) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, self._schema))
            self._rows.clear()


# ---------------------------------------------------------------------- Thrift's compact protocol


def _thrift_struct(buffer: bytes, position: int) -> tuple[dict[int, Any], int]:
    """The fields of a struct by their numbers, and the position after it."""
    fields: dict[int, Any] = {}
    number = 0
    while kind := buffer[position]:
        position += 1
        if kind >> 4:
            number += kind >> 4
        else:
            number, position = _thrift_integer(buffer, position)
        fields[number], position = _thrift_value(buffer, position, kind & 15, in_list=False)
    return fields, position + 1


def _thrift_value(buffer: bytes, position: int, kind: int, *, in_list: bool) -> tuple[Any, int]:
    if kind in (1, 2) and not in_list:  # true and false
        return kind == 1, position
    if kind in (1, 2, 3):
        return buffer[position], position + 1
    if kind in (4, 5, 6):
        return _thrift_integer(buffer, position)
    if kind == 7:
        return buffer[position + 7], position + 8  # a float, which nobody needs
    if kind == 8:
        size, position = _thrift_varint(buffer, position)
        return buffer[position : position + size], position + size
    if kind in (9, 10):
        size, kind, position = buffer[position] >> 4, buffer[position] & 15, position + 1
        if size == 15:
            size, position = _thrift_varint(buffer, position)
        if size > _LONGEST_LIST:
            raise ValueError(f"the metadata hold a list of {size:,}")
        values = []
        for _ in range(size):
            value, position = _thrift_value(buffer, position, kind, in_list=True)
            values.append(value)
        return values, position
    if kind == 12:
        return _thrift_struct(buffer, position)
    raise ValueError("the metadata hold a type that Parquet does not use")


def _thrift_varint(buffer: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, position
        if shift > 63:
            raise ValueError("the metadata hold a number that is too large")


def _thrift_integer(buffer: bytes, position: int) -> tuple[int, int]:
    number, position = _thrift_varint(buffer, position)
    return (number >> 1) ^ -(number & 1), position
