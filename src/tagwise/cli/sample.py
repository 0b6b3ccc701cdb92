"""``tagwise sample``: the bundled data set as a file of texts and tags, to try the other commands on."""

from __future__ import annotations

import os

import click

from tagwise.cli.options import examples
from tagwise.cli.output import show
from tagwise.data import load_dataset, write_csv, write_jsonl
from tagwise.data.streams import suffix_without_compression
from tagwise.exceptions import InvalidInputError
from tagwise.progress import counted

__all__ = ["command"]

_WRITERS = {".jsonl": write_jsonl, ".ndjson": write_jsonl, ".json": write_jsonl, ".csv": write_csv, ".tsv": write_csv}


@click.command(epilog=examples("tagwise sample packages.jsonl", "tagwise sample packages.jsonl --test others.jsonl"))
@click.argument("file")
@click.option("--test", metavar="FILE", help="Also write the test rows, to measure a tagger on.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
def command(file: str, test: str | None, overwrite: bool) -> None:
    """Write descriptions of Debian packages and their tags to FILE: JSONL, CSV or TSV, by its ending."""
    data = load_dataset("debtags-sample")
    assert data.label_names is not None
    wanted = {file: (data.texts_train, data.Y_train)}
    if test is not None:
        if os.path.abspath(test) == os.path.abspath(file):
            raise InvalidInputError(f"--test: {test} is FILE itself; name another file.")
        wanted[test] = (data.texts_test, data.Y_test)
    for path in wanted:
        if suffix_without_compression(path) not in _WRITERS:
            raise InvalidInputError(
                f"{path}: sample writes JSONL, CSV and TSV; let the name end in .jsonl, .csv or .tsv. tagwise convert "
                "makes others of these."
            )
        if os.path.lexists(path) and not overwrite:
            raise InvalidInputError(f"{path} exists; name another file, or pass --overwrite to replace it.")
    for path, (texts, Y) in wanted.items():
        _WRITERS[suffix_without_compression(path)](path, texts or [], Y, data.label_names)
        show(f"{path}: {counted(Y.shape[0], 'package')}, {Y.nnz / Y.shape[0]:.1f} tags per package on average.")
