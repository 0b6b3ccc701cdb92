"""Lists of similar labels, of which a row looks through a few: inner-product search by faiss.

faiss is an optional dependency, imported here and on use only. It is held to one thread, which makes what it builds the
same everywhere; rows are spread over threads by :mod:`tagwise.parallel`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tagwise.exceptions import TagwiseError
from tagwise.parallel import even_chunks, run_chunks

__all__ = ["InvertedLists", "cluster"]

_ROUNDS = 10
_POINTS_PER_LIST = 256
# faiss multiplies 20 rows and more by BLAS, whose rounding may change which list comes last; fewer, each on its own.
_ROWS_AT_ONCE = 16


def cluster(vectors: np.ndarray, n_lists: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Centres (``n_lists``×r) by k-means and the list of each vector (L×r), the one with the nearest centre.

    k-means sees a sample in which a vector's chance is its length: inner products are about the long ones, and the many
    short ones would take most centres for themselves. Time O(L·``n_lists``·r).
    """
    faiss = _faiss()
    lengths = np.sqrt(np.einsum("lr,lr->l", vectors, vectors, dtype=np.float64))
    chances = lengths / lengths.sum() if lengths.any() else None
    size = max(n_lists, min(_POINTS_PER_LIST * n_lists, len(vectors)))
    sample = vectors[np.sort(rng.choice(len(vectors), size=size, p=chances))]
    with _one_thread(faiss):
        means = faiss.Kmeans(
            vectors.shape[1],
            n_lists,
            niter=_ROUNDS,
            seed=int(rng.integers(2**31)),
            min_points_per_centroid=1,
            max_points_per_centroid=size,
        )
        means.train(np.ascontiguousarray(sample))
        nearest = faiss.IndexFlatL2(vectors.shape[1])
        nearest.add(means.centroids)
        lists = nearest.search(vectors, 1)[1][:, 0]
    return np.ascontiguousarray(means.centroids, dtype=np.float32), lists.astype(np.int32)


class InvertedLists:
    """Vectors (L×r, float32) in the lists (L) of some centres, ready to be searched; holds a copy of the vectors."""

    def __init__(self, vectors: np.ndarray, centres: np.ndarray, lists: np.ndarray) -> None:
        faiss = _faiss()
        n_lists, width = centres.shape
        with _one_thread(faiss):
            self._quantizer = faiss.IndexFlatIP(width)
            self._quantizer.add(centres)
            self._index = faiss.IndexIVFFlat(self._quantizer, width, n_lists, faiss.METRIC_INNER_PRODUCT)
            self._index.is_trained = True
            # faiss takes addresses: the arrays must outlive the call.
            kept, where = np.ascontiguousarray(vectors, dtype=np.float32), np.ascontiguousarray(lists, dtype=np.int64)
            self._index.add_core(len(kept), faiss.swig_ptr(kept), None, faiss.swig_ptr(where))

    def search(self, rows: np.ndarray, count: int, n_probes: int, *, n_threads: int = 1) -> np.ndarray:
        """The ``count`` vectors with the largest inner products of each row: int64 (n, count), −1 where too few.

        Only the ``n_probes`` lists whose centres have the largest inner products are looked through.
        """
        faiss = _faiss()
        if self._index.nprobe != n_probes:
            self._index.nprobe = n_probes
        found = np.empty((len(rows), count), dtype=np.int64)

        def part(start: int, stop: int) -> None:
            with _one_thread(faiss):
                found[start:stop] = self._index.search(rows[start:stop], count)[1]

        run_chunks(part, even_chunks(len(rows), _ROWS_AT_ONCE), n_threads)
        return found


def _faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError:
        raise TagwiseError(
            "An approximate index needs faiss; install it with: pip install 'tagwise[index]'. predict_topk of a model "
            "needs no index and is exact."
        ) from None
    return faiss


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """Hold faiss to one thread; the setting belongs to the calling thread alone."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
