"""The taggers of a server: each is loaded, warmed up, and replaced by a newer one while requests go on."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

import numpy as np

from tagwise.exceptions import InvalidInputError, ModelFormatError, TagwiseError
from tagwise.persistence.folder import MANIFEST_NAME, parse_manifest, read_manifest
from tagwise.persistence.loading import load
from tagwise.serving.batches import Batches, Question
from tagwise.serving.options import ServingOptions
from tagwise.serving.processes import ATTEMPTS, Calls, digits, missing, shared_copy
from tagwise.serving.tag_search import TagSearch
from tagwise.text.suggestion import Suggestion
from tagwise.text.tagger import Tagger
from tagwise.text.tags import has_entries

__all__ = ["Loaded", "ServedTagger", "Taggers"]

log = logging.getLogger("tagwise.serving")

# Words of a tagger that a text to warm it up is made of.
_WARM_WORDS = 20
# Seconds between two looks whether another process was asked to reload, and those that it waits for the others.
_LISTENING, _PATIENCE = 0.1, 60.0


@dataclass(frozen=True, eq=False)
class Loaded:
    """A tagger in memory; requests that began with it end with it."""

    tagger: Tagger
    version: str
    """The first digits of the manifest's SHA-256: the same model has the same version everywhere."""
    loaded_at: datetime
    saved_at: datetime
    names: dict[str, str] = field(default_factory=dict)
    """What tags are called, where they are ids."""
    explainable: bool = False
    """Whether the model can say which words speak for a tag."""
    probabilistic: bool = False
    """Whether suggestions have probabilities."""
    copied: Path | None = None
    """The copy of the folder that processes share."""

    @classmethod
    def from_folder(cls, folder: Path, shared: str | None = None) -> Loaded:
        """Read a folder and answer once, so that the first request finds everything compiled and in memory.

        With ``shared``, the tensors are mapped from a copy there, one for all processes: somebody who cuts off the
        file of a mapped model would end every process that uses it.
        """
        if shared is None:
            copied = None
            for _ in range(ATTEMPTS):
                version, tagger = manifest_version(folder), load(folder)
                if manifest_version(folder) == version:
                    break  # else a save came between the two
        else:
            for _ in range(ATTEMPTS):
                version, copied = shared_copy(folder, Path(shared))
                try:
                    tagger = load(copied, mapped=True)
                    break
                except ModelFormatError as error:
                    if copied.is_dir():  # else a process that has loaded a newer model has removed it
                        shutil.rmtree(copied, ignore_errors=True)
                        raise ModelFormatError(str(error).replace(str(copied), str(folder))) from None
            else:
                raise ModelFormatError(f"{folder} was replaced again and again while it was read.")
        saved_at = datetime.fromtimestamp((folder / MANIFEST_NAME).stat().st_mtime, timezone.utc)
        if not isinstance(tagger, Tagger):
            raise InvalidInputError(
                f"{folder} holds a {type(tagger).__name__}, which takes features, not texts; serve a tagger."
            )
        # One text takes less time than threads would take to start; larger batches share the machine with others.
        tagger.model_.n_jobs = 1
        words = tagger.features_.feature_names[:: max(1, len(tagger.features_.feature_names) // _WARM_WORDS)]
        text = " ".join(word for word in words if not word.startswith("char:"))
        tagger.suggest([text])
        has_words = explainable(tagger)
        if has_words:
            tagger.suggest([text, ""], explain=3)
        probabilistic = tagger.model_.probabilistic or tagger.calibration_ is not None
        names, now = {str(tag): name for tag, name in tagger.names_.items()}, datetime.now(timezone.utc)
        return cls(tagger, version, now, saved_at, names, has_words, probabilistic, copied)

    def answer(
        self, texts: list[str], question: Question, *, on_texts: Callable[[int, int], object]
    ) -> list[list[Suggestion]]:
        """Suggestions for texts; ``on_texts`` hears how many they are, and how many have no word that training saw.

        Tags that are numbers are written as text: answers come back as text too, and tables hold nothing else.
        """
        X = self.tagger.transform(texts)
        on_texts(len(texts), int(np.count_nonzero(~has_entries(X))))
        found = self.tagger.suggest_features(
            X, question.top, explain=question.explain, min_probability=question.min_probability
        )
        if isinstance(self.tagger.tags_[0], str):
            return found
        return [[replace(one, tag=str(one.tag)) for one in row] for row in found]

    @cached_property
    def search(self) -> TagSearch:
        """For finding a tag; made when first asked for."""
        return TagSearch(list(map(str, self.tagger.tags_)), self.names, self.tagger.training_["tag_rows"])


def explainable(tagger: Tagger) -> bool:
    """Whether the tagger can say which words speak for a tag."""
    try:
        tagger.words_of(tagger.tags_[0], 1)
    except TagwiseError:
        return False
    return True


def manifest_version(folder: Path) -> str:
    """Which model a folder holds; raises ModelFormatError or OSError where it holds none."""
    return digits(read_manifest(folder))


def _sentence(folder: Path, error: Exception) -> str:
    """What is wrong with a folder, which is named: the same sentence whoever finds it."""
    if not isinstance(error, (TagwiseError, OSError)):
        return f"{folder}: {type(error).__name__}: {error}"
    return str(error) if str(folder) in str(error) else f"{folder}: {error}"


def _files(folder: Path) -> list[tuple[object, ...]]:
    """What a change of a folder changes; empty where there is none."""
    try:
        with os.scandir(folder) as entries:
            stats = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return []
    return sorted((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats)


class ServedTagger:
    """A tagger under a name, with those who wait for its answers."""

    def __init__(self, name: str, folder: str, batches: Callable[[Loaded], Batches[Suggestion]]) -> None:
        self.name, self.folder = name, Path(folder)
        self._batches = batches
        self._loaded: Loaded | None = None
        self._asked: Batches[Suggestion] | None = None
        self.error: str | None = None
        """Why the model that is served is not the one that the folder holds now."""
        self._seen: list[tuple[object, ...]] | None = None
        self._reloading = asyncio.Lock()

    @property
    def loaded(self) -> Loaded | None:
        """What answers now."""
        return self._loaded

    async def ask(self, texts: list[str], question: Question) -> tuple[Loaded, list[list[Suggestion]]]:
        """The suggestions for each text, and what made them."""
        loaded, asked = self._loaded, self._asked
        assert loaded is not None
        assert asked is not None
        return loaded, await asked.ask(texts, question)

    async def reload(self, loader: ThreadPoolExecutor, shared: str | None = None) -> bool:
        """Load what the folder holds, and swap it in; False where it does not load. The old one then stays."""
        async with self._reloading:
            self._seen = _files(self.folder)
            try:
                new = await asyncio.get_running_loop().run_in_executor(loader, Loaded.from_folder, self.folder, shared)
            except Exception as error:
                self._note(_sentence(self.folder, error))
                return False
            old = self._loaded
            self._loaded, self._asked = new, self._batches(new)
            self.error = None
            log.info("%s: serving version %s, %d tags.", self.name, new.version, len(new.tagger.tags_))
            if old is not None and old.copied is not None and old.copied != new.copied:
                shutil.rmtree(old.copied, ignore_errors=True)  # processes that use it keep what they have mapped
            return True

    def changed(self) -> bool:
        """Whether the folder holds something else than when it was last looked at, and not what is served."""
        files = _files(self.folder)
        if files == self._seen:
            return False
        self._seen = files
        try:
            manifest = read_manifest(self.folder)
            if self._loaded is None or digits(manifest) != self._loaded.version:
                return True
            payload = parse_manifest(manifest)["payload"]
            found = 0 if payload is None else (self.folder / payload["file"]).stat().st_size
        except FileNotFoundError as error:  # somebody deletes the folder just now, or one of its files
            self._note(missing(self.folder, error))
            return False
        except (OSError, ModelFormatError) as error:
            self._note(_sentence(self.folder, error))
            return False
        if payload is not None and found != payload["size"]:
            self._note(f"{self.folder}: {payload['file']} has {found:,} bytes instead of {payload['size']:,}.")
        elif self.error is not None:
            self.error = None
            log.info("%s: the folder holds the model that is served again.", self.name)
        return False

    def _note(self, error: str) -> None:
        """Keep what is wrong with the folder, and log it unless it was wrong before."""
        if error != self.error:
            left = "nothing is served" if self._loaded is None else f"version {self._loaded.version} stays"
            log.error("%s: the folder does not load, %s: %s", self.name, left, error)
        self.error = error


class Taggers:
    """All taggers of a server by their names."""

    def __init__(
        self, served: Iterable[ServedTagger], options: ServingOptions, on_load: Callable[[ServedTagger], None]
    ) -> None:
        self.by_name = {one.name: one for one in served}
        self._options, self._on_load = options, on_load
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="tagwise-load")
        self._watchers: list[asyncio.Task[None]] = []
        self._calls: dict[str, Calls] = {}

    async def start(self) -> None:
        """Load all, and begin to look for newer ones."""
        if self._options.shared is not None:
            self._calls = {name: Calls(self._options.shared, name) for name in self.by_name}
        for name in self.by_name:
            await self._load(name)
        if self._options.watch_seconds > 0:
            self._watchers.append(asyncio.create_task(self._watch()))
        if self._calls:
            self._watchers.append(asyncio.create_task(self._listen()))

    async def stop(self) -> None:
        """End what runs."""
        for watcher in self._watchers:
            watcher.cancel()
        for calls in self._calls.values():
            calls.close()
        self._loader.shutdown(wait=False, cancel_futures=True)

    async def reload(self, name: str) -> str | None:
        """Load one again in all processes, whether it has changed or not; returns why that failed, if it did."""
        if not await self._load(name):
            return f"The model does not load, and the old one stays: {self.by_name[name].error}"
        problem = await self._calls[name].ask_all(_PATIENCE) if self._calls else None
        return problem and f"This process has loaded the model, but {problem}"

    async def _load(self, name: str) -> bool:
        served = self.by_name[name]
        done = await served.reload(self._loader, self._options.shared)
        if done:
            self._on_load(served)
            _settle()
        return done

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._options.watch_seconds)
            for one in self.by_name.values():
                try:
                    if await loop.run_in_executor(self._loader, one.changed):
                        await self._load(one.name)
                except Exception:  # whatever it is, the next look may find a good model
                    log.exception("%s: the folder could not be looked at.", one.name)

    async def _listen(self) -> None:
        """Load what other processes were asked to load again."""
        while True:
            await asyncio.sleep(_LISTENING)
            for name, calls in self._calls.items():
                try:
                    if calls.waits:
                        number = calls.latest
                        calls.answer(number, await self._load(name))
                except Exception:
                    log.exception("%s: a call to load it again could not be answered.", name)


def _settle() -> None:
    """Take what is in memory now, a model's words and tags above all, out of the garbage collector's walks.

    A walk over a million objects stops all answers for a tenth of a second. What is no longer needed of an earlier
    model is collected first.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
