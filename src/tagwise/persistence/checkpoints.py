"""Checkpoints: the state of a running fit, in a folder from which a later run resumes.

A checkpoint is a folder of the model format whose class is ``Checkpoint``: written atomically, read without running any
code. Its parameters say which fit it belongs to (:func:`fit_identity`); its values and tensors are the history of the
fit and the states of its stages. Specified in ``docs/checkpoints.md``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise._version import __version__
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError, TagwiseWarning, warn
from tagwise.feature_blocks import FeatureBlocks
from tagwise.persistence.fit_state import State, StateParts
from tagwise.persistence.folder import (
    MANIFEST_NAME,
    ModelRecord,
    as_path,
    parse_manifest,
    read_manifest,
    read_model,
    remove_model,
    write_model,
)
from tagwise.persistence.loading import storable_parameters
from tagwise.persistence.strict_json import JSON, require
from tagwise.persistence.tensors import Tensor, described
from tagwise.validation import check_integer, check_real, shape_text

__all__ = ["Checkpoint", "OpenCheckpoint", "checked_identity", "differences", "fit_identity", "open_checkpoint"]

History: TypeAlias = list[dict[str, Any]]
Identity: TypeAlias = dict[str, JSON]

# The stage of a fit whose state changes from iteration to iteration.
_ROUNDS = "rounds"

# The result does not depend on these parameters.
_NOT_OF_THE_FIT = ("n_jobs", "verbose")
_IDENTITY_KEYS = {"class", "parameters", "data", "tagwise_version"}
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
        """Whether the folder holds a state to resume from, or something else that a fit would refuse.

        A fit that stopped before its first state was written has left nothing.
        """
        if not self._is_taken():
            return False
        try:
            manifest = parse_manifest(read_manifest(self.folder))
        except ModelFormatError:
            return True
        return manifest["class"] != _CLASS_NAME or bool(manifest["values"].get("states"))

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
            raise InvalidInputError(f"{self.folder} holds something other than a checkpoint; nothing was removed.")
        remove_model(self.folder)

    def open(self, identity: Identity) -> OpenCheckpoint:
        """Read the state in the folder, or make the folder; called by ``fit`` before any work starts.

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

    def _read(self, identity: Identity) -> tuple[dict[str, StateParts], History]:
        try:
            record = read_model(self.folder)
            if record.class_name != _CLASS_NAME:
                raise InvalidInputError(
                    f"checkpoint: {self.folder} holds a finished model of class {record.class_name}, which "
                    "tagwise.load reads; choose another folder for the checkpoint of a fit."
                )
            states, history = _states_of(record)
            changes = differences(identity, checked_identity(record.parameters))
        except ModelFormatError as error:
            raise ModelFormatError(f"The checkpoint cannot be used. {error} {self._way_out()}") from error.__cause__
        if not states:
            return {}, []
        if changes:
            raise InvalidInputError(
                f"checkpoint: {self.folder} holds the state of another fit: {'; '.join(changes)}. Fit with the "
                "same data and parameters to resume, or choose another folder to start over."
            )
        return states, history

    def _way_out(self) -> str:
        return f"Remove it with Checkpoint({str(self.folder)!r}).discard() to start over."


class OpenCheckpoint:
    """The checkpoint of one fit while it runs.

    As a context it removes the checkpoint of a fit that fails before it has a state, and takes the failure of a resumed
    fit for a fault of its state.

    Attributes
    ----------
    folder : Path
    history : list of dict
        As it was read; empty if there was nothing.
    """

    def __init__(
        self, checkpoint: Checkpoint, identity: Identity, states: dict[str, StateParts], history: History
    ) -> None:
        self._checkpoint, self._identity = checkpoint, identity
        self._saved, self._states = states, dict[str, State | StateParts](states)
        self.folder, self.history = checkpoint.folder, history
        self._holds_state, self._resumed = bool(states), False
        self._rounds_since, self._written_at = 0, time.monotonic()
        self.excused: BaseException | None = None

    def __enter__(self) -> OpenCheckpoint:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and not self._holds_state:
            with suppress(OSError, InvalidInputError, ModelFormatError):
                self._checkpoint.discard()
        if self._resumed and isinstance(error, InvalidInputError) and error is not self.excused:
            # The same data and parameters have led to this state before: it is the state that cannot be right.
            raise ModelFormatError(self._misfit(error)) from None

    def resume(
        self, state_class: type[State], stage: str, check: Callable[[Any], object] | None, known: Mapping[str, Any]
    ) -> Any:
        """The state of a stage, or None if there is none; ``known`` is for :meth:`State.from_parts`.

        Raises
        ------
        ModelFormatError
            It cannot be a state of this fit: it does not match its declaration, or ``check`` raised ValueError.
        """
        parts = self._saved.get(stage)
        if parts is None:
            return None
        self._resumed = True
        with self.refusing_misfits():
            state = state_class.from_parts(parts, known)
            if check is not None:
                check(state)
        return state

    @contextmanager
    def refusing_misfits(self) -> Iterator[None]:
        """Turn the errors of undamaged content that cannot be of this fit into a ModelFormatError."""
        try:
            yield
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ModelFormatError(self._misfit(error)) from None

    def _misfit(self, error: Exception) -> str:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error).removesuffix(".")
        return (
            f"The checkpoint cannot be used. {self.folder}: the content does not fit {self._identity['class']}: "
            f"{reason}. {self._checkpoint._way_out()}"
        )

    def save(self, state: State, history: History) -> None:
        """Write the state of the running stage if it is due."""
        self._states[_ROUNDS] = state
        self._rounds_since += 1
        every, seconds = self._checkpoint.every, self._checkpoint.seconds
        late = seconds is not None and time.monotonic() - self._written_at >= seconds
        if late or (every is not None and self._rounds_since >= every):
            self._try_to_write(history)

    def finish_stage(self, stage: str, state: State, history: History) -> None:
        """Write the result of a stage in place of the rounds that led there."""
        self._states.pop(_ROUNDS, None)
        self._states[stage] = state
        self._try_to_write(history)

    def _try_to_write(self, history: History) -> None:
        try:
            self.write(history)
        except OSError as error:
            # Hours of a fit are worth more than a checkpoint of it; the last one is still there.
            warn(f"{error}; the fit continues, and the last checkpoint stays.", TagwiseWarning)
        self._rounds_since, self._written_at = 0, time.monotonic()

    def write(self, history: History | None = None) -> None:
        """Replace the checkpoint by the current states."""
        whole = StateParts()
        for stage, state in self._states.items():
            whole.put(stage, state if isinstance(state, StateParts) else state.to_parts())
        values = {"history": history or [], "states": whole.values}
        try:
            write_model(self.folder, ModelRecord(_CLASS_NAME, self._identity, whole.arrays, values))
        except OSError as error:
            cause = error.__cause__ or error
            reason = getattr(cause, "strerror", None) or cause
            raise OSError(error.errno, f"The checkpoint could not be written: {reason}", str(self.folder)) from error
        self._holds_state = bool(self._states)


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
        raise InvalidTypeError(
            f"checkpoint must be a tagwise.persistence.Checkpoint or None; found {checkpoint!r:.60}."
        )
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


def _states_of(record: ModelRecord) -> tuple[dict[str, StateParts], History]:
    """The states by stage, and the history, of a record that may come from anyone."""
    named = set(record.values) == {"history", "states"} and isinstance(record.values["states"], dict)
    require(named, "values must hold the history and the states of a fit.")
    history, states = record.values["history"], record.values["states"]
    for place, info in enumerate(history if isinstance(history, list) else [None], start=1):
        require(
            isinstance(info, dict)
            and all(type(info.get(name)) in (int, float) for name in ("iteration", "objective", "seconds"))
            and info["iteration"] == place,
            "the history must list iteration, objective and seconds of every iteration.",
        )
    return StateParts.put_apart(record.tensors, states), history


# ---------------------------------------------------------------------- which fit a state belongs to


def fit_identity(class_name: str, parameters: dict[str, JSON], data: Mapping[str, Tensor | None]) -> Identity:
    """What must be the same for a fit to resume from the state of an earlier run.

    Class and parameters, the tagwise version (another may take other steps), and type, shape and SHA-256 of every array
    that the fit learns from, None for one that is not given. Time: one SHA-256 of the data, of which nothing is copied.
    """
    tensors: dict[str, Tensor | None] = {}
    for name, value in data.items():
        blocks = {name: value.sparse, f"{name}.dense": value.dense} if isinstance(value, FeatureBlocks) else None
        tensors |= blocks or {name: value}
    entries = {name: None if tensor is None else described(tensor, name, name)[0] for name, tensor in tensors.items()}
    return {"class": class_name, "parameters": parameters, "data": entries, "tagwise_version": __version__}


def checked_identity(values: JSON) -> Identity:
    """An identity that was read, and may come from anyone."""
    require(
        set(values) == _IDENTITY_KEYS
        and isinstance(values["parameters"], dict)
        and isinstance(values["data"], dict)
        and all(isinstance(values[key], str) for key in ("class", "tagwise_version")),
        f"the parameters of a checkpoint must be {', '.join(sorted(_IDENTITY_KEYS))}.",
    )
    return dict(values)


def differences(mine: Identity, saved: Identity) -> list[str]:
    """How a fit differs from the saved one; empty if it is the same."""
    if mine["class"] != saved["class"]:
        return [f"the model is {mine['class']} and was {saved['class']:.100}"]
    found = []
    if mine["tagwise_version"] != saved["tagwise_version"]:
        found.append(f"tagwise has version {mine['tagwise_version']} and had {saved['tagwise_version']:.100}")
    for name in sorted(mine["parameters"] | saved["parameters"]):
        new, old = mine["parameters"].get(name), saved["parameters"].get(name)
        if not _same(new, old):
            plain = f"{name} is {new!r:.60} and was {old!r:.60}"
            found.append(f"{name} has other values" if _is_array(new) or _is_array(old) else plain)
    for name in dict.fromkeys([*mine["data"], *saved["data"]]):
        new, old = mine["data"].get(name), saved["data"].get(name)
        if new != old:
            found.append(_changed_data(name, new, old))
    return found


def _same(one: Any, other: Any) -> bool:
    if _is_array(one) or _is_array(other):
        return (
            isinstance(one, np.ndarray)
            and isinstance(other, np.ndarray)
            and np.array_equal(one, other, equal_nan=one.dtype.kind == other.dtype.kind == "f")
        )
    both_numbers = {type(one), type(other)} <= {int, float}
    return (both_numbers and one == other) or repr(one) == repr(other)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or sp.issparse(value)


def _changed_data(name: str, mine: JSON, theirs: JSON) -> str:
    if mine is None or theirs is None:
        return f"{name} is {'not given' if mine is None else 'given'} and was{'' if mine is None else ' not'}"
    if not isinstance(theirs, dict):
        return f"{name} is another"
    for field, now, before in (("kind", "is", "was"), ("shape", "has shape", "had"), ("dtype", "is", "was")):
        if mine.get(field) != theirs.get(field):
            return f"{name} {now} {_text(mine.get(field))} and {before} {_text(theirs.get(field))}"
    return f"{name} has other values"


def _text(value: JSON) -> str:
    if isinstance(value, list) and all(isinstance(size, int) for size in value):
        return shape_text(tuple(value))
    return f"{value!s:.60}"
