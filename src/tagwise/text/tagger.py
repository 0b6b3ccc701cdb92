"""Tagger: from raw texts and lists of tags to a model, and from a text back to tags."""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import KW_ONLY, replace
from itertools import islice
from operator import itemgetter
from os import PathLike
from typing import Annotated, Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from tagwise.answers import best_as_csr, ones_in_format
from tagwise.estimator import DEFAULT_K, MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning, warn
from tagwise.feature_blocks import FeatureBlocks
from tagwise.inspection.explanations import heaviest_features
from tagwise.metrics.purposes import LabelCounts, needs_all_rows
from tagwise.models.choice import ModelChoice, build_model, choose_model, model_info, parameters_for_unlisted
from tagwise.parallel import thread_count
from tagwise.parameters import Seed, check_parameters, parameters
from tagwise.progress import Callback, counted
from tagwise.registry import info_of
from tagwise.store import Checkpoint, ModelRecord, write_model
from tagwise.text.choice import choose_features
from tagwise.text.embeddings import EmbeddedFeatures, TextEmbedder, check_embedder
from tagwise.text.evaluation import MeasuredTagger, decided_labels
from tagwise.text.features import TextFeatures, check_texts, takes_texts
from tagwise.text.folder import tagger_from_parts, tagger_to_parts
from tagwise.text.names import check_vocabulary, fit_features, has_name, name_features
from tagwise.text.suggestion import Request, Suggestion, suggestions, suggestions_as_frame, title_of
from tagwise.text.tags import (
    TrainingRows,
    check_name,
    check_tags,
    column_of,
    ones_in,
    require_one_type,
    respelt_rows,
    tag_matrix,
)
from tagwise.text.vectorizers import FittedFeatures, TransformerFeatures, check_transformer
from tagwise.validation import check_choice, check_flag

__all__ = ["Tagger"]

# Texts that are read, scored and answered at a time: enough to share the work of a block among threads.
_BLOCK_TEXTS = 512

# A vocabulary of this many tags is unlikely to consist of new tags only.
_MANY_TAGS = 10


def _check_model(model: Any, name: str) -> None:
    if isinstance(model, str):
        if model.lower() != "auto":
            model_info(model)
    elif not isinstance(model, MultiLabelModel):
        raise InvalidTypeError(f'model must be "auto", the name of a model, or a model; found {model!r:.100}.')


def _check_features(features: Any, name: str) -> None:
    if isinstance(features, str):
        check_choice(features, name, ("words", "auto"))
    else:
        check_transformer(features)


def _check_cache(folder: Any, name: str) -> None:
    if folder is not None and not isinstance(folder, (str, PathLike)):
        raise InvalidTypeError(f"{name} must be the path of a folder; found {folder!r:.60}.")


@parameters
class Tagger(MeasuredTagger):
    """Learns from texts and their tags, and suggests tags for new texts. A scikit-learn estimator.

    Words become TF-IDF features in rows of unit length (:class:`~tagwise.TextFeatures`), tags become labels, and a
    model learns to predict the labels from the features.

    Parameters
    ----------
    model : str or unfitted model, default "auto"
        ``"auto"`` takes Cascade (:func:`tagwise.models.choice.choose_model`); ``choice_`` says so and why. Or a name
        from :data:`tagwise.registry.MODEL_NAMES`, such as ``"leml"``, for that model with its defaults. Or an
        estimator, such as ``LEML(rank=200)``, of which a copy is fitted.
    unlisted : {"off", "unknown"}
        How to treat unlisted tags. ``"unknown"``: not checked; listed tags are right, and rare tags are
        missing most often. Cascade then estimates the probability that a tag is
        right rather than listed; other linear models weigh positives by their inverse propensity, unless an estimator
        with another ``positive_weight`` is given. If tags were checked, pass ``known`` to :meth:`fit` instead.
    vocabulary : list of tags, or dict from tags to names, optional
        Tags that can be suggested although no text has them, and names of tags that are ids; a list of names holds the
        preferred name, then alternative names. Cascade learns from names: those of the dictionary,
        and the other tags themselves when at least half of them have a word of the training texts
        (:mod:`tagwise.text.names`). Other models rarely suggest tags that no text has.
    normalise_tags : bool
        Whether tags that differ only in capitals, in blanks or in the form of their characters are one, written as in
        the vocabulary or else as in most texts. The same holds for the tags of texts that the tagger is measured on.
    features : "words", "auto" or transformer, default "words"
        Features of texts. ``"words"``: ``TextFeatures()``. ``"auto"``: bigrams or character n-grams too, where they
        rank validation rows of the training rows better (:func:`tagwise.text.choice.choose_features`). Or a
        configured :class:`~tagwise.TextFeatures`, or any transformer from texts to a matrix, of which a
        clone is fitted. :meth:`save` keeps TextFeatures and scikit-learn's TfidfVectorizer, CountVectorizer and
        HashingVectorizer; others cannot be saved.
    updatable : bool
        Whether the model keeps the features and tags of its training texts, in memory and in the folder, so that
        :meth:`update` can learn further texts. Passed to the model also where that is given as an estimator.
    embedder : "static", "minilm" or function, optional
        Embeddings of texts, beside their words (:mod:`tagwise.text.embeddings`; :class:`~tagwise.data.FeatureBlocks`
        says which models read both). A function maps a list of texts to an array (n, q). A folder holds the name of
        the embedder and a fingerprint of its output; a function must be passed to :meth:`use_embedder` after loading.
    embedding_cache : path, optional
        A folder in which embeddings are kept by hashes of the texts, so that no text is embedded twice.
    n_jobs, random_state, verbose
        Threads, seed, and whether progress is shown. Passed to the model unless that is given as an estimator.

    Attributes
    ----------
    tags_ : list of str or int
        The tags that can be suggested: all that occur in training or in the vocabulary, sorted; or the columns of the
        matrix of tags.
    classes_ : array (L,)
        The same as an array, as in scikit-learn: the columns of matrices of this tagger.
    features_ : TextFeatures or TransformerFeatures
        Fitted extractor of the features.
    model_ : fitted model
        Its labels are the tags in the order of ``tags_``.
    choice_ : ModelChoice
        ``name``, ``parameters`` and ``reason`` of the model.
    calibration_ : Calibration or None
        Result of :meth:`calibrate`; None before it and after every fit.
    reference_ : Profile or None
        Profile of the rows of :meth:`calibrate`, the reference of :meth:`drift`; None before it and after every fit.
    training_ : dict
        Figures of the training rows: ``rows``, ``features``, ``words``, ``tags``, ``assignments``, ``known_pairs``
        (None where all tags are known), ``known_without_rows``, ``rows_without_words``, ``rows_without_tags``,
        ``named_tags`` (tags with names that were learnt from), ``tag_rows`` (array: rows of each tag) and ``seconds``.

    Notes
    -----
    A text without any known word is an empty row: its scores are the intercepts of the model, so all such
    texts get the same suggestions, the most frequent tags. ``transform(texts)`` shows which texts those are.

    In scikit-learn's tools texts are X and tags y: ``cross_val_score(Tagger(), texts, tags)``, the last step of a
    ``Pipeline``, and ``GridSearchCV`` over ``model__rank`` or ``features__min_df`` of estimators given as ``model`` and
    ``features``. Folds are drawn at random rows apart; tags that a fold has and training lacks count as missed.

    Examples
    --------
    >>> from tagwise import Tagger
    >>> texts = ["a cat and a dog", "a dog barks", "red wine and cheese", "white wine"] * 5
    >>> tags = [["pets"], ["pets"], ["food", "drinks"], ["drinks"]] * 5
    >>> tagger = Tagger("binary-relevance").fit(texts, tags)
    >>> [[suggestion.tag for suggestion in row] for row in tagger.suggest(["my dog", "some wine"], top=1)]
    [['pets'], ['drinks']]
    """

    model: Annotated[Any, _check_model] = "auto"
    _: KW_ONLY
    unlisted: Literal["off", "unknown"] = "off"
    vocabulary: Annotated[Any, lambda value, name: check_vocabulary(value)] = None
    normalise_tags: bool = False
    features: Annotated[Any, _check_features] = "words"
    updatable: bool = False
    embedder: Annotated[Any, lambda value, name: check_embedder(value)] = None
    embedding_cache: Annotated[str | PathLike[str] | None, _check_cache] = None
    n_jobs: Annotated[int | None, lambda value, name: thread_count(value)] = None
    random_state: Seed = 0
    verbose: Any = 0

    def set_params(self, **params: Any) -> Tagger:
        """Set parameters, as in scikit-learn; ``model__rank`` needs an estimator as ``model``."""
        for part, example in (("model", "LEML()"), ("features", "TextFeatures()")):
            value = params.get(part, getattr(self, part))
            nested = next((name for name in params if name.startswith(f"{part}__")), None)
            if nested is not None and isinstance(value, str):
                raise InvalidInputError(
                    f"{nested}: {part} is the name {value!r:.60}, which has no parameters to set; give an estimator "
                    f"such as {part}={example} to the Tagger instead."
                )
        super().set_params(**params)
        if self.__sklearn_is_fitted__():
            self._settled(self.features_)
        return self

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        texts: Iterable[str],
        tags: Any,
        known: Any = None,
        *,
        sample_weight: Any = None,
        callback: Callback | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Tagger:
        """Learn from texts and their tags. A fit that fails leaves the tagger unchanged.

        Parameters
        ----------
        texts : list of str
            Or a column of pandas or polars.
        tags : list of lists of str or int, or 0/1 matrix (n, L)
            The tags of each text; may be empty. Or an array, sparse matrix or data frame with one column of 0 and 1 per
            tag, as of scikit-learn's ``MultiLabelBinarizer``: tags are then the numbers of the columns, or the names
            that a data frame gives them.
        known : list of lists of str or int (or None), or matrix, optional
            For each text, the tags that were checked, in addition to its own: any other tag is unknown and never
            influences the fit. None in place of a list means that all tags, those of the vocabulary included, are known
            for that text; ``known=None``, that they are for all texts.
        sample_weight : array (n,), optional
            Weight of each text, for models whose ``fit`` takes it.
        callback : callable(iteration, info), optional
            Called after every iteration of the model's fit; returning True stops it.
        checkpoint : Checkpoint, optional
            Where the model's fit keeps its state; the same call with the same texts and tags resumes from there.

        Warns
        -----
        TagwiseWarning
            Some tags of ``known`` or of the vocabulary cannot be learnt; or ``known`` has no tag that its text lacks,
            which is what ``unlisted="unknown"`` is for.
        """
        start = time.perf_counter()
        vocabulary = self._check_parameters(known)
        rows = TrainingRows.of(texts, tags, known, vocabulary, normalise=self.normalise_tags)
        unfitted, why = self._new_features(rows)
        features, X, called = fit_features(unfitted, rows, vocabulary)
        figures = {**rows.figures(X), "words": features.n_words_}
        choice, model = self._choose(figures)
        if why:
            choice = replace(choice, reason=f"{choice.reason} {why}")
        more = {} if sample_weight is None else {"sample_weight": sample_weight}
        names = self._names(model, rows, called, features)
        if names is not None:
            more["label_features"] = names
        model.fit(X, rows.Y, rows.observed, callback=callback, checkpoint=checkpoint, **more)
        figures["named_tags"] = 0 if names is None else int(has_name(names).sum())
        figures["seconds"] = time.perf_counter() - start
        return self._replace(
            tags_=rows.tags,
            features_=features,
            model_=model,
            choice_=choice,
            training_=figures,
            calibration_=None,
            reference_=None,
            _output_format=rows.output_format,
        )

    def _new_features(self, rows: TrainingRows) -> tuple[FittedFeatures, str]:
        """The features to fit, and the reason if they were chosen automatically."""
        features: FittedFeatures
        why = ""
        if self.features == "auto":
            chosen = choose_features(rows, n_jobs=self.n_jobs, random_state=self.random_state)
            features, why = chosen.features, chosen.reason
        elif isinstance(self.features, str):
            features = TextFeatures()
        else:
            own = isinstance(self.features, TextFeatures)
            features = clone(self.features) if own else TransformerFeatures(self.features)
        if self.embedder is not None:
            features = self._settled(EmbeddedFeatures(features, TextEmbedder.of(self.embedder)))
        return features, why

    def _names(
        self, model: MultiLabelModel, rows: TrainingRows, called: dict[Any, str], features: FittedFeatures
    ) -> sp.csr_matrix | FeatureBlocks | None:
        """Features of the names of tags, if the model learns from names and the names have known words.

        Warns about tags of the vocabulary that the model cannot learn.
        """
        tags, new, names = rows.tags, ~rows.has_rows, None
        reason = f"{type(model).__name__} does not learn from names; the default model does"
        if info_of(type(model)).learns_from_names:
            names = name_features(tags, called, features, is_new=new)
            reason = "their names have no words"
        listed = [tag for tag, is_new in zip(tags, new) if not is_new]
        if len(called) >= _MANY_TAGS and called.keys().isdisjoint(listed):
            warn(
                f"vocabulary and texts have no tag in common: texts have {listed[0]!r:.60}, for example, and the "
                f"vocabulary {next(iter(called))!r:.60}. Use the same spelling in both, so that names match tags.",
                TagwiseWarning,
            )
        unheard = new & np.array([tag in called for tag in tags]) & (True if names is None else ~has_name(names))
        if unheard.any():
            warn(
                f"vocabulary has {counted(int(unheard.sum()), 'tag')} that no text has, such as "
                f"{tags[int(np.argmax(unheard))]!r:.60}, and that will rarely be suggested: {reason}.",
                TagwiseWarning,
            )
        return names

    def _choose(self, figures: dict[str, Any]) -> tuple[ModelChoice, MultiLabelModel]:
        """The unfitted model (given, named, or chosen by the size of the problem), and the reason."""
        masked = figures["known_pairs"] is not None
        if isinstance(self.model, str):
            if self.model.lower() == "auto":
                n_rows, n_features, n_tags, n_listed = itemgetter("rows", "features", "tags", "assignments")(figures)
                choice = choose_model(n_rows, n_features, n_tags, n_listed, masked, unlisted=self.unlisted)
            else:
                name = model_info(self.model).name
                choice = ModelChoice(name, {}, f"{name} was asked for.")
            shared = {"n_jobs": self.n_jobs, "random_state": self.random_state, "verbose": self.verbose}
            model = build_model(choice.name, choice.parameters, unlisted=self.unlisted, **shared)
        else:
            name, model = info_of(type(self.model)).name, clone(self.model)
            usual = type(model)().get_params(deep=False)
            for parameter, value in parameters_for_unlisted(name, self.unlisted).items():
                if np.array_equal(getattr(model, parameter), usual[parameter]):
                    model.set_params(**{parameter: value})
            choice = ModelChoice(name, {}, f"{name} was given as an estimator.")
        info = info_of(type(model))
        if self.updatable:
            if not info.updatable:
                raise model._not_updatable("updates (updatable=True)")
            model.set_params(updatable=True)
        if masked and not info.learns_from_mask:
            raise InvalidInputError(
                f"known: {type(model).__name__} does not support unknown tags. Leave known out, so that unlisted tags "
                'count as wrong; or use model="auto".'
            )
        return choice, model

    def _replace(self, **state: Any) -> Tagger:
        """Replace some or all attributes at once: an error or interrupt leaves the tagger as it was."""
        fitted = {**self.__dict__, **state}
        tags = fitted["tags_"]
        fitted["model_"] = copy(fitted["model_"])
        fitted["model_"].label_names_ = [str(tag) for tag in tags]
        fitted["classes_"] = np.array(tags, dtype=np.int64 if isinstance(tags[0], int) else object)
        fitted["_position"] = column_of(tags)
        vocabulary = check_vocabulary(fitted["vocabulary"])
        fitted["names_"] = {tag: names[0] for tag, names in vocabulary.items() if names[0] != tag}
        self._settled(fitted["features_"])
        self.__dict__.update(fitted)
        return self

    def _settled(self, features: FittedFeatures) -> FittedFeatures:
        """The features with the cache and the progress bar that the parameters ask for."""
        if isinstance(features, EmbeddedFeatures):
            features.embedder.settle(self.embedding_cache, self.verbose)
        return features

    def _check_parameters(self, known: Any = None) -> dict[Any, tuple[Any, ...]]:
        """Check the parameters, also against ``known``; returns the vocabulary: tag → name and alternative names."""
        if known is not None and self.unlisted == "unknown":
            raise InvalidInputError(
                "known (which tags were checked) and unlisted='unknown' (none were) exclude each other; give one."
            )
        check_parameters(self)
        return check_vocabulary(self.vocabulary)

    # ------------------------------------------------------------------ texts and tags as matrices

    def transform(self, texts: Iterable[str]) -> Any:
        """The features of texts (n×d, CSR); a row without entries is a text without a known word.

        With an embedder, :class:`~tagwise.data.FeatureBlocks` of both.
        """
        self._require_fitted()
        return self.features_.transform(texts)

    def label_matrix(self, tags: Any) -> tuple[sp.csr_matrix, Counter[Any]]:
        """Lists of tags as labels (n×L, in the order of ``tags_``), and counts of unseen tags by rows."""
        self._require_fitted()
        return tag_matrix(respelt_rows(check_tags(tags), self._spelling), self._position)

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
        as_frame: bool = False,
    ) -> Any:
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
            Number of words per suggestion that explain it; exact, for models with linear scores.
        min_probability : float, optional
            Only tags of at least this probability. A model whose scores are not probabilities needs :meth:`calibrate`.
        optimise : {"precision", "recall", "psp", "macro_f1"}, optional
            Choose the ``top`` tags that maximise the expectation of this metric, as
            :meth:`~tagwise.estimator.MultiLabelModel.predict_topk` does; thresholds then apply to these. A model whose
            scores are not probabilities needs :meth:`calibrate`; co-occurrence of tags is then unknown, and
            ``"recall"`` takes the most probable ones. ``"macro_f1"`` chooses for all texts together.
        as_frame : bool
            Answer with a table of one row per suggestion.

        Returns
        -------
        list of lists of Suggestion
            Best first; equal scores in the order of the names. A list is empty if no tag passes. With ``as_frame``,
            a data frame of polars where texts are, else of pandas (the extra ``frames``): ``row`` (the number of the
            text, or its index in pandas), ``rank`` (from 1), ``tag``, ``name`` where tags have one, ``score``,
            ``probability`` (missing if there is none: see :meth:`calibrate`) and, with ``explain``, ``words``.

        Raises
        ------
        ExplanationError
            The model has no exact explanations.
        """
        each = self.suggest_each(
            check_texts(texts), top, threshold, explain, min_probability=min_probability, optimise=optimise
        )
        found = list(each)
        return suggestions_as_frame(found, texts) if check_flag(as_frame, "as_frame") else found

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
        """Streaming :meth:`suggest`: any iterable of texts, with a few hundred of them in memory.

        ``optimise="macro_f1"`` reads all texts before it answers the first.
        """
        request = self._checked(Request(top, threshold, explain, min_probability, optimise))
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            check_texts(texts)

        def answers(texts: Iterator[str]) -> Iterator[list[Suggestion]]:
            read, size = 0, None if needs_all_rows(request.optimise) else _BLOCK_TEXTS
            while block := check_texts(islice(texts, size), first=read):
                read += len(block)
                yield from self._suggestions(self.features_.transform(block), request)

        return answers(iter(texts))

    def suggest_features(
        self,
        X: Any,
        top: int = 5,
        threshold: float | str | None = None,
        explain: int = 0,
        *,
        min_probability: float | None = None,
        optimise: str | None = None,
    ) -> list[list[Suggestion]]:
        """:meth:`suggest` for features from :meth:`transform`."""
        return self._suggestions(X, self._checked(Request(top, threshold, explain, min_probability, optimise)))

    def _checked(self, request: Request) -> Request:
        self._require_fitted()
        request.check(self.model_, self.calibration_)
        return request

    def _suggestions(self, X: Any, request: Request) -> list[list[Suggestion]]:
        return suggestions(
            request,
            X,
            self.model_,
            self.tags_,
            calibration=self.calibration_,
            counts=LabelCounts(self.training_["tag_rows"], self.training_["rows"]),
            names=self.names_,
            feature_names=self.features_.feature_names,
        )

    def predict(self, texts: Iterable[str]) -> Any:
        """The tags assigned to each text; may be none.

        With a calibrated tagger, the tags that reach their thresholds (among the best ``calibration_.k`` of the text);
        otherwise those that score at least 0. The format is that of the tags at fit: lists, best tags first; a 0/1
        array for an array or a data frame; CSR for any sparse format, as ``csr_matrix`` or ``csr_array``. Numbers keep
        their type, and columns are in the order of ``classes_``.
        """
        X = self.transform(texts)
        decided = decided_labels(self.model_, self.calibration_, X)
        if self._output_format is None:
            return [[self.tags_[label] for label in row] for row in decided]
        on = ones_in(decided, len(self.tags_))
        return ones_in_format(on.indices, on.indptr, on.shape, self._output_format)

    def decision_function(self, texts: Iterable[str]) -> np.ndarray:
        """The model's scores of all tags (n, L), dense, in the order of ``classes_``: meant for few tags."""
        X = self.transform(texts)
        return self.model_.decision_function(X)

    def predict_proba(self, texts: Iterable[str], k: int = DEFAULT_K, *, dense: bool | None = None) -> Any:
        """Probabilities that tags are right: calibrated after :meth:`calibrate`, and for Cascade.

        Otherwise those of :meth:`MultiLabelModel.predict_proba <tagwise.estimator.MultiLabelModel.predict_proba>`:
        ordered like the scores and between 0 and 1, but not calibrated.

        Parameters
        ----------
        texts : list of str
        k, dense
            ``dense=True``: all tags, as an array. False: the ``k`` best, as CSR. None: dense where tags were an array
            or a data frame at fit.

        Returns
        -------
        CSR or array (n, L)
            Columns in the order of ``classes_``.
        """
        X = self.transform(texts)
        if dense is None:
            dense = self._output_format is not None and self._output_format[0] == "dense"
        if self.calibration_ is None:
            return self.model_.predict_proba(X, k, dense=dense)
        if dense:
            scores = self.model_.decision_function(X)
            labels = np.broadcast_to(np.arange(len(self.tags_)), scores.shape)
            return self.calibration_.probabilities(labels, scores)
        labels, scores = self.model_.predict_topk(X, min(k, len(self.tags_)))
        return best_as_csr(sp.csr_matrix, labels, self.calibration_.probabilities(labels, scores), len(self.tags_))

    def title(self, tag: str) -> str:
        """Display form of a tag: with its name from the vocabulary, if any, in parentheses."""
        self._require_fitted()
        return title_of(tag, self.names_.get(tag))

    def words_of(self, tag: str, top: int = 10) -> list[tuple[str, float]]:
        """The words with the largest weights for a tag, heaviest first."""
        self._require_fitted()
        features, weights = heaviest_features(self.model_, self._label_of(tag), top)
        return [(self.features_.feature_names[f], float(weight)) for f, weight in zip(features, weights)]

    @property
    def explained_score(self) -> str:
        """Name of the sum of the contributions of words and the intercept: "the score", for most models."""
        self._require_fitted()
        return self.model_.explained_score

    # ------------------------------------------------------------------ further texts, and other tags

    def update(self, texts: Iterable[str], tags: Any, known: Any = None) -> Tagger:
        """Learn further texts in a tagger that was fitted with ``updatable=True``.

        Words that occur in ``min_df`` of the new texts and are not features yet become features. New tags are learnt;
        tags with many new examples are learnt again, from all texts
        (:meth:`tagwise.models.updating.UpdatableModel.update`).

        Parameters
        ----------
        texts, tags, known
            As in :meth:`fit`. New tags follow the others in ``tags_``, and are off in earlier texts whose tags
            were all known.

        Returns
        -------
        self
            ``model_.drift_`` is the share of the texts added since the last fit. A calibration is dropped, with a
            warning, since scores have changed. An update that fails leaves the tagger unchanged.
        """
        start = time.perf_counter()
        self._require_updatable()
        vocabulary = self._check_parameters(known)
        rows = TrainingRows.of(texts, tags, known, normalise=self.normalise_tags, learnt=self.tags_)
        features, source = self.features_, np.arange(len(self.features_.feature_names))
        if isinstance(features, TextFeatures):
            features, source = features.extended(rows.texts, self.training_["rows"])
        X, model, n_before = features.transform(rows.texts), copy(self.model_), len(self.tags_)
        if len(source) > model.n_features_in_:
            model._select_features(source)
        names, more = None, {}
        if len(rows.tags) > n_before and info_of(type(model)).learns_from_names:
            called = {tag: names[0] for tag, names in vocabulary.items()}
            names = name_features(rows.tags, called, features, is_new=np.arange(len(rows.tags)) >= n_before)
            names = None if names is None else names[n_before:]
            more["label_features"] = names
        model.update(X, rows.Y, rows.observed, **more)
        before, training = self.training_, {**self.training_, **rows.figures(X)}
        for name in ("rows", "assignments", "known_without_rows", "rows_without_words", "rows_without_tags"):
            training[name] += before[name]
        training["tag_rows"][:n_before] += before["tag_rows"]
        if names is not None and before["named_tags"]:  # else names are not learnt from
            training["named_tags"] += int(has_name(names).sum())
        training |= {"words": features.n_words_, "known_pairs": model.n_known_pairs()}
        training["seconds"] = time.perf_counter() - start
        self._warn_of_lost_calibration()
        changed = {"training_": training, "calibration_": None, "reference_": None}
        return self._replace(tags_=rows.tags, features_=features, model_=model, **changed)

    def _warn_of_lost_calibration(self) -> None:
        if self.calibration_ is not None:
            warn("The calibration is dropped, since scores have changed; calibrate again.", TagwiseWarning)

    def _require_updatable(self) -> None:
        self._require_fitted()
        if not getattr(self.model_, "updatable", False):
            raise InvalidInputError(
                "This tagger does not keep the texts of its fit, which updates need; fit it with "
                "updatable=True (tagwise train --updatable)."
            )

    def remove_tags(self, tags: Iterable[Any]) -> Tagger:
        """Remove tags; they are no longer suggested. Their texts are kept, without these tags."""
        return self._with_labels(tags, None)

    def merge_tags(self, tags: Iterable[Any], into: Any) -> Tagger:
        """Merge tags into the tag ``into``, which is learnt again from the texts that had any of them.

        Needs ``updatable=True`` at fit: other taggers do not keep the tags of their texts.
        """
        self._require_updatable()
        return self._with_labels(tags, into)

    def _with_labels(self, tags: Iterable[Any], into: Any | None) -> Tagger:
        self._require_fitted()
        if isinstance(tags, (str, bytes)) or not isinstance(tags, Iterable):
            raise InvalidTypeError(f"tags must be a list of tags; found {tags!r:.60}.")
        given = [self._label_of(tag) for tag in tags]
        if not given:
            raise InvalidInputError("tags is empty; name at least one tag.")
        goal = None if into is None else self._label_of(into)
        gone = set(given) - {goal}
        kept = [label for label in range(len(self.tags_)) if label not in gone]
        model, tag_rows = copy(self.model_), self.training_["tag_rows"].copy()
        calibration = self.calibration_
        if goal is None:
            model.remove_labels(sorted(gone))
            calibration = None if calibration is None else calibration.of_labels(kept)
        else:
            model.merge_labels(given, goal)
            tag_rows[goal] = int(model.kept_labels_.getnnz(axis=0)[kept.index(goal)])
            self._warn_of_lost_calibration()
            calibration = None
        tag_rows = tag_rows[kept]
        training = {**self.training_, "tags": len(kept), "tag_rows": tag_rows, "assignments": int(tag_rows.sum())}
        if getattr(model, "updatable", False):
            training["known_pairs"] = model.n_known_pairs()
        return self._replace(
            tags_=[self.tags_[label] for label in kept],
            vocabulary=self._respelt_vocabulary({self.tags_[label]: None for label in gone}),
            model_=model,
            training_=training,
            calibration_=calibration,
            reference_=None,
        )

    def _respelt_vocabulary(self, names: Mapping[Any, Any]) -> Any:
        """The vocabulary with tags renamed by ``names``, without tags mapped to None."""
        own = self.vocabulary
        if own is None:
            return None
        kept = {tag: names.get(tag, tag) for tag in own if names.get(tag, tag) is not None}
        return {new: own[tag] for tag, new in kept.items()} if isinstance(own, Mapping) else list(kept.values())

    def rename_tags(self, names: Mapping[Any, Any]) -> Tagger:
        """Rename tags: ``names`` maps old tags to new ones. The model does not change."""
        self._require_fitted()
        if not isinstance(names, Mapping) or not names:
            raise InvalidTypeError(f"names must be a dictionary from old tags to new ones; found {names!r:.60}.")
        tags = list(self.tags_)
        for number, (old, new) in enumerate(names.items()):
            tags[self._label_of(old)] = check_name(new, "names", number)
        require_one_type([tags], "tags would be numbers and names")
        if len(set(tags)) < len(tags):
            twice = next(tag for tag, many in Counter(tags).items() if many > 1)
            raise InvalidInputError(f"names: two tags would be called {twice!r:.60}; use merge_tags to merge them.")
        return self._replace(tags_=tags, vocabulary=self._respelt_vocabulary(names))

    def use_embedder(self, embedder: Any) -> Tagger:
        """Set the embedder, a function or a name: functions are not saved with a tagger.

        InvalidInputError if the tagger was trained without an embedder, or with one of another fingerprint.
        """
        self._require_fitted()
        if not isinstance(self.features_, EmbeddedFeatures):
            raise InvalidInputError("this tagger was trained without an embedder; train one with embedder=….")
        self.features_.embedder.take(embedder)
        self.embedder = embedder
        return self

    # ------------------------------------------------------------------ save

    def save(self, path: str | PathLike[str], *, overwrite: bool = True) -> None:
        """Write the tagger as one folder that :func:`tagwise.load` reads: JSON and safetensors, no pickle.

        It holds features, model, tags, figures, calibration and reference, under one manifest that is replaced
        atomically: at any time, even after a crash, the folder holds the old tagger or the new one. An existing tagger
        or model is replaced, unless ``overwrite`` is False; any other content is refused.
        """
        write_model(path, self.to_parts(), overwrite=overwrite)

    def to_parts(self) -> ModelRecord:
        """The content of the folder of this tagger; ``docs/model-format.md`` describes it."""
        self._require_fitted()
        return tagger_to_parts(self, self._check_parameters())

    @classmethod
    def from_parts(cls, record: ModelRecord) -> Tagger:
        """The fitted tagger that :meth:`to_parts` describes; :func:`tagwise.load` says which errors it raises."""
        parameters, fitted = tagger_from_parts(record, set(inspect.signature(cls).parameters))
        tagger = cls(**parameters)
        tagger._check_parameters()
        return tagger._replace(**fitted)

    # ------------------------------------------------------------------ inside

    def __sklearn_tags__(self) -> Any:
        tags = takes_texts(super().__sklearn_tags__())
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    def _label_of(self, tag: Any) -> int:
        if tag not in self._position:
            raise InvalidInputError(f"tag {tag!r:.60} is not one of the {len(self.tags_):,} tags of this tagger.")
        return self._position[tag]
