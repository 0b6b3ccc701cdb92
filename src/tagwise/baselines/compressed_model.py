"""Models that predict compressed labels and decode them: prediction of the former, folders and checks for all."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from tagwise.base import MultiLabelModel
from tagwise.kernels import matmul_in_order
from tagwise.models.factor_model import unit_rows
from tagwise.parallel import thread_count
from tagwise.persistence.array_checks import require_dense, require_finite_floats

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

    def _prepared(self, X: sp.csr_matrix | np.ndarray) -> sp.csr_matrix | np.ndarray:
        return unit_rows(X, n_threads=thread_count(self.n_jobs)) if self.normalize else X

    def _score_rows(self, X: sp.csr_matrix | np.ndarray) -> np.ndarray:
        W = self.feature_factors_
        # Decoding picks labels: what rounds differently in other company might pick others.
        measurements = matmul_in_order(self._prepared(X), W, n_threads=thread_count(self.n_jobs))
        scores = self._decode(measurements + self.measurement_intercept_)
        scores += self.base_score_
        return scores.astype(W.dtype, copy=False)

    def _check_restored(self) -> None:
        arrays = [getattr(self, name) for name in self._saved_arrays]
        require_dense(2, feature_factors_=self.feature_factors_, label_codes_=self.label_codes_)
        require_dense(1, measurement_intercept_=self.measurement_intercept_, base_score_=self.base_score_)
        size = self.feature_factors_.shape[1]
        expected = [(self.n_features_in_, size), (size,), (self.n_labels_, size), (self.n_labels_,)]
        found = [array.shape for array in arrays]
        if found != expected or size < 1:
            raise ValueError(f"arrays of shapes {found} where {expected} are expected")
        require_finite_floats(**dict(zip(self._saved_arrays, arrays)))
