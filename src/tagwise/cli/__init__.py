"""The command line: one verb a file. Nothing heavy is imported before a verb runs."""

from tagwise.cli.main import main, run

__all__ = ["main", "run"]
