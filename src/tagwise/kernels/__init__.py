"""Hot loops on raw CSR arrays: arrays in, arrays out, no knowledge of labels or models.

Each kernel computes rows of its output independently, so any split over threads gives the same bits. The slow, obvious
twin of each is in tests/helpers/reference_kernels.py. Importing this package imports numba; compiled code is cached on
disk.
"""

from tagwise.kernels.products import (
    BlockFeatures,
    CSRWithTranspose,
    DenseFeatures,
    FeatureMatrix,
    csr_matmul,
    dense_matmul,
    feature_matrix,
    gram,
    matmul,
    matmul_in_order,
    scaled_rows,
    unit_rows,
)
from tagwise.kernels.sampled_pairs import (
    pair_curvature_product,
    sampled_product,
    sampled_sparse_product,
    solve_row_systems,
)
from tagwise.kernels.top_k import (
    scores_of_factors_and_sparse,
    top_k_of_factors,
    top_k_of_factors_and_sparse,
    top_k_of_scores,
)

__all__ = [
    "BlockFeatures",
    "CSRWithTranspose",
    "DenseFeatures",
    "FeatureMatrix",
    "csr_matmul",
    "dense_matmul",
    "feature_matrix",
    "gram",
    "matmul",
    "matmul_in_order",
    "pair_curvature_product",
    "sampled_product",
    "sampled_sparse_product",
    "scaled_rows",
    "scores_of_factors_and_sparse",
    "solve_row_systems",
    "top_k_of_factors",
    "top_k_of_factors_and_sparse",
    "top_k_of_scores",
    "unit_rows",
]
