"""The problems that everyone gets, and how their answers are judged: all by tagwise, alike for all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from peers.exchange import Problem
from tagwise.data import hide_labels, load_dataset
from tagwise.metrics import inverse_propensity, ranking_report

PLACES = (1, 3, 5)
METRICS = tuple(f"{kind}@{k}" for kind in ("P", "nDCG", "PSP") for k in PLACES)


@dataclass(frozen=True)
class ProblemSet:
    """A data set as it is handed out."""

    title: str
    dataset: str
    unit_rows: bool = False
    known: float | None = None
    listed_only: bool = False
    usual: bool = True


SETS = {
    "bibtex": ProblemSet("bibtex", "bibtex", unit_rows=True),
    "delicious": ProblemSet("delicious", "delicious", unit_rows=True),
    "debtags": ProblemSet("debtags", "debtags"),
    "debtags-20": ProblemSet("debtags, 20% of the labels known", "debtags", known=0.2),
    "debtags-positives": ProblemSet(
        "debtags, only positives known and 28% of them missing", "debtags", listed_only=True
    ),
    "cooking-stackexchange": ProblemSet("cooking-stackexchange", "cooking-stackexchange"),
    "yso-finna-en-min4": ProblemSet("yso-finna-en-min4", "yso-finna-en-min4"),
    # Comes with tagwise: for trying things out.
    "debtags-sample": ProblemSet("debtags-sample", "debtags-sample", usual=False),
}


@dataclass(frozen=True)
class Judge:
    """The test labels, which no plug-in sees."""

    Y_test: sp.csr_matrix
    weights: np.ndarray
    shape: tuple[int, int, int]

    def report(self, labels: np.ndarray) -> dict[str, float]:
        """P, nDCG and PSP of label numbers (test rows, 5)."""
        found = ranking_report(self.Y_test, labels, PLACES, inverse_propensity=self.weights)
        return {metric: float(found[metric]) for metric in METRICS}

    def description(self) -> dict[str, Any]:
        rows, features, labels = self.shape
        return {"rows": rows, "test_rows": self.Y_test.shape[0], "features": features, "labels": labels}


def listed(Y: sp.csr_matrix, random_state: int) -> sp.csr_matrix:
    """What is left of complete labels where each is listed with its propensity: rare ones are missing most often."""
    kept = np.random.default_rng(random_state).random(Y.nnz) < 1 / inverse_propensity(Y)[Y.indices]
    some = Y.copy()
    some.data = some.data * kept
    some.eliminate_zeros()
    return some


def hand_out(problem_set: ProblemSet, folder: Path) -> Judge:
    """Write what the systems may see to a folder, and keep what they are judged by."""
    X, Y, X_test, Y_test = load_dataset(problem_set.dataset)
    weights = inverse_propensity(Y)
    if problem_set.unit_rows:
        X, X_test = normalize(X), normalize(X_test)
    observed = None
    if problem_set.listed_only:
        # A row that lists nothing teaches nobody anything: whoever makes such a table leaves it out.
        Y = listed(Y, random_state=0)
        rows = np.flatnonzero(np.diff(Y.indptr))
        X, Y = X[rows], Y[rows]
    if problem_set.known is not None:
        observed = hide_labels(Y, problem_set.known, random_state=0)
        Y = sp.csr_matrix(Y.multiply(observed))
    unlisted = "unknown" if problem_set.listed_only else "off"
    Problem(*(sp.csr_matrix(matrix, dtype=np.float32) for matrix in (X, Y, X_test)), observed, unlisted).write(folder)
    return Judge(Y_test, weights, (*X.shape, Y.shape[1]))
