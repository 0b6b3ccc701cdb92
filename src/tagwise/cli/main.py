"""The ``tagwise`` command: finds the verb, and turns errors into one sentence and an exit code.

Exit codes: 0 success; 1 an error that the message explains; 2 a usage error; 130 interrupted. A reader that closes the
output early (``| head``) ends the command with 1 and without a message. A standard stream that is closed from the start
counts as the null device: nothing is read, and what is written is lost without an error.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from tagwise._version import __version__
from tagwise.cli.output import echo_err, sentences

VERBS = {
    "train": "Train on a file of texts and tags; write a model folder.",
    "update": "Learn further rows and new tags in a model folder.",
    "predict": "Suggest tags for a text, for lines, or for a file.",
    "evaluate": "Measure a model on rows whose tags are known.",
    "compare": "Train several models and measure them on the same rows.",
    "tune": "Search for good settings of a model.",
    "explain": "Show which words of a text speak for a tag.",
    "ask": "Choose the questions whose answers teach a tagger most.",
    "drift": "Compare recent texts with texts from the time of training.",
    "serve": "Serve taggers over HTTP, with a page to try them on.",
    "inspect": "Show what is in a model folder, or all about a tag.",
    "labels": "Remove, rename or merge the tags of a model folder.",
    "convert": "Convert data to a matrix in another format.",
    "sample": "Write the bundled sample as a file of texts and tags.",
    "demo": "Train on the bundled sample and show what comes out.",
    "reproduce": "Run a paper's tables again, its values beside ours.",
    "warmup": "Compile for this machine, so that no other command has to.",
    "completion": "Write the script with which a shell completes commands.",
    "help": "Show what the commands do, or the options of one.",
}
"""Each verb in a sentence; its command is in the module of the same name."""


class LazyVerbs(click.Group):
    """The verbs, each imported when it is asked for: click's own group imports all, 1.6 s of CPU instead of 0.04."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the verbs, the usual ones first."""
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
    epilog="""\b
Examples:
  tagwise demo
  tagwise train articles.csv --text body --tags subjects --out tagger
  tagwise predict tagger "how to prune an apple tree"
  tagwise evaluate tagger other-articles.csv""",
)
@click.version_option(__version__, "-V", "--version", prog_name="tagwise")
def tagwise() -> None:
    """Attach a few labels out of very many, when most labels are missing and most are rare.

    Exit codes: 0 success, 1 an error that the message explains, 2 a usage error, 130 interrupted.
    """


def run(arguments: list[str] | None = None) -> None:
    """Run the command line; an error leaves through ``sys.exit`` with the codes above."""
    # A stream takes the lowest free number, which is its own in this order.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    code = _exit_code(arguments)
    # Otherwise the interpreter complains at exit about output that can no longer be written.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
    if code:
        sys.exit(code)


def _exit_code(arguments: list[str] | None) -> int:
    """Run the command line, and report errors."""
    try:
        with sentences():
            ended: Any = tagwise.main(args=arguments, prog_name="tagwise", standalone_mode=False)
        # Here, and not when the interpreter ends: a full disk must be an error.
        sys.stdout.flush()
        return ended or 0
    except click.ClickException as error:
        usage = io.StringIO()
        error.show(usage)
        echo_err(usage.getvalue().expandtabs(2).rstrip("\n"))
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
    return 1
