"""The experiments that are no plain "fit and score": label counts, speed-up over threads, excess risk."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from tagwise.data import hide_labels
from tagwise.randomness import random_generator
from tagwise.reproduction.cells import Cell
from tagwise.reproduction.datasets import Split, mask_of
from tagwise.reproduction.methods import make_model

__all__ = ["excess_risk", "label_counts", "speed_up"]

_CURVE_POINTS = 200
_FRESH_ROWS = 4000


def label_counts(cell: Cell, data: Split) -> dict[str, Any]:
    """In how many rows (training and test) each label is, most frequent first, thinned to some 200 points."""
    labels = data.Y.shape[1]
    counts = np.bincount(data.Y.indices, minlength=labels) + np.bincount(data.Y_test.indices, minlength=labels)
    counts = np.sort(counts)[::-1]
    places = np.unique(np.geomspace(1, labels, min(_CURVE_POINTS, labels)).round().astype(int))
    return {
        "values": {
            "labels": labels,
            "in at most 2 rows": int((counts <= 2).sum()),
            "in at most 10 rows": int((counts <= 10).sum()),
            "most rows": int(counts[0]),
        },
        "curve": {"x": places.tolist(), "y": counts[places - 1].tolist()},
    }


def speed_up(cell: Cell, data: Split) -> dict[str, Any]:
    """Seconds of one gradient and one Hessian·vector product of LEML's W problem on ``settings["threads"]`` threads.

    Logistic loss on the known pairs, factors drawn at random: the time does not depend on their values.
    """
    from tagwise.kernels.two_way import two_way
    from tagwise.losses import get_loss
    from tagwise.problems.factor_blocks import FeatureProblem
    from tagwise.problems.labels import TrainingLabels
    from tagwise.problems.pair_losses import row_side

    threads, rank = int(cell.settings["threads"]), int(cell.study.options["rank"])
    X, Y = data.X.astype(np.float32), data.Y
    observed = mask_of(Y, cell.study.options, cell.seed)
    labels = TrainingLabels.build(Y, observed, None, dtype=np.float32, n_threads=threads)
    rng = random_generator(cell.seed)
    W, H, S = (
        (rng.standard_normal((rows, rank)) / np.sqrt(rank)).astype(np.float32)
        for rows in (X.shape[1], Y.shape[1], X.shape[1])
    )
    problem = FeatureProblem(two_way(X, n_threads=threads), row_side(labels, get_loss("logistic")), H, rank, 1.0)

    def gradient() -> None:
        problem.value(W)
        problem.gradient()

    gradient()
    return {
        "values": {
            "gradient seconds": _best_seconds(gradient),
            "product seconds": _best_seconds(lambda: problem.hessian_vector(S)),
        }
    }


def excess_risk(cell: Cell, threads: int) -> dict[str, Any]:
    r"""Excess logistic risk on isotropic data, by trace norm (LEML) or Frobenius norm (BinaryRelevance).

    Rows are x ~ N(0, I_d); a label is on with probability σ(xᵀz_l), with Z of rank r and ‖z_l‖ = ``strength`` for every
    label, so that its trace norm grows like √L. Each row shows s labels on average. The excess risk is

    .. math:: \frac1L\sum_l E_x\,[KL(\sigma(x^\top z_l)\,\|\,\sigma(x^\top \hat z_l))],

    the expectation over labels exact, that over x by fresh rows. The penalty is chosen by the loss on validation rows
    of their own, half as many as training rows, that show s labels as well.
    """
    options = cell.study.options
    n, labels, features = int(cell.settings["n"]), int(cell.settings["L"]), int(options["features"])
    rng = random_generator(cell.seed)
    basis = np.linalg.qr(rng.standard_normal((features, int(options["rank"]))))[0]
    weights = rng.standard_normal((basis.shape[1], labels))
    truth = float(options["strength"]) * basis @ (weights / np.linalg.norm(weights, axis=0))
    share = min(1.0, float(options["known_per_row"]) / labels)
    X, Y, known = _isotropic(rng, n, truth, share)
    X_held, Y_held, known_held = _isotropic(rng, n // 2, truth, share)
    X_fresh = rng.standard_normal((_FRESH_ROWS, features))
    shown = known_held.nonzero()
    signs = 2 * Y_held.toarray()[shown] - 1
    parameters = cell.method.fixed(cell.dataset)
    tried = []
    for reg in options["penalties"]:
        model = make_model(str(cell.method.kind), {**parameters, "reg": reg}, seed=cell.seed, threads=threads)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, Y, known)
        loss = np.logaddexp(0, -signs * model.decision_function(X_held)[shown]).mean()
        tried.append({"reg": reg, "value": -float(loss), "risk": _risk(model, X_fresh, truth)})
    best = max(tried, key=lambda entry: entry["value"])
    return {"values": {"excess risk": best["risk"]}, "parameters": {"reg": best["reg"]}, "tried": tried}


def _isotropic(
    rng: np.random.Generator, n: int, truth: np.ndarray, share: float
) -> tuple[np.ndarray, sp.csr_matrix, sp.csr_matrix]:
    X = rng.standard_normal((n, len(truth)))
    on = rng.random((n, truth.shape[1])) < expit(X @ truth)
    Y = sp.csr_matrix(on.astype(np.float32))
    return X, Y, hide_labels(Y, share, random_state=rng)


def _risk(model: Any, X: np.ndarray, truth: np.ndarray) -> float:
    best = X @ truth
    found = model.decision_function(X)
    on = expit(best)
    excess = on * (np.logaddexp(0, -found) - np.logaddexp(0, -best))
    excess += (1 - on) * (np.logaddexp(0, found) - np.logaddexp(0, best))
    return float(excess.mean())


def _best_seconds(function: Callable[[], object], repeat: int = 5) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)
