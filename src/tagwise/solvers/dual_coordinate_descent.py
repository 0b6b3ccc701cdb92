"""Linear support vector machines for many labels: coordinate descent on the dual of each, labels in parallel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.kernels.dual_coordinate_descent import Descent, descend_labels, feature_rows
from tagwise.parallel import even_chunks, run_chunks

__all__ = ["DualDescentResult", "dual_coordinate_descent"]

# Few labels per chunk keep threads busy to the end though some labels take much longer; each chunk allocates its own
# variables, one per row and one per feature, which a few labels pay back.
_LABELS_PER_CHUNK = 4


@dataclass(frozen=True)
class DualDescentResult:
    """Solutions of B labels: w (B×d, in the floating type of X), b and the primal objective of each.

    ``violation`` is the largest less the smallest projected gradient of the dual in the last pass, ``n_iter`` counts
    passes over the (active) rows.
    """

    coefficients: np.ndarray
    intercept: np.ndarray
    value: np.ndarray
    violation: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray


def dual_coordinate_descent(
    X: sp.csr_matrix,
    positives: sp.csr_matrix,
    negatives: sp.csr_matrix | None = None,
    *,
    descent: Descent,
    reg: float = 1.0,
    streams: np.ndarray | None = None,
    row_costs: np.ndarray | None = None,
    n_threads: int = 1,
) -> DualDescentResult:
    r"""Linear support vector machines of many labels at once.

    Minimises, for each label j, over w (d) and b

    .. math:: \tfrac\lambda2 \bigl(\|w\|^2 + (b/B)^2\bigr) + \sum_i c_{ij}\,\ell\bigl(y_{ij}(w^\top x_i + b)\bigr),

    with ℓ(m) = max(0, 1 − m) (hinge, the L1-loss SVM) or its square (squared hinge, the L2-loss SVM).

    Parameters
    ----------
    X : CSR (n, d)
        Canonical.
    positives, negatives : CSR (B, n)
        By label, the rows that are on and those that are off; the values are their costs c > 0. Without ``negatives``
        every row that is not a positive is one, at cost 1 or what ``row_costs`` says.
    descent : Descent
        The loss; B, the value of the constant feature whose weight is the intercept: the larger, the less b is
        penalised and the slower the descent; when a label has converged (the projected gradients of its dual are −1 at
        the start), and after how many passes it ends, most of which shrinking makes short.
    reg : float
        λ > 0.
    streams : int array (B,), optional
        Of the random order of rows in each pass: a label's own stream makes it solved alike in any batch. The streams
        are numbered by place by default.
    row_costs : array (n,), optional
        Costs of the rows that are off, without ``negatives``.
    n_threads : int
        Labels are spread over threads in chunks that do not depend on it.

    Notes
    -----
    A pass costs O(nnz of the rows in it). Rows whose variable sits at a bound and is pushed against it leave the later
    passes (shrinking); before a label ends, all of its rows are looked at once more. Memory O(n + d) per thread and the
    result.

    References
    ----------
    Hsieh, Chang, Lin, Keerthi, Sundararajan, "A dual coordinate descent method for large-scale linear SVM", ICML 2008.
    """
    n_labels = positives.shape[0]
    numbers = np.arange(n_labels) if streams is None else np.asarray(streams, dtype=np.int64)
    rows = feature_rows(X, n_threads=n_threads)
    found = (
        np.empty((n_labels, X.shape[1]), dtype=X.dtype),
        np.empty(n_labels),
        np.empty(n_labels),
        np.empty(n_labels),
        np.empty(n_labels, dtype=np.int64),
    )
    on = _arrays(positives, 1 / reg)
    off = on if negatives is None else _arrays(negatives, 1 / reg)
    others = np.empty(0)
    if negatives is None:
        others = np.ones(X.shape[0]) / reg if row_costs is None else row_costs / reg
    pairs = on, off, others
    run_chunks(
        lambda start, stop: descend_labels(rows, descent, pairs, numbers, found, start, stop),
        even_chunks(n_labels, _LABELS_PER_CHUNK),
        n_threads,
    )
    coefficients, intercept, value, violation, n_iter = found
    return DualDescentResult(coefficients, intercept, reg * value, violation, n_iter, violation <= descent.tol)


def _arrays(matrix: sp.csr_matrix, factor: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return matrix.indptr, matrix.indices, matrix.data.astype(np.float64) * factor
