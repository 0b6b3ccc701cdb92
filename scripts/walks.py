"""Trace what five ordinary calls run through, file by file: the walks of docs/architecture.md.

``python scripts/walks.py`` prints them; ``--write`` puts them between the page's marks. Every file of tagwise counts of
which Python runs a function. What compiled code calls is not seen, and what only an import executes does not count.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tagwise"
PAGE = ROOT / "docs" / "architecture.md"
START, END = "<!-- walks: written by scripts/walks.py -->", "<!-- end of the walks -->"

MOST_FILES = {"LEML fit": 23, "Cascade fit": 42, "cluster fit": 46, "train": 70, "predict": 45}
"""A walk that grows beyond this has lost its way. Aims: 10, 18, four more than a local fit, 35 and 18."""


def traced(call: Callable[[], Any]) -> dict[str, list[str]]:
    """File (relative to src/tagwise) → the functions that ran in it, both in the order of first use."""
    found: dict[str, list[str]] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(str(SOURCE)) and not code.co_name.startswith("<"):
            functions = found.setdefault(str(Path(code.co_filename).relative_to(SOURCE)), [])
            if code.co_name not in functions:
                functions.append(code.co_name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def _quietly(run: Callable[[list[str]], Any], arguments: list[str]) -> None:
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            run(arguments)
    except SystemExit as end:
        raise RuntimeError(f"tagwise {' '.join(arguments)}: {said.getvalue()}") from end


def fit_on_cluster(model: Any, X: Any, Y: Any) -> None:
    """Fit on two workers within this process, so that what they run is seen."""
    from dask.distributed import Client, LocalCluster

    from tagwise.distributed import fit

    workers = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(processes=False, **workers) as cluster, Client(cluster) as client:
        fit(model, X, Y, client=client)


def walks() -> dict[str, dict[str, list[str]]]:
    """The five walks; each runs once beforehand, so that imports and compilations take no part."""
    from tagwise import LEML, Cascade
    from tagwise.cli.main import run
    from tagwise.data import load_dataset

    data = load_dataset("debtags-sample")
    X, Y, X_test = data.X_train[:1500], data.Y_train[:1500], data.X_test[:50]
    texts = SOURCE / "data" / "sample" / "text.trn.jsonl.gz"

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tagger = Path(folder) / "tagger"
        train = ["train", str(texts), "--out", str(tagger), "--overwrite", "--quiet"]
        calls: dict[str, Callable[[], Any]] = {
            "LEML fit": lambda: LEML(rank=20).fit(X, Y).predict_topk(X_test, k=5),
            "Cascade fit": lambda: Cascade().fit(X, Y).predict_topk(X_test, k=5),
            "cluster fit": lambda: fit_on_cluster(Cascade(), X, Y),
            "train": lambda: _quietly(run, train),
            "predict": lambda: _quietly(run, ["predict", str(tagger), "a text editor for programmers"]),
        }
        found = {}
        for name, call in calls.items():
            call()
            found[name] = traced(call)
    return found


def as_markdown(found: dict[str, dict[str, list[str]]]) -> str:
    """The walks as the page shows them."""
    parts = []
    for name, files in found.items():
        rows = [
            f"{place}. `{file}`: {', '.join(functions[:6])}{', …' if len(functions) > 6 else ''}"
            for place, (file, functions) in enumerate(files.items(), 1)
        ]
        parts.append(f"### {name}: {len(files)} files\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write them into docs/architecture.md")
    arguments = parser.parse_args()
    shown = as_markdown(walks())
    if arguments.write:
        page = PAGE.read_text()
        before, _, rest = page.partition(START)
        PAGE.write_text(f"{before}{START}\n\n{shown}\n\n{END}{rest.partition(END)[2]}")
    else:
        print(shown)
