"""Hot loops on raw CSR arrays: arrays in, arrays out, no knowledge of labels or models.

Each kernel computes rows of its output independently, so any split over threads gives the same bits. The slow, obvious
twin of each lives in :mod:`tagwise.kernels.reference` or :mod:`tagwise.kernels.reference_sparse` and is what the tests
compare with. Importing this package imports numba; compiled code is cached on disk.
"""

from tagwise.kernels.dense import gram, rows_times
from tagwise.kernels.pairs import pair_curvature_product, solve_row_systems
from tagwise.kernels.products import csr_times_dense, times, times_in_order, unit_rows
from tagwise.kernels.sampled import sampled_product
from tagwise.kernels.sampled_sparse import sampled_sparse_product
from tagwise.kernels.sparse_scores import scores_of_factors_and_sparse, top_k_of_factors_and_sparse
from tagwise.kernels.top_k import top_k_of_factors, top_k_of_scores
from tagwise.kernels.two_way import DenseTwoWay, SparseTwoWay, TwoWayMatrix, two_way

__all__ = [
    "DenseTwoWay",
    "SparseTwoWay",
    "TwoWayMatrix",
    "csr_times_dense",
    "gram",
    "pair_curvature_product",
    "rows_times",
    "sampled_product",
    "sampled_sparse_product",
    "scores_of_factors_and_sparse",
    "solve_row_systems",
    "times",
    "times_in_order",
    "top_k_of_factors",
    "top_k_of_factors_and_sparse",
    "top_k_of_scores",
    "two_way",
    "unit_rows",
]
