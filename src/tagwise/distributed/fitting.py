"""Fit an ordinary model to data on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.base import ONLY_POSITIVES, MultiLabelModel, format_of
from tagwise.distributed.binary_relevance import fit_binary_relevance_rows
from tagwise.distributed.cascade import ShardedCascadeRows
from tagwise.distributed.cluster import Cluster, connected_client
from tagwise.distributed.leml import ShardedRows
from tagwise.distributed.parts import TrainingParts
from tagwise.distributed.reml import fit_reml_rows
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning, warn
from tagwise.interrupts import deferred_interrupts
from tagwise.losses import get_loss
from tagwise.metrics.propensity import inverse_propensity_of_counts
from tagwise.models.binary_relevance import BinaryRelevance
from tagwise.models.cascade import Cascade
from tagwise.models.factor_model import resolve_positive_weight
from tagwise.models.leml import LEML
from tagwise.models.reml import REML
from tagwise.persistence.checkpoints import Checkpoint
from tagwise.progress import Callback, FitProgress
from tagwise.validation import check_memory

__all__ = ["fit", "require_not_updatable", "way_of"]

_Learn = Callable[[Any, TrainingParts, FitProgress], None]


def fit(
    model: Any,
    X: Any,
    Y: Any,
    observed: Any = None,
    *,
    sample_weight: Any = None,
    label_features: Any = None,
    client: Any = None,
    callback: Callback | None = None,
    checkpoint: Checkpoint | None = None,
) -> Any:
    """Learn from features and labels that lie in parts on a Dask cluster.

    Parameters
    ----------
    model : LEML, REML, BinaryRelevance or Cascade
        An ordinary model. It is fitted in place, and is afterwards what its own ``fit`` would have made of all rows, up
        to the rounding of sums: save it, load it and ask it wherever you like.
    X, Y, observed, sample_weight : lists of parts, or Dask arrays in blocks of rows
        As in the model's own ``fit``, cut into the same parts of the rows: sparse matrices or arrays, delayed ones or
        futures. Parts may be empty, and of any sizes. Delayed parts can be computed again when a worker dies; what only
        a dead worker held cannot.
    label_features : CSR or array (L, d), optional
        As in :meth:`Cascade.fit <tagwise.Cascade.fit>`, for a Cascade alone; in the client's memory.
    client : dask.distributed.Client, optional
        By default that of this process.
    callback, checkpoint
        As in the model's own ``fit``. A checkpoint is written by the client; it belongs to the data in these parts.

    Returns
    -------
    model

    Raises
    ------
    ClusterError
        The scheduler does not answer any more, or too many workers were lost.
    Exception
        What a task raised on a worker, after three attempts.

    Notes
    -----
    The same parts give the same bits, whatever the number of workers. Each worker uses ``n_jobs`` threads of its own;
    give workers one thread each, and leave ``n_jobs`` at None. docs/scaling.md has time, traffic and memory.
    """
    if not isinstance(model, MultiLabelModel):
        raise InvalidTypeError(f"model must be a model of tagwise; found {type(model).__name__}.")
    learn = way_of(type(model))
    model._check_all_parameters()
    require_not_updatable(model)
    cluster = Cluster(connected_client(client))
    before = dict(model.__dict__)
    if label_features is not None and not isinstance(model, Cascade):
        raise InvalidInputError(f"label_features: {type(model).__name__} does not learn from names; leave them out.")
    if isinstance(model, Cascade):
        model._take_names(label_features, observed)
    try:
        with deferred_interrupts():
            parts = X if isinstance(X, TrainingParts) else TrainingParts.gather(cluster, X, Y, observed, sample_weight)
            model._output_format = format_of(sp.csr_matrix((0, 0)))
            model.n_features_in_ = parts.n_features
            model.__dict__.pop("feature_names_in_", None)
            model._take_label_count(parts.n_labels)
            check_memory(parts.n_features, parts.n_labels, getattr(model, "rank", None), parts.dtype.itemsize)
            if parts.only_positives_known():
                warn(ONLY_POSITIVES, TagwiseWarning)
            data = {"parts": parts.digests(), **model._warm_start_arrays()}
            model._fit_by(lambda progress: learn(model, parts, progress), data, callback, checkpoint)
    except BaseException:
        with deferred_interrupts():
            model.__dict__ = before
        raise
    model.__dict__.pop("_label_features", None)
    return model


def require_not_updatable(model: Any) -> None:
    """Refuse a model or tagger that is to keep its rows, which are on the cluster."""
    if getattr(model, "updatable", False):
        raise InvalidInputError(
            "updatable=True (--updatable) keeps the training rows in the model, but those of a cluster stay there; "
            "leave it out, or fit in one process."
        )


def way_of(kind: type) -> _Learn:
    """How a class of models learns on a cluster; InvalidInputError where it does not."""
    if kind not in _WAYS:
        names = ", ".join(one.__name__ for one in _WAYS)
        raise InvalidInputError(f"{kind.__name__} does not learn on a cluster; use {names}.")
    return _WAYS[kind]


def _positive_weight(model: Any, parts: TrainingParts) -> np.ndarray | None:
    """The weight of each label's positives (L), or None where all are 1."""
    weight = model.positive_weight
    if isinstance(weight, str):
        weight = inverse_propensity_of_counts(parts.label_counts(), parts.n_rows)
    return resolve_positive_weight(weight, sp.csr_matrix((0, parts.n_labels)), None)


def _fit_leml(model: LEML, parts: TrainingParts, progress: FitProgress) -> None:
    unsuitable = {
        "kernel": model.kernel is not None,
        "solver": model.solver != "alternating",
        "early_stopping": model.early_stopping,
    }
    for name, wrong in unsuitable.items():
        if wrong:
            raise InvalidInputError(
                f"{name}={getattr(model, name)!r} is not for a cluster, where LEML alternates over plain features "
                "until its tolerance is met; leave it at its default."
            )
    weight = _positive_weight(model, parts)
    rows = ShardedRows(parts, get_loss(model.loss), weight, normalize=model.normalize, n_jobs=model.n_jobs)
    model._fit_rows(rows, progress)


def _fit_reml(model: REML, parts: TrainingParts, progress: FitProgress) -> None:
    if model.sparse_part == "admm" or model.partitions > 1:
        name = "partitions" if model.partitions > 1 else "sparse_part"
        raise InvalidInputError(
            f"{name}={getattr(model, name)!r} is not for a cluster, where REML's sparse part is found on supports, in "
            "blocks of labels; leave it at its default."
        )
    weight = _positive_weight(model, parts)
    rows = ShardedRows(parts, get_loss("squared"), weight, normalize=model.normalize, n_jobs=model.n_jobs)
    fit_reml_rows(model, rows, progress)


def _fit_cascade(model: Cascade, parts: TrainingParts, progress: FitProgress) -> None:
    weight = _positive_weight(model, parts)
    rows = ShardedCascadeRows(parts, weight, normalize=model.normalize, n_jobs=model.n_jobs)
    model._fit_rows(rows, parts.dtype, progress)


def _fit_binary_relevance(model: BinaryRelevance, parts: TrainingParts, progress: FitProgress) -> None:
    if model.loss == "hinge" or model.solver == "direct":
        name = "loss" if model.loss == "hinge" else "solver"
        raise InvalidInputError(
            f"{name}={getattr(model, name)!r} is not for a cluster, where labels are solved by steps that are sums "
            'over rows; use loss="squared_hinge", or leave solver at its default.'
        )
    loss, weight = get_loss(model.loss), _positive_weight(model, parts)
    rows = ShardedRows(parts, loss, weight, normalize=model.normalize, n_jobs=model.n_jobs)
    fit_binary_relevance_rows(model, rows, parts.label_counts(), progress)


_WAYS: dict[type, _Learn] = {
    LEML: _fit_leml,
    REML: _fit_reml,
    BinaryRelevance: _fit_binary_relevance,
    Cascade: _fit_cascade,
}
