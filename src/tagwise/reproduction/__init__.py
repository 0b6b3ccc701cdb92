"""Run the papers' tables and figures again, and show the paper's values beside ours.

One folder holds, for each paper, a configuration per group of tables that share their fits (TOML) and the paper's own
figures (``paper.csv``). :mod:`~tagwise.reproduction.configuration` reads them, :mod:`~tagwise.reproduction.cells`
turns them into cells (data set × method × setting × seed), :mod:`~tagwise.reproduction.runner` runs the cells that have
no result yet and writes one JSON file each, and :mod:`~tagwise.reproduction.pages` makes pages and plots from those
files alone.
"""
