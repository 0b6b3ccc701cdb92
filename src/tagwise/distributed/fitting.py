"""Fit an ordinary model to data that lies in parts on a Dask cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from distributed import Client, Future

from tagwise.distributed.cluster import RETRIES, gathered
from tagwise.distributed.executor import DaskExecutor
from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.executor import running_on
from tagwise.progress import Callback
from tagwise.registry import MODELS, info_of
from tagwise.store.checkpoints import Checkpoint

__all__ = ["fit", "listed", "require_learns_on_cluster", "require_same_parts"]


def fit(
    model: Any,
    X: Any,
    Y: Any,
    observed: Any = None,
    *,
    sample_weight: Any = None,
    label_features: Any = None,
    client: Any = None,
    storage: Any = None,
    callback: Callback | None = None,
    checkpoint: Checkpoint | None = None,
) -> Any:
    """Learn from features and labels that lie in parts on a Dask cluster.

    Parameters
    ----------
    model : LEML, REML, BinaryRelevance or Cascade
        An ordinary model. It is fitted in place, by its own ``fit`` whose blocks run on the workers, and equals
        a local fit to all rows up to the rounding of sums. It can be saved, loaded and used anywhere.
    X, Y, observed, sample_weight : lists of parts, or Dask arrays in blocks of rows
        As in the model's own ``fit``, cut into the same parts of the rows: sparse matrices or arrays, delayed ones or
        futures. Parts may be empty, and of any sizes. Matrices that are not in parts are used as they are.
    label_features : CSR or array (L, d), optional
        As in :meth:`Cascade.fit <tagwise.Cascade.fit>`, for a Cascade alone.
    client : dask.distributed.Client, optional
        By default that of this process.
    storage : path, optional
        A folder that the client and all workers see under the same path. X and whatever else all workers need is
        written there once, and mapped into memory. By default it is sent once to each machine.
    callback, checkpoint
        As in the model's own ``fit``. A checkpoint is written by the client.

    Returns
    -------
    model

    Raises
    ------
    ClusterError
        The scheduler no longer answers, or too many workers were lost.
    Exception
        Any error of a task on a worker, after three attempts.

    Notes
    -----
    Every machine has X and Y as memory-mapped files. Labels are divided into blocks and rows into shards, one per
    worker, so that a step has as many tasks as there are workers. Each worker uses ``n_jobs`` threads of its own; give
    workers one thread each, and leave ``n_jobs`` at None. The client needs memory for X and Y twice while it puts parts
    together. docs/scaling.md has time, traffic and memory.
    """
    if not isinstance(model, MultiLabelModel):
        raise InvalidTypeError(f"model must be a model of tagwise; found {type(model).__name__}.")
    require_learns_on_cluster(type(model))
    more: dict[str, Any] = {}
    if label_features is not None:
        if not info_of(type(model)).learns_from_names:
            raise InvalidInputError(
                f"label_features: {type(model).__name__} does not learn from names; leave them out."
            )
        more["label_features"] = label_features
    given = {"X": X, "Y": Y, "observed": observed, "sample_weight": sample_weight}
    with DaskExecutor(client, storage) as executor, running_on(executor):
        rows = _whole(executor.client, {name: value for name, value in given.items() if value is not None})
        model.fit(**rows, callback=callback, checkpoint=checkpoint, **more)
    return model


def require_learns_on_cluster(kind: type) -> None:
    """Refuse model classes whose labels are not independent given a shared part."""
    if not info_of(kind).updatable:
        names = ", ".join(info.class_name for info in MODELS if info.updatable)
        raise InvalidInputError(f"{kind.__name__} does not learn on a cluster; use {names}.")


def _whole(client: Client, given: dict[str, Any]) -> dict[str, Any]:
    """All parts behind each other, at the client."""
    if hasattr(given["X"], "shape") and not hasattr(given["X"], "to_delayed"):
        return given
    parts = {name: listed(value, name) for name, value in given.items()}
    require_same_parts(parts)
    whole: dict[str, Any] = {}
    n_rows: list[int] = []
    for name, some in parts.items():
        lazy = [client.compute(part, retries=RETRIES) if hasattr(part, "__dask_graph__") else part for part in some]
        here = [gathered(client, part) if isinstance(part, Future) else part for part in lazy]
        sizes = [np.shape(part)[0] for part in here]
        n_rows = n_rows or sizes
        for number, (size, expected) in enumerate(zip(sizes, n_rows)):
            if size != expected:
                raise InvalidInputError(f"Part {number} of {name} has {size:,} rows where that of X has {expected:,}.")
        try:
            whole[name] = sp.vstack(here, format="csr") if sp.issparse(here[0]) else np.concatenate(here)
        except ValueError as error:
            raise InvalidInputError(f"{name}: its parts do not fit together: {error}") from None
    return whole


def listed(parts: Any, name: str) -> list[Any]:
    """The parts that a user gave: a list of them, or a Dask array in blocks of rows."""
    if hasattr(parts, "to_delayed"):
        blocks = parts.to_delayed()
        if blocks.ndim == 2 and blocks.shape[1] != 1:
            raise InvalidInputError(
                f"{name} is a Dask array whose rows are cut into {blocks.shape[1]} blocks of columns; rechunk it to "
                "one: rechunk({1: -1})."
            )
        return list(blocks.ravel())
    if isinstance(parts, (list, tuple)):
        return list(parts)
    raise InvalidTypeError(
        f"{name} must be a list of parts (matrices, delayed ones or futures) or a Dask array; found "
        f"{type(parts).__name__}."
    )


def require_same_parts(parts: dict[str, list[Any]]) -> None:
    """Refuse lists of parts that are empty or of different lengths."""
    n_parts = len(parts["X"])
    for name, some in parts.items():
        if len(some) != n_parts:
            raise InvalidInputError(
                f"{name} has {len(some)} parts where X has {n_parts}; give each part of the rows once in each."
            )
    if not n_parts:
        raise InvalidInputError("X has no parts; give at least one.")
