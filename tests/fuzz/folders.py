"""Targets: model folders and checkpoints of strangers, loaded and asked; all digests fit what is in them.

A folder is one input: its files joined. Mutations know the format, as a forger would: they change JSON values by type,
the numbers of tensors to extremes, types, shapes and offsets, and then make sizes and digests right again. What loads
must answer with finite scores of labels that exist.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import scipy.sparse as sp
from safetensors.numpy import load, save

import tagwise
from tagwise.baselines import SLEEC, WSABIE, FastXML
from tagwise.exceptions import TagwiseWarning
from tagwise.store import Checkpoint
from tests.fuzz.mutation import mutate
from tests.fuzz.targets import Target, join_files, split_files

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
MANIFEST = "manifest.json"
ZEROS = "0" * 64
DTYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint64", "bool")


# ---------------------------------------------------------------------- a folder in parts


class Parts:
    """The manifest as JSON, and the stored arrays; written again with right digests."""

    def __init__(self, joined: bytes) -> None:
        files = split_files(joined)
        self.manifest = json.loads(files[MANIFEST])
        payload = self.manifest["payload"]
        self.file = None if payload is None else payload["file"]
        self.arrays: dict[str, np.ndarray] = {} if self.file is None else load(files[self.file])

    def joined(self, damage: Callable[[bytes], bytes] = lambda header: header) -> bytes:
        """As an input again; ``damage`` changes the header of the tensors' file."""
        raw = save(self.arrays)
        (length,) = struct.unpack("<Q", raw[:8])
        header = damage(raw[8 : 8 + length])
        raw = struct.pack("<Q", len(header)) + header + raw[8 + length :]
        payload = self.manifest.get("payload")
        files = {}
        if isinstance(payload, dict) and self.file is not None:
            payload["size"], payload["sha256"] = len(raw), hashlib.sha256(raw).hexdigest()
            files[self.file] = raw
        return join_files({MANIFEST: sealed(self.manifest), **files})


def sealed(manifest: Any) -> bytes:
    """The text of a manifest with its own digest."""
    if isinstance(manifest, dict) and "sha256" in manifest:
        manifest = {**manifest, "sha256": ZEROS}
    try:
        text = json.dumps(manifest)
    except RecursionError:
        return b"[" * 100_000
    raw = text.encode("utf-8", "surrogatepass")
    return raw.replace(ZEROS.encode(), hashlib.sha256(raw).hexdigest().encode(), 1)


# ---------------------------------------------------------------------- mutations


def mutate_folder(random: Random, content: bytes, other: bytes) -> bytes:
    """One to four changes with right digests; one in ten damages bytes instead."""
    if random.random() < 0.1:
        return mutate(random, content, other)
    parts, others = Parts(content), Parts(other)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice(_CHANGES)(random, parts, others)
    if random.random() < 0.05:
        return parts.joined(lambda header: mutate(random, header, header))
    return parts.joined()


_HUGE = (2**31, 2**40, 2**63 - 1, 2**63, 2**64, 2**64 - 1, 10**12, 10**30, -1, -(2**63), 0, 1, 2, 3)
_REALS = (1e308, -1e308, 1e38, 1e-308, 5e-324, 0.0, -0.0, -1.0, 0.5, 1e300, math.nan, math.inf, 1e19, 3.4e38)
_TEXTS = ("", "x", "\ud800", "../../x", "a" * 5000, "auto", "rbf", "linear", "poly", "propensity", "dense", "<f2", "O")


def _value(random: Random, old: Any) -> Any:
    """A value in the place of another: of its type, or of another type."""
    if isinstance(old, bool):
        likely: Any = not old
    elif isinstance(old, int):
        likely = random.choice((*_HUGE, old + 1, old - 1, -old, old * 1000))
    elif isinstance(old, float):
        likely = random.choice((*_REALS, -old, old * 1e30, old * 1e-30))
    elif isinstance(old, str):
        likely = random.choice((*_TEXTS, old + "x", old[:-1], old.upper()))
    elif isinstance(old, list):
        likely = random.choice(([], old * 2, old[:-1], old[1:], [old], old[::-1], [0] * 3))
    else:
        likely = random.choice((None, {}, [], 0, "x"))
    if random.random() < 0.6:
        return likely
    nested: Any = 1
    for _ in range(random.choice((1, 3, 70, 300))):
        nested = [nested] if random.random() < 0.5 else {"a": nested}
    tagged = ({"$float": "nan"}, {"$float": "-inf"}, {"$array": "intercept_"}, {"$array": 0}, {"$other": 1})
    return random.choice((None, True, False, 0, 1.5, "x", [], {}, nested, *_HUGE, *_REALS, *_TEXTS, *tagged))


def _places(value: Any, depth: int = 0) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a JSON value; of long lists a few."""
    if depth > 8:
        return []
    keys: Any = list(value) if isinstance(value, dict) else range(min(len(value), 5)) if isinstance(value, list) else ()
    found = []
    for key in keys:
        found.append((value, key))
        found += _places(value[key], depth + 1)
    return found


def _change_json(random: Random, parts: Parts, others: Parts) -> None:
    # Parameters and values decide what a prediction does; the rest is compared with the tensors.
    roots = ["parameters", "values"] * 4 + ["label_names", "class", "payload", "format_version"]
    root = random.choice([key for key in roots if key in parts.manifest] or [None])
    places = [] if root is None else [(parts.manifest, root), *_places(parts.manifest[root])]
    if not places:
        return
    container, key = random.choice(places[1:] or places)
    what = random.random()
    if what < 0.75:
        container[key] = _value(random, container[key])
    elif what < 0.85:
        del container[key]
    elif isinstance(container, dict):
        container[random.choice(("extra", "", "$x", "n_labels_", "W"))] = _value(random, container[key])
    else:
        container.insert(0, _value(random, container[key]))


def _take_json(random: Random, parts: Parts, others: Parts) -> None:
    """Values, parameters or the class of another folder."""
    key = random.choice(("class", "parameters", "values", "label_names"))
    if key in others.manifest:
        parts.manifest[key] = json.loads(json.dumps(others.manifest[key]))


def _change_array(random: Random, parts: Parts, others: Parts) -> None:
    """Another array, none, one more, or other numbers, another type or shape in the place of an array."""
    if not parts.arrays:
        return
    name = random.choice(sorted(parts.arrays))
    array = parts.arrays[name].copy()
    change = random.choice(("numbers",) * 6 + ("type", "shape", "taken", "lost", "more"))
    if change == "numbers" and array.size:
        _change_numbers(random, array)
    elif change == "type":
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = array.astype(random.choice(DTYPES))
    elif change == "shape" and array.ndim:
        changed = [array[:-1], array[1:], np.concatenate([array, array[:1]]), array[:0], array.T, array.reshape(-1)]
        changed += [array[None], array[..., None], array[::-1], np.repeat(array, 3, axis=0)]
        array = np.ascontiguousarray(random.choice(changed))
    elif change == "shape":
        array = array.reshape(1)
    elif change == "taken" and others.arrays:
        array = others.arrays[random.choice(sorted(others.arrays))]
    parts.arrays[f"{name}x" if change == "more" else name] = array
    if change == "lost":
        del parts.arrays[name]


def _change_numbers(random: Random, array: np.ndarray) -> None:
    """One, some or all of them, to extremes."""
    flat = array.reshape(-1)
    count = random.choice((1, 1, 2, len(flat), max(1, len(flat) // 2)))
    where = [random.randrange(len(flat)) for _ in range(count)] if count < len(flat) else slice(None)
    if array.dtype.kind == "f":
        most = float(np.finfo(array.dtype).max)
        tiny = float(np.finfo(array.dtype).smallest_subnormal)
        choices = (math.nan, math.inf, -math.inf, 1e38, -1e38, most, -most, tiny, 0.0, -0.0, 1e19, 1e30, -1e30, 1e-30)
        with np.errstate(over="ignore"):
            if count < len(flat) or random.random() < 0.3:
                flat[where] = random.choice(choices)
            else:
                signs = np.array([random.choice((1, -1)) for _ in flat])
                flat[:] = signs * random.choice((1e38, 1e30, 1e19, most, tiny))
    elif array.dtype == bool:
        flat.view(np.uint8)[where] = random.choice((0, 1, 2, 255))
    else:
        limits = np.iinfo(array.dtype)
        numbers = (-1, -2, -7, 0, 1, 2, 5, 100, 10**6, 2**31 - 1, 2**31, limits.max, limits.min, limits.max - 1)
        flat[where] = random.choice([number for number in numbers if limits.min <= number <= limits.max])


_CHANGES = (*[_change_json] * 8, _take_json, *[_change_array] * 10)


# ---------------------------------------------------------------------- loading and asking


def _written(content: bytes, folder: Path) -> Path:
    path = folder / "model"
    path.mkdir()
    for name, raw in split_files(content).items():
        if name == MANIFEST or (name.startswith("model-") and "\0" not in name):
            (path / name).write_bytes(raw)
    return path


def _quietly(run: Callable[[bytes, Path], object]) -> Callable[[bytes, Path], None]:
    """Warnings of tagwise's are its answers; one of numpy's would have escaped."""

    def quiet(content: bytes, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("ignore", TagwiseWarning)
            run(content, folder)

    return quiet


def _rows() -> sp.csr_matrix:
    return _problem()[0][:3]


def _ask(asked: Any, rows: sp.csr_matrix, n_labels: int) -> None:
    k = min(3, n_labels)
    for given in (rows, rows[:1]):
        labels, scores = asked.predict_topk(given, k)
        assert labels.shape == scores.shape == (given.shape[0], k)
        assert ((labels >= 0) & (labels < n_labels)).all(), f"labels {labels}"
        assert np.isfinite(scores).all(), f"scores {scores}"


def use(model: Any) -> None:
    """What was loaded answers, with finite scores of labels that exist."""
    rows = _rows()
    if model.n_features_in_ != rows.shape[1]:
        rows = sp.csr_matrix((3, model.n_features_in_), dtype=np.float32)
        rows[:, 0] = 1.0
    n_labels = model.n_labels_
    _ask(model, rows, n_labels)
    if n_labels <= 10_000:
        assert np.isfinite(model.decision_function(rows)).all()
        assert model.predict(rows).shape == (3, n_labels)


@_quietly
def _load(content: bytes, folder: Path) -> None:
    model = tagwise.load(_written(content, folder))
    if isinstance(model, tagwise.Tagger):
        texts = ["a text with some words about the database", ""]
        for suggested in model.suggest(texts, top=2):
            assert all(math.isfinite(found.score) for found in suggested)
        return
    use(model)


def _folder_bytes(path: Path) -> bytes:
    return join_files({file.name: file.read_bytes() for file in sorted(path.iterdir())})


@cache
def _makers() -> dict[str, list[Callable[[], Any]]]:
    """Class → makers of the models whose folders are mutated: those of the contract tests, and updatable ones."""
    from contract_models import MAKERS

    found: dict[str, list[Callable[[], Any]]] = {"Tagger": [lambda: tagwise.Tagger("binary-relevance")]}
    for make in MAKERS:
        makers = found.setdefault(make.name.partition("-")[0], [])
        makers.append(make)
        if "updatable" in make.parameters and len(makers) == 1:
            makers.append(partial(make, updatable=True))
    found["MSE"].append(partial(found["MSE"][0], reg="auto", threshold="auto"))
    return found


def _model_seeds(class_name: str) -> Callable[[], list[bytes]]:
    """Folders of fitted models of a class; those of a cascade also with names of its labels."""

    def seeds() -> list[bytes]:
        X, Y = _problem()
        names = sp.csr_matrix(np.random.default_rng(0).random(Y.T.shape[:1] + X.shape[1:]) < 0.2, dtype=np.float32)
        data: list[Any] = [(X, Y, {})]
        if class_name == "Cascade":
            data.append((X, Y, {"label_features": names}))
        elif class_name == "Tagger":
            texts = ["the database of a server", "a game of cards", "the database and its server", "words of a game"]
            data = [(texts * 5, [["data", "net"], ["game"], ["data"], ["game", "text"]] * 5, {})]
        with tempfile.TemporaryDirectory() as temporary, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number, (make, (rows, labels, more)) in enumerate(product(_makers()[class_name], data)):
                make().fit(rows, labels, **more).save(Path(temporary) / str(number))
            return [_folder_bytes(path) for path in sorted(Path(temporary).iterdir())]

    return seeds


# ---------------------------------------------------------------------- checkpoints

FITS: dict[str, tuple[type, dict[str, Any]]] = {
    "leml": (tagwise.LEML, {"rank": 2, "max_iter": 3, "tol": 1e-9}),
    "reml": (tagwise.REML, {"rank": 2, "support": 4, "sparse_part": "support", "max_iter": 3, "tol": 1e-9}),
    "cascade": (tagwise.Cascade, {"rank": 2, "support": 4, "shortlist": 4, "max_iter": 2}),
    "wsabie": (WSABIE, {"rank": 2, "max_iter": 3}),
    "fastxml": (FastXML, {"n_trees": 3}),
    "sleec": (SLEEC, {"rank": 2, "n_learners": 2, "n_clusters": 1, "label_neighbors": 4}),
    "binary-relevance": (tagwise.BinaryRelevance, {"loss": "logistic", "max_iter": 5}),
}


@cache
def _problem() -> tuple[sp.csr_matrix, sp.csr_matrix]:
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(sp.random(30, 8, 0.4, random_state=1, dtype=np.float32))
    return X, sp.csr_matrix((X @ rng.standard_normal((8, 5)) > 0.5).astype(np.float32))


def _new_model(name: str) -> Any:
    model_class, settings = FITS[name]
    return model_class(**settings)


def _checkpoint_seeds(name: str) -> Callable[[], list[bytes]]:
    def seeds() -> list[bytes]:
        found: list[bytes] = []
        with tempfile.TemporaryDirectory() as temporary, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = Path(temporary) / "checkpoint"

            def keep(iteration: int, info: Any) -> None:
                if (path / MANIFEST).exists():
                    found.append(_folder_bytes(path))

            _new_model(name).fit(*_problem(), callback=keep, checkpoint=Checkpoint(path))
            found.append(_folder_bytes(path))
        return [state for state in found if json.loads(split_files(state)[MANIFEST])["values"]["kept"]]

    return seeds


def _resume(name: str) -> Callable[[bytes, Path], None]:
    @_quietly
    def run(content: bytes, folder: Path) -> None:
        model = _new_model(name).fit(*_problem(), checkpoint=Checkpoint(_written(content, folder)))
        labels, scores = model.predict_topk(_problem()[0], 2)
        assert ((labels >= 0) & (labels < 5)).all()
        assert np.isfinite(scores).all()

    return run


# A folder takes fifty times as long as a line of text: in the runs of all targets they have fewer inputs.
TARGETS = [
    Target(f"folder-{name.lower()}", _model_seeds(name), _load, share=0.02, mutate=mutate_folder) for name in _makers()
]
TARGETS += [
    Target(f"checkpoint-{name}", _checkpoint_seeds(name), _resume(name), share=0.005, mutate=mutate_folder)
    for name in FITS
]
