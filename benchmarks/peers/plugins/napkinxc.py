"""napkinXC's probabilistic label tree and binary relevance, with its defaults: logistic loss, C = 10.

It writes the model while it trains, so that its training time has the writing in it.
"""

import shutil

from peers.top_labels import of_pairs

NAME = "napkinxc"
DISTRIBUTION = "napkinxc"
REQUIREMENTS = ["napkinxc"]
SYSTEMS = {
    "napkinxc-plt": {"model": "PLT", "parameters": {"seed": 0}},
    "napkinxc-br": {"model": "BR", "parameters": {}},
}
MOST_LABELS = 10_000


def refusal(settings, shape):
    labels = shape[2]
    if settings["model"] != "BR" or labels <= MOST_LABELS:
        return None
    return (
        f"left out: one logistic regression on all rows for each of {labels:,} labels, "
        f"above this plug-in's {MOST_LABELS:,}"
    )


def warm_up(settings, threads):
    import napkinxc.models  # noqa: F401


def train(problem, settings, threads, scratch):
    output = scratch / "model"
    _model(output, settings, threads).fit(problem.X, problem.Y)
    return output


def _model(folder, settings, threads):
    import napkinxc.models

    return getattr(napkinxc.models, settings["model"])(str(folder), **settings["parameters"], threads=threads)


def save(model, folder):
    shutil.move(model, folder)


def load(folder, settings, threads):
    model = _model(folder, settings, threads)
    model.load()
    return model


def predict(answering, X, k, threads):
    return answering.predict_proba(X, top_k=k)


def ranked(answer, k):
    return of_pairs(answer, k)
