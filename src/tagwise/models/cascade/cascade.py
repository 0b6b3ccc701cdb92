"""Cascade: low rank plus sparse proposes a shortlist of labels, margin rankers and prototypes decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from tagwise.base import MultiLabelModel, finite_scores
from tagwise.exceptions import InvalidInputError
from tagwise.kernels import top_k_of_scores, unit_rows
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.kernels.shortlists import shortlist_margins
from tagwise.models.cascade.combination import CascadeChoice, Combination, Opinions, behind_shortlist
from tagwise.models.cascade.rankers import (
    FittedProposer,
    Rankers,
    label_prototypes,
    learn_rankers,
    usual_prototype_weight,
    wrong_proposals,
)
from tagwise.models.cascade.tuning import choose_on_validation_rows
from tagwise.models.factor_model import PositiveWeight
from tagwise.models.reml import REML
from tagwise.parallel import even_chunks, thread_count
from tagwise.persistence.loading import require_dense, require_finite_floats, require_sparse
from tagwise.problems.labels import known_positives
from tagwise.progress import FitProgress
from tagwise.randomness import random_generator
from tagwise.validation import Features, check_flag, check_integer, check_real

__all__ = ["Cascade"]

# Candidates of a block of rows, labels and scores: 50 MB.
_BLOCK_CANDIDATES = 1 << 22
# Rows that decide how margins are summed.
_SAMPLE_ROWS = 256
# Measured: a sum label by label takes this many times as long per addition as one feature by feature.
_EASE_BY_FEATURE = 1.5
# Parameters that are the proposer's own.
_PROPOSER_PARAMETERS = (
    "rank",
    "reg_low_rank",
    "reg_sparse",
    "support",
    "positive_weight",
    "max_iter",
    "tol",
    "normalize",
    "memory_limit",
    "n_jobs",
    "random_state",
)


class Cascade(MultiLabelModel):
    r"""For very many, rare labels: a proposer that sees all pairs, and rankers for the hard ones. No label tree.

    1. **Propose.** :class:`~tagwise.REML` with supports scores all labels by least squares,
       s(x) = xᵀ(WHᵀ + S) + b, to which every negative pair contributes. The ``shortlist`` best labels of a row are its
       shortlist.
    2. **Rank.** The shortlists of the training rows show the proposer's mistakes. Each label gets a linear support
       vector machine on its positive rows and on those that it was wrongly proposed for,

       .. math:: \min_{w,\,\beta}\ \tfrac12(\|w\|^2 + \beta^2) + C\sum_i \max(0,\, 1 - y_i(w^\top x_i + \beta))^2 ,

       by dual coordinate descent; weights below ``prune`` are dropped. A label without such rows keeps the proposer's
       margin 2s.
    3. **Combine.** p = σ(slope·m)·(s + ½)^exponent·((c + 0.1)/1.1)^prototype_weight for a shortlisted label with the
       margin m and the cosine c of the row with the label's prototype, the mean of its rows. Two constants turn p into
       a probability q (:class:`~tagwise.models.cascade.combination.Combination`); the score is q − ½. Labels outside
       the shortlist follow in the proposer's order and are off.

    With a mask, unknown pairs are never used as negatives, and prototypes are those of known positives.

    Parameters
    ----------
    rank, reg_low_rank, reg_sparse, support, max_iter, tol, memory_limit
        Of the proposer, see :class:`~tagwise.REML`. The default ``tol`` makes one round.
    positive_weight : float, array (L,) or "propensity"
        Of the proposer: how much a positive counts.
    shortlist : int
        M: how many labels per row the rankers decide on.
    hard_negatives : int
        How many wrong labels per training row, those that the proposer scores best, are negatives for their rankers.
        With a mask only known pairs among them count. Fewer are faster, and cost precision with tens of thousands of
        labels, with many labels per row, and with a mask.
    C : float
        How much a ranker's mistake costs.
    slope, exponent : float
        Of the combination. Exponent 0 leaves the proposer's score out of it.
    prototype_weight : float or "auto"
        Of the combination: how much prototypes count. 0 leaves them out; more lifts rare labels. "auto" is 3/√m, at
        most 1, where labels have m known positives on average.
    prune : float
        Weights of rankers below this are dropped.
    validation_fraction : float
        Above 0, this share of the rows is set aside to choose ``positive_weight``, ``reg_sparse``,
        ``hard_negatives``, ``C``, ``slope``, ``exponent`` and ``prototype_weight`` and to fit the constants of q; the
        model then learns from all rows. The values given here are ignored, except that ``reg_sparse`` is among those
        tried and that a ``positive_weight`` that is not a number is kept. Takes ten to twenty times as long.
    normalize : bool
        Scale rows of X to unit length, at fit and at prediction.
    n_jobs : int or None
        Threads, as in joblib. The result is bit-identical for every number.
    random_state : int, Generator, RandomState or None
        Seeds the low rank, the order of rows in the rankers, and the validation rows.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    proposer_ : REML
        The fitted proposer.
    ranker_weights_ : CSR (d, L)
        w of each label's ranker, one column per label.
    ranker_intercept_ : array (L,)
        β.
    rankers_by_feature_ : bool
        Whether margins are summed feature by feature of a row rather than label by label of its shortlist: whichever
        took fewer additions on training rows.
    has_ranker_ : bool array (L,)
        False where the proposer's margin stands in.
    prototypes_ : CSR (L, d)
        The mean of each label's rows, of unit length; its 50 largest weights.
    chosen_ : dict
        The parameters that were used, and ``calibration``, the constants (a, b) of q.
    validation_ : list of dict
        With ``validation_fraction``, every setting that was tried and its nDCG@5 on the validation rows.
    objective_, history_, n_iter_
        Equation 5 of REML after each of its rounds; last, the sum of the rankers' objectives.

    Notes
    -----
    Time: REML's; shortlists of all rows at O(n·L·k) by BLAS plus one addition for every weight of S that a row's
    features have; a few passes over the rows of each label's problem, O(passes·``hard_negatives``·nnz X) in all;
    prototypes take one pass over the positive rows of each label.
    Memory: REML's; 22 bytes for each of n·``hard_negatives`` pairs while rankers are made; d numbers per thread. The
    model holds (d + L)·k numbers and the stored weights of S, the rankers and the prototypes, 8 bytes each (rankers
    twice unless ``rankers_by_feature_``). A row is answered in O(L·k), the weights of S for its features, the
    weights of M rankers or those of its features, whichever are fewer, and 50·M weights of prototypes.

    The default constants of q are a compromise; fit them with ``validation_fraction``, or calibrate a
    :class:`~tagwise.Tagger`, where probabilities matter. docs/notes/cascade.md has what else was tried.

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

    _saved_arrays: ClassVar[tuple[str, ...]] = ("ranker_weights_", "ranker_intercept_", "has_ranker_", "prototypes_")
    _saved_values: ClassVar[tuple[str, ...]] = ("chosen_", "validation_", "rankers_by_feature_")
    _saved_models: ClassVar[Mapping[str, tuple[str, ...]]] = {"proposer_": ("REML",)}
    explained_score: ClassVar[str] = "the ranker's margin, or the proposer's where a label has no ranker"

    proposer_: REML
    ranker_weights_: sp.csr_matrix
    ranker_intercept_: np.ndarray
    has_ranker_: np.ndarray
    prototypes_: sp.csr_matrix
    rankers_by_feature_: bool
    chosen_: dict[str, Any]
    validation_: list[dict[str, Any]]
    _weights_by_label: sp.csr_matrix | None
    _no_shift: np.ndarray
    _combination: Combination

    def __init__(
        self,
        rank: int = 16,
        support: int = 200,
        shortlist: int = 50,
        hard_negatives: int = 100,
        positive_weight: PositiveWeight = 1.0,
        C: float = 0.5,
        slope: float = 3.0,
        exponent: float = 0.5,
        prototype_weight: float | Literal["auto"] = "auto",
        prune: float = 0.1,
        validation_fraction: float = 0.0,
        reg_low_rank: float = 1.0,
        reg_sparse: float = 1.0,
        max_iter: int = 5,
        tol: float = 1.0,
        normalize: bool = True,
        memory_limit: float = 2**31,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.support = support
        self.shortlist = shortlist
        self.hard_negatives = hard_negatives
        self.positive_weight = positive_weight
        self.C = C
        self.slope = slope
        self.exponent = exponent
        self.prototype_weight = prototype_weight
        self.prune = prune
        self.validation_fraction = validation_fraction
        self.reg_low_rank = reg_low_rank
        self.reg_sparse = reg_sparse
        self.max_iter = max_iter
        self.tol = tol
        self.normalize = normalize
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        self._new_proposer()._check_parameters()
        check_integer(self.shortlist, "shortlist", minimum=1)
        check_integer(self.hard_negatives, "hard_negatives", minimum=1)
        check_real(self.C, "C", minimum=0, open_minimum=True)
        check_real(self.slope, "slope", minimum=0, open_minimum=True)
        check_real(self.exponent, "exponent", minimum=0)
        if not isinstance(self.prototype_weight, str):
            check_real(self.prototype_weight, "prototype_weight", minimum=0)
        elif self.prototype_weight != "auto":
            raise InvalidInputError(f'prototype_weight must be a number or "auto"; found {self.prototype_weight!r}.')
        check_real(self.prune, "prune", minimum=0)
        check_real(self.validation_fraction, "validation_fraction", minimum=0, maximum=0.5)

    def _iterations(self) -> int:
        return self.max_iter + 1

    # ------------------------------------------------------------------ fit

    def _fit(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress) -> None:
        threads = thread_count(self.n_jobs)
        features = sp.csr_matrix(X)
        positives = known_positives(Y, observed)
        choice = self._given_choice(positives)
        self.validation_ = []
        if self.validation_fraction > 0:
            choice, self.validation_ = choose_on_validation_rows(self, features, Y, observed, choice, progress)
        self.chosen_ = choice.as_values()

        # 1. Propose.
        self.proposer_ = self._fit_proposer(choice, features, Y, observed, progress)

        # 2. Rank: a support vector machine per label on the shortlists' mistakes.
        rows = sp.csr_matrix(unit_rows(features, n_threads=threads) if self.normalize else features)
        rankers = self._fit_rankers(choice, features, rows, positives, observed, progress)
        self.ranker_weights_, self.ranker_intercept_ = sp.csr_matrix(rankers.weights.T), rankers.intercept
        self.has_ranker_ = rankers.trained
        some = features[:_SAMPLE_ROWS]
        shortlists, _ = self.proposer_.predict_topk(some, min(self.shortlist, self.n_labels_))
        self.rankers_by_feature_ = self._faster_by_feature(some, shortlists)

        # 3. Combine with prototypes.
        unit = rows if self.normalize else sp.csr_matrix(unit_rows(features, n_threads=threads))
        self.prototypes_ = label_prototypes(unit, positives, n_threads=threads)

    def _given_choice(self, positives: sp.csr_matrix) -> CascadeChoice:
        """What the constructor's parameters say."""
        weight = usual_prototype_weight(positives) if self.prototype_weight == "auto" else self.prototype_weight
        combination = Combination.usual(float(self.slope), float(self.exponent), float(weight))
        return CascadeChoice(self.positive_weight, self.reg_sparse, self.hard_negatives, self.C, combination)

    def _new_proposer(self, **changed: Any) -> REML:
        """An unfitted proposer with the parameters of this model."""
        return REML(sparse_part="support", **({name: getattr(self, name) for name in _PROPOSER_PARAMETERS} | changed))

    def _fit_proposer(
        self,
        choice: CascadeChoice,
        X: sp.csr_matrix,
        Y: sp.csr_matrix,
        observed: sp.csr_matrix | None,
        progress: FitProgress,
    ) -> REML:
        """The checkpoint's proposer, or a new one whose rounds go to the history and checkpoint of this fit."""
        proposer = self._new_proposer(positive_weight=choice.positive_weight, reg_sparse=choice.reg_sparse)
        fitted = progress.resume(FittedProposer, "proposer", model=proposer)
        if fitted is not None:
            return fitted.model
        proposer._fit_stage(X, Y, observed, progress)
        if not progress.stopped:
            progress.finish_stage("proposer", FittedProposer(proposer))
        return proposer

    def _fit_rankers(
        self,
        choice: CascadeChoice,
        X: sp.csr_matrix,
        rows: sp.csr_matrix,
        positives: sp.csr_matrix,
        observed: sp.csr_matrix | None,
        progress: FitProgress,
    ) -> Rankers:
        """The checkpoint's rankers, none for a fit that was stopped, or new ones."""
        n_labels, n_features = positives.shape[1], X.shape[1]
        rankers = progress.resume(Rankers, "rankers", L=n_labels, d=n_features, dtype=X.dtype)
        if rankers is not None:
            return rankers
        if progress.stopped:
            return Rankers.none(n_labels, n_features, X.dtype)
        progress.note("shortlists of the training rows")
        wrong = wrong_proposals(self.proposer_, X, positives, observed, choice.hard_negatives)
        progress.note(f"rankers of {n_labels:,} labels")
        seed, threads = int(random_generator(self.random_state).integers(2**31)), thread_count(self.n_jobs)
        rankers = learn_rankers(rows, positives, wrong, C=choice.C, prune=self.prune, seed=seed, n_threads=threads)
        progress.step(rankers.objective, stage="rankers")
        progress.finish_stage("rankers", rankers)
        return rankers

    def _faster_by_feature(self, X: sp.csr_matrix, labels: np.ndarray) -> bool:
        """Which way of summing margins takes fewer additions on these rows (n×d) and their shortlists (n×M)."""
        weights_of_feature = np.diff(self.ranker_weights_.indptr)
        weights_of_label = np.bincount(self.ranker_weights_.indices, minlength=self.n_labels_)
        by_feature, by_label = weights_of_feature[X.indices].sum(), weights_of_label[labels[labels >= 0]].sum()
        return bool(by_feature <= _EASE_BY_FEATURE * by_label)

    # ------------------------------------------------------------------ predict

    def _build_prediction_cache(self) -> None:
        self._weights_by_label = None if self.rankers_by_feature_ else sp.csr_matrix(self.ranker_weights_.T)
        self._no_shift = np.zeros_like(self.ranker_intercept_)
        self._combination = CascadeChoice.from_values(self.chosen_).combination

    def _answers_without_blas(self, X: Features) -> bool:
        return self.proposer_._answers_without_blas(X)

    def _opinions(self, rows: sp.csr_matrix, labels: np.ndarray, proposed: np.ndarray) -> Opinions:
        """On proposed labels (n, N) of rows as the proposer reads them."""
        finite_scores(proposed)  # then no label is −1
        shortlist, b, threads = labels[:, : self.shortlist], self.ranker_intercept_, self._threads_for(rows)
        if self._weights_by_label is None:
            margins = shortlist_margins(rows, shortlist, self.ranker_weights_, b, by_feature=True, n_threads=threads)
        else:
            margins = shortlist_margins(rows, shortlist, self._weights_by_label, b, n_threads=threads)
        unit = rows if self.normalize else sp.csr_matrix(unit_rows(rows, n_threads=threads))
        cosines = shortlist_margins(unit, shortlist, self.prototypes_, self._no_shift, n_threads=threads)
        return Opinions(labels, proposed, finite_scores(margins), finite_scores(cosines), self.has_ranker_)

    def _score_rows(self, X: Features) -> np.ndarray:
        proposed = self.proposer_._score_rows(X)
        rows, _ = self.proposer_._rows_and_embedding(X)
        labels, best = top_k_of_scores(proposed, min(self.shortlist, self.n_labels_))
        scores = behind_shortlist(proposed)
        np.put_along_axis(scores, labels, self._combination.scores(self._opinions(rows, labels, best)), axis=1)
        return scores

    def _top_k(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        excluded = 0 if exclude is None else int(np.diff(exclude.indptr).max(initial=0))
        # The shortlist is the same whatever is excluded, so that no label's score depends on it.
        width = min(max(self.shortlist, k + excluded), self.n_labels_)
        blocks = even_chunks(X.shape[0], max(1, _BLOCK_CANDIDATES // width))
        if len(blocks) == 1:
            return self._top_k_of_block(X, k, width, exclude)
        parts = [
            self._top_k_of_block(X[start:stop], k, width, None if exclude is None else exclude[start:stop])
            for start, stop in blocks
        ]
        labels, scores = (np.concatenate(part) for part in zip(*parts))
        return labels, scores

    def _top_k_of_block(
        self, X: Features, k: int, width: int, exclude: sp.csr_matrix | None
    ) -> tuple[np.ndarray, np.ndarray]:
        rows, embedded = self.proposer_._rows_and_embedding(X)
        opinions = self._opinions(rows, *self.proposer_._best_of_rows(rows, embedded, width))
        threads = self._threads_for(rows)
        if exclude is not None:
            opinions.labels[contains_pairs(exclude, opinions.labels, n_threads=threads)] = -1
        return self._combination.best(opinions, k, n_threads=threads)

    # ------------------------------------------------------------------ explain, restore

    def _label_weights(self, labels: np.ndarray) -> Features:
        proposed = self.proposer_.label_weights(labels)
        ranked = self.has_ranker_[labels]
        return np.where(ranked[:, None], self.ranker_weights_[:, labels].toarray().T, 2 * proposed)

    def _label_intercepts(self, labels: np.ndarray) -> np.ndarray:
        proposed = self.proposer_.label_intercepts(labels)
        return np.where(self.has_ranker_[labels], self.ranker_intercept_[labels], 2 * proposed)

    def _check_restored(self) -> None:
        W, b, has, C = self.ranker_weights_, self.ranker_intercept_, self.has_ranker_, self.prototypes_
        require_sparse(ranker_weights_=W, prototypes_=C)
        require_dense(1, ranker_intercept_=b, has_ranker_=has)
        expected = (self.n_features_in_, self.n_labels_)
        proposer = self.proposer_
        if (proposer.n_features_in_, proposer.n_labels_, proposer.normalize) != (*expected, self.normalize):
            raise ValueError(f"a proposer of {proposer.n_features_in_} features and {proposer.n_labels_} labels")
        if W.shape != expected or (len(b), len(has)) != (self.n_labels_, self.n_labels_):
            raise ValueError(f"rankers of shapes {W.shape}, {b.shape}, {has.shape} where {expected} is expected")
        if C.shape != expected[::-1]:
            raise ValueError(f"prototypes_ of shape {C.shape} where {expected[::-1]} is expected")
        floats = {"ranker_weights_": W, "ranker_intercept_": b, "prototypes_": C}
        require_finite_floats(feature_factors_=proposer.feature_factors_, **floats)
        check_flag(self.rankers_by_feature_, "rankers_by_feature_")
        if has.dtype != np.bool_:
            raise ValueError(f"has_ranker_ must hold truth values; found {has.dtype}")
        CascadeChoice.from_values(self.chosen_)
