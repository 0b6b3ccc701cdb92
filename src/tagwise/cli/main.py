"""The ``tagwise`` command: finds the verb, and turns errors into one sentence and an exit code.

Exit codes: 0 done; 1 an error that the message explains; 2 the command was called wrongly; 130 interrupted.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from tagwise import __version__

__all__ = ["main"]

VERBS = {
    "demo": "tagwise.cli.demo",
    "reproduce": "tagwise.cli.reproduce",
}


class LazyVerbs(click.Group):
    """A group that imports the module of a verb only when that verb (or the overview of all) is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order in which they are listed above."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb; None where there is no such verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(VERBS[cmd_name]).command
        return command


@click.group(cls=LazyVerbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tagwise")
def tagwise() -> None:
    """Attach a few labels out of very many, when most labels are missing and most are rare."""


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; leaves through ``sys.exit`` with the codes above."""
    try:
        tagwise.main(args=arguments, prog_name="tagwise", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except OSError as error:
        click.echo(f"tagwise: {error}", err=True)
        sys.exit(1)
    except Exception as error:
        if not _is_ours(error):
            raise
        click.echo(f"tagwise: {error}", err=True)
        sys.exit(1)


def _is_ours(error: Exception) -> bool:
    # Importing tagwise.exceptions here, not above, keeps scikit-learn out of `tagwise --help`.
    from tagwise.exceptions import TagwiseError

    return isinstance(error, TagwiseError)
