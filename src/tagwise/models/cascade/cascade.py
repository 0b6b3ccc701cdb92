"""Cascade: low rank plus sparse proposes a shortlist of labels, and a learnt fusion of opinions decides."""

from __future__ import annotations

import math
import warnings
from copy import copy
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from tagwise.answers import finite_scores
from tagwise.exceptions import InvalidInputError, TagwiseWarning, warn
from tagwise.executor import current_executor
from tagwise.feature_blocks import FeatureBlocks
from tagwise.fields import Fields, put, value
from tagwise.kernels import top_k_of_scores
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.kernels.shortlists import behind_shortlist
from tagwise.metrics import inverse_propensity
from tagwise.metrics.purposes import LabelCounts
from tagwise.models.cascade import cooccurrence, fusion
from tagwise.models.cascade.cooccurrence import Together, total_cooccurrence
from tagwise.models.cascade.frequency import Frequency
from tagwise.models.cascade.fusion import Candidates, Fusion, own_terms
from tagwise.models.cascade.fusion_training import (
    Lesson,
    choose_validation_rows,
    counting_missing_labels,
    labels_to_learn_again,
    learn_fusion,
    of_labels_in_use,
    prior_fusion,
)
from tagwise.models.cascade.labels_without_rows import NO_ODDS, TERMS, LabelsWithoutRows
from tagwise.models.cascade.meaning import Meaning
from tagwise.models.cascade.name import Name
from tagwise.models.cascade.name_meaning import NameMeaning
from tagwise.models.cascade.opinion import LabelSide, Opinion, Rows
from tagwise.models.cascade.proposer import Proposer
from tagwise.models.cascade.prototype import Prototype
from tagwise.models.cascade.ranker import LEARNT, Ranker, faster_by_feature, learn_rankers, no_rankers, usual_mistakes
from tagwise.models.factor_model import PositiveWeight
from tagwise.models.reml import REML
from tagwise.models.updating import UpdatableModel
from tagwise.parallel import even_chunks, run_chunks, thread_count
from tagwise.parameters import Count, NonNegative, Positive, Seed, parameters
from tagwise.problem import Problem
from tagwise.progress import FitProgress
from tagwise.validation import Features, check_labels, check_real

__all__ = ["Cascade"]

OPINIONS: tuple[type[Opinion], ...] = (Ranker, Proposer, Prototype, Frequency, Name, Meaning, NameMeaning)
"""All opinions, in the order of their coefficients."""

# Candidates of a block of rows: 650 kB of labels, scores and opinions.
_BLOCK_CANDIDATES = 1 << 15
# Rows that decide how margins are summed.
_SAMPLE_ROWS = 256


def _check_opinions(names: Any, attribute: str) -> None:
    known = [kind.name for kind in OPINIONS]
    if not isinstance(names, list) or names != [name for name in known if name in names] or not names:
        raise ValueError(f"{attribute} must be some of {known}, in this order; found {names!r:.200}")


@parameters
class Cascade(UpdatableModel):
    r"""For very many, rare labels: a proposer that sees all pairs, and rankers for the hard ones. No label tree.

    1. **Propose.** :class:`~tagwise.REML` with supports scores all labels by least squares,
       s(x) = xᵀ(WHᵀ + S) + b, to which every negative pair contributes. The ``shortlist`` best labels of a row are its
       shortlist.
    2. **Rank.** The shortlists of the training rows show the proposer's mistakes. Each label gets a linear support
       vector machine on its positive rows and on those that it was wrongly proposed for,

       .. math:: \min_{w,\,\beta}\ \tfrac12(\|w\|^2 + \beta^2) + C\sum_i \max(0,\, 1 - y_i(w^\top x_i + \beta))^2 ,

       by dual coordinate descent; weights below ``prune`` are dropped. A label without such rows keeps the proposer's
       margin 2s.
    3. **Fuse.** Rankers, the proposer's score, the cosine of the row with the label's prototype (the mean of its rows),
       the label's frequency, which labels occur together, and the label's name, where it has one, are opinions. A
       small model, learnt on validation rows, fuses them into a probability p
       (:mod:`tagwise.models.cascade.fusion`); the score is p − ½. Labels outside the shortlist follow in the proposer's
       order and are off.

    With a mask, unknown pairs are never negatives, only known pairs teach the fusion, and prototypes are those of known
    positives. ``sample_weight`` counts in the proposer, in C of the rankers, in prototypes and in the fusion; how often
    labels occur, alone and together, is counted in rows.

    Parameters
    ----------
    rank, reg_low_rank, reg_sparse, support, max_iter, tol, memory_limit
        Of the proposer, see :class:`~tagwise.REML`. The default ``tol`` makes one round.
    positive_weight : float, array (L,) or "propensity"
        Weight of a positive in the proposer.
    shortlist : int
        M: number of labels per row that the rankers decide on.
    hard_negatives : int
        Number of wrong labels per training row, those that the proposer scores best, that are negatives for their
        rankers; with a mask only known pairs. Fewer are faster, and cost precision with tens of thousands of labels,
        with many labels per row, and with a mask.
    C : float
        Cost of a ranker's mistake.
    prune : float
        Weights of rankers below this are dropped.
    unlisted : {"off", "unknown"}
        How to treat labels that Y does not list. "unknown": only positives are known, and rare labels are missing most
        often. When the fusion is learnt, a listed label then counts as its inverse propensity
        (:func:`~tagwise.metrics.inverse_propensity`), an unbiased estimate of what complete labels would teach: p is
        the probability that a label is right, not that somebody would have listed it. A warning says where rows list
        too many labels for these propensities; they then count less.
    validation_fraction : float
        Share of the rows, at most 5,000, that the fusion is learnt on, by a cascade that has not seen them. Where fewer
        than 1,000 rows' worth of pairs are known of them, up to ten such parts are set aside in turn, if a set is
        small. The fewer known positives they have, the more a prior from other data sets counts; 0 takes the prior.
    refit : bool or "auto"
        Learn from all rows once the fusion is learnt, which takes as long again. False keeps the cascade that was
        fitted without the validation rows; every label keeps a row. "auto" is True unless a twentieth of the rows (at
        most 3,000) has 1,000 rows' worth of known pairs, which are enough. Then no more are set aside, and only labels
        that they add much to are learnt again: those of which they hold more than a twentieth of the rows and twice
        their own share, if these labels have a fiftieth of all known positives.
    random_state : int, Generator, RandomState or None
        Seeds the low rank, the order of rows in the rankers, and the validation rows.

    Attributes
    ----------
    objective_, history_, n_iter_
        Equation 5 of REML after each of its rounds; last, the sum of the rankers' objectives, without the validation
        rows unless there is a ``refit``.

    Notes
    -----
    Time: REML's; shortlists of all rows; O(passes·``hard_negatives``·nnz X) for rankers, with a few passes; one pass
    over the positive rows of each label for prototypes; some steps of Newton's method on the validation rows for the
    fusion; then a second fit, or proposer and rankers again for some labels. A row is answered in a few passes over L
    numbers, the weights of S for its features, O(k) for each of some hundred labels, the weights of M rankers or O(M)
    for each of its features, and 50·M weights of prototypes.
    Memory: REML's; 300 bytes for each of ``shortlist`` labels of the validation rows; 10 bytes for each of
    n·``hard_negatives`` pairs; 24 for each weight of the rankers of labels that are learnt again; d numbers per thread.
    The model holds (d + L)·k numbers and the stored weights of S, the rankers and the prototypes, 8 bytes each (rankers
    twice unless ``rankers_by_feature_``), and at prediction bitmaps, at most three quarters of those. Rows are answered
    in blocks: 20 bytes for each of 2¹⁵ candidates and some 30·L bytes per thread.

    Probabilities are calibrated by the validation rows. ``callback`` hears of the fit whose result is kept; cascades
    that only teach the fusion are not stopped by it. docs/notes/cascade.md has what else was tried.

    **Dense features.** A dense block (:class:`~tagwise.data.FeatureBlocks`) has no supports: it enters the low rank at
    its least squares, with min(q, L) columns or 2²¹/L of them if that is less; rankers learn from both blocks together;
    and the cosine of the row with the label's rows, by the dense block and from its mean, is an opinion of its own.
    Arrays and CSR matrices are searched for such a block: the last columns, if there are 32 or more that are hardly
    ever 0. Time: n·q² and a few products of n×q with q×L by BLAS; O(passes·``hard_negatives``·n·q) for rankers; L·q by
    BLAS for each row that is answered. Memory: L·q numbers three times.

    Examples
    --------
    >>> from tagwise import Cascade
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> model = Cascade().fit(data.X_train, data.Y_train)
    >>> labels, scores = model.predict_topk(data.X_test, k=3)
    >>> labels.shape == (data.X_test.shape[0], 3)
    True
    """

    fields: ClassVar[Fields] = reduce(
        or_,
        (kind.fields for kind in OPINIONS),
        cooccurrence.FIELDS
        | Fields(opinions_=value(_check_opinions, meaning="The names of the opinions that the fusion weighs."))
        | fusion.FIELDS,
    )

    explained_score: ClassVar[str] = "the ranker's margin, or the proposer's where a label has no ranker"

    rank: Count = 16
    support: Count = 200
    shortlist: Count = 50
    hard_negatives: Count = 100
    positive_weight: PositiveWeight = 1.0
    C: Positive = 0.5
    prune: NonNegative = 0.1
    unlisted: Literal["off", "unknown"] = "off"
    validation_fraction: Annotated[float, partial(check_real, minimum=0, maximum=0.5)] = 0.1
    refit: bool | Literal["auto"] = "auto"
    reg_low_rank: Positive = 1.0
    reg_sparse: Positive = 1.0
    max_iter: Count = 5
    tol: NonNegative = 1.0
    normalize: bool = True
    memory_limit: Positive = 2**31
    updatable: bool = False
    dense_weight: NonNegative = 1.0
    n_jobs: int | None = None
    random_state: Seed = 0
    verbose: int = 0

    def _check_parameters(self) -> None:
        if self.unlisted == "unknown" and self.validation_fraction == 0:
            raise InvalidInputError("unlisted='unknown' needs validation rows; set validation_fraction above 0.")

    def _reads_blocks(self) -> bool:
        return True

    def _recognised(self, X: Features) -> Features:
        # Of arrays too, and dense columns alone: their rows have no words to look up.
        return X if self.updatable else FeatureBlocks.recognised(X)

    def _iterations(self) -> int:
        return self.max_iter + 1

    # ------------------------------------------------------------------ fit

    def _take_data(self, X: Any, Y: Any, observed: Any, sample_weight: Any, label_features: Any) -> Problem:
        self._require_one_meaning(observed)
        return super()._take_data(X, Y, observed, sample_weight, label_features)

    def _require_one_meaning(self, observed: Any) -> None:
        if observed is not None and self.unlisted == "unknown":
            raise InvalidInputError(
                "observed says which pairs are known, unlisted='unknown' that only those of Y are; give one of them."
            )

    def _fit(self, problem: Problem, progress: FitProgress) -> None:
        """The stages, on all rows but those that teach the fusion; then these too, or all stages again."""
        if isinstance(problem.X, np.ndarray):
            problem = replace(problem, X=sp.csr_matrix(problem.X))
        folds, refit = choose_validation_rows(
            problem, fraction=self.validation_fraction, refit=self.refit, random_state=self.random_state
        )
        if self.unlisted == "unknown" and not folds:
            warn(
                f"unlisted='unknown' needs validation rows, and of {problem.n_rows} rows none can be set aside: they "
                "are too few, or each has a label that no other row has. Unlisted labels are taken for off.",
                TagwiseWarning,
            )
        if folds and not refit:
            (validation,) = folds
            self._fit_stages(_without(problem, validation), progress)
            self._build_prediction_cache()
            learnt = self._learn_fusion([self._lesson(problem.rows(validation))], problem)
            if self.refit == "auto" and not progress.stopped:
                self._learn_more_rows(problem, validation, progress)
        else:
            learnt = self._fusion_of_folds(problem, folds, progress)
            self._fit_stages(problem, progress)
        self._take(learnt)

    def _fit_stages(self, problem: Problem, progress: FitProgress) -> None:
        """Propose; rank the proposals that are wrong; learn the other opinions; fuse them by the prior."""
        side = self._side(problem)
        self.proposer_ = self._propose(problem, progress)
        self._take(self._rank(side, progress))
        some = problem.X[:_SAMPLE_ROWS]
        shortlists, _ = self.proposer_.predict_topk(some, min(self.shortlist, self.n_labels_))
        self.rankers_by_feature_ = faster_by_feature(some, self.ranker_weights_, shortlists)
        self._describe_labels(side)
        self._take(prior_fusion(self.opinions_).attributes())

    def _propose(self, problem: Problem, progress: FitProgress) -> REML:
        """The checkpoint's proposer, or a new one whose rounds go to the history and checkpoint of this fit."""
        shared = set(REML().get_params()) & set(self.get_params()) - {"prune", "updatable", "verbose"}
        proposer = REML(sparse_part="support", **{name: getattr(self, name) for name in shared})
        kept = progress.resume(Proposer.fields, problem.X.dtype)
        if kept is not None:
            fitted: REML = kept["proposer_"]
            self._check_inner("proposer_", fitted, problem.X.dtype)
            return fitted.set_params(**proposer.get_params(deep=False))
        proposer.fit_stage(problem, progress)
        if not progress.stopped:
            progress.keep(*REML.checkpointed, now=True, proposer_=proposer)
        return proposer

    def _rank(self, side: LabelSide, progress: FitProgress) -> dict[str, Any]:
        """The checkpoint's rankers, none for a fit that was stopped, or new ones."""
        n_labels, n_features, n_dense = self.n_labels_, self.n_features_in_, self.n_dense_features_in_
        kept = progress.resume(LEARNT, side.dtype, L=n_labels, d=n_features, q=n_dense)
        if kept is not None:
            return kept
        if progress.stopped:
            return no_rankers(n_labels, n_features, n_dense, side.dtype)
        progress.note(f"shortlists of the training rows and rankers of {n_labels:,} labels")
        rankers, objective = learn_rankers(side, self.proposer_, self.hard_negatives)
        progress.keep(**rankers)
        progress.step(objective, stage="rankers")
        progress.keep(now=True)
        return rankers

    def _describe_labels(self, side: LabelSide) -> None:
        """All opinions but the ranker's and the proposer's, and co-occurrence."""
        self._learn_opinions(side)
        self.cooccurrence_ = total_cooccurrence(side.problem.Y, side.executor)
        self.n_rows_ = side.problem.n_rows
        self.opinions_ = [kind.name for kind in OPINIONS if kind.is_there(self)]

    def _learn_more_rows(self, problem: Problem, added: np.ndarray, progress: FitProgress) -> None:
        """Learn from all rows: proposer and rankers for labels that ``added`` rows have much of, if they are many.

        What labels look like and which occur together is learnt anew for all labels. Those that are learnt again are a
        problem of their own, with as many hard negatives per row as is their share of all labels. Most are rare, and
        get some more negatives by this than among all labels.
        """
        labels = labels_to_learn_again(problem.Y, added)
        if len(labels):
            progress.note(f"{len(labels):,} labels again, with the validation rows")
            self.proposer_ = self.proposer_.with_sparse_part_of(labels, problem)
            many = math.ceil(self.hard_negatives * len(labels) / self.n_labels_)
            self._learn_rankers(self._side(problem.labels(labels)), labels, many)
        self._describe_labels(self._side(problem))

    def _fusion_of_folds(self, problem: Problem, folds: list[np.ndarray], progress: FitProgress) -> dict[str, Any]:
        """The fusion learnt from cascades fitted without a fold, on that fold; nothing without folds."""
        kept = progress.resume(fusion.FIELDS, problem.X.dtype)
        if kept is not None or not folds:
            return kept or {}
        lessons = []
        alone = {"validation_fraction": 0.0, "unlisted": "off", "updatable": False, "verbose": 0}
        for number, validation in enumerate(folds, start=1):
            progress.note(f"a cascade without {len(validation):,} validation rows, {number} of {len(folds)}")
            model = Cascade(**self.get_params(deep=False) | alone)
            with warnings.catch_warnings(), FitProgress("Cascade", model._iterations()) as unseen:
                warnings.simplefilter("ignore", TagwiseWarning)  # the fit with all rows says it
                model.fit_stage(_without(problem, validation), unseen)
                lessons.append(model._lesson(problem.rows(validation)))
            del model  # what it learnt is not needed beside what it taught
        learnt = self._learn_fusion(lessons, problem)
        progress.keep(now=True, **learnt)
        return learnt

    def _lesson(self, unseen: Problem) -> Lesson:
        """Candidates and opinions of this cascade on unseen rows, with their known labels."""
        candidates = self._candidates(unseen.X, min(self.shortlist, self.n_labels_))
        labels = candidates.labels
        known = labels >= 0
        if unseen.observed is not None:
            known &= contains_pairs(unseen.observed, labels)
        by_name = np.zeros((0, 0, len(TERMS)))
        if self._unseen is not None:
            by_name = self._unseen.terms(labels, dict(zip(self.opinions_, candidates.opinions)))
        weight = np.ones(unseen.n_rows) if unseen.row_weight is None else unseen.row_weight
        on = contains_pairs(unseen.Y, labels) & known
        return Lesson(tuple(self.opinions_), candidates, self._together, by_name, on, known, weight)

    def _learn_fusion(self, lessons: list[Lesson], problem: Problem) -> dict[str, Any]:
        lessons = of_labels_in_use(lessons, problem.label_counts)
        if self.unlisted == "unknown":
            lessons = counting_missing_labels(lessons, inverse_propensity(problem.Y, listed_only=True))
        return learn_fusion(lessons).attributes()

    def _side(self, problem: Problem) -> LabelSide:
        return LabelSide(self, problem, current_executor())

    def _learn_rankers(self, side: LabelSide, labels: np.ndarray, many: int) -> None:
        """Rankers of some labels, against wrong proposals among these labels alone."""
        self._take(learn_rankers(side, self.proposer_.of_labels(labels), many)[0], labels)

    def _learn_opinions(self, side: LabelSide, labels: np.ndarray | None = None) -> None:
        for kind in OPINIONS:
            self._take(kind.fit(side), labels)

    def _take(self, found: dict[str, Any], labels: np.ndarray | None = None) -> None:
        """Fitted attributes, of all labels or of some."""
        axis_of_labels = dict(self.fields.along("L"))
        for name, content in found.items():
            if labels is not None and name in axis_of_labels:
                content = put(getattr(self, name), labels, content, axis_of_labels[name])
            setattr(self, name, content)

    # ------------------------------------------------------------------ after the fit

    def add_labels(self, X: Any, Y_new: Any, observed: Any = None, *, Y: Any = None, label_features: Any = None) -> Any:
        """Learn labels beside those of the fit: proposer, ranker, prototype and co-occurrence of each.

        Parameters
        ----------
        Y : CSR or array (n, L), optional
            The labels of the fit that the rows have, so that it is known which of them occur together with the new
            ones. A model with ``updatable=True`` knows.
        label_features : CSR or array (m, d), optional
            The features of the new labels' names, as in :meth:`fit`; of use where the model was fitted with names.

        Notes
        -----
        See :meth:`tagwise.models.updating.UpdatableModel.add_labels` for the other parameters. Hard negatives of the
        new labels are looked for among their own proposals, as many per row as they have among the hard negatives that
        a fit would find for some of the rows; the coefficients of the fusion stay.
        """
        rows = self._rows_of_new_labels(X, Y_new, observed)
        known = None if Y is None else check_labels(Y, n_rows=rows.n_rows, n_labels=self.n_labels_)
        names = self._checked_label_features(label_features, rows.n_labels, "new label")
        rows = replace(rows, names=names if "name" in self.opinions_ else None)
        return self._add(rows, known=self.kept_labels_ if self.updatable else known)

    def update(self, X: Any, Y: Any, observed: Any = None, *, label_features: Any = None) -> Any:
        """Learn further rows: see :meth:`tagwise.models.updating.UpdatableModel.update`.

        ``label_features`` (m, d) are the features of the new labels' names, where there are new labels.
        """
        self._require_one_meaning(observed)
        names = None
        if label_features is not None:
            self._require_fitted()
            new = max(0, check_labels(Y).shape[1] - self.n_labels_)
            names = self._checked_label_features(label_features, new, "new label")
        return self._update(X, Y, observed, names)

    @property
    def _kept(self) -> Problem:
        return replace(super()._kept, names=self.name_weights_ if "name" in self.opinions_ else None)

    def _learn_labels(self, problem: Problem, labels: np.ndarray, progress: FitProgress) -> None:
        proposer = copy(self.proposer_).set_params(positive_weight=self.positive_weight)
        proposer = proposer.with_labels_learnt(problem, labels, progress)
        self.proposer_, many = proposer, self.hard_negatives
        if len(labels) < self.n_labels_:
            many = usual_mistakes(proposer, problem, labels, many)
        side = self._side(problem)
        self._learn_rankers(side, labels, many)
        self._learn_opinions(side, labels)

    def _take_new_names(self, labels: np.ndarray, names: Features) -> None:
        if "name" in self.opinions_:  # their weights follow once the rows have been counted
            self._take({"name_weights_": sp.csr_matrix(names).astype(self._floats())}, labels)

    def _describe_new(self, problem: Problem, labels: np.ndarray, known: sp.csr_matrix | None = None) -> None:
        """Co-occurrence with the ``known`` old labels."""
        if known is None:
            known = sp.csr_matrix((problem.n_rows, self.n_labels_ - len(labels)), dtype=problem.Y.dtype)
        some = np.flatnonzero(np.diff(problem.Y.indptr))  # no other row has a pair with a new label
        both = sp.csr_matrix(sp.hstack([known[some], problem.Y[some]], format="csr"))
        counts = total_cooccurrence(both, current_executor())
        counts.data[counts.indices < labels[0]] = 0  # those are counted already
        counts.eliminate_zeros()
        self.cooccurrence_ = sp.csr_matrix(self.cooccurrence_ + counts)
        self.n_rows_ = max(self.n_rows_, problem.n_rows)

    def _count_rows(self, start: int) -> None:
        side = self._side(self._kept)
        self.n_rows_ = side.problem.n_rows
        counts = total_cooccurrence(side.problem.Y[start:], side.executor)
        self.cooccurrence_ = sp.csr_matrix(self.cooccurrence_ + counts) if start else counts
        for kind in (Frequency, Name):
            self._take(kind.fit(side))

    # ------------------------------------------------------------------ predict

    def _build_prediction_cache(self) -> None:
        self._opinions = [kind(self) for kind in OPINIONS if kind.name in self.opinions_]
        self._together = Together.of(self.label_frequency_, self.n_rows_, self.cooccurrence_)
        self._unseen = LabelsWithoutRows(self) if {"name", "name meaning"} & set(self.opinions_) else None
        self._fusion = Fusion(*(getattr(self, name) for name in fusion.FIELDS))

    def answers_without_blas(self, X: Features) -> bool:
        """Whether the proposer reads feature blocks."""
        return self.proposer_.answers_without_blas(X)

    def _rows(self, X: Features) -> Rows:
        scaled = self._prepared(X)
        return Rows(
            sp.csr_matrix(scaled) if isinstance(scaled, np.ndarray) else scaled,
            unit_length=self.normalize,
            dense_mean=self.dense_mean_,
            n_threads=self._threads_for(X),
        )

    def _judged(self, rows: Rows, labels: np.ndarray, proposed: np.ndarray) -> Candidates:
        """Opinions on proposed labels (n, N), and on unseen labels that the rows name."""
        finite_scores(proposed)  # then no label is −1
        width, by_name = min(self.shortlist, labels.shape[1]), NO_ODDS
        if self._unseen is not None:
            labels, proposed, width = self._unseen.propose(rows, labels, proposed, width)
        shortlist, scores = np.ascontiguousarray(labels[:, :width]), np.ascontiguousarray(proposed[:, :width])
        opinions = np.empty((len(self._opinions), *shortlist.shape), dtype=proposed.dtype)
        for opinion, out in zip(self._opinions, opinions):
            opinion.write(rows, shortlist, scores, out)
        if self._unseen is not None:
            by_name = self._unseen.odds(shortlist, dict(zip(self.opinions_, opinions)), self.fusion_unseen_)
        return Candidates(labels, proposed, opinions, by_name)

    def _candidates(self, X: Features, width: int) -> Candidates:
        """Opinions on the ``width`` labels that the proposer scores best, or on the shortlist of them."""
        rows = self._rows(X)
        # The order within the shortlist does not matter.
        labels, proposed = self.proposer_.propose(rows.scaled, width, best_first=width > self.shortlist)
        return self._judged(rows, labels, proposed)

    def _score_rows(self, X: Features) -> np.ndarray:
        rows = self._rows(X)
        proposed = self.proposer_.all_scores(rows.scaled)
        candidates = self._judged(rows, *top_k_of_scores(proposed, min(self.shortlist, self.n_labels_)))
        labels, fused = self._fusion.best(candidates, self._together, candidates.labels.shape[1])
        scores, listed = behind_shortlist(proposed), labels >= 0
        scores[np.nonzero(listed)[0], labels[listed]] = fused[listed]
        return scores

    def _top_k(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        excluded = 0 if exclude is None else int(np.diff(exclude.indptr).max(initial=0))
        # The shortlist is the same whatever is excluded, so that no label's score depends on it.
        width = min(max(self.shortlist, k + excluded), self.n_labels_)

        def best_of(rows: Features, excluded: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
            candidates, threads = self._candidates(rows, width), self._threads_for(rows)
            hidden = None if excluded is None else contains_pairs(excluded, candidates.labels, n_threads=threads)
            return self._fusion.best(candidates, self._together, k, hidden, n_threads=threads)

        # All stages for a block of rows, whose candidates stay in the cache, before the next block.
        blocks = even_chunks(X.shape[0], max(1, _BLOCK_CANDIDATES // width))
        if len(blocks) == 1:
            return best_of(X, exclude)
        parts = run_chunks(
            lambda start, stop: best_of(X[start:stop], None if exclude is None else exclude[start:stop]),
            blocks,
            thread_count(self.n_jobs),
        )
        labels, scores = (np.concatenate(part) for part in zip(*parts))
        return labels, scores

    def purpose_facts(self) -> tuple[int, LabelCounts]:
        """Size of the shortlist, and counts of labels in the training rows."""
        counts = LabelCounts(self.label_frequency_, self.n_rows_, self.cooccurrence_)
        return min(self.shortlist, self.n_labels_), counts

    # ------------------------------------------------------------------ explain, restore

    def _label_weights(self, labels: np.ndarray) -> Features:
        weights = self.ranker_weights_[:, labels].toarray().T
        if self.n_dense_features_in_:
            weights[:, -self.n_dense_features_in_ :] = self.ranker_dense_weights_[labels]
        alone = ~self.has_ranker_[labels]
        if alone.any():
            weights[alone] = 2 * self.proposer_.label_weights(labels[alone])
        return weights

    def _label_intercepts(self, labels: np.ndarray) -> np.ndarray:
        proposed = self.proposer_.label_intercepts(labels)
        return np.where(self.has_ranker_[labels], self.ranker_intercept_[labels], 2 * proposed)

    def _check_fitted(self) -> None:
        proposer, n_dense = self.proposer_, self.n_dense_features_in_
        if (proposer.n_dense_features_in_, proposer.dense_weight) != (n_dense, self.dense_weight):
            raise ValueError(f"a proposer of {proposer.n_dense_features_in_} dense features, where there are {n_dense}")
        counts = self.label_frequency_, self.name_rows_, self.cooccurrence_.data
        if not all((part <= self.n_rows_).all() for part in counts):
            raise ValueError(f"labels, names and pairs of labels must occur in 0 to {self.n_rows_} rows")
        if self.name_meanings_.shape[1] not in (0, n_dense):
            raise ValueError(f"name_meanings_ must have {n_dense} columns or none")
        expected = len(own_terms(self.opinions_))
        if len(self.fusion_own_) != expected:
            raise ValueError(
                f"fusion_own_ must have {expected} coefficients, for {len(self.opinions_)} opinions; found "
                f"{len(self.fusion_own_)}"
            )


def _without(problem: Problem, rows: np.ndarray) -> Problem:
    """The other rows."""
    return problem.rows(np.setdiff1d(np.arange(problem.n_rows), rows))
