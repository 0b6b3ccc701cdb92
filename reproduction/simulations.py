"""Statements of the papers' theory on data that is drawn as they assume: tail labels (REML) and subspaces (MSE).

The excess risk of LEML's norms is in :mod:`reproduction.experiments`, as it shares its penalties and masks.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

from reproduction.configuration import Cell
from reproduction.methods import make_model
from tagwise.exceptions import ConvergenceWarning
from tagwise.parameters import random_generator

__all__ = ["planted_subspaces", "subspace_angle", "tail_labels"]

_FRESH_ROWS = 2000


def tail_labels(cell: Cell, threads: int) -> dict[str, Any]:
    r"""Excess squared error of a low-rank model where a share of the labels are tail labels.

    Rows are x ~ N(0, I_d). Of L labels the head has y = sign(xᵀWh_j) with W of rank k, and each tail label is the sign
    of a feature of its own, so that no low rank holds them. The best linear predictor of y = sign(xᵀw) with ‖w‖ = 1 is
    √(2/π) xᵀw, with an error of 1 − 2/π; the excess is what a model of rank k, with or without a sparse part, has above
    that on fresh rows, averaged over labels. Leaving a tail label out costs 2/π: without a sparse part the excess grows
    with the share of tail labels, slope 1; with one it need not.
    """
    options = cell.study.options
    n, d, labels, rank = (int(options[name]) for name in ("rows", "features", "labels", "rank"))
    rng = random_generator(cell.seed)
    directions = rng.standard_normal((rank, labels))
    truth = np.linalg.qr(rng.standard_normal((d, rank)))[0] @ (directions / np.linalg.norm(directions, axis=0))
    n_tail = round(float(cell.settings["tail"]) * labels)
    tail = rng.permutation(labels)[:n_tail]
    truth[:, tail] = 0
    truth[rng.permutation(d)[:n_tail], tail] = 1
    X, X_fresh = rng.standard_normal((n, d)), rng.standard_normal((_FRESH_ROWS, d))
    Y = sp.csr_matrix((X @ truth > 0).astype(np.float32))
    model = make_model(str(cell.method.kind), cell.method.fixed(cell.dataset), seed=cell.seed, threads=threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, Y)
    # Scores are predictions of labels 0/1, less ½: twice them predict −1/+1.
    error = np.mean((np.sign(X_fresh @ truth) - 2 * model.decision_function(X_fresh)) ** 2)
    return {"values": {"excess squared error": float(error - (1 - 2 / np.pi))}}


def planted_subspaces(
    rng: np.random.Generator, n: int, p: int, n_labels: int, rank: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Orthonormal bases (L×r×p), labels (n×L, one or two per row) and the rows (n×p) that they explain exactly."""
    bases = np.stack([np.linalg.qr(rng.standard_normal((p, rank)))[0].T for _ in range(n_labels)])
    Y = np.zeros((n, n_labels), dtype=np.float32)
    for row in Y:
        row[rng.choice(n_labels, rng.integers(1, 3), replace=False)] = 1
    coefficients = rng.standard_normal((n, n_labels, rank)) * Y[:, :, None]
    return bases, Y, np.einsum("nlr,lrp->np", coefficients, bases)


def subspace_angle(cell: Cell, threads: int) -> dict[str, Any]:
    r"""Largest principal angle between the subspaces found by MSE and those planted: mean over labels, in degrees.

    Rows are sums of points of their labels' planted subspaces, Gaussian noise of the deviation ``noise``, and outliers:
    a share ``outliers`` of the entries, each ten times as large as an entry is on average. By perturbation theory
    (Wedin) the sine of the angle is at most the norm of the perturbation over the smallest singular value of the part:
    slope 1 over the noise.
    """
    options = cell.study.options
    n, p, labels, rank = (int(options[name]) for name in ("rows", "features", "labels", "rank"))
    rng = random_generator(cell.seed)
    bases, Y, X = planted_subspaces(rng, n, p, labels, rank)
    outliers = float(cell.settings["outliers"])
    X = X + float(cell.settings["noise"]) * rng.standard_normal(X.shape)
    hit = rng.random(X.shape) < outliers
    X[hit] += 10 * X.std() * rng.choice([-1.0, 1.0], hit.sum())
    parameters = {**cell.method.fixed(cell.dataset), "subspace_rank": rank, "outlier_fraction": outliers}
    model = make_model(str(cell.method.kind), parameters, seed=cell.seed, threads=threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, Y)
    angles = []
    for label, basis in enumerate(bases):
        found = model.subspaces_[model.subspace_starts_[label] : model.subspace_starts_[label + 1]]
        cosine = np.linalg.svd(found @ basis.T, compute_uv=False).min()
        angles.append(np.degrees(np.arccos(min(1.0, float(cosine)))))
    return {"values": {"angle": float(np.mean(angles))}, "rounds": int(model.n_iter_)}
