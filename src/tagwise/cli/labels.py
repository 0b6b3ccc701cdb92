"""``tagwise labels``: remove, rename or merge the tags of a model folder."""

from __future__ import annotations

from typing import Any

import click

from tagwise import Tagger, load
from tagwise.cli.options import examples, json_option
from tagwise.cli.output import show, show_json, size_text
from tagwise.exceptions import InvalidInputError
from tagwise.persistence.folder import check_destination, folder_bytes
from tagwise.progress import counted

__all__ = ["command"]


@click.command(
    epilog=examples(
        "tagwise labels tagger --remove obsolete --out tagger-2",
        "tagwise labels tagger --rename colour=color --rename grey=gray --out tagger --overwrite",
        "tagwise labels tagger --merge cats=cat --merge kittens=cat --out tagger-2",
    )
)
@click.argument("model")
@click.option("--remove", multiple=True, metavar="TAG", help="Forget this tag; repeatable.")
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="Call a tag something else; repeatable.")
@click.option(
    "--merge",
    multiple=True,
    metavar="TAG=INTO",
    help="Make a tag one with another, which is learnt anew from the rows of both; repeatable. For a model that was "
    "trained with --updatable: others do not know which rows had the tags.",
)
@click.option("--out", required=True, metavar="FOLDER", help="Folder for the changed model.")
@click.option("--overwrite", is_flag=True, help="Replace a model in that folder, once the new one is ready.")
@json_option
def command(
    model: str,
    remove: tuple[str, ...],
    rename: tuple[str, ...],
    merge: tuple[str, ...],
    out: str,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Change the tags of the folder MODEL, and write the result to --out.

    Tags are merged first, then removed, then renamed. The tags of a model of a matrix are its label names, or their
    ids. MODEL itself stays as it is unless --out names it, and is then replaced in one step.
    """
    if not (remove or rename or merge):
        raise click.UsageError("There is nothing to do: give --remove, --rename or --merge.")
    check_destination(out, overwrite=overwrite)
    renamed, merged = _pairs(rename, "--rename"), _pairs(merge, "--merge")
    fitted = load(model)
    before = _tags(fitted)
    numbered = not isinstance(fitted, Tagger) and fitted.label_names_ is None
    if numbered:
        fitted.label_names_ = before  # ids move up when labels go; these names stay with their labels
    groups: dict[Any, list[Any]] = {}
    for tag in merged:
        into = _last_of_chain(merged, tag)
        groups.setdefault(_find(fitted, into, "--merge"), []).append(_find(fitted, tag, "--merge"))
    for into, tags in groups.items():
        if isinstance(fitted, Tagger):
            fitted.merge_tags(tags, into)
        else:
            ids = [_label(fitted, tag) for tag in tags]
            fitted.merge_labels(ids, _label(fitted, into))
    if remove:
        gone = [_find(fitted, tag, "--remove") for tag in remove]
        if isinstance(fitted, Tagger):
            fitted.remove_tags(gone)
        else:
            fitted.remove_labels([_label(fitted, tag) for tag in gone])
    if renamed:
        names = {_find(fitted, old, "--rename"): new for old, new in renamed.items()}
        if isinstance(fitted, Tagger):
            whole = isinstance(fitted.tags_[0], int)
            fitted.rename_tags({old: _whole(new) if whole else new for old, new in names.items()})
        else:
            fitted.rename_labels(names)
    if numbered and not renamed:
        fitted.label_names_ = None
    fitted.save(out, overwrite=overwrite)
    figures: dict[str, Any] = {
        "out": out,
        "tags_before": len(before),
        "tags": len(_tags(fitted)),
        "bytes": folder_bytes(out),
    }
    if as_json:
        show_json(figures)
        return
    show(f"{counted(figures['tags'], 'tag')}, {figures['tags_before']:,} before.")
    show(f"Saved in {out}: {size_text(figures['bytes'])}.")


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    """``OLD=NEW`` of an option; a tag may hold an equals sign if it is the last part."""
    pairs: dict[str, str] = {}
    for pair in given:
        old, equals, new = pair.partition("=")
        if not equals or not old.strip() or not new.strip():
            raise click.BadParameter(f"must be two tags with = between them; found {pair!r:.60}.", param_hint=option)
        if old in pairs:
            raise click.BadParameter(f"names {old!r:.60} twice.", param_hint=option)
        pairs[old] = new
    return pairs


def _last_of_chain(merged: dict[str, str], tag: str) -> str:
    """What a tag ends up as: of ``a=b`` and ``b=c``, both are c in the end."""
    into, seen = merged[tag], {tag}
    while into in merged:
        if into in seen:
            raise click.BadParameter(f"merges {into!r:.60} into itself; name a tag that stays.", param_hint="--merge")
        seen.add(into)
        into = merged[into]
    return into


def _tags(fitted: Any) -> list[Any]:
    if isinstance(fitted, Tagger):
        return fitted.tags_
    return fitted.label_names_ or [str(label) for label in range(fitted.n_labels_)]


def _find(fitted: Any, given: str, option: str) -> Any:
    """The tag that an option means, as the model writes it."""
    found = next((tag for tag in _tags(fitted) if str(tag) == given), None)
    if found is None:
        raise InvalidInputError(f"{option}: {given!r:.60} is not one of the {len(_tags(fitted)):,} tags of this model.")
    return found


def _label(fitted: Any, tag: Any) -> int:
    return _tags(fitted).index(tag)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(
            f"the tags of this model are whole numbers; found {text!r:.60}.", param_hint="--rename"
        ) from None
