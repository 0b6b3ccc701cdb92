"""Run the papers' tables and figures again, with the paper's value beside ours: ``python -m reproduction leml``.

Each paper has a folder with one TOML file per study (tables and figures that share their fits) and the paper's own
values (``paper.csv``). :mod:`~reproduction.configuration` reads a study and lists its cells (data set × method ×
setting × seed), :mod:`~reproduction.runner` runs the cells without a stored result and appends each to the study's
JSONL file (:mod:`~reproduction.results`), and :mod:`~reproduction.pages` writes pages and plots from those files alone.
"""
