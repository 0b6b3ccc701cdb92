"""What `model="auto"` should pick: candidates on held-out training rows, all labels known or a fifth of them.

    TAGWISE_DATA=... python benchmarks/model_choice.py [--sets bibtex debtags] [--threads 1]

A fifth of the training rows is held out (rare labels stay in training); with a mask, a fifth of the training pairs is
known and the held-out rows are judged on all their labels. Test rows are not touched. Adds to
benchmarks/results/model_choice.json, a line as soon as it is measured, and skips what is there already.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

from machine import description

from tagwise.data import hide_labels, load_dataset, split_rows
from tagwise.metrics import inverse_propensity, ranking_report
from tagwise.models.choice import build_model

RESULT = Path(__file__).parent / "results" / "model_choice.json"
SETS = ("bibtex", "cooking-stackexchange", "delicious", "debtags")
# With few labels only the candidates that are left are compared.
FEW_LABELS = ("enron", "medical", "slashdot", "tmc2007-500")
FOR_FEW = ("BinaryRelevance", "REML", "Cascade")
KNOWN = (None, 0.2)
CANDIDATES = [
    ("BinaryRelevance", {"reg": 1.0}),
    ("BinaryRelevance", {"reg": 0.3, "loss": "logistic", "tol": 1e-2}),
    ("LEML", {"reg": 1.0}),
    ("LEML", {"reg": 3.0}),
    ("LEML", {"reg": 1.0, "loss": "logistic"}),
    ("REML", {}),
    ("Cascade", {}),
    ("Cascade", {"hard_negatives": 20}),
]


def measure(name: str, known: float | None, model: str, parameters: dict, threads: int) -> dict:
    data = load_dataset(name)
    train, held = split_rows(data.Y_train, 0.2, random_state=0)
    X, Y = data.X_train[train], data.Y_train[train]
    observed = None if known is None else hide_labels(Y, known, random_state=0)
    estimator = build_model(model, parameters, n_jobs=threads)
    start, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X, Y, observed)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    top, _ = estimator.predict_topk(data.X_train[held], 5)
    report = ranking_report(data.Y_train[held], top, inverse_propensity=inverse_propensity(Y))
    return {
        "dataset": name,
        "known": known,
        "model": model,
        "parameters": parameters,
        "fit_seconds": seconds,
        "fit_cpu_seconds": cpu,
        **report,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=SETS + FEW_LABELS, choices=SETS + FEW_LABELS)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    done = json.loads(RESULT.read_text()) if RESULT.exists() else {"machine": description(), "results": []}
    seen = [(line["dataset"], line["known"], line["model"], line["parameters"]) for line in done["results"]]
    for name in arguments.sets:
        for known in KNOWN:
            for model, parameters in CANDIDATES:
                if (name, known, model, parameters) in seen:
                    continue
                if name in FEW_LABELS and model not in FOR_FEW:
                    continue
                # A product takes n·L·k there; the other sets show that it does not pay.
                if (name, known, model, parameters.get("loss")) == ("debtags", None, "LEML", "logistic"):
                    continue
                line = measure(name, known, model, parameters, arguments.threads)
                done["results"].append(line)
                RESULT.write_text(json.dumps(done, indent=1) + "\n")
                figures = "  ".join(f"{key} {100 * line[key]:.1f}" for key in ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5"))
                print(f"{name} {known} {model} {parameters}: {figures}  {line['fit_cpu_seconds']:.1f} s", flush=True)


if __name__ == "__main__":
    main()
