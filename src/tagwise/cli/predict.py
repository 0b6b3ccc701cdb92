"""``tagwise predict``: tags for a text, for lines of standard input, or for the rows of a file of any size."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import click

from tagwise import Tagger, load
from tagwise.cli.options import POSITIVE, ROWS, TEXTS, Given, RealRange, flag, option, verb
from tagwise.cli.output import echo_err, json_text, show, show_json, warn
from tagwise.cli.rows import dialect_of, holds_matrix, open_cluster, open_texts, read_matrix, tags_of, warn_of_rows
from tagwise.data.records import NoRowsError
from tagwise.data.streams import atomic_writer, is_compressed
from tagwise.data.tables import Row, TableReader, Tally
from tagwise.estimator import MultiLabelModel
from tagwise.exceptions import InvalidInputError
from tagwise.inspection.explanations import LEAST_SHARE
from tagwise.metrics.purposes import PURPOSES, needs_all_rows
from tagwise.progress import ProgressBar, counted, visible
from tagwise.store.atomic import atomic_write
from tagwise.store.folder import MANIFEST_NAME
from tagwise.text.suggestion import Request, Suggestion, suggestions

# Rows that are read, answered and written at a time.
_BLOCK_ROWS = 512
# Settings of the answers in a folder.
_SETTINGS = ".tagwise-predict.json"
_ROW_OPTIONS = {name: one for name, one in ROWS.items() if name in {*TEXTS, "group_by", "labels"}}


def _threshold(context: click.Context, option: click.Parameter, text: str | None) -> float | str | None:
    try:
        return text if text is None or text == "calibrated" else float(text)
    except ValueError:
        raise click.BadParameter(f'must be a number or "calibrated"; found {text!r}.') from None


@verb(
    "model",
    click.Argument(["source"], required=False, metavar="[TEXT | - | FILE]"),
    option("--top", "At most this many tags per text.", default=5, type=POSITIVE),
    option(
        "--threshold SCORE",
        'Only tags that score at least this; "calibrated": only tags that reach the thresholds learnt by train '
        "--validation.",
        callback=_threshold,
    ),
    option(
        "--min-probability P",
        "Only tags of at least this probability (a Cascade, or train --validation).",
        type=RealRange(0, 1),
    ),
    option(
        "--explain N",
        "Show the N words with the largest contributions for each tag.",
        default=0,
        show_default=False,
        type=click.IntRange(min=0),
    ),
    option(
        "--optimise",
        "Choose the tags that maximise this metric of --top tags, by their probabilities (a Cascade, or train "
        "--validation). macro_f1 chooses for all rows together, which are read before the first is answered.",
        type=click.Choice(PURPOSES),
    ),
    flag("--line-by-line", "Answer every row before reading the next, for use in pipes."),
    option(
        "--out FOLDER",
        "With --dask: write the answers to each file into a file of this folder. Files that are there already are "
        "kept, so the same command resumes a run that was cut off.",
    ),
    "--dask",
    "--embedding-cache",
    "--json",
    _ROW_OPTIONS,
    examples=(
        'tagwise predict tagger "how to prune an apple tree"',
        'tagwise predict tagger "how to prune an apple tree" --top 3 --explain 5',
        "tagwise predict tagger new-articles.csv --text body --json > suggestions.jsonl",
        "tail -f incoming.txt | tagwise predict tagger - --line-by-line",
        "some-program | tagwise predict tagger - --format jsonl --text body --json --line-by-line",
        "tagwise predict tagger new-articles.jsonl --threshold calibrated --top 20",
        "tagwise predict tagger new-articles.csv --optimise psp",
        "tagwise predict tagger 'parts/*.jsonl.gz' --dask local:4 --json --out suggestions",
    ),
)
def command(given: Given) -> None:
    """Suggest tags with MODEL for a TEXT, for the lines of standard input (-), or for the rows of a FILE.

    If a file of that name exists it is read, as by train; anything else is a text. Rows are answered in order and in
    constant memory, unless --optimise needs all of them: one line per row of tags with scores, or with --json one
    object per line. A row without text gets no tags. A FILE that is a matrix is answered by a model that was trained on
    one.

    With --dask the workers of a cluster answer the rows of one or many files, a file each at a time, and write the
    answers to each into a file of --out.
    """
    source, together = given.source, needs_all_rows(given.optimise)
    if (given.out is None) != (given.dask is None):
        missing, stated = ("--out", "--dask") if given.out is None else ("--dask", "--out")
        raise click.UsageError(f"{stated} needs {missing}: workers write the answers to each file into a folder.")
    if given.dask is not None and (source is None or given.line_by_line):
        raise click.UsageError("--dask is for files: name them, and leave --line-by-line out.")
    for name, stated in (("--dask", given.dask), ("--line-by-line", given.line_by_line)):
        if together and stated:
            raise click.UsageError(f"--optimise macro_f1 chooses tags for all rows together; leave {name} out.")
    if given.group_by and given.line_by_line:
        raise click.UsageError("--group-by puts rows together when all are read; leave --line-by-line out.")
    if source is None:
        if sys.stdin.isatty() and not given.line_by_line:
            echo_err("Type one text per line; end with Ctrl-D.")
        source = "-"
    is_file = given.dask is not None or source == "-" or os.path.exists(source)
    if not is_file:
        _require_text(source, given)
    fitted = load(given.model)
    wanted = given.values(("top", "threshold", "explain", "min_probability", "optimise"))
    if not isinstance(fitted, Tagger):
        if not is_file or given.dask is not None or given.explain:
            raise InvalidInputError(f"{given.model} was trained on a matrix and knows no words; give it a matrix file.")
        _predict_matrix(fitted, source, wanted, given)
        return
    fitted.suggest([], **wanted)  # before anything is read: refuses what needs a calibration
    if given.embedding_cache is not None:
        fitted.set_params(embedding_cache=given.embedding_cache)
    if given.dask is not None:
        _predict_files(fitted, source, wanted, given)
    elif not is_file:
        _predict_text(fitted, source, wanted, given.as_json)
    elif holds_matrix(source, given):
        raise InvalidInputError(f"{given.model} holds a tagger, which reads texts; {source} holds a matrix.")
    else:
        line_by_line = given.line_by_line or (source == "-" and sys.stdin.isatty() and not together)
        size = None if together else 1 if line_by_line else _BLOCK_ROWS
        with open_texts(source, given, line_by_line=line_by_line) as reader:
            _predict_rows(fitted, reader, wanted, size, given.as_json)


def _require_text(source: str, given: Given) -> None:
    """Raise if a text looks like a file name: a mistyped name must not be answered as a text."""
    if Path(source).suffix and not any(letter.isspace() for letter in source):
        raise click.BadParameter(
            f"{source!r} looks like a file name, but there is no such file. To tag a text of one word: "
            "echo TEXT | tagwise predict MODEL -",
            param_hint="FILE",
        )
    if given.stated.intersection(_ROW_OPTIONS):
        raise click.UsageError(
            f"{source!r:.60} is not a file, so it is read as a text, and options for reading files have no "
            "meaning. Check the name of the file, or leave them out."
        )


# ---------------------------------------------------------------------- a text, rows, a matrix


def _predict_text(tagger: Tagger, text: str, wanted: dict[str, Any], as_json: bool) -> None:
    if not text.strip():
        warn("the text is empty: it gets no tags.")
        if as_json:
            show_json({"suggestions": []})
        return
    X = tagger.transform([text])
    (answer,) = tagger.suggest_features(X, **wanted)
    if as_json:
        show_json(_as_plain({}, answer))
    else:
        for field in _fields({}, answer):
            show(field)
    if not answer:
        echo_err("No tag passes.")
    if X.nnz == 0:
        warn("the text has no known word; all such texts get the same tags.")


def _predict_rows(tagger: Tagger, reader: TableReader, wanted: dict[str, Any], size: int | None, as_json: bool) -> None:
    """Rows, ``size`` at a time; None: all of them."""
    n_rows = empty = 0
    # On a terminal the answers themselves show the progress.
    with ProgressBar("predicting", 1.0, wanted=not sys.stdout.isatty()) as bar:
        for block in _answered(tagger, reader, wanted, size):
            for row, answer in block:
                _show_row(_place(row), answer, as_json)
            if size == 1:
                sys.stdout.flush()
            n_rows, empty = n_rows + len(block), empty + sum(not row.text.strip() for row, _ in block)
            bar.at(reader.fraction_read(), counted(n_rows, "row"))
    _tell(n_rows, empty, reader.tally(), reader.account())


def _answered(
    tagger: Tagger, reader: TableReader, wanted: dict[str, Any], size: int | None
) -> Iterator[list[tuple[Row, list[Suggestion]]]]:
    """Rows with their answers, ``size`` at a time; a row without text gets none."""
    rows = iter(reader)
    while block := list(islice(rows, size)):
        answers = iter(tagger.suggest([row.text for row in block if row.text.strip()], **wanted))
        yield [(row, next(answers) if row.text.strip() else []) for row in block]


def _tell(n_rows: int, empty: int, tally: Tally, account: str) -> None:
    """Report rows that were left out or answered differently than they look."""
    if empty:
        warn(f"{empty:,} of {counted(n_rows, 'row')} without text got no tags.")
    warn_of_rows(tally)
    if tally.skipped or tally.spanning:
        echo_err(account)


def _predict_matrix(model: MultiLabelModel, file: str, wanted: dict[str, Any], given: Given) -> None:
    """Answers of a plain model to the rows of a matrix, which is read whole."""
    request = Request(**wanted)
    request.check(model, None)
    X = read_matrix(file, given, shape=(model.n_features_in_, model.n_labels_), labelled=False).X
    assert X is not None
    names = tags_of(model)
    size = max(1, X.shape[0]) if needs_all_rows(given.optimise) else _BLOCK_ROWS
    for start in range(0, X.shape[0], size):
        for row, answer in enumerate(suggestions(request, X[start : start + size], model, names), start + 1):
            _show_row({"row": row}, answer, given.as_json)


# ---------------------------------------------------------------------- files on a cluster


def _predict_files(tagger: Tagger, pattern: str, wanted: dict[str, Any], given: Given) -> None:
    """Answer files on the workers of a cluster; existing answers are kept."""
    client = open_cluster(given.dask)
    from tagwise.distributed.texts import open_files, write_each

    files, guess = open_files(pattern, dialect_of(given), with_tags=False, empty_texts=True)
    if guess is not None:
        echo_err(guess)
    targets = _targets([file.path for file in files], os.path.abspath(given.out), given.as_json)
    digest = hashlib.sha256((Path(given.model) / MANIFEST_NAME).read_bytes()).hexdigest()
    _claim(given.out, {"tagger": digest, "json": given.as_json, **wanted, **given.values(_ROW_OPTIONS)})
    waiting = [(file, target) for file, target in zip(files, targets) if not os.path.exists(target)]
    if len(waiting) < len(files):
        there = counted(len(files) - len(waiting), "file")
        echo_err(f"{given.out}: {there} of {len(files):,} answered by an earlier run; kept as they are.")
    for _, target in waiting:
        os.makedirs(os.path.dirname(target), exist_ok=True)
    found = write_each(write_answers, waiting, tagger, wanted, given.as_json, client=client, verbose=1)
    n_rows, tallies = sum(rows for rows, _, _ in found), [tally for _, _, tally in found if tally is not None]
    if tallies:
        tally = tallies[0].plus(*tallies[1:])
        _tell(n_rows, sum(empty for _, empty, _ in found), tally, tally.account(counted(len(found), "file")))
    show(f"{counted(n_rows, 'row')} of {counted(len(found), 'file')} answered; all answers are in {given.out}.")


def write_answers(
    tagger: Tagger, file: Any, target: str, wanted: dict[str, Any], as_json: bool
) -> tuple[int, int, Tally | None]:
    """Answer the rows of one file, on a worker: the answers appear all at once.

    Returns the number of rows, that of rows without text, and what became of the lines.
    """
    n_rows = empty = 0
    with atomic_writer(target) as stream, ExitStack() as stack:
        try:
            reader = stack.enter_context(file.reader(with_tags=False, empty_texts=True))
        except NoRowsError:
            return 0, 0, None
        for block in _answered(tagger, reader, wanted, _BLOCK_ROWS):
            for row, answer in block:
                place = _place(row)
                line = (
                    json_text(_as_plain(place, answer)) if as_json else "\t".join(map(visible, _fields(place, answer)))
                )
                stream.write(f"{line}\n".encode())
            n_rows, empty = n_rows + len(block), empty + sum(not row.text.strip() for row, _ in block)
        return n_rows, empty, file.named(reader.tally())


def _targets(paths: list[str], out: str, as_json: bool) -> list[str]:
    """The file of answers to each file: of the same name in the same place below ``out``."""
    top = os.path.commonpath([os.path.dirname(path) for path in paths])
    targets: dict[str, str] = {}
    for path in paths:
        stem = os.path.relpath(path, top).removesuffix(Path(path).suffix if is_compressed(path) else "")
        target = os.path.join(out, os.path.splitext(stem)[0] + (".jsonl" if as_json else ".txt"))
        if target in targets:
            raise InvalidInputError(
                f"{targets[target]} and {path} would both be answered in {target}; give files different names."
            )
        targets[target] = path
    return list(targets)


def _claim(out: str, settings: dict[str, Any]) -> None:
    """Create the folder of answers, or check that it belongs to an earlier run of the same command."""
    note, content = Path(out) / _SETTINGS, json_text(settings, indent=2) + "\n"
    if note.is_file():
        if note.read_text(encoding="utf-8") != content:
            raise InvalidInputError(
                f"--out: {out} holds answers of another tagger, or to other options; name another folder, or remove it."
            )
        return
    if os.path.isdir(out) and os.listdir(out):
        raise InvalidInputError(f"--out: {out} is not empty, and not of an earlier run; name another folder.")
    os.makedirs(out, exist_ok=True)
    atomic_write(note, lambda stream: stream.write(content.encode()))


# ---------------------------------------------------------------------- what an answer looks like


def _show_row(place: dict[str, Any], answer: list[Suggestion], as_json: bool) -> None:
    if as_json:
        show_json(_as_plain(place, answer), indent=None)
    else:
        show(*_fields(place, answer))


def _place(row: Row) -> dict[str, Any]:
    return {"line": row.line} if row.id is None else {"line": row.line, "id": row.id}


def _as_plain(place: dict[str, Any], answer: list[Suggestion]) -> dict[str, Any]:
    """An answer for JSON, with only the requested fields."""
    plain = []
    for suggestion in answer:
        parts = {name: getattr(suggestion, name) for name in ("tag", "name", "score", "probability")}
        if suggestion.why is not None:
            parts |= {"intercept": suggestion.intercept, "why": [asdict(word) for word in suggestion.why]}
        plain.append({name: value for name, value in parts.items() if value is not None})
    return {**place, "suggestions": plain}


def _fields(place: dict[str, Any], answer: list[Suggestion]) -> list[str]:
    """An answer as text: the row's identifier, and each tag with its probability (or score) and words."""
    fields = [place["id"]] if "id" in place else []
    for one in answer:
        field = f"{one.title} " + (f"{one.score:.3f}" if one.probability is None else f"{100 * one.probability:.0f}%")
        if one.why is not None:
            parts = [(word.word, word.share) for word in one.why if abs(word.share) >= LEAST_SHARE]
            words = (f"{word} {100 * share:+.{0 if abs(share) >= 0.01 else 1}f}%" for word, share in parts)
            field += f" ({', '.join(words)})"
        fields.append(field)
    return fields
