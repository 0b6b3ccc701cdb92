"""The command line: one verb per file. Nothing heavy is imported before a verb runs."""

from tagwise.cli.main import run

__all__ = ["run"]
