"""tagwise itself: its own models with their defaults, and the one of them that validation rows choose.

"best by validation" fits every candidate to four fifths of the training rows and takes the one with the best P@1 on the
last fifth; it is then trained on all rows, as any other system. Where labels are unknown, a candidate is judged on the
held-out rows whose first answer is known to be right or wrong: which labels are hidden does not depend on what is
answered, so that this estimates the same P@1. Where only positives are known, models are told so (`unlisted`), and a
right answer counts as its inverse propensity, which estimates the P@1 on complete labels.
"""

import warnings

import numpy as np
from peers.limits import too_many_weights

NAME = "tagwise"
DISTRIBUTION = "tagwise"
REQUIREMENTS = None
LEARNS_FROM_MASK = True
MODELS = {
    "Cascade": {},
    "BinaryRelevance": {},
    "REML": {"sparse_part": "support"},
    "LEML": {},
}
BEST = "tagwise, best by validation"
SYSTEMS = {
    **{f"tagwise-{name}": {"model": name, "parameters": parameters} for name, parameters in MODELS.items()},
    BEST: {"candidates": MODELS, "validation_fraction": 0.2, "rule": "P@1"},
}
MOST_WEIGHTS = 100_000_000
WARM_ROWS = 500


def refusal(settings, shape):
    return _too_large(settings.get("model"), shape)


def _too_large(model, shape):
    return too_many_weights(shape, MOST_WEIGHTS) if model == "BinaryRelevance" else None


def warm_up(settings, threads):
    """Compile every kernel, or read it from the cache: a small fit, with a mask and without."""
    from tagwise.data import hide_labels, load_dataset

    data = load_dataset("debtags-sample")
    X, Y = data.X_train[:WARM_ROWS], data.Y_train[:WARM_ROWS]
    wanted = [settings] if "model" in settings else [{"model": n, "parameters": p} for n, p in MODELS.items()]
    for one in wanted:
        for observed in (None, hide_labels(Y, 0.2, random_state=0)):
            _fitted(one, threads, X, Y, observed).predict_topk(X, 5)


def choose(problem, settings, threads):
    """The candidate with the best P@1 on validation rows; nothing to choose where a model is named."""
    if "model" in settings:
        return settings, None
    from tagwise.data import split_rows
    from tagwise.metrics import inverse_propensity

    only_listed = problem.unlisted == "unknown"
    worth = inverse_propensity(problem.Y, listed_only=True) if only_listed else np.ones(problem.Y.shape[1])
    training, validation = split_rows(problem.Y, settings["validation_fraction"], random_state=0, keep_labels=True)
    observed = None if problem.observed is None else problem.observed[training]
    shape = (*problem.X.shape, problem.Y.shape[1])
    scores, left_out = {}, {}
    for name, parameters in settings["candidates"].items():
        reason = _too_large(name, shape)
        if reason is not None:
            left_out[name] = reason
            continue
        model = _fitted(
            {"model": name, "parameters": parameters},
            threads,
            problem.X[training],
            problem.Y[training],
            observed,
            problem.unlisted,
        )
        labels, _ = model.predict_topk(problem.X[validation], 1)
        judged = np.arange(len(validation))
        if problem.observed is not None:
            known = problem.observed[validation]
            judged = np.flatnonzero(np.asarray(known[judged, labels[:, 0]]).ravel())
        first = labels[judged, 0]
        scores[name] = float(np.mean(np.asarray(problem.Y[validation[judged], first]).ravel() * worth[first]))
    best = max(scores, key=scores.get)
    chosen = {"model": best, "parameters": settings["candidates"][best]}
    details = {"chosen": best, "by": settings["rule"], "validation_rows": len(validation), "scores": scores}
    return chosen, {**details, "left_out": left_out}


def train(problem, settings, threads, scratch):
    return _fitted(settings, threads, problem.X, problem.Y, problem.observed, problem.unlisted)


def _fitted(settings, threads, X, Y, observed, unlisted="off"):
    from tagwise.models.choice import build_model

    model = build_model(settings["model"], settings["parameters"], unlisted=unlisted, n_jobs=threads, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, Y, observed)


def save(model, folder):
    model.save(folder)


def load(folder, settings, threads):
    import tagwise

    return tagwise.load(folder).set_params(n_jobs=threads)


def predict(answering, X, k, threads):
    return answering.predict_topk(X, k)[0]
