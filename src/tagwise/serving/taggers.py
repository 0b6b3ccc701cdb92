"""The taggers of a server: each is loaded, warmed up, and replaced by a newer one while requests go on."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import os
import shutil
import tempfile
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from starlette.exceptions import HTTPException

from tagwise.exceptions import InvalidInputError, ModelFormatError, TagwiseError
from tagwise.serving.batches import Batches
from tagwise.serving.errors import unavailable
from tagwise.serving.monitoring import Monitoring
from tagwise.serving.options import ServingOptions
from tagwise.serving.tag_search import TagSearch
from tagwise.store.folder import MANIFEST_NAME, load, read_manifest
from tagwise.text.suggestion import Request, Suggestion
from tagwise.text.tagger import Tagger
from tagwise.text.tags import has_entries

__all__ = ["Loaded", "ServedTagger"]

log = logging.getLogger("tagwise.serving")

_LONG = 1 << 14
"""Characters of a text that count as one text more, so that limits on the number of texts limit memory too."""

# Words of a tagger that a text to warm it up is made of.
_WARM_WORDS = 20


@dataclass(frozen=True, eq=False)
class Loaded:
    """A tagger in memory; requests started with it finish with it."""

    tagger: Tagger
    version: str
    """The first digits of the manifest's SHA-256: the same model has the same version everywhere."""
    loaded_at: datetime
    saved_at: datetime
    source: Path
    """The folder that was read: that of the tagger, or the copy that processes share."""

    @classmethod
    def from_folder(cls, folder: Path, shared: str | None = None) -> Loaded:
        """Read a folder and answer once, so that everything is compiled and in memory for the first request.

        With ``shared``, the tensors are mapped from a copy there, one for all processes: truncating the file of a
        mapped model would crash every process that uses it.
        """
        source = folder if shared is None else _shared_copy(folder, Path(shared))
        try:
            version = manifest_version(source)
            tagger = load(source, mapped=shared is not None)
            if manifest_version(source) != version:
                raise ModelFormatError(f"{folder} was replaced while it was read.")
        except ModelFormatError as error:
            if source != folder:
                shutil.rmtree(source, ignore_errors=True)
            raise ModelFormatError(str(error).replace(str(source), str(folder))) from None
        if not isinstance(tagger, Tagger):
            raise InvalidInputError(
                f"{folder} holds a {type(tagger).__name__}, which takes features, not texts; serve a tagger."
            )
        saved_at = datetime.fromtimestamp((source / MANIFEST_NAME).stat().st_mtime, timezone.utc)
        loaded = cls(tagger, version, datetime.now(timezone.utc), saved_at, source)
        # One text takes less time than threads would take to start; larger batches share the machine with others.
        tagger.model_.n_jobs = 1
        words = tagger.features_.feature_names[:: max(1, len(tagger.features_.feature_names) // _WARM_WORDS)]
        text = " ".join(word for word in words if not word.startswith("char:"))
        tagger.suggest([text])
        if loaded.explainable:
            tagger.suggest([text, ""], explain=3)
        return loaded

    @cached_property
    def names(self) -> dict[str, str]:
        """Names of tags, where these are ids."""
        return {str(tag): name for tag, name in self.tagger.names_.items()}

    @cached_property
    def explainable(self) -> bool:
        """Whether the model can explain tags by words."""
        try:
            self.tagger.words_of(self.tagger.tags_[0], 1)
        except TagwiseError:
            return False
        return True

    @property
    def probabilistic(self) -> bool:
        """Whether suggestions have probabilities."""
        return self.tagger.model_.probabilistic or self.tagger.calibration_ is not None

    @cached_property
    def search(self) -> TagSearch:
        """For finding a tag; made when first asked for."""
        return TagSearch(list(map(str, self.tagger.tags_)), self.names, self.tagger.training_["tag_rows"])


def manifest_version(folder: Path) -> str:
    """The version of the model in a folder; raises ModelFormatError or OSError if there is none."""
    return hashlib.sha256(read_manifest(folder)).hexdigest()[:12]


def _shared_copy(folder: Path, shared: Path) -> Path:
    """A copy of a folder, named by its version, which is made unless another process has done so."""
    copy = shared / manifest_version(folder)
    if not copy.exists():
        part = Path(tempfile.mkdtemp(dir=shared))
        try:
            shutil.copytree(folder, part, dirs_exist_ok=True)
            copy = shared / manifest_version(part)
            with suppress(OSError):  # another process was faster
                part.rename(copy)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return copy


class ServedTagger:
    """A tagger under a name, with its waiting requests.

    Models are loaded by ``loader`` and asked by ``predictor``. The model releases the interpreter while it computes; a
    second thread would only compete for the same cores.
    """

    def __init__(
        self, name: str, options: ServingOptions, monitoring: Monitoring, loader: Executor, predictor: Executor
    ) -> None:
        self.name, self.folder = name, Path(options.taggers[name])
        self.loaded: Loaded | None = None
        self.error: str | None = None
        """Reason why the model in use is not the one in the folder."""
        self._options, self._monitoring, self._loader = options, monitoring, loader
        self._batches: Batches[tuple[Loaded, Request], tuple[str, int], list[Suggestion]] = Batches(
            self.answer,
            predictor,
            most=options.most_texts,
            most_waiting=options.most_waiting,
            seconds=options.seconds,
        )
        self._seen: list[tuple[object, ...]] | None = None
        self._reloading = asyncio.Lock()

    def ready(self) -> Loaded:
        """The model in use, or status 503."""
        if self.loaded is None:
            raise unavailable(f"{self.name} has no model yet: {self.error or 'it is being loaded.'}")
        return self.loaded

    async def ask(self, texts: list[str], request: Request) -> tuple[Loaded, list[list[Suggestion]]]:
        """The suggestions for each text, and the model that made them."""
        options, loaded = self._options, self.ready()
        fault = ""
        if len(texts) > options.most_texts:
            fault = f"texts: {len(texts):,} texts, but one request may hold {options.most_texts}; send them in parts."
        elif request.min_probability is not None and not loaded.probabilistic:
            fault = f"threshold: the scores of {self.name} are not probabilities; leave it out, or train with tagwise "
            fault += "train --validation."
        elif request.explain and not loaded.explainable:
            fault = f"explain: the model of {self.name} cannot say which words speak for a tag; leave it out."
        if fault:
            raise HTTPException(422, fault)
        if options.log_texts:
            for text in texts:
                log.info("%s was asked for tags of %r", self.name, text)
        try:
            size = len(texts) + sum(map(len, texts)) // _LONG
            key, asked = (loaded, replace(request, top=0)), [(text, request.top) for text in texts]
            return loaded, await self._batches.ask(key, asked, size)
        except asyncio.TimeoutError:
            late = f"The answer took more than {options.seconds:g} seconds; send fewer texts at a time."
            raise unavailable(late) from None

    def answer(self, key: tuple[Loaded, Request], asked: list[tuple[str, int]]) -> list[list[Suggestion]]:
        """The suggestions of a model for texts, each with the number of tags requested.

        Tags that are numbers are written as text: answers come back as text too, and tables hold nothing else.
        """
        loaded, request = key
        X = loaded.tagger.transform([text for text, _ in asked])
        self._monitoring.texts_answered(self.name, len(asked), int(np.count_nonzero(~has_entries(X))))
        most = replace(request, top=max(top for _, top in asked))
        found = [row[:top] for row, (_, top) in zip(loaded.tagger.suggest_features(X, **vars(most)), asked)]
        if isinstance(loaded.tagger.tags_[0], str):
            return found
        return [[replace(one, tag=str(one.tag)) for one in row] for row in found]

    async def reload(self) -> bool:
        """Load the folder's model and swap it in; False where it does not load, and the old one stays."""
        async with self._reloading:
            self._seen = _files(self.folder)
            load_now = partial(Loaded.from_folder, self.folder, self._options.shared)
            try:
                new = await asyncio.get_running_loop().run_in_executor(self._loader, load_now)
            except Exception as error:
                self._note(error)
                return False
            old, self.loaded, self.error = self.loaded, new, None
            if old is not None and old.version != new.version:
                self._monitoring.model.labels(self.name, old.version).set(0)
            self._monitoring.model.labels(self.name, new.version).set(new.loaded_at.timestamp())
            log.info("%s: serving version %s, %d tags.", self.name, new.version, len(new.tagger.tags_))
            if old is not None and old.source not in (self.folder, new.source):
                shutil.rmtree(old.source, ignore_errors=True)  # processes that use it keep what they have mapped
            # A walk of the garbage collector over the words and tags of a model stops all answers for a tenth of a
            # second; it leaves out what is in memory now. An earlier model is collected first.
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            return True

    async def watch(self) -> None:
        """Load every new model that is saved into the folder."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._options.watch_seconds)
            if await loop.run_in_executor(self._loader, _files, self.folder) != self._seen:
                await self.reload()

    def _note(self, error: Exception) -> None:
        """Record a fault of the folder, and log it if it is new."""
        sentence = str(error) if isinstance(error, (TagwiseError, OSError)) else f"{type(error).__name__}: {error}"
        if str(self.folder) not in sentence:
            sentence = f"{self.folder}: {sentence}"
        if sentence != self.error:
            left = "nothing is served" if self.loaded is None else f"version {self.loaded.version} stays"
            log.error("%s: the folder does not load, %s: %s", self.name, left, sentence)
        self.error = sentence


def _files(folder: Path) -> list[tuple[object, ...]] | None:
    """Names, sizes, times and inodes of a folder's files: a new model changes them. None where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            stats = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return None
    return sorted((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats)
