"""``tagwise ask``: the next questions (pairs of a text and a tag) for people, as a queue for ``tagwise serve``."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from tagwise import Tagger
from tagwise.cli.options import POSITIVE, TEXTS, Given, RealRange, option, verb
from tagwise.cli.output import echo_err, json_text, show_json, warn
from tagwise.cli.rows import answered_rows, load_model, read_answers, read_texts
from tagwise.exceptions import InvalidInputError
from tagwise.feature_blocks import FeatureBlocks
from tagwise.inspection.questions import STRATEGIES, Questions, ask
from tagwise.progress import ProgressBar, counted
from tagwise.store.atomic import atomic_write, check_target


@verb(
    "model",
    "file",
    option("--top", "Number of pairs of text and tag.", default=50, type=POSITIVE),
    option(
        "--strategy",
        "informative: uncertain pairs, rare tags before frequent ones, of texts that differ; top: the best tags of "
        "random texts; random: random pairs.",
        type=click.Choice(STRATEGIES),
        default=STRATEGIES[0],
    ),
    option("--per-text", "Largest number of questions on a text.", default=5, type=POSITIVE),
    option(
        "--per-tag N",
        "Largest number of questions on a tag [default: 5% of --top, at least 3].",
        type=POSITIVE,
    ),
    option("--rarity 0..1", "Weight of rare tags: 0 like all others, 1 as in PSP.", default=0.5, type=RealRange(0, 1)),
    option("--feedback FILE.jsonl", "Answers so far, as recorded by tagwise serve: not asked again."),
    "--feedback-tagger",
    option("--out FILE.jsonl", "Write the queue to this file [default: standard output]."),
    "--seed",
    TEXTS,
    examples=(
        "tagwise ask tagger unlabelled.jsonl --top 50 --out queue.jsonl",
        "tagwise serve tagger --queue queue.jsonl --feedback feedback.jsonl",
        "tagwise ask tagger unlabelled.jsonl --feedback feedback.jsonl --per-tag 5 > queue.jsonl",
    ),
)
def command(given: Given) -> None:
    """Choose the questions on the texts of FILE whose answers teach MODEL most.

    Writes a queue for tagwise serve --queue: one JSON line per text, with the tags to ask about, best first. The
    page of the server shows these tags before all others. Needs probabilities: the default model has them, and so has
    every tagger that was trained with --validation.
    """
    out = given.out
    if out is not None:
        check_target(out, "--out", ".jsonl")
    tagger: Tagger = load_model(given.model, "ask", texts=True)
    answers = read_answers(given)
    texts, ids = _distinct(*read_texts(given.file, given))
    with ProgressBar(f"reading the words of {counted(len(texts), 'text')}", None):
        X = tagger.transform(texts)
    # Embeddings carry information even on texts without a known word.
    with_words = np.arange(len(texts)) if isinstance(X, FeatureBlocks) else np.flatnonzero(np.diff(X.indptr))
    if len(with_words) < len(texts):
        warn(f"left out: {counted(len(texts) - len(with_words), 'text')} without a known word.")
    if not len(with_words):
        raise InvalidInputError(f"no text of {given.file} has a known word; there is nothing to ask about.")
    texts, ids, X = [texts[row] for row in with_words], [ids[row] for row in with_words], X[with_words]
    answered = None
    if answers is not None:  # pairs (n, L)
        known = answered_rows(texts, ids, answers).known or []
        answered = tagger.label_matrix([row or [] for row in known[: len(texts)]])[0]
    with ProgressBar("choosing questions", None):
        found = ask(
            tagger.model_,
            X,
            given.top,
            given.strategy,
            calibration=tagger.calibration_,
            counts=(tagger.training_["tag_rows"], tagger.training_["rows"]),
            exclude=answered,
            per_row=given.per_text,
            per_label=given.per_tag,
            rarity=given.rarity,
            random_state=given.seed,
        )
    queue = _queue(tagger, texts, ids, found)
    if out is None:
        for one in queue:
            show_json(one, indent=None)
    else:
        content = "".join(f"{json_text(one)}\n" for one in queue).encode()
        atomic_write(out, lambda stream: stream.write(content))
    tags = counted(len(np.unique(found.labels)), "tag")
    account = f"{counted(len(found), 'question')} on {counted(len(queue), 'text')} and {tags}"
    if len(found) and not np.isnan(found.probabilities).any():
        account += f", of which about {found.probabilities.sum():,.0f} will be accepted"
    if len(found) < given.top:
        account += f"; {given.top:,} were requested, but the limits leave no more"
    echo_err(f"{account}.")
    if out is not None:
        echo_err(f"Queue written to {out}. Next: tagwise serve {given.model} --queue {out} --feedback feedback.jsonl")


def _distinct(texts: list[str], ids: list[str | None]) -> tuple[list[str], list[str | None]]:
    """Distinct texts, each with its first identifier, so that no question is asked twice."""
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        first.setdefault(text.strip(), row)
    if len(first) < len(texts):
        warn(f"left out: {counted(len(texts) - len(first), 'row')} that repeat an earlier text.")
    return [texts[row] for row in first.values()], [ids[row] for row in first.values()]


def _queue(tagger: Tagger, texts: list[str], ids: list[str | None], found: Questions) -> list[dict[str, Any]]:
    queue = []
    for row, positions in found.by_row().items():
        one: dict[str, Any] = {} if ids[row] is None else {"id": ids[row]}
        one |= {"text": texts[row], "asked": [str(tagger.tags_[label]) for label in found.labels[positions]]}
        if not np.isnan(found.probabilities[positions]).any():
            one["probability"] = [round(float(p), 4) for p in found.probabilities[positions]]
        queue.append(one)
    return queue
