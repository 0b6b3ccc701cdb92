"""``tagwise help``: the same as ``--help``, for those who look for it under this name."""

from __future__ import annotations

import click

from tagwise.cli.options import Given, verb


@verb(click.Argument(["verb"], required=False), examples=("tagwise help", "tagwise help train"))
def command(given: Given) -> None:
    """Show what the commands do, or the options of one of them: VERB."""
    overview = click.get_current_context().find_root()
    verbs = overview.command
    assert isinstance(verbs, click.Group)
    if given.verb is None:
        click.echo(verbs.get_help(overview))
        return
    found = verbs.get_command(overview, given.verb)
    if found is None:
        raise click.UsageError(f"No such command {given.verb!r}; tagwise help lists them.")
    with click.Context(found, parent=overview, info_name=given.verb) as shown:
        click.echo(found.get_help(shown))
