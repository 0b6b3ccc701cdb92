"""``tagwise labels``: remove, rename or merge the tags of a model folder."""

from __future__ import annotations

from typing import Any

import click
from rich.filesize import decimal

from tagwise import Tagger, load
from tagwise.cli.options import Given, option, verb
from tagwise.cli.output import show, show_json
from tagwise.cli.rows import tags_of
from tagwise.exceptions import InvalidInputError
from tagwise.progress import counted
from tagwise.store.folder import check_destination, folder_bytes


@verb(
    "model",
    option("--remove TAG", "Forget this tag; repeatable.", multiple=True),
    option("--rename OLD=NEW", "Give a tag a new name; repeatable.", multiple=True),
    option(
        "--merge TAG=INTO",
        "Merge a tag into another, which is learnt anew from the rows of both; repeatable. For a model that was "
        "trained with --updatable: others do not know which rows had the tags.",
        multiple=True,
    ),
    option("--out FOLDER", "Folder for the changed model.", required=True),
    "--overwrite",
    "--json",
    examples=(
        "tagwise labels tagger --remove obsolete --out tagger-2",
        "tagwise labels tagger --rename colour=color --rename grey=gray --out tagger --overwrite",
        "tagwise labels tagger --merge cats=cat --merge kittens=cat --out tagger-2",
    ),
)
def command(given: Given) -> None:
    """Change the tags of the folder MODEL, and write the result to --out.

    Tags are merged first, then removed, then renamed. The tags of a model of a matrix are its label names, or their
    ids. MODEL itself stays as it is unless --out names it, and is then replaced in one step.
    """
    if not (given.remove or given.rename or given.merge):
        raise click.UsageError("There is nothing to do: give --remove, --rename or --merge.")
    check_destination(given.out, overwrite=given.overwrite)
    renamed, merged = _pairs(given.rename, "--rename"), _pairs(given.merge, "--merge")
    fitted = load(given.model)
    is_tagger, before = isinstance(fitted, Tagger), tags_of(fitted)
    # Ids move up when labels go; as names they stay with their labels.
    numbered = not is_tagger and fitted.label_names_ is None
    if numbered:
        fitted.label_names_ = before

    def found(text: str, option: str) -> Any:
        """A tag as the methods of this kind of model take it."""
        tags = tags_of(fitted)
        place = next((place for place, tag in enumerate(tags) if str(tag) == text), None)
        if place is None:
            raise InvalidInputError(f"{option}: {text!r:.60} is not one of the {len(tags):,} tags of this model.")
        return tags[place] if is_tagger or option == "--rename" else place

    groups: dict[str, list[str]] = {}
    for tag in merged:
        groups.setdefault(_last_of_chain(merged, tag), []).append(tag)
    merge, remove, rename = (
        (fitted.merge_tags, fitted.remove_tags, fitted.rename_tags)
        if is_tagger
        else (fitted.merge_labels, fitted.remove_labels, fitted.rename_labels)
    )
    for into, tags in groups.items():
        merge([found(tag, "--merge") for tag in tags], found(into, "--merge"))
    if given.remove:
        remove([found(tag, "--remove") for tag in given.remove])
    if renamed:
        whole = is_tagger and isinstance(fitted.tags_[0], int)
        rename({found(old, "--rename"): _whole(new) if whole else new for old, new in renamed.items()})
    if numbered and not renamed:
        fitted.label_names_ = None
    fitted.save(given.out, overwrite=given.overwrite)
    n_tags, n_bytes = len(tags_of(fitted)), folder_bytes(given.out)
    if given.as_json:
        show_json({"out": given.out, "tags_before": len(before), "tags": n_tags, "bytes": n_bytes})
    else:
        show(f"{counted(n_tags, 'tag')}, {len(before):,} before.")
        show(f"Saved in {given.out}: {decimal(n_bytes)}.")


def _pairs(stated: tuple[str, ...], option: str) -> dict[str, str]:
    """``OLD=NEW`` of an option; a tag may hold an equals sign if it is the last part."""
    pairs: dict[str, str] = {}
    for pair in stated:
        old, equals, new = pair.partition("=")
        if not equals or not old.strip() or not new.strip():
            raise click.BadParameter(f"must be two tags with = between them; found {pair!r:.60}.", param_hint=option)
        if old in pairs:
            raise click.BadParameter(f"names {old!r:.60} twice.", param_hint=option)
        pairs[old] = new
    return pairs


def _last_of_chain(merged: dict[str, str], tag: str) -> str:
    """The tag that another becomes in the end: c, for ``a=b`` and ``b=c``."""
    into, seen = merged[tag], {tag}
    while into in merged:
        if into in seen:
            raise click.BadParameter(f"merges {into!r:.60} into itself; name a tag that stays.", param_hint="--merge")
        seen.add(into)
        into = merged[into]
    return into


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(
            f"the tags of this model are whole numbers; found {text!r:.60}.", param_hint="--rename"
        ) from None
