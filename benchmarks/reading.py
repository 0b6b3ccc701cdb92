"""Speed and peak memory of the text reader beside scikit-learn's svmlight loader, which it stands on, in one run.

    python benchmarks/reading.py [--rows 200000] [--features-per-row 80] [--repeats 3] [--file FILE] [--json FILE]

Both read the same uncompressed extreme-classification file; scikit-learn skips the header line by its ``offset``.
Times are the best of some repeats, after one read of a tiny file that imports. Memory is the rise of the
kernel's high-water mark (VmHWM, set back before the read) in a fresh process per reader, so it needs Linux.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from memory import forget_peak, peak_bytes

from tagwise.data import read_xmc, write_xmc

MEGABYTE = 1e6
RESULT = Path(__file__).parent / "results" / "reading.json"


def generate(path: Path, rows: int, features_per_row: int) -> None:
    """A file of tf-idf-like values with 4 significant digits, 5 labels per row."""
    random = np.random.default_rng(0)
    n_features, n_labels = 100_000, 10_000
    X = sp.csr_matrix(
        (
            random.lognormal(-3, 1, rows * features_per_row).astype(np.float32).round(4) + np.float32(1e-4),
            np.sort(random.integers(0, n_features, (rows, features_per_row)), axis=1).ravel(),
            np.arange(0, rows * features_per_row + 1, features_per_row),
        ),
        shape=(rows, n_features),
    )
    X.sum_duplicates()
    labels = random.integers(0, n_labels, (rows, 5))
    Y = sp.csr_matrix((np.ones(rows * 5), labels.ravel(), np.arange(0, rows * 5 + 1, 5)), shape=(rows, n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    write_xmc(path, X, Y)


def read_tagwise(path: str):
    rows = read_xmc(path)
    return [rows.X, rows.Y]


def read_sklearn(path: str):
    from sklearn.datasets import load_svmlight_file

    with open(path, "rb") as stream:
        n_features = int(stream.readline().split()[1])
    X, labels = load_svmlight_file(
        path, n_features=n_features, dtype=np.float32, multilabel=True, zero_based=True, offset=1
    )
    return [X, labels]


READERS = {"tagwise": read_tagwise, "scikit-learn": read_sklearn}


def measure(reader: str, tiny: str, path: str, repeats: int) -> dict[str, float]:
    """Time and memory of one reader in this process."""
    read = READERS[reader]
    read(tiny)
    before = forget_peak()
    start = time.perf_counter()
    matrices = read(path)
    seconds = [time.perf_counter() - start]
    peak = peak_bytes() - before
    final = sum(a.nbytes for m in matrices if sp.issparse(m) for a in (m.data, m.indices, m.indptr))
    del matrices
    for _ in range(repeats - 1):
        start = time.perf_counter()
        read(path)
        seconds.append(time.perf_counter() - start)
    return {"seconds": min(seconds), "peak_bytes": peak, "final_bytes": final}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features-per-row", type=int, default=80)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--file", type=Path, help="an uncompressed file to read instead of a generated one")
    parser.add_argument("--json", type=Path, default=RESULT, help="where to write the figures")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure, arguments.repeats)))
        return
    with tempfile.TemporaryDirectory() as folder:
        tiny, path = Path(folder) / "tiny.txt", arguments.file or Path(folder) / "rows.txt"
        tiny.write_text("1 4 3\n0,2 1:0.5 3:1\n")
        if arguments.file is None:
            generate(path, arguments.rows, arguments.features_per_row)
        size = path.stat().st_size
        results = {}
        for reader in READERS:
            command = [sys.executable, __file__, "--repeats", str(arguments.repeats), "--measure"]
            output = subprocess.run(
                [*command, reader, str(tiny), str(path)], check=True, capture_output=True, text=True
            ).stdout
            results[reader] = json.loads(output)
    ours, theirs = results["tagwise"], results["scikit-learn"]
    bound = 1.5 * ours["final_bytes"] + 64 * MEGABYTE
    print(f"file: {size / MEGABYTE:.0f} MB; final matrices: {ours['final_bytes'] / MEGABYTE:.0f} MB")
    print(f"{'reader':14}{'seconds':>9}{'MB/s':>8}{'peak MB':>9}")
    for reader, result in results.items():
        speed = size / MEGABYTE / result["seconds"]
        print(f"{reader:14}{result['seconds']:9.2f}{speed:8.0f}{result['peak_bytes'] / MEGABYTE:9.0f}")
    print(f"{ours['seconds'] / theirs['seconds']:.2f} times scikit-learn's own time")
    print(f"peak memory {'within' if ours['peak_bytes'] <= bound else 'ABOVE'} the bound of {bound / MEGABYTE:.0f} MB")
    if arguments.json:
        arguments.json.write_text(json.dumps({"file_bytes": size, "bound_bytes": bound, **results}, indent=2) + "\n")
    if ours["peak_bytes"] > bound:
        sys.exit("the reader takes more memory than it should")


if __name__ == "__main__":
    main()
