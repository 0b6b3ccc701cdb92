"""A virtual environment for each peer, outside the repository, made once."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from peers.plugin import Plugin

# What the worker itself needs.
WORKER_REQUIREMENTS = ("numpy", "scipy")
STAMP = "installed.json"
LONGEST_INSTALLATION = 3600


class InstallationError(Exception):
    """A peer does not install; the message is the installer's last word."""


def default_folder() -> Path:
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    cache = Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache"
    return cache / "tagwise-bench" / "peers"


def python_of(plugin: Plugin, folder: Path) -> Path:
    """The Python that runs a plug-in; its environment is made on first use, and again when its requirements change."""
    if plugin.requirements is None:
        return Path(sys.executable)
    return python_with([*WORKER_REQUIREMENTS, *plugin.requirements], folder / plugin.name)


def python_with(requirements: Sequence[str], home: Path) -> Path:
    """The Python of an environment that has these requirements; it is made where there is none."""
    wanted = {"python": ".".join(platform.python_version_tuple()[:2]), "requirements": list(requirements)}
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = home / STAMP
    if stamp.exists() and json.loads(stamp.read_text()) == wanted:
        return python
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(home)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted["requirements"]])
    stamp.write_text(json.dumps(wanted))
    return python


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_INSTALLATION)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallationError(str(error)) from error
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
        # pip follows its error with hints; the error is what says why.
        errors = [line for line in lines if line.startswith("ERROR:")]
        raise InstallationError((errors or lines or [f"exit code {done.returncode}"])[-1])
