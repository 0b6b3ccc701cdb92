"""Ask a fitted model about data in parts on a Dask cluster, and measure it there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dask import delayed

from tagwise.base import MultiLabelModel
from tagwise.distributed.cluster import RETRIES, Cluster, connected_client
from tagwise.distributed.parts import listed, task
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.inspection.validation_pairs import known_ranking
from tagwise.metrics.propensity import inverse_propensity_of_counts
from tagwise.metrics.ranking import RankingSums, check_ks, hits_of
from tagwise.validation import check_k, check_labels

__all__ = ["evaluate", "predict_topk"]


def predict_topk(model: Any, X: Any, k: int = 5, *, client: Any = None) -> list[Any]:
    """The k best labels of each row, part by part and on demand.

    Parameters
    ----------
    model : fitted model
        Any of tagwise's. Every worker that answers is sent it once.
    X : list of parts, or Dask array in blocks of rows
        Features (n, d), as in ``model.predict_topk``: sparse matrices or arrays, delayed ones or futures.
    k : int
        How many.
    client : dask.distributed.Client, optional
        By default that of this process.

    Returns
    -------
    list of dask.delayed.Delayed
        One per part, which stands for ``(labels, scores)`` as ``model.predict_topk`` gives them. Nothing is computed
        before it is asked for, by ``client.compute(answers)`` to keep the answers on the workers, by
        ``dask.compute(*answers)`` to have all of them here, or by functions of them that write::

            store = dask.delayed(write)           # write(answer, path), on a worker
            dask.compute(*[store(answer, path) for answer, path in zip(predict_topk(model, X), paths)])

    Notes
    -----
    A worker reads a delayed part, answers it and drops it before it takes the next one, so that its memory is that of
    the model and of one part per thread. What a worker had that dies is computed again; the scheduler keeps the model
    for that.
    """
    cluster = Cluster(connected_client(client))
    fitted = _checked_model(model)
    check_k(k, fitted.n_labels_)
    sent = cluster.kept(fitted)
    answer = delayed(best_labels, pure=False)
    return [answer(sent, part, k) for part in listed(X, "X")]


def evaluate(
    model: Any,
    X: Any,
    Y: Any,
    observed: Any = None,
    *,
    ks: int | Sequence[int] = (1, 3, 5),
    Y_train: Any = None,
    client: Any = None,
) -> dict[str, float]:
    """Ranking metrics of a model on rows in parts: what :func:`tagwise.metrics.ranking_report` says of all of them.

    Parameters
    ----------
    model : fitted model
    X, Y : lists of parts, or Dask arrays in blocks of rows
        Features (n, d) and true labels (n, L), cut into the same parts of the rows; as in :func:`predict_topk`.
    observed : likewise, optional
        With it, only known labels are ranked.
    ks : int or sequence of int
        The cut-offs.
    Y_train : list of parts, Dask array or matrix, optional
        The labels that the model was trained on, whose propensities weigh PSP and PSnDCG; these are left out otherwise.
    client : dask.distributed.Client, optional
        By default that of this process.

    Returns
    -------
    dict of str to float
        ``"P@1"``, …, as in :func:`tagwise.metrics.ranking_report`. Counts are exact; averages differ in the rounding of
        sums alone, which are made in the order of the parts whatever the number of workers.

    Notes
    -----
    A part sends back some sums and 4·L bytes. Rows are read as in :func:`predict_topk`.
    """
    cluster = Cluster(connected_client(client))
    fitted = _checked_model(model)
    wanted, _ = check_ks(ks, "ks")
    rows = {"X": listed(X, "X"), "Y": listed(Y, "Y")}
    if observed is not None:
        rows["observed"] = listed(observed, "observed")
    for name, parts in rows.items():
        if len(parts) != len(rows["X"]):
            raise InvalidInputError(
                f"{name} has {len(parts)} parts where X has {len(rows['X'])}; give each part of the rows once in each."
            )
    if not rows["X"]:
        raise InvalidInputError("X has no parts; give at least one.")
    weights = None if Y_train is None else _propensities(cluster, Y_train, fitted.n_labels_)
    measure = delayed(ranking_sums, pure=False)
    lazy = list(zip(rows["X"], rows["Y"], rows.get("observed", [None] * len(rows["X"]))))
    sums = _summed(cluster, measure, lazy, fitted, weights, min(int(wanted.max()), fitted.n_labels_))
    if not sums.n_rows:
        raise InvalidInputError("Y has no rows in any of its parts; there is nothing to average over.")
    return sums.report(wanted, weighted=weights is not None)


def _checked_model(model: Any) -> MultiLabelModel:
    if not isinstance(model, MultiLabelModel):
        raise InvalidTypeError(f"model must be a fitted model of tagwise; found {type(model).__name__}.")
    model._require_fitted()
    return model


def _propensities(cluster: Cluster, Y_train: Any, n_labels: int) -> np.ndarray:
    parts = (
        [Y_train] if hasattr(Y_train, "shape") and not hasattr(Y_train, "to_delayed") else listed(Y_train, "Y_train")
    )
    counts, n_rows = _summed(cluster, delayed(label_counts, pure=False), [(part,) for part in parts], n_labels)
    return inverse_propensity_of_counts(counts, n_rows)


def _summed(cluster: Cluster, function: Any, rows: list[tuple[Any, ...]], *arguments: Any) -> Any:
    """The sum of ``function(*row, *arguments)``: rows stay lazy, so that only their sums wait in memory."""

    def submit(sent: list[Any]) -> list[Any]:
        futures = cluster.client.compute([function(*row, *sent) for row in rows], retries=RETRIES)
        return [cluster.tree(futures)]

    return cluster.collected(arguments, submit)[0]


# ---------------------------------------------------------------------- what workers run


@task
def best_labels(model: MultiLabelModel, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """``model.predict_topk`` of a part, which may be empty."""
    if X.shape[0] == 0:
        return np.empty((0, k), dtype=np.int64), np.empty((0, k), dtype=np.float32)
    return model.predict_topk(X, k)


@task
def ranking_sums(
    X: Any, Y: Any, observed: Any, model: MultiLabelModel, weights: np.ndarray | None, k: int
) -> RankingSums:
    """What a part adds to the metrics."""
    if X.shape[0] == 0:
        return RankingSums.of_no_rows(k, model.n_labels_)
    truth = check_labels(Y, n_rows=X.shape[0])
    if truth.shape[1] != model.n_labels_:
        raise InvalidInputError(f"Y has {truth.shape[1]:,} labels, but the model has {model.n_labels_:,}.")
    labels, _ = known_ranking(model, X, k, observed)
    return hits_of(truth, labels, np.array([k])).sums(weights)


@task
def label_counts(Y: Any, n_labels: int) -> tuple[np.ndarray, int]:
    """In how many rows of a part each label is, and the rows."""
    if Y.shape[0] == 0:
        return np.zeros(n_labels, dtype=np.int64), 0
    truth = check_labels(Y, name="Y_train")
    if truth.shape[1] != n_labels:
        raise InvalidInputError(f"Y_train has {truth.shape[1]:,} labels, but the model has {n_labels:,}.")
    return np.bincount(truth.indices, minlength=n_labels), truth.shape[0]
