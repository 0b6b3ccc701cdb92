"""Records of Parquet files, which pyarrow reads: an extra.

A Parquet file can be packed very tightly: a text that a million rows share is stored once. Texts are therefore read as
numbers of a dictionary, and spelled out only so many rows at a time as are within the limits of
:mod:`tagwise.data.streams`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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

__all__ = ["ParquetRecords"]

_ROWS = 1024
_OUT_OF_RANGE = "<value out of range"


class ParquetRecords(Records):
    """The rows of a Parquet file; ``line`` is the number of the row, from 1.

    Dates, times and decimals are given as texts, durations as whole numbers of their unit. A value that Python has no
    object for is :class:`Unreadable`, so that a column that nobody asks for does no harm.
    """

    def __init__(self, path: str) -> None:
        try:
            import pyarrow
            import pyarrow.compute
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise InvalidInputError(
                f"{path} is a Parquet file, which pyarrow reads; install it: pip install 'tagwise[parquet]'"
            ) from None
        self.path, self._arrow = checked_path(path), pyarrow
        with open_file(self.path) as stream:
            self._expansion = Expansion(self.path, os.fstat(stream.fileno()).st_size)
        self._longest = longest_line()
        with self._damage_as_parse_error():
            plain = ParquetFile(self.path)
            self._count_what_is_announced(plain.metadata)
            leaves = [plain.schema.column(leaf) for leaf in range(len(plain.schema))]
            texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
            plain.close()
            self._file = ParquetFile(self.path, read_dictionary=texts)
            self._total = self._file.metadata.num_rows
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

    def _count_what_is_announced(self, metadata: Any) -> None:
        """Refuse what would expand too much, by what the file says about itself."""
        # Not by column: pyarrow 26 ends the process where the metadata of a column are damaged.
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        self._expansion.count(LINE_BYTES * metadata.num_rows + sum(max(0, group.total_byte_size) for group in groups))

    def _all(self) -> Iterator[dict[str, Any]]:
        with self._damage_as_parse_error():
            self._expansion.used = 0  # from here on what is really there is counted
            for batch in self._file.iter_batches(batch_size=_ROWS):
                for part in self._parts(batch):
                    values = [self._values(column) for column in part.columns]
                    for row in zip(*values):
                        yield dict(zip(self.columns, row))

    def _parts(self, batch: Any) -> Iterator[Any]:
        """The batch in parts that may be spelled out at once."""
        size = sum(map(self._spelled_bytes, batch.columns))
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
        """The bytes of an array whose texts are spelled out."""
        types, compute = self._arrow.types, self._arrow.compute
        if types.is_dictionary(array.type):
            lengths = compute.binary_length(array.dictionary).take(array.indices)
            return NUMBER_BYTES * len(array) + (compute.sum(lengths).as_py() or 0)
        if types.is_struct(array.type):
            return NUMBER_BYTES * len(array) + sum(map(self._spelled_bytes, array.flatten()))
        if types.is_map(array.type):
            start, stop = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
            inner = (array.keys.slice(start, stop - start), array.items.slice(start, stop - start))
            return NUMBER_BYTES * len(array) + sum(map(self._spelled_bytes, inner))
        if types.is_nested(array.type):
            return NUMBER_BYTES * len(array) + self._spelled_bytes(array.flatten())
        return NUMBER_BYTES * len(array) + array.nbytes

    def _values(self, array: Any) -> list[Any]:
        """The values as Python's objects."""
        types = self._arrow.types
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
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
            what = " ".join(str(error).split()) or type(error).__name__
            reason = f"not a readable Parquet file: {what[:300]}; get or write the file again"
            raise UnskippableError(self.path, self.line + 1 if self.line else 0, 0, reason) from None
