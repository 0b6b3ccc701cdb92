"""Checkpoints: the state of a running fit, in a folder from which a later run resumes.

A checkpoint is a folder of the model format whose class is ``Checkpoint``: written atomically, read without running any
code. Its parameters say which fit it belongs to (:func:`fit_identity`); its values and tensors are the history of the
fit and what it has learnt. Specified in ``docs/checkpoints.md``.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise._version import __version__
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError, TagwiseWarning, warn
from tagwise.feature_blocks import FeatureBlocks
from tagwise.store.folder import (
    JSON,
    MANIFEST_NAME,
    MISFITS,
    ModelRecord,
    as_path,
    check_destination,
    model_from_parts,
    read_manifest,
    read_model,
    remove_model,
    require_same,
    storable_parameters,
    write_model,
)
from tagwise.store.tensors import Tensor, digest, require
from tagwise.validation import check_integer, check_real, shape_text

__all__ = ["Checkpoint", "OpenCheckpoint", "differences", "fit_identity", "open_checkpoint"]

History: TypeAlias = list[dict[str, Any]]
Identity: TypeAlias = dict[str, JSON]

# The result does not depend on these parameters.
_NOT_OF_THE_FIT = ("n_jobs", "verbose")
_CLASS_NAME = "Checkpoint"
_CLASS_FIELD = re.compile(rb'"class"\s*:\s*"' + _CLASS_NAME.encode() + rb'"')


class Checkpoint:
    """A folder in which a fit keeps its state, and from which the same fit resumes after it was interrupted.

    ``model.fit(X, Y, checkpoint=Checkpoint("folder"))`` writes the state while it runs. Called again with the same data
    and parameters, in another process too, after Ctrl-C, a crash or ``kill -9``, it resumes there and ends with the
    same bits as an uninterrupted fit. With other data or parameters it is refused. When the fit is over and its model
    saved, :meth:`discard` the checkpoint.

    Parameters
    ----------
    folder : path
        Created if it does not exist; otherwise it must be empty or hold a checkpoint.
    every : int or None
        Write after this many iterations.
    seconds : float or None
        Write after the first iteration that ends this many seconds or more after the last write. With both, whichever
        comes first; at least one must be given.

    Notes
    -----
    A checkpoint is replaced atomically: a reader, and a run after a crash at any moment, finds the last complete one.
    docs/checkpoints.md says what the state of each model takes on disk; the identity of the data costs one SHA-256 of
    X, Y and the mask at the start of the fit. If a write fails during a fit (a full disk), the fit warns and continues;
    the last checkpoint stays.

    Examples
    --------
    >>> import tempfile
    >>> from tagwise import LEML, Checkpoint
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(folder + "/checkpoint", every=2)
    ...     model = LEML(rank=20, tol=0.5).fit(data.X_train, data.Y_train, checkpoint=checkpoint)
    ...     checkpoint.discard()
    """

    def __init__(self, folder: str | os.PathLike[str], *, every: int | None = 1, seconds: float | None = None) -> None:
        self.folder: Path = as_path(folder)
        self.every = None if every is None else check_integer(every, "every", minimum=1)
        self.seconds = None if seconds is None else check_real(seconds, "seconds", minimum=0, open_minimum=True)
        if self.every is None and self.seconds is None:
            raise InvalidInputError("every and seconds are both None; say how often to write the checkpoint.")

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.folder)!r}, every={self.every}, seconds={self.seconds})"

    def exists(self) -> bool:
        """Whether the folder holds a state to resume from, or foreign content that a fit would refuse.

        A fit that stopped before its first state was written has left nothing.
        """
        return os.path.lexists(self.folder / MANIFEST_NAME)

    def discard(self) -> None:
        """Remove the checkpoint, and its folder if nothing else is in it. A damaged one is removed too.

        Raises
        ------
        InvalidInputError
            The folder holds a model or other things; nothing was removed.
        """
        if not self.folder.is_dir():
            return
        if self.exists() and not _CLASS_FIELD.search(read_manifest(self.folder)):
            raise InvalidInputError(f"{self.folder} holds something other than a checkpoint; nothing was removed.")
        remove_model(self.folder)

    def open(self, identity: Identity) -> OpenCheckpoint:
        """Read the state in the folder, if there is one; called by ``fit`` before any work starts.

        Raises
        ------
        InvalidInputError
            The folder holds the state of another fit, or a model, or other things; or it cannot be written.
        ModelFormatError
            It holds a checkpoint that is damaged.
        """
        opened = OpenCheckpoint(self, identity)
        if not self.exists():
            check_destination(self.folder)
            return opened
        with opened.refusing_misfits():
            record = read_model(self.folder)
        if record.class_name != _CLASS_NAME:
            raise InvalidInputError(
                f"checkpoint: {self.folder} holds a finished model of class {record.class_name}, which "
                "tagwise.load reads; choose another folder for the checkpoint of a fit."
            )
        with opened.refusing_misfits():
            require_same("parameters", set(record.parameters), set(identity))
            changes = differences(identity, record.parameters)
            opened.kept, opened.history = _kept_in(record)
        if changes:
            raise InvalidInputError(
                f"checkpoint: {self.folder} holds the state of another fit: {'; '.join(changes)}. Fit with the "
                "same data and parameters to resume, or choose another folder to start over."
            )
        return opened


class OpenCheckpoint:
    """The checkpoint of one fit while it runs. As a context it takes the failure of a resumed fit for one of its state.

    ``kept`` and ``history`` are as they were read; empty if there was nothing.
    """

    def __init__(self, checkpoint: Checkpoint, identity: Identity) -> None:
        self._checkpoint, self._identity = checkpoint, identity
        self.folder = checkpoint.folder
        self.kept: dict[str, Any] = {}
        self.history: History = []
        self.excused: BaseException | None = None
        self._iterations, self._written_at = 0, time.monotonic()

    def __enter__(self) -> OpenCheckpoint:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # The same data and parameters have led to this state before: it is the state that cannot be right.
        blamed = self.kept and error is not self.excused
        if blamed and isinstance(error, MISFITS) and not isinstance(error, ModelFormatError):
            with self.refusing_misfits():
                raise error

    @contextmanager
    def refusing_misfits(self) -> Iterator[None]:
        """Turn errors of content that does not fit into a ModelFormatError."""
        try:
            yield
        except MISFITS as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else f"{error!s:.500}".removesuffix(".")
            raise ModelFormatError(
                f"The checkpoint cannot be used: its content does not fit {self._identity['class']} ({reason}). Remove "
                f"it with Checkpoint({str(self.folder)!r}).discard() to start over."
            ) from None

    def save(self, kept: dict[str, Any], history: History, *, now: bool = False) -> None:
        """Replace the checkpoint by what has been learnt, if it is time to, or ``now``."""
        self._iterations += not now
        every, seconds = self._checkpoint.every, self._checkpoint.seconds
        late = seconds is not None and time.monotonic() - self._written_at >= seconds
        if not (now or late or (every is not None and self._iterations >= every)):
            return
        models = {name: content for name, content in kept.items() if hasattr(content, "to_parts")}
        others = {name: content for name, content in kept.items() if name not in models}
        record = ModelRecord(_CLASS_NAME, self._identity, {}, {"history": history, "kept": others})
        for name, model in models.items():
            record = record.with_model(name, model.to_parts())
        try:
            write_model(self.folder, record)
        except OSError as error:
            # Hours of a fit are worth more than a checkpoint of it; the last one is still there.
            reason = os.strerror(error.errno or errno.EIO)
            sentence = f"The checkpoint in {self.folder} could not be written: {reason}; the fit continues, and the "
            warn(f"{sentence}last checkpoint stays.", TagwiseWarning)
        self._iterations, self._written_at = 0, time.monotonic()


def open_checkpoint(
    checkpoint: Any, class_name: str, parameters: dict[str, Any], data: Mapping[str, Tensor | None]
) -> OpenCheckpoint:
    """The checkpoint, opened for the fit of a model with this class, these parameters and this checked data.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        It is not a checkpoint; or a later run could not repeat this fit.
    """
    if not isinstance(checkpoint, Checkpoint):
        raise InvalidTypeError(f"checkpoint must be a tagwise.store.Checkpoint or None; found {checkpoint!r:.60}.")
    relevant = {name: value for name, value in parameters.items() if name not in _NOT_OF_THE_FIT}
    for name, value in relevant.items():
        if name == "random_state" and not isinstance(value, (int, np.integer)):
            raise InvalidInputError(
                "checkpoint needs random_state to be a whole number, so that a later run draws the same numbers; found "
                f"{value!r:.60}."
            )
        if callable(value):
            raise InvalidInputError(
                f"checkpoint: {name} is a function, and a later run could not tell whether it is the same one; use a "
                "named one, or leave checkpoint out."
            )
    return checkpoint.open(fit_identity(class_name, storable_parameters(relevant), data))


def _kept_in(record: ModelRecord) -> tuple[dict[str, Any], History]:
    """The state and history of a fit, from a record that may come from anyone."""
    history, kept = record.values["history"], record.values["kept"]
    models: dict[str, Any] = {}
    for name in sorted(set(record.values) - {"history", "kept"}):
        inner, record = record.split_model(name)
        models[name] = model_from_parts(inner)
    numbers = [[type(info[name]) for name in ("iteration", "objective", "seconds")] for info in history]
    plain = all(set(types) <= {int, float} for types in numbers)
    counted = [info["iteration"] for info in history] == list(range(1, len(history) + 1))
    require(plain and counted, "the history must list iteration, objective and seconds of every iteration.")
    return {**kept, **models}, history


# ---------------------------------------------------------------------- which fit a state belongs to


def fit_identity(class_name: str, parameters: dict[str, JSON], data: Mapping[str, Tensor | None]) -> Identity:
    """Identity of a fit: it must be the same for a fit to resume from the state of an earlier run.

    Class and parameters, the tagwise version (another may take other steps), and type, shape and SHA-256 of every array
    that the fit learns from, None for one that is not given. Time: one SHA-256 of the data, of which nothing is copied.
    """
    tensors: dict[str, Tensor | None] = {}
    for name, value in data.items():
        blocks = {name: value.sparse, f"{name}.dense": value.dense} if isinstance(value, FeatureBlocks) else None
        tensors |= blocks or {name: value}
    return {
        "class": class_name,
        "tagwise_version": __version__,
        "parameters": {name: _described(value) for name, value in parameters.items()},
        "data": {name: _described(tensor) for name, tensor in tensors.items()},
    }


def _described(value: Any) -> JSON:
    """A plain value; form and digest of an array or matrix."""
    if not isinstance(value, np.ndarray) and not sp.issparse(value):
        return value
    kind = "CSR" if sp.issparse(value) else "an array"
    return {"form": f"{kind} of {value.dtype.name}, {shape_text(value.shape)}", "sha256": digest(value)}


def differences(mine: Identity, saved: Identity) -> list[str]:
    """Differences between a fit and the saved one; empty if it is the same."""
    if mine["class"] != saved["class"]:
        return [f"the model is {mine['class']} and was {saved['class']!s:.100}"]
    new, old = (
        {"tagwise_version": one["tagwise_version"], **one["parameters"], **one["data"]} for one in (mine, saved)
    )
    found = []
    for name in dict.fromkeys([*new, *old]):
        # Where a number is written as another type, it is equal; NaN is so as a text.
        if new.get(name) != old.get(name) and repr(new.get(name)) != repr(old.get(name)):
            now, before = _shown(new.get(name)), _shown(old.get(name))
            found.append(f"{name} has other values" if now == before else f"{name} is {now} and was {before}")
    return found


def _shown(value: JSON) -> str:
    if isinstance(value, dict) and "sha256" in value:
        return f"{value.get('form')!s:.60}"
    return f"{value!r:.60}"
