"""Labels that a linear model tells apart least: those whose weights point in nearly the same direction."""

from __future__ import annotations

import numpy as np

from tagwise.base import MultiLabelModel
from tagwise.exceptions import InvalidInputError
from tagwise.parallel import even_chunks, single_threaded_blas
from tagwise.validation import check_integer

__all__ = ["nearest_labels"]

# Weights of one block of labels, whatever the number of features: 4 million numbers, 16 MB as float32.
_BLOCK_WEIGHTS = 1 << 22


def nearest_labels(model: MultiLabelModel, label: int, top: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The labels whose weights are most like those of one label, by the cosine w_j·w_l / (‖w_j‖ ‖w_l‖).

    Parameters
    ----------
    model : fitted model
        With linear scores (see :mod:`tagwise.inspection.explanations`).
    label : int
    top : int
        How many at most.

    Returns
    -------
    labels : int array
        Most alike first, equal ones in the order of their ids; never ``label`` itself, nor one without weights.
    cosines : float array

    Raises
    ------
    ExplanationError
        The model has no weights of labels.

    Notes
    -----
    Time O(d·L), memory that of a block of weights.
    """
    top = check_integer(top, "top", minimum=1)
    model._require_fitted()
    label = check_integer(label, "label", minimum=0)
    if label >= model.n_labels_:
        raise InvalidInputError(f"label must be below {model.n_labels_:,}, the number of labels; found {label}.")
    own = _dense(model, np.array([label]))[0].astype(np.float64)
    cosines = np.zeros(model.n_labels_)
    with single_threaded_blas():
        for start, stop in even_chunks(model.n_labels_, max(1, _BLOCK_WEIGHTS // model.n_features_in_)):
            weights = _dense(model, np.arange(start, stop)).astype(np.float64)
            lengths = np.linalg.norm(weights, axis=1) * np.linalg.norm(own)
            cosines[start:stop] = np.divide(
                weights @ own, lengths, out=np.full(stop - start, -np.inf), where=lengths > 0
            )
    cosines[label] = -np.inf
    order = np.argsort(-cosines, kind="stable")[:top]
    order = order[np.isfinite(cosines[order])]
    return order, cosines[order]


def _dense(model: MultiLabelModel, labels: np.ndarray) -> np.ndarray:
    weights = model._label_weights(labels)
    return weights if isinstance(weights, np.ndarray) else weights.toarray()
