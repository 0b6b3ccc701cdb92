"""Every method that the papers compare against, on one data set: accuracy, seconds, memory, size of the model.

    TAGWISE_DATA=... python benchmarks/baselines.py [--dataset bibtex]… [--only KNN]… [--threads 2] [--fresh]
    python benchmarks/baselines.py --pages-only

Each cell is a process of its own, with default parameters but for those named in ``SETTINGS``. Without arguments: all
data sets, without the methods in ``LEFT_OUT``. Every cell is written to results/baselines.json as soon as it is done. A
run that was stopped goes on where it ended: a cell that has a result with the same parameters (defaults included) and
threads is not run again, unless ``--fresh`` says so. Writes results/baselines.md and the table of docs/baselines.md
(see baselines_page.py) after every cell.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
import warnings
from pathlib import Path

from baselines_page import DATASETS, METHODS, PUBLISHED, RESULTS, full_page, write_pages
from machine import description
from memory import PeakMemory, run_cell
from pages import store

# On yso-finna-en-min4 work that grows with rows or features times labels would take hours; delicious-random is for
# comparing with published figures.
LEFT_OUT = {
    "yso-finna-en-min4": {"BinaryRelevance", "MLCSSP", "CompressedSensing", "BayesianCS", "CPLST"},
    "delicious-random": set(METHODS) - set(PUBLISHED["delicious-random"]),
}
# What differs from the defaults, and why: ranks for label sets of these sizes; fewer learners and trees where one takes
# minutes; a base scorer whose weights fit into memory, and parts for tens of thousands of labels.
SETTINGS = {
    ("delicious", "LEML"): {"rank": 196},
    ("bibtex", "LEML"): {"rank": 64},
    ("yso-finna-en-min4", "SLEEC"): {"n_learners": 2},
    ("yso-finna-en-min4", "FastXML"): {"n_trees": 50},
    ("yso-finna-en-min4", "LPSR"): {"base": "wsabie", "n_partitions": 500, "labels_per_partition": 1000},
}
# Sizes that follow from the data, by the name of the parameter that they stand for.
SIZES = {
    "PLST": lambda model: {"rank": model.feature_factors_.shape[1]},
    "CPLST": lambda model: {"rank": model.feature_factors_.shape[1]},
    "MLCSSP": lambda model: {"rank": model.feature_factors_.shape[1]},
    "CompressedSensing": lambda model: {
        "n_measurements": model.feature_factors_.shape[1],
        "n_nonzero": model.n_nonzero_,
    },
    "BayesianCS": lambda model: {"n_measurements": model.feature_factors_.shape[1]},
    "MDDM": lambda model: {"n_components": model.projection_.shape[1]},
    "SLEEC": lambda model: {
        "rank": model.embedding_.shape[1],
        "n_clusters": len(model.centers_) * model.labels_.shape[0] // len(model.members_),
    },
    "LPSR": lambda model: {"n_partitions": len(model.centers_)},
    "REML": lambda model: {"sparse_part": model.sparse_part_},
}


def model_of(cell: dict):
    import tagwise
    from tagwise import baselines

    name = cell["model"]
    model_class = getattr(baselines, name) if name in baselines.__all__ else getattr(tagwise, name)
    return model_class(**cell["parameters"], n_jobs=cell["threads"])


def with_settings(cell: dict) -> dict:
    """The cell with all parameters of its model, so that a result of other defaults is known for one."""
    parameters = model_of(cell).get_params(deep=False)
    return {**cell, "settings": {k: v for k, v in parameters.items() if k not in ("n_jobs", "verbose")}}


def measure(cell: dict) -> dict:
    """The figures of one cell, with the warnings of its fit; a refusal is a result, too."""
    from tagwise.exceptions import InvalidInputError, TagwiseWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            figures = fitted_figures(cell)
        except InvalidInputError as refusal:
            figures = {"error": str(refusal), "refused": True}
    said = sorted({str(warning.message) for warning in caught if issubclass(warning.category, TagwiseWarning)})
    return {**figures, "warnings": said}


def load(name: str):
    import numpy as np
    import scipy.sparse as sp

    from tagwise.data import load_dataset

    official = tuple(load_dataset(name.removesuffix("-random")))[:4]
    if not name.endswith("-random"):
        return official
    n_train = official[0].shape[0]
    X, Y = (sp.csr_matrix(sp.vstack([official[place], official[place + 2]])) for place in (0, 1))
    order = np.random.default_rng(0).permutation(X.shape[0])
    train, test = np.sort(order[:n_train]), np.sort(order[n_train:])
    return X[train], Y[train], X[test], Y[test]


def fitted_figures(cell: dict) -> dict:
    from tagwise.exceptions import InvalidInputError
    from tagwise.metrics import inverse_propensity, ranking_report

    name, model = cell["model"], model_of(cell)
    X, Y, X_test, Y_test = load(cell["dataset"])
    # The first 500 rows before the clock starts: they compile what has not been compiled on this machine yet. What this
    # small fit warns of or refuses says nothing about the real one.
    with warnings.catch_warnings(), contextlib.suppress(InvalidInputError):
        warnings.simplefilter("ignore")
        model_of(cell).fit(X[:500], Y[:500]).predict_topk(X_test[:5], 5)
    with PeakMemory() as memory:
        start, cpu = time.perf_counter(), time.process_time()
        model.fit(X, Y)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        start = time.perf_counter()
        labels, _ = model.predict_topk(X_test, 5)
        prediction = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        size = sum(file.stat().st_size for file in (Path(folder) / "model").rglob("*") if file.is_file())
    report = ranking_report(Y_test, labels, inverse_propensity=inverse_propensity(Y))
    return {
        "sizes": SIZES[name](model) if name in SIZES else {},
        "fit_seconds": seconds,
        "fit_cpu_seconds": cpu,
        "predict_us_per_row": 1e6 * prediction / X_test.shape[0],
        "peak_gb": memory.bytes / 1e9,
        "model_mb": size / 1e6,
        **{metric: float(report[metric]) for metric in ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@5")},
    }


def finished(result: dict, cell: dict) -> bool:
    """Whether a stored result answers this cell; one of a process that died does not."""
    return all(result.get(key) == value for key, value in cell.items()) and (
        "error" not in result or "refused" in result
    )


def wanted(arguments: argparse.Namespace) -> list[dict]:
    cells = [
        {
            "dataset": dataset,
            "model": name,
            "parameters": SETTINGS.get((dataset, name), {}),
            "threads": arguments.threads,
        }
        for dataset in arguments.dataset or DATASETS
        for name in METHODS
        if (name in arguments.only if arguments.only else name not in LEFT_OUT.get(dataset, ()))
    ]
    return [json.loads(json.dumps(with_settings(cell))) for cell in cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", action="append", choices=DATASETS)
    parser.add_argument("--only", action="append", choices=METHODS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="run cells again that have a result")
    parser.add_argument("--pages-only", action="store_true", help="make the pages from the stored JSON")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(measure(json.loads(arguments.cell))))
        return
    path = RESULTS / "baselines.json"
    report = json.loads(path.read_text()) if path.exists() else {"cells": []}
    if not arguments.pages_only:
        report["machine"] = description()
        for cell in wanted(arguments):
            place = (cell["dataset"], cell["model"])
            others = [c for c in report["cells"] if (c["dataset"], c["model"]) != place]
            same = [c for c in report["cells"] if (c["dataset"], c["model"]) == place]
            if same and finished(same[0], cell) and not arguments.fresh:
                print(*place, "has its result", flush=True)
                continue
            result = run_cell(__file__, cell)
            shown = {k: (round(v, 4) if isinstance(v, float) else v) for k, v in result.items() if k != "settings"}
            print(shown, flush=True)
            report["cells"] = sorted(
                [*others, result], key=lambda c: (DATASETS.index(c["dataset"]), METHODS.index(c["model"]))
            )
            store(path, report)
            write_pages(report)
    write_pages(report)
    print(full_page(report))


if __name__ == "__main__":
    main()
