"""What MSE needs in bytes, held against its memory_limit before anything is allocated."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError
from tagwise.solvers.subspace_memory import decomposition_memory, dictionary_memory

__all__ = ["check_dictionary_memory", "check_fit_memory"]


def check_fit_memory(
    X: sp.csr_matrix | np.ndarray,
    Y: sp.csr_matrix,
    ranks: np.ndarray,
    n_outliers: int,
    limit: float,
    *,
    decomposition: str,
    normalize: bool,
    n_threads: int,
) -> None:
    """Refuse a fit whose peak beside X and Y could be above the limit."""
    size, n_features = float(ranks.sum()), X.shape[1]
    stored = X.size if isinstance(X, np.ndarray) else X.nnz
    scaled = float(X.dtype.itemsize * stored) if normalize else 0.0
    training = decomposition_memory(X, Y, ranks, n_outliers, decomposition=decomposition, n_threads=n_threads)
    # What training needed is gone when the dictionary is made, but for the bases.
    dictionary = size * n_features * X.dtype.itemsize + dictionary_memory(size, n_features, n_threads=n_threads)
    most = int(np.bincount(Y.indices, minlength=1).max())
    _check(
        scaled + max(training, dictionary),
        limit,
        f"{size:,.0f} directions of {n_features:,} features, {n_outliers:,} outliers and the {most:,} rows of the most "
        "frequent label",
        "lower subspace_rank or outlier_fraction, leave out rare labels, raise memory_limit, or use LEML or "
        "BinaryRelevance, which are made for many labels",
    )


def check_dictionary_memory(size: int, n_features: int, limit: float, advice: str, *, n_threads: int) -> None:
    """Refuse a fitted model whose dictionary of ``size`` directions could be above the limit."""
    needed = dictionary_memory(size, n_features, n_threads=n_threads)
    _check(needed, limit, f"predicting with {size:,} directions of {n_features:,} features", advice)


def _check(needed: float, limit: float, what: str, advice: str) -> None:
    if needed > limit:
        raise InvalidInputError(
            f"MSE needs memory of {_size(needed)} for {what}, above memory_limit ({_size(limit)}); {advice}."
        )


def _size(n_bytes: float) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if n_bytes >= 0.01 * unit:
            return f"{n_bytes / unit:,.2f} {name}"
    return f"{n_bytes:,.0f} bytes"
