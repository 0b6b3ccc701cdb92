"""Omikuji's three documented settings: Parabel, Bonsai and the shallow balanced trees of AttentionXML, 3 trees each.

It trains from a text file only, which is written beforehand; reading it counts as training. It has no seed. It predicts
a row at a time, and refuses rows without features: those are left out of training and get no answer.
"""

import numpy as np
from peers.top_labels import of_pairs

NAME = "omikuji"
DISTRIBUTION = "omikuji"
REQUIREMENTS = ["omikuji"]
SYSTEMS = {
    "omikuji-parabel": {"n_trees": 3, "cluster_balanced": True, "cluster_k": 2},
    "omikuji-bonsai": {"n_trees": 3, "cluster_balanced": False, "cluster_k": 100, "max_depth": 3},
    "omikuji-attention": {"n_trees": 3, "cluster_balanced": True, "cluster_k": 2, "collapse_every_n_layers": 5},
}


def warm_up(settings, threads):
    import omikuji  # noqa: F401


def prepare(problem, settings, scratch):
    X, Y = problem.X, problem.Y
    rows = np.flatnonzero(np.diff(X.indptr))
    with open(scratch / "train.txt", "w", encoding="ascii") as stream:
        stream.write(f"{len(rows)} {X.shape[1]} {Y.shape[1]}\n")
        for row in rows:
            labels = ",".join(map(str, Y.indices[Y.indptr[row] : Y.indptr[row + 1]]))
            part = slice(X.indptr[row], X.indptr[row + 1])
            pairs = (f"{feature}:{value:.9g}" for feature, value in zip(X.indices[part], X.data[part]))
            stream.write(f"{labels} {' '.join(pairs)}\n")


def train(problem, settings, threads, scratch):
    import omikuji

    parameters = omikuji.Model.default_hyper_param()
    for name, value in settings.items():
        setattr(parameters, name, value)
    return omikuji.Model.train_on_data(str(scratch / "train.txt"), parameters, threads)


def save(model, folder):
    model.save(str(folder))


def load(folder, settings, threads):
    import omikuji

    model = omikuji.Model.load(str(folder))
    model.init_prediction_thread_pool(threads)
    return model


def predict(answering, X, k, threads):
    answers = []
    for row in range(X.shape[0]):
        part = slice(X.indptr[row], X.indptr[row + 1])
        pairs = list(zip(X.indices[part].tolist(), X.data[part].tolist()))
        answers.append(answering.predict(pairs, top_k=k) if pairs else [])
    return answers


def ranked(answer, k):
    return of_pairs(answer, k)
