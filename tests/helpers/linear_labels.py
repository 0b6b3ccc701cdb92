"""A small problem whose labels are noisy linear functions of sparse features."""

import numpy as np
import scipy.sparse as sp


def linear_labels(n_rows, n_features, n_labels, threshold, seed=0):
    """X (CSR, half of its entries stored) and 0/1 labels: on where a random linear function and noise pass it."""
    rng = np.random.default_rng(seed)
    X = sp.random(n_rows, n_features, 0.5, format="csr", random_state=seed, data_rvs=rng.standard_normal)
    scores = X @ rng.standard_normal((n_features, n_labels)) + 0.3 * rng.standard_normal((n_rows, n_labels))
    return X, sp.csr_matrix((scores > threshold).astype(float))
