"""The prior of a cascade's fusion: what the coefficients of many data sets have in common, by empirical Bayes.

    TAGWISE_DATA=... python benchmarks/fusion_prior.py

For every problem (a data set, all labels known or a fifth of them, some with few of their rows) a cascade makes the
lessons that its fusion would be learnt from; test rows are not touched. The mean and the deviation of each coefficient
over problems maximise the likelihood of all lessons together (expectation maximisation, each problem's coefficients
taken as normal around their mode). Coefficients of names come from problems whose labels and features are words.
Writes results/fusion_prior.json; a test holds the tables of src/tagwise/models/cascade/fusion.py to it.
"""

from __future__ import annotations

import re
import time
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from machine import description
from pages import store

from tagwise import Cascade
from tagwise.data import Dataset, hide_labels, load_dataset
from tagwise.losses import sigmoid
from tagwise.models.cascade import cascade, fusion
from tagwise.models.cascade.fusion import Lesson

RESULT = Path(__file__).parent / "results" / "fusion_prior.json"
SMALL = (
    "emotions",
    "scene",
    "slashdot",
    "yahoo-arts",
    "yahoo-business",
    "yahoo-education",
    "yahoo-recreation",
    "yahoo-science",
    "genbase",
    "medical",
    "enron",
    "mediamill-small",
    "corel5k",
    "tmc2007-500",
)
LARGE = ("bibtex", "cooking-stackexchange", "delicious", "debtags")
# Name, share of known labels, rows.
PROBLEMS = [
    *((name, None, None) for name in SMALL),
    *((name, known, None) for name in LARGE for known in (None, 0.2)),
    ("debtags", None, 3_000),
    ("yso-finna-en", None, 15_000),
    ("yso-finna-en-min4", None, None),
    ("yso-finna-en-min4", 0.2, 30_000),
]
NAMED = ("bibtex", "cooking-stackexchange", "delicious", "debtags", "yso-finna-en", "yso-finna-en-min4")
# More pairs of one problem would only cost time: its coefficients are known well by then.
MOST_PAIRS = 60_000
ROUNDS = 10


class _TaughtError(Exception):
    """Ends a fit once its lessons are there."""


def lessons_of(name: str, known: float | None, rows: int | None, *, names: bool) -> list[Lesson]:
    data = load_dataset(name)
    X, Y = data.X_train, data.Y_train
    if rows is not None:
        some = np.random.default_rng(0).permutation(X.shape[0])[:rows]
        X, Y = X[some], Y[some]
    observed = None if known is None else hide_labels(Y, known, random_state=0)
    lessons: list[Lesson] = []

    def end(given: list[Lesson]) -> None:
        lessons.extend(given)
        raise _TaughtError

    with warnings.catch_warnings(), patch.object(cascade, "learn_fusion", end):
        warnings.simplefilter("ignore")
        try:
            Cascade().fit(X, Y, observed, label_features=label_words(data) if names else None)
        except _TaughtError:
            return lessons
    raise RuntimeError(f"{name} has no validation rows")


def label_words(data: Dataset) -> sp.csr_matrix:
    """The words of each label's name that are features: CSR (L, d)."""
    column = {word: number for number, word in enumerate(data.feature_names)}
    # "TAG_" stands before the names of two sets, an id and a tab before those of another.
    names = [re.sub(r"^TAG_|^.*\t", "", name).lower() for name in data.label_names]
    pairs = [
        (label, column[word])
        for label, name in enumerate(names)
        for word in set(re.findall(r"[^\W_]+", name))
        if word in column
    ]
    where = np.array(pairs).T
    return sp.csr_matrix((np.ones(len(pairs), dtype=np.float32), where), shape=(len(names), len(column)))


def pairs_of(lessons: list[Lesson], terms: list[np.ndarray], of_unseen: bool = False) -> tuple[np.ndarray, np.ndarray]:
    taught = [lesson.known & (fusion.known_by_name(lesson) == of_unseen) for lesson in lessons]
    design = np.concatenate([part[which] for part, which in zip(terms, taught)])
    on = np.concatenate([lesson.on[which] for lesson, which in zip(lessons, taught)]).astype(np.float64)
    some = np.random.default_rng(0).permutation(len(on))[:MOST_PAIRS]
    return design[some], on[some]


def empirical_bayes(
    problems: list[tuple[np.ndarray, np.ndarray]], mean: np.ndarray, deviation: np.ndarray, free: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Mean and deviation of the ``free`` coefficients, the others as they are, and the modes of the problems."""
    mean, deviation = mean.copy(), deviation.copy()
    for _ in range(ROUNDS):
        modes, variances = [], []
        for terms, on in problems:
            mode = fusion.map_logistic(terms, on, mean, deviation)
            p = sigmoid(terms @ mode)
            hessian = terms.T @ (terms * (p * (1 - p))[:, None]) + np.diag(deviation**-2.0)
            modes.append(mode)
            variances.append(np.diag(np.linalg.inv(hessian)))
        centre = np.mean(modes, axis=0)
        spread = np.sqrt(np.mean(np.array(variances) + (np.array(modes) - centre) ** 2, axis=0))
        mean[free], deviation[free] = centre[free], np.maximum(spread, 0.02)[free]
    return mean, deviation, modes


def prior(mean: np.ndarray, deviation: np.ndarray) -> list[list[float]]:
    return [[round(float(m), 3), round(float(d), 3)] for m, d in zip(mean, deviation)]


def main() -> None:
    report: dict = {"machine": description(), "problems": [], "rounds": ROUNDS}
    plain: list[list[Lesson]] = []
    for name, known, rows in PROBLEMS:
        start = time.process_time()
        lessons = lessons_of(name, known, rows, names=False)
        positives = int(sum((lesson.on * lesson.known).sum() for lesson in lessons))
        report["problems"].append({"name": name, "known": known, "rows": rows, "positives": positives})
        plain.append(lessons)
        print(report["problems"][-1], f"{time.process_time() - start:.1f} s", flush=True)

    # The opinions.
    size = fusion.n_terms(4)
    designs = [[fusion.own_design(lesson) for lesson in lessons] for lessons in plain]
    data = [pairs_of(lessons, terms) for lessons, terms in zip(plain, designs)]
    own, own_deviation, _ = empirical_bayes(data, np.zeros(size), np.ones(size), np.ones(size, dtype=bool))
    report["own"] = prior(own, own_deviation)
    print("own", report["own"], flush=True)

    # The co-occurrence, with the odds of opinions that each problem's own pairs and this prior give.
    data = []
    for lessons, terms in zip(plain, designs):
        mode = fusion.map_logistic(*pairs_of(lessons, terms), own, own_deviation)
        contexts = [fusion.context_design(lesson, part @ mode) for lesson, part in zip(lessons, terms)]
        data.append(pairs_of(lessons, contexts))
    size = data[0][0].shape[1]
    start_mean = np.zeros(size)
    start_mean[0] = 1
    context, deviation, _ = empirical_bayes(data, start_mean, np.ones(size), np.ones(size, dtype=bool))
    report["context"] = prior(context, deviation)
    print("context", report["context"], flush=True)
    del designs, plain

    # Names, whose coefficients join those of the opinions.
    named = [lessons_of(*problem, names=True) for problem in PROBLEMS if problem[0] in NAMED]
    designs = [[fusion.own_design(lesson) for lesson in lessons] for lessons in named]
    unknown = np.array([np.full(6, np.nan), np.ones(6)])
    with patch.multiple(fusion, _OWN_PRIOR=np.array([own, own_deviation]), _NAME_PRIOR=unknown):
        mean, deviation = fusion.own_prior(names=True)
    free = np.isnan(mean)
    data = [pairs_of(lessons, terms) for lessons, terms in zip(named, designs)]
    mean, deviation, _ = empirical_bayes(data, np.where(free, 0, mean), deviation, free)
    report["name"] = prior(mean[free], deviation[free])
    print("name", report["name"], flush=True)

    # Labels without rows.
    data = [
        pairs_of(lessons, [part[..., [4, -1]] for part in terms], of_unseen=True)
        for lessons, terms in zip(named, designs)
    ]
    report["unseen_pairs"] = [[len(on), int(on.sum())] for _, on in data]
    taught = [pairs for pairs in data if pairs[1].sum() >= 5]
    mean, deviation, modes = empirical_bayes(taught, np.array([1.0, -4.0]), np.ones(2), np.ones(2, dtype=bool))
    report["unseen"] = prior(mean, deviation)
    print("unseen", report["unseen"], report["unseen_pairs"], np.round(modes, 2).tolist(), flush=True)
    store(RESULT, report)


if __name__ == "__main__":
    main()
