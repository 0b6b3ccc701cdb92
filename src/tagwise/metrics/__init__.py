"""Metrics: rankings, propensity-scored rankings, sets of labels, and the area under the ROC curve.

Every function takes the true labels first (n×L, sparse or dense, 0/1) and the prediction second, and returns
values in [0, 1], never percent.

The ranking metrics (``*_at_k``, :func:`ranking_report`) accept a prediction in any of four forms:

- an integer array n×k of label ids, best first, -1 for no label;
- the pair ``(labels, scores)`` that ``predict_topk`` returns;
- a sparse n×L matrix of scores: stored entries are the candidates, so a row may have fewer than k predictions;
- a floating-point array n×L of scores.

Ties are ranked by the lower label id everywhere. ``k`` is a whole number (the result is a float) or a sequence of them
(the result is an array in that order, from one top-k pass). P@k divides by k even if k exceeds the number of labels.
Rows without any true label count as 0 in P@k, R@k and nDCG@k, and have no weight in PSP@k and PSnDCG@k.

The set-wise metrics compare 0/1 predictions, or scores cut at ``threshold=``; :func:`average_auc` needs a score for
every label, as a matrix or in row blocks.

:data:`RANKINGS` and :data:`SETS` list the metrics with what they mean: reports, commands and searches take theirs from
there. :func:`scorer` makes any of them one that scikit-learn takes as ``scoring=``.
"""

from tagwise.metrics.auc import average_auc
from tagwise.metrics.propensity import PROPENSITY_CONSTANTS, inverse_propensity, propensity_constants
from tagwise.metrics.ranking import (
    RANKINGS,
    coverage_at_k,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    ranking_report,
    recall_at_k,
)
from tagwise.metrics.scorers import scorer
from tagwise.metrics.setwise import (
    SETS,
    example_accuracy,
    example_f1,
    example_precision,
    example_recall,
    hamming_loss,
    macro_f1,
    micro_f1,
)
from tagwise.metrics.topk import top_k

__all__ = [
    "PROPENSITY_CONSTANTS",
    "RANKINGS",
    "SETS",
    "average_auc",
    "coverage_at_k",
    "example_accuracy",
    "example_f1",
    "example_precision",
    "example_recall",
    "hamming_loss",
    "inverse_propensity",
    "macro_f1",
    "micro_f1",
    "ndcg_at_k",
    "precision_at_k",
    "propensity_constants",
    "psndcg_at_k",
    "psp_at_k",
    "ranking_report",
    "recall_at_k",
    "scorer",
    "top_k",
]
