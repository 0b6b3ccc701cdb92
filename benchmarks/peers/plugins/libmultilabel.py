"""LibMultiLabel's linear methods: a label tree and one against the rest, with bias and eps 1e-4 as in its examples.

It takes as many threads as the machine has physical cores, and has no parameter for them: what it asks is answered with
the benchmark's number. Test rows are answered 256 at a time, as its own evaluation does by default.
"""

import numpy as np
from peers.limits import too_many_weights
from peers.top_labels import of_dense_scores

NAME = "libmultilabel"
DISTRIBUTION = "libmultilabel"
REQUIREMENTS = ["torch==2.13.0", "libmultilabel"]
OPTIONS = "-s 1 -e 0.0001 -B 1"
SYSTEMS = {
    "libmultilabel-tree-B1": {"technique": "tree", "options": OPTIONS, "K": 100, "dmax": 10},
    "libmultilabel-1vsrest-B1": {"technique": "1vsrest", "options": OPTIONS},
}
MOST_WEIGHTS = 100_000_000
ROWS_AT_A_TIME = 256


def refusal(settings, shape):
    return too_many_weights(shape, MOST_WEIGHTS) if settings["technique"] == "1vsrest" else None


def warm_up(settings, threads):
    """A tiny fit: the tree's k-means and LIBLINEAR's conversion of rows are compiled on first use."""
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    X = sp.random(400, 50, density=0.2, format="csr", random_state=rng)
    Y = sp.csr_matrix((rng.random((400, 120)) < 0.05).astype(np.float64))
    _fit(X, Y, settings, threads)


def train(problem, settings, threads, scratch):
    return _fit(problem.X.astype(np.float64), problem.Y.astype(np.float64), settings, threads)


def _fit(X, Y, settings, threads):
    import libmultilabel.linear as linear
    import psutil

    psutil.cpu_count = lambda logical=True: threads
    # The tree's k-means draws from it.
    np.random.seed(0)  # noqa: NPY002
    if settings["technique"] == "tree":
        return linear.train_tree(
            Y, X, options=settings["options"], K=settings["K"], dmax=settings["dmax"], verbose=False
        )
    return linear.train_1vsrest(Y, X, options=settings["options"], verbose=False)


def save(model, folder):
    import libmultilabel.linear as linear

    linear.save_pipeline(str(folder), None, model)


def load(folder, settings, threads):
    import libmultilabel.linear as linear

    return linear.load_pipeline(str(folder / "linear_pipeline.pickle"))[1]


def predict(answering, X, k, threads):
    starts = range(0, X.shape[0], ROWS_AT_A_TIME)
    return np.vstack(
        [of_dense_scores(answering.predict_values(X[start : start + ROWS_AT_A_TIME]), k) for start in starts]
    )
