"""Divide and conquer over labels (Algorithm 1 of REML): parts in processes, low ranks in the first one's space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from joblib.externals.loky import get_reusable_executor

from tagwise.kernels import CSRWithTranspose, dense_matmul, gram
from tagwise.models.leml.steps import Factors
from tagwise.models.reml.alternation import Prepared, Settings, alternate
from tagwise.parallel import even_chunks, on_this_thread, run_chunks, single_threaded_blas
from tagwise.persistence.fit_state import State, array, each, flag, nested, real
from tagwise.problems.labels import TrainingLabels

__all__ = ["LearntParts", "Part", "learn_parts", "project_onto_first", "random_parts"]

# Arrays above this size reach the processes as memory maps, one on disk for all of them.
_MAPPED_BYTES = 1 << 20

# Multiplications in a product of X with a part's factors; below it, a process costs more than it saves.
_WORTH_A_PROCESS = 1 << 27
# H of a part only keeps the low rank from running after rare labels, and is thrown away: a coarse one does.
_SUPPORT_SHARE = 4


@dataclass(frozen=True)
class Part(State):
    """The labels of one part and what was learnt of them alone, without the sparse part and A."""

    labels: np.ndarray = array("L", dtype=np.int64)
    factors: Factors = nested(Factors)
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
            if not np.array_equal(part.labels, labels) or part.factors.W.shape[1] != min(rank, len(labels)):
                raise ValueError("a part has other labels, or another rank")


def random_parts(labels: np.ndarray, partitions: int, rng: np.random.Generator) -> list[np.ndarray]:
    """These labels in ``partitions`` random parts of about equal size; ids rise within a part."""
    return [np.sort(part) for part in np.array_split(rng.permutation(labels), partitions)]


def learn_parts(
    X: CSRWithTranspose,
    prepared: Prepared,
    labels: TrainingLabels,
    parts: list[np.ndarray],
    settings: Settings,
    seeds: list[int],
    *,
    n_processes: int,
) -> Iterator[Part]:
    """Equation 5 for each part alone, in order of the parts.

    With several processes every one works on a part at a time with one thread; X, its transpose and what was prepared
    of it are memory maps that all of them share. Where a part takes less time than handing it to a process, threads
    take their place. The result does not depend on either.
    """
    if not parts:
        return
    tasks = ((X, prepared, _of_labels(labels, ids), ids, settings, seed) for ids, seed in zip(parts, seeds))
    if n_processes <= 1 or X.matrix.nnz * settings.rank < _WORTH_A_PROCESS:
        ready = list(tasks)
        for first, last in even_chunks(len(ready), max(1, n_processes)):
            yield from run_chunks(
                lambda place, _: _learn(*ready[place]), [(i, i + 1) for i in range(first, last)], n_processes
            )
        return
    pool = joblib.Parallel(
        n_jobs=min(n_processes, len(parts)),
        backend="loky",
        max_nbytes=_MAPPED_BYTES,
        # Copy on write: nobody writes, and compiled code has no second version for arrays that are read-only.
        mmap_mode="c",
        pre_dispatch="n_jobs",
        return_as="generator",
    )
    try:
        yield from pool(joblib.delayed(_learn)(*task) for task in tasks)
    finally:
        # Idle workers would keep their maps, and the files behind them, for minutes.
        get_reusable_executor().shutdown(wait=True)


def _learn(
    X: CSRWithTranspose, prepared: Prepared, labels: TrainingLabels, ids: np.ndarray, settings: Settings, seed: int
) -> Part:
    objectives: list[float] = []

    def keep(objective: float, **more: Any) -> bool:
        objectives.append(objective)
        return False

    part_settings = replace(
        settings, rank=min(settings.rank, len(ids)), support=max(1, settings.support // _SUPPORT_SHARE)
    )
    with single_threaded_blas(), on_this_thread():
        learnt = alternate(X, prepared, labels, part_settings, seed, keep)
    # The embedding is made again where it is needed, and the sparse part is solved again for all labels together.
    factors = replace(learnt.factors, A=np.empty((0, part_settings.rank)))
    return Part(ids, factors, objectives[-1], learnt.converged, learnt.fall)


def _of_labels(labels: TrainingLabels, ids: np.ndarray) -> TrainingLabels:
    return TrainingLabels(
        positives=sp.csr_matrix(labels.positives[:, ids]),
        observed=None if labels.observed is None else sp.csr_matrix(labels.observed[:, ids]),
        positive_weight=None if labels.positive_weight is None else labels.positive_weight[ids],
        n_threads=labels.n_threads,
    )


def project_onto_first(X: CSRWithTranspose, parts: list[Part], intercept: np.ndarray) -> Factors:
    """The scores XW_iH_iᵀ of all parts, projected onto the column space of XW_1: factors of one rank for all labels.

    With A = XW_1, part i becomes A·(AᵀA)⁺AᵀXW_i·H_iᵀ, whose label factors are H_i((AᵀA)⁺AᵀXW_i)ᵀ. Labels that are in
    no part have factors 0 and the intercepts given (L). Time O(nnz(X)k + nk²) a part.
    """
    first = parts[0].factors
    threads = X.n_threads
    A = X.matmul(first.W)
    with single_threaded_blas():
        inverse = np.linalg.pinv(gram(A, n_threads=threads), hermitian=True)
    b = intercept.astype(np.float64)
    H = np.zeros((len(b), A.shape[1]), dtype=A.dtype)
    for place, part in enumerate(parts):
        factors = part.factors
        b[part.labels] = factors.b
        if place == 0:
            H[part.labels] = factors.H
            continue
        onto = inverse @ gram(A, X.matmul(factors.W), n_threads=threads)
        H[part.labels] = dense_matmul(factors.H, np.ascontiguousarray(onto.T, dtype=A.dtype), n_threads=threads)
    return Factors(W=first.W, A=A, H=H, b=b)
