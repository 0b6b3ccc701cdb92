"""Quality of a tagger on rows with known tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import TagwiseWarning, warn
from tagwise.inspection.calibration import DEFAULT_K, Calibration
from tagwise.inspection.validation_pairs import known_ranking
from tagwise.metrics import SETS, ranking_report, recall_at_k
from tagwise.metrics.propensity import inverse_propensity_of_counts
from tagwise.metrics.ranking import check_ks
from tagwise.parallel import even_chunks
from tagwise.text.tags import ValidationRows, empty_rows, ones_in

__all__ = ["Evaluation", "RankedRows", "decided_labels", "evaluate", "propensity_weights"]

_BLOCK_ROWS = 512


@dataclass(frozen=True)
class Evaluation:
    """Result of ``Tagger.evaluate``.

    Attributes
    ----------
    metrics : dict of str to float
        ``"P@1"``, …, ``"nDCG@…"``, ``"PSP@…"``, ``"PSnDCG@…"``, ``"R@…"``, ``"coverage@…"``; and, of the decided tags,
        ``"micro-F1"``, ``"macro-F1"``, ``"example-F1"``. All in [0, 1]. Propensities are those of the training rows,
        of which there must be at least 3; PSP and PSnDCG are left out otherwise. Where rows have tags of the vocabulary
        that no training row has, ``"new-R@1"``, …: the share of a row's new tags among its first k, averaged over the
        rows that have some.
    rows : int
    unseen : Counter of str
        Tags that neither training rows nor the vocabulary have, and in how many rows each is. No model can suggest
        them; they count as missed.
    new : Counter of str
        Tags of the vocabulary that no training row has, and in how many rows each is.
    rows_with_new : int
        Rows with such a tag.
    rows_without_words : int
        Texts without a word that training saw; all of them get the same suggestions.
    rows_without_tags : int
        Rows without a tag: every suggestion for them is wrong.
    """

    metrics: dict[str, float]
    rows: int
    unseen: Counter[str]
    new: Counter[str]
    rows_with_new: int
    rows_without_words: int
    rows_without_tags: int


@dataclass(frozen=True, eq=False)
class RankedRows:
    """Answers of a tagger to rows: its best labels among the known ones (n, k), their scores, and its decisions.

    Labels are best first, −1 for none; ``decided`` (n, L) has the labels that are on and known, as ones.
    """

    labels: np.ndarray
    scores: np.ndarray
    decided: sp.csr_matrix

    @classmethod
    def of(cls, model: MultiLabelModel, calibration: Calibration | None, rows: ValidationRows, k: int) -> RankedRows:
        """The k best labels of each row, and those that :func:`decided_labels` has. Memory O(n·k)."""
        labels, scores, decided = [], [], []
        for start, stop in even_chunks(rows.X.shape[0], _BLOCK_ROWS):
            X = rows.X[start:stop]
            ranked = _ranked_for_decisions(model, calibration, X, k)
            decided += _decided(calibration, *ranked)
            if rows.observed is not None:
                ranked = known_ranking(model, X, k, rows.observed[start:stop])
            labels.append(ranked[0][:, :k])
            scores.append(ranked[1][:, :k])
        on = ones_in(decided, model.n_labels_)
        if rows.observed is not None:
            on = sp.csr_matrix(on.multiply(rows.observed))
        return cls(np.concatenate(labels), np.concatenate(scores), on)


def evaluate(
    model: MultiLabelModel,
    calibration: Calibration | None,
    rows: ValidationRows,
    ks: Sequence[int],
    tag_rows: np.ndarray,
    n_training_rows: int,
    answers: RankedRows | None = None,
) -> Evaluation:
    """Metrics of rankings and decisions; ``tag_rows`` (L) says how many training rows had each tag.

    ``answers`` are those to these rows, with at least the largest k of ``ks``, if there are some already.
    """
    wanted, _ = check_ks(ks, "ks")
    if rows.observed is not None and rows.Y.multiply(rows.observed).nnz == rows.observed.nnz:
        warn(
            "known: no tag is known to be off in any of these rows. Only known tags take part, so every suggestion is "
            "right and the figures say nothing; leave known out.",
            TagwiseWarning,
        )
    if answers is None:
        answers = RankedRows.of(model, calibration, rows, min(int(wanted.max()), rows.truth.shape[1]))
    labels, decided = answers.labels, answers.decided.copy()
    decided.resize(rows.truth.shape)
    weights = propensity_weights(rows, tag_rows, n_training_rows)
    metrics = {
        **ranking_report(rows.truth, labels, ks, weights),
        **{metric.name: float(metric.function(rows.truth, decided)) for metric in SETS if metric.shown},
    }
    is_new = np.zeros(rows.truth.shape[1], dtype=rows.truth.dtype)
    is_new[: len(tag_rows)] = (tag_rows == 0) & (n_training_rows > 0)
    new = sp.csr_matrix(
        (is_new[rows.truth.indices], rows.truth.indices, rows.truth.indptr), rows.truth.shape, copy=True
    )
    new.eliminate_zeros()
    having = np.diff(new.indptr) > 0
    if having.any():
        recalls = recall_at_k(new[having], labels[having], wanted.tolist())
        metrics |= {f"new-R@{k}": float(recall) for k, recall in zip(wanted.tolist(), recalls)}
    names = model.label_names_ or []
    return Evaluation(
        metrics,
        rows.X.shape[0],
        rows.unseen,
        Counter(names[label] for label in new.indices.tolist()),
        int(having.sum()),
        empty_rows(rows.X),
        empty_rows(rows.truth),
    )


def propensity_weights(rows: ValidationRows, tag_rows: np.ndarray, n_training_rows: int) -> np.ndarray | None:
    """The weight of each label of ``rows.truth`` in PSP; None where training rows are too few to say."""
    if n_training_rows < 3:
        return None
    counts = np.pad(tag_rows, (0, rows.truth.shape[1] - len(tag_rows)))
    return inverse_propensity_of_counts(counts, n_training_rows)


def decided_labels(model: MultiLabelModel, calibration: Calibration | None, X: sp.csr_matrix) -> list[np.ndarray]:
    """The labels that are on in each row, best first: those that reach their thresholds, or else a score of 0."""
    decided: list[np.ndarray] = []
    for start, stop in even_chunks(X.shape[0], _BLOCK_ROWS):
        decided += _decided(calibration, *_ranked_for_decisions(model, calibration, X[start:stop], 1))
    return decided


def _ranked_for_decisions(
    model: MultiLabelModel, calibration: Calibration | None, X: sp.csr_matrix, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """At least k labels of each row, or all, and as many as decisions depend on."""
    labels, scores = model.predict_topk(X, max(k, DEFAULT_K if calibration is None else calibration.k))
    while calibration is None and (scores[:, -1] >= 0).any() and labels.shape[1] < model.n_labels_:
        labels, scores = model.predict_topk(X, min(2 * labels.shape[1], model.n_labels_))
    return labels, scores


def _decided(calibration: Calibration | None, labels: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
    if calibration is None:
        on = (labels >= 0) & (scores >= 0)
    else:
        on = calibration.is_on(labels[:, : calibration.k], scores[:, : calibration.k])
    return [labels[row, : on.shape[1]][on[row]] for row in range(len(labels))]
