"""``tagwise explain``: which words of a text speak for and against a tag, suggested or not."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import numpy as np

from tagwise import Tagger
from tagwise.cli.options import POSITIVE, Given, option, verb
from tagwise.cli.output import show, show_json, show_table, warn
from tagwise.cli.rows import find_tag, load_model
from tagwise.exceptions import InvalidInputError
from tagwise.inspection.explanations import LEAST_SHARE
from tagwise.progress import counted
from tagwise.text.suggestion import Request, Suggestion, suggestions

# Words that are shown together are not shown at all below this share.
_LEAST_SHOWN = 0.001


@verb(
    "model",
    "text",
    option("--tag", "Explain this tag; repeatable [default: the best suggestions].", name="tags", multiple=True),
    option("--top", "Number of suggestions to explain.", default=3, type=POSITIVE),
    option("--words", "Number of words per tag.", default=10, type=POSITIVE),
    "--json",
    examples=(
        'tagwise explain tagger "how to prune an apple tree"',
        'tagwise explain tagger "how to prune an apple tree" --tag gardening --tag fruit --words 20',
        "tagwise explain tagger - --json < letter.txt",
    ),
)
def command(given: Given) -> None:
    """Show what each word of TEXT (- reads standard input) contributes to the scores of tags.

    Exact for models with linear scores: a word's contribution is its weight in the text times its weight for the tag,
    and the contributions of all words and the base rate, the score without any word, add up to the score. Shares are in
    percent of the absolute contributions of all words, negative where a word speaks against the tag. Words below 0.5%
    are shown together, if they come to a tenth of a percent. Models without such weights are refused.
    """
    tagger: Tagger = load_model(given.model, "explain", texts=True)
    text = given.text
    if text == "-":
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            place = f"byte {error.start + 1:,}"
            raise InvalidInputError(f"standard input is not UTF-8 at {place}; convert it to UTF-8 first.") from None
    X = tagger.transform([text])
    if X.nnz == 0:
        warn("the text has no known word; all such texts get the same scores.")
    wanted = [tagger.tags_.index(find_tag(tag, tagger.tags_, tagger.names_)) for tag in given.tags]
    (found,) = suggestions(
        Request(top=given.top, explain=X.shape[1]),
        X,
        tagger.model_,
        tagger.tags_,
        calibration=tagger.calibration_,
        names=tagger.names_,
        feature_names=tagger.features_.feature_names,
        labels=np.array([wanted]) if wanted else None,
    )
    explained = [_explained(one, given.words) for one in found]
    if given.as_json:
        show_json({"explained": tagger.explained_score, "tags": explained})
        return
    for one, tag in zip(found, explained):
        rows = [[word["word"], _percent(word["share"]), f"{word['contribution']:+.4f}"] for word in tag["words"]]
        if abs(tag["others_share"]) >= _LEAST_SHOWN:
            others = counted(tag["other_words"], "other word")
            rows.append([others, _percent(tag["others_share"]), f"{tag['others']:+.4f}"])
        rows.append(["base rate, without any word", "", f"{tag['intercept']:+.4f}"])
        probability = "" if one.probability is None else f", probability {100 * one.probability:.0f}%"
        show_table(f"{one.title}: score {one.score:.4f}{probability}", ["word", "share", "contribution"], rows)
        if tagger.explained_score != "the score":
            show(f"These add up to {tagger.explained_score}: {tag['sum']:.4f}.")
        show()


def _percent(share: float) -> str:
    return f"{100 * share:+.1f}%"


def _explained(one: Suggestion, n_words: int) -> dict[str, Any]:
    """A tag with the words that count most, and all others together."""
    every = one.why or ()  # largest first: those too small to be shown are the last
    words = [word for word in every if abs(word.share) >= LEAST_SHARE][:n_words]
    others, intercept = every[len(words) :], one.intercept or 0.0
    return {
        "tag": one.tag,
        **({} if one.name is None else {"name": one.name}),
        "score": one.score,
        "probability": one.probability,
        "intercept": intercept,
        "sum": intercept + sum(word.contribution for word in every),
        "words": [asdict(word) for word in words],
        "other_words": len(others),
        "others": sum(word.contribution for word in others),
        "others_share": sum(word.share for word in others),
    }
