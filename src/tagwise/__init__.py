"""tagwise: attach a few labels out of very many, when most labels are missing and most are rare.

Names are imported on first use, so that ``import tagwise`` stays fast and pulls in neither numba nor scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tagwise._version import __version__ as __version__
from tagwise.registry import MODELS

if TYPE_CHECKING:
    from tagwise import baselines as baselines
    from tagwise import data as data
    from tagwise import exceptions as exceptions
    from tagwise import inspection as inspection
    from tagwise import metrics as metrics
    from tagwise.data.frequencies import label_frequencies as label_frequencies
    from tagwise.models.binary_relevance import BinaryRelevance as BinaryRelevance
    from tagwise.models.cascade import Cascade as Cascade
    from tagwise.models.leml import LEML as LEML
    from tagwise.models.mse import MSE as MSE
    from tagwise.models.reml import REML as REML
    from tagwise.problem import Known as Known
    from tagwise.solvers.low_rank_plus_sparse import low_rank_plus_sparse as low_rank_plus_sparse
    from tagwise.store.checkpoints import Checkpoint as Checkpoint
    from tagwise.store.folder import load as load
    from tagwise.text.evaluation import Evaluation as Evaluation
    from tagwise.text.features import TextFeatures as TextFeatures
    from tagwise.text.suggestion import Suggestion as Suggestion
    from tagwise.text.suggestion import WordShare as WordShare
    from tagwise.text.tagger import Tagger as Tagger

_HOME_OF = {info.class_name: info.module for info in MODELS if info.module.startswith("tagwise.models.")} | {
    "Checkpoint": "tagwise.store.checkpoints",
    "Evaluation": "tagwise.text.evaluation",
    "Known": "tagwise.problem",
    "Suggestion": "tagwise.text.suggestion",
    "Tagger": "tagwise.text.tagger",
    "TextFeatures": "tagwise.text.features",
    "WordShare": "tagwise.text.suggestion",
    "label_frequencies": "tagwise.data.frequencies",
    "load": "tagwise.store.folder",
    "low_rank_plus_sparse": "tagwise.solvers.low_rank_plus_sparse",
}
_SUBPACKAGES = {"baselines", "data", "exceptions", "inspection", "metrics"}
__all__ = sorted({*_HOME_OF, *_SUBPACKAGES, "__version__"})


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
    return __all__
