"""A calibrated tagger that the command has trained, once for all tests."""

import pytest
from commands import ok, some_rows, write_jsonl


@pytest.fixture(scope="session")
def tagger(tmp_path_factory):
    """The folder of that tagger."""
    folder = tmp_path_factory.mktemp("calibrated")
    rows = write_jsonl(folder / "rows.jsonl", some_rows(400))
    options = ("--model", "binary-relevance", "--validation", "0.25", "--quiet")
    ok("train", rows, "--out", folder / "tagger", *options)
    return folder / "tagger"
