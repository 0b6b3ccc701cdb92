"""A quicker start for verbs that answer at once: imports that nothing needs are put off until something does."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["put_off", "quick_start"]


class _PutOff(ModuleType):
    """Stands in for a module until one of its names is asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def put_off(name: str) -> None:
    """Let ``import name`` do nothing yet; the module is imported when one of its names is used. Harmless if loaded."""
    if name in sys.modules:
        return
    specification = find_spec(name)
    if specification is None:
        return
    waiting = _PutOff(name)
    # What the import system and inspect ask of every module; without a path, importing a submodule loads the module.
    waiting.__spec__, waiting.__file__ = specification, specification.origin
    sys.modules[name] = waiting
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, waiting)


def quick_start() -> None:
    """Put off ``scipy.stats``, a third of what is imported to answer a text; scikit-learn needs it for one check."""
    put_off("scipy.stats")
