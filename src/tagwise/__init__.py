"""tagwise: attach a few labels out of very many, when most labels are missing and most are rare.

Names are imported on first use, so that ``import tagwise`` stays fast and pulls in neither numba nor scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "LEML",
    "MSE",
    "REML",
    "ApproximateIndex",
    "BinaryRelevance",
    "Cascade",
    "Checkpoint",
    "Tagger",
    "__version__",
    "baselines",
    "data",
    "exceptions",
    "label_frequencies",
    "load",
    "low_rank_plus_sparse",
    "metrics",
]

if TYPE_CHECKING:
    from tagwise import baselines, data, exceptions, metrics
    from tagwise.models.approximate_index import ApproximateIndex
    from tagwise.models.binary_relevance import BinaryRelevance
    from tagwise.models.cascade import Cascade
    from tagwise.models.leml import LEML
    from tagwise.models.loading import load
    from tagwise.models.mse import MSE
    from tagwise.models.reml import REML
    from tagwise.persistence.checkpoints import Checkpoint
    from tagwise.solvers.low_rank_plus_sparse import label_frequencies, low_rank_plus_sparse
    from tagwise.text.tagger import Tagger

_HOME_OF = {
    "ApproximateIndex": "tagwise.models.approximate_index",
    "BinaryRelevance": "tagwise.models.binary_relevance",
    "Cascade": "tagwise.models.cascade",
    "Checkpoint": "tagwise.persistence.checkpoints",
    "LEML": "tagwise.models.leml",
    "REML": "tagwise.models.reml",
    "MSE": "tagwise.models.mse",
    "label_frequencies": "tagwise.solvers.low_rank_plus_sparse",
    "load": "tagwise.models.loading",
    "low_rank_plus_sparse": "tagwise.solvers.low_rank_plus_sparse",
    "Tagger": "tagwise.text.tagger",
}
_SUBPACKAGES = {"baselines", "data", "exceptions", "metrics"}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    elif name in _SUBPACKAGES:
        value = import_module(f"tagwise.{name}")
    else:
        raise AttributeError(f"module 'tagwise' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
