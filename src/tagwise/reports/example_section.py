"""The section of examples: texts whose words are coloured by what they add to a suggested tag."""

from __future__ import annotations

from tagwise.reports.examples import Example
from tagwise.reports.findings import Findings
from tagwise.reports.markup import percent, section, text
from tagwise.text.suggestion import Suggestion

__all__ = ["examples_section"]

_CHIPS = 5


def examples_section(found: Findings) -> str:
    """Examples with their explanations; without them, where the model has none, and then says so."""
    if not found.examples:
        return section("examples", "Examples", '<p class="none">No row has both tags and known words.</p>')
    if found.unexplained:
        lead = f"Drawn at random. {found.unexplained}"
    else:
        lead = (
            "Drawn at random. Words are coloured by their share in the score of a suggested tag: choose a tag to see "
            "its words. A share is exact: weight times value, over the sizes of all such parts in the text."
        )
    legend = (
        ""
        if found.unexplained
        else (
            '<p class="legend"><span class="w" style="--s:.7" data-sign="for">speaks for the tag</span> '
            '<span class="w" style="--s:.7" data-sign="against">speaks against it</span></p>'
        )
    )
    shown = "".join(_example(example, number) for number, example in enumerate(found.examples, 1))
    return section(
        "examples", f"{len(found.examples)} examples", legend, f'<ol class="examples">{shown}</ol>', lead=lead
    )


def _example(example: Example, number: int) -> str:
    words = list(dict.fromkeys(piece.word for piece in example.pieces if piece.word is not None))
    place = {word: index for index, word in enumerate(words)}
    first = _shares(example.suggestions[0], words) if example.suggestions else [0.0] * len(words)
    body = "".join(
        text(piece.text) if piece.word is None else _word(piece.text, place[piece.word], first)
        for piece in example.pieces
    )
    rows = "".join(
        _suggestion(suggestion, right, _shares(suggestion, words), chosen=not index)
        for index, (suggestion, right) in enumerate(zip(example.suggestions, example.right))
    )
    missed = "".join(
        f'<span class="missed"{_unseen(tag in example.unseen)}>{text(tag)}</span>' for tag in example.missed
    )
    missed = f'<p class="misses">Not among them: {missed}</p>' if missed else ""
    more = '<span class="more"> …</span>' if example.shortened else ""
    return (
        f'<li class="card example" id="example-{number}"><p class="body">{body}{more}</p>'
        f'<div class="suggestions">{rows}</div>{missed}</li>'
    )


def _word(written: str, place: int, shares: list[float]) -> str:
    return f'<span class="w" data-w="{place}"{_colour(shares[place])}>{text(written)}</span>'


def _unseen(never: bool) -> str:
    return ' title="never seen in training"' if never else ""


def _suggestion(suggestion: Suggestion, right: bool, shares: list[float], *, chosen: bool) -> str:
    mark = '<span class="mark yes" title="right">✓</span>' if right else '<span class="mark no" title="wrong">✗</span>'
    sure = f"{suggestion.score:.2f}" if suggestion.probability is None else f"{percent(suggestion.probability, 0)} %"
    meaning = "score" if suggestion.probability is None else "probability"
    chips = "".join(
        f'<span class="chip w"{_colour(part.share)}>{text(part.word)} <small>{100 * part.share:+.0f} %</small></span>'
        for part in (suggestion.why or ())[:_CHIPS]
    )
    values = " ".join(f"{share:.3g}" for share in shares)
    name = text(suggestion.tag)
    if suggestion.why is not None:
        name = f'<button type="button" aria-pressed="{str(chosen).lower()}" data-shares="{values}">{name}</button>'
    return (
        f'<div class="suggestion">{mark}<span class="tag">{name}</span>'
        f'<span class="sure" title="{meaning}">{sure}</span><span class="chips">{chips}</span></div>'
    )


def _shares(suggestion: Suggestion, words: list[str]) -> list[float]:
    shares = {part.word: part.share for part in suggestion.why or ()}
    return [shares.get(word, 0.0) for word in words]


def _colour(share: float) -> str:
    """The attributes that colour a word; report.js sets the same ones when another tag is chosen."""
    if abs(share) < 0.005:
        return ""
    sign = "for" if share > 0 else "against"
    # The square root: a share of 4 % is still to be seen beside one of 40 %.
    return f' data-sign="{sign}" style="--s:{min(1.0, abs(share) ** 0.5):.2f}" title="{100 * share:+.1f} %"'
