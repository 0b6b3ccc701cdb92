"""Features and labels as readers return them and writers take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp

from tagwise.validation import check_features, check_labels

__all__ = ["LabelledRows", "checked_pair"]


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of a data file with their labels.

    Attributes
    ----------
    X : scipy.sparse.csr_matrix of shape (n, d) or None
        Features, canonical (sorted, no duplicates); None when the file holds raw text.
    Y : scipy.sparse.csr_matrix of shape (n, L)
        Labels: float32 ones where a row has the label, canonical.
    feature_names, label_names : list of str or None
        Names of the columns of ``X`` and ``Y``, where the format has them.
    texts : list of str or None
        The raw text of each row, where the format has it.
    row_ids : list of str or None
        The identifier of each row, where it was asked for.
    n_skipped : int
        How many faulty rows ``errors="skip"`` left out; always 0 with ``errors="strict"``.
    """

    X: sp.csr_matrix | None
    Y: sp.csr_matrix
    feature_names: list[str] | None = None
    label_names: list[str] | None = None
    texts: list[str] | None = None
    row_ids: list[str] | None = None
    n_skipped: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows that were read."""
        return int(self.Y.shape[0])


def checked_pair(X: Any, Y: Any) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Features and labels for a writer: canonical CSR, finite, with equal numbers of rows."""
    features = check_features(X)
    rows = features if sp.issparse(features) else sp.csr_matrix(features)
    return rows, check_labels(Y, n_rows=rows.shape[0])
