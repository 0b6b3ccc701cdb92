"""What is computed for a cell: scores of a fitted model, label counts, speed-up over threads and parts, excess risk."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from reproduction.configuration import Cell, Study, choice_of
from reproduction.methods import make_model, resolve_parameters
from reproduction.metrics import fitted, metric_values
from reproduction.results import Results
from reproduction.selection import choose
from reproduction.simulations import subspace_angle, tail_labels
from tagwise.data import available_datasets, hide_labels, load_dataset, make_low_rank_plus_sparse
from tagwise.exceptions import DatasetNotFoundError, TagwiseError
from tagwise.kernels import feature_matrix
from tagwise.losses import get_loss
from tagwise.models.mse.mse import feature_scales
from tagwise.objectives.labels import TrainingLabels
from tagwise.objectives.pair_losses import FeatureProblem, row_side
from tagwise.parameters import random_generator
from tagwise.problem import Problem

__all__ = [
    "Split",
    "check_datasets",
    "excess_risk",
    "label_counts",
    "load_split",
    "mask_of",
    "parts",
    "run_experiment",
    "speed_up",
]

# Rows of the fit that compiles what a timed cell needs.
_WARM_UP_ROWS = 300
_CURVE_POINTS = 200
# Runs of which the fastest is taken, unless a study says otherwise.
_REPEAT = 5
_FRESH_ROWS = 4000


class Split(NamedTuple):
    """Training and test rows."""

    X: sp.csr_matrix
    Y: sp.csr_matrix
    X_test: sp.csr_matrix
    Y_test: sp.csr_matrix


def check_datasets(cells: list[Cell]) -> None:
    """Refuse to start where a data set is missing, before any work is done."""
    needed = {
        cell.dataset
        for cell in cells
        if cell.study.experiment not in SIMULATED and cell.dataset not in cell.study.generated
    }
    missing = sorted(needed - set(available_datasets()))
    if missing:
        raise DatasetNotFoundError(
            f"Data sets not found: {', '.join(missing)}. Set the environment variable TAGWISE_DATA to the folder that "
            "holds them; reproduction/README.md lists them."
        )


def load_split(study: Study, name: str) -> Split:
    """Load or generate the data set; the last one is kept in memory, as cells are grouped by data set."""
    recipe = study.generated.get(name)
    if recipe is not None:
        return _generated(tuple(sorted(recipe.items())))
    return _scaled(name) if study.options.get("scale_features") else _loaded(name)


def mask_of(Y: sp.csr_matrix, settings: dict[str, Any], seed: int) -> sp.csr_matrix | None:
    """``observed`` for the setting ``known`` (a share such as "20%"); None where all labels are known."""
    share = float(str(settings.get("known", "100%")).rstrip("%")) / 100
    return None if share >= 1 else hide_labels(Y, share, random_state=seed)


@lru_cache(maxsize=1)
def _loaded(name: str) -> Split:
    data = load_dataset(name)
    return Split(data.X_train, data.Y_train, data.X_test, data.Y_test)


@lru_cache(maxsize=1)
def _scaled(name: str) -> Split:
    """Features in different units are divided by their largest training value, as :class:`tagwise.MSE` does."""
    data = _loaded(name)
    scales = sp.diags(1 / feature_scales(data.X).astype(np.float64))
    return data._replace(
        X=sp.csr_matrix(data.X @ scales, dtype=data.X.dtype),
        X_test=sp.csr_matrix(data.X_test @ scales, dtype=data.X.dtype),
    )


@lru_cache(maxsize=1)
def _generated(recipe: tuple[tuple[str, Any], ...]) -> Split:
    sizes = dict(recipe)
    train, test, seed = sizes.pop("train_rows"), sizes.pop("test_rows"), sizes.pop("seed", 0)
    problem = make_low_rank_plus_sparse(train + test, random_state=seed, **sizes)
    return Split(problem.X[:train], problem.Y[:train], problem.X[train:], problem.Y[train:])


def run_experiment(cell: Cell, results: Results, threads: int) -> dict[str, Any]:
    """Run a cell.

    Parameters
    ----------
    cell : Cell
    results : Results
        With the choice of the cell's hyper-parameters, if it needs one.
    threads : int

    Returns
    -------
    dict
        ``values`` by metric (``chosen`` and ``tried`` for a choice), and what else is worth keeping.
    """
    experiment = cell.study.experiment
    if experiment in SIMULATED:
        return SIMULATED[experiment](cell, threads)
    data = load_split(cell.study, cell.dataset)
    if experiment == "label-counts":
        return label_counts(cell, data)
    if experiment == "speed-up":
        return speed_up(cell, data)
    if experiment == "parts":
        return parts(cell, data)
    parameters = resolve_parameters(
        cell.method.fixed(cell.dataset), cell.settings, n_labels=data.Y.shape[1], n_features=data.X.shape[1]
    )
    observed = mask_of(data.Y, cell.settings, cell.seed)
    if cell.choice:
        return choose(cell, parameters, data.X, data.Y, observed, threads=threads)
    return _scores(cell, parameters, data, observed, results, threads)


def _scores(
    cell: Cell,
    parameters: dict[str, Any],
    data: Split,
    observed: sp.csr_matrix | None,
    results: Results,
    threads: int,
) -> dict[str, Any]:
    """Fit on the training rows and measure on the test rows."""
    choice = choice_of(cell)
    if choice is not None:
        chosen = results.read(choice)
        if chosen is None:
            raise TagwiseError(f"its parameters could not be chosen, see {choice.key}")
        parameters |= chosen["chosen"]

    def new_model() -> Any:
        return make_model(str(cell.method.kind), parameters, seed=cell.seed, threads=threads)

    if cell.study.timed:
        few, small = slice(0, _WARM_UP_ROWS), new_model()
        fitted(small, data.X[few], data.Y[few], None if observed is None else observed[few])
        metric_values(small, cell.study.metrics, data.Y[few], data.X[few], data.Y[few])
    model = new_model()
    seconds, warned = fitted(model, data.X, data.Y, observed)
    values, predicting = metric_values(model, cell.study.metrics, data.Y, data.X_test, data.Y_test)
    seconds |= predicting
    if "CPU seconds" in cell.study.metrics:
        values["CPU seconds"] = seconds["fit CPU"] + seconds["predict CPU"]
    if "fit seconds" in cell.study.metrics:
        values["fit seconds"] = seconds["fit"]
    return {
        "parameters": parameters,
        "choice": None if choice is None else choice.key,
        "values": values,
        "seconds": seconds,
        "rounds": int(getattr(model, "n_iter_", 1)),
        "warnings": warned,
    }


def label_counts(cell: Cell, data: Split) -> dict[str, Any]:
    """Number of rows (training and test) per label, most frequent label first, thinned to about 200 points."""
    labels = data.Y.shape[1]
    counts = np.bincount(data.Y.indices, minlength=labels) + np.bincount(data.Y_test.indices, minlength=labels)
    counts = np.sort(counts)[::-1]
    places = np.unique(np.geomspace(1, labels, min(_CURVE_POINTS, labels)).round().astype(int))
    return {
        "values": {
            "labels": labels,
            "in at most 2 rows": int((counts <= 2).sum()),
            "in at most 10 rows": int((counts <= 10).sum()),
            "most rows": int(counts[0]),
        },
        "curve": {"x": places.tolist(), "y": counts[places - 1].tolist()},
    }


def speed_up(cell: Cell, data: Split) -> dict[str, Any]:
    """Seconds of one gradient and one Hessian·vector product of LEML's W problem on ``settings["threads"]`` threads.

    Logistic loss on the known pairs, factors drawn at random: the time does not depend on their values. The best of
    ``options["repeat"]`` runs, 5 by default.
    """
    threads, rank = int(cell.settings["threads"]), int(cell.study.options["rank"])
    repeat = int(cell.study.options.get("repeat", _REPEAT))
    X, Y = data.X.astype(np.float32), data.Y
    observed = mask_of(Y, cell.study.options, cell.seed)
    known = Problem.of(X, Y.astype(np.float32), observed)
    labels = TrainingLabels(known.Y, known.known, None, n_threads=threads)
    rng = random_generator(cell.seed)
    W, H, S = (
        (rng.standard_normal((rows, rank)) / np.sqrt(rank)).astype(np.float32)
        for rows in (X.shape[1], Y.shape[1], X.shape[1])
    )
    problem = FeatureProblem(feature_matrix(X, n_threads=threads), row_side(labels, get_loss("logistic")), H, rank)

    def gradient() -> None:
        problem.move_to(W)
        problem.gradient()

    gradient()
    return {
        "values": {
            "gradient seconds": _best_seconds(gradient, repeat),
            "product seconds": _best_seconds(lambda: problem.hessian_vector(S), repeat),
        }
    }


def parts(cell: Cell, data: Split) -> dict[str, Any]:
    """Seconds and scores of a fit in ``settings["partitions"]`` parts, each on one thread.

    With ``settings["processes"]`` = 1 the parts follow one another on one thread, whose processor seconds
    depend little on what else the machine does: ``one thread`` is their sum, ``longest part`` that of the slowest part,
    ``before and after the parts`` what all parts wait for or what waits for all of them (preparing XᵀX, the projection,
    H of all labels), and ``a process per part`` the sum of the last two: what a fit takes where every part has a core.
    ``fit seconds`` are by the clock; with several processes, so many parts at a time are in processes of their own.
    """
    t, processes = int(cell.settings["partitions"]), int(cell.settings["processes"])
    parameters = resolve_parameters(
        cell.method.fixed(cell.dataset), cell.settings, n_labels=data.Y.shape[1], n_features=data.X.shape[1]
    )

    def new_model() -> Any:
        return make_model(str(cell.method.kind), parameters, seed=cell.seed, threads=processes)

    few = slice(0, _WARM_UP_ROWS)
    fitted(new_model(), data.X[few], data.Y[few], None)
    model = new_model()
    wall, cpu, ends = time.perf_counter(), time.process_time(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.X, data.Y, callback=lambda *_: ends.append(time.process_time()))
    seconds = {"fit seconds": time.perf_counter() - wall, "one thread": time.process_time() - cpu}
    values = {"fit seconds": seconds["fit seconds"]}
    if processes == 1:
        # The first part's end counts what was prepared before it; it takes as long as the others do on average.
        spans = np.diff(ends[:t]) if t > 1 else np.empty(0)
        longest = float(spans.max()) if t > 1 else 0.0
        around = seconds["one thread"] - float(spans.sum() + spans.mean()) if t > 1 else seconds["one thread"]
        values |= {
            "one thread": seconds["one thread"],
            "longest part": longest,
            "before and after the parts": around,
            "a process per part": around + longest,
        }
    scores = tuple(name for name in cell.study.metrics if "@" in name)
    values |= metric_values(model, scores, data.Y, data.X_test, data.Y_test)[0]
    return {"parameters": parameters, "values": values, "seconds": seconds}


def excess_risk(cell: Cell, threads: int) -> dict[str, Any]:
    r"""Excess logistic risk on isotropic data, by trace norm (LEML) or Frobenius norm (BinaryRelevance).

    Rows are x ~ N(0, I_d); a label is on with probability σ(xᵀz_l), with Z of rank r and ‖z_l‖ = ``strength`` for every
    label, so that its trace norm grows like √L. Each row shows s labels on average. The excess risk is

    .. math:: \frac1L\sum_l E_x\,[KL(\sigma(x^\top z_l)\,\|\,\sigma(x^\top \hat z_l))],

    with the exact expectation over labels, and that over x by fresh rows. The penalty is chosen by the loss on separate
    validation rows, half as many as training rows, that show s labels per row as well.
    """
    options = cell.study.options
    n, labels, features = int(cell.settings["n"]), int(cell.settings["L"]), int(options["features"])
    rng = random_generator(cell.seed)
    basis = np.linalg.qr(rng.standard_normal((features, int(options["rank"]))))[0]
    weights = rng.standard_normal((basis.shape[1], labels))
    truth = float(options["strength"]) * basis @ (weights / np.linalg.norm(weights, axis=0))
    share = min(1.0, float(cell.settings.get("known_per_row", options["known_per_row"])) / labels)
    X, Y, known = _isotropic(rng, n, truth, share)
    X_validation, Y_validation, known_validation = _isotropic(rng, n // 2, truth, share)
    X_fresh = rng.standard_normal((_FRESH_ROWS, features))
    shown = known_validation.nonzero()
    signs = 2 * Y_validation.toarray()[shown] - 1
    parameters = cell.method.fixed(cell.dataset)
    tried = []
    for reg in options["penalties"]:
        model = make_model(str(cell.method.kind), {**parameters, "reg": reg}, seed=cell.seed, threads=threads)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, Y, known)
        loss = np.logaddexp(0, -signs * model.decision_function(X_validation)[shown]).mean()
        tried.append({"reg": reg, "value": -float(loss), "risk": _risk(model, X_fresh, truth)})
    best = max(tried, key=lambda entry: entry["value"])
    return {"values": {"excess risk": best["risk"]}, "parameters": {"reg": best["reg"]}, "tried": tried}


def _isotropic(
    rng: np.random.Generator, n: int, truth: np.ndarray, share: float
) -> tuple[np.ndarray, sp.csr_matrix, sp.csr_matrix]:
    X = rng.standard_normal((n, len(truth)))
    on = rng.random((n, truth.shape[1])) < expit(X @ truth)
    Y = sp.csr_matrix(on.astype(np.float32))
    return X, Y, hide_labels(Y, share, random_state=rng)


def _risk(model: Any, X: np.ndarray, truth: np.ndarray) -> float:
    best = X @ truth
    found = model.decision_function(X)
    on = expit(best)
    excess = on * (np.logaddexp(0, -found) - np.logaddexp(0, -best))
    excess += (1 - on) * (np.logaddexp(0, found) - np.logaddexp(0, best))
    return float(excess.mean())


SIMULATED: dict[str, Callable[[Cell, int], dict[str, Any]]] = {
    "excess-risk": excess_risk,
    "tail-labels": tail_labels,
    "subspace-angle": subspace_angle,
}
"""Experiments that draw their own data."""


def _best_seconds(function: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)
