"""A paper of two methods on the bundled sample, small enough to be run many times."""

import pytest

from reproduction.configuration import read_studies

CONFIGURATION = """
title = "two methods"
metrics = ["P@1", "P@3", "hamming", "AUC"]
assumptions = ["It is a toy."]
axes = { share = "k/L" }

[selection]
rule = "validation"
metric = "P@3"
fraction = 0.25
rows = 300
at = { share = "4%" }

[methods.LEML]
class = "LEML"
parameters = { rank = "$share of labels", max_iter = 2 }
grid = { reg = [1.0, 1000.0] }

[methods.KNN]
class = "KNN"

[[cells]]
datasets = ["debtags-sample"]
methods = ["LEML"]
settings = { share = ["2%", "4%"] }
seeds = [0, 1]

[[cells]]
datasets = ["debtags-sample"]
methods = ["KNN"]

[quick]
methods = ["LEML"]
settings = { share = ["2%"] }
seeds = [0]

[[tables]]
number = "table 1"
title = "precision"
metrics = ["P@1"]
rows = ["dataset", "share"]

[[tables]]
number = "table 2"
title = "others"
metrics = ["P@3", "hamming"]
rows = ["method"]
columns = "metric"
datasets = ["debtags-sample"]
where = { share = "4%" }
discussion = "A toy falls short of nothing."

[[figures]]
number = "figure 1"
title = "precision over k"
metrics = ["P@1", "AUC"]
x = "share"
paper_tables = ["table 1"]
"""
PAPER = """table,dataset,method,settings,metric,value
table 1,debtags-sample,LEML,share=2%,P@1,12.34
table 1,debtags-sample,LEML,share=4%,P@1,98.76
table 1,debtags-sample,KNN,share=2%,P@1,55.55
table 2,debtags-sample,LEML,share=4%,hamming,0.5000
"""


@pytest.fixture
def toy(tmp_path):
    """The folder of configurations, with the paper "toy"."""
    folder = tmp_path / "reproduction"
    (folder / "toy").mkdir(parents=True)
    (folder / "toy" / "small.toml").write_text(CONFIGURATION)
    (folder / "toy" / "paper.csv").write_text(PAPER)
    return folder


@pytest.fixture
def studies(toy):
    return read_studies(toy, "toy")


class Recorded:
    """A progress that notes what it is told, and can interrupt after some cells."""

    def __init__(self, stop_after=None):
        self.stop_after, self.titles, self.total, self.before = stop_after, [], None, None

    def begin(self, total, finished):
        self.total, self.before = total, finished

    def started(self, cell):
        if self.stop_after is not None and len(self.titles) == self.stop_after:
            raise KeyboardInterrupt

    def finished(self, cell, seconds, result):
        self.titles.append(cell.title)


@pytest.fixture
def recorded():
    return Recorded
