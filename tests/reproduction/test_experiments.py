"""The experiments beside "fit and score"."""

from dataclasses import replace

import numpy as np
import pytest

from reproduction.configuration import cells_of, read_study
from reproduction.experiments import check_datasets, excess_risk, label_counts, load_split, mask_of
from reproduction.figures import fitted_slope
from tagwise.data import available_datasets, load_dataset
from tagwise.exceptions import DatasetNotFoundError

HEAD = 'title = "t"\nassumptions = ["a"]\n'


@pytest.fixture
def first_cell(tmp_path):
    """The first cell of a configuration given as text."""

    def read(text):
        path = tmp_path / "made.toml"
        path.write_text(HEAD + text)
        return cells_of(read_study(path, "toy"))[0]

    return read


def test_label_counts(first_cell):
    cell = first_cell(
        'experiment = "label-counts"\nmetrics = ["labels"]\n[methods.labels]\n[[cells]]\n'
        'datasets = ["debtags-sample"]\nmethods = ["labels"]\n'
    )
    result = label_counts(cell, load_split(cell.study, cell.dataset))
    data = load_dataset("debtags-sample")
    counts = np.asarray(data.Y_train.sum(axis=0) + data.Y_test.sum(axis=0)).ravel()
    assert result["values"]["labels"] == len(counts)
    assert result["values"]["most rows"] == counts.max() == result["curve"]["y"][0]
    assert result["values"]["in at most 10 rows"] == (counts <= 10).sum()
    assert result["curve"]["x"][-1] == len(counts)
    assert result["curve"]["y"] == sorted(result["curve"]["y"], reverse=True)


THEORY = """experiment = "excess-risk"
metrics = ["excess risk"]
options = {{ features = 16, rank = 1, strength = 1.0, known_per_row = 4, penalties = [10.0, 100.0] }}
[methods.made]
class = "{kind}"
parameters = {{ loss = "logistic", normalize = false, fit_intercept = false{more} }}
[[cells]]
datasets = ["isotropic"]
methods = ["made"]
settings = {{ n = [{n}], L = [{labels}] }}
"""


def risk(first_cell, kind, n, labels):
    more = ", rank = 16" if kind == "LEML" else ""
    return excess_risk(first_cell(THEORY.format(kind=kind, n=n, labels=labels, more=more)), 1)


@pytest.mark.filterwarnings("ignore")
def test_excess_risk_falls_with_rows_and_trace_norm_minds_labels_less(first_cell):
    few, many = (risk(first_cell, "LEML", n, 16)["values"]["excess risk"] for n in (200, 3000))
    assert 0 < many < few
    trace, frobenius = (
        [risk(first_cell, kind, 1000, labels)["values"]["excess risk"] for labels in (4, 32)]
        for kind in ("LEML", "BinaryRelevance")
    )
    assert trace[1] < frobenius[1]
    assert trace[1] / trace[0] < frobenius[1] / frobenius[0]


def test_slopes_of_powers_are_the_exponents():
    x = [8, 16, 32, 64]
    assert fitted_slope((x, [3 * v**-0.5 for v in x])) == pytest.approx(-0.5)
    assert fitted_slope(([8], [1.0])) is None
    bent = (x, [1.0, 2.0, 2.0, 2.0])
    assert fitted_slope(bent, 16) == pytest.approx(1.0)
    assert fitted_slope(bent) < 0.5
    assert fitted_slope(bent, 8) is None


def test_generated_data_and_masks(first_cell):
    cell = first_cell(
        'metrics = ["P@1"]\n[generated.made]\ntrain_rows = 30\ntest_rows = 10\nn_features = 20\nn_labels = 12\n'
        'rank = 2\nfeatures_per_row = 5.0\nlabels_per_row = 2.0\n[methods.KNN]\nclass = "KNN"\n'
        '[[cells]]\ndatasets = ["made"]\nmethods = ["KNN"]\n'
    )
    data = load_split(cell.study, "made")
    assert (data.X.shape, data.Y_test.shape) == ((30, 20), (10, 12))
    assert mask_of(data.Y, {}, 0) is None
    assert 0 < mask_of(data.Y, {"known": "20%"}, 0).nnz < 0.5 * 30 * 12
    at_hand = [replace(cell, dataset=name) for name in ("made", *available_datasets())]
    check_datasets(at_hand)
    with pytest.raises(DatasetNotFoundError, match=r"not found: elsewhere\. Set the environment"):
        check_datasets([*at_hand, replace(cell, dataset="elsewhere")])
