"""An approximate index on the labels of a low-rank model, for very many labels and few rows at a time.

The search is faiss's, an optional dependency. It is held to one thread, which makes what it builds the same everywhere;
rows are spread over threads by :mod:`tagwise.parallel`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from tagwise.base import MultiLabelModel, padded_answers
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError, TagwiseError
from tagwise.kernels.norm_pruned import norm_pruned_topk
from tagwise.kernels.shortlists import top_k_of_candidates
from tagwise.models.factor_model import LOWEST_SCORE, FactorModel
from tagwise.models.reml.reml import REML
from tagwise.parallel import even_chunks, run_chunks
from tagwise.persistence import ModelRecord, read_model, write_model
from tagwise.persistence.loading import require_same
from tagwise.persistence.tensors import digest
from tagwise.randomness import random_generator
from tagwise.validation import check_integer, check_k

__all__ = ["ApproximateIndex"]

# Candidates are scored again; twice as many as asked for leave room for the rounding of the first scores.
_SPARE = 2
_PROBED = 8
_ROUNDS = 10
_POINTS_PER_LIST = 256
# faiss multiplies 20 rows and more by BLAS, whose rounding may change which list comes last; fewer, each on its own.
_ROWS_AT_ONCE = 16


class ApproximateIndex:
    r"""The best labels of a low-rank model without scoring most labels; now and then, one is missed.

    A score is an inner product, :math:`x^\top W h_j + b_j = (x^\top W, 1)^\top (h_j, b_j)`. Labels are put into lists
    of similar :math:`(h_j, b_j)` by k-means; a row searches the ``n_probes`` lists whose centers have the largest inner
    products with it. Candidates are scored again exactly: a score is the model's own, and only a label may be missing.
    :meth:`recall` measures how many are.

    ``model.predict_topk`` is exact without an index and rules out most labels by the norm of their factors. An index
    pays off for single rows and hundreds of thousands of labels; docs/prediction.md has figures.

    Parameters
    ----------
    model : fitted LEML, WSABIE, PLST, CPLST or MLCSSP
        Kept, not copied. A model with a sparse part (REML, Cascade) or without factors (BinaryRelevance) is refused:
        its scores are not inner products of a few numbers.
    n_lists : int, optional
        √L if None.
    n_probes : int, optional
        Lists searched per row, an eighth if None. More find more and take longer; with all of them the answer is exact.
        May be changed later.
    random_state : int
        Seeds k-means. Equal seeds give equal indexes, on one thread or many.

    Attributes
    ----------
    model
        The model.
    n_lists, n_probes, random_state : int
        As used.

    Notes
    -----
    Needs faiss: ``pip install 'tagwise[index]'``. Building takes O(L·√L·k) and a copy of the label factors, which the
    index keeps (as float32). A row takes O((√L + L/8)·k) at most; long lists are those of short, rare labels, which few
    rows search. The same bits for every number of threads, and for a sparse row alone or in a block. k-means samples
    long :math:`(h_j, b_j)` more often than short ones, which raises recall at equal time.

    Examples
    --------
    >>> from tagwise import LEML, ApproximateIndex
    >>> from tagwise.data import load_dataset
    >>> data = load_dataset("debtags-sample")
    >>> model = LEML(rank=20).fit(data.X_train, data.Y_train)
    >>> index = ApproximateIndex(model)
    >>> labels, scores = index.predict_topk(data.X_test, k=5)
    >>> index.recall(data.X_test, k=5) > 0.8
    True
    """

    def __init__(
        self, model: FactorModel, *, n_lists: int | None = None, n_probes: int | None = None, random_state: int = 0
    ) -> None:
        _check_model(model)
        if n_lists is None:
            n_lists = max(1, round(math.sqrt(model.n_labels_)))
        n_lists = check_integer(n_lists, "n_lists", minimum=1)
        if n_lists > model.n_labels_:
            raise InvalidInputError(f"n_lists must be at most the {model.n_labels_} labels; found {n_lists}.")
        n_probes = _checked_probes(n_probes, n_lists)
        random_state = check_integer(random_state, "random_state", minimum=0)
        centers, lists = _cluster(_vectors(model), n_lists, random_generator(random_state))
        self._set(model, centers, lists, n_probes, random_state)

    def _set(self, model: FactorModel, centers: np.ndarray, lists: np.ndarray, n_probes: int, seed: int) -> None:
        self.model, self.n_lists, self.n_probes, self.random_state = model, len(centers), n_probes, seed
        self._centers, self._lists = centers, lists
        self._factors, self._intercept = model.label_factors_, model.intercept_
        self._inverted = _InvertedLists(_vectors(model), centers, lists)

    def __repr__(self) -> str:
        searched = f"{self.n_probes} of {self.n_lists} lists per row"
        return f"ApproximateIndex({type(self.model).__name__} of {len(self._lists):,} labels, {searched})"

    def predict_topk(self, X: Any, k: int = 5, *, exclude: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels of each row, as far as found.

        Parameters
        ----------
        X : CSR or array (n, d)
        k : int
            How many. May exceed the number of labels, by up to 1,000.
        exclude : CSR (n, L), optional
            Stored pairs are never returned.

        Returns
        -------
        labels : int array (n, k)
            Best first, equal scores in the order of their ids, -1 where there are no more labels.
        scores : float array (n, k)
            The model's own scores of these labels; -inf where the label is -1.

        Notes
        -----
        A row for which the lists hold fewer than k labels is answered exactly.
        """
        asked = check_k(k, self.model.n_labels_)
        k = min(asked, self.model.n_labels_)
        probes = _checked_probes(self.n_probes, self.n_lists)
        self._require_same_model()
        model = self.model
        embedded = model.embed(X).astype(self._factors.dtype, copy=False)
        n_rows, n_labels, threads = len(embedded), model.n_labels_, model._threads_for(embedded)
        hidden = model._excluded_pairs(exclude, n_rows)
        excluded = np.zeros(n_rows, dtype=np.int64) if hidden is None else np.diff(hidden.indptr)
        rows = np.ones((n_rows, embedded.shape[1] + 1), dtype=np.float32)
        rows[:, :-1] = embedded
        count = min(_SPARE * k + int(excluded.max(initial=0)), n_labels)
        found = self._inverted.search(rows, count, probes, n_threads=threads)
        labels, scores = top_k_of_candidates(
            embedded, self._factors, found, k, intercept=self._intercept, exclude=hidden, n_threads=threads
        )
        wanted = np.minimum(k, n_labels - excluded)
        few = np.flatnonzero((labels >= 0).sum(axis=1) < wanted)
        if len(few):
            hidden = None if hidden is None else hidden[few]
            exact = norm_pruned_topk(embedded[few], model._norm_sorted_labels(), k, exclude=hidden, n_threads=threads)
            labels[few], scores[few] = exact
        return padded_answers(labels, scores, asked)

    def recall(self, X: Any, k: int = 5) -> float:
        """The share of the exact k best labels of these rows that :meth:`predict_topk` finds, from 0 to 1."""
        k = min(check_integer(k, "k", minimum=1), self.model.n_labels_)
        labels, _ = self.predict_topk(X, k)
        exact, _ = self.model.predict_topk(X, k)
        return float((labels[:, :, None] == exact[:, None, :]).any(axis=1).mean())

    def save(self, path: str | PathLike[str], *, overwrite: bool = True) -> None:
        """Write the lists as a folder that :meth:`load` reads: JSON and safetensors, no pickle.

        The folder holds neither the model nor its factors, but their digests; save the model beside it.
        """
        self._require_same_model()
        record = ModelRecord(
            class_name=type(self).__name__,
            parameters={"n_probes": _checked_probes(self.n_probes, self.n_lists), "random_state": self.random_state},
            tensors={"centres": self._centers, "lists": self._lists},
            values=_digests(self.model),
        )
        write_model(path, record, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str], model: FactorModel) -> ApproximateIndex:
        """Read an index that :meth:`save` wrote for this model.

        Raises
        ------
        ModelFormatError
            The folder is missing, damaged, no index, or that of another model. No code from the folder is ever run, and
            faiss reads none of its bytes but as checked arrays of numbers.
        """
        _check_model(model)
        record = read_model(path)
        if record.class_name != cls.__name__:
            raise ModelFormatError(f"{path} holds a {record.class_name}, no index; read it with tagwise.load.")
        try:
            centers, lists, n_probes, seed = _restored(record, model)
        except (TypeError, ValueError) as error:
            raise ModelFormatError(f"{path}: {error}") from None
        index = cls.__new__(cls)
        index._set(model, centers, lists, n_probes, seed)
        return index

    @classmethod
    def from_parts(cls, record: ModelRecord) -> NoReturn:
        """Called by :func:`tagwise.load`: an index can only be read with its model."""
        raise ModelFormatError(
            "the folder holds an index, not a model; read it with ApproximateIndex.load(path, model)."
        )

    def _require_same_model(self) -> None:
        if self.model.label_factors_ is not self._factors or self.model.intercept_ is not self._intercept:
            raise InvalidInputError("the model has been fitted again since the index was made; make a new index.")


def _checked_probes(n_probes: Any, n_lists: int) -> int:
    """Of ``n_lists``; None is an eighth."""
    if n_probes is None:
        return max(1, n_lists // _PROBED)
    probes = check_integer(n_probes, "n_probes", minimum=1)
    if probes > n_lists:
        raise InvalidInputError(f"n_probes must be at most the {n_lists} lists; found {probes}.")
    return probes


def _check_model(model: Any) -> None:
    if not isinstance(model, MultiLabelModel):
        raise InvalidTypeError(f"model must be a fitted model of tagwise; found {type(model).__name__}.")
    if isinstance(model, REML) or not isinstance(model, FactorModel):
        raise InvalidInputError(
            f"model: the scores of {type(model).__name__} are not inner products of a few numbers, which an index "
            "searches. Use a low-rank model such as LEML, or predict_topk of the model, which needs no index."
        )
    model._require_fitted()


def _vectors(model: FactorModel) -> np.ndarray:
    """(h_j, b_j) of all labels (L×(k+1)), float32."""
    b = np.asarray(model.intercept_, dtype=np.float64)
    known = b > LOWEST_SCORE / 2
    # A constant added to all scores changes no order. Labels of which nothing is known are out of the way: their own
    # intercept would leave no digits for the others.
    shift = np.where(known, b, b[known].min(initial=0.0)) - (b[known].mean() if known.any() else 0.0)
    with np.errstate(over="ignore"):
        vectors = np.column_stack([model.label_factors_, shift]).astype(np.float32)
    vectors[~known, :-1] = 0
    if not np.isfinite(vectors).all():
        raise InvalidInputError("model: its label factors are too large for float32, in which an index holds them.")
    return vectors


def _digests(model: FactorModel) -> dict[str, str]:
    """What says that factors and intercept are those of an index."""
    arrays = {"label_factors": model.label_factors_, "intercept": model.intercept_}
    return {name: f"{array.dtype.name} {digest(np.ascontiguousarray(array))}" for name, array in arrays.items()}


def _restored(record: ModelRecord, model: FactorModel) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Centers, lists, probes and seed; raises ValueError or TypeError where they make no index of the model."""
    require_same("parameters", set(record.parameters), {"n_probes", "random_state"})
    require_same("tensors", set(record.tensors), {"centres", "lists"})
    if record.values != _digests(model):
        raise ValueError("the index was made for another model, or for this one before it was fitted again")
    centers, lists = record.tensors["centres"], record.tensors["lists"]
    width = model.label_factors_.shape[1] + 1
    if sp.issparse(centers) or centers.dtype != np.float32 or centers.ndim != 2 or centers.shape[1] != width:
        raise ValueError(f"centres must be float32 and have {width} columns")
    if sp.issparse(lists) or lists.dtype != np.int32 or lists.shape != (model.n_labels_,):
        raise ValueError(f"lists must be {model.n_labels_} numbers of type int32")
    if not len(centers) or not np.isfinite(centers).all() or lists.min() < 0 or lists.max() >= len(centers):
        raise ValueError("centres must be finite, and lists must name them")
    probes = _checked_probes(record.parameters["n_probes"], len(centers))
    return centers, lists, probes, check_integer(record.parameters["random_state"], "random_state", minimum=0)


def _cluster(vectors: np.ndarray, n_lists: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Centers (``n_lists``×r) by k-means and the list of each vector (L×r), the one with the nearest center.

    k-means sees a sample in which a vector's chance is its length: inner products are about the long ones, and the many
    short ones would take most centers for themselves. Time O(L·``n_lists``·r).
    """
    faiss = _faiss()
    lengths = np.sqrt(np.einsum("lr,lr->l", vectors, vectors, dtype=np.float64))
    chances = lengths / lengths.sum() if lengths.any() else None
    size = max(n_lists, min(_POINTS_PER_LIST * n_lists, len(vectors)))
    sample = vectors[np.sort(rng.choice(len(vectors), size=size, p=chances))]
    with _one_thread(faiss):
        seed, points = int(rng.integers(2**31)), {"min_points_per_centroid": 1, "max_points_per_centroid": size}
        means = faiss.Kmeans(vectors.shape[1], n_lists, niter=_ROUNDS, seed=seed, **points)
        means.train(np.ascontiguousarray(sample))
        nearest = faiss.IndexFlatL2(vectors.shape[1])
        nearest.add(means.centroids)
        lists = nearest.search(vectors, 1)[1][:, 0]
    return np.ascontiguousarray(means.centroids, dtype=np.float32), lists.astype(np.int32)


class _InvertedLists:
    """Vectors (L×r, float32) in the lists (L) of some centers, ready to be searched; holds a copy of the vectors."""

    def __init__(self, vectors: np.ndarray, centers: np.ndarray, lists: np.ndarray) -> None:
        faiss = _faiss()
        n_lists, width = centers.shape
        with _one_thread(faiss):
            self._quantizer = faiss.IndexFlatIP(width)
            self._quantizer.add(centers)
            self._index = faiss.IndexIVFFlat(self._quantizer, width, n_lists, faiss.METRIC_INNER_PRODUCT)
            self._index.is_trained = True
            # faiss takes addresses: the arrays must outlive the call.
            kept, where = np.ascontiguousarray(vectors, dtype=np.float32), np.ascontiguousarray(lists, dtype=np.int64)
            self._index.add_core(len(kept), faiss.swig_ptr(kept), None, faiss.swig_ptr(where))

    def search(self, rows: np.ndarray, count: int, n_probes: int, *, n_threads: int = 1) -> np.ndarray:
        """The ``count`` vectors with the largest inner products of each row: int64 (n, count), −1 where too few.

        Only the ``n_probes`` lists whose centers have the largest inner products are looked through.
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
