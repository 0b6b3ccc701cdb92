"""``tagwise completion``: the script that lets a shell complete commands, options and file names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tagwise.cli.options import Given, verb

_WHERE = {
    "bash": 'eval "$(tagwise completion bash)", in ~/.bashrc',
    "zsh": 'eval "$(tagwise completion zsh)", in ~/.zshrc',
    "fish": "tagwise completion fish | source, in ~/.config/fish/config.fish",
}


@verb(click.Argument(["shell"], type=click.Choice(tuple(_WHERE))), examples=tuple(_WHERE.values()))
def command(given: Given) -> None:
    """Write a script with which SHELL completes commands, options and names of files."""
    complete = get_completion_class(given.shell)
    assert complete is not None
    # click asks the command itself what to offer, with this variable set.
    click.echo(complete(click.get_current_context().find_root().command, {}, "tagwise", "_TAGWISE_COMPLETE").source())
