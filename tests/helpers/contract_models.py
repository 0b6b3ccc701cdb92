"""Every model of the registry in short settings, for the tests of the contract. A new model needs no entry here."""

import inspect

from tagwise.registry import MODELS

# Settings of every model that has the parameter. Tests may change these in any model, though not every one has them.
SHORT = {"rank": 3, "max_iter": 4, "n_neighbors": 5, "random_state": 0}

REML = {"sparse_part": "support", "support": 5}
SLEEC = {"n_learners": 2, "label_neighbors": 10, "max_iter": 100}
# Class → variant → what differs from SHORT. A model without an entry has one variant, of SHORT alone.
VARIANTS = {
    "MSE": {
        "": {"subspace_rank": 2, "memory_limit": 2**24},
        "svd": {"subspace_rank": 2, "decomposition": "svd", "memory_limit": 2**24},
    },
    "LEML": {
        "": {},
        "logistic": {"loss": "logistic", "reg": 0.1},
        "squared_hinge": {"loss": "squared_hinge", "reg": 0.1},
        "rbf": {"kernel": "rbf", "gamma": 1.0, "memory_limit": 2**21},
    },
    "REML": {
        "": {"memory_limit": 2**24},
        "support": REML,
        "admm": {"sparse_part": "admm", "sparsity": 0.5, "positive_weight": 2.0, "memory_limit": 2**23},
        "parts": {**REML, "partitions": 2},
    },
    "Cascade": {
        "": {"support": 5, "shortlist": 4, "hard_negatives": 3},
        "wide": {"support": 5, "shortlist": 50},
    },
    "BinaryRelevance": {
        "": {"max_iter": 200},
        "cg": {"solver": "cg", "tol": 1e-8, "max_iter": 200},
        "logistic": {"loss": "logistic", "reg": 0.1, "tol": 1e-6, "max_iter": 20},
        "hinge": {"loss": "hinge", "reg": 0.1, "tol": 1e-7, "max_iter": 500},
    },
    "WSABIE": {"": {"learning_rate": 0.3, "max_iter": 20}},
    "KNN": {"": {"n_neighbors": 7}},
    "SLEEC": {"": {**SLEEC, "n_clusters": 3}, "sparse": {**SLEEC, "n_clusters": 2, "sparsity": 0.01}},
    "PLST": {"": {"reg": 0.1}},
    "CPLST": {"": {"reg": 0.1}, "subspace": {"reg": 0.1, "solver": "subspace"}},
    "MLCSSP": {"": {"rank": 4, "reg": 0.1}},
    "CompressedSensing": {
        "": {"n_measurements": 20, "n_nonzero": 4, "reg": 0.1},
        "cosamp": {"n_measurements": 20, "n_nonzero": 4, "recovery": "cosamp", "reg": 0.1},
    },
    "BayesianCS": {"": {"n_measurements": 20, "reg": 0.1}},
    "FastXML": {"": {"n_trees": 12, "C": 10.0}},
    "LPSR": {
        "": {"n_partitions": 4, "labels_per_partition": 5},
        "wsabie": {"base": "wsabie", "rank": 50, "n_partitions": 3},
    },
}


def maker(info, variant, settings):
    """A function that makes models with these settings, or with some of them changed."""
    model_class = info.load_class()
    accepted = set(inspect.signature(model_class).parameters)

    def make(**changes):
        given = {**SHORT, **settings, **changes}
        return model_class(**{name: value for name, value in given.items() if name in accepted or name not in SHORT})

    make.name = f"{info.class_name}-{variant}" if variant else info.class_name
    make.parameters = accepted
    make.learns_from_mask = info.learns_from_mask
    return make


FIRST_MAKERS, MAKERS = [], []
for _info in MODELS:
    _makers = [maker(_info, *variant) for variant in VARIANTS.get(_info.class_name, {"": {}}).items()]
    FIRST_MAKERS.append(_makers[0])
    MAKERS.extend(_makers)
