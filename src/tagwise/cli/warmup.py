"""``tagwise warmup``: compile what the usual commands need, once, so that none of them has to wait for it."""

from __future__ import annotations

import tempfile
import time
import warnings

import click
import numpy as np

from tagwise import load
from tagwise.cli.options import Given, verb
from tagwise.data import load_dataset
from tagwise.exceptions import TagwiseWarning
from tagwise.kernels.compiled import n_compiled
from tagwise.progress import ProgressBar
from tagwise.reports.findings import gather_findings
from tagwise.text.tagger import Tagger

_MODELS = ("cascade", "leml", "reml", "binary-relevance")
_FEW_ROWS, _FEW_TAGS = 770, 15


@verb(examples=("tagwise warmup",))
def command(given: Given) -> None:
    """Compile for this machine what training, prediction and measurement need.

    Otherwise the first commands do so, which takes them up to a minute more. The result is kept beside the library, or
    where NUMBA_CACHE_DIR says.
    """
    started, before = time.perf_counter(), n_compiled()
    data = load_dataset("debtags-sample")
    names, Y = data.label_names or [], data.Y_train
    # All rows: with fewer, some loops that usual data needs are not met.
    texts = data.texts_train or []
    tags = [[names[label] for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]]] for row in range(len(texts))]
    # And few rows with few tags, whose models are small enough to be dense: they take other loops.
    often = {names[label] for label in np.argsort(-Y.getnnz(axis=0), kind="stable")[:_FEW_TAGS]}
    few = [[tag for tag in row if tag in often] for row in tags[:_FEW_ROWS]]
    with (
        ProgressBar("compiling", len(_MODELS), steps=True) as bar,
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", TagwiseWarning)  # of ranks and tags of data that is not the user's
        for number, model in enumerate(_MODELS):
            bar.at(number, model)
            for size, lists in (("many", tags), ("few", few)):
                place = f"{folder}/{model}-{size}"
                rows = texts[: len(lists)]
                tagger = Tagger(model=model, verbose=0).fit(rows, lists)
                tagger.calibrate(rows[:100], lists[:100])
                tagger.save(place)
                tagger = load(place)
                gather_findings(tagger, rows[:100], lists[:100])  # evaluates, and more
                tagger.suggest(rows[:1], explain=3)
            bar.at(number + 1)
    if n_compiled() == before:
        click.echo("Nothing had to be compiled: it was, for this machine and this version.")
    else:
        click.echo(f"Compiled in {time.perf_counter() - started:.0f} s.")
