"""A small data set folder to read, damage and put back, and freedom from the developer's own data folders."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp


@pytest.fixture
def data_home(tmp_path, monkeypatch) -> Path:
    """An empty folder that TAGWISE_DATA points to, with an empty user cache beside it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("TAGWISE_DATA", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    return home


@pytest.fixture
def write_folder():
    """A function that writes a whole data set: 6 training and 4 test rows, 5 features, 3 labels."""

    def write(folder: Path, **changed) -> Path:
        rng = np.random.default_rng(0)
        folder.mkdir(parents=True)
        matrices = {
            "X.trn": sp.random(6, 5, 0.5, format="csr", dtype=np.float32, random_state=1),
            "X.tst": sp.random(4, 5, 0.5, format="csr", dtype=np.float32, random_state=2),
            "Y.trn": sp.csr_matrix((rng.random((6, 3)) < 0.5).astype(np.float32)),
            "Y.tst": sp.csr_matrix((rng.random((4, 3)) < 0.5).astype(np.float32)),
        }
        for name, matrix in {**matrices, **changed}.items():
            sp.save_npz(folder / f"{name}.npz", matrix)
        (folder / "features.txt").write_text("".join(f"word{j}\n" for j in range(5)), encoding="utf-8")
        (folder / "labels.txt").write_text("red\ngrün\nblue\n", encoding="utf-8")
        for side, rows in (("trn", 6), ("tst", 4)):
            with gzip.open(folder / f"text.{side}.jsonl.gz", "wt", encoding="utf-8") as lines:
                for row in range(rows):
                    lines.write(json.dumps({"text": f"{side} {row}", "labels": ["red"]}) + "\n")
        return folder

    return write
