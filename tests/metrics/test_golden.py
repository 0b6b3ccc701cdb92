"""Published figures on stored predictions, and that scoring stays light."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import metrics
from tagwise.metrics import average_auc, inverse_propensity, precision_at_k, ranking_report, top_k

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.mark.parametrize(("tree", "percent"), [(0, 85.80), (1, 85.77), (2, 86.26)])
def test_eurlex_attentionxml(data_folder, reference, tree, percent):
    folder = data_folder / "fixture-eurlex-attentionxml"
    Y, S = sp.load_npz(folder / "Y.tst.npz"), sp.load_npz(folder / f"S.tree{tree}.npz")
    assert round(100 * precision_at_k(Y, S, 1), 2) == percent
    assert round(100 * precision_at_k(Y, top_k(S, 5), 1), 2) == percent
    weights = inverse_propensity(Y)
    report = ranking_report(Y, S, inverse_propensity=weights)
    assert report == ranking_report(Y, S.toarray(), inverse_propensity=weights)
    part, scores = Y[:300].toarray().astype(int), S[:300].toarray()
    for name, value in ranking_report(Y[:300], S[:300], 3, weights).items():
        twin = {"P": "precision", "R": "recall", "nDCG": "ndcg"}.get(name[:-2], name[:-2].lower())
        extra = (weights,) if twin.startswith("ps") else ()
        assert value == pytest.approx(getattr(reference, twin)(part, scores, *extra, 3), rel=1e-12)
    # All stored scores are positive, so 0 for the others is the one lowest score that unstored entries share.
    assert average_auc(Y, S) == average_auc(Y, S.toarray())


def test_very_many_labels_need_no_dense_matrix():
    n, L = 2_000, 2_000_000
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(n), 5)
    labels = rng.integers(0, L, n * 5)
    Y = sp.csr_matrix((np.ones(n * 5), (rows, labels)), shape=(n, L))
    Y.data[:] = 1
    S = sp.csr_matrix((rng.random(n * 5) + 0.1, (rows, labels)), shape=(n, L))
    report = ranking_report(Y, S, (1, 5), inverse_propensity(Y))
    assert report["P@1"] == report["R@5"] == report["nDCG@5"] == report["coverage@5"] == 1.0
    assert average_auc(Y, S) == 1.0


def test_importing_metrics_does_not_import_numba():
    code = "import sys, tagwise.metrics; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_metric_of_the_tables_is_public():
    for metric in (*metrics.RANKINGS, *metrics.SETS):
        assert getattr(metrics, metric.function.__name__) is metric.function
        assert metric.meaning
        assert metric.function.__name__ in PAGE.read_text()
