"""Checkpoints: the state of a fit under way, in a folder from which a later run goes on.

A checkpoint is a folder of the model format whose class is ``Checkpoint``: written atomically, read without running any
code. Its parameters say which fit it belongs to (:class:`FitIdentity`); its values and tensors are the history of the
fit and the states of its stages. Specified in ``docs/checkpoints.md``.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, ModelFormatError, TagwiseWarning, warn
from tagwise.persistence.fit_identity import FitIdentity
from tagwise.persistence.folder import MANIFEST_NAME, as_path, read_manifest, read_model, remove_model, write_model
from tagwise.persistence.manifest import Manifest
from tagwise.persistence.record import JSON, ModelRecord, Tensor
from tagwise.validation import check_integer, check_real

__all__ = ["ROUNDS", "Checkpoint", "FitState", "OpenCheckpoint", "SavedState"]

ROUNDS = "rounds"
"""The stage of a fit whose state changes from iteration to iteration."""

_CLASS_NAME = "Checkpoint"
_CLASS_FIELD = re.compile(rb'"class"\s*:\s*"' + _CLASS_NAME.encode() + rb'"')


class FitState(Protocol):
    """What a fit needs to go on from where it is: nothing that the data and the parameters give again."""

    def arrays(self) -> dict[str, Tensor]:
        """C-ordered arrays and CSR matrices."""
        ...

    def values(self) -> dict[str, JSON]:
        """Plain values."""
        ...


class SavedState:
    """A state as it was read. Its fields are checked when they are asked for, by ValueError and KeyError."""

    def __init__(self, arrays: dict[str, Tensor], values: dict[str, JSON]) -> None:
        self._arrays, self._values = arrays, values

    def arrays(self) -> dict[str, Tensor]:
        """All arrays, unchecked."""
        return self._arrays

    def values(self) -> dict[str, JSON]:
        """All values, unchecked."""
        return self._values

    def dense(self, name: str, shape: tuple[int | None, ...], dtype: Any) -> np.ndarray:
        """An array of this shape (None: any size) and type without NaN or infinity, as a copy that may be changed."""
        array = self._arrays[name]
        if not isinstance(array, np.ndarray) or array.dtype != dtype or not _fits(array.shape, shape):
            raise ValueError(f"{name} is {_described(array)} where {np.dtype(dtype)} of shape {shape} is needed")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity")
        return array.copy()

    def sparse(self, name: str, shape: tuple[int | None, int | None], dtype: Any) -> sp.csr_matrix:
        """A CSR matrix of this shape and type with rising indices and finite values."""
        matrix = self._arrays[name]
        if isinstance(matrix, np.ndarray) or matrix.dtype != dtype or not _fits(matrix.shape, shape):
            raise ValueError(f"{name} is {_described(matrix)} where CSR of {np.dtype(dtype)}, {shape}, is needed")
        if not matrix.has_canonical_format or not np.isfinite(matrix.data).all():
            raise ValueError(f"{name} holds NaN, infinity, or indices that do not rise")
        return matrix.copy()

    def real(self, name: str) -> float:
        """A finite number."""
        return check_real(self._values[name], name)

    def count(self, name: str, least: int, most: int) -> int:
        """A whole number in these bounds."""
        number = check_integer(self._values[name], name, minimum=least)
        if number > most:
            raise ValueError(f"{name} is {number}, above {most}")
        return number

    def flag(self, name: str) -> bool:
        """True or False."""
        value = self._values[name]
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r:.60}, neither true nor false")
        return value


class Checkpoint:
    """A folder in which a fit keeps its state, and from which the same fit goes on when it was cut off.

    ``model.fit(X, Y, checkpoint=Checkpoint("folder"))`` writes the state while it runs. Called again with the same data
    and parameters, by another process too, after Ctrl-C, a crash or ``kill -9``, it goes on from there and ends with
    the same bits as an uninterrupted fit. With other data or parameters it is refused. When the fit is over and its
    model saved, :meth:`discard` the checkpoint.

    Parameters
    ----------
    folder : path
        Made where it does not exist; else it must be empty or hold a checkpoint.
    every : int or None
        Write after so many iterations.
    seconds : float or None
        Write after an iteration that ends so many seconds after the last write, or later. With both, whichever comes
        first; at least one must be given.

    Notes
    -----
    A checkpoint is replaced atomically: a reader, and a run after a crash at any moment, finds the last one that was
    written whole. A write costs what the state takes on disk, which docs/checkpoints.md says for each model; the
    identity of the data costs one SHA-256 of X, Y and the mask at the start of the fit. If a write fails in the midst
    of a fit (a full disk), the fit warns and goes on; the last checkpoint stays.

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
            raise InvalidInputError("every and seconds are both None; say how often the checkpoint is to be written.")

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.folder)!r}, every={self.every}, seconds={self.seconds})"

    def exists(self) -> bool:
        """Whether the folder holds a state to go on from, or something else that a fit would stumble over.

        A fit that stopped before its first state was written has left nothing.
        """
        if not self._is_taken():
            return False
        try:
            manifest = Manifest.from_bytes(read_manifest(self.folder))
        except ModelFormatError:
            return True
        return manifest.class_name != _CLASS_NAME or bool(manifest.values.get("states"))

    def _is_taken(self) -> bool:
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
        if self._is_taken() and not _CLASS_FIELD.search(read_manifest(self.folder)):
            raise InvalidInputError(f"{self.folder} holds no checkpoint but something else; nothing was removed.")
        remove_model(self.folder)

    def open(self, identity: FitIdentity) -> OpenCheckpoint:
        """Read what the folder holds, or begin; called by ``fit`` before any work starts.

        Raises
        ------
        InvalidInputError
            The folder holds the state of another fit, or a model, or other things.
        ModelFormatError
            It holds a checkpoint that is damaged.
        OSError
            It cannot be written.
        """
        states, history = self._read(identity) if self._is_taken() else ({}, [])
        opened = OpenCheckpoint(self, identity, states, history)
        if not states:
            opened.write()
        return opened

    def _read(self, identity: FitIdentity) -> tuple[dict[str, SavedState], list[dict[str, Any]]]:
        try:
            record = read_model(self.folder)
            if record.class_name != _CLASS_NAME:
                raise InvalidInputError(
                    f"checkpoint: {self.folder} holds a model of class {record.class_name}; choose another folder."
                )
            states, history = _states_of(record)
            differences = identity.differences(FitIdentity.from_values(record.parameters))
        except ModelFormatError as error:
            raise ModelFormatError(f"The checkpoint cannot be used. {error} {self._way_out()}") from error.__cause__
        if not states:
            return {}, []
        if differences:
            raise InvalidInputError(
                f"checkpoint: {self.folder} holds the state of another fit: {'; '.join(differences)}. Fit with the "
                "same data and parameters to go on, or choose another folder to start anew."
            )
        return states, history

    def _way_out(self) -> str:
        return f"Remove it with Checkpoint({str(self.folder)!r}).discard() to start anew."


class OpenCheckpoint:
    """The checkpoint of one fit while it runs.

    Attributes
    ----------
    folder : Path
    history : list of dict
        The history as it was read; empty where there was nothing.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        identity: FitIdentity,
        states: dict[str, SavedState],
        history: list[dict[str, Any]],
    ) -> None:
        self._checkpoint, self._identity = checkpoint, identity
        self._saved, self._states = states, dict[str, FitState](states)
        self.folder, self.history = checkpoint.folder, history
        self._holds_state = bool(states)
        self._rounds_since, self._written_at = 0, time.monotonic()

    def saved(self, stage: str) -> SavedState | None:
        """The state of a stage as it was read, or None."""
        return self._saved.get(stage)

    def unusable(self, error: Exception) -> ModelFormatError:
        """The error to raise for a state that is whole but cannot be one of this fit."""
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        return ModelFormatError(
            f"The checkpoint cannot be used. {self.folder}: the content does not fit {self._identity.class_name}: "
            f"{reason}. {self._checkpoint._way_out()}"
        )

    def after_round(self, history: list[dict[str, Any]], state: FitState) -> None:
        """Write the state of the running stage if it is time."""
        self._states[ROUNDS] = state
        self._rounds_since += 1
        every, seconds = self._checkpoint.every, self._checkpoint.seconds
        late = seconds is not None and time.monotonic() - self._written_at >= seconds
        if late or (every is not None and self._rounds_since >= every):
            self._try_to_write(history)

    def after_stage(self, stage: str, history: list[dict[str, Any]], state: FitState) -> None:
        """Write what a stage has come to, in the place of the rounds that led there."""
        self._states.pop(ROUNDS, None)
        self._states[stage] = state
        self._try_to_write(history)

    def withdraw(self) -> None:
        """Remove the checkpoint of a fit that has failed before a state was written."""
        if not self._holds_state:
            with suppress(OSError, InvalidInputError, ModelFormatError):
                self._checkpoint.discard()

    def _try_to_write(self, history: list[dict[str, Any]]) -> None:
        try:
            self.write(history)
        except OSError as error:
            # Hours of a fit are worth more than a checkpoint of it; the last one is still there.
            warn(f"{error}; the fit goes on, and the last checkpoint stays.", TagwiseWarning)
        self._rounds_since, self._written_at = 0, time.monotonic()

    def write(self, history: list[dict[str, Any]] | None = None) -> None:
        """Replace the checkpoint by the present states."""
        tensors = {
            f"{stage}.{name}": tensor
            for stage, state in self._states.items()
            for name, tensor in state.arrays().items()
        }
        values = {
            "history": history or [],
            "states": {stage: state.values() for stage, state in self._states.items()},
        }
        try:
            write_model(self.folder, ModelRecord(_CLASS_NAME, self._identity.as_values(), tensors, values))
        except OSError as error:
            cause = error.__cause__ or error
            reason = getattr(cause, "strerror", None) or cause
            raise OSError(error.errno, f"The checkpoint could not be written: {reason}", str(self.folder)) from error
        self._holds_state = bool(self._states)


def _states_of(record: ModelRecord) -> tuple[dict[str, SavedState], list[dict[str, Any]]]:
    """The states by stage, and the history, of a record that may come from anyone."""
    values = record.values
    if set(values) != {"history", "states"} or not isinstance(values["states"], dict):
        raise ModelFormatError("values must hold the history and the states of a fit.")
    arrays: dict[str, dict[str, Tensor]] = {stage: {} for stage in values["states"]}
    for place, tensor in record.tensors.items():
        stage, _, name = place.partition(".")
        if stage not in arrays:
            raise ModelFormatError(f"the tensor {place!r:.100} belongs to no state.")
        arrays[stage][name] = tensor
    for stage, state in values["states"].items():
        if not isinstance(state, dict):
            raise ModelFormatError(f"the values of the state {stage!r:.100} must be an object.")
    states = {stage: SavedState(arrays[stage], state) for stage, state in values["states"].items()}
    return states, _checked_history(values["history"])


def _checked_history(history: JSON) -> list[dict[str, Any]]:
    numbers = ("iteration", "objective", "seconds")
    for place, info in enumerate(history if isinstance(history, list) else [None], start=1):
        if (
            not isinstance(info, dict)
            or not all(type(info.get(name)) in (int, float) for name in numbers)
            or info["iteration"] != place
        ):
            raise ModelFormatError("the history must list iteration, objective and seconds of every iteration.")
    return history


def _fits(found: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(found) == len(expected) and all(want in (None, size) for size, want in zip(found, expected))


def _described(array: Tensor) -> str:
    kind = "" if isinstance(array, np.ndarray) else "CSR of "
    return f"{kind}{array.dtype} of shape {array.shape}"
