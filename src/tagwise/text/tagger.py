"""Tagger: from raw texts and lists of tags to a model, and from a text back to tags."""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice, pairwise
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone

from tagwise.base import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError, NotFittedError, TagwiseWarning, warn
from tagwise.inspection.calibration import DEFAULT_K, Calibration, fit_calibration, require_probabilities
from tagwise.inspection.explanations import heaviest_features
from tagwise.inspection.reliability import ReliabilityBins, reliability_bins
from tagwise.inspection.thresholds import TARGETS
from tagwise.inspection.validation_pairs import ValidationPairs, known_ranking
from tagwise.metrics.purposes import LabelCounts, needs_all_rows
from tagwise.models.choice import (
    ModelChoice,
    build_model,
    choose_model,
    model_info,
    parameters_for_unlisted,
)
from tagwise.parallel import thread_count
from tagwise.persistence import Checkpoint, ModelRecord, write_model
from tagwise.persistence.loading import model_from_parts, require_same, storable_parameters
from tagwise.persistence.tensors import Tensor
from tagwise.problems.labels import UNLISTED
from tagwise.progress import Callback, counted
from tagwise.randomness import check_random_state
from tagwise.registry import info_of
from tagwise.text.evaluation import Evaluation, decided_labels, evaluate
from tagwise.text.features import TextFeatures, check_texts
from tagwise.text.names import check_vocabulary, name_features, name_words
from tagwise.text.suggestion import Request, Suggestion
from tagwise.text.tags import TrainingRows, ValidationRows, check_tags, column_of, tag_matrix
from tagwise.validation import check_choice

__all__ = ["Tagger"]

# Texts that are read, scored and answered at a time: enough to share the work of a block among threads.
_BLOCK_TEXTS = 512

# What a folder of a tagger is made of, and the counts of ``training_``.
_PARTS = ("features", "calibration")
_COUNTS = (
    "rows",
    "features",
    "words",
    "tags",
    "assignments",
    "known_without_rows",
    "rows_without_words",
    "rows_without_tags",
    "named_tags",
)


class Tagger(BaseEstimator):
    """Learns from texts and their tags, and suggests tags for new texts.

    Words become TF-IDF features in rows of unit length (:class:`~tagwise.text.features.TextFeatures`), tags become
    labels, and a model learns to predict the labels from the features.

    Parameters
    ----------
    model : str or unfitted model, default "auto"
        ``"auto"`` takes Cascade (:func:`tagwise.models.choice.choose_model`); ``choice_`` says so and why. Or a name
        from :data:`tagwise.registry.MODEL_NAMES`, such as ``"leml"``, for that model with its defaults. Or an
        estimator, such as ``LEML(rank=200)``, of which a copy is fitted.
    unlisted : {"off", "unknown"}
        What it means that a text does not list a tag. ``"unknown"``: nothing, since nobody looked; tags are right where
        they are listed, and rare ones are missing most often. Cascade then estimates the probability that a tag is
        right rather than listed; other linear models weigh positives by their inverse propensity, unless an estimator
        with another ``positive_weight`` is given. Where somebody did look, give ``known`` to :meth:`fit` instead.
    vocabulary : list of tags, or dict from tags to names, optional
        Tags that can be suggested although no text has them, and what tags are called where they are ids. Cascade
        learns from names: those of the dictionary, and the other tags themselves when these are words, that is when at
        least half of them have a word of the training texts (:mod:`tagwise.text.names`). Tags that texts have and the
        vocabulary lacks are learnt too. Other models do not learn from names, and hardly suggest tags that no text
        has.
    min_df, max_features, characters
        As in :class:`tagwise.text.features.TextFeatures`.
    n_jobs : int or None
        Threads, as in joblib; the result is the same for every number. Passed to the model unless that is given as an
        estimator.
    random_state : int, Generator, RandomState or None
        Seed; passed on likewise.
    verbose : int
        1 shows progress on standard error; passed on likewise.

    Attributes
    ----------
    tags_ : list of str
        The tags that can be suggested, sorted: all that occur in training or in the vocabulary.
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
        ``named_tags`` (how many tags have names that were learnt from), ``tag_rows`` (array: how many rows have each
        tag) and ``seconds``.

    Notes
    -----
    A text without any word that training saw is an empty row: its scores are the intercepts of the model, so all such
    texts get the same suggestions, the most frequent tags. ``features(texts)`` shows which texts those are.

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
        unlisted: str = "off",
        vocabulary: Any = None,
        min_df: int = 2,
        max_features: int | None = None,
        characters: bool = False,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.unlisted = unlisted
        self.vocabulary = vocabulary
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
            For each text, the tags that were checked: whether it has any other tag is unknown and never influences the
            fit. The tags that a text has are always known. None in place of a list means that all tags, those of the
            vocabulary included, are known for that text; ``known=None``, that they are for all texts.
        callback : callable(iteration, info), optional
            Called after every iteration of the model's fit; returning True stops it.
        checkpoint : Checkpoint, optional
            Where the model's fit keeps its state; the same call with the same texts and tags resumes from there.

        Returns
        -------
        self

        Warns
        -----
        TagwiseWarning
            ``known`` names tags that neither texts nor the vocabulary have: they cannot be learnt. Or the vocabulary
            has tags that no text has, and the model can know nothing of them.

        Notes
        -----
        Memory is that of the texts, their features and the model. A fit that fails leaves the tagger as it was.
        """
        start = time.perf_counter()
        vocabulary = self._check_parameters()
        rows = TrainingRows.of(texts, tags, known, vocabulary)
        if known is not None and self.unlisted == "unknown":
            raise InvalidInputError(
                "known says which tags somebody looked at, and unlisted='unknown' that nobody did; give one of them."
            )
        features = TextFeatures(min_df=self.min_df, max_features=self.max_features, characters=self.characters)
        without_rows = np.bincount(rows.Y.indices, minlength=len(rows.tags)) == 0
        new = [vocabulary[rows.tags[place]] for place in np.flatnonzero(without_rows)]
        X = features.fit_transform(rows.texts, also=name_words(new))
        choice, model = self._choose(X, rows)
        if rows.observed is not None and not info_of(type(model)).learns_from_mask:
            raise InvalidInputError(
                f"known: {type(model).__name__} has no notion of unknown tags. Leave known out, and every tag that a "
                'text does not list counts as wrong for it; or use model="auto".'
            )
        names = self._names(model, rows.tags, without_rows, vocabulary, features)
        more: dict[str, Any] = {} if names is None else {"label_features": names}
        model.fit(X, rows.Y, rows.observed, callback=callback, checkpoint=checkpoint, **more)
        figures = {
            **rows.figures(X, features.n_words_),
            "named_tags": 0 if names is None else int(np.count_nonzero(np.diff(names.indptr))),
            "seconds": time.perf_counter() - start,
        }
        return self._set_fitted(rows.tags, features, model, choice, figures, None)

    def _names(
        self,
        model: MultiLabelModel,
        tags: list[str],
        without_rows: np.ndarray,
        vocabulary: dict[str, str],
        features: TextFeatures,
    ) -> sp.csr_matrix | None:
        """The features of the tags' names, where the model learns from names and they are words.

        Warns about tags of the vocabulary of which the model can know nothing.
        """
        names = None
        reason = f"{type(model).__name__} does not learn from names; the default model does"
        if info_of(type(model)).learns_from_names:
            names = name_features(tags, vocabulary, features, is_new=without_rows)
            reason = "their names have no words"
        unheard = without_rows.copy()
        if names is not None:
            unheard &= np.diff(names.indptr) == 0
        if unheard.any():
            example = tags[int(np.argmax(unheard))]
            warn(
                f"vocabulary has {counted(int(unheard.sum()), 'tag')} that no text has, such as {example!r:.60}, and "
                f"that will hardly be suggested: {reason}.",
                TagwiseWarning,
            )
        return names

    def _choose(self, X: sp.csr_matrix, rows: TrainingRows) -> tuple[ModelChoice, MultiLabelModel]:
        """Which model, why, and the unfitted model itself: given, named, or chosen by the size of the problem."""
        if not isinstance(self.model, str):
            name, model = info_of(type(self.model)).name, clone(self.model)
            usual = type(model)().get_params(deep=False)
            for parameter, value in parameters_for_unlisted(name, self.unlisted).items():
                if np.array_equal(getattr(model, parameter), usual[parameter]):
                    model.set_params(**{parameter: value})
            return ModelChoice(name, {}, f"{name} was given as an estimator."), model
        if self.model.lower() == "auto":
            masked = rows.observed is not None
            choice = choose_model(
                X.shape[0], X.shape[1], len(rows.tags), int(rows.Y.nnz), masked, unlisted=self.unlisted
            )
        else:
            name = model_info(self.model).name
            choice = ModelChoice(name, {}, f"{name} was asked for.")
        shared = {"n_jobs": self.n_jobs, "random_state": self.random_state, "verbose": self.verbose}
        return choice, build_model(choice.name, choice.parameters, unlisted=self.unlisted, **shared)

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
        # At once: an interrupt between two assignments would leave a tagger of two fits.
        self.__dict__.update(
            tags_=tags,
            features_=features,
            model_=model,
            choice_=choice,
            _position=column_of(tags),
            training_=training,
            calibration_=calibration,
        )
        return self

    def _check_parameters(self) -> dict[str, str]:
        """Returns the vocabulary: tag → name."""
        thread_count(self.n_jobs)
        check_random_state(self.random_state)
        check_choice(self.unlisted, "unlisted", UNLISTED)
        if isinstance(self.model, str):
            if self.model.lower() != "auto":
                model_info(self.model)
        elif not isinstance(self.model, MultiLabelModel):
            raise InvalidTypeError(
                f'model must be "auto", the name of a model or a model of tagwise; found {self.model!r:.100}.'
            )
        return check_vocabulary(self.vocabulary)

    # ------------------------------------------------------------------ texts and tags as matrices

    def features(self, texts: Iterable[str]) -> sp.csr_matrix:
        """The features of texts (n×d, float32 CSR); a row without entries is a text without a known word."""
        self._require_fitted()
        return self.features_.transform(texts)

    def label_matrix(self, tags: Any) -> tuple[sp.csr_matrix, Counter[str]]:
        """Lists of tags as labels (n×L, in the order of ``tags_``), and in how many rows each unseen tag is."""
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
        optimise: str | None = None,
    ) -> list[list[Suggestion]]:
        """The best tags of each text.

        Parameters
        ----------
        texts : list of str
        top : int
            At most this many per text.
        threshold : float, "calibrated" or None
            Only tags that score at least this; 0 is the model's own border. ``"calibrated"``: only tags that reach
            their own thresholds, which :meth:`calibrate` found. None: all.
        explain : int
            How many words to give per suggestion; 0 for none. Exact, for models with linear scores.
        min_probability : float, optional
            Only tags of at least this probability. A model whose scores are not probabilities needs :meth:`calibrate`.
        optimise : {"precision", "recall", "psp", "macro_f1"}, optional
            Choose the ``top`` tags that maximise the expectation of this metric, as
            :meth:`~tagwise.base.MultiLabelModel.predict_topk` does; thresholds then apply to these. A model whose
            scores are not probabilities needs :meth:`calibrate`; nothing is then known of which tags occur together,
            and ``"recall"`` takes the most probable ones. ``"macro_f1"`` chooses for all texts together.

        Returns
        -------
        list of lists of Suggestion
            Best first; equal scores in the order of the names. A list is empty where nothing passes.

        Raises
        ------
        ExplanationError
            ``explain`` is above 0 and the model has no exact explanations.
        """
        options: dict[str, Any] = {"min_probability": min_probability, "optimise": optimise}
        return list(self.suggest_each(check_texts(texts), top, threshold, explain, **options))

    def suggest_each(
        self,
        texts: Iterable[str],
        top: int = 5,
        threshold: float | str | None = None,
        explain: int = 0,
        *,
        min_probability: float | None = None,
        optimise: str | None = None,
    ) -> Iterator[list[Suggestion]]:
        """As :meth:`suggest`, but streaming: any iterable of texts, in memory for a few hundred of them.

        ``optimise="macro_f1"`` reads all of them before it answers the first.
        """
        self._require_fitted()
        request = Request.of(top, threshold, min_probability, explain, optimise, self.model_, self.calibration_)
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            check_texts(texts)
        return self._answers(iter(texts), request)

    def _answers(self, texts: Iterator[str], request: Request) -> Iterator[list[Suggestion]]:
        read, size = 0, None if needs_all_rows(request.optimise) else _BLOCK_TEXTS
        while block := check_texts(islice(texts, size), first=read):
            read += len(block)
            yield from self._answer(self.features_.transform(block), request)

    def suggest_features(
        self,
        X: sp.csr_matrix,
        top: int = 5,
        threshold: float | str | None = None,
        explain: int = 0,
        *,
        min_probability: float | None = None,
        optimise: str | None = None,
    ) -> list[list[Suggestion]]:
        """As :meth:`suggest`, for texts that :meth:`features` has made into features already."""
        self._require_fitted()
        return self._answer(
            X, Request.of(top, threshold, min_probability, explain, optimise, self.model_, self.calibration_)
        )

    def _answer(self, X: sp.csr_matrix, request: Request) -> list[list[Suggestion]]:
        counts = LabelCounts(self.training_["tag_rows"], self.training_["rows"])
        return request.answer(X, self.tags_, self.features_.feature_names, counts)

    def predict_tags(self, texts: Iterable[str]) -> list[list[str]]:
        """The tags that the tagger decides for, best first: as many as it finds right, maybe none.

        Where the tagger is calibrated, those that reach their thresholds (among the best ``calibration_.k`` of the
        text); else those that score at least 0.
        """
        X = self.features(texts)
        decided = decided_labels(self.model_, self.calibration_, X) if X.shape[0] else []
        return [[self.tags_[label] for label in row] for row in decided]

    def words_of(self, tag: str, top: int = 10) -> list[tuple[str, float]]:
        """The words that speak for a tag most, with their weights, heaviest first."""
        self._require_fitted()
        if tag not in self._position:
            raise InvalidInputError(f"tag {tag!r:.60} is not one of the {len(self.tags_):,} tags of this tagger.")
        features, weights = heaviest_features(self.model_, self._position[tag], top)
        return [(self.features_.feature_names[f], float(weight)) for f, weight in zip(features, weights)]

    @property
    def explained_score(self) -> str:
        """What the contributions of words and the intercept add up to, in words: "the score", for most models."""
        self._require_fitted()
        return self.model_.explained_score

    # ------------------------------------------------------------------ validation rows

    def calibrate(self, texts: Iterable[str], tags: Any, known: Any = None, *, target: str = "micro") -> Tagger:
        """Learn thresholds and probabilities from rows that the tagger was not fitted on.

        Where the scores of the model are probabilities already (Cascade), the rows correct them as far as they are off.

        Parameters
        ----------
        texts, tags, known
            As in :meth:`fit`. Training rows would make probabilities far too high.
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
            Some tags of these rows were never seen in training; they are ignored.
        """
        check_choice(target, "target", TARGETS)
        self._require_fitted()
        rows = self._validation_rows(texts, tags, known)
        if rows.unseen:
            warn(
                f"The calibration ignores {counted(len(rows.unseen), 'tag')} of the validation rows that training "
                f"never saw, such as {min(rows.unseen)!r}.",
                TagwiseWarning,
            )
        k = min(self.model_.n_labels_, max(DEFAULT_K, 2 * int(np.diff(rows.Y.indptr).max())))
        labels, scores = known_ranking(self.model_, rows.X, k, rows.observed)
        self.calibration_ = fit_calibration(
            labels, scores, rows.Y, observed=rows.observed, target=target, probabilistic=self.model_.probabilistic
        )
        return self

    def evaluate(
        self, texts: Iterable[str], tags: Any, known: Any = None, *, ks: Sequence[int] = (1, 3, 5)
    ) -> Evaluation:
        """Measure suggestions and decisions against the tags that rows have.

        Parameters
        ----------
        texts, tags, known
            As in :meth:`fit`. With ``known``, only known tags take part.
        ks : sequence of int
            The cut-offs k of the ranking metrics.
        """
        rows = self._validation_rows(texts, tags, known)
        return evaluate(self.model_, self.calibration_, rows, ks, self.training_["tag_rows"], self.training_["rows"])

    def reliability(self, texts: Iterable[str], tags: Any, known: Any = None, *, n_bins: int = 10) -> ReliabilityBins:
        """How far probabilities hold on rows that the tagger was neither fitted nor calibrated on, for a diagram."""
        self._require_fitted()
        maps = require_probabilities(self.model_, self.calibration_, "reliability")
        rows = self._validation_rows(texts, tags, known)
        k = min(DEFAULT_K, self.model_.n_labels_) if self.calibration_ is None else self.calibration_.k
        labels, scores = known_ranking(self.model_, rows.X, k, rows.observed)
        pairs = ValidationPairs.of(labels, scores, rows.Y, rows.observed)
        return reliability_bins(maps(pairs.labels, pairs.scores), pairs.on, n_bins)

    def _validation_rows(self, texts: Iterable[str], tags: Any, known: Any) -> ValidationRows:
        self._require_fitted()
        return ValidationRows.of(self.features_, self._position, texts, tags, known)

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
        write_model(path, self.to_parts(), overwrite=overwrite)

    def to_parts(self) -> ModelRecord:
        """What the folder of this tagger holds; ``docs/model-format.md`` describes it."""
        self._require_fitted()
        vocabulary = self._check_parameters()
        given = self.get_params(deep=False)
        # An estimator that was handed in is the inner model as it was before the fit; the folder has it already.
        name, own = given.pop("model"), given.pop("vocabulary")
        parameters = {"model": name if isinstance(name, str) else None, **storable_parameters(given)}
        # Two lists: the keys of a folder's objects cannot be any text.
        names = list(vocabulary.values()) if isinstance(own, Mapping) else None
        parameters["vocabulary"] = None if own is None else {"tags": list(vocabulary), "names": names}
        calibration, arrays = (None, {}) if self.calibration_ is None else self.calibration_.to_parts()
        tensors: dict[str, Tensor] = {f"features.{key}": array for key, array in self.features_.to_arrays().items()}
        tensors |= {f"calibration.{key}": array for key, array in arrays.items()}
        record = ModelRecord(
            class_name="Tagger",
            parameters=parameters,
            tensors=tensors,
            values={
                "choice": asdict(self.choice_),
                "training": self.training_,
                "calibration": calibration,
            },
            label_names=self.tags_,
        )
        return record.with_model("model", self.model_.to_parts())

    @classmethod
    def from_parts(cls, record: ModelRecord) -> Tagger:
        """The fitted tagger that :meth:`to_parts` describes.

        Raises
        ------
        ModelFormatError, KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, MemoryError
            The parts are not those of a tagger, or do not fit together.
        """
        inner, record = record.split_model("model")
        values, parts = record.values, _split_parts(record.tensors)
        require_same("parameters", set(record.parameters), set(inspect.signature(cls.__init__).parameters) - {"self"})
        require_same("values", set(values), {"choice", "training", "calibration"})
        tags = _checked_tags(record.label_names)
        features = TextFeatures.from_arrays(
            {name: record.parameters[name] for name in ("min_df", "max_features", "characters")}, parts["features"]
        )
        model = model_from_parts(inner)
        if (model.n_features_in_, model.n_labels_) != (len(features.feature_names), len(tags)):
            raise ValueError(
                f"a model of {model.n_features_in_} features and {model.n_labels_} labels for "
                f"{len(features.feature_names)} terms and {len(tags)} tags"
            )
        calibration = None
        if values["calibration"] is not None:
            calibration = Calibration.from_parts(values["calibration"], parts["calibration"], len(tags))
        elif parts["calibration"]:
            raise ValueError("arrays of a calibration, but no calibration")
        tagger = cls(**{**record.parameters, "vocabulary": _restored_vocabulary(record.parameters["vocabulary"])})
        if tagger.model is None:
            tagger.model = clone(model)
        tagger._check_parameters()
        choice, training = _checked_choice(values["choice"]), _checked_training(values["training"], len(tags))
        return tagger._set_fitted(tags, features, model, choice, training, calibration)

    # ------------------------------------------------------------------ inside

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "tags_")

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("This Tagger is not fitted yet; call fit(texts, tags) or load a saved tagger first.")


def _split_parts(tensors: dict[str, Tensor]) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {name: {} for name in _PARTS}
    for name, tensor in tensors.items():
        part, _, key = name.partition(".")
        if part not in parts or not key:
            raise ValueError(f"tensor {name!r} belongs to no part of a tagger")
        parts[part][key] = tensor
    return parts


def _checked_tags(names: list[str] | None) -> list[str]:
    if not names or not all(first < second for first, second in pairwise(names)):
        raise ValueError("label_names of a tagger must be different names in sorted order")
    return names


def _restored_vocabulary(value: Any) -> list[str] | dict[str, str] | None:
    if value is None:
        return None
    require_same("values of the vocabulary", set(value), {"tags", "names"})
    tags, names = value["tags"], value["names"]
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags) or len(set(tags)) < len(tags):
        raise ValueError("the vocabulary must be a list of different tags")
    if names is None:
        return tags
    if not isinstance(names, list) or len(names) != len(tags):
        raise ValueError("the vocabulary must have a name for each tag, or none")
    return dict(zip(tags, names))


def _checked_choice(value: Any) -> ModelChoice:
    require_same("values of the choice", set(value), {"name", "parameters", "reason"})
    name, parameters, reason = value["name"], value["parameters"], value["reason"]
    if not isinstance(name, str) or not isinstance(reason, str) or not isinstance(parameters, dict):
        raise ValueError("the choice must have a name, parameters and a reason")
    return ModelChoice(name, parameters, reason)


def _checked_training(value: Any, n_tags: int) -> dict[str, Any]:
    require_same("values of the training", set(value), {*_COUNTS, "known_pairs", "tag_rows", "seconds"})
    counts = [value[name] for name in _COUNTS] + ([] if value["known_pairs"] is None else [value["known_pairs"]])
    if not all(type(count) is int and count >= 0 for count in counts) or type(value["seconds"]) is not float:
        raise ValueError("training must hold counts of at least 0, and seconds")
    tag_rows = value["tag_rows"]
    if not isinstance(tag_rows, np.ndarray) or tag_rows.dtype != np.int64 or tag_rows.shape != (n_tags,):
        raise ValueError(f"tag_rows must be {n_tags} counts")
    if (tag_rows < 0).any() or (tag_rows > value["rows"]).any():
        raise ValueError("tag_rows must be counts of rows")
    return dict(value)
