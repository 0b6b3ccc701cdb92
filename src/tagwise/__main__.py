"""``python -m tagwise``."""

from tagwise.cli import run

run()
