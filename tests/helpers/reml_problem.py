"""A small problem for REML, and its objective as one reads it."""

import numpy as np


def problem(seed=0, n=50, d=15, n_labels=8, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)
    Y = (X @ rng.standard_normal((d, n_labels)) + 0.5 * rng.standard_normal((n, n_labels)) > 0.8).astype(float)
    known = (rng.random(Y.shape) < 0.6).astype(float)
    known[0] = 1
    return X.astype(dtype), Y, known


def equation_5(model, X, Y, known, weight):
    """With labels −1/+1, from the fitted attributes; without λ3 where the sparse part is a support."""
    if model.normalize:
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        X = X / np.where(lengths > 0, lengths, 1)
    U, V = np.sqrt(2) * model.feature_factors_, np.sqrt(2) * model.label_factors_
    H = 2 * model.sparse_weights_.toarray()
    scores = X @ U @ V.T + X @ H + 2 * model.intercept_
    omega = known * np.where(Y > 0, weight, 1.0)
    value = np.sum(omega * (2 * Y - 1 - scores) ** 2) + model.reg_sparse * np.sum(H**2)
    value += model.reg_low_rank * (np.sum(U**2) + np.sum(V**2))
    if model.sparse_part_ == "admm":
        value += model.sparsity * np.sum(np.abs(X @ H) * (known > 0))
    return value
