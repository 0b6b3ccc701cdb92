"""Records of Parquet files, which pyarrow reads: an extra.

A Parquet file can be packed very tightly: a text that a million rows share is stored once. pyarrow spells out 64 rows
at a time, and what they take counts as what a compressed file expands to (:mod:`tagwise.data.streams`). A list within
one row is spelled out before it can be counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tagwise.data.columns import Dialect
from tagwise.data.formats import FileFormat
from tagwise.data.records import Records, Unreadable
from tagwise.data.streams import (
    LINE_BYTES,
    Expansion,
    UnskippableError,
    checked_path,
    damage_as_parse_error,
    longest_line,
    open_file,
)
from tagwise.exceptions import InvalidInputError

__all__ = ["ParquetRecords"]

_BATCH = 64
_OUT_OF_RANGE = "<value out of range"


class ParquetRecords(Records):
    """The rows of a Parquet file; ``line`` is the number of the row, from 1.

    Dates, times and decimals are given as texts, durations as whole numbers of their unit. A value that Python has no
    object for is :class:`Unreadable`, so that a column that nobody asks for does no harm.
    """

    has_lines = False

    def __init__(self, path: str, dialect: Dialect, entry: FileFormat, line_by_line: bool = False) -> None:
        if dialect.encoding is not None:
            raise InvalidInputError(f"{dialect.option('encoding')} is for lines of text; {path} is read as parquet.")
        try:
            import pyarrow
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise InvalidInputError(
                f"{path} is a Parquet file, which needs pyarrow; install it: pip install 'tagwise[parquet]'"
            ) from None
        self.path, self._arrow, self._longest = checked_path(path), pyarrow, longest_line()
        with open_file(self.path) as stream:
            self._expansion = Expansion(self.path, os.fstat(stream.fileno()).st_size)
        with damage_as_parse_error(self.path, "Parquet file", lambda: self.line and self.line + 1):
            self._file = ParquetFile(self.path)
            # Not the metadata of columns: pyarrow 26 ends the process where these are damaged.
            self._total = self._file.metadata.num_rows
            self._expansion.count(LINE_BYTES * self._total)
            self._expansion.used = 0
            self.columns: list[str] = list(self._file.schema_arrow.names)
        self._rows = self._all()

    def next(self) -> dict[str, Any] | None:
        """The next record, or None at the end."""
        record = next(self._rows, None)
        self.line += record is not None
        return record

    def fraction_read(self) -> float:
        """The part of the file consumed so far, in [0, 1]."""
        return self.line / self._total if self._total else 1.0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _all(self) -> Iterator[dict[str, Any]]:
        with damage_as_parse_error(self.path, "Parquet file", lambda: self.line and self.line + 1):
            for batch in self._file.iter_batches(batch_size=_BATCH):
                for place in range(batch.num_rows if batch.nbytes > self._longest else 0):
                    if batch.slice(place, 1).nbytes > self._longest:
                        reason = (
                            f"the row has more than {self._longest:,} bytes; shorten it, or raise the environment "
                            "variable TAGWISE_LONGEST_LINE"
                        )
                        raise UnskippableError(self.path, self.line + 1 + place, 0, reason)
                self._expansion.count(max(batch.nbytes, LINE_BYTES * batch.num_rows), self.line + 1)
                for row in zip(*map(self._values, batch.columns)):
                    yield dict(zip(self.columns, row))

    def _values(self, array: Any) -> list[Any]:
        """The values as Python's objects."""
        types = self._arrow.types
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
