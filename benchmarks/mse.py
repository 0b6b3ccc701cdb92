"""MSE against the paper's tables 2 and 3, against BinaryRelevance and ML-kNN, and against plain numpy and scikit-learn.

    TAGWISE_DATA=... python benchmarks/mse.py [--threads 2] [--only scene emotions]

Parameters and threshold of MSE are chosen by cross-validation on the training rows (MSE.select); test rows are only
scored. BinaryRelevance is squared hinge, the nearest to the paper's linear SVM, with the penalty of highest F1 in the
same folds; ML-kNN has 30 neighbours as in the paper, and scikit-multilearn's is timed too where that package is
installed. The most frequent label of the training rows, predicted for every test row, is the least that any of them
must beat. Writes benchmarks/results/mse.json and mse.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from machine import best_seconds, description
from mse_page import BR_PENALTIES, PAPER, markdown
from pages import store
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import randomized_svd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from bilateral_projection import average_error_bound, bilateral_random_projection
from reference_kernels import accelerated_group_lasso, group_lasso_gap, proximal_group_lasso

try:
    import skmultilearn.adapt.mlknn as peer
except ImportError:
    peer = None

from tagwise import MSE, BinaryRelevance
from tagwise.baselines import MLKNN
from tagwise.data import available_datasets, load_dataset
from tagwise.exceptions import ConvergenceWarning
from tagwise.kernels import unit_rows
from tagwise.metrics import example_accuracy, example_f1, example_precision, example_recall
from tagwise.models.mse.selection import DEFAULT_GRID
from tagwise.parallel import single_threaded_blas
from tagwise.parameters import random_generator
from tagwise.solvers.group_lasso import GroupDictionary, group_lasso

RESULTS = Path(__file__).parent / "results"
METRICS = {
    "precision": example_precision,
    "recall": example_recall,
    "f1": example_f1,
    "accuracy": example_accuracy,
}
# The default grid takes a while with more labels than this; a part of it is enough to show where the method stands.
FEW_LABELS = 60
SMALL_GRID = {"subspace_rank": (6, 0.05, 0.1), "reg": (0.2, 0.3)}
# Beside the default grid: training that goes on for longer, which takes more time.
LONGER = {
    "decomposition": ("brp", "svd"),
    "subspace_rank": (0.05, 0.1),
    "reg": (0.1, 0.2, 0.3, 0.45),
    "tol": (1e-3,),
    "max_iter": (100,),
}
SPEED_SET = "yahoo-arts"
SELECTED = "selected for the table"


class MostFrequentLabel:
    """The most frequent label of the training rows for every row."""

    def fit(self, X, Y):
        self.label, self.n_labels = int(np.bincount(Y.indices, minlength=Y.shape[1]).argmax()), Y.shape[1]
        return self

    def predict(self, X):
        n = X.shape[0]
        return sp.csr_matrix((np.ones(n), np.full(n, self.label), np.arange(n + 1)), shape=(n, self.n_labels))


def best_penalty(X, Y, threads: int, n_folds: int = 3) -> tuple[float, dict]:
    """The penalty of BinaryRelevance with the highest cross-validated F1, in the folds of MSE.select; all F1."""
    folds = random_generator(0).permutation(X.shape[0]) % n_folds
    found = {}
    for reg in BR_PENALTIES:
        sums = 0.0
        for fold in range(n_folds):
            model = BinaryRelevance(loss="squared_hinge", reg=reg, n_jobs=threads).fit(
                X[folds != fold], Y[folds != fold]
            )
            validation = folds == fold
            sums += validation.sum() * example_f1(Y[validation], model.predict(X[validation]))
        found[reg] = sums / X.shape[0]
    return max(found, key=found.get), found


def evaluated(model, X, Y, X_test, Y_test) -> dict:
    start = time.perf_counter()
    model.fit(X, Y)
    fit = time.perf_counter() - start
    start = time.perf_counter()
    prediction = model.predict(X_test)
    predict = time.perf_counter() - start
    scores = {name: metric(Y_test, prediction) for name, metric in METRICS.items()}
    return {**scores, "fit_seconds": fit, "predict_seconds": predict}


class PeerMLKNN:
    """scikit-multilearn's ML-kNN (0.2.0, as released it fails with scikit-learn above 0.24: one call is mended)."""

    def fit(self, X, Y):
        peer.NearestNeighbors = lambda k: NearestNeighbors(n_neighbors=k)
        self.model = peer.MLkNN(k=30).fit(unit_rows(sp.csr_matrix(X)), sp.csr_matrix(Y, dtype=np.int64))
        return self

    def predict(self, X):
        return sp.csr_matrix(self.model.predict(unit_rows(sp.csr_matrix(X))))


def tables(name: str, threads: int) -> dict:
    X, Y, X_test, Y_test = load_dataset(name)
    grid = [DEFAULT_GRID, LONGER] if Y.shape[1] <= FEW_LABELS else SMALL_GRID
    start = time.perf_counter()
    chosen = MSE.select(X, Y, grid, n_jobs=threads)
    seconds = time.perf_counter() - start
    best = chosen.selection_[0]
    names = ("decomposition", "subspace_rank", "reg", "threshold", "tol", "max_iter")
    parameters = {key: best[key] for key in names if key in best}
    penalty, penalties = best_penalty(X, Y, threads)
    models = {
        "MSE": MSE(**parameters, n_jobs=threads),
        "most frequent label": MostFrequentLabel(),
        "BR": BinaryRelevance(loss="squared_hinge", reg=penalty, n_jobs=threads),
        "ML-kNN": MLKNN(n_neighbors=30, n_jobs=threads),
    }
    if peer is not None:
        models["scikit-multilearn"] = PeerMLKNN()
    found = {key: evaluated(model, X, Y, X_test, Y_test) for key, model in models.items()}
    result = {
        "dataset": name,
        "parameters": parameters,
        "tried": len(chosen.selection_),
        "cross_validated_f1": best["f1"],
        "select_seconds": seconds,
        "BR_penalty": penalty,
        "BR_cross_validated_f1": {f"{reg:g}": f1 for reg, f1 in penalties.items()},
        **found,
    }
    ours = found["MSE"]
    print(
        f"{name:18} F1 {100 * ours['f1']:5.1f} (paper {PAPER[name][2][2]})  accuracy {100 * ours['accuracy']:5.1f} "
        f"(paper {PAPER[name][2][3]})  fit {ours['fit_seconds']:.2f} s  predict {ours['predict_seconds']:.2f} s  "
        f"{parameters}",
        flush=True,
    )
    return result


def prediction_speed(name: str, parameters: dict, why: str, tol: float = 1e-6) -> dict:
    """All test rows to one duality gap, on one thread: the kernels, and plain numpy with all rows in a BLAS call."""
    X, Y, X_test, _ = load_dataset(name)
    reg = parameters["reg"]
    model = MSE(**parameters).fit(X, Y)
    atoms, starts = model.subspaces_.astype(np.float64), np.unique(model.subspace_starts_)
    dictionary = GroupDictionary.build(atoms, starts)
    rows = unit_rows(X_test)
    dense = np.asarray(rows.todense(), dtype=np.float64) if hasattr(rows, "todense") else rows.astype(np.float64)
    result = {"dataset": name, "why": why, "rows": len(dense), "atoms": len(atoms), "tol": tol}
    result.update({key: parameters[key] for key in ("subspace_rank", "reg")})
    with single_threaded_blas():
        result["seconds"] = best_seconds(lambda: group_lasso(rows, dictionary, reg, tol=tol), repeat=3)
        found = group_lasso(rows, dictionary, reg, tol=tol)
        result["largest_gap"] = float(group_lasso_gap(dense, atoms, starts, reg, found.coefficients).max())
        result["passes"], result["groups_screened"] = float(found.passes.mean()), float(found.screened.mean())
        for key, solver in (("proximal", proximal_group_lasso), ("accelerated", accelerated_group_lasso)):
            start = time.perf_counter()
            coefficients = solver(dense, atoms, starts, reg, tol=tol, max_iter=100_000)
            result[f"{key}_seconds"] = time.perf_counter() - start
            gap = group_lasso_gap(dense, atoms, starts, reg, coefficients)
            result[f"{key}_largest_gap"] = float(gap.max())
            result[f"{key}_ratio"] = result[f"{key}_seconds"] / result["seconds"]
    print(
        f"{name}: {result['rows']:,} rows, {len(atoms):,} directions, λ = {reg}: {result['seconds']:.3f} s; "
        f"numpy proximal gradient {result['proximal_ratio']:.0f} times as long, accelerated "
        f"{result['accelerated_ratio']:.0f} times",
        flush=True,
    )
    return result


def projection_errors() -> list[dict]:
    """Bilateral projections beside scikit-learn's randomised SVD on matrices of known spectrum, one thread."""
    rng = np.random.default_rng(0)
    m, n, rank, extra = 2000, 1000, 20, 10
    left, right = (np.linalg.qr(rng.standard_normal((size, n)))[0] for size in (m, n))
    spectra = {"exponential 0.9^i": 0.9 ** np.arange(n), "1/i": 1 / (1.0 + np.arange(n))}
    lines = []
    with single_threaded_blas():
        for name, values in spectra.items():
            X = (left * values) @ right.T
            methods = {
                "bilateral projection": lambda seed, X=X: bilateral_random_projection(
                    X, rank, oversampling=extra, random_state=seed
                ).dense(),
                **{
                    f"randomized_svd, {rounds} power rounds": lambda seed, X=X, rounds=rounds: _randomized_svd(
                        X, rank + extra, rounds, seed
                    )
                    for rounds in (0, 1, 4)
                },
            }
            for method, approximate in methods.items():
                errors = [_spectral_norm(X - approximate(seed)) for seed in range(10)]
                seconds = best_seconds(lambda approximate=approximate: approximate(0), repeat=5)
                lines.append(
                    {
                        "spectrum": name,
                        "method": method,
                        "error": float(np.mean(errors)),
                        "best_possible": float(values[rank + extra]),
                        "bound": average_error_bound(values, rank, extra) if method.startswith("bil") else None,
                        "seconds": seconds,
                    }
                )
                print(json.dumps(lines[-1]), flush=True)
    return lines


def _randomized_svd(X, rank: int, rounds: int, seed: int) -> np.ndarray:
    U, s, V = randomized_svd(X, rank, n_oversamples=0, n_iter=rounds, random_state=seed)
    return (U * s) @ V


def _spectral_norm(matrix: np.ndarray, steps: int = 60) -> float:
    vector = np.random.default_rng(1).standard_normal(matrix.shape[1])
    for _ in range(steps):
        vector = matrix.T @ (matrix @ (vector / np.linalg.norm(vector)))
    return float(np.sqrt(np.linalg.norm(vector)))


def write(report: dict) -> None:
    store(RESULTS / "mse.json", report)
    (RESULTS / "mse.md").write_text(markdown(report))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="data sets to run again; the others keep their figures")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    at_hand = set(available_datasets())
    X, Y, *_ = load_dataset("debtags-sample")
    for model in (MSE(), MSE(decomposition="svd"), BinaryRelevance(loss="squared_hinge"), MLKNN()):
        model.fit(X[:300], Y[:300, :20]).predict(X[:300])  # compiles before anything is timed
    earlier = RESULTS / "mse.json"
    if options.only and earlier.exists():
        report = json.loads(earlier.read_text())
        report["threads"] = options.threads
    else:
        report = {"machine": description(), "threads": options.threads, "tables": [], "prediction": []}
        report["projection"] = projection_errors()
        if SPEED_SET in at_hand:
            for reg in (0.1, 0.3):
                report["prediction"].append(prediction_speed(SPEED_SET, {"subspace_rank": 6, "reg": reg}, "fixed"))
    for name in options.only or PAPER:
        if name not in at_hand:
            print(f"{name} is not at hand: left out")
            continue
        done = {line["dataset"]: line for line in report["tables"]}
        done[name] = tables(name, options.threads)
        report["tables"] = [done[known] for known in PAPER if known in done]
        if name == SPEED_SET:
            selected = prediction_speed(name, done[name]["parameters"], SELECTED)
            report["prediction"] = [line for line in report["prediction"] if line["why"] != SELECTED] + [selected]
        write(report)


if __name__ == "__main__":
    main()
