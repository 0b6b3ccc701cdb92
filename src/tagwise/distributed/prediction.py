"""Predict and evaluate with a fitted model on data in parts on a Dask cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask
import numpy as np
import scipy.sparse as sp
from dask import delayed
from distributed import Client, Future

from tagwise.distributed.cluster import RETRIES, connected_client, gathered
from tagwise.distributed.fitting import listed, require_same_parts
from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.executor import total
from tagwise.inspection.validation_pairs import known_ranking
from tagwise.metrics.propensity import inverse_propensity_of_counts
from tagwise.metrics.ranking import Hits, RankingSums, check_ks, hits_of
from tagwise.parallel import single_threaded_blas
from tagwise.validation import check_k, check_labels

__all__ = ["evaluate", "predict_topk"]


def predict_topk(model: Any, X: Any, k: int = 5, *, client: Any = None) -> list[Any]:
    """The k best labels of each row, part by part and on demand.

    Parameters
    ----------
    model : fitted model
        Any model of tagwise, sent once to every worker.
    X : list of parts, or Dask array in blocks of rows
        Features (n, d), as in ``model.predict_topk``: sparse matrices or arrays, delayed ones or futures.
    k : int
        Number of labels.
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
    the model and of one part per thread. Results of a dead worker are computed again; the scheduler keeps the model
    for that.
    """
    fitted = _checked_model(model)
    check_k(k, fitted.n_labels_)
    sent = _sent(connected_client(client), fitted)
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
    """Ranking metrics of a model on rows in parts: as :func:`tagwise.metrics.ranking_report` on all rows.

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
    connected = connected_client(client)
    fitted = _checked_model(model)
    wanted, _ = check_ks(ks, "ks")
    rows = {"X": listed(X, "X"), "Y": listed(Y, "Y")}
    if observed is not None:
        rows["observed"] = listed(observed, "observed")
    require_same_parts(rows)
    weights = None if Y_train is None else _propensities(connected, Y_train, fitted.n_labels_)
    lazy = list(zip(rows["X"], rows["Y"], rows.get("observed", [None] * len(rows["X"]))))
    k, sent = min(int(wanted.max()), fitted.n_labels_), _sent(connected, fitted)
    first, *others = _results(connected, ranking_sums, lazy, sent, weights, k)
    sums = first.plus(*others)
    if not sums.n_rows:
        raise InvalidInputError("Y has no rows in any of its parts; there is nothing to average over.")
    return sums.report(wanted)


def _checked_model(model: Any) -> MultiLabelModel:
    if not isinstance(model, MultiLabelModel):
        raise InvalidTypeError(f"model must be a fitted model of tagwise; found {type(model).__name__}.")
    model._require_fitted()
    return model


def _sent(client: Client, model: MultiLabelModel) -> Future:
    """The model for tasks that must survive any worker: each that needs it is sent it once, and it is never lost."""
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
        return client.submit(_given, model, pure=False, retries=RETRIES)


def _given(value: Any) -> Any:
    return value


def _propensities(client: Client, Y_train: Any, n_labels: int) -> np.ndarray:
    parts = (
        [Y_train] if hasattr(Y_train, "shape") and not hasattr(Y_train, "to_delayed") else listed(Y_train, "Y_train")
    )
    counts, n_rows = total(_results(client, label_counts, [(part,) for part in parts], n_labels))
    return inverse_propensity_of_counts(counts, n_rows)


def _results(client: Client, function: Any, rows: list[tuple[Any, ...]], *arguments: Any) -> list[Any]:
    """``function(*row, *arguments)``: rows stay lazy, so that only results wait in memory."""
    measure = delayed(function, pure=False)
    return [
        gathered(client, future)
        for future in client.compute([measure(*row, *arguments) for row in rows], retries=RETRIES)
    ]


# ---------------------------------------------------------------------- what workers run


def best_labels(model: MultiLabelModel, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """``model.predict_topk`` of a part, which may be empty."""
    if X.shape[0] == 0:
        return np.empty((0, k), dtype=np.int64), np.empty((0, k), dtype=np.float32)
    with single_threaded_blas():
        return model.predict_topk(X, k)


def ranking_sums(
    X: Any, Y: Any, observed: Any, model: MultiLabelModel, weights: np.ndarray | None, k: int
) -> RankingSums:
    """Contribution of a part to the metrics."""
    if X.shape[0] == 0:
        nothing = sp.csr_matrix((0, model.n_labels_), dtype=np.float32), np.empty((0, k), dtype=np.int64)
        return RankingSums.of(Hits(*nothing, weights))
    truth = check_labels(Y, n_rows=X.shape[0])
    if truth.shape[1] != model.n_labels_:
        raise InvalidInputError(f"Y has {truth.shape[1]:,} labels, but the model has {model.n_labels_:,}.")
    with single_threaded_blas():
        labels, _ = known_ranking(model, X, k, observed)
    return RankingSums.of(hits_of(truth, labels, np.array([k]), weights))


def label_counts(Y: Any, n_labels: int) -> tuple[np.ndarray, int]:
    """Number of rows of a part with each label, and number of rows."""
    if Y.shape[0] == 0:
        return np.zeros(n_labels, dtype=np.int64), 0
    truth = check_labels(Y, name="Y_train")
    if truth.shape[1] != n_labels:
        raise InvalidInputError(f"Y_train has {truth.shape[1]:,} labels, but the model has {n_labels:,}.")
    return np.bincount(truth.indices, minlength=n_labels), truth.shape[0]
