"""The ``tagwise`` command: finds the verb, and turns errors into one sentence and an exit code.

Exit codes: 0 success; 1 an error that the message explains; 2 a usage error; 130 interrupted. A reader that closes the
output early (``| head``) ends the command with 1 and without a message. A standard stream that is closed from the start
counts as the null device: nothing is read, and what is written is lost without an error.
"""

from __future__ import annotations

import io
import logging
import os
import re
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
    "train": "Train on a file of texts and tags; write a model folder.",
    "update": "Learn further rows and new tags in a model folder.",
    "predict": "Suggest tags for a text, for lines, or for a file.",
    "evaluate": "Measure a model on rows whose tags are known.",
    "compare": "Train several models and measure them on the same rows.",
    "tune": "Search for good settings of a model.",
    "explain": "Show which words of a text speak for a tag.",
    "ask": "Choose the questions whose answers teach a tagger most.",
    "drift": "Compare recent texts with those of the time of training.",
    "serve": "Serve taggers over HTTP, with a page to try them on.",
    "inspect": "Show what is in a model folder, or all about a tag.",
    "labels": "Remove, rename or merge the tags of a model folder.",
    "convert": "Convert between data formats.",
    "sample": "Write the bundled sample as a file of texts and tags.",
    "demo": "Train on the bundled sample and show what comes out.",
    "reproduce": "Run a paper's tables again, its values beside ours.",
    "warmup": "Compile for this machine, so that no other command has to.",
    "completion": "Write the script with which a shell completes commands.",
    "help": "Show what the commands do, or the options of one.",
}
"""What each verb does; its command is in the module of the same name, which is imported when the verb is asked for."""


class LazyVerbs(click.Group):
    """The verbs, of which the overview imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order in which they are listed above."""
        return list(VERBS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The part of the overview that lists the verbs."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb; None where there is no such verb."""
        return import_module(f"tagwise.cli.{cmd_name}").command if cmd_name in VERBS else None


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
@click.version_option(__version__, "-V", "--version", prog_name="tagwise")
def tagwise() -> None:
    """Attach a few labels out of very many, when most labels are missing and most are rare.

    Exit codes: 0 success, 1 an error that the message explains, 2 a usage error, 130 interrupted.
    """


def run(arguments: list[str] | None = None) -> Any:
    """Run the command line; leaves through ``sys.exit`` with the codes above."""
    _open_closed_streams()
    code = _exit_code(arguments)
    _drop_unwritable()
    if code:
        sys.exit(code)


def _exit_code(arguments: list[str] | None) -> int:
    """Run the command line, and say what went wrong."""
    try:
        with sentences_for_warnings(), sentences_for_log():
            tagwise.main(args=arguments, prog_name="tagwise", standalone_mode=False)
        # Here, and not when the interpreter ends: a full disk must be an error.
        sys.stdout.flush()
    except click.ClickException as error:
        usage = io.StringIO()
        error.show(usage)
        # click indents choices by tabs, which would be shown as escapes.
        echo_err(re.sub(r"^\t+", "  ", usage.getvalue(), flags=re.MULTILINE).rstrip("\n"))
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):  # click takes it for an interrupt, but nobody was asked for input
            raise error.__cause__ from None
        echo_err("interrupted")
        return 130
    except BrokenPipeError:
        pass
    except OSError as error:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        echo_err(f"tagwise: {where}{error.strerror or error}.")
    except MemoryError as error:
        echo_err(f"tagwise: not enough memory. {error}".rstrip())
    except Exception as error:
        from tagwise.exceptions import TagwiseError  # not above: it would import scikit-learn for `tagwise --help`

        if not isinstance(error, TagwiseError):
            raise
        echo_err(f"tagwise: {error}")
    else:
        return 0
    return 1


def _open_closed_streams() -> None:
    """A standard stream that is closed counts as the null device."""
    # In the order of their numbers: each takes the lowest free one, its own, which else the next file would get.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _drop_unwritable() -> None:
    """Keep the interpreter from complaining at its end about output that cannot be written any more."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


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
