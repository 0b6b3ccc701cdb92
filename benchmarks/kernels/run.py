"""Each kernel's rate beside scipy's and beside the machine's own limit, all in one run.

    python benchmarks/kernels/run.py [--threads 2] [--width 64 128] [--quick]

The limit of a kernel is the larger of the time its bytes would take at the copy loop's rate and the time its
operations would take at BLAS's rate; each array counts once, as if caches were perfect. A sparse product loads a number
of the dense matrix for every multiplication, which a dense one need not. "with loads" is its share of the larger of
that limit and the time for nnz·k numbers at the rate at which BLAS reads half a megabyte over and over, which any cache
of the second level holds. Dense factors begin at a cache line, as those of tagwise's fits do. Writes JSON and a table
to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
import reference_kernels as reference
from machine import best_seconds, blas_rate, copy_rate, description, read_rate
from pages import store

from tagwise import kernels
from tagwise.data import make_power_law
from tagwise.kernels.norm_pruned import BoundedLabels, top_k_within_bounds
from tagwise.kernels.shortlists import Lookup, shortlist_margins
from tagwise.kernels.vectors import aligned_copy

RESULTS = Path(__file__).parents[1] / "results"
SHAPES = {
    # rows, features, labels, features per row, labels per row
    "eurlex": (15_539, 5_000, 3_993, 236, 5.3),
    "debtags": (24_240, 17_736, 581, 44, 3.7),
    "yso-finna-en-min4": (101_842, 25_688, 27_754, 10.9, 6.4),
}

SPARSE_PRODUCTS = ("CSR × dense", "transpose × dense")


def plain_pair_curvature(Y, A, H):
    """numpy gathers and multiplies, scipy adds up."""
    values = np.einsum("ij,ij->i", A[np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))], H[Y.indices])
    return sp.csr_matrix((Y.data * values, Y.indices, Y.indptr), shape=Y.shape) @ H


def measure(shape: str, width: int, threads: int, copy: float, blas: float, cached: float) -> list[dict[str, object]]:
    rows, features, labels, per_row, labels_per_row = SHAPES[shape]
    X, Y = make_power_law(
        rows, features, labels, features_per_row=per_row, labels_per_row=labels_per_row, random_state=0
    )
    rng = np.random.default_rng(0)
    W, A, H = (aligned_copy(rng.standard_normal((n, width)).astype(np.float32)) for n in (features, rows, labels))
    both = kernels.feature_matrix(X, n_threads=threads)
    some_rows = A[:2048]
    scores = some_rows[:256] @ H.T
    small = rng.standard_normal((width, width)).astype(np.float32)
    few = kernels.feature_matrix(Y).transpose[:200]
    systems = (few, few.data, rng.standard_normal((200, width)), A, np.eye(width))
    # A cascade's proposer and rankers: 100 weights per label, and a low rank that moves few labels among the best.
    S, short, asked = sp.random(features, labels, 100 / features, "csr", np.float32, random_state=0), H / 100, X[:256]
    shift, lookup = np.zeros(labels, dtype=np.float32), Lookup.of(S)
    bounded = BoundedLabels.of(short, shift)
    listed = rng.integers(labels, size=(256, 50))
    additions = int(np.diff(S.indptr)[asked.indices].sum())

    def csr_bytes(matrix) -> int:
        return matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes

    transpose = X.T  # CSC view: scipy's own transposed product
    cases = [
        (
            "CSR × dense",
            lambda: both.matmul(W),
            lambda: X @ W,
            2 * X.nnz * width,
            csr_bytes(X) + W.nbytes + A.nbytes,
        ),
        (
            "transpose × dense",
            lambda: both.rmatmul(A),
            lambda: transpose @ A,
            2 * X.nnz * width,
            csr_bytes(X) + W.nbytes + A.nbytes,
        ),
        (
            "sampled product",
            lambda: kernels.sampled_product(Y, A, H, n_threads=threads),
            lambda: np.einsum("ij,ij->i", A[np.repeat(np.arange(rows), np.diff(Y.indptr))], H[Y.indices]),
            2 * Y.nnz * width,
            csr_bytes(Y) + A.nbytes + H.nbytes + 4 * Y.nnz,
        ),
        (
            "pair curvature",
            lambda: kernels.pair_curvature_product(Y, Y.data, A, H, n_threads=threads),
            lambda: plain_pair_curvature(Y, A, H),
            4 * Y.nnz * width,
            csr_bytes(Y) + 2 * A.nbytes + H.nbytes,
        ),
        (
            "row systems of 200 labels",
            lambda: kernels.solve_row_systems(*systems, n_threads=threads),
            lambda: reference.solve_row_systems(*systems),
            systems[0].nnz * width**2 + 200 * width**3 / 3,
            csr_bytes(systems[0]) + A.nbytes,
        ),
        (
            "gram",
            lambda: kernels.gram(A, n_threads=threads),
            lambda: A.T @ A,
            rows * width**2,  # symmetric: BLAS computes one half
            A.nbytes,
        ),
        (
            "rows × small",
            lambda: kernels.dense_matmul(A, small, n_threads=threads),
            lambda: A @ small,
            2 * rows * width**2,
            2 * A.nbytes,
        ),
        (
            "unit rows",
            lambda: kernels.unit_rows(X, n_threads=threads),
            lambda: normalize(X),
            3 * X.nnz,
            2 * X.data.nbytes + X.indptr.nbytes,
        ),
        (
            "top-5 of 2,048 rows",
            lambda: kernels.top_k_of_factors(some_rows, H, 5, n_threads=threads),
            lambda: np.argpartition(some_rows @ H.T, -5, axis=1),
            2 * len(some_rows) * labels * width,
            H.nbytes + some_rows.nbytes,
        ),
        (
            "top-5, known labels excluded",
            lambda: kernels.top_k_of_factors(some_rows, H, 5, exclude=Y[:2048], n_threads=threads),
            lambda: np.argpartition(some_rows @ H.T, -5, axis=1),
            2 * len(some_rows) * labels * width,
            H.nbytes + some_rows.nbytes,
        ),
        (
            "top-5 of given scores",
            lambda: kernels.top_k_of_scores(scores, 5),
            lambda: np.argpartition(scores, -5, axis=1),
            scores.size,
            scores.nbytes,
        ),
        (
            "top-50 of low rank plus sparse, 256 rows",
            lambda: top_k_within_bounds(A[:256], bounded, 50, rows=asked, sparse=S, n_threads=threads),
            lambda: np.argpartition((asked @ S).toarray() + A[:256] @ short.T, -50, axis=1),
            2 * additions + 256 * labels,
            8 * additions,
        ),
        (
            "margins of 50 labels, 256 rows",
            lambda: shortlist_margins(asked, listed, lookup, shift, n_threads=threads),
            lambda: np.take_along_axis((asked @ S).toarray(), listed, axis=1),
            2 * additions,
            8 * additions,
        ),
    ]
    found = []
    loads = 4 * X.nnz * width / cached
    for name, ours, theirs, operations, size in cases:
        seconds, peer = best_seconds(ours), best_seconds(theirs)
        limit = max(size / copy, operations / blas)
        with_loads = max(limit, loads) if name in SPARSE_PRODUCTS else limit
        found.append(
            {
                "kernel": name,
                "shape": shape,
                "width": width,
                "milliseconds": 1e3 * seconds,
                "gflops": operations / seconds / 1e9,
                "times_scipy": peer / seconds,
                "share_of_limit": limit / seconds,
                "share_with_loads": with_loads / seconds,
                "limit": "bytes" if size / copy > operations / blas else "operations",
            }
        )
    return found


def table(report: dict) -> str:
    lines = [
        f"Threads {report['threads']}; copy {report['copy_gb_per_s']:.1f} GB/s; BLAS {report['blas_gflops']:.0f} "
        f"GFLOP/s (float32), reading half a megabyte at {report['cached_gb_per_s']:.0f} GB/s; scipy and numpy as they "
        "come.",
        "",
        "| kernel | shape | k | ms | GFLOP/s | × scipy/numpy | share of the limit | limit | with loads |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['kernel']} | {r['shape']} | {r['width']} | {r['milliseconds']:.2f} | {r['gflops']:.1f} | "
        f"{r['times_scipy']:.1f} | {100 * r['share_of_limit']:.0f}% | {r['limit']} | "
        f"{100 * r['share_with_loads']:.0f}% |"
        for r in report["results"]
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--width", type=int, nargs="+", default=[64, 128, 256, 500])
    parser.add_argument("--quick", action="store_true", help="one shape, one width, nothing written")
    options = parser.parse_args()
    copy, blas = copy_rate(options.threads), blas_rate(options.threads)
    cached = read_rate(options.threads)
    report = {
        "machine": description(),
        "threads": options.threads,
        "copy_gb_per_s": copy / 1e9,
        "blas_gflops": blas / 1e9,
        "cached_gb_per_s": cached / 1e9,
        "results": [],
    }
    for shape in ["debtags"] if options.quick else SHAPES:
        for width in [64] if options.quick else options.width:
            report["results"] += measure(shape, width, options.threads, copy, blas, cached)
    text = table(report)
    print(text)
    if not options.quick:
        store(RESULTS / "kernels.json", report)
        (RESULTS / "kernels.md").write_text("# Kernels\n\n" + text)


if __name__ == "__main__":
    main()
