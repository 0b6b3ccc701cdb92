"""``tagwise help``: the same as ``--help``, for those who look for it under this name."""

from __future__ import annotations

import click

from tagwise.cli.options import examples

__all__ = ["command"]


@click.command(epilog=examples("tagwise help", "tagwise help train"))
@click.argument("verb", required=False)
@click.pass_context
def command(context: click.Context, verb: str | None) -> None:
    """Show what the commands do, or the options of one of them: VERB."""
    overview = context.parent
    assert overview is not None
    verbs = overview.command
    assert isinstance(verbs, click.Group)
    if verb is None:
        click.echo(verbs.get_help(overview))
        return
    found = verbs.get_command(overview, verb)
    if found is None:
        raise click.UsageError(f"No such command {verb!r}; tagwise help lists them.")
    with click.Context(found, parent=overview, info_name=verb) as shown:
        click.echo(found.get_help(shown))
