"""Every error and warning that a user of tagwise can meet.

All errors derive from :class:`TagwiseError`, so one ``except`` clause catches whatever the library raises on purpose.
Each also derives from the builtin (or scikit-learn) exception that fits, so generic code keeps working.
A message names the argument, says what was found and what to do about it.
"""

from __future__ import annotations

import sys
import warnings
from os import PathLike, fspath

import sklearn.exceptions

__all__ = [
    "ClusterError",
    "ConvergenceWarning",
    "DatasetNotFoundError",
    "ExplanationError",
    "InvalidInputError",
    "InvalidTypeError",
    "ModelFormatError",
    "NotFittedError",
    "ParseError",
    "TagwiseError",
    "TagwiseWarning",
]


class TagwiseError(Exception):
    """Base of every error that tagwise raises on purpose."""


class InvalidInputError(TagwiseError, ValueError):
    """An argument has a value, shape or content that cannot be used."""


class InvalidTypeError(TagwiseError, TypeError):
    """An argument has a type that cannot be used."""


class NotFittedError(TagwiseError, sklearn.exceptions.NotFittedError):
    """A fitted model was needed, but ``fit`` has not been called."""


class DatasetNotFoundError(TagwiseError, LookupError):
    """A data set name is known neither to tagwise nor to the data folders."""


class ClusterError(TagwiseError, RuntimeError):
    """A Dask cluster is missing, no longer answers, or has lost too many workers."""


class ExplanationError(TagwiseError, ValueError):
    """The model cannot explain its scores, which are not a sum of one part per feature."""


class ModelFormatError(TagwiseError, ValueError):
    """A model folder is missing, incomplete, damaged, of a newer format, or not one of tagwise's."""


class ParseError(TagwiseError, ValueError):
    """A data file breaks its format.

    Attributes
    ----------
    path : str
        The file.
    line : int
        Line number, from 1; 0 when the fault is in no particular line (an empty file, say).
    column : int
        Position in the line in bytes, from 1; 0 when the whole line is at fault.
    reason : str
        Content found and content expected.
    """

    def __init__(self, path: str | PathLike[str], line: int, column: int, reason: str) -> None:
        self.path = fspath(path)
        self.line = line
        self.column = column
        self.reason = reason
        where = f", line {line}" if line else ""
        where += f", column {column}" if column else ""
        super().__init__(f"{self.path}{where}: {reason}")

    def __reduce__(self) -> tuple[type[ParseError], tuple[str, int, int, str]]:
        # Exception's own rule would call __init__ with the finished message; worker processes must get the parts.
        return type(self), (self.path, self.line, self.column, self.reason)


class TagwiseWarning(UserWarning):
    """Base of every warning that tagwise emits."""


class ConvergenceWarning(TagwiseWarning, sklearn.exceptions.ConvergenceWarning):
    """A fit stopped before its optimality measure fell below the tolerance."""


# A kernel is called through numba.
_INSIDE = ("tagwise", "numba")


def warn(message: str, category: type[Warning] = TagwiseWarning) -> None:
    """Warn as coming from the line that called tagwise, however deep inside tagwise the reason was found."""
    depth, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth)
