"""The ``tagwise`` command: finds the verb, and turns errors into one sentence and an exit code.

Exit codes: 0 success; 1 an error that the message explains; 2 a usage error; 130 interrupted. A reader that closes the
output early (``| head``) ends the command with 1 and without a message.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from tagwise._version import __version__
from tagwise.cli.options import examples
from tagwise.cli.output import echo_err, sentences_for_warnings

__all__ = ["run"]

VERBS = {
    "train": "tagwise.cli.train",
    "predict": "tagwise.cli.predict",
    "evaluate": "tagwise.cli.evaluate",
    "compare": "tagwise.cli.compare",
    "tune": "tagwise.cli.tune",
    "explain": "tagwise.cli.explain",
    "inspect": "tagwise.cli.inspect",
    "convert": "tagwise.cli.convert",
    "demo": "tagwise.cli.demo",
    "reproduce": "tagwise.cli.reproduce",
}


class LazyVerbs(click.Group):
    """A group that imports the module of a verb only when that verb (or the overview) is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order in which they are listed above."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb; None where there is no such verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(VERBS[cmd_name]).command
        return command


@click.group(
    cls=LazyVerbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "tagwise demo",
        "tagwise train articles.csv --text body --tags subjects --out tagger",
        'tagwise predict tagger "how to prune an apple tree"',
        "tagwise evaluate tagger other-articles.csv",
    ),
)
@click.version_option(__version__, prog_name="tagwise")
def tagwise() -> None:
    """Attach a few labels out of very many, when most labels are missing and most are rare.

    Exit codes: 0 success, 1 an error that the message explains, 2 a usage error, 130 interrupted.
    """


def run(arguments: list[str] | None = None) -> Any:
    """Run the command line; leaves through ``sys.exit`` with the codes above."""
    try:
        with sentences_for_warnings(), sentences_for_log():
            tagwise.main(args=arguments, prog_name="tagwise", standalone_mode=False)
        # Here, and not when the interpreter ends: a full disk must be an error.
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except OSError as error:
        click.echo(f"tagwise: {_sentence(error)}", err=True)
        _drop_output()
        sys.exit(1)
    except Exception as error:
        if not _is_ours(error):
            raise
        click.echo(f"tagwise: {error}", err=True)
        sys.exit(1)


class _ToStandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        echo_err(record.getMessage())


@contextmanager
def sentences_for_log() -> Iterator[None]:
    """Show what the library logs (level INFO and above)."""
    logger, handler = logging.getLogger("tagwise"), _ToStandardError()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _sentence(error: OSError) -> str:
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror or error}."


def _drop_output() -> None:
    """Keep the interpreter from complaining at its end about output that cannot be written any more."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _is_ours(error: Exception) -> bool:
    # Importing tagwise.exceptions here, not above, keeps scikit-learn out of `tagwise --help`.
    from tagwise.exceptions import TagwiseError

    return isinstance(error, TagwiseError)
