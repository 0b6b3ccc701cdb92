"""benchmarks/peers: plug-ins are found, run in workers through the real driver, resumed, and fail into rows."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from tagwise import BinaryRelevance
from tagwise.data import hide_labels, load_dataset, split_rows
from tagwise.metrics import inverse_propensity, precision_at_k, ranking_report

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from peers import environments, run, top_labels
from peers.exchange import Problem
from peers.plugin import PluginError, find_plugins, read_plugin
from peers.problems import AMAZON_FEATURES, SETS, ProblemSet, hand_out
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


def test_a_plug_in_may_choose_its_settings_and_the_choice_is_timed_apart(tmp_path, plugins):
    usual = drive(tmp_path, plugins)["most frequent"]
    choosing = """
def choose(problem, settings, threads):
    import time
    clock = time.perf_counter
    time.perf_counter = lambda: clock() + 3600  # as if this took an hour
    return {"sign": -1.0}, {"chosen": "the rarest"}
"""
    (plugins / "popular.py").write_text(POPULAR + choosing)
    cell = drive(tmp_path, plugins, "--fresh")["most frequent"]
    assert cell["metrics"]["P@1"] < usual["metrics"]["P@1"]
    assert cell["choice"]["chosen"] == "the rarest"
    assert cell["choice"]["seconds"] >= 3600 > cell["train_seconds"]
    assert (cell["settings"], cell["settings_used"]) == ({"sign": 1.0}, {"sign": -1.0})
    assert "| most frequent (the rarest) |" in (tmp_path / "out/peers.md").read_text()


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


def test_an_environment_is_made_once_and_again_when_its_requirements_change(tmp_path, plugins, monkeypatch):
    commands = []

    def make(command):
        commands.append(command)
        (tmp_path / "popular").mkdir(exist_ok=True)

    monkeypatch.setattr(environments, "_run", make)
    for requirements in ('["one"]', '["one"]', '["two"]'):
        (plugins / "popular.py").write_text(POPULAR.replace("= None", f"= {requirements}"))
        python = environments.python_of(read_plugin(plugins / "popular.py"), tmp_path)
        assert python.is_relative_to(tmp_path / "popular")
    assert len([command for command in commands if "pip" in command]) == 2


def test_the_installers_own_error_is_what_is_reported():
    code = "import sys; sys.exit('ERROR: no such package\\nhint: update pip')"
    with pytest.raises(environments.InstallationError, match=r"^ERROR: no such package$"):
        environments._run([sys.executable, "-c", code])


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


def test_where_only_positives_are_known_some_are_missing_and_everybody_is_told(tmp_path):
    judge = hand_out(ProblemSet("sample", SAMPLE, listed_only=True), tmp_path)
    problem = Problem.read(tmp_path, with_mask=False)
    Y = load_dataset(SAMPLE).Y_train
    assert (problem.unlisted, problem.observed) == ("unknown", None)
    assert problem.Y.nnz == pytest.approx((np.bincount(Y.indices) / inverse_propensity(Y)).sum(), rel=0.05)
    assert (np.diff(problem.Y.indptr) > 0).all()
    assert problem.Y.shape[0] == problem.X.shape[0] < Y.shape[0]
    np.testing.assert_array_equal(judge.weights, inverse_propensity(Y))
    Problem(problem.X, problem.Y, problem.X_test).write(tmp_path / "other")
    assert Problem.read(tmp_path / "other", with_mask=True).unlisted == "off"


def test_the_generated_set_has_rare_labels_that_can_be_told(tmp_path):
    share = 1 / 500
    judge = hand_out(ProblemSet("small", amazon_share=share), tmp_path)
    problem = Problem.read(tmp_path, with_mask=True)
    assert judge.shape == (981, AMAZON_FEATURES, 1340)
    assert judge.Y_test.shape[0] == problem.X_test.shape[0] == 100
    rows_of_label = np.bincount(problem.Y.indices, minlength=1340)
    assert (rows_of_label < 10).mean() > 0.8
    # The label whose rows are most similar is right far more often than any label would be.
    prototypes = normalize(problem.Y.T @ problem.X)
    guessed = np.asarray((problem.X_test @ prototypes.T).argmax(axis=1)).reshape(-1, 1)
    most_frequent = judge.Y_test[:, rows_of_label.argmax()].mean()
    assert 1.5 * most_frequent < precision_at_k(judge.Y_test, guessed, 1) < 0.95


def test_who_cannot_use_a_mask_gets_the_rows_that_have_a_label(tmp_path):
    X = sp.random(6, 4, density=0.5, format="csr", random_state=0, dtype=np.float32)
    Y = sp.csr_matrix(np.array([[0, 1], [0, 0], [1, 0], [0, 0], [0, 0], [1, 1]], dtype=np.float32))
    Problem(X, Y, X).write(tmp_path)
    assert Problem.read(tmp_path, with_mask=False).Y.shape[0] == 6
    Problem(X, Y, X, observed=sp.csr_matrix(np.ones((6, 2)))).write(tmp_path)
    seen = Problem.read(tmp_path, with_mask=False)
    np.testing.assert_array_equal(seen.X.toarray(), X.toarray()[[0, 2, 5]])
    np.testing.assert_array_equal(seen.Y.toarray(), Y.toarray()[[0, 2, 5]])
    assert seen.observed is None
    assert (seen.X_test.shape[0], Problem.read(tmp_path, with_mask=True).Y.shape[0]) == (6, 6)


@pytest.mark.parametrize(
    ("code", "limits", "why"),
    [
        ("print('a'); raise ValueError('of course')", Limits(), "^ValueError: of course$"),
        ("import time; time.sleep(60)", Limits(minutes=0.01), "^stopped: more than 0.01 minutes$"),
        ("import os; os.abort()", Limits(), "^ended by SIGABRT"),
        ("raise SystemExit(3)", Limits(), "^exit code 3$"),
    ],
)
def test_why_a_worker_failed(tmp_path, code, limits, why):
    with pytest.raises(WorkerError, match=why):
        run_watched([sys.executable, "-c", code], tmp_path / "log.txt", limits)


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


def test_files_that_are_no_plug_ins(tmp_path, plugins):
    (plugins / "_shared.py").write_text("raise RuntimeError('not to be read')")
    assert [plugin.name for plugin in find_plugins(plugins)] == ["popular"]
    (plugins / "half.py").write_text("NAME = 'half'\ndef train(): ...\n")
    with pytest.raises(PluginError, match=r"half\.py lacks DISTRIBUTION, REQUIREMENTS, SYSTEMS, save\(\), load\(\)"):
        find_plugins(plugins)
    (plugins / "half.py").write_text(POPULAR)
    with pytest.raises(PluginError, match="Two plug-ins are named popular"):
        find_plugins(plugins)
    (plugins / "half.py").write_text(POPULAR.replace('"popular"', '"other"'))
    with pytest.raises(PluginError, match="Two systems are named most frequent"):
        find_plugins(plugins)
    with pytest.raises(PluginError, match="no plug-in"):
        find_plugins(tmp_path)
    (plugins / "half.py").unlink()
    with pytest.raises(SystemExit, match="No plug-in is named nobody"):
        drive(tmp_path, plugins, "--only-peer", "nobody")
    with pytest.raises(SystemExit, match="No system is named nothing"):
        drive(tmp_path, plugins, "--only-system", "nothing")


def test_one_system_of_a_plug_in(tmp_path, plugins):
    (plugins / "popular.py").write_text(POPULAR.replace("1.0}}", '1.0}, "least frequent": {"sign": -1.0}}'))
    assert list(drive(tmp_path, plugins, "--only-system", "least frequent")) == ["least frequent"]


def test_the_best_labels_of_each_kind_of_answer():
    rng = np.random.default_rng(0)
    scores = rng.permuted(np.arange(1.0, 43.0)).reshape(6, 7)
    expected = np.argsort(-scores, axis=1)[:, :5]
    np.testing.assert_array_equal(top_labels.of_dense_scores(scores, 5), expected)
    np.testing.assert_array_equal(top_labels.of_sparse_scores(sp.csr_matrix(scores), 5), expected)
    pairs = [list(enumerate(row)) for row in scores]
    np.testing.assert_array_equal(top_labels.of_pairs(pairs, 5), expected)


def test_rows_with_too_few_answers_are_filled_up():
    scores = np.array([[0.5, -np.inf, 0.7], [-np.inf, -np.inf, -np.inf]])
    expected = [[2, 0, -1, -1, -1], [-1] * 5]
    np.testing.assert_array_equal(top_labels.of_dense_scores(scores, 5), expected)
    stored = sp.csr_matrix(([0.5, 0.7], ([0, 0], [0, 2])), shape=(2, 3))
    np.testing.assert_array_equal(top_labels.of_sparse_scores(stored, 5), expected)
    np.testing.assert_array_equal(top_labels.of_pairs([[(0, 0.5), (2, 0.7)], []], 5), expected)


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


def test_with_unknown_labels_the_choice_still_estimates_the_precision():
    plugin = next(plugin for plugin in find_plugins() if plugin.name == "tagwise").module
    data = load_dataset(SAMPLE)
    X, Y = data.X_train[:1500], data.Y_train[:1500]
    observed = hide_labels(Y, 0.5, random_state=0)
    problem = Problem(X, sp.csr_matrix(Y.multiply(observed)), data.X_test, observed)
    settings = {"candidates": {"BinaryRelevance": {}}, "validation_fraction": 0.2, "rule": "P@1"}
    _, details = plugin.choose(problem, settings, 1)
    training, validation = split_rows(problem.Y, 0.2, random_state=0, keep_labels=True)
    model = BinaryRelevance().fit(X[training], problem.Y[training], observed[training])
    true = precision_at_k(Y[validation], model.predict_topk(X[validation], 1)[0], 1)
    # Half the rows' first answers are unknown; had they counted as wrong, the estimate were half of it.
    assert details["scores"]["BinaryRelevance"] == pytest.approx(true, abs=0.1)
