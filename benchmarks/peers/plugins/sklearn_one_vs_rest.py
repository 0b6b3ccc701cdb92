"""scikit-learn: one linear model a label, by stochastic gradient descent with its defaults.

A label that no training row has would get a constant score of 0 and so flood the top of every ranking: such labels are
taken out before training, and never answered.
"""

import numpy as np
from peers.limits import too_many_weights
from peers.top_labels import of_dense_scores

NAME = "scikit-learn"
DISTRIBUTION = "scikit-learn"
REQUIREMENTS = ["scikit-learn"]
SYSTEMS = {"sklearn-ovr-sgd": {"random_state": 0}}
MOST_WEIGHTS = 100_000_000


def refusal(settings, shape):
    return too_many_weights(shape, MOST_WEIGHTS)


def warm_up(settings, threads):
    import sklearn.linear_model
    import sklearn.multiclass  # noqa: F401


def train(problem, settings, threads, scratch):
    import joblib
    from sklearn.linear_model import SGDClassifier
    from sklearn.multiclass import OneVsRestClassifier

    seen = np.flatnonzero(np.diff(problem.Y.tocsc().indptr))
    model = OneVsRestClassifier(SGDClassifier(**settings), n_jobs=threads)
    # Threads share the rows, and gradient descent leaves the interpreter free.
    with joblib.parallel_backend("threading", n_jobs=threads):
        # Of shorter integers it mixes up the columns.
        model.fit(problem.X, problem.Y[:, seen].astype(np.int64))
    return model, seen


def save(model, folder):
    import joblib

    folder.mkdir(exist_ok=True)
    joblib.dump(model, folder / "model.joblib")


def load(folder, settings, threads):
    import joblib

    return joblib.load(folder / "model.joblib")


def predict(answering, X, k, threads):
    model, seen = answering
    labels = of_dense_scores(model.decision_function(X), k)
    return np.where(labels >= 0, seen[labels], -1)
