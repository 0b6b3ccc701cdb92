"""All ranking metrics from one top-k pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tagwise.metrics.propensity import WeightedHits
from tagwise.metrics.ranking import check_ks, hits_of

__all__ = ["ranking_report"]


def ranking_report(
    Y_true: Any,
    prediction: Any,
    ks: int | Sequence[int] | np.ndarray = (1, 3, 5),
    inverse_propensity: Any = None,
) -> dict[str, float]:
    """P, nDCG, PSP, PSnDCG, R and coverage at each k, from one ranking of ``prediction``.

    Parameters
    ----------
    Y_true : sparse or dense 0/1 matrix, n×L
        True labels.
    prediction : array, sparse matrix or pair
        Integer n×w label ids (-1 = none), a pair (labels, scores), sparse or floating-point n×L scores; see
        :mod:`tagwise.metrics`.
    ks : int or sequence of int
        Each k.
    inverse_propensity : array, L, optional
        From :func:`tagwise.metrics.inverse_propensity` of the training labels; without it PSP and PSnDCG are
        left out.

    Returns
    -------
    dict
        ``"P@1"``, …, then ``"nDCG@…"``, ``"PSP@…"``, ``"PSnDCG@…"``, ``"R@…"``, ``"coverage@…"``, each for
        all ks in the given order; values in [0, 1] as the functions of the same name give them.

    Notes
    -----
    Memory O(n·max k + nnz + L).
    """
    wanted, _ = check_ks(ks, "ks")
    hits = hits_of(Y_true, prediction, wanted)
    columns = {"P": hits.precision(wanted), "nDCG": hits.ndcg(wanted)}
    if inverse_propensity is not None:
        weighted = WeightedHits.of(hits, inverse_propensity)
        columns |= {"PSP": weighted.psp(wanted), "PSnDCG": weighted.psndcg(wanted)}
    columns |= {"R": hits.recall(wanted), "coverage": hits.coverage(wanted)}
    return {f"{name}@{k}": float(value) for name, values in columns.items() for k, value in zip(wanted, values)}
