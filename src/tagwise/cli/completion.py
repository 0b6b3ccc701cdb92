"""``tagwise completion``: the script that lets a shell complete commands, options and file names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tagwise.cli.options import examples

__all__ = ["command"]

_WHERE = {
    "bash": 'eval "$(tagwise completion bash)", in ~/.bashrc',
    "zsh": 'eval "$(tagwise completion zsh)", in ~/.zshrc',
    "fish": "tagwise completion fish | source, in ~/.config/fish/config.fish",
}


@click.command(epilog=examples(*_WHERE.values()))
@click.argument("shell", type=click.Choice(tuple(_WHERE)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Write a script with which SHELL completes commands, options and names of files."""
    overview = context.parent
    assert overview is not None
    complete = get_completion_class(shell)
    assert complete is not None
    # click asks the command itself what to offer, with this variable set.
    click.echo(complete(overview.command, {}, "tagwise", "_TAGWISE_COMPLETE").source())
