"""Models that predict compressed labels and decode them: prediction of the former, folders and checks for all."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.kernels import csr_times_dense, rows_times
from tagwise.models.base import MultiLabelModel
from tagwise.models.factor_model import unit_rows
from tagwise.parallel import thread_count

__all__ = ["CompressedModel"]


class CompressedModel(MultiLabelModel):
    """Measurements Wᵀx + c are decoded to labels by codes: scores are nonlinear in x, so nothing is fused.

    Fitted: ``feature_factors_`` W (d×m), ``measurement_intercept_`` c (m), ``label_codes_`` Φᵀ (L×m) and
    ``base_score_`` (L).
    """

    _saved_arrays: ClassVar[tuple[str, ...]] = (
        "feature_factors_",
        "measurement_intercept_",
        "label_codes_",
        "base_score_",
    )

    normalize: bool
    feature_factors_: np.ndarray
    measurement_intercept_: np.ndarray
    label_codes_: np.ndarray
    base_score_: np.ndarray

    @abstractmethod
    def _decode(self, measurements: np.ndarray) -> np.ndarray:
        """The recovered labels (n×L) of float64 measurements (n×m)."""

    def _score_rows(self, X: sp.csr_matrix | np.ndarray) -> np.ndarray:
        threads = thread_count(self.n_jobs)
        rows = unit_rows(X, n_threads=threads) if self.normalize else X
        W = self.feature_factors_
        if isinstance(rows, np.ndarray):
            measurements = rows_times(rows.astype(W.dtype, copy=False), W, n_threads=threads)
        else:
            measurements = csr_times_dense(rows, W, n_threads=threads)
        scores = self._decode(measurements.astype(np.float64) + self.measurement_intercept_)
        scores += self.base_score_
        return scores.astype(W.dtype, copy=False)

    def _check_restored(self) -> None:
        arrays = [getattr(self, name) for name in self._saved_arrays]
        W = self.feature_factors_
        size = W.shape[1] if W.ndim == 2 else -1
        expected = [(self.n_features_in_, size), (size,), (self.n_labels_, size), (self.n_labels_,)]
        found = [array.shape for array in arrays]
        if found != expected or size < 1:
            raise ValueError(f"arrays of shapes {found} where {expected} are expected")
        if any(array.dtype != W.dtype or array.dtype.kind != "f" for array in arrays):
            raise ValueError("arrays must share one floating type")
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("arrays hold NaN or infinity")
