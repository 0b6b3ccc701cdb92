"""Needs that some tests have of the system; where one is missing, on Windows as a rule, they are skipped."""

import os
from importlib.util import find_spec

import pytest

needs_signals = pytest.mark.skipif(os.name != "posix", reason="this system has no signals that end other processes")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
needs_limits = pytest.mark.skipif(find_spec("resource") is None, reason="this system has no limits of processes")
