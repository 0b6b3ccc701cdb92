"""Co-occurrence of labels: likely labels of a row support its other candidates."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tagwise.executor import Executor
from tagwise.fields import Fields, csr, value
from tagwise.kernels.shortlists import Lookup
from tagwise.models.cascade.frequency import log_frequency
from tagwise.models.cascade.opinion import blocks_of
from tagwise.parallel import even_chunks
from tagwise.validation import check_integer

__all__ = ["FIELDS", "PAIR_SHRINKAGE", "Together", "cooccurrence_counts", "total_cooccurrence"]

FIELDS = Fields(
    cooccurrence_=csr("L", "L", numbers="count", meaning="Number of rows in which labels j < t occur together."),
    n_rows_=value(partial(check_integer, minimum=1), "Number of rows that the cascade was fitted to."),
)

# A pair of labels is taken to occur as if independent in so many rows more.
PAIR_SHRINKAGE = 5.0
# Rows with more labels than this say little about which labels belong together, and have many pairs.
_MOST_LABELS_OF_A_ROW = 300


class Together(NamedTuple):
    """Counts of labels and pairs of labels in the form that the fusion needs."""

    pairs: Lookup
    """c (L, L), symmetric."""
    often: np.ndarray
    """The opinion by frequency (L,)."""
    log_rows: np.ndarray
    """log(f + 5) (L,)."""
    rarity: np.ndarray
    """1/π (L,)."""

    @classmethod
    def of(cls, frequency: np.ndarray, n_rows: int, pairs: sp.csr_matrix) -> Together:
        """From f (L,) of n rows and the counts of :func:`cooccurrence_counts`."""
        f = np.asarray(frequency, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):  # the numbers of a forged folder are checked later
            log_rows, rarity = np.log(f + PAIR_SHRINKAGE), (n_rows + 1) / (f + 0.5)
        return cls(Lookup.of(sp.csr_matrix(pairs + pairs.T)), log_frequency(f), log_rows, rarity)


def total_cooccurrence(positives: sp.csr_matrix, executor: Executor) -> sp.csr_matrix:
    """:func:`cooccurrence_counts` of rows in shards."""
    n_rows = positives.shape[0]
    bounds = even_chunks(n_rows, max(1, -(-n_rows // executor.n_blocks))) or [(0, 0)]
    shards = blocks_of(positives, bounds)
    pairs = sp.csr_matrix(executor.sum(cooccurrence_counts, shards))
    pairs.sort_indices()
    return pairs


def cooccurrence_counts(positives: sp.csr_matrix) -> sp.csr_matrix:
    """In how many rows of ``positives`` (n, L) two labels occur together: int32 CSR (L, L), the pairs (j, t), j < t.

    Rows with more than 300 labels are left out. Time and memory O(Σ l²) for rows of l labels.
    """
    few = positives[np.diff(positives.indptr) <= _MOST_LABELS_OF_A_ROW]
    ones = sp.csr_matrix((np.ones(few.nnz, dtype=np.int32), few.indices, few.indptr), shape=few.shape)
    pairs = sp.csr_matrix(sp.triu(ones.T @ ones, k=1))
    pairs.sort_indices()
    return pairs
