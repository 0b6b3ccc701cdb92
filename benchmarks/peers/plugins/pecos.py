"""PECOS: XR-Linear with its documented defaults, and the same linear models one against all.

Labels are described by the mean of their rows (PIFA) and clustered by hierarchical k-means, 16 ways, with at most 100
labels per leaf; L2-loss SVM dual, weights below 0.1 dropped, beam 10. Loaded for prediction only, which its
documentation calls the faster way.
"""

import numpy as np
from peers.top_labels import of_sparse_scores

NAME = "pecos"
DISTRIBUTION = "libpecos"
# Its wheel is built against this torch; pip alone may pick another.
REQUIREMENTS = ["torch==2.13.0", "libpecos"]
SYSTEMS = {
    "pecos": {"tree": True, "nr_splits": 16, "max_leaf_size": 100, "threshold": 0.1, "beam_size": 10},
    "pecos-ova": {"tree": False, "threshold": 0.1},
}


def warm_up(settings, threads):
    from pecos.xmc.xlinear.model import XLinearModel  # noqa: F401


def train(problem, settings, threads, scratch):
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X, Y = problem.X, problem.Y.tocsc().astype(np.float32)
    clusters, beam = None, None
    if settings["tree"]:
        described = LabelEmbeddingFactory.create(problem.Y, X, method="pifa", threads=threads)
        clusters = Indexer.gen(
            described,
            indexer_type="hierarchicalkmeans",
            nr_splits=settings["nr_splits"],
            max_leaf_size=settings["max_leaf_size"],
            threads=threads,
        )
        beam = settings["beam_size"]
    return XLinearModel.train(
        X, Y, C=clusters, threads=threads, threshold=settings["threshold"], beam_size=beam, only_topk=5
    )


def save(model, folder):
    model.save(str(folder))


def load(folder, settings, threads):
    from pecos.xmc.xlinear.model import XLinearModel

    return XLinearModel.load(str(folder), is_predict_only=True)


def predict(answering, X, k, threads):
    return answering.predict(X, only_topk=k, threads=threads)


def ranked(answer, k):
    return of_sparse_scores(answer, k)
