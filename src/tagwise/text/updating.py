"""What may change in a fitted tagger: further texts and tags, and tags that go, become one or get another name."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from tagwise.base import MultiLabelModel
from tagwise.exceptions import InvalidInputError, InvalidTypeError, TagwiseWarning, warn
from tagwise.inspection.calibration import Calibration
from tagwise.inspection.drift import Profile
from tagwise.models.choice import ModelChoice
from tagwise.registry import info_of
from tagwise.text.features import TextFeatures, check_texts
from tagwise.text.names import name_features
from tagwise.text.tags import (
    check_known,
    check_name,
    check_tags,
    column_of,
    known_matrix,
    normalised,
    require_one_type,
    row_figures,
    tag_matrix,
    warn_of_unlearnable,
)
from tagwise.text.vectorizers import FITTED_FEATURES

__all__ = ["UpdatableTagger"]

TaggerT = TypeVar("TaggerT", bound="UpdatableTagger")


class UpdatableTagger(BaseEstimator):
    """What can be done to a fitted tagger. The state that a fit left in it is replaced as a whole, or stays."""

    vocabulary: Any
    unlisted: str
    normalise_tags: bool
    tags_: list[Any]
    features_: FITTED_FEATURES
    model_: Any
    choice_: ModelChoice
    training_: dict[str, Any]
    calibration_: Calibration | None
    reference_: Profile | None
    _position: Mapping[Any, int]
    _output_format: tuple[str, Any] | None

    @abstractmethod
    def _check_parameters(self) -> dict[Any, tuple[Any, ...]]:
        """Returns the vocabulary: tag → name and alternative names."""

    @abstractmethod
    def _require_fitted(self) -> None:
        """Raise NotFittedError before the fit."""

    @abstractmethod
    def _label_of(self, tag: Any) -> int:
        """The column of a tag; InvalidInputError where there is none."""

    @abstractmethod
    def _set_fitted(
        self: TaggerT,
        tags: list[Any],
        features: FITTED_FEATURES,
        model: MultiLabelModel,
        choice: ModelChoice,
        training: dict[str, Any],
        calibration: Calibration | None,
        output_format: tuple[str, Any] | None,
        reference: Profile | None = None,
    ) -> TaggerT:
        """Replace the state of the fit as a whole."""

    def update(self: TaggerT, texts: Iterable[str], tags: Any, known: Any = None) -> TaggerT:
        """Learn further texts in a tagger that was fitted with ``updatable=True``.

        Words that ``min_df`` of the new texts have, and that are not features yet, become features. Tags that only the
        new texts have are learnt; tags of which these texts hold much are learnt again, from all texts
        (:meth:`tagwise.models.updating.UpdatableModel.update`).

        Parameters
        ----------
        texts, tags, known
            As in :meth:`fit`. New tags come behind the others in ``tags_``, and are off in earlier texts of which
            everything was known.

        Returns
        -------
        self
            ``model_.drift_`` says how far it is behind a fit to all texts.

        Warns
        -----
        TagwiseWarning
            The calibration is dropped: scores are others now. :meth:`calibrate` again.

        Notes
        -----
        An update that fails leaves the tagger as it was.
        """
        start = time.perf_counter()
        self._require_updatable()
        vocabulary = self._check_parameters()
        if known is not None and self.unlisted == "unknown":
            raise InvalidInputError(
                "known says which tags somebody looked at, and unlisted='unknown' that nobody did; give one of them."
            )
        rows = check_texts(texts)
        if not rows:
            raise InvalidInputError("texts is empty; an update needs at least one text.")
        lists, looked_at = check_tags(tags, len(rows)), None if known is None else check_known(known, len(rows))
        if self.normalise_tags:
            lists, looked_at = normalised(lists, looked_at, self.tags_)
        require_one_type([self.tags_, *lists], "tags differ in type from those of the fit")
        new = sorted({tag for row in lists for tag in row}.difference(self._position))
        position = column_of([*self.tags_, *new])
        Y, _ = tag_matrix(lists, position)
        observed = None
        if looked_at is not None:
            observed, without = known_matrix(looked_at, lists, position)
            warn_of_unlearnable(without)
        features, source = self.features_, np.arange(len(self.features_.feature_names))
        if isinstance(features, TextFeatures):
            features, source = features.extended(rows, self.training_["rows"])
        X = features.transform(rows)
        model = copy(self.model_)
        if len(source) > model.n_features_in_:
            model._select_features(source)
        more: dict[str, Any] = {}
        if new and info_of(type(model)).learns_from_names:
            called = {tag: names[0] for tag, names in vocabulary.items()}
            is_new = np.arange(len(position)) >= len(self.tags_)
            names = name_features(list(position), called, features, is_new=is_new)
            more["label_features"] = None if names is None else names[len(self.tags_) :]
        model.update(X, Y, observed, **more)
        if self.calibration_ is not None:
            warn("The calibration is dropped, since scores are others now; calibrate again.", TagwiseWarning)
        training = self._training_with(X, Y, model, features.n_words_, time.perf_counter() - start)
        if more.get("label_features") is not None and training["named_tags"]:  # else names are not learnt from
            training["named_tags"] += int(np.count_nonzero(np.diff(more["label_features"].indptr)))
        return self._set_fitted(list(position), features, model, self.choice_, training, None, self._output_format)

    def _require_updatable(self) -> None:
        self._require_fitted()
        if not getattr(self.model_, "updatable", False):
            raise InvalidInputError(
                "This tagger has not kept the texts of its fit, which an update learns from too; fit it with "
                "updatable=True (tagwise train --updatable)."
            )

    def _training_with(
        self, X: sp.csr_matrix, Y: sp.csr_matrix, model: Any, n_words: int, seconds: float
    ) -> dict[str, Any]:
        """``training_`` with further rows; ``seconds`` are those of the update."""
        before, added = self.training_, row_figures(X, Y)
        figures = {**before, "features": X.shape[1], "words": n_words, "tags": Y.shape[1], "seconds": seconds}
        for name in ("rows", "assignments", "rows_without_words", "rows_without_tags"):
            figures[name] = before[name] + added[name]
        figures["tag_rows"] = np.pad(before["tag_rows"], (0, Y.shape[1] - len(before["tag_rows"]))) + added["tag_rows"]
        figures["known_pairs"] = model.n_known_pairs()
        return figures

    def remove_tags(self: TaggerT, tags: Iterable[Any]) -> TaggerT:
        """Forget tags; they are suggested no more. Texts that had them stay, without them."""
        return self._with_labels(tags, None)

    def merge_tags(self: TaggerT, tags: Iterable[Any], into: Any) -> TaggerT:
        """Make tags one with the tag ``into``, which is learnt anew from the texts that had any of them.

        For taggers that were fitted with ``updatable=True``: others do not know which texts had the tags.
        """
        self._require_updatable()
        return self._with_labels(tags, into)

    def _with_labels(self: TaggerT, tags: Iterable[Any], into: Any | None) -> TaggerT:
        self._require_fitted()
        if isinstance(tags, (str, bytes)) or not isinstance(tags, Iterable):
            raise InvalidTypeError(f"tags must be a list of tags; found {tags!r:.60}.")
        given = [self._label_of(tag) for tag in tags]
        if not given:
            raise InvalidInputError("tags is empty; name at least one tag.")
        goal = None if into is None else self._label_of(into)
        gone = set(given) - {goal}
        model, kept = copy(self.model_), [label for label in range(len(self.tags_)) if label not in gone]
        if goal is None:
            model.remove_labels(sorted(gone))
        else:
            model.merge_labels(given, goal)
        names = [self.tags_[label] for label in kept]
        tag_rows = self.training_["tag_rows"].copy()
        if goal is not None:
            tag_rows[goal] = int(model.kept_labels_.getnnz(axis=0)[kept.index(goal)])
        tag_rows = tag_rows[kept]
        training = {**self.training_, "tags": len(kept), "tag_rows": tag_rows, "assignments": int(tag_rows.sum())}
        if getattr(model, "updatable", False):
            training["known_pairs"] = model.n_known_pairs()
        calibration = None if self.calibration_ is None or goal is not None else self.calibration_.of_labels(kept)
        if self.calibration_ is not None and goal is not None:
            warn("The calibration is dropped, since scores are others now; calibrate again.", TagwiseWarning)
        with self._vocabulary_of({self.tags_[label]: None for label in gone}):
            return self._set_fitted(
                names, self.features_, model, self.choice_, training, calibration, self._output_format
            )

    @contextmanager
    def _vocabulary_of(self, names: Mapping[Any, Any]) -> Iterator[None]:
        """Write tags of the vocabulary as ``names`` does, None for those that are gone; an error takes it back."""
        own = self.vocabulary
        try:
            if isinstance(own, Mapping):
                self.vocabulary = {names.get(tag, tag): own[tag] for tag in own if names.get(tag, tag) is not None}
            elif own is not None:
                self.vocabulary = [names.get(tag, tag) for tag in own if names.get(tag, tag) is not None]
            yield
        except BaseException:
            self.vocabulary = own
            raise

    def rename_tags(self: TaggerT, names: Mapping[Any, Any]) -> TaggerT:
        """Call tags something else: ``names`` has the new one of each old one. What is learnt of them stays."""
        self._require_fitted()
        if not isinstance(names, Mapping) or not names:
            raise InvalidTypeError(f"names must be a dictionary from tags to new ones; found {names!r:.60}.")
        tags = list(self.tags_)
        for number, (old, new) in enumerate(names.items()):
            tags[self._label_of(old)] = check_name(new, "names", number)
        require_one_type([tags], "tags would be numbers and names")
        if len(set(tags)) < len(tags):
            twice = next(tag for tag, many in Counter(tags).items() if many > 1)
            raise InvalidInputError(f"names: two tags would be called {twice!r:.60}; merge_tags makes them one.")
        with self._vocabulary_of(names):
            return self._set_fitted(
                tags,
                self.features_,
                copy(self.model_),
                self.choice_,
                self.training_,
                self.calibration_,
                self._output_format,
                self.reference_,
            )
