"""Divide and conquer over labels (Algorithm 1 of REML): parts alone, their low ranks in the first one's space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
from joblib.externals.loky import get_reusable_executor

from tagwise.interrupts import raise_if_interrupted
from tagwise.kernels import CSRWithTranspose, dense_matmul, gram
from tagwise.models.leml.steps import Factors
from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas
from tagwise.persistence.fit_state import State, array, each, flag, real
from tagwise.problems.squared import weighed

__all__ = ["LearntParts", "Part", "map_parts", "project_onto_first", "random_parts"]

# Arrays above this size reach the processes as memory maps, one on disk for all of them.
_MAPPED_BYTES = 1 << 20
# Multiplications in a product of X with a part's factors; below it, a process costs more than it saves.
_WORTH_A_PROCESS = 1 << 27
# How often a fit that waits for processes looks for an interrupt.
_SECONDS_BETWEEN_LOOKS = 0.1


@dataclass(frozen=True)
class Part(State):
    """What was learnt from some labels alone.

    Attributes
    ----------
    labels : int array (m,)
        Their ids, rising.
    W, H, b : arrays (d, k), (m, k), (m,)
        The low rank.
    objective : float
        Equation 5 of these labels.
    converged : bool
    fall : float
        By how much the last round lowered the objective, over what the first one did.
    """

    labels: np.ndarray = array("L", dtype=np.int64)
    W: np.ndarray = array("d", "k")
    H: np.ndarray = array("L", "k")
    b: np.ndarray = array("L", dtype=np.float64)
    objective: float = real()
    converged: bool = flag()
    fall: float = real()


@dataclass(frozen=True)
class LearntParts(State):
    """The parts that are ready, in order."""

    parts: list[Part] = each(Part)

    def require_parts_of(self, ids: list[np.ndarray], rank: int) -> None:
        """Raise ValueError unless these are the first parts of labels that are dealt into ``ids``."""
        if not 1 <= len(self.parts) <= len(ids):
            raise ValueError(f"{len(self.parts)} parts of {len(ids)}")
        for part, labels in zip(self.parts, ids):
            if not np.array_equal(part.labels, labels) or part.W.shape[1] != min(rank, len(labels)):
                raise ValueError("a part has other labels, or another rank")


def random_parts(labels: np.ndarray, partitions: int, rng: np.random.Generator) -> list[np.ndarray]:
    """These labels in ``partitions`` random parts of about equal size; ids rise within a part."""
    return [np.sort(part) for part in np.array_split(rng.permutation(labels), partitions)]


def map_parts(
    learn: Callable[..., Part], tasks: Iterable[tuple[Any, ...]], *, n_parts: int, n_processes: int, work: float
) -> Iterator[Part]:
    """``learn(*task)`` for every part, results in order: where a cluster would put a map of its own.

    A task holds the matrix, what was prepared of it, and the labels of its part; what comes back is small. With several
    processes each works on one part at a time with one thread; large arrays are memory maps that all of them share.
    Where a part takes less time than handing it to a process (``work``: multiplications of a product), threads take
    their place. The result depends on neither.
    """
    if not n_parts:
        return
    if n_processes <= 1 or work < _WORTH_A_PROCESS:
        ready = list(tasks)
        for first, last in even_chunks(len(ready), max(1, n_processes)):
            yield from run_chunks(
                lambda place, _: learn(*ready[place]), [(i, i + 1) for i in range(first, last)], n_processes
            )
        return
    pool = joblib.Parallel(
        n_jobs=min(n_processes, n_parts),
        backend="loky",
        max_nbytes=_MAPPED_BYTES,
        # Copy on write: nobody writes, and compiled code has no second version for arrays that are read-only.
        mmap_mode="c",
        pre_dispatch="n_jobs",
        return_as="generator",
    )
    # A thread of its own waits for the processes: the calling one can be interrupted meanwhile.
    waiting, ended = ThreadPoolExecutor(1), False
    try:
        results = waiting.submit(pool, (joblib.delayed(learn)(*task) for task in tasks)).result()
        while not ended:
            answer = waiting.submit(next, results, None)
            while not wait([answer], timeout=_SECONDS_BETWEEN_LOOKS).done:
                raise_if_interrupted()
            part = answer.result()
            ended = part is None
            if part is not None:
                yield part
    finally:
        # Idle workers would keep their maps, and the files behind them, for minutes.
        get_reusable_executor().shutdown(wait=True, kill_workers=not ended)
        waiting.shutdown(wait=True)


def project_onto_first(
    X: CSRWithTranspose, parts: list[Part], intercept: np.ndarray, row_weight: np.ndarray | None = None
) -> Factors:
    """The scores XW_iH_iᵀ of all parts, projected onto the column space of XW_1: factors of one rank for all labels.

    With A = XW_1, part i becomes A·(AᵀA)⁺AᵀXW_i·H_iᵀ, whose label factors are H_i((AᵀA)⁺AᵀXW_i)ᵀ. Labels that are in
    no part have factors 0 and the intercepts given (L). Where rows have weights V, Aᵀ is AᵀV. Time O(nnz(X)k + nk²)
    per part.
    """
    threads = X.n_threads
    A = X.matmul(parts[0].W)
    with single_threaded_blas():
        weighted = A if row_weight is None else weighed(A.copy(), row_weight)
        inverse = np.linalg.pinv(gram(A, weighted, n_threads=threads), hermitian=True)
    b = intercept.astype(np.float64)
    H = np.zeros((len(b), A.shape[1]), dtype=A.dtype)
    for place, part in enumerate(parts):
        b[part.labels] = part.b
        if place == 0:
            H[part.labels] = part.H
            continue
        onto = inverse @ gram(weighted, X.matmul(part.W), n_threads=threads)
        H[part.labels] = dense_matmul(part.H, np.ascontiguousarray(onto.T, dtype=A.dtype), n_threads=threads)
    return Factors(W=parts[0].W, A=A, H=H, b=b)
