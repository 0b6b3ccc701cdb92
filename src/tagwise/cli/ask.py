"""``tagwise ask``: which pairs of a text and a tag people should answer next, as a queue for ``tagwise serve``."""

from __future__ import annotations

import os
from typing import Any

import click
import numpy as np
import scipy.sparse as sp

from tagwise import Tagger
from tagwise.cli.options import RealRange, RowOptions, examples, feedback_tagger_option, row_options, seed_option
from tagwise.cli.output import echo_err, json_text, show_json, warn
from tagwise.cli.rows import answered_rows, load_model, read_texts
from tagwise.data.feedback import Feedback, read_feedback
from tagwise.exceptions import InvalidInputError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.inspection.questions import STRATEGIES, Questions, ask
from tagwise.persistence.atomic import atomic_write
from tagwise.progress import ProgressBar, counted

__all__ = ["command"]


@click.command(
    epilog=examples(
        "tagwise ask tagger unlabelled.jsonl --top 50 --out queue.jsonl",
        "tagwise serve tagger --queue queue.jsonl --feedback feedback.jsonl",
        "tagwise ask tagger unlabelled.jsonl --feedback feedback.jsonl --per-tag 5 > queue.jsonl",
    )
)
@click.argument("model")
@click.argument("file")
@click.option(
    "--top",
    default=50,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many pairs of text and tag.",
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default=STRATEGIES[0],
    show_default=True,
    help="informative: uncertain pairs, rare tags before frequent ones, of texts that differ; top: the best tags of "
    "random texts; random: random pairs.",
)
@click.option(
    "--per-text", default=5, show_default=True, type=click.IntRange(min=1), help="At most so many questions on a text."
)
@click.option(
    "--per-tag",
    type=click.IntRange(min=1),
    metavar="N",
    help="At most so many questions on a tag [default: a twentieth of --top, at least 3].",
)
@click.option(
    "--rarity",
    default=0.5,
    show_default=True,
    type=RealRange(0, 1),
    metavar="0..1",
    help="How much rare tags count: 0 like all others, 1 as in PSP.",
)
@click.option(
    "--feedback", metavar="FILE.jsonl", help="Answers so far, as tagwise serve keeps them: these are not asked again."
)
@feedback_tagger_option
@click.option("--out", metavar="FILE.jsonl", help="Write the queue to this file [default: standard output].")
@seed_option
@row_options("text", "id", "format", "no_header", "quoting", "encoding", "skip_faulty")
def command(
    model: str,
    file: str,
    top: int,
    strategy: str,
    per_text: int,
    per_tag: int | None,
    rarity: float,
    feedback: str | None,
    feedback_tagger: str | None,
    out: str | None,
    seed: int,
    rows: RowOptions,
) -> None:
    """Choose what people should say about the texts of FILE, so that MODEL learns most.

    Writes a queue for tagwise serve --queue: one JSON line per text, with the tags asked about, most telling first. The
    page of the server shows these tags before all others. Needs probabilities: the default model has them, and so has
    every tagger that was trained with --validation.
    """
    if out is not None:
        _check_out(out)
    tagger: Tagger = load_model(model, "ask", texts=True)
    answers = None if feedback is None else read_feedback(feedback, tagger=feedback_tagger)
    texts, ids = _distinct(*read_texts(file, rows))
    with ProgressBar(f"reading the words of {counted(len(texts), 'text')}", None):
        X = tagger.transform(texts)
    # An embedding says something of a text without a known word.
    with_words = np.arange(len(texts)) if isinstance(X, FeatureBlocks) else np.flatnonzero(np.diff(X.indptr))
    if len(with_words) < len(texts):
        warn(f"left out: {counted(len(texts) - len(with_words), 'text')} without a word that training saw.")
    if not len(with_words):
        raise InvalidInputError(f"no text of {file} has a word that training saw; there is nothing to ask about.")
    texts, ids, X = [texts[row] for row in with_words], [ids[row] for row in with_words], X[with_words]
    known = None if answers is None else _answered(tagger, texts, ids, answers)
    with ProgressBar("choosing questions", None):
        found = ask(
            tagger.model_,
            X,
            top,
            strategy,
            calibration=tagger.calibration_,
            counts=(tagger.training_["tag_rows"], tagger.training_["rows"]),
            exclude=known,
            per_row=per_text,
            per_label=per_tag,
            rarity=rarity,
            random_state=seed,
        )
    queue = _queue(tagger, texts, ids, found)
    if out is None:
        for one in queue:
            show_json(one, indent=None)
    else:
        content = "".join(f"{json_text(one)}\n" for one in queue).encode()
        atomic_write(out, lambda stream: stream.write(content))
    echo_err(_account(found, len(queue), top))
    if out is not None:
        echo_err(f"Queue written to {out}. Next: tagwise serve {model} --queue {out} --feedback feedback.jsonl")


def _check_out(out: str) -> None:
    """Refuse a file that could not be written, before any work."""
    folder = os.path.dirname(out) or "."
    if not os.path.isdir(folder):
        raise InvalidInputError(f"--out: the folder {folder!r} does not exist; create it first.")
    if not out.endswith(".jsonl"):
        raise InvalidInputError(f"--out: a queue is JSON lines, so its name must end in .jsonl; found {out!r}.")
    if os.path.isdir(out):
        raise InvalidInputError(f"--out: {out!r} is a folder; name a file.")


def _distinct(texts: list[str], ids: list[str | None]) -> tuple[list[str], list[str | None]]:
    """Each text once, with its first identifier: nobody answers the same question twice."""
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        first.setdefault(text.strip(), row)
    if len(first) < len(texts):
        warn(f"left out: {counted(len(texts) - len(first), 'row')} that repeat an earlier text.")
    return [texts[row] for row in first.values()], [ids[row] for row in first.values()]


def _answered(tagger: Tagger, texts: list[str], ids: list[str | None], answers: Feedback) -> sp.csr_matrix:
    """The pairs (n, L) that have an answer."""
    known = answered_rows(texts, ids, answers).known or []
    return tagger.label_matrix([row or [] for row in known[: len(texts)]])[0]


def _queue(tagger: Tagger, texts: list[str], ids: list[str | None], found: Questions) -> list[dict[str, Any]]:
    queue = []
    for row, positions in found.by_row().items():
        one: dict[str, Any] = {} if ids[row] is None else {"id": ids[row]}
        one |= {"text": texts[row], "asked": [str(tagger.tags_[label]) for label in found.labels[positions]]}
        if not np.isnan(found.probabilities[positions]).any():
            one["probability"] = [round(float(p), 4) for p in found.probabilities[positions]]
        queue.append(one)
    return queue


def _account(found: Questions, n_texts: int, top: int) -> str:
    asked = counted(len(found), "question")
    said = f"{asked} on {counted(n_texts, 'text')} and {counted(len(np.unique(found.labels)), 'tag')}"
    if len(found) and not np.isnan(found.probabilities).any():
        said += f", of which about {found.probabilities.sum():,.0f} will be accepted"
    if len(found) < top:
        said += f"; {top:,} were wanted, but the limits leave no more"
    return said + "."
