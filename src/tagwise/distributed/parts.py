"""Training data in parts: what users give, checked where it is, and the shards that models learn from."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from dask.sizeof import sizeof
from distributed import Future

from tagwise.base import MultiLabelModel
from tagwise.distributed.cluster import RETRIES, Cluster
from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.kernels import CSRWithTranspose, unit_rows
from tagwise.losses import Loss
from tagwise.parallel import single_threaded_blas, thread_count
from tagwise.problems.labels import KnownCounts, TrainingLabels, known_positives
from tagwise.problems.pair_losses import PairLoss, label_side, row_side
from tagwise.problems.squared import LinearScores, SquaredTerms
from tagwise.solvers.support import SupportRidge
from tagwise.validation import (
    check_features,
    check_labels,
    check_observed,
    check_sample_weight,
    shape_text,
)

__all__ = ["Part", "PartFacts", "Shard", "TrainingParts", "listed", "task"]

# Of arrays that numpy allocates.
_ALIGNMENT = 16

_Function = TypeVar("_Function", bound=Callable[..., Any])


def task(function: _Function) -> _Function:
    """A function that workers run: with the threads that it asks for and no others, so that workers do not crowd.

    Its arguments are made what they would be on one machine (:func:`owned`).
    """

    @wraps(function)
    def run(*arguments: Any) -> Any:
        with single_threaded_blas():
            return function(*(owned(argument) for argument in arguments))

    return run  # type: ignore[return-value]


def owned(value: Any) -> Any:
    """The value with its arrays in memory of their own, where they are parts of a message.

    What a worker receives from another is read-only and may begin at any byte. Compiled code has a version of its own
    for such arrays, whose last bits can differ; a result must not depend on where its arguments came from.
    """
    if isinstance(value, np.ndarray):
        good = value.flags.writeable and value.flags.aligned and value.ctypes.data % _ALIGNMENT == 0
        return value if good else value.copy()
    if sp.issparse(value):
        arrays = [(name, getattr(value, name)) for name in ("data", "indices", "indptr")]
        for name, array in arrays:
            setattr(value, name, owned(array))
        return value
    if isinstance(value, (tuple, list)):
        items = [owned(item) for item in value]
        if all(new is old for new, old in zip(items, value)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if type(value).__module__.startswith("tagwise."):
        for name, item in list(getattr(value, "__dict__", {}).items()):
            value.__dict__[name] = owned(item)
    return value


def held_bytes(value: Any) -> int:
    """The bytes of all arrays that a value holds; Dask places and spills by what it takes this number to be."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if sp.issparse(value):
        return sum(getattr(value, name).nbytes for name in ("data", "indices", "indptr"))
    if isinstance(value, (tuple, list)):
        return sum(map(held_bytes, value))
    if type(value).__module__.startswith("tagwise."):
        return sum(map(held_bytes, list(getattr(value, "__dict__", {}).values())))
    return 0


class Part(NamedTuple):
    """Rows of a data set: features (n, d), labels and mask (n, L), weights (n,); the last two may be None."""

    X: sp.csr_matrix
    Y: sp.csr_matrix
    observed: sp.csr_matrix | None
    weight: np.ndarray | None

    def of(self, rows: np.ndarray) -> Part:
        """Some of the rows."""
        observed = None if self.observed is None else self.observed[rows]
        return Part(self.X[rows], self.Y[rows], observed, None if self.weight is None else self.weight[rows])


class PartFacts(NamedTuple):
    """What the client knows of a part."""

    n_rows: int
    n_features: int
    n_labels: int
    n_positives: int
    n_known: int | None
    n_bytes: int
    dtype: str
    digest: bytes


@dataclass(frozen=True)
class TrainingParts:
    """The parts of a data set on a cluster, and what the client knows of them."""

    cluster: Cluster
    parts: list[Future]
    facts: list[PartFacts]

    @classmethod
    def gather(cls, cluster: Cluster, X: Any, Y: Any, observed: Any = None, sample_weight: Any = None) -> TrainingParts:
        """Check the data on the workers that have it. Parts stay where they are; only facts come to the client."""
        given = {"X": listed(X, "X"), "Y": listed(Y, "Y")}
        if observed is not None:
            given["observed"] = listed(observed, "observed")
        if sample_weight is not None:
            given["sample_weight"] = listed(sample_weight, "sample_weight")
        n_parts = len(given["X"])
        for name, parts in given.items():
            if len(parts) != n_parts:
                raise InvalidInputError(
                    f"{name} has {len(parts)} parts where X has {n_parts}; give each part of the rows once in each."
                )
        if not n_parts:
            raise InvalidInputError("X has no parts; give at least one.")
        futures = {name: _futures(cluster, parts) for name, parts in given.items()}
        rows = zip(
            futures["X"],
            futures["Y"],
            futures.get("observed", [None] * n_parts),
            futures.get("sample_weight", [None] * n_parts),
        )
        with warnings.catch_warnings():
            # Dask warns of parts that come from the client's memory: small data, or a user's choice.
            warnings.filterwarnings("ignore", "Sending large graph")
            parts = [cluster.submit(checked_part, number, *row) for number, row in enumerate(rows)]
        facts = cluster.map(facts_of_part, parts, True)
        _require_same_columns(facts)
        if not any(fact.n_rows for fact in facts):
            raise InvalidInputError("X has no rows in any of its parts.")
        whole = cls(cluster, parts, facts)
        if observed is not None and sum(fact.n_known or 0 for fact in facts) == whole.n_rows * whole.n_labels:
            return cls(cluster, cluster.stored(without_mask, parts), [fact._replace(n_known=None) for fact in facts])
        return whole

    @property
    def n_rows(self) -> int:
        """Rows in all parts."""
        return sum(fact.n_rows for fact in self.facts)

    @property
    def n_features(self) -> int:
        """Of every part."""
        return self.facts[0].n_features

    @property
    def n_labels(self) -> int:
        """Of every part."""
        return self.facts[0].n_labels

    @property
    def dtype(self) -> np.dtype:
        """The type that all parts are learnt in."""
        return np.result_type(*(fact.dtype for fact in self.facts if fact.n_rows))

    @property
    def starts(self) -> np.ndarray:
        """Where each part begins among all rows, and their end."""
        return np.concatenate([[0], np.cumsum([fact.n_rows for fact in self.facts])])

    def digests(self) -> np.ndarray:
        """What tells this data, in these parts, from any other; of parts as they were gathered."""
        return np.frombuffer(b"".join(fact.digest for fact in self.facts), dtype=np.uint8)

    def only_positives_known(self) -> bool:
        """Whether no label is known to be off in any row."""
        known = [fact.n_known for fact in self.facts]
        return None not in known and known == [fact.n_positives for fact in self.facts]

    def label_counts(self) -> np.ndarray:
        """Known positives of each label (L), in rows."""
        return self.cluster.sum(positive_counts, self.parts)

    def of(self, rows: np.ndarray) -> TrainingParts:
        """Some of all rows, rising, in as many parts; some of these may be empty."""
        starts = self.starts
        inside = [rows[(rows >= a) & (rows < b)] - a for a, b in pairwise(starts)]
        parts = [self.cluster.submit(rows_of_part, part, own) for part, own in zip(self.parts, inside)]
        return TrainingParts(self.cluster, parts, self.cluster.map(facts_of_part, parts, False))

    def without(self, rows: np.ndarray) -> TrainingParts:
        """All other rows."""
        return self.of(np.setdiff1d(np.arange(self.n_rows), rows))

    def at_the_client(self) -> Part:
        """All rows in one part here: for few rows."""
        parts = self.cluster.gathered(self.parts)
        return Part(*(None if column[0] is None else _stacked(column) for column in zip(*parts)))


def _stacked(blocks: Sequence[Any]) -> Any:
    return np.concatenate(blocks) if isinstance(blocks[0], np.ndarray) else sp.vstack(blocks, format="csr")


def listed(parts: Any, name: str) -> list[Any]:
    """The parts that a user gave: a list of them, or a Dask array in blocks of rows."""
    if hasattr(parts, "to_delayed"):
        blocks = parts.to_delayed()
        if blocks.ndim == 2 and blocks.shape[1] != 1:
            raise InvalidInputError(
                f"{name} is a Dask array whose rows are cut into {blocks.shape[1]} blocks of columns; rechunk it to "
                "one: rechunk({1: -1})."
            )
        return list(blocks.ravel())
    if isinstance(parts, (list, tuple)):
        return list(parts)
    raise InvalidTypeError(
        f"{name} must be a list of parts (matrices, delayed ones or futures) or a Dask array; found "
        f"{type(parts).__name__}. For data in the memory of one machine, use the model's own fit."
    )


def _futures(cluster: Cluster, parts: list[Any]) -> list[Any]:
    """Parts as futures; what is in the client's memory travels with the task that checks it."""
    lazy = [place for place, part in enumerate(parts) if hasattr(part, "__dask_graph__")]
    out = list(parts)
    if lazy:
        for place, future in zip(lazy, cluster.client.compute([parts[place] for place in lazy], retries=RETRIES)):
            out[place] = future
    return out


def _require_same_columns(facts: Sequence[PartFacts]) -> None:
    for name, field in (("features", "n_features"), ("labels", "n_labels")):
        sizes = [getattr(fact, field) for fact in facts]
        other = next((place for place, size in enumerate(sizes) if size != sizes[0]), None)
        if other is not None:
            raise InvalidInputError(
                f"Part {other} has {sizes[other]:,} {name} where part 0 has {sizes[0]:,}; give all parts the same "
                "columns."
            )


# ---------------------------------------------------------------------- what workers run


@task
def checked_part(number: int, X: Any, Y: Any, observed: Any, weight: Any) -> Part:
    """A part as the user gave it, checked; rows that weigh nothing are left out."""
    try:
        if X.shape[0] == 0:
            dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)
            mask = None if observed is None else sp.csr_matrix(Y.shape, dtype=dtype)
            weights = None if weight is None else np.zeros(0)
            return Part(sp.csr_matrix(X.shape, dtype=dtype), sp.csr_matrix(Y.shape, dtype=dtype), mask, weights)
        features = sp.csr_matrix(check_features(X))
        labels = check_labels(Y, n_rows=features.shape[0])
        mask = None if observed is None else check_observed(observed, shape=labels.shape, may_be_empty=True)
        part = Part(features, labels, mask, None)
        if weight is None:
            return part
        weights = np.asarray(weight, dtype=np.float64)
        if weights.any() or weights.shape != (labels.shape[0],):
            weights = check_sample_weight(weight, labels.shape[0])
        return part._replace(weight=weights).of(np.flatnonzero(weights))
    except (InvalidInputError, InvalidTypeError) as error:
        raise type(error)(f"Part {number}: {error}") from None


@task
def facts_of_part(part: Part, with_digest: bool) -> PartFacts:
    """See :class:`PartFacts`."""
    known = None if part.observed is None else int(part.observed.nnz)
    n_positives = int(known_positives(part.Y, part.observed).nnz)
    n_bytes = part.X.data.nbytes + part.X.indices.nbytes
    sizes = part.X.shape[0], part.X.shape[1], part.Y.shape[1], n_positives, known, n_bytes
    return PartFacts(*sizes, str(part.X.dtype), _digest(part) if with_digest else b"")


def _digest(part: Part) -> bytes:
    digest = hashlib.sha256()
    for matrix in (part.X, part.Y, part.observed):
        if matrix is not None:
            for array in (matrix.indptr, matrix.indices, matrix.data):
                digest.update(np.ascontiguousarray(array).data)
        digest.update(b"none" if matrix is None else shape_text(matrix.shape).encode())
    if part.weight is not None:
        digest.update(part.weight.data)
    return digest.digest()


@task
def without_mask(part: Part) -> Part:
    """The part with all of its labels known."""
    return part._replace(observed=None)


@task
def rows_of_part(part: Part, rows: np.ndarray) -> Part:
    """Some of its rows."""
    return part.of(rows)


@task
def positive_counts(part: Part) -> np.ndarray:
    """Known positives of each label (L)."""
    return np.bincount(known_positives(part.Y, part.observed).indices, minlength=part.Y.shape[1])


# ---------------------------------------------------------------------- shards


@dataclass(frozen=True)
class Shard:
    """A part of the rows as a model of factors reads it; what follows from it is made once, where it is."""

    X: CSRWithTranspose
    labels: TrainingLabels

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the transpose, which would double what is sent and spilled and is quickly made again.
        return _shard_of_rows, (self.X.matrix, self.X.n_threads, self.labels)

    @classmethod
    def of(cls, part: Part, positive_weight: np.ndarray | None, *, normalize: bool, dtype: Any, n_jobs: Any) -> Shard:
        """The part with rows of unit length, if they are to be."""
        threads = thread_count(n_jobs)
        rows = part.X.astype(dtype, copy=False)
        rows = sp.csr_matrix(unit_rows(rows, n_threads=threads)) if normalize else rows
        labels = TrainingLabels.build(
            part.Y, part.observed, positive_weight, dtype=dtype, n_threads=threads, row_weight=part.weight
        )
        return cls(CSRWithTranspose(rows, n_threads=threads), labels)

    @cached_property
    def terms(self) -> SquaredTerms:
        """Of squared loss."""
        return SquaredTerms.build(self.labels)

    def terms_beside(self, S: sp.csr_matrix | None, offset: float) -> SquaredTerms:
        """Of squared loss, beside fixed scores XS + offset."""
        if S is None:
            return self.terms
        return self.terms.around(LinearScores(self.X, S, offset=offset, n_threads=self.X.n_threads))

    def row_side(self, loss: Loss) -> PairLoss:
        """Of another loss, seen from the rows."""
        return self.kept(f"rows {loss.name}", lambda: row_side(self.labels, loss))

    def label_side(self, loss: Loss) -> PairLoss:
        """Of another loss, seen from the labels."""
        return self.kept(f"labels {loss.name}", lambda: label_side(self.labels, loss))

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make`` makes, once."""
        if name not in self.__dict__:
            self.__dict__[name] = make()
        return self.__dict__[name]


def _shard_of_rows(X: sp.csr_matrix, n_threads: int, labels: TrainingLabels) -> Shard:
    return Shard(CSRWithTranspose(X, n_threads=n_threads), labels)


for _kind in (Shard, SupportRidge, MultiLabelModel):
    sizeof.register(_kind, held_bytes)


@task
def shard_of_part(part: Part, positive_weight: np.ndarray | None, normalize: bool, dtype: Any, n_jobs: Any) -> Shard:
    """See :class:`Shard`."""
    return Shard.of(part, positive_weight, normalize=normalize, dtype=dtype, n_jobs=n_jobs)


@task
def known_counts(shard: Shard) -> KnownCounts:
    """How many rows are known of each label, and on."""
    return shard.labels.counts()
