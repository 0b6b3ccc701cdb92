"""``python -m tagwise``."""

from tagwise.cli import main

main()
