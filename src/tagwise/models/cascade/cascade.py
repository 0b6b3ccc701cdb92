"""Cascade: low rank plus sparse proposes a shortlist of labels, and a learnt fusion of opinions decides."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.base import finite_scores
from tagwise.exceptions import InvalidInputError, TagwiseWarning, warn
from tagwise.feature_blocks import FeatureBlocks
from tagwise.kernels import top_k_of_scores, unit_rows
from tagwise.kernels.sampled_pairs import contains_pairs
from tagwise.kernels.shortlists import (
    Lookup,
    behind_shortlist,
    listed_products,
    shortlist_margins,
    steps_by_feature,
)
from tagwise.metrics import inverse_propensity
from tagwise.metrics.purposes import LabelCounts
from tagwise.models.cascade.fusion import (
    Fusion,
    Lesson,
    choose_validation_rows,
    counting_missing_labels,
    labels_to_learn_again,
    learn_fusion,
    n_terms,
    of_labels_in_use,
)
from tagwise.models.cascade.names import UnseenLabels, name_directions, name_weights
from tagwise.models.cascade.opinions import (
    CascadeRows,
    FittedProposer,
    LabelFacts,
    LocalRows,
    Opinions,
    RankerOptions,
    Rankers,
    weights_of,
)
from tagwise.models.cascade.product import Product
from tagwise.models.cascade.updating import UpdatableCascade
from tagwise.models.factor_model import PositiveWeight
from tagwise.models.reml import REML
from tagwise.models.updating import with_columns
from tagwise.parallel import even_chunks, run_chunks, thread_count
from tagwise.persistence.checkpoints import Checkpoint
from tagwise.persistence.loading import require_dense, require_finite_floats, require_sparse
from tagwise.problems.labels import UNLISTED
from tagwise.progress import Callback, FitProgress
from tagwise.randomness import random_generator
from tagwise.validation import (
    Features,
    check_choice,
    check_features,
    check_flag,
    check_integer,
    check_real,
    shape_text,
)

__all__ = ["Cascade"]

# Candidates of a block of rows: 650 kB of labels, scores and opinions.
_BLOCK_CANDIDATES = 1 << 15
# Rows that decide how margins are summed.
_SAMPLE_ROWS = 256
# Measured: a sum label by label takes this many times as long per addition as one feature by feature.
_EASE_BY_FEATURE = 1.5
# What is learnt of a dense block, if there is one.
_DENSE_ARRAYS = ("ranker_dense_weights_", "dense_mean_", "dense_prototypes_", "name_meanings_")
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
    "dense_weight",
    "n_jobs",
    "random_state",
)


class Cascade(UpdatableCascade):
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

    With a mask, unknown pairs are never used as negatives, only known pairs teach the fusion, and prototypes are those
    of known positives. ``sample_weight`` counts each row in the proposer, in C of the rankers, in prototypes and in the
    fusion; how often labels occur, alone and together, is counted in rows.

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
    prune : float
        Weights of rankers below this are dropped.
    unlisted : {"off", "unknown"}
        What it means that Y does not list a label for a row. "unknown": nothing, since nobody looked; only positives
        are known, and rare labels are missing most often. When the fusion is learnt, a listed label then counts as
        its inverse propensity (:func:`~tagwise.metrics.inverse_propensity`), an unbiased estimate of what complete
        labels would teach: p is the probability that a label is right, not that somebody would have listed it. A
        warning says where rows list too many labels for these propensities; they then count less.
    validation_fraction : float
        Share of the rows, at most 5,000, that the fusion is learnt on: a cascade is fitted without them and asked
        about them. Where fewer than 1,000 rows' worth of pairs are known of them, up to ten such parts are set aside
        in turn, if a set is small. The fewer known positives they have, the more a prior from other data sets counts;
        0 takes the prior as it is.
    refit : bool or "auto"
        Learn from all rows once the fusion is learnt, which takes as long again. False keeps the cascade that was
        fitted without the validation rows; every label keeps a row. "auto" is True unless a twentieth of the rows (at
        most 3,000) has 1,000 rows' worth of known pairs, which are enough. No more are then set aside, and only labels
        that they add much to are learnt again, if they are many: labels of which they hold more than a twentieth of
        the rows, and twice their own share, if these have a fiftieth of all known positives.
    normalize : bool
        Scale rows of X to unit length, at fit and at prediction.
    updatable : bool
        Keep the training rows in the model and its folder, so that :meth:`update` can learn further ones and
        :meth:`merge_labels` can unite labels. See docs/updating.md.
    dense_weight : float
        What a dense block of features (:class:`~tagwise.data.FeatureBlocks`) is multiplied by, at fit and at
        prediction, after its rows are scaled to unit length where rows are.
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
        took fewer steps on training rows.
    has_ranker_ : bool array (L,)
        False where the proposer's margin stands in.
    ranker_dense_weights_ : array (L, q)
        w of the rankers for the q features of a dense block; q = 0 without one, as below.
    dense_mean_, dense_prototypes_ : arrays (q,), (L, q)
        The mean of the dense rows, and the direction from there to each label's rows.
    name_meanings_ : array (L, q) or (L, 0)
        The direction of each label's name from the mean of names, where ``label_features`` have a dense block.
    prototypes_ : CSR (L, d)
        The mean of each label's rows, of unit length; its 50 largest weights.
    label_frequency_ : int array (L,)
        Known positive rows of each label, among those that the cascade was fitted to.
    cooccurrence_ : CSR (L, L)
        In how many rows two labels j < t occur together.
    name_weights_ : CSR (L, d)
        What the features of a label's name say; empty without ``label_features``.
    name_rows_ : int array (L,)
        Training rows that have all features of a label's name, and for which the label is known.
    fusion_own_, fusion_context_, fusion_level_, fusion_unseen_ : arrays (15,) to (36,), (8,), (6,) and (4,) or (6,)
        The coefficients of the fusion.
    objective_, history_, n_iter_
        Equation 5 of REML after each of its rounds; last, the sum of the rankers' objectives, without the validation
        rows unless there is a ``refit``.

    Notes
    -----
    Time: REML's; shortlists of all rows as at prediction (below); a few passes over the rows of each label's problem,
    O(passes·``hard_negatives``·nnz X) in all; prototypes take one pass over the positive rows of each label; the fusion
    some steps of Newton's method on its validation rows, and then a second fit, or proposer and rankers again for the
    labels that these rows add much to.
    Memory: REML's; 300 bytes for each of ``shortlist`` labels of the validation rows while the fusion is learnt; 10
    bytes for each of n·``hard_negatives`` pairs while rankers are made; 24 for each of their weights while labels are
    learnt again; d numbers per thread. The model holds (d + L)·k numbers and the stored weights of S, the rankers and
    the prototypes, 8 bytes each (rankers twice unless ``rankers_by_feature_``), and at prediction bitmaps of features
    with many weights, at most three quarters of those. A row is answered in a few passes over L numbers, the weights of
    S for its features, O(k) for each of some hundred labels, the weights of M rankers or O(M) for each of its features,
    and 50·M weights of prototypes. Rows are answered in blocks: 20 bytes for each of 2¹⁵ candidates and some 30·L bytes
    per thread.

    Probabilities are calibrated by the validation rows. docs/notes/cascade.md has what else was tried.

    **Dense features.** A dense block (:class:`~tagwise.data.FeatureBlocks`) has no supports: it enters the low rank at
    its least squares, with min(q, L) columns or 2²¹/L of them if that is less; rankers learn from both blocks together;
    and the cosine of the row with the label's rows, by the dense block and from its mean, is an opinion of its own.
    Arrays and CSR matrices are searched for such a block: the last columns, if there are 32 or more that are hardly
    ever 0. Time: n·q² and a few products of n×q with q×L by BLAS; O(passes·``hard_negatives``·n·q) for rankers; q for
    each of M labels of a row twice, and L·q by BLAS, at prediction. Memory: L·q numbers three times.

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

    _saved_arrays: ClassVar[tuple[str, ...]] = (
        "ranker_weights_",
        "ranker_intercept_",
        "has_ranker_",
        "prototypes_",
        "label_frequency_",
        "cooccurrence_",
        "name_weights_",
        "name_rows_",
        "fusion_own_",
        "fusion_context_",
        "fusion_level_",
        "fusion_unseen_",
    )
    _saved_values: ClassVar[tuple[str, ...]] = ("rankers_by_feature_", "n_rows_", "product_")
    _label_axes: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "ranker_weights_": (1,),
        "ranker_intercept_": (0,),
        "ranker_dense_weights_": (0,),
        "has_ranker_": (0,),
        "prototypes_": (0,),
        "dense_prototypes_": (0,),
        "name_meanings_": (0,),
        "label_frequency_": (0,),
        "cooccurrence_": (0, 1),
        "name_weights_": (0,),
        "name_rows_": (0,),
    }
    _saved_models: ClassVar[Mapping[str, tuple[str, ...]]] = {"proposer_": ("REML",)}
    explained_score: ClassVar[str] = "the ranker's margin, or the proposer's where a label has no ranker"

    dense_mean_: np.ndarray
    dense_prototypes_: np.ndarray
    name_meanings_: np.ndarray
    rankers_by_feature_: bool
    fusion_own_: np.ndarray
    fusion_context_: np.ndarray
    fusion_level_: np.ndarray
    fusion_unseen_: np.ndarray
    _rankers: sp.csr_matrix | Lookup
    _no_shift: np.ndarray
    _facts: LabelFacts
    _unseen: UnseenLabels | None
    _fusion: Fusion | Product

    def __init__(
        self,
        rank: int = 16,
        support: int = 200,
        shortlist: int = 50,
        hard_negatives: int = 100,
        positive_weight: PositiveWeight = 1.0,
        C: float = 0.5,
        prune: float = 0.1,
        unlisted: str = "off",
        validation_fraction: float = 0.1,
        refit: bool | str = "auto",
        reg_low_rank: float = 1.0,
        reg_sparse: float = 1.0,
        max_iter: int = 5,
        tol: float = 1.0,
        normalize: bool = True,
        memory_limit: float = 2**31,
        updatable: bool = False,
        dense_weight: float = 1.0,
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
        self.prune = prune
        self.unlisted = unlisted
        self.validation_fraction = validation_fraction
        self.refit = refit
        self.reg_low_rank = reg_low_rank
        self.reg_sparse = reg_sparse
        self.max_iter = max_iter
        self.tol = tol
        self.normalize = normalize
        self.memory_limit = memory_limit
        self.updatable = updatable
        self.dense_weight = dense_weight
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        self._new_proposer()._check_parameters()
        check_integer(self.shortlist, "shortlist", minimum=1)
        check_integer(self.hard_negatives, "hard_negatives", minimum=1)
        check_real(self.C, "C", minimum=0, open_minimum=True)
        check_real(self.prune, "prune", minimum=0)
        check_real(self.validation_fraction, "validation_fraction", minimum=0, maximum=0.5)
        if isinstance(self.refit, str):
            check_choice(self.refit, "refit", ("auto",))
        else:
            check_flag(self.refit, "refit")
        check_choice(self.unlisted, "unlisted", UNLISTED)
        if self.unlisted == "unknown" and self.validation_fraction == 0:
            raise InvalidInputError("unlisted='unknown' needs validation rows; set validation_fraction above 0.")

    def _reads_blocks(self) -> bool:
        return True

    def _fitted_arrays(self) -> tuple[str, ...]:
        arrays = super()._fitted_arrays()
        return (*arrays, *_DENSE_ARRAYS) if self.n_dense_features_in_ else arrays

    def _recognised(self, X: Features) -> Features:
        # Of arrays too, and dense columns alone: their rows have no words to look up.
        return X if self.updatable else FeatureBlocks.recognised(X)

    def _iterations(self) -> int:
        return self.max_iter + 1

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        X: Any,
        Y: Any,
        observed: Any = None,
        *,
        label_features: Any = None,
        sample_weight: Any = None,
        callback: Callback | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Any:
        """Learn from features and labels, and from what labels are called.

        Parameters
        ----------
        label_features : CSR, array or FeatureBlocks (L, d), optional
            The features of each label's name, in the space of X: which are stored, or not 0, matters, not their values.
            A row that has the features of a label's name is evidence for the label. Where X has a dense block, names
            may have one: how near the row is to the name, by that block, is an opinion too. Zeros there are no name.

        Notes
        -----
        The other parameters are those of every model's :meth:`~tagwise.base.MultiLabelModel.fit`. ``callback`` hears of
        the fit whose result is kept; with ``refit``, the cascades that teach the fusion before it cannot be stopped by
        it.
        """
        self._take_names(label_features, observed)
        try:
            return super().fit(X, Y, observed, sample_weight=sample_weight, callback=callback, checkpoint=checkpoint)
        finally:
            del self._label_features

    def _take_names(self, label_features: Any, observed: Any) -> None:
        """Check what ``fit`` was given beside X and Y."""
        if observed is not None and self.unlisted == "unknown":
            raise InvalidInputError(
                "observed says which pairs are known, unlisted='unknown' that only those of Y are; give one of them."
            )
        self._label_features = None
        if label_features is not None:
            self._label_features = check_features(label_features, name="label_features", blocks=True)

    def _warm_start_arrays(self) -> dict[str, np.ndarray]:
        return {} if self._label_features is None else {"label_features": self._label_features}

    def _fit(self, X: Features, Y: sp.csr_matrix, observed: sp.csr_matrix | None, progress: FitProgress) -> None:
        threads = thread_count(self.n_jobs)
        self._fit_rows(
            LocalRows(
                X if isinstance(X, FeatureBlocks) else sp.csr_matrix(X),
                Y,
                observed,
                self._row_weight,
                self.normalize,
                threads,
                self.dense_weight,
            ),
            X.dtype,
            progress,
        )

    def _fit_rows(self, rows: CascadeRows, dtype: np.dtype, progress: FitProgress) -> None:
        """Fit to rows that are wherever they are."""
        expected = (self.n_labels_, self.n_features_in_)
        if self._label_features is not None and self._label_features.shape != expected:
            raise InvalidInputError(
                f"label_features must be {shape_text(expected)}, a row per label in the space of X; found "
                f"{shape_text(self._label_features.shape)}."
            )
        if (
            isinstance(self._label_features, FeatureBlocks)
            and self._label_features.n_dense != self.n_dense_features_in_
        ):
            raise InvalidInputError(
                f"label_features has {self._label_features.n_dense} dense features, and X {self.n_dense_features_in_}; "
                "names and rows must be embedded alike."
            )
        folds, refit = self._validation_folds(rows)
        if self.unlisted == "unknown" and not folds:
            warn(
                f"unlisted='unknown' needs validation rows, and of {rows.n_rows} rows none can be set aside: they are "
                "too few, or each has a label that no other row has. Unlisted labels are taken for off.",
                TagwiseWarning,
            )
        if folds and not refit:
            (validation,) = folds
            self._fit_opinions(rows.without(validation), dtype, progress)
            self._take_fusion(self._prior())
            self._build_prediction_cache()
            fusion = self._learn_fusion([self._lesson(rows.of(validation))], rows.positives)
            if self.refit == "auto" and not progress.stopped:
                self._learn_more_rows(rows, dtype, validation, progress)
        else:
            learnt = self._fusion_of_folds(rows, dtype, folds, progress)
            self._fit_opinions(rows, dtype, progress)
            fusion = self._prior() if learnt is None else learnt
        self._take_fusion(fusion)

    def _validation_folds(self, rows: CascadeRows) -> tuple[list[np.ndarray], bool]:
        return choose_validation_rows(
            rows.positives,
            rows.known_per_row(),
            fraction=self.validation_fraction,
            refit=self.refit,
            random_state=self.random_state,
        )

    def _prior(self) -> Fusion:
        return Fusion.prior(**self._opinions_beside())

    def _opinions_beside(self) -> dict[str, bool]:
        """Which opinions there are beside those that every cascade has."""
        dense, name_meanings = self.n_dense_features_in_ > 0, self.name_meanings_.shape[1] > 0
        return {"names": self.name_weights_.nnz > 0, "dense": dense, "name_meanings": name_meanings}

    @property
    def _weighs_names(self) -> bool:
        """Whether the fusion has coefficients for names; it keeps them when the last label with a name has gone."""
        beside = self._opinions_beside()
        return len(self.fusion_own_) == n_terms(5 + beside["dense"] + beside["name_meanings"])

    def _take_fusion(self, fusion: Fusion) -> None:
        self.fusion_own_, self.fusion_context_ = fusion.own, fusion.context
        self.fusion_level_, self.fusion_unseen_ = fusion.level, fusion.unseen

    def _fit_opinions(self, rows: CascadeRows, dtype: np.dtype, progress: FitProgress) -> None:
        """All that has an opinion, from these rows."""
        # 1. Propose.
        self.proposer_ = self._fit_proposer(rows, progress)

        # 2. Rank: a support vector machine per label on the shortlists' mistakes.
        rankers = self._fit_rankers(rows, dtype, progress)
        self.ranker_weights_, self.ranker_intercept_ = sp.csr_matrix(rankers.weights.T), rankers.intercept
        self.ranker_dense_weights_, self.has_ranker_ = rankers.dense, rankers.trained
        some = rows.head(_SAMPLE_ROWS)
        shortlists, _ = self.proposer_.predict_topk(some, min(self.shortlist, self.n_labels_))
        self.rankers_by_feature_ = self._faster_by_feature(weights_of(some)[0], shortlists)

        self._describe_labels(rows, dtype)

    def _describe_labels(self, rows: CascadeRows, dtype: np.dtype) -> None:
        """What labels look like, which occur together, and what they are called."""
        self.prototypes_ = rows.prototypes()
        self.dense_mean_, self.dense_prototypes_ = rows.dense_prototypes()
        self.label_frequency_ = np.bincount(rows.positives.indices, minlength=self.n_labels_)
        self.cooccurrence_ = rows.cooccurrence()
        self.name_weights_ = sp.csr_matrix((self.n_labels_, self.n_features_in_), dtype=dtype)
        self.name_rows_ = np.zeros(self.n_labels_, dtype=np.int64)
        self.name_meanings_ = np.zeros((self.n_labels_, 0), dtype=dtype)
        if self._label_features is not None:
            words = self._label_features
            if isinstance(words, FeatureBlocks):
                words, embeddings = weights_of(words)
                self.name_meanings_ = name_directions(embeddings).astype(dtype)
            names = name_weights(sp.csr_matrix(words), rows.feature_counts(), rows.n_rows)
            self.name_weights_ = names.astype(dtype)
            self.name_rows_ = rows.rows_with_name(self.name_weights_)
        self.n_rows_, self.product_ = rows.n_rows, None

    def _learn_more_rows(self, rows: CascadeRows, dtype: np.dtype, added: np.ndarray, progress: FitProgress) -> None:
        """Learn from all rows: proposer and rankers for labels that ``added`` rows have much of, if they are many.

        What labels look like and which occur together is learnt anew for all labels. Those that are learnt again are a
        problem of their own, with as many hard negatives per row as is their share of all labels. Most are rare, and
        get some more negatives by this than among all labels.
        """
        labels = labels_to_learn_again(rows.positives, added)
        if len(labels):
            progress.note(f"{len(labels):,} labels again, with the validation rows")
            proposer = rows.relearnt(self.proposer_, labels)
            rankers = rows.learn_rankers(proposer, self._options_for(len(labels)), labels)
            self.proposer_.sparse_weights_ = with_columns(
                self.proposer_.sparse_weights_, labels, proposer.sparse_weights_
            )
            self.proposer_._build_prediction_cache()
            self._take_rankers(rankers, labels)
        self._describe_labels(rows, dtype)

    def _fusion_of_folds(
        self, rows: CascadeRows, dtype: np.dtype, folds: list[np.ndarray], progress: FitProgress
    ) -> Fusion | None:
        """What cascades that were fitted without a part of the rows teach about it; None without a part."""
        fusion = progress.resume(Fusion, "fusion")
        if fusion is not None or not folds:
            return fusion
        lessons = []
        for number, validation in enumerate(folds, start=1):
            progress.note(f"a cascade without {len(validation):,} validation rows, {number} of {len(folds)}")
            with warnings.catch_warnings():  # the fit with all rows says it
                warnings.simplefilter("ignore", TagwiseWarning)
                model = self._fitted_alone(rows.without(validation), dtype)
            lessons.append(model._lesson(rows.of(validation)))
            del model  # what it learnt is not needed beside what it taught
        fusion = self._learn_fusion(lessons, rows.positives)
        progress.finish_stage("fusion", fusion)
        return fusion

    def _fitted_alone(self, rows: CascadeRows, dtype: np.dtype) -> Cascade:
        """The same cascade, fitted to other rows without a fusion of its own."""
        alone = {"validation_fraction": 0.0, "unlisted": "off", "updatable": False, "verbose": 0}
        model = Cascade(**self.get_params(deep=False) | alone)
        model.n_features_in_, model._label_features = self.n_features_in_, self._label_features
        model.n_dense_features_in_ = self.n_dense_features_in_
        model._take_label_count(self.n_labels_)
        with FitProgress("Cascade", model._iterations()) as progress:
            model._fit_rows(rows, dtype, progress)
        model._complete_fit(progress)
        return model

    def _lesson(self, unseen: LocalRows) -> Lesson:
        """What this cascade says about rows that it has not seen, beside what is known of them."""
        opinions = self._opinions_on(unseen.X)
        known = opinions.labels >= 0
        if unseen.observed is not None:
            known &= contains_pairs(unseen.observed, opinions.labels)
        on = contains_pairs(unseen.Y, opinions.labels) & known
        weight = np.ones(len(on)) if unseen.weight is None else unseen.weight
        return Lesson(opinions, self._facts, on, known, weight)

    def _learn_fusion(self, lessons: list[Lesson], listed: sp.csr_matrix) -> Fusion:
        lessons = of_labels_in_use(lessons, np.bincount(listed.indices, minlength=self.n_labels_))
        if self.unlisted == "unknown":
            lessons = counting_missing_labels(lessons, inverse_propensity(listed, listed_only=True))
        return learn_fusion(lessons)

    def _new_proposer(self) -> REML:
        """An unfitted proposer with the parameters of this model."""
        return REML(sparse_part="support", **{name: getattr(self, name) for name in _PROPOSER_PARAMETERS})

    def _fit_proposer(self, rows: CascadeRows, progress: FitProgress) -> REML:
        """The checkpoint's proposer, or a new one whose rounds go to the history and checkpoint of this fit."""
        proposer = self._new_proposer()
        fitted = progress.resume(FittedProposer, "proposer", model=proposer)
        if fitted is not None:
            return fitted.model
        rows.fit_proposer(proposer, progress)
        if not progress.stopped:
            progress.finish_stage("proposer", FittedProposer(proposer))
        return proposer

    def _fit_rankers(self, rows: CascadeRows, dtype: np.dtype, progress: FitProgress) -> Rankers:
        """The checkpoint's rankers, none for a fit that was stopped, or new ones."""
        n_labels, n_features, n_dense = self.n_labels_, self.n_features_in_, self.n_dense_features_in_
        rankers = progress.resume(Rankers, "rankers", L=n_labels, d=n_features, q=n_dense, dtype=dtype)
        if rankers is not None:
            return rankers
        if progress.stopped:
            return Rankers.none(n_labels, n_features, n_dense, dtype)
        progress.note("shortlists of the training rows")
        rankers = rows.learn_rankers(self.proposer_, self._ranker_options(), note=progress.note)
        progress.step(rankers.objective, stage="rankers")
        progress.finish_stage("rankers", rankers)
        return rankers

    def _ranker_options(self) -> RankerOptions:
        seed = int(random_generator(self.random_state).integers(2**31))
        return RankerOptions(self.C, self.prune, seed, self.hard_negatives)

    def _faster_by_feature(self, X: sp.csr_matrix, labels: np.ndarray) -> bool:
        """Which way of summing margins takes fewer steps on these rows (n×d) and their shortlists (n×M)."""
        weights_of_label = np.bincount(self.ranker_weights_.indices, minlength=self.n_labels_)
        by_label = weights_of_label[labels[labels >= 0]].sum()
        return steps_by_feature(X, self.ranker_weights_, labels.shape[1]) <= _EASE_BY_FEATURE * by_label

    # ------------------------------------------------------------------ predict

    def _build_prediction_cache(self) -> None:
        W = self.ranker_weights_
        self._rankers = Lookup.of(W) if self.rankers_by_feature_ else sp.csr_matrix(W.T)
        self._no_shift = np.zeros_like(self.ranker_intercept_)
        self._facts = LabelFacts.of(
            self.has_ranker_,
            self.label_frequency_,
            self.n_rows_,
            self.cooccurrence_,
            self.name_rows_,
            self.name_weights_,
        )
        self._unseen = None
        if self._weighs_names or self.name_meanings_.shape[1]:
            self._unseen = UnseenLabels.of(self.name_weights_, self.label_frequency_, self.name_meanings_)
        learnt = Fusion(self.fusion_own_, self.fusion_context_, self.fusion_level_, self.fusion_unseen_)
        self._fusion = learnt if self.product_ is None else Product.from_values(self.product_)

    def _answers_without_blas(self, X: Features) -> bool:
        return self.proposer_._answers_without_blas(X)

    def _opinions(self, features: sp.csr_matrix | FeatureBlocks, labels: np.ndarray, proposed: np.ndarray) -> Opinions:
        """On proposed labels (n, N) of rows as the proposer reads them, and on unseen labels that the rows name."""
        finite_scores(proposed)  # then no label is −1
        rows, dense = weights_of(features)
        width, threads = min(self.shortlist, labels.shape[1]), self._threads_for(rows)
        names = np.zeros((len(labels), 0), dtype=rows.dtype)
        directions = self._directions(dense, threads) if dense.shape[1] else dense
        if self._unseen is not None and self.name_meanings_.shape[1]:
            labels, proposed, width = self._unseen.propose_by_meaning(
                directions, labels, proposed, width, n_threads=threads
            )
        if self._unseen is not None and self._weighs_names:
            there = (rows.data != 0).astype(rows.dtype)
            present = sp.csr_matrix((there, rows.indices, rows.indptr), shape=rows.shape)
            labels, proposed, width = self._unseen.propose(present, labels, proposed, width, n_threads=threads)
            shares = shortlist_margins(
                present, labels[:, :width], self.name_weights_, self._no_shift, n_threads=threads
            )
            names = shares**2
        shortlist, b = labels[:, :width], self.ranker_intercept_
        margins = shortlist_margins(rows, shortlist, self._rankers, b, n_threads=threads)
        unit = rows if self.normalize else sp.csr_matrix(unit_rows(rows, n_threads=threads))
        cosines = shortlist_margins(unit, shortlist, self.prototypes_, self._no_shift, n_threads=threads)
        meanings = name_meanings = np.zeros((0, 0), dtype=rows.dtype)
        if dense.shape[1]:
            margins += listed_products(dense, shortlist, self.ranker_dense_weights_, n_threads=threads)
            meanings = listed_products(directions, shortlist, self.dense_prototypes_, n_threads=threads)
        if self.name_meanings_.shape[1]:
            name_meanings = listed_products(directions, shortlist, self.name_meanings_, n_threads=threads)
        numbers = finite_scores(margins), finite_scores(cosines), finite_scores(names)
        return Opinions(labels, proposed, *numbers, meanings, name_meanings)

    def _directions(self, dense: np.ndarray, n_threads: int) -> np.ndarray:
        """The direction of dense rows (n, q) from their mean at fit."""
        # A zero row stays one: it is no text, and has no direction from the mean.
        there = (dense != 0).max(axis=1)[:, None]
        return np.asarray(
            unit_rows(unit_rows(dense, n_threads=n_threads) - there * self.dense_mean_, n_threads=n_threads)
        )

    def _opinions_on(self, X: Features) -> Opinions:
        """On the shortlists of rows."""
        return self._opinions(*self._proposals(X, min(self.shortlist, self.n_labels_)))

    def _score_rows(self, X: Features) -> np.ndarray:
        proposed = self.proposer_._score_rows(X)
        rows, _ = self.proposer_._rows_and_embedding(X)
        labels, best = top_k_of_scores(proposed, min(self.shortlist, self.n_labels_))
        scores = behind_shortlist(proposed)
        opinions = self._opinions(rows, labels, best)
        listed = opinions.labels >= 0
        fused = self._fusion.scores(opinions, self._facts)
        scores[np.nonzero(listed)[0], opinions.labels[listed]] = fused[listed]
        return scores

    def _top_k(self, X: Features, k: int, exclude: sp.csr_matrix | None) -> tuple[np.ndarray, np.ndarray]:
        excluded = 0 if exclude is None else int(np.diff(exclude.indptr).max(initial=0))
        # The shortlist is the same whatever is excluded, so that no label's score depends on it.
        width = min(max(self.shortlist, k + excluded), self.n_labels_)
        # All stages for a block of rows, whose candidates stay in the cache, before the next block.
        blocks = even_chunks(X.shape[0], max(1, _BLOCK_CANDIDATES // width))
        if len(blocks) == 1:
            return self._top_k_of_block(X, k, width, exclude)
        parts = run_chunks(
            lambda start, stop: self._top_k_of_block(
                X[start:stop], k, width, None if exclude is None else exclude[start:stop]
            ),
            blocks,
            thread_count(self.n_jobs),
        )
        labels, scores = (np.concatenate(part) for part in zip(*parts))
        return labels, scores

    def _top_k_of_block(
        self, X: Features, k: int, width: int, exclude: sp.csr_matrix | None
    ) -> tuple[np.ndarray, np.ndarray]:
        opinions = self._opinions(*self._proposals(X, width))
        threads = self._threads_for(X)
        hidden = None if exclude is None else contains_pairs(exclude, opinions.labels, n_threads=threads)
        return self._fusion.best(opinions, self._facts, k, hidden, n_threads=threads)

    def _proposals(self, X: Features, width: int) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
        """Rows as the proposer reads them, and the labels and scores (n, width) that it proposes."""
        rows, embedded = self.proposer_._rows_and_embedding(X)
        # The order within the shortlist does not matter.
        best_first = width > self.shortlist
        return rows, *self.proposer_._best_of_rows(rows, embedded, width, best_first=best_first)

    @property
    def probabilistic(self) -> bool:
        """Whether a score is a calibrated probability minus ½: not in folders of version 0.1.0."""
        return getattr(self, "product_", None) is None

    def _purpose_facts(self) -> tuple[int, LabelCounts]:
        if self.product_ is not None:
            raise InvalidInputError(
                "optimise needs to know how often labels occur, which folders of version 0.1.0 do not say; fit the "
                "model again."
            )
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

    def _check_restored(self) -> None:
        if not self.n_dense_features_in_:
            dtype, n_labels = self.ranker_intercept_.dtype, self.n_labels_
            self.ranker_dense_weights_, self.dense_mean_ = np.zeros((n_labels, 0), dtype), np.zeros(0, dtype)
            self.dense_prototypes_ = self.name_meanings_ = np.zeros((n_labels, 0), dtype)
        W, b, has, C = self.ranker_weights_, self.ranker_intercept_, self.has_ranker_, self.prototypes_
        names, frequency, pairs = self.name_weights_, self.label_frequency_, self.cooccurrence_
        own, context, level, unseen = self.fusion_own_, self.fusion_context_, self.fusion_level_, self.fusion_unseen_
        if self.updatable:
            self._check_kept()
        require_sparse(ranker_weights_=W, prototypes_=C, name_weights_=names, cooccurrence_=pairs)
        require_dense(
            1,
            dense_mean_=self.dense_mean_,
            ranker_intercept_=b,
            has_ranker_=has,
            label_frequency_=frequency,
            name_rows_=self.name_rows_,
            fusion_own_=own,
            fusion_context_=context,
            fusion_level_=level,
            fusion_unseen_=unseen,
        )
        require_dense(2, **{name: getattr(self, name) for name in _DENSE_ARRAYS if name != "dense_mean_"})
        proposer, n_features, n_labels = self.proposer_, self.n_features_in_, self.n_labels_
        n_dense = self.n_dense_features_in_
        if (proposer.n_dense_features_in_, proposer.dense_weight) != (n_dense, self.dense_weight):
            raise ValueError(f"a proposer of {proposer.n_dense_features_in_} dense features, where there are {n_dense}")
        if (proposer.n_features_in_, proposer.n_labels_, proposer.normalize) != (n_features, n_labels, self.normalize):
            raise ValueError(f"a proposer of {proposer.n_features_in_} features and {proposer.n_labels_} labels")
        shapes = {
            "ranker_weights_": (n_features, n_labels),
            "ranker_intercept_": (n_labels,),
            "has_ranker_": (n_labels,),
            "prototypes_": (n_labels, n_features),
            "name_weights_": (n_labels, n_features),
            "ranker_dense_weights_": (n_labels, n_dense),
            "dense_mean_": (n_dense,),
            "dense_prototypes_": (n_labels, n_dense),
            "name_meanings_": (n_labels, n_dense if self.name_meanings_.size else 0),
            "label_frequency_": (n_labels,),
            "name_rows_": (n_labels,),
            "cooccurrence_": (n_labels, n_labels),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} of shape {getattr(self, name).shape} where {shape} is expected")
        floats = {"ranker_weights_": W, "ranker_intercept_": b, "prototypes_": C, "name_weights_": names}
        floats |= {name: getattr(self, name) for name in _DENSE_ARRAYS}
        require_finite_floats(feature_factors_=proposer.feature_factors_, **floats)
        require_finite_floats(fusion_own_=own, fusion_context_=context, fusion_level_=level, fusion_unseen_=unseen)
        check_flag(self.rankers_by_feature_, "rankers_by_feature_")
        if has.dtype != np.bool_:
            raise ValueError(f"has_ranker_ must hold truth values; found {has.dtype}")
        counts = frequency, self.name_rows_, pairs
        if not (all(part.dtype.kind == "i" for part in counts) and pairs.has_canonical_format):
            raise ValueError(
                "label_frequency_, name_rows_ and cooccurrence_ must be whole numbers, each pair of labels once"
            )
        check_integer(self.n_rows_, "n_rows_", minimum=1)
        LabelFacts.of(has, frequency, self.n_rows_, pairs, self.name_rows_).check()
        if self.product_ is None:
            # Names that the fusion weighs may be gone; labels do not get any that it does not weigh.
            beside = self._opinions_beside()
            Fusion(own, context, level, unseen).check(**beside | {"names": beside["names"] or None})
        else:
            Product.from_values(self.product_)
