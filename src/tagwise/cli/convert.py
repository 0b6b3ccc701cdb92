"""``tagwise convert``: from one data format to another, naming whatever the other has no place for."""

from __future__ import annotations

import os
from typing import Any

import click

from tagwise.cli.conversion import Conversion, convert_matrix, convert_texts, texts_to_matrix
from tagwise.cli.options import FORMATS, RowOptions, examples, feature_options, json_option, row_options
from tagwise.cli.output import echo_err, show_json
from tagwise.cli.rows import format_of
from tagwise.data.records import MATRIX_FORMATS, STANDARD_INPUT, format_by_name
from tagwise.exceptions import InvalidInputError
from tagwise.progress import counted

__all__ = ["command"]

_WRITABLE = tuple(name for name in FORMATS if name != "text")


@click.command(
    name="convert",
    epilog=examples(
        "tagwise convert articles.jsonl articles.csv",
        "tagwise convert articles.csv articles.jsonl --tag-separator '|'",
        "tagwise convert train.xmc X.trn.npz",
        "tagwise convert train.arff train.svm --labels -14",
        "tagwise convert articles.jsonl articles.xmc --min-df 3",
        "tagwise convert test.jsonl test.xmc --model tagger",
    ),
)
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@click.option(
    "--to",
    type=click.Choice(_WRITABLE, case_sensitive=False),
    default="auto",
    show_default=True,
    help="What OUT is to be; auto goes by the ending of its name.",
)
@click.option(
    "--out-separator", default=";", show_default=True, help="Between the tags of a cell of OUT; JSON writes JSON lists."
)
@click.option("--out-labels", metavar="FILE", help="For npz: the file of the labels [default: OUT with Y for X].")
@feature_options
@click.option("--model", metavar="FOLDER", help="Texts to a matrix: with the words and tags of this tagger.")
@json_option
@row_options()
def command(
    source: str,
    target: str,
    overwrite: bool,
    to: str,
    out_separator: str,
    out_labels: str | None,
    features: dict[str, Any],
    model: str | None,
    as_json: bool,
    rows: RowOptions,
) -> None:
    """Convert IN to OUT: JSONL, CSV, TSV, Parquet, XMC text, svmlight, ARFF and npz.

    Between files of texts every column is kept, and memory is that of a row. Texts become a matrix as they do in train
    (TF-IDF); names of words and tags go to OUT.features.txt and OUT.labels.txt where the format has no place for them,
    and are read from such files. What cannot be kept is reported or refused. A matrix cannot become texts.
    """
    if target == STANDARD_INPUT:
        raise InvalidInputError("OUT: convert writes a file, not standard output; name one.")
    before = format_of(source, rows)
    after = to if to != "auto" else _target_format(target)
    job = Conversion(source, target, before, after, overwrite, out_separator, out_labels)
    job.check_target()
    if before == "text":
        raise InvalidInputError(f"{source} has texts but no tags; convert JSONL, CSV, TSV or Parquet.")
    wanted = [name for name, given in (("model", model), ("bigrams", features["bigrams"])) if given]
    wanted += ["characters"] if features["characters"] else []
    if wanted and (before in MATRIX_FORMATS or after not in MATRIX_FORMATS):
        raise click.UsageError(f"--{wanted[0]} is for texts that become a matrix; leave it out.")
    if before in MATRIX_FORMATS:
        if after not in MATRIX_FORMATS:
            raise InvalidInputError(
                f"{source} is a matrix, which has no texts to write to {target}; convert it to xmc, svmlight, arff or "
                "npz."
            )
        count = convert_matrix(job, rows)
    elif after in MATRIX_FORMATS:
        count = texts_to_matrix(job, rows, settings=features, model=model)
    else:
        count = convert_texts(job, rows)
    size = os.path.getsize(target)
    if as_json:
        show_json({"in": source, "from": before, "out": target, "to": after, "rows": count, "bytes": size})
    else:
        echo_err(f"{target}: {counted(count, 'row')}, {counted(size, 'byte')}.")


def _target_format(target: str) -> str:
    found = format_by_name(target, "--to")
    if found not in _WRITABLE:
        raise InvalidInputError(
            f"OUT: {target} is to be {found}, which convert does not write; choose another ending or --to."
        )
    return found
