"""``tagwise help``: the same as ``--help``, for those who look for it under this name."""

from __future__ import annotations

import click

from tagwise.cli.options import Given, verb


@verb(click.Argument(["verb"], required=False), examples=("tagwise help", "tagwise help train"))
def command(given: Given) -> None:
    """Show what the commands do, or the options of one of them: VERB."""
    verbs = click.get_current_context().find_root().command
    assert isinstance(verbs, click.Group)
    if given.verb is not None and given.verb not in verbs.list_commands(click.get_current_context()):
        raise click.UsageError(f"No such command {given.verb!r}; tagwise help lists them.")
    asked = ["--help"] if given.verb is None else [given.verb, "--help"]
    verbs.main(asked, prog_name="tagwise", standalone_mode=False)
