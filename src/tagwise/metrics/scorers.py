"""Metrics as scikit-learn's ``scoring=``: objects that measure a fitted estimator on rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.metrics import ranking, setwise

__all__ = ["Scorer", "scorer"]

_RANKINGS: Mapping[str, Callable[..., Any]] = {
    "precision": ranking.precision_at_k,
    "recall": ranking.recall_at_k,
    "ndcg": ranking.ndcg_at_k,
    "psp": ranking.psp_at_k,
    "psndcg": ranking.psndcg_at_k,
    "coverage": ranking.coverage_at_k,
}
_SETS: Mapping[str, Callable[..., Any]] = {
    "micro_f1": setwise.micro_f1,
    "macro_f1": setwise.macro_f1,
    "example_f1": setwise.example_f1,
    "example_precision": setwise.example_precision,
    "example_recall": setwise.example_recall,
    "example_accuracy": setwise.example_accuracy,
    "hamming_loss": setwise.hamming_loss,
}


@dataclass(frozen=True)
class Scorer:
    """``scorer(estimator, X, y)`` → float, the larger the better; see :func:`scorer`."""

    name: str
    options: Mapping[str, Any]

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """The metric of a fitted estimator on these rows; that of a loss is negative."""
        kind, _, k = self.name.rpartition("_at_")
        model, rows = _last_step(estimator, X)
        if kind:
            if hasattr(model, "truth_and_ranking"):
                truth, ranked = model.truth_and_ranking(rows, y, int(k))
            else:
                truth, ranked = y, np.asarray(model.decision_function(rows), dtype=np.float64)
            return float(_RANKINGS[kind](truth, ranked, k=int(k), **self.options))
        if hasattr(model, "truth_and_decisions"):
            truth, decided = model.truth_and_decisions(rows, y)
        else:
            truth, decided = y, model.predict(rows)
        value = float(_SETS[self.name](truth, decided, **self.options))
        return -value if self.name.endswith("_loss") else value

    def __repr__(self) -> str:
        """As it is made."""
        return f"scorer({self.name!r}{''.join(f', {name}=…' for name in self.options)})"


def scorer(name: str, **options: Any) -> Scorer:
    """A metric that scikit-learn takes as ``scoring=``, in ``cross_val_score`` and ``GridSearchCV`` for instance.

    Parameters
    ----------
    name : str
        ``"ndcg_at_5"``, or ``precision``, ``recall``, ``psp``, ``psndcg`` or ``coverage`` at any k; or ``"micro_f1"``,
        ``"macro_f1"``, ``"example_f1"``, ``"example_precision"``, ``"example_recall"``, ``"example_accuracy"``, and
        ``"hamming_loss"``, of which the negative is taken, as scikit-learn does.
    **options
        Further arguments of the metric, such as ``inverse_propensity`` for ``"psp_at_5"``, where these are not known
        from the rows.

    Returns
    -------
    Scorer
        Called with an estimator, rows and their labels. The estimator is a model of tagwise, a
        :class:`~tagwise.Tagger`, a pipeline that ends in one, or any classifier of scikit-learn that has
        ``decision_function`` (``predict`` for metrics of sets). Tags of the rows that a tagger has never seen count as
        missed.

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
    match = re.fullmatch(r"(\w+)_at_([1-9][0-9]{0,3})", name)
    if name not in _SETS and (match is None or match[1] not in _RANKINGS):
        rankings = ", ".join(f"{kind}_at_k" for kind in _RANKINGS)
        raise InvalidInputError(
            f"name must be one of {rankings}, with a number from 1 to 9999 for k, or {', '.join(_SETS)}; found "
            f"{name!r:.60}."
        )
    if match is not None and match[1] in ("psp", "psndcg") and "inverse_propensity" not in options:
        raise InvalidInputError(
            f"scorer({name!r}) needs inverse_propensity=inverse_propensity(Y), of the training labels."
        )
    return Scorer(name, options)


def _last_step(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The model at the end of a search or a pipeline, and the rows as they reach it."""
    if hasattr(estimator, "best_estimator_"):
        return _last_step(estimator.best_estimator_, X)
    if hasattr(estimator, "steps") and hasattr(estimator, "named_steps"):
        rows = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
        return _last_step(estimator[-1], rows)
    return estimator, X
