"""Labels that have a name and no training row: candidates by their names, and log odds from nothing else.

Where a row has some of the name, the log odds of such a label are n·(name, whether the name is whole, log(1 + c) if so,
1, name meaning and its square), for the c training rows that had the whole name, and not the label: a name that was
always passed over is no longer evidence. Where names have a dense block, any row is one that may have such a label.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from tagwise.estimator import MultiLabelModel
from tagwise.kernels.compiled import compiled
from tagwise.kernels.top_k import keep, top_k_of_factors
from tagwise.models.cascade.opinion import Rows
from tagwise.parallel import run_chunks, work_chunks

__all__ = ["MOST_UNSEEN", "NO_ODDS", "TERMS", "LabelsWithoutRows"]

TERMS = ("name", "whole name", "whole name*log rows", "1", "name meaning", "name meaning*name meaning")
"""Terms of the log odds, by the names of their priors."""

# So many labels without rows are proposed to a row by the words of their names, and as many by their meaning.
MOST_UNSEEN = 5
# Of a model without names.
NO_ODDS = np.zeros((0, 0))
_NOTHING = np.zeros((0, 0), dtype=np.float32)

# indptr, indices and data of a CSR or CSC.
_Lists: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]


class LabelsWithoutRows:
    """Labels of a fitted model that no training row has.

    Attributes
    ----------
    labels : int array (U,)
        Their ids, increasing.
    names : CSR (d, U)
        The weights of their names.
    meanings : array (U, q)
        The directions of their names; q = 0 where names have none.
    """

    def __init__(self, model: MultiLabelModel) -> None:
        N, meanings = model.name_weights_, model.name_meanings_
        self.by_words, self.by_meaning = "name" in model.opinions_, "name meaning" in model.opinions_
        named = (np.diff(N.indptr) > 0) | (meanings != 0).any(axis=1)
        unseen = model.label_frequency_ == 0
        self.labels = np.flatnonzero(unseen & named)
        self.names, self.meanings = sp.csr_matrix(N[self.labels].T), np.ascontiguousarray(meanings[self.labels])
        whole = np.asarray(N.sum(axis=1), dtype=np.float64).ravel() ** 2
        with np.errstate(invalid="ignore"):  # the numbers of a forged folder are checked later
            self._facts = unseen, whole, np.log1p(model.name_rows_)

    def propose(
        self, rows: Rows, labels: np.ndarray, proposed: np.ndarray, width: int
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """The proposer's lists (n, N) with places for unseen labels after the first ``width``, and the new width.

        Five for labels whose names are nearest to the row by the dense block, then five for labels of whose names the
        row has most, as far as names have either; -1 where there are fewer. A label that the proposer lists behind its
        first ``width`` moves forward, and -1 takes its place there. Time O(Σ names with the row's features) for words,
        O(n·U·q) by BLAS for meanings.
        """
        for nearest in self._nearest(rows):
            # As many places whatever labels are unseen, so that lessons of several cascades have the same width.
            gap = np.full((len(labels), MOST_UNSEEN), -1, dtype=labels.dtype)
            labels = np.concatenate([labels[:, :width], gap, labels[:, width:]], axis=1)
            nothing = np.zeros(gap.shape, dtype=proposed.dtype)
            proposed = np.concatenate([proposed[:, :width], nothing, proposed[:, width:]], axis=1)
            _insert(labels, self.labels, nearest, width)
            width += MOST_UNSEEN
        return labels, proposed, width

    def _nearest(self, rows: Rows) -> Iterator[np.ndarray]:
        """Places (n, 5) among the unseen labels, -1 for none: the nearest by meaning, then by words."""
        if self.by_meaning:
            found = np.full((rows.directions.shape[0], MOST_UNSEEN), -1)
            if len(self.labels):
                found, cosines = top_k_of_factors(rows.directions, self.meanings, MOST_UNSEEN, n_threads=rows.n_threads)
                found[cosines == 0] = -1  # a row or a name without a direction says nothing about the other
            yield found
        if self.by_words:
            present = rows.present
            features = present.indptr, present.indices, present.data
            names = self.names.indptr, self.names.indices, self.names.data
            shared = np.full((present.shape[0], MOST_UNSEEN), -1)
            run_chunks(
                lambda start, stop: _find_named(features, names, len(self.labels), shared, start, stop),
                work_chunks(present.indptr.astype(np.int64)),
                rows.n_threads,
            )
            yield shared

    def odds(self, labels: np.ndarray, opinions: dict[str, np.ndarray], coefficients: np.ndarray) -> np.ndarray:
        """Log odds (n, M) by names alone; NaN for labels with rows, of whose names the row has nothing, and for -1.

        ``opinions`` are the numbers (n, M) of each opinion on these labels.
        """
        out = np.empty(labels.shape)
        shares, meanings = (opinions.get(name, _NOTHING) for name in ("name", "name meaning"))
        _odds(labels, shares, meanings, self._facts, coefficients, out)
        return out

    def terms(self, labels: np.ndarray, opinions: dict[str, np.ndarray]) -> np.ndarray:
        """Terms of :meth:`odds`: (n, M, p), NaN as there."""
        return np.stack([self.odds(labels, opinions, one) for one in np.eye(len(TERMS))], axis=-1)


@compiled()
def _odds(
    labels: np.ndarray,
    shares: np.ndarray,
    meanings: np.ndarray,
    facts: tuple[np.ndarray, np.ndarray, np.ndarray],
    n: np.ndarray,
    out: np.ndarray,
) -> None:
    unseen, whole_name, log_named = facts
    for row in range(out.shape[0]):
        for at in range(out.shape[1]):
            out[row, at] = np.nan
            label = labels[row, at]
            if label < 0 or not unseen[label]:
                continue
            share = np.float64(shares[row, at]) if shares.shape[1] > 0 else 0.0
            # Names without an embedding are zeros, whose cosine is 0.
            meaning = np.float64(meanings[row, at]) if meanings.shape[1] > 0 else 0.0
            if share > 0 or meaning != 0:
                # But for rounding.
                whole = 1.0 if share > 0 and share >= 0.999 * whole_name[label] else 0.0
                by_words = n[0] * share + n[1] * whole + n[2] * whole * log_named[label]
                out[row, at] = by_words + n[3] + n[4] * meaning + n[5] * meaning * meaning


@compiled()
def _find_named(features: _Lists, names: _Lists, n_names: int, found: np.ndarray, start: int, stop: int) -> None:
    """The names of which rows ``start`` to ``stop`` have most."""
    indptr, indices, present = features
    name_indptr, name_ids, weights = names
    share = np.zeros(n_names, dtype=weights.dtype)
    touched = np.empty(n_names, dtype=np.int64)
    best = np.empty(found.shape[1], dtype=weights.dtype)
    for row in range(start, stop):
        n_touched = 0
        for entry in range(indptr[row], indptr[row + 1]):
            if present[entry] == 0:
                continue
            for at in range(name_indptr[indices[entry]], name_indptr[indices[entry] + 1]):
                name = name_ids[at]
                if share[name] == 0:
                    touched[n_touched] = name
                    n_touched += 1
                share[name] += weights[at]
        best[:] = -np.inf
        for each in range(n_touched):
            keep(best, found[row], share[touched[each]], touched[each])
            share[touched[each]] = 0


@compiled()
def _insert(labels: np.ndarray, unseen: np.ndarray, found: np.ndarray, width: int) -> None:
    """The ``found`` (n, m) of the ``unseen`` labels, −1 for none, to the m places after the first ``width``.

    Labels that are among the first stay there; from behind they are taken away.
    """
    for row in range(len(labels)):
        for place in range(found.shape[1]):
            if found[row, place] < 0 or unseen[found[row, place]] in labels[row, :width]:
                continue
            label = unseen[found[row, place]]
            labels[row, width + place] = label
            for at in range(width + found.shape[1], labels.shape[1]):
                if labels[row, at] == label:
                    labels[row, at] = -1
