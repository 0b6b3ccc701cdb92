"""Model folders: what a fitted model is on disk, written atomically and read without running any code.

A model folder holds ``manifest.json`` and at most one safetensors file. The format is specified in
``docs/model-format.md``; nothing in it is ever executed, and no field is believed before it is checked. A checkpoint
(``docs/checkpoints.md``) is such a folder too, of a fit that is still under way.
"""

from __future__ import annotations

from tagwise.store.atomic import atomic_write
from tagwise.store.checkpoints import Checkpoint
from tagwise.store.folder import FORMAT_VERSION, ModelRecord, read_model, write_model

__all__ = ["FORMAT_VERSION", "Checkpoint", "ModelRecord", "atomic_write", "read_model", "write_model"]
