"""Published methods to compare with, one class each; imported on first use, like the names of :mod:`tagwise`.

All have the methods of :class:`tagwise.LEML`. Only :class:`BayesianCS` and :class:`BinaryRelevance` learn from a mask;
the others refuse ``observed``.

>>> from tagwise.baselines import PLST
>>> from tagwise.data import load_dataset
>>> data = load_dataset("debtags-sample")
>>> labels, scores = PLST(rank=50).fit(data.X_train, data.Y_train).predict_topk(data.X_test, k=3)
>>> labels.shape == (data.X_test.shape[0], 3)
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tagwise.registry import MODELS

if TYPE_CHECKING:
    from tagwise.baselines.bayesian_cs import BayesianCS as BayesianCS
    from tagwise.baselines.compressed_sensing import CompressedSensing as CompressedSensing
    from tagwise.baselines.cplst import CPLST as CPLST
    from tagwise.baselines.fastxml import FastXML as FastXML
    from tagwise.baselines.knn import KNN as KNN
    from tagwise.baselines.lpsr import LPSR as LPSR
    from tagwise.baselines.mddm import MDDM as MDDM
    from tagwise.baselines.ml_cssp import MLCSSP as MLCSSP
    from tagwise.baselines.ml_knn import MLKNN as MLKNN
    from tagwise.baselines.plst import PLST as PLST
    from tagwise.baselines.sleec import SLEEC as SLEEC
    from tagwise.baselines.wsabie import WSABIE as WSABIE
    from tagwise.models.binary_relevance import BinaryRelevance as BinaryRelevance

_HERE = {info.class_name: info for info in MODELS if info.also_baseline or ".baselines." in info.module}
__all__ = sorted(_HERE)


def __getattr__(name: str) -> Any:
    if name not in _HERE:
        raise AttributeError(f"module 'tagwise.baselines' has no attribute {name!r}")
    globals()[name] = value = _HERE[name].load_class()
    return value


def __dir__() -> list[str]:
    return sorted(_HERE)
