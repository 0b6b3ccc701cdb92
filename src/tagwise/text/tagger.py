"""Tagger: from raw texts and lists of tags to a model, and from a text back to tags."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp
from sklearn.base import BaseEstimator

from tagwise.base import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError, NotFittedError
from tagwise.inspection.calibration import Calibration
from tagwise.inspection.explanations import heaviest_features
from tagwise.inspection.reliability import ReliabilityBins
from tagwise.inspection.thresholds import TARGETS
from tagwise.models.choice import ModelChoice, model_info
from tagwise.parallel import thread_count
from tagwise.progress import Callback
from tagwise.randomness import check_random_state
from tagwise.registry import info_of
from tagwise.text.answers import Request
from tagwise.text.calibrating import calibration_on, reliability_on
from tagwise.text.evaluation import Evaluation, decided_labels, evaluate
from tagwise.text.held_out import HeldOutRows
from tagwise.text.model_for import model_for
from tagwise.text.suggestion import Suggestion
from tagwise.text.tag_lists import check_tags, tag_matrix
from tagwise.text.tfidf import TextFeatures, check_texts
from tagwise.text.training import TrainingRows
from tagwise.validation import check_choice

if TYPE_CHECKING:
    from tagwise.persistence import Checkpoint

__all__ = ["Tagger"]

# Texts that are read, scored and answered at a time: enough to share the work of a block among threads.
_BLOCK_TEXTS = 512


class Tagger(BaseEstimator):
    """Learns from texts and their tags, and suggests tags for new texts.

    Words become TF-IDF features in rows of unit length (:class:`tagwise.text.TextFeatures`), tags become labels, and a
    model of tagwise learns to get from one to the other.

    Parameters
    ----------
    model : str or unfitted model, default "auto"
        ``"auto"`` picks by the size of the problem and by whether tags are unknown
        (:func:`tagwise.models.choice.choose_model`); ``choice_`` says which and why. Or a name, such as ``"leml"``,
        ``"reml"``, ``"binary-relevance"`` or the name of any class of :mod:`tagwise.baselines` in any case, for that
        model with its own defaults. Or an estimator, such as ``LEML(rank=200)``, of which a copy is fitted.
    min_df, max_features, characters
        Of the features: words in fewer texts are left out; keep only so many; count character n-grams as well.
    n_jobs : int or None
        Threads, as in joblib; handed to models that are not given as an estimator. The result is the same for every
        number.
    random_state : int, Generator, RandomState or None
        Seed, handed on in the same way.
    verbose : int
        1 shows progress on standard error; handed on in the same way.

    Attributes
    ----------
    tags_ : list of str
        The tags that can be suggested, sorted: all that occur in training.
    features_ : TextFeatures
    model_ : fitted model
        Its labels are the tags in the order of ``tags_``.
    choice_ : ModelChoice
        ``name``, ``parameters`` and ``reason`` of the model.
    calibration_ : Calibration or None
        What :meth:`calibrate` learnt; None before it and after every fit.
    training_ : dict
        Figures of the training rows: ``rows``, ``features``, ``words``, ``tags``, ``assignments``, ``known_pairs``
        (None where all tags are known), ``known_without_rows``, ``rows_without_words``, ``rows_without_tags``,
        ``tag_rows`` (array: how many rows have each tag) and ``seconds``.

    Notes
    -----
    A text without any word that training saw is an empty row: its scores are the intercepts of the model, so that it is
    suggested the most frequent tags, like any other such text. ``features(texts)`` shows which texts those are.

    Examples
    --------
    >>> from tagwise import Tagger
    >>> texts = ["a cat and a dog", "a dog barks", "red wine and cheese", "white wine"] * 5
    >>> tags = [["pets"], ["pets"], ["food", "drinks"], ["drinks"]] * 5
    >>> tagger = Tagger("binary-relevance").fit(texts, tags)
    >>> [[suggestion.tag for suggestion in row] for row in tagger.suggest(["my dog", "some wine"], top=1)]
    [['pets'], ['drinks']]
    """

    def __init__(
        self,
        model: Any = "auto",
        *,
        min_df: int = 2,
        max_features: int | None = None,
        characters: bool = False,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.min_df = min_df
        self.max_features = max_features
        self.characters = characters
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        texts: Iterable[str],
        tags: Any,
        known: Any = None,
        *,
        callback: Callback | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Tagger:
        """Learn from texts and the tags that each has.

        Parameters
        ----------
        texts : list of str
        tags : list of lists of str
            The tags of each text; an empty list where it has none. A tag that is listed twice counts once.
        known : list of lists of str (or None), optional
            Which tags were looked at for each text: whether it has any of the others is unknown, and never influences
            the fit. The tags of a text always count as looked at. None in the place of a list means that all tags were
            looked at for that text; ``known=None`` that they were for all texts.
        callback : callable(iteration, info), optional
            Called after every iteration of the model's fit; returning True stops it.
        checkpoint : Checkpoint, optional
            Where the model's fit keeps its state; called again with the same texts and tags it goes on from there.

        Returns
        -------
        self

        Warns
        -----
        TagwiseWarning
            ``known`` names tags that no text has: they cannot be learnt.

        Notes
        -----
        Memory is that of the texts, their features and the model. A fit that fails leaves the tagger as it was.
        """
        start = time.perf_counter()
        self._check_parameters()
        rows = TrainingRows.of(texts, tags, known)
        features = TextFeatures(min_df=self.min_df, max_features=self.max_features, characters=self.characters)
        X = features.fit_transform(rows.texts)
        shared = {"n_jobs": self.n_jobs, "random_state": self.random_state, "verbose": self.verbose}
        choice, model = model_for(self.model, X.shape, rows, shared)
        if rows.observed is not None and not info_of(type(model)).learns_from_mask:
            raise InvalidInputError(
                f"known: {type(model).__name__} has no notion of unknown tags. Leave known out, and all tags that a "
                'text does not list count as wrong for it; or use model="auto".'
            )
        model.fit(X, rows.Y, rows.observed, callback=callback, checkpoint=checkpoint)
        figures = {**rows.figures(X, features.n_words_), "seconds": time.perf_counter() - start}
        return self._set_fitted(rows.tags, features, model, choice, figures, None)

    def _set_fitted(
        self,
        tags: list[str],
        features: TextFeatures,
        model: MultiLabelModel,
        choice: ModelChoice,
        training: dict[str, Any],
        calibration: Calibration | None,
    ) -> Tagger:
        model.label_names_ = list(tags)
        self.tags_, self.features_, self.model_, self.choice_ = tags, features, model, choice
        self._position = {name: column for column, name in enumerate(tags)}
        self.training_, self.calibration_ = training, calibration
        return self

    def _check_parameters(self) -> None:
        thread_count(self.n_jobs)
        check_random_state(self.random_state)
        if isinstance(self.model, str):
            if self.model.lower() != "auto":
                model_info(self.model)
        elif not isinstance(self.model, MultiLabelModel):
            raise InvalidTypeError(
                f'model must be "auto", the name of a model or a model of tagwise; found {self.model!r:.100}.'
            )

    # ------------------------------------------------------------------ texts and tags as matrices

    def features(self, texts: Iterable[str]) -> sp.csr_matrix:
        """The features of texts (n×d, float32 CSR); a row without entries is a text without a known word."""
        self._require_fitted()
        return self.features_.transform(texts)

    def label_matrix(self, tags: Any) -> tuple[sp.csr_matrix, Counter[str]]:
        """Lists of tags as labels (n×L, in the order of ``tags_``), and the tags that training never saw.

        The second part counts in how many rows each unseen tag is: nothing is dropped in silence.
        """
        self._require_fitted()
        return tag_matrix(check_tags(tags), self._position)

    # ------------------------------------------------------------------ suggest

    def suggest(
        self,
        texts: Iterable[str],
        top: int = 5,
        threshold: float | str | None = None,
        explain: int = 0,
        *,
        min_probability: float | None = None,
    ) -> list[list[Suggestion]]:
        """The best tags of each text.

        Parameters
        ----------
        texts : list of str
        top : int
            At most so many a text.
        threshold : float, "calibrated" or None
            Only tags that score at least this; 0 is the model's own border. ``"calibrated"``: only tags that reach
            their own thresholds, which :meth:`calibrate` found. None: all.
        explain : int
            How many words to give for every suggestion; 0 for none. Exact, for models with linear scores.
        min_probability : float, optional
            Only tags of at least this probability; needs :meth:`calibrate`.

        Returns
        -------
        list of lists of Suggestion
            Best first; equal scores in the order of the names. A list is empty where nothing passes.

        Raises
        ------
        ExplanationError
            ``explain`` is above 0 and the model has no exact explanations.
        """
        return list(self.suggest_each(check_texts(texts), top, threshold, explain, min_probability=min_probability))

    def suggest_each(
        self,
        texts: Iterable[str],
        top: int = 5,
        threshold: float | str | None = None,
        explain: int = 0,
        *,
        min_probability: float | None = None,
    ) -> Iterator[list[Suggestion]]:
        """As :meth:`suggest`, one text after the other from any iterable, in memory for a few hundred texts."""
        self._require_fitted()
        request = Request.of(top, threshold, min_probability, explain, self.calibration_)
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            check_texts(texts)
        return self._answers(iter(texts), request)

    def _answers(self, texts: Iterator[str], request: Request) -> Iterator[list[Suggestion]]:
        read = 0
        while block := check_texts(islice(texts, _BLOCK_TEXTS), first=read):
            read += len(block)
            X = self.features_.transform(block)
            yield from request.answer(self.model_, X, self.tags_, self.features_.feature_names, self.calibration_)

    def predict_tags(self, texts: Iterable[str]) -> list[list[str]]:
        """The tags that the tagger decides for, best first: as many as it finds right, maybe none.

        Those that reach their thresholds where the tagger is calibrated (among the best ``calibration_.places`` of the
        text), else those that score at least 0.
        """
        X = self.features(texts)
        decided = decided_labels(self.model_, self.calibration_, X) if X.shape[0] else []
        return [[self.tags_[label] for label in row] for row in decided]

    def words_of(self, tag: str, top: int = 10) -> list[tuple[str, float]]:
        """The words that speak for a tag most, with their weights, heaviest first."""
        self._require_fitted()
        if tag not in self._position:
            raise InvalidInputError(f"tag {tag!r:.60} is none of the {len(self.tags_):,} that this tagger has learnt.")
        features, weights = heaviest_features(self.model_, self._position[tag], top)
        return [(self.features_.feature_names[f], float(weight)) for f, weight in zip(features, weights)]

    @property
    def explained_score(self) -> str:
        """What the contributions of words and the intercept add up to, in words: "the score", for most models."""
        self._require_fitted()
        return self.model_._explained_score

    # ------------------------------------------------------------------ held-out rows

    def calibrate(self, texts: Iterable[str], tags: Any, known: Any = None, *, target: str = "micro") -> Tagger:
        """Learn thresholds and probabilities from rows that the tagger was not fitted on.

        Parameters
        ----------
        texts, tags, known
            As in :meth:`fit`. With rows of the training set, probabilities would be far too high.
        target : {"micro", "macro", "example"}
            The F1 that the thresholds are chosen for: over all pairs of text and tag, averaged over tags, or over
            texts.

        Returns
        -------
        self
            With ``calibration_``, which :meth:`save` keeps.

        Warns
        -----
        TagwiseWarning
            Some of the rows' tags were never seen in training; they take no part.
        """
        check_choice(target, "target", TARGETS)
        self._require_fitted()
        rows = HeldOutRows.of(self.features_, self._position, texts, tags, known)
        self.calibration_ = calibration_on(self.model_, rows, target)
        return self

    def evaluate(
        self, texts: Iterable[str], tags: Any, known: Any = None, *, ks: Sequence[int] = (1, 3, 5)
    ) -> Evaluation:
        """Measure suggestions and decisions against the tags that rows have.

        Parameters
        ----------
        texts, tags, known
            As in :meth:`fit`. With ``known``, only tags that were looked at take part.
        ks : sequence of int
            The places of the ranking metrics.
        """
        self._require_fitted()
        rows = HeldOutRows.of(self.features_, self._position, texts, tags, known)
        training = self.training_
        return evaluate(self.model_, self.calibration_, rows, ks, training["tag_rows"], training["rows"])

    def reliability(self, texts: Iterable[str], tags: Any, known: Any = None, *, n_bins: int = 10) -> ReliabilityBins:
        """How far the probabilities of a calibrated tagger hold on other rows, for a diagram."""
        self._require_fitted()
        if self.calibration_ is None:
            raise InvalidInputError("reliability needs a calibrated tagger; call calibrate with held-out rows first.")
        rows = HeldOutRows.of(self.features_, self._position, texts, tags, known)
        return reliability_on(self.model_, self.calibration_, rows, n_bins)

    # ------------------------------------------------------------------ save

    def save(self, path: str | PathLike[str], *, overwrite: bool = True) -> None:
        """Write the tagger as one folder that :func:`tagwise.load` reads: JSON and safetensors, no pickle.

        It holds features, model, tags, figures and calibration, under one manifest that is replaced in one step: at
        every moment, and after every crash, the folder holds the old tagger or the new one.

        Parameters
        ----------
        path : path
            The folder. A tagger or model that is there already is replaced; any other content is refused.
        overwrite : bool
            False refuses to replace.
        """
        from tagwise.persistence import write_model
        from tagwise.text.tagger_folder import tagger_record

        self._require_fitted()
        self._check_parameters()
        write_model(path, tagger_record(self), overwrite=overwrite)

    # ------------------------------------------------------------------ inside

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "tags_")

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("This Tagger is not fitted yet; call fit(texts, tags) or load a saved tagger first.")
