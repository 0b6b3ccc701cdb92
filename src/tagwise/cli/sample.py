"""``tagwise sample``: the bundled data set as a file of texts and tags, to try the other commands on."""

from __future__ import annotations

import os

from tagwise.cli.options import Given, flag, option, verb
from tagwise.cli.output import show
from tagwise.data import load_dataset, write_csv, write_jsonl
from tagwise.data.streams import suffix_without_compression
from tagwise.exceptions import InvalidInputError
from tagwise.progress import counted

_WRITERS = {".jsonl": write_jsonl, ".ndjson": write_jsonl, ".json": write_jsonl, ".csv": write_csv, ".tsv": write_csv}


@verb(
    "file",
    option("--test FILE", "Also write the test rows, to measure a tagger on."),
    flag("--overwrite", "Replace files that exist."),
    examples=("tagwise sample packages.jsonl", "tagwise sample packages.jsonl --test others.jsonl"),
)
def command(given: Given) -> None:
    """Write descriptions of Debian packages and their tags to FILE: JSONL, CSV or TSV, by its ending."""
    data = load_dataset("debtags-sample")
    wanted = {given.file: (data.texts_train or [], data.Y_train)}
    if given.test is not None:
        if os.path.abspath(given.test) == os.path.abspath(given.file):
            raise InvalidInputError(f"--test: {given.test} is FILE itself; name another file.")
        wanted[given.test] = (data.texts_test or [], data.Y_test)
    for path in wanted:
        if suffix_without_compression(path) not in _WRITERS:
            raise InvalidInputError(
                f"{path}: sample writes JSONL, CSV and TSV; let the name end in .jsonl, .csv or .tsv."
            )
        if os.path.lexists(path) and not given.overwrite:
            raise InvalidInputError(f"{path} exists; name another file, or pass --overwrite to replace it.")
    for path, (texts, Y) in wanted.items():
        _WRITERS[suffix_without_compression(path)](path, texts, Y, data.label_names or [])
        show(f"{path}: {counted(Y.shape[0], 'package')}, {Y.nnz / Y.shape[0]:.1f} tags per package on average.")
