"""Metrics as scikit-learn's ``scoring=``: objects that measure a fitted estimator on rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.metrics.ranking import RANKINGS
from tagwise.metrics.setwise import SETS

__all__ = ["Scorer", "scorer"]

_METRICS = {metric.function.__name__: metric for metric in (*RANKINGS, *SETS)}


@dataclass(frozen=True)
class Scorer:
    """``scorer(estimator, X, y)`` → float, the larger the better; see :func:`scorer`."""

    name: str
    options: Mapping[str, Any]

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """The metric of a fitted estimator on these rows; that of a loss is negative."""
        function, k = _parsed(self.name)
        metric, more = _METRICS[function], dict(self.options)
        model, rows = _last_step(estimator, X)
        if k is not None:
            more["k"] = k
            if hasattr(model, "truth_and_ranking"):
                truth, answer = model.truth_and_ranking(rows, y, k)
            else:
                truth, answer = y, np.asarray(model.decision_function(rows), dtype=np.float64)
        elif hasattr(model, "truth_and_decisions"):
            truth, answer = model.truth_and_decisions(rows, y)
        else:
            truth, answer = y, model.predict(rows)
        value = float(metric.function(truth, answer, **more))
        return value if metric.higher_is_better else -value

    def __repr__(self) -> str:
        """The call that makes it."""
        return f"scorer({self.name!r}{''.join(f', {name}=…' for name in self.options)})"


def scorer(name: str, **options: Any) -> Scorer:
    """A metric that scikit-learn takes as ``scoring=``, in ``cross_val_score`` and ``GridSearchCV`` for instance.

    Parameters
    ----------
    name : str
        Name of a function of :mod:`tagwise.metrics`: ``"ndcg_at_5"``, or another ranking metric at any k; or one of
        sets of labels, such as ``"micro_f1"``. Of a loss, ``"hamming_loss"``, the negative is taken, as scikit-learn
        does.
    **options
        Further arguments of the metric that rows do not provide, such as ``inverse_propensity`` for ``"psp_at_5"``.

    Returns
    -------
    Scorer
        Called with an estimator, rows and their labels. The estimator is a model of tagwise, a
        :class:`~tagwise.Tagger`, a pipeline that ends in one, or any classifier of scikit-learn that has
        ``decision_function`` (``predict`` for metrics of sets). Tags not seen in training count as missed.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from sklearn.model_selection import cross_val_score
    >>> from tagwise import BinaryRelevance
    >>> from tagwise.metrics import scorer
    >>> X, Y = make_multilabel_classification(random_state=0)
    >>> scores = cross_val_score(BinaryRelevance(), X, Y, scoring=scorer("precision_at_1"))
    >>> bool(scores.mean() > 0.7)
    True
    """
    if not isinstance(name, str):
        raise InvalidTypeError(f"name must be the name of a metric, such as 'ndcg_at_5'; found {name!r:.60}.")
    function, k = _parsed(name)
    if function not in _METRICS or function.endswith("_at_k") != (k is not None):
        raise InvalidInputError(
            f"name must be one of {', '.join(_METRICS)}, with a number from 1 to 9999 for k; found {name!r:.60}."
        )
    if getattr(_METRICS[function], "weighted", False) and "inverse_propensity" not in options:
        raise InvalidInputError(
            f"scorer({name!r}) needs inverse_propensity=inverse_propensity(Y), of the training labels."
        )
    return Scorer(name, options)


def _parsed(name: str) -> tuple[str, int | None]:
    """Name of a metric's function, and k: of "ndcg_at_5", "ndcg_at_k" and 5."""
    match = re.fullmatch(r"(\w+)_at_([1-9][0-9]{0,3})", name)
    return (name, None) if match is None else (f"{match[1]}_at_k", int(match[2]))


def _last_step(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The model at the end of a search or a pipeline, and the rows as passed to it."""
    if hasattr(estimator, "best_estimator_"):
        return _last_step(estimator.best_estimator_, X)
    if hasattr(estimator, "steps") and hasattr(estimator, "named_steps"):
        rows = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
        return _last_step(estimator[-1], rows)
    return estimator, X
