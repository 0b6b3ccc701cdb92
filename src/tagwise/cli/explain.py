"""``tagwise explain``: which words of a text speak for and against a tag."""

from __future__ import annotations

import sys
from typing import Any

import click
import numpy as np

from tagwise import Tagger
from tagwise.cli.options import examples, json_option
from tagwise.cli.output import show, show_json, show_table, warn
from tagwise.cli.rows import find_tag, load_model
from tagwise.exceptions import InvalidInputError
from tagwise.inspection.calibration import probability_maps
from tagwise.inspection.explanations import LEAST_SHARE, explain_labels
from tagwise.progress import counted

__all__ = ["command"]

# Words that are shown together are not shown at all below this share.
_LEAST_SHOWN = 0.001


@click.command(
    epilog=examples(
        'tagwise explain tagger "how to prune an apple tree"',
        'tagwise explain tagger "how to prune an apple tree" --tag gardening --tag fruit --words 20',
        "tagwise explain tagger - --json < letter.txt",
    )
)
@click.argument("model")
@click.argument("text")
@click.option("--tag", "tags", multiple=True, help="Explain this tag; repeatable [default: the best suggestions].")
@click.option(
    "--top", default=3, show_default=True, type=click.IntRange(min=1), help="How many suggestions to explain."
)
@click.option("--words", default=10, show_default=True, type=click.IntRange(min=1), help="How many words per tag.")
@json_option
def command(model: str, text: str, tags: tuple[str, ...], top: int, words: int, as_json: bool) -> None:
    """Show what each word of TEXT (- reads standard input) contributes to the scores of tags.

    Exact for models with linear scores: a word's contribution is its weight in the text times its weight for the tag,
    and the contributions of all words and the base rate, the score without any word, add up to the score. Shares are in
    percent of the absolute contributions of all words, negative where a word speaks against the tag. Words below 0.5%
    are shown together, if they come to a tenth of a percent. Models without such weights are refused.
    """
    tagger: Tagger = load_model(model, "explain", texts=True)
    if text == "-":
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            place = f"byte {error.start + 1:,}"
            raise InvalidInputError(f"standard input is not UTF-8 at {place}; convert it to UTF-8 first.") from None
    explained = _explained(tagger, text, list(tags), top, words)
    if as_json:
        show_json({"explained": tagger.explained_score, "tags": explained})
        return
    for tag in explained:
        probability = "" if tag["probability"] is None else f", probability {100 * tag['probability']:.0f}%"
        title = f"{tagger.title(tag['tag'])}: score {tag['score']:.4f}{probability}"
        rows = [[word["word"], _percent(word["share"]), f"{word['contribution']:+.4f}"] for word in tag["words"]]
        if abs(tag["others_share"] or 0) >= _LEAST_SHOWN:
            rows.append(
                [counted(tag["other_words"], "other word"), _percent(tag["others_share"]), f"{tag['others']:+.4f}"]
            )
        rows.append(["base rate, without any word", "", f"{tag['intercept']:+.4f}"])
        show_table(title, ["word", "share", "contribution"], rows)
        if tagger.explained_score != "the score":
            show(f"These add up to {tagger.explained_score}: {tag['sum']:.4f}.")
        show()


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:+.1f}%"


def _explained(tagger: Tagger, text: str, tags: list[str], top: int, words: int) -> list[dict[str, Any]]:
    X = tagger.transform([text])
    if X.nnz == 0:
        warn("the text has no word that training saw; all such texts get the same scores.")
    if tags:
        labels = np.array([[tagger.tags_.index(find_tag(tag, tagger.tags_, tagger.names_)) for tag in tags]])
        scores = tagger.model_.decision_function(X)[:, labels[0]]
    else:
        labels, scores = tagger.model_.predict_topk(X, min(top, len(tagger.tags_)))
    maps = probability_maps(tagger.model_, tagger.calibration_)
    probabilities = None if maps is None else maps(labels, scores)
    reasons = explain_labels(tagger.model_, X, labels)
    names = tagger.features_.feature_names
    result = []
    for rank, label in enumerate(labels[0].tolist()):
        features, values = reasons.of(0, rank)
        size = float(np.abs(values).sum())
        shares = values / (size or 1.0)
        # Largest first: those too small to be shown are the last.
        many = min(words, int(np.count_nonzero(np.abs(shares) >= LEAST_SHARE)))
        intercept, others = float(reasons.intercepts[0, rank]), float(values[many:].sum())
        result.append(
            {
                "tag": tagger.tags_[label],
                **({"name": name} if (name := tagger.names_.get(tagger.tags_[label])) else {}),
                "score": float(scores[0, rank]),
                "probability": None if probabilities is None else float(probabilities[0, rank]),
                "intercept": intercept,
                "sum": float(reasons.scores()[0, rank]),
                "words": [
                    {"word": names[feature], "contribution": float(value), "share": float(share)}
                    for feature, value, share in zip(features[:many], values[:many], shares[:many])
                ],
                "other_words": len(values) - many,
                "others": others,
                "others_share": others / size if size else None,
            }
        )
    return result
