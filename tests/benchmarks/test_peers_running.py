"""benchmarks/peers: plug-ins are found, run in workers through the real driver, resumed, and fail into rows."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.data import load_dataset
from tagwise.metrics import inverse_propensity, ranking_report

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from peers import environments, run, top_labels
from peers.exchange import Problem
from peers.plugin import find_plugins
from peers.problems import SETS, ProblemSet, hand_out
from peers.watched import Limits, WorkerError, run_watched

# Always answers the labels that most training rows have, and notes every training.
POPULAR = """
import numpy as np
from peers.top_labels import of_dense_scores

NAME = "popular"
DISTRIBUTION = "numpy"
REQUIREMENTS = None
SYSTEMS = {"most frequent": {"sign": 1.0}}
NOTES = __file__ + ".trained"

def train(problem, settings, threads, scratch):
    with open(NOTES, "a") as stream:
        stream.write(f"{threads} {problem.observed is not None}\\n")
    return settings["sign"] * np.asarray(problem.Y.sum(axis=0)).ravel()

def save(model, folder):
    folder.mkdir()
    np.save(folder / "scores.npy", model)

def load(folder, settings, threads):
    return np.load(folder / "scores.npy")

def predict(answering, X, k, threads):
    return np.tile(answering, (X.shape[0], 1))

def ranked(answer, k):
    return of_dense_scores(answer, k)
"""
SAMPLE = "debtags-sample"


@pytest.fixture
def plugins(tmp_path):
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "popular.py").write_text(POPULAR)
    return folder


def drive(tmp_path, plugins, *more):
    """The real command; what it stored."""
    run.main(["--only", SAMPLE, "--plugins", str(plugins), "--out", str(tmp_path / "out"), "--threads", "1", *more])
    report = json.loads((tmp_path / "out" / "peers.json").read_text())
    return {cell["system"]: cell for cell in report["cells"]}


def trained(plugins, name="popular"):
    notes = plugins / f"{name}.py.trained"
    return notes.read_text().splitlines() if notes.exists() else []


def test_a_plug_in_runs_in_a_worker_and_is_judged_by_tagwise(tmp_path, plugins):
    cell = drive(tmp_path, plugins)["most frequent"]
    _, Y, _, Y_test = load_dataset(SAMPLE)
    frequent = np.argsort(-np.asarray(Y.sum(axis=0)).ravel(), kind="stable")[:5]
    expected = ranking_report(Y_test, np.tile(frequent, (Y_test.shape[0], 1)), inverse_propensity=inverse_propensity(Y))
    # Labels of the same frequency may come in another order at the end of the list.
    for metric in ("P@1", "nDCG@1", "PSP@1", "P@3"):
        assert cell["metrics"][metric] == pytest.approx(expected[metric])
    assert set(cell["metrics"]) == {f"{kind}@{k}" for kind in ("P", "nDCG", "PSP") for k in (1, 3, 5)}
    for figure in ("train_seconds", "batch_ms_per_row", "one_row_ms"):
        assert cell[figure] > 0
    assert cell["train_cpu_seconds"] >= 0
    assert cell["peak_mb"] >= 0
    # The saved array has 4 bytes per label, and a header.
    assert 1e6 * cell["model_mb"] == 4 * Y.shape[1] + 128
    assert cell["version"] == np.__version__
    assert (cell["threads"], cell["labels"], cell["test_rows"]) == (1, Y.shape[1], Y_test.shape[0])
    page = (tmp_path / "out" / "peers.md").read_text()
    assert f"| most frequent | **{100 * cell['metrics']['P@1']:.2f}**" in page


def test_what_has_a_result_is_not_run_again(tmp_path, plugins):
    drive(tmp_path, plugins)
    drive(tmp_path, plugins)
    assert len(trained(plugins)) == 1
    drive(tmp_path, plugins, "--fresh")
    assert len(trained(plugins)) == 2
    (plugins / "popular.py").write_text(POPULAR.replace('"sign": 1.0', '"sign": -1.0'))
    cells = drive(tmp_path, plugins)
    assert len(trained(plugins)) == 3
    assert cells["most frequent"]["settings"] == {"sign": -1.0}
    assert len(cells) == 1


def test_a_failure_is_a_row_with_its_last_line_and_is_tried_again_when_asked(tmp_path, plugins):
    broken = POPULAR.replace('"popular"', '"broken"').replace('"most frequent"', '"fails"')
    broken = broken.replace(
        "    return settings", "    raise MemoryError('needs | more than there is')\n    return settings"
    )
    (plugins / "broken.py").write_text(broken)
    cells = drive(tmp_path, plugins)
    assert cells["fails"]["error"] == "MemoryError: needs | more than there is"
    assert "metrics" in cells["most frequent"]
    assert "| fails | no result: MemoryError: needs \\| more than there is |" in (tmp_path / "out/peers.md").read_text()
    drive(tmp_path, plugins)
    assert len(trained(plugins, "broken")) == 1
    drive(tmp_path, plugins, "--retry")
    assert (len(trained(plugins, "broken")), len(trained(plugins))) == (2, 1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("of_dense_scores(answer, k)[:-1]", "^TypeError: the answer must be label numbers"),
        ("of_dense_scores(answer, k) * 1.0", "^TypeError: the answer must be label numbers"),
        ("of_dense_scores(answer, k) + 1_000_000", "^the answer cannot be judged: "),
    ],
)
def test_an_answer_that_is_none_is_a_row_that_says_so(tmp_path, plugins, answer, why):
    (plugins / "popular.py").write_text(POPULAR.replace("return of_dense_scores(answer, k)", f"return {answer}"))
    assert re.match(why, drive(tmp_path, plugins)["most frequent"]["error"])


def test_a_plug_in_that_refuses_is_not_started(tmp_path, plugins):
    with open(plugins / "popular.py", "a") as stream:
        stream.write("\ndef refusal(settings, shape):\n    return f'left out: {shape[2]} labels are too many'\n")
    cell = drive(tmp_path, plugins)["most frequent"]
    assert cell["left_out"] == f"left out: {load_dataset(SAMPLE).Y_train.shape[1]} labels are too many"
    assert not trained(plugins)


def test_a_peer_that_does_not_install_is_a_row_that_says_why(tmp_path, plugins, monkeypatch):
    commands = []

    def refuse(command):
        commands.append(command)
        if "pip" in command:
            raise environments.InstallationError("ERROR: No matching distribution found for no-such-peer")

    monkeypatch.setattr(environments, "_run", refuse)
    text = POPULAR.replace("REQUIREMENTS = None", 'REQUIREMENTS = ["no-such-peer"]')
    (plugins / "popular.py").write_text(text.replace("SYSTEMS = {", 'SYSTEMS = {"second": {}, '))
    cells = drive(tmp_path, plugins, "--environments", str(tmp_path / "environments"))
    why = "does not install: ERROR: No matching distribution found for no-such-peer"
    assert [cell["error"] for cell in cells.values()] == [why, why]
    # Once for both systems, with what the worker itself needs.
    assert [command[-3:] for command in commands if "pip" in command] == [["numpy", "scipy", "no-such-peer"]]


def test_only_a_plug_in_that_learns_from_a_mask_is_given_it(tmp_path, plugins, monkeypatch):
    monkeypatch.setitem(SETS, SAMPLE, ProblemSet("sample", SAMPLE, known=0.2))
    learner = POPULAR.replace('"popular"', '"learner"').replace('"most frequent"', '"masked"')
    (plugins / "learner.py").write_text(learner + "\nLEARNS_FROM_MASK = True\n")
    drive(tmp_path, plugins)
    assert trained(plugins) == ["1 False"]
    assert trained(plugins, "learner") == ["1 True"]


def test_hidden_labels_and_test_labels_are_not_handed_out(tmp_path):
    judge = hand_out(ProblemSet("sample", SAMPLE, unit_rows=True, known=0.2), tmp_path)
    problem = Problem.read(tmp_path, with_mask=True)
    Y = load_dataset(SAMPLE).Y_train
    assert {file.stem for file in tmp_path.iterdir()} == {"X", "Y", "X_test", "observed"}
    assert problem.Y.nnz == problem.Y.multiply(problem.observed).nnz == Y.multiply(problem.observed).nnz < Y.nnz
    np.testing.assert_allclose(np.sqrt(problem.X.multiply(problem.X).sum(axis=1)), 1, rtol=1e-5)
    assert judge.shape == (*problem.X.shape, Y.shape[1])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is watched where /proc is")
def test_a_worker_that_takes_too_much_memory_is_stopped(tmp_path):
    code = "import time; filled = b'x' * 300_000_000; time.sleep(60)"
    with pytest.raises(WorkerError, match=r"^stopped: more than 0\.2 GB of memory$"):
        run_watched([sys.executable, "-c", code], tmp_path / "log.txt", Limits(gigabytes=0.2))


def test_the_projects_own_plug_ins():
    found = {plugin.name: plugin for plugin in find_plugins()}
    assert set(found) == {"libmultilabel", "napkinxc", "omikuji", "pecos", "scikit-learn", "tagwise"}
    assert [name for name, plugin in found.items() if plugin.requirements is None] == ["tagwise"]
    assert [name for name, plugin in found.items() if plugin.learns_from_mask] == ["tagwise"]
    large, usual = (101_842, 25_688, 27_754), (24_240, 17_736, 581)
    refused = {
        system: plugin.refusal(settings, large)
        for plugin in found.values()
        for system, settings in plugin.systems.items()
        if plugin.refusal(settings, large)
    }
    assert set(refused) == {"libmultilabel-1vsrest-B1", "napkinxc-br", "sklearn-ovr-sgd", "tagwise-BinaryRelevance"}
    assert all("for each of 27,754 labels" in why for why in refused.values())
    for plugin in found.values():
        assert not any(plugin.refusal(settings, usual) for settings in plugin.systems.values())
        json.dumps(plugin.systems)


def test_the_best_labels_of_each_kind_of_answer():
    rng = np.random.default_rng(0)
    scores = rng.permuted(np.arange(1.0, 43.0)).reshape(6, 7)
    expected = np.argsort(-scores, axis=1)[:, :5]
    np.testing.assert_array_equal(top_labels.of_dense_scores(scores, 5), expected)
    np.testing.assert_array_equal(top_labels.of_sparse_scores(sp.csr_matrix(scores), 5), expected)
    pairs = [list(enumerate(row)) for row in scores]
    np.testing.assert_array_equal(top_labels.of_pairs(pairs, 5), expected)


def test_tagwises_plug_in_takes_the_candidate_that_validation_rows_prefer():
    plugin = next(plugin for plugin in find_plugins() if plugin.name == "tagwise").module
    data = load_dataset(SAMPLE)
    problem = Problem(data.X_train[:1500], data.Y_train[:1500], data.X_test)
    candidates = {"LEML": {"rank": 1, "reg": 1e6}, "BinaryRelevance": {}}
    settings = {"candidates": candidates, "validation_fraction": 0.2, "rule": "P@1"}
    chosen, details = plugin.choose(problem, settings, 1)
    assert chosen == {"model": "BinaryRelevance", "parameters": {}}
    assert details["chosen"] == "BinaryRelevance"
    assert details["scores"]["BinaryRelevance"] > details["scores"]["LEML"]
    assert plugin.choose(problem, chosen, 1) == (chosen, None)
