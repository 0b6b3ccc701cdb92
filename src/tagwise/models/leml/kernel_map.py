"""Kernels as explicit features, so that a linear model on them is a kernel model on the rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.parallel import even_chunks, single_threaded_blas
from tagwise.parameters import random_generator
from tagwise.validation import Features, check_choice

__all__ = ["Kernel", "KernelMap"]

# Kernel values of one block of rows, whatever the number of landmarks: 4 million numbers, 32 MB as float64.
_BLOCK_VALUES = 1 << 22
# With fewer landmarks than this (and than rows) the features say next to nothing about the kernel.
_FEWEST_LANDMARKS = 10


def check_kernel(kernel: Any, name: str) -> None:
    """Raise for what is no kernel whatever the data."""
    if isinstance(kernel, str):
        check_choice(kernel, name, ("linear", "rbf", "poly"))
    elif not callable(kernel):
        raise InvalidTypeError(f"{name} must be a name or a function (A, B) -> array; found {kernel!r}.")


Kernel: TypeAlias = Annotated[str | Callable[[Any, Any], Any], check_kernel]
"""``"linear"``, ``"rbf"``, ``"poly"``, or a function (A, B) -> array of len(A)×len(B)."""


@dataclass(frozen=True, eq=False)
class KernelMap:
    r"""Features φ(x) = K(x, Z)·P whose inner products are the kernel.

    With the landmarks Z (m rows of the training X) and K(Z, Z) = UΛUᵀ,

    .. math:: P = U \Lambda^{-1/2}, \qquad
              \phi(x)^\top \phi(y) = K(x, Z)\, K(Z, Z)^{+} K(Z, y),

    so φ(Z)φ(Z)ᵀ = K(Z, Z). When all training rows are landmarks this is the exact Gram-matrix method: ‖w‖ of a linear
    model on φ is the norm of its function in the kernel's Hilbert space. With fewer it is Nyström's approximation.

    Attributes
    ----------
    kernel : {"linear", "rbf", "poly"} or callable
        xᵀz; exp(−γ‖x−z‖²); (γxᵀz + coef0)^degree; or a function of two matrices of rows, both CSR or both arrays like
        the training X, that returns K (len(A), len(B)): real, symmetric and positive semi-definite.
    gamma, degree, coef0 : float or None, int, float
        Of "rbf" and "poly".
    landmarks : CSR or array (m, d)
        Z, in the order of the training rows and in their floating type.
    projection : array (m, r)
        P. float64 whatever the type of X: its columns of small eigenvalues are large and cancel in K(x, Z)·P.

    Notes
    -----
    Eigenvalues up to min(16·m·ε, √ε) times the largest are rounding and are dropped (ε of float64, or of the type that
    a function returned), and so are those that do not exceed the most negative one in size; r ≤ m are left.
    """

    kernel: Kernel
    gamma: float | None
    degree: int
    coef0: float
    landmarks: Features
    projection: np.ndarray

    @classmethod
    def build(
        cls,
        X: Features,
        *,
        kernel: Kernel,
        gamma: float | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        memory_limit: float = 2**28,
        random_state: Any,
    ) -> KernelMap:
        """Choose landmarks among the rows of X (n, d) and factor their kernel matrix, in O(m³) and m² kernel values.

        ``gamma`` None is 1/d, as in scikit-learn. ``memory_limit`` are bytes for the features of X (n×m in the type of
        X) with P (m×m in float64), and before them the eigendecomposition (three m×m in float64). All rows become
        landmarks if that fits; else as many as do, drawn without replacement.
        """
        n_rows, itemsize = X.shape[0], X.dtype.itemsize
        m = bisect_right(range(1, n_rows + 1), memory_limit, key=lambda m: _fit_bytes(n_rows, m, itemsize))
        fewest = min(n_rows, _FEWEST_LANDMARKS)
        if m < fewest:
            raise InvalidInputError(
                f"memory_limit={memory_limit:,} bytes is too little for a kernel on {n_rows:,} rows; it must be at "
                f"least {_fit_bytes(n_rows, fewest, itemsize):,} ({fewest} landmarks)."
            )
        chosen = np.arange(n_rows)
        if m < n_rows:
            chosen = np.sort(random_generator(random_state).choice(n_rows, m, replace=False))
        if gamma is None and kernel in ("rbf", "poly"):
            gamma = 1.0 / X.shape[1]
        # Indexing copies: a fitted map must not change when the caller's X does.
        unprojected = cls(kernel, gamma, degree, coef0, X[chosen], np.empty((m, 0)))
        with single_threaded_blas():
            K, precision = unprojected._landmark_kernel()
            return replace(unprojected, projection=_inverse_root(K, precision, _name(kernel)))

    def features(self, X: Features) -> np.ndarray:
        """φ of each row (n, r), in the landmarks' floating type; O(n·m·r) and n·m kernel values."""
        return self._times(X, self.projection, self.landmarks.dtype)

    def fold(self, W: np.ndarray) -> np.ndarray:
        """P·W (m, k), the dual coefficients of weights W (r, k) on φ: φ(X)·W = K(X, Z)·``fold(W)``."""
        with single_threaded_blas():
            return np.asarray(self.projection @ W.astype(np.float64)).astype(W.dtype)

    def embed(self, X: Features, dual: np.ndarray) -> np.ndarray:
        """K(X, Z)·dual (n, k) in the type of ``dual`` (m, k), in blocks of rows: K(X, Z) is never held whole."""
        return self._times(X, dual.astype(np.float64), dual.dtype)

    def _times(self, X: Features, right: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
        """K(X, Z) @ right, computed in float64 and returned in ``dtype``.

        Values of a smooth kernel lie close to one another (the default rbf on rows of unit length: within 2/d of 1);
        float32 would round off much of what tells rows apart.
        """
        Z = self.landmarks.astype(np.float64, copy=False)
        out = np.empty((X.shape[0], right.shape[1]), dtype=dtype)
        with single_threaded_blas():
            for start, stop in self._blocks(X.shape[0]):
                out[start:stop] = self._values(X[start:stop], Z) @ right
        return out

    def _landmark_kernel(self) -> tuple[np.ndarray, float]:
        """K(Z, Z) in float64, and the ε of the type that its values had."""
        Z = self.landmarks.astype(np.float64, copy=False)
        K = np.empty((Z.shape[0], Z.shape[0]))
        precision = float(np.finfo(np.float64).eps)
        for start, stop in self._blocks(len(K)):
            values = self._values(Z[start:stop], Z)
            K[start:stop] = values
            if values.dtype.kind == "f":
                precision = max(precision, float(np.finfo(values.dtype).eps))
        allowed = np.sqrt(precision) * max(K.max(), -K.min())
        for start, stop in self._blocks(len(K)):
            if (np.abs(K[start:stop] - K[:, start:stop].T) > allowed).any():
                raise InvalidInputError(
                    f"kernel={_name(self.kernel)} is not symmetric: K(A, B) differs from the transpose of K(B, A)."
                )
        return K, precision

    def _values(self, rows: Features, landmarks: Features) -> np.ndarray:
        """K(rows, landmarks), checked; ``rows`` are brought into the format and type of ``landmarks`` first."""
        # Not above: it takes a while to import, and few models have a kernel.
        from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel

        if sp.issparse(landmarks):
            rows = sp.csr_matrix(rows)
        elif not isinstance(rows, np.ndarray):
            rows = rows.toarray()
        rows = rows.astype(landmarks.dtype, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):  # infinity is refused below
            if self.kernel == "linear":
                values = linear_kernel(rows, landmarks)
            elif self.kernel == "rbf":
                values = rbf_kernel(rows, landmarks, gamma=self.gamma)
            elif self.kernel == "poly":
                values = polynomial_kernel(rows, landmarks, degree=self.degree, gamma=self.gamma, coef0=self.coef0)
            else:
                values = np.asarray(self.kernel(rows, landmarks))  # type: ignore[operator]
        name, expected = _name(self.kernel), (rows.shape[0], landmarks.shape[0])
        if values.dtype.kind not in "fiub":
            raise InvalidTypeError(f"kernel={name} must return an array of real numbers; found {values.dtype} entries.")
        if values.shape != expected:
            raise InvalidInputError(
                f"kernel={name} must return an array of shape {expected}, one row and column for each row of its two "
                f"arguments; found {values.shape}."
            )
        if not np.isfinite(values).all():
            raise InvalidInputError(
                f"kernel={name} gave NaN or infinity; scale the rows of X to unit length or lower gamma or degree."
            )
        return values

    def _blocks(self, n_rows: int) -> list[tuple[int, int]]:
        return even_chunks(n_rows, max(1, _BLOCK_VALUES // self.landmarks.shape[0]))


def _fit_bytes(n_rows: int, m: int, itemsize: int) -> int:
    """The peak of a fit: dsyevd holds the m×m matrix and 2m² numbers of workspace; later P and the features."""
    return 8 * m * m + max(16 * m * m, itemsize * n_rows * m)


def _inverse_root(K: np.ndarray, precision: float, name: str) -> np.ndarray:
    """P = UΛ^(−1/2) of the symmetric K = UΛUᵀ, which is overwritten; ``precision`` is the ε of its values."""
    # The transpose is in Fortran order, so that LAPACK may overwrite it; dsyevd is 3 times faster than dsyevr here.
    # (scipy 1.11 cannot ask it for the workspace of a single number.)
    driver = "evd" if len(K) > 1 else "ev"
    eigenvalues, U = scipy.linalg.eigh(K.T, overwrite_a=True, check_finite=False, driver=driver)
    lowest, highest = float(eigenvalues[0]), float(eigenvalues[-1])
    scale = max(highest, -lowest)
    if scale == 0:
        raise InvalidInputError(f"kernel={name} is 0 for every pair of rows of X; there is nothing to learn from.")
    if lowest < -np.sqrt(precision) * scale:
        raise InvalidInputError(
            f"kernel={name} is not positive semi-definite: its matrix on {len(K):,} rows of X has the eigenvalue "
            f"{lowest:.3g} (the largest is {highest:.3g}); use a kernel that is."
        )
    rounding = min(16 * len(K) * precision, np.sqrt(precision)) * scale
    first = int(np.searchsorted(eigenvalues, max(rounding, -lowest), side="right"))
    P = U[:, first:]
    P /= np.sqrt(eigenvalues[first:])
    return np.ascontiguousarray(P)


def _name(kernel: Kernel) -> str:
    return repr(kernel) if isinstance(kernel, str) else str(getattr(kernel, "__name__", type(kernel).__name__))
