"""The files through which driver and worker speak. Needs only numpy and scipy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

LABELS = "labels.npz"
UNLISTED = "unlisted.unknown"
RESULT = "result.json"


@dataclass(frozen=True)
class Problem:
    """What a system may see: training rows with the labels that are known to be on, and test rows."""

    X: sp.csr_matrix
    Y: sp.csr_matrix
    X_test: sp.csr_matrix
    observed: sp.csr_matrix | None = None
    unlisted: str = "off"
    """"unknown" where nobody looked at the labels that Y does not list; there is no mask then."""

    def write(self, folder: Path) -> None:
        """Each matrix to a file of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("X", "Y", "X_test", "observed"):
            matrix = getattr(self, name)
            if matrix is not None:
                sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(matrix), compressed=False)
        if self.unlisted == "unknown":
            (folder / UNLISTED).touch()

    @classmethod
    def read(cls, folder: Path, *, with_mask: bool) -> Problem:
        """The problem with its mask, if it has one, or as those see it who cannot use a mask.

        They take what is unknown for "no". Rows of which no label is visible would teach them nothing but that: they
        are left out, as anyone would who has such rows, and which serves them better.
        """
        X, Y, X_test = (read_matrix(folder, name) for name in ("X", "Y", "X_test"))
        if not (folder / "observed.npz").exists():
            return cls(X, Y, X_test, unlisted="unknown" if (folder / UNLISTED).exists() else "off")
        if with_mask:
            return cls(X, Y, X_test, read_matrix(folder, "observed"))
        labelled = np.flatnonzero(np.diff(Y.indptr))
        return cls(X[labelled], Y[labelled], X_test)


@dataclass(frozen=True)
class Job:
    """What a worker is told to do."""

    phase: str
    plugin: str
    system: str
    settings: dict[str, Any]
    threads: int
    problem: str
    scratch: str
    model: str
    out: str
    places: int = 5
    rows: int = 200
    chosen: dict[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Job:
        return cls(**json.loads(Path(path).read_text()))


def read_matrix(folder: str | Path, name: str) -> sp.csr_matrix:
    """One of a problem's matrices, with sorted column numbers as several peers demand."""
    matrix = sp.csr_matrix(sp.load_npz(Path(folder) / f"{name}.npz"))
    matrix.sort_indices()
    return matrix


def write_labels(folder: Path, labels: np.ndarray) -> None:
    np.savez(folder / LABELS, labels=np.asarray(labels, dtype=np.int64))


def read_labels(folder: Path) -> np.ndarray:
    with np.load(folder / LABELS, allow_pickle=False) as stored:
        return stored["labels"]
