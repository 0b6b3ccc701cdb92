"""What a reader needs to place a result: versions and the kind of machine, without its name."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["machine", "versions"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


def versions() -> dict[str, str]:
    """Versions of Python, tagwise and what it computes with."""
    from tagwise import __version__

    found = {"python": platform.python_version(), "tagwise": __version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine() -> dict[str, str | int]:
    """System, kind of processor and number of cores."""
    return {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count() or 1}
