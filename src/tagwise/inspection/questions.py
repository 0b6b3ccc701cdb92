r"""Questions to people: the pairs of a row and a label whose answers teach a model most.

The worth of a question is how uncertain its answer is, times how rare the label is:

.. math:: v_{ij} = p_{ij} (1 - p_{ij})\, q_j^{\rho}

with p the calibrated probability that row i has label j, q the inverse propensity of the label
(:func:`tagwise.metrics.inverse_propensity`) and ρ from 0 to 1 the weight of rarity. Two questions on one label are
redundant if their rows are similar. So questions are chosen one by one, always the one with the largest
gain

.. math:: g_{ij}(S) = v_{ij} \left(1 - \max_{(t, j) \in S} \cos^+(e_i, e_t)\right)

given the set S of those chosen so far; e_i is the model's embedding xᵀW of row i. Gains never rise as S grows,
so lazy evaluation (recomputing only the largest, possibly outdated gain) gives the same questions as recomputing all
gains at every step.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.inspection.calibration import Calibration, probability_maps, require_probabilities
from tagwise.inspection.validation_pairs import are_listed
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.metrics.propensity import inverse_propensity_of_counts
from tagwise.parallel import single_threaded_blas
from tagwise.parameters import random_generator
from tagwise.validation import check_choice, check_integer, check_observed, check_real

__all__ = ["STRATEGIES", "Questions", "ask"]

STRATEGIES = ("informative", "top", "random")
"""Strategies of :func:`ask`."""

# Labels of a row that may be asked about, and candidates that are kept per label for each one that may be chosen.
_CANDIDATES, _SPARE = 20, 20
# Dimensions of the random projection of rows, for models without an embedding.
_PROJECTIONS = 64


@dataclass(frozen=True, eq=False)
class Questions:
    """Pairs of a row and a label, in the order in which they should be asked.

    Attributes
    ----------
    rows, labels : int64 arrays (Q,)
    probabilities : float64 array (Q,)
        Probability that the row has the label; NaN if the model has no probabilities, and for random pairs.
    """

    rows: np.ndarray
    labels: np.ndarray
    probabilities: np.ndarray

    def __len__(self) -> int:
        """Q."""
        return len(self.rows)

    def by_row(self) -> dict[int, np.ndarray]:
        """The positions of the questions on each row, rows in the order of their first question."""
        positions: dict[int, list[int]] = {}
        for position, row in enumerate(self.rows.tolist()):
            positions.setdefault(row, []).append(position)
        return {row: np.array(found) for row, found in positions.items()}


def ask(
    model: MultiLabelModel,
    X: Any,
    budget: int,
    strategy: str = "informative",
    *,
    calibration: Calibration | None = None,
    counts: tuple[Any, int] | None = None,
    exclude: Any = None,
    per_row: int = 5,
    per_label: int | None = None,
    rarity: float = 0.5,
    random_state: Any = 0,
) -> Questions:
    r"""Choose pairs of a row and a label that a person should answer.

    Parameters
    ----------
    model : fitted model
        Its scores must be probabilities (:class:`~tagwise.Cascade`), or come with a ``calibration``; ``"top"`` and
        ``"random"`` need neither.
    X : CSR or array (n, d)
        Rows of which little or nothing is known.
    budget : int
        Number of questions; fewer if the limits below leave no more.
    strategy : {"informative", "top", "random"}
        ``"informative"``: the most uncertain pairs, rare labels before frequent ones, of rows that are unlike each
        other, as above. ``"top"``: the best labels of random rows, as when working through suggestions.
        ``"random"``: pairs drawn at random.
    calibration : Calibration, optional
        Maps from the scores to probabilities.
    counts : (int array (L,), int), optional
        Number of training rows with each label, and of all of them. None: the model's own counts (Cascade),
        or else equal weights.
    exclude : CSR or array (n, L), optional
        Pairs that are known already, and not asked about.
    per_row : int
        Maximum number of questions on a row; not for ``"random"``.
    per_label : int, optional
        Maximum number of questions on a label, for ``"informative"``. By default 5% of the budget, and at least 3.
    rarity : float
        ρ from 0, all labels weigh the same, to 1, a label weighs as much as in PSP. Questions on rare labels help
        these; questions on frequent ones improve the first suggestion of most rows.
    random_state : int, Generator, RandomState or None
        For ``"top"`` and ``"random"``, and for models without an embedding of their own.

    Returns
    -------
    Questions
        Most informative first.

    Notes
    -----
    Time is that of ``predict_topk`` with 20 labels per row, plus O(n log n) and, for Q questions and an embedding of k
    numbers, O(Q·per_label·k). Memory O(20·n), and k numbers for each row that may be asked about; n×L is never
    allocated. Models without factors compare rows by random projections of their features.
    """
    strategy = check_choice(strategy, "strategy", STRATEGIES)
    budget = check_integer(budget, "budget", minimum=1)
    per_row = check_integer(per_row, "per_row", minimum=1)
    rarity = check_real(rarity, "rarity", minimum=0, maximum=1)
    limit = max(3, -(-budget // 20)) if per_label is None else check_integer(per_label, "per_label", minimum=1)
    features = model.fitted_features(X)
    n_rows, n_labels = features.shape[0], model.n_labels_
    known = None
    if exclude is not None:
        known = check_observed(exclude, shape=(n_rows, n_labels), name="exclude", may_be_empty=True)
    if counts is not None and np.shape(counts[0]) != (n_labels,):
        raise InvalidInputError(
            f"counts has rows for {np.size(counts[0]):,} labels, but the model has {n_labels:,}; pass one number each."
        )
    rng = random_generator(random_state)
    if strategy == "random":
        rows, labels = _random_pairs(n_rows, n_labels, known, budget, rng)
        return Questions(rows, labels, np.full(len(rows), np.nan))
    if strategy == "top":
        order = rng.permutation(n_rows)
        n_asked = -(-budget // min(per_row, n_labels))
        # Rows that have fewer labels left than they should be asked about leave room for others.
        spare = n_rows if known is not None and known.nnz else n_asked
        order = order[:spare]
        rows, labels, scores = _candidates(model, features[order], per_row, None if known is None else known[order])
        maps = probability_maps(model, calibration)
        probabilities = np.full(len(rows), np.nan) if maps is None else maps(labels, scores)
        return Questions(order[rows][:budget], labels[:budget], probabilities[:budget])
    maps = require_probabilities(model, calibration, f"strategy {strategy!r}")
    rows, labels, scores = _candidates(model, features, max(per_row, _CANDIDATES), known)
    probabilities = maps(labels, scores)
    # How uncertain the answer is, times how rare the label.
    worth = probabilities * (1 - probabilities) * _inverse_propensity(model, counts)[labels] ** rarity
    # The largest worths above 0 of each label.
    by_worth = np.lexsort((-worth, labels))
    place = np.arange(len(by_worth)) - np.searchsorted(labels[by_worth], labels[by_worth], side="left")
    kept = np.sort(by_worth[(place < _SPARE * limit) & (worth[by_worth] > 0)])
    rows, labels = rows[kept], labels[kept]
    asked, compact = np.unique(rows, return_inverse=True)
    with single_threaded_blas():
        chosen = _greedy(compact, labels, worth[kept], _embedded(model, features[asked], rng), budget, per_row, limit)
    return Questions(rows[chosen], labels[chosen], probabilities[kept][chosen])


def _candidates(
    model: MultiLabelModel, X: Any, k: int, exclude: sp.csr_matrix | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels and scores of the best labels of rows, best first within each row."""
    labels, scores = model.predict_topk(X, min(k, model.n_labels_), exclude=exclude)
    rows, places = np.nonzero(are_listed(labels, scores))
    return rows, labels[rows, places].astype(np.int64), scores[rows, places].astype(np.float64)


def _random_pairs(
    n_rows: int, n_labels: int, known: sp.csr_matrix | None, budget: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Different pairs that are not known, in random order; drawn until there are enough, never listed all."""
    wanted = min(budget, n_rows * n_labels - (0 if known is None else known.nnz))
    taken = np.empty(0, dtype=np.int64)
    while len(taken) < wanted:
        drawn = rng.integers(0, n_rows * n_labels, 2 * wanted)
        if known is not None:
            # Each pair as a row of its own with one label, since rows may be drawn several times.
            rows, labels = np.divmod(drawn, n_labels)
            drawn = drawn[~contains_pairs(known[rows], labels[:, None])[:, 0]]
        taken = np.concatenate([taken, drawn])
        taken = taken[np.sort(np.unique(taken, return_index=True)[1])]
    rows, labels = np.divmod(taken[:wanted], n_labels)
    return rows, labels


def _inverse_propensity(model: MultiLabelModel, counts: tuple[Any, int] | None) -> np.ndarray:
    """Inverse propensities (L,); 1 if label frequencies are unknown."""
    if counts is None:
        try:
            counts = model.purpose_facts()[1][:2]
        except InvalidInputError:
            return np.ones(model.n_labels_)
    return inverse_propensity_of_counts(*counts) if counts[1] >= 3 else np.ones(model.n_labels_)


def _embedded(model: MultiLabelModel, X: Any, rng: np.random.Generator) -> np.ndarray:
    """Rows of unit length (n, k) that are alike where the model finds rows alike."""
    factors = getattr(model, "proposer_", model)
    if hasattr(factors, "embed"):
        embedded = factors.embed(X)
    else:
        rows = X.tocsr() if isinstance(X, FeatureBlocks) else X
        embedded = rows @ rng.standard_normal((X.shape[1], _PROJECTIONS)).astype(np.float32)
    length = np.linalg.norm(embedded, axis=1, keepdims=True)
    return np.asarray(embedded / np.where(length > 0, length, 1))


def _greedy(
    rows: np.ndarray,
    labels: np.ndarray,
    worth: np.ndarray,
    embedded: np.ndarray,
    budget: int,
    per_row: int,
    per_label: int,
) -> np.ndarray:
    """The positions of the chosen candidates, in the order of choice: always the largest gain, then the first."""
    # Candidates by their worth, which their gain cannot exceed; and those whose gain was smaller when their turn came.
    waiting = iter(np.argsort(-worth, kind="stable").tolist())
    ahead = next(waiting, None)
    heap: list[tuple[float, int]] = []
    # Similarity of each candidate to the rows chosen for its label, and the number of rows compared.
    alike, compared = np.zeros(len(worth)), np.zeros(len(worth), dtype=np.int64)
    rows_of: dict[int, list[int]] = {}
    asked = np.zeros(len(embedded), dtype=np.int64)
    chosen: list[int] = []
    while len(chosen) < budget and (heap or ahead is not None):
        if ahead is not None and (not heap or (-float(worth[ahead]), ahead) < heap[0]):
            one, ahead = ahead, next(waiting, None)
        else:
            one = heapq.heappop(heap)[1]
        row, others = int(rows[one]), rows_of.setdefault(int(labels[one]), [])
        if asked[row] == per_row or len(others) == per_label:
            continue
        if compared[one] < len(others):
            alike[one] = max(alike[one], float((embedded[others[compared[one] :]] @ embedded[row]).max()))
            compared[one] = len(others)
        again = (-float(worth[one]) * max(0.0, 1 - alike[one]), one)
        others_first = (heap and heap[0] < again) or (ahead is not None and (-float(worth[ahead]), ahead) < again)
        if others_first:
            heapq.heappush(heap, again)
            continue
        others.append(row)
        asked[row] += 1
        chosen.append(one)
    return np.array(chosen, dtype=np.int64)
