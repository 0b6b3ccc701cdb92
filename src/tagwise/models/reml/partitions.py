"""Divide and conquer over labels (Algorithm 1 of REML): parts in processes, low ranks in the first one's space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import scipy.sparse as sp
from joblib.externals.loky import get_reusable_executor

from tagwise.kernels import CSRWithTranspose, dense_matmul, gram
from tagwise.models.leml.steps import Factors
from tagwise.models.reml.alternation import LowRankAndSparse, Prepared, Settings, alternate
from tagwise.parallel import even_chunks, on_this_thread, run_chunks, single_threaded_blas
from tagwise.problems.labels import TrainingLabels
from tagwise.validation import check_flag, check_real

if TYPE_CHECKING:
    from tagwise.persistence.checkpoints import SavedState

__all__ = ["LearntParts", "Part", "learn_parts", "project_onto_first", "random_parts"]

# Arrays above this size reach the processes as memory maps, one on disk for all of them.
_MAPPED_BYTES = 1 << 20

# Multiplications in a product of X with a part's factors; below it, a process costs more than it saves.
_WORTH_A_PROCESS = 1 << 27
# H of a part only keeps the low rank from running after rare labels, and is thrown away: a coarse one does.
_SUPPORT_SHARE = 4


@dataclass(frozen=True)
class Part:
    """The labels of one part, and what was learnt of them alone."""

    labels: np.ndarray
    learnt: LowRankAndSparse
    objective: float


@dataclass(frozen=True)
class LearntParts:
    """The parts that are ready, in order: a state to go on from."""

    parts: list[Part]

    def arrays(self) -> dict[str, Any]:
        """W, H and b of each part; its labels are dealt again."""
        names = ("W", "H", "b")
        return {f"{i}.{n}": getattr(part.learnt.factors, n) for i, part in enumerate(self.parts) for n in names}

    def values(self) -> dict[str, Any]:
        """How each part ended."""
        ended = [
            {"objective": part.objective, "converged": part.learnt.converged, "fall": part.learnt.fall}
            for part in self.parts
        ]
        return {"parts": ended}

    @classmethod
    def restored(cls, saved: SavedState, X: CSRWithTranspose, ids: list[np.ndarray], rank: int) -> LearntParts:
        """The parts as they were saved, of labels that are dealt into ``ids``; ``rank`` is that of a part."""
        d, dtype, ended = X.shape[1], X.matrix.dtype, saved.values()["parts"]
        if not 1 <= len(ended) <= len(ids):
            raise ValueError(f"{len(ended)} parts of {len(ids)}")
        parts = []
        for i, (labels, end) in enumerate(zip(ids, ended)):
            k = min(rank, len(labels))
            W, H = saved.dense(f"{i}.W", (d, k), dtype), saved.dense(f"{i}.H", (len(labels), k), dtype)
            b = saved.dense(f"{i}.b", (len(labels),), np.float64)
            factors = Factors(W, np.empty((0, k)), H, b)
            converged, fall = check_flag(end["converged"], "converged"), check_real(end["fall"], "fall")
            learnt = LowRankAndSparse(factors, _nothing(X, labels), converged, fall, unsolved=0)
            parts.append(Part(labels, learnt, check_real(end["objective"], "objective")))
        return cls(parts)


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
    return Part(ids, replace(learnt, factors=factors, sparse=_nothing(X, ids)), objectives[-1])


def _nothing(X: CSRWithTranspose, ids: np.ndarray) -> sp.csr_matrix:
    return sp.csr_matrix((X.shape[1], len(ids)), dtype=X.matrix.dtype)


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
    first = parts[0].learnt.factors
    threads = X.n_threads
    A = X.matmul(first.W)
    with single_threaded_blas():
        inverse = np.linalg.pinv(gram(A, n_threads=threads), hermitian=True)
    b = intercept.astype(np.float64)
    H = np.zeros((len(b), A.shape[1]), dtype=A.dtype)
    for place, part in enumerate(parts):
        factors = part.learnt.factors
        b[part.labels] = factors.b
        if place == 0:
            H[part.labels] = factors.H
            continue
        onto = inverse @ gram(A, X.matmul(factors.W), n_threads=threads)
        H[part.labels] = dense_matmul(factors.H, np.ascontiguousarray(onto.T, dtype=A.dtype), n_threads=threads)
    return Factors(W=first.W, A=A, H=H, b=b)
