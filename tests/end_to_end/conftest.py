"""A tagger that the command has trained, once for all tests."""

import pytest
from commands import ok, some_rows, write_jsonl


@pytest.fixture(scope="session")
def rows_file(tmp_path_factory):
    """Eighty rows as JSON lines."""
    return write_jsonl(tmp_path_factory.mktemp("rows") / "rows.jsonl", some_rows())


@pytest.fixture(scope="session")
def trained(tmp_path_factory, rows_file):
    """The folder of a calibrated tagger, and what ``train`` said."""
    folder = tmp_path_factory.mktemp("trained") / "tagger"
    result = ok("train", rows_file, "--out", folder, "--model", "binary-relevance", "--validation", "0.25")
    return folder, result


@pytest.fixture(scope="session")
def tagger(trained):
    """The folder of that tagger."""
    return trained[0]
