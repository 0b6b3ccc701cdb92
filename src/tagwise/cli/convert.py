"""``tagwise convert``: texts or a matrix to a matrix in another format, naming whatever that has no place for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tagwise.cli.options import FEATURES, ROWS, Given, flag, option, verb
from tagwise.cli.output import echo_err, show_json, warn
from tagwise.cli.rows import format_of, load_model, read_matrix, read_names, read_rows
from tagwise.data.formats import FORMATS, STANDARD_INPUT, format_by_name
from tagwise.data.streams import atomic_writer
from tagwise.exceptions import InvalidInputError
from tagwise.progress import counted
from tagwise.text.features import TextFeatures
from tagwise.text.tags import all_tags, tag_matrix

_MATRICES = tuple(name for name, entry in FORMATS.items() if entry.holds == "matrix")


@verb(
    click.Argument(["source"], metavar="IN"),
    click.Argument(["target"], metavar="OUT"),
    flag("--overwrite", "Replace OUT if it exists."),
    option(
        "--to",
        "Format of OUT; auto goes by the ending of its name.",
        type=click.Choice(("auto", *_MATRICES), case_sensitive=False),
        default="auto",
    ),
    option("--out-labels FILE", "For npz: the file of the labels [default: OUT with Y for X]."),
    FEATURES,
    option("--model FOLDER", "Texts to a matrix: with the words and tags of this tagger."),
    "--json",
    ROWS,
    examples=(
        "tagwise convert train.xmc X.trn.npz",
        "tagwise convert train.arff train.svm --labels -14",
        "tagwise convert articles.jsonl articles.xmc --min-df 3",
        "tagwise convert test.jsonl test.xmc --model tagger",
    ),
)
def command(given: Given) -> None:
    """Convert IN to OUT, a matrix in XMC text, svmlight, ARFF or npz.

    IN is such a matrix, or texts with tags, which become one as they do in train (TF-IDF). Names of words and tags go
    to OUT.features.txt and OUT.labels.txt where the format has no place for them, and are read from such files. What
    cannot be kept is reported or refused.
    """
    source, target = given.source, given.target
    if target == STANDARD_INPUT:
        raise InvalidInputError("OUT: convert writes a file, not standard output; name one.")
    before = format_of(source, given)
    after = FORMATS[given.to] if given.to != "auto" else format_by_name(target, "--to")
    if after.name not in _MATRICES or before.name == "text":
        raise InvalidInputError(
            f"convert makes matrices ({', '.join(_MATRICES)}) of others and of texts with tags; it cannot make "
            f"{after.name} of {source}."
        )
    if given.out_labels is not None and after.name != "npz":
        raise InvalidInputError(f"--out-labels is for npz; {after.name} files hold their labels themselves.")
    written = [target]
    if after.name == "npz":
        written.append(given.out_labels or _labels_beside(target))
    names_target = {what: f"{target}.{what}.txt" for what in ("features", "labels")}
    for path in [*written, *(names_target.values() if after.name != "arff" else ())]:
        if os.path.isdir(path):
            raise InvalidInputError(f"OUT: {path} is a folder; name a file.")
        if source != STANDARD_INPUT and os.path.exists(path) and os.path.samefile(source, path):
            raise InvalidInputError(f"OUT: {path} is IN itself; name another file.")
        if os.path.lexists(path) and not given.overwrite:
            raise InvalidInputError(f"OUT: {path} exists; name another file, or pass --overwrite to replace it.")
    if before.holds == "texts":
        X, Y, names = _of_texts(given)
    else:
        given.refuse_for_matrix(source, "model")
        found = read_matrix(source, given, exact=True)
        X, Y = found.X, found.Y
        assert X is not None
        if "dtype" not in before.arguments:
            echo_err(f"{source}: values were read as 32-bit floats.")
        names = {
            "features": found.feature_names or read_names(source, "features", X.shape[1]),
            "labels": found.label_names or read_names(source, "labels", Y.shape[1]),
        }
    if after.name == "arff":
        n_zeros = int((X.data == 0).sum())
        if n_zeros:
            warn(f"{n_zeros:,} zeros that {source} stores are left out: ARFF does not tell them apart.")
        words, tags = names["features"], names["labels"]
        if words is not None and tags is not None and set(words) & set(tags):
            echo_err('Words and tags share names; words are written as "word:…" and tags as "tag:…".')
            words, tags = [f"word:{name}" for name in words], [f"tag:{name}" for name in tags]
        after.write(target, X, Y, feature_names=words, label_names=tags)
    else:
        after.write(*written, X, Y)
        for what, listed in names.items():
            if listed is not None:
                _write_names(names_target[what], listed)
                echo_err(f"Names of {what} are in {names_target[what]}.")
            else:
                Path(names_target[what]).unlink(missing_ok=True)  # of the file that was replaced
    if after.name == "svmlight":
        echo_err(
            f"svmlight does not store the number of columns: {X.shape[1]:,} features and {Y.shape[1]:,} labels. "
            "Readers must be given these numbers, or empty columns at the end are lost."
        )
    size = os.path.getsize(target)
    if given.as_json:
        result = {"in": source, "from": before.name, "out": target, "to": after.name}
        show_json({**result, "rows": X.shape[0], "bytes": size})
    else:
        echo_err(f"{' and '.join(written)}: {counted(X.shape[0], 'row')}, {counted(size, 'byte')}.")


def _labels_beside(target: str) -> str:
    name = Path(target).name
    if not name.startswith("X"):
        raise InvalidInputError(
            f"OUT: {target} is for the features; name the file of the labels with --out-labels, or let OUT "
            "start with X, such as X.npz, which puts the labels into Y.npz."
        )
    return str(Path(target).with_name("Y" + name[1:]))


def _of_texts(given: Given) -> tuple[Any, Any, dict[str, list[str] | None]]:
    """TF-IDF features, labels and the names of both; with a tagger's words and tags where one is given."""
    for name in ("known", "id"):
        if getattr(given, name) is not None:
            raise InvalidInputError(f"--{name}: a matrix has no place for it; leave it out.")
    rows = read_rows(given.source, given)
    if given.model is not None:
        tagger = load_model(given.model, "convert --model", texts=True)
        X, words, tags = tagger.transform(rows.texts), tagger.features_.feature_names, tagger.tags_
        Y, unseen = tagger.label_matrix(rows.tags)
        if unseen:
            several = ", ".join(f"{tag!r} ({count:,})" for tag, count in unseen.most_common(5))
            warn(f"left out: {counted(len(unseen), 'tag')} that {given.model} never saw: {several:.300}.")
    else:
        extractor = TextFeatures(**given.values(FEATURES))
        X = extractor.fit_transform(rows.texts)
        words, tags = extractor.feature_names, all_tags(rows.tags)
        Y, _ = tag_matrix(rows.tags, {name: place for place, name in enumerate(tags)})
    echo_err(f"Texts became {X.shape[1]:,} TF-IDF features; the texts themselves and other columns are not kept.")
    return X, Y, {"features": words, "labels": tags}


def _write_names(path: str, names: list[str]) -> None:
    with atomic_writer(path) as output:
        for name in names:
            if "\n" in name or "\r" in name:
                raise InvalidInputError(f"the name {name!r:.60} holds a line break; rename it first.")
            output.write(f"{name}\n".encode())
