"""What a plug-in is, and how the files of a folder become plug-ins. Needs only the standard library.

A plug-in is a Python file with

    NAME            what the peer is called
    DISTRIBUTION    the package whose version is reported
    REQUIREMENTS    what pip installs into the peer's own environment; None = the Python that runs the benchmark
    SYSTEMS         {name of a system: its settings, as JSON has them}
    train(problem, settings, threads, scratch) -> model
    save(model, folder)                 into an empty folder, whose size on disk is reported
    load(folder, settings, threads) -> what answers
    predict(answering, X, k, threads) -> an answer for every row of X

and, where the peer needs them,

    LEARNS_FROM_MASK = True             to be given the mask of known labels
    refusal(settings, shape) -> str or None     why a problem of this shape (rows, features, labels) is left out
    warm_up(settings, threads)          what compiles or loads; not measured
    prepare(problem, settings, scratch) what the peer needs before it can train, such as a file; not measured
    choose(problem, settings, threads) -> settings, details     measured apart from training
    ranked(answer, k) -> int array (rows, k), best label first, -1 = none; not measured

`problem` has X (n×d), Y (n×L) and X_test, all CSR float32, and the mask `observed` or None. Test labels never reach a
plug-in. At its top a plug-in imports nothing but numpy, scipy, `peers.top_labels` and `peers.limits`: the driver reads
it without the peer.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

PLUGINS = Path(__file__).parent / "plugins"
CONSTANTS = ("NAME", "DISTRIBUTION", "REQUIREMENTS", "SYSTEMS")
FUNCTIONS = ("train", "save", "load", "predict")


class PluginError(Exception):
    """A file in the folder of plug-ins is not one."""


@dataclass(frozen=True)
class Plugin:
    """A plug-in, read."""

    path: Path
    module: ModuleType

    @property
    def name(self) -> str:
        return self.module.NAME

    @property
    def systems(self) -> dict[str, dict[str, Any]]:
        return self.module.SYSTEMS

    @property
    def requirements(self) -> list[str] | None:
        """All that pip installs; None where the plug-in runs in the benchmark's own Python."""
        if self.module.REQUIREMENTS is None:
            return None
        return list(self.module.REQUIREMENTS)

    @property
    def learns_from_mask(self) -> bool:
        return bool(getattr(self.module, "LEARNS_FROM_MASK", False))

    def refusal(self, settings: dict[str, Any], shape: tuple[int, int, int]) -> str | None:
        """Why a problem of this shape (rows, features, labels) is not tried, in one sentence."""
        return self.module.refusal(settings, shape) if self.has("refusal") else None

    def has(self, function: str) -> bool:
        """Whether the plug-in has an optional function."""
        return callable(getattr(self.module, function, None))


def read_plugin(path: str | Path) -> Plugin:
    """The plug-in of one file."""
    path = Path(path)
    # A name of its own: a file plugins/omikuji.py that were the module `omikuji` would hide the peer.
    spec = importlib.util.spec_from_file_location(f"peers_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    # Not by its loader, which takes compiled code for current where a file was changed within a second.
    exec(compile(path.read_bytes(), path, "exec"), vars(module))
    missing = [name for name in CONSTANTS if not hasattr(module, name)]
    missing += [f"{name}()" for name in FUNCTIONS if not callable(getattr(module, name, None))]
    if missing:
        raise PluginError(f"{path.name} lacks {', '.join(missing)}; peers/plugin.py says what a plug-in has.")
    return Plugin(path.resolve(), module)


def find_plugins(folder: str | Path = PLUGINS) -> list[Plugin]:
    """All plug-ins of a folder, by name; two of one name, or two systems of one name, are an error."""
    found = sorted((read_plugin(path) for path in Path(folder).glob("[!_]*.py")), key=lambda plugin: plugin.name)
    if not found:
        raise PluginError(f"There is no plug-in in {folder}.")
    for what, names in (
        ("plug-ins are", [plugin.name for plugin in found]),
        ("systems are", [system for plugin in found for system in plugin.systems]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PluginError(f"Two {what} named {twice[0]}.")
    return found
