"""What all tests share: hypothesis without deadlines (kernels compile on first use), interrupts, the real data sets."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("tagwise", deadline=None, derandomize=True)
settings.load_profile("tagwise")

# Shells ignore interrupts in what they run in the background, and commands that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


JOBS = ("tests/fuzz/", "tests/benchmarks/", "tests/reproduction/")
"""Folders of tests that are jobs of their own, and no part of the normal run."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.startswith(JOBS):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets; tests that need it are skipped where it is not at hand."""
    folder = os.environ.get("TAGWISE_DATA")
    if not folder:
        pytest.skip("TAGWISE_DATA is not set: the real data sets are not at hand")
    return Path(folder)
