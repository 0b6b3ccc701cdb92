"""Labels that have a name and no training row: candidates by their names, and log odds from nothing else.

Where a row has some of the name, the log odds of such a label are n·(name, whether the name is whole, log(1 + c) if so,
1, name meaning and its square), for the c training rows that had the whole name, and not the label: a name that was
always passed over is no longer evidence. Where names have a dense block, any row is one that may have such a label.
"""

from __future__ import annotations

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
    """Those of a fitted model.

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
        if self.by_meaning:
            labels, proposed = _with_places(labels, proposed, width)
            if len(self.labels):
                nearest, cosines = top_k_of_factors(
                    rows.directions, self.meanings, MOST_UNSEEN, n_threads=rows.n_threads
                )
                # A row or a name without a direction has nothing to say about the other.
                _insert_all(labels, self.labels, np.where(cosines != 0, nearest, -1), width)
            width += MOST_UNSEEN
        if self.by_words:
            labels, proposed = _with_places(labels, proposed, width)
            wider, present = labels, rows.present
            features = present.indptr, present.indices, present.data
            names = self.names.indptr, self.names.indices, self.names.data
            run_chunks(
                lambda start, stop: _propose(features, names, self.labels, wider, width, start, stop),
                work_chunks(present.indptr.astype(np.int64)),
                rows.n_threads,
            )
            width += MOST_UNSEEN
        return labels, proposed, width

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


def _with_places(labels: np.ndarray, proposed: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Lists of labels and scores (n, N) with places for unseen ones after the first ``width``: −1, and 0."""
    # As many places whatever labels are unseen, so that lessons of several cascades have the same width.
    gap = np.full((len(labels), MOST_UNSEEN), -1, dtype=labels.dtype)
    nothing = np.zeros(gap.shape, dtype=proposed.dtype)
    wider = np.concatenate([labels[:, :width], gap, labels[:, width:]], axis=1)
    return wider, np.concatenate([proposed[:, :width], nothing, proposed[:, width:]], axis=1)


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
def _propose(
    features: _Lists,
    names: _Lists,
    unseen: np.ndarray,
    labels: np.ndarray,
    width: int,
    start: int,
    stop: int,
) -> None:
    indptr, indices, present = features
    name_indptr, name_ids, weights = names
    share = np.zeros(len(unseen), dtype=weights.dtype)
    touched = np.empty(len(unseen), dtype=np.int64)
    best, found = np.empty(MOST_UNSEEN, dtype=weights.dtype), np.empty(MOST_UNSEEN, dtype=np.int64)
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
        best[:], found[:] = -np.inf, -1
        for each in range(n_touched):
            keep(best, found, share[touched[each]], touched[each])
            share[touched[each]] = 0
        for place in range(MOST_UNSEEN):
            if found[place] >= 0:
                _insert(labels[row], unseen[found[place]], width, width + place, width + MOST_UNSEEN)


@compiled()
def _insert_all(labels: np.ndarray, unseen: np.ndarray, found: np.ndarray, width: int) -> None:
    """The ``found`` (n, m) of the ``unseen`` labels, −1 for none, to the m places after the first ``width``."""
    for row in range(len(labels)):
        for place in range(found.shape[1]):
            if found[row, place] >= 0:
                _insert(labels[row], unseen[found[row, place]], width, width + place, width + found.shape[1])


@compiled()
def _insert(labels: np.ndarray, label: int, width: int, place: int, behind: int) -> None:
    """``label`` goes to ``place`` unless it is among the first ``width``; from ``behind`` on it is taken away."""
    for at in range(width):
        if labels[at] == label:
            return
    labels[place] = label
    for at in range(behind, len(labels)):
        if labels[at] == label:
            labels[at] = -1
