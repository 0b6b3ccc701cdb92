"""The problems that everyone gets, and how their answers are judged: all by tagwise, alike for all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from peers.exchange import Problem
from tagwise.data import available_datasets, hide_labels, load_dataset, make_power_law
from tagwise.metrics import inverse_propensity, ranking_report

PLACES = (1, 3, 5)
METRICS = tuple(f"{kind}@{k}" for kind in ("P", "nDCG", "PSP") for k in PLACES)
# Amazon-670K itself has 153,025 test rows.
AMAZON_ROWS, AMAZON_TEST_ROWS, AMAZON_FEATURES, AMAZON_LABELS = 490_449, 50_000, 135_909, 670_091


@dataclass(frozen=True)
class ProblemSet:
    """A data set as it is handed out: one that tagwise knows by name, or a share of Amazon-670K's sizes, generated."""

    title: str
    dataset: str | None = None
    amazon_share: float | None = None
    note: str = ""
    """What a reader of the page should know beside the sizes."""
    unit_rows: bool = False
    known: float | None = None
    listed_only: bool = False
    usual: bool = True

    def at_hand(self) -> bool:
        return self.dataset is None or self.dataset in set(available_datasets())

    def load(self) -> tuple[sp.csr_matrix, sp.csr_matrix, sp.csr_matrix, sp.csr_matrix]:
        """X, Y, X_test and Y_test."""
        if self.amazon_share is not None:
            return amazon_like(self.amazon_share)
        return load_dataset(self.dataset)


GENERATED = (
    "Generated: sizes and power laws like those of Amazon-670K, but not its data; only figures of this page compare. "
    "docs/peers.md says how."
)
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
    # 588,303 rows: minutes per system, so only if asked for.
    "yso-finna-en": ProblemSet("yso-finna-en", "yso-finna-en", usual=False),
    # The whole, and parts of it to see how it grows.
    "amazon-like-20th": ProblemSet("amazon-like, a twentieth", None, 1 / 20, GENERATED, usual=False),
    "amazon-like-5th": ProblemSet("amazon-like, a fifth", None, 1 / 5, GENERATED, usual=False),
    "amazon-like": ProblemSet("amazon-like", None, 1.0, GENERATED, usual=False),
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


def amazon_like(share: float) -> tuple[sp.csr_matrix, sp.csr_matrix, sp.csr_matrix, sp.csr_matrix]:
    """Training and test rows of Amazon-670K's sizes, or of a share of its rows and labels with all its features.

    490,449 rows, 135,909 features (75 per row) and 670,091 labels (5.5 per row), power laws, nine labels in ten with
    fewer than ten rows. A row has a topic, which half of its features and labels are of, and about two words of each of
    its labels' eight own ones.
    """
    rows, test_rows = round(AMAZON_ROWS * share), round(AMAZON_TEST_ROWS * share)
    X, Y = make_power_law(
        rows + test_rows,
        AMAZON_FEATURES,
        round(AMAZON_LABELS * share),
        features_per_row=75,
        labels_per_row=5.5,
        label_exponent=0.8,
        n_topics=max(1, round(1000 * share)),
        own_features=8,
        own_share=0.15,
        random_state=0,
    )
    return X[:rows], Y[:rows], X[rows:], Y[rows:]


def listed(Y: sp.csr_matrix, random_state: int) -> sp.csr_matrix:
    """What is left of complete labels where each is listed with its propensity: rare ones are missing most often."""
    kept = np.random.default_rng(random_state).random(Y.nnz) < 1 / inverse_propensity(Y)[Y.indices]
    some = Y.copy()
    some.data = some.data * kept
    some.eliminate_zeros()
    return some


def hand_out(problem_set: ProblemSet, folder: Path) -> Judge:
    """Write what the systems may see to a folder, and keep what they are judged by."""
    X, Y, X_test, Y_test = problem_set.load()
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
