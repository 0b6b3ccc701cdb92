"""What this machine can do, measured in the same run as what is compared with it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable

import numpy as np

from tagwise.parallel import even_chunks, run_chunks, single_threaded_blas


def best_seconds(function: Callable[[], object], *, repeat: int = 5, least: float = 0.2) -> float:
    """The fastest of several calls, after one that warms up (and compiles)."""
    function()
    times = []
    while len(times) < repeat or sum(times) < least:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
        if sum(times) > 10:
            break
    return min(times)


def copy_rate(n_threads: int, megabytes: int = 256) -> float:
    """Bytes a second that a copy loop moves (read + written), on ``n_threads`` threads."""
    source = np.ones(megabytes * 1_000_000 // 4, dtype=np.float32)
    target = np.empty_like(source)
    chunks = even_chunks(len(source), 1 << 20)

    def copy() -> None:
        run_chunks(lambda start, stop: np.copyto(target[start:stop], source[start:stop]), chunks, n_threads)

    return 2 * source.nbytes / best_seconds(copy)


def blas_rate(n_threads: int, size: int = 3072) -> float:
    """float32 operations a second of a BLAS product, row blocks on ``n_threads`` threads."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    out = np.empty((size, size), dtype=np.float32)

    def product() -> None:
        with single_threaded_blas():
            run_chunks(
                lambda start, stop: np.matmul(left[start:stop], right, out=out[start:stop]),
                even_chunks(size, size // (2 * n_threads)),
                n_threads,
            )

    return 2 * size**3 / best_seconds(product)


def read_rate(n_threads: int, size: int = 1 << 19) -> float:
    """Bytes a second at which BLAS reads two float32 vectors of ``size`` bytes together for their scalar product.

    One pair a thread, read over and over, so that a cache of the second level holds it. Every number read is multiplied
    once, as the numbers that a sparse product gathers are: one that gathers from such a cache cannot be faster.
    """
    numbers = np.random.default_rng(0).standard_normal((n_threads, 2, size // 8)).astype(np.float32)
    times = 1 + 200_000_000 // size

    def over_and_over(start: int, stop: int) -> None:
        for first, second in numbers[start:stop]:
            for _ in range(times):
                np.dot(first, second)

    def read() -> None:
        with single_threaded_blas():
            run_chunks(over_and_over, even_chunks(n_threads, 1), n_threads)

    return n_threads * times * size / best_seconds(read)


def description() -> dict[str, object]:
    """What a reader needs to place the figures: kind of processor, cores, versions."""
    import numba
    import scipy

    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
    }
