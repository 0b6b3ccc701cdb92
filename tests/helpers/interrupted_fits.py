"""Fits of every kind that can resume from a checkpoint, and a way to interrupt them."""

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML, REML, BinaryRelevance, Cascade
from tagwise.baselines import SLEEC, WSABIE, FastXML

RNG = np.random.default_rng(0)
X = sp.random(160, 24, 0.3, format="csr", random_state=1)
Y = sp.csr_matrix((X @ RNG.standard_normal((24, 9)) > 0.6).astype(np.float64))
MASK = sp.csr_matrix((RNG.random(Y.shape) < 0.5).astype(np.int8))
FULL, MASKED = (X, Y), (X, Y, MASK)
DENSE = (X.toarray().astype(np.float32), Y.toarray(), MASK.toarray())

LOSSES = ("squared", "logistic", "squared_hinge")
CASES = {
    **{f"LEML-{loss}": (LEML, {"loss": loss}, FULL) for loss in LOSSES},
    **{f"LEML-{loss}-mask": (LEML, {"loss": loss}, MASKED) for loss in LOSSES},
    **{f"LEML-{loss}-dense": (LEML, {"loss": loss, "positive_weight": 2.0}, DENSE) for loss in LOSSES},
    "LEML-converging": (LEML, {"tol": 0.05, "max_iter": 30}, FULL),
    "REML-converging": (REML, {"tol": 0.05, "max_iter": 30, "sparse_part": "support"}, FULL),
    "LEML-stopping": (LEML, {"early_stopping": True, "max_iter": 7}, FULL),
    "LEML-stopping-mask": (LEML, {"early_stopping": True, "loss": "logistic", "max_iter": 7, "patience": 3}, MASKED),
    "LEML-rbf": (LEML, {"kernel": "rbf", "memory_limit": 2e6}, FULL),
    "LEML-random": (LEML, {"init": "random", "fit_intercept": False, "random_state": 3}, MASKED),
    "LEML-closed": (LEML, {"solver": "closed_form"}, FULL),
    "REML-admm": (REML, {"sparse_part": "admm"}, FULL),
    "REML-admm-mask": (REML, {"sparse_part": "admm", "sparsity": 0.5}, MASKED),
    "REML-support": (REML, {"sparse_part": "support", "fit_intercept": False}, FULL),
    "REML-support-mask": (REML, {"sparse_part": "support", "positive_weight": "propensity"}, MASKED),
    "REML-parts": (REML, {"sparse_part": "support", "partitions": 3, "max_iter": 2}, FULL),
    "REML-parts-mask": (REML, {"sparse_part": "admm", "partitions": 2, "max_iter": 2}, MASKED),
    "Cascade": (Cascade, {"shortlist": 4, "max_iter": 3}, FULL),
    "Cascade-mask": (Cascade, {"shortlist": 4, "max_iter": 2, "positive_weight": np.arange(1.0, 10.0)}, MASKED),
    "BinaryRelevance": (BinaryRelevance, {}, FULL),
    "BinaryRelevance-logistic-mask": (BinaryRelevance, {"loss": "logistic"}, MASKED),
    "BinaryRelevance-hinge": (BinaryRelevance, {"loss": "hinge"}, FULL),
    "WSABIE": (WSABIE, {"max_iter": 4}, FULL),
    "SLEEC": (SLEEC, {"n_learners": 3, "n_clusters": 2, "label_neighbors": 5, "n_neighbors": 5}, FULL),
    "FastXML": (FastXML, {"n_trees": 23}, FULL),
}
COMMON = {"rank": 4, "support": 6, "tol": 1e-6, "max_iter": 4}


def maker(name):
    model_class, own, data = CASES[name]
    accepted = model_class().get_params()
    given = {key: value for key, value in COMMON.items() if key in accepted} | own

    def make(**changes):
        return model_class(**(given | changes))

    return make, data


def interrupt_fit(model, after, data, checkpoint):
    """The iterations that ran before the fit was interrupted."""
    seen = []

    def interrupt(iteration, info):
        seen.append(iteration)
        if iteration == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(*data, callback=interrupt, checkpoint=checkpoint)
    return seen
