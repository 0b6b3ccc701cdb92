"""README, the guide and the first hour do what they say: their commands run in their order, and their Python too."""

import csv
import json
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from commands import COMMAND, run

from tagwise import load
from tagwise.data import load_dataset

ROOT = Path(__file__).parents[2]
README, GUIDE, FIRST_HOUR, FIRST_MODEL, INDEX = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "docs/guide.md", "docs/first-hour.md", "docs/start/first-model.md", "docs/index.md")
)


def run_commands(page, folder):
    """Commands of a page and their results, run in their order in a folder."""
    said = []
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for line in re.findall(r"^    tagwise (.*)$", page, flags=re.MULTILINE):
            if set(line) & set("<>|"):
                shell = f"{shlex.join(COMMAND)} {line}"
                result = subprocess.run(shell, shell=True, capture_output=True, encoding="utf-8", timeout=600)
            else:
                result = run(*shlex.split(line))
            assert result.returncode == 0, f"{line}\n{result.stderr}"
            said.append((line, result))
    return said


def blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


# ---------------------------------------------------------------------- README and the first pages


def test_the_commands_of_the_readme_run_as_pasted(tmp_path):
    block = re.search(r"^On the command line:\n\n((?:    tagwise .*\n)+)", README, flags=re.MULTILINE)[1]
    said = run_commands(block, tmp_path)
    assert [line.split()[0] for line, _ in said] == ["sample", "train", "predict", "evaluate"]
    assert re.search("network::server|web::server", said[2][1].stdout)
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_first_examples_of_python_run_as_pasted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAGWISE_DATA", "")
    code, shown = (blocks(README, kind)[0] for kind in ("python", "text"))
    assert [blocks(INDEX, kind)[0] for kind in ("python", "text")] == [code, shown]
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == shown.splitlines()
    exec(compile(blocks(FIRST_MODEL, "python")[0], "first-model.md", "exec"), {})
    assert float(re.search(r"\d\.\d+", capsys.readouterr().out)[0]) > 0.6
    assert (tmp_path / "leml" / "manifest.json").exists()


# ---------------------------------------------------------------------- the guide

TEXT = "how to prune an apple tree"
WORDS = {
    "gardening": ["prune", "tree", "soil", "winter", "spade"],
    "fruit": ["apple", "pear", "cherry", "ripe", "orchard"],
    "baking": ["sourdough", "oven", "scale", "flour", "crust"],
    "travel": ["train", "ticket", "coast", "hotel", "map"],
}


@pytest.fixture(scope="module")
def guided(tmp_path_factory):
    """A folder in which all commands of the guide have run."""
    folder = tmp_path_factory.mktemp("guide")
    for seed, (name, n_rows) in enumerate((("articles", 120), ("other-articles", 40), ("new", 10))):
        chance, rows = random.Random(seed), []
        for number in range(n_rows):
            tags = chance.sample(sorted(WORDS), chance.choice([1, 2]))
            body = "how to, " + " ".join(chance.choice(WORDS[tag]) for tag in tags for _ in range(4))
            rows.append([f"a{number}", body, ";".join(tags)])
        write(folder / f"{name}.csv", [["id", "body", "subjects"], *rows])
    (folder / "incoming.txt").write_text(f"{TEXT}\nthe train along the coast\n", encoding="utf-8")
    run_commands(GUIDE, folder)
    return folder


def write(path, lines, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(lines)


def test_the_commands_leave_what_the_guide_promises(guided):
    assert (guided / "tagger" / "manifest.json").is_file()
    assert "measured on other-articles.csv" in (guided / "report.html").read_text(encoding="utf-8")
    assert json.loads((guided / "leml.json").read_text(encoding="utf-8"))["finished"]
    answers = [json.loads(line) for line in (guided / "suggestions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [answer["id"] for answer in answers] == [f"a{number}" for number in range(10)]


@pytest.fixture(scope="module")
def server(guided):
    """The address of the guide's server, which runs in the folder of its tagger."""
    (script,) = (code for code in blocks(GUIDE, "python") if code.startswith("# serve.py"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "8000" in script
    (guided / "serve.py").write_text(script.replace("8000", str(port)), encoding="utf-8")
    process = subprocess.Popen([sys.executable, "serve.py"], cwd=guided, stderr=subprocess.PIPE, text=True)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=600)


def ask(address, content):
    with urllib.request.urlopen(address, data=content, timeout=300) as response:
        return json.loads(response.read())


def test_the_server_of_the_guide_answers_what_the_command_does(guided, server):
    sent = re.search(r"^    curl --data '(.*)' http://127\.0\.0\.1:8000$", GUIDE, flags=re.MULTILINE).group(1)
    answer = ask(server, sent.encode())
    expected = json.loads(run("predict", guided / "tagger", TEXT, "--json").stdout)["suggestions"]
    for name in ("tag", "probability"):
        assert [found[name] for found in answer] == [found[name] for found in expected]
    assert {found["tag"] for found in answer[:2]} == {"gardening", "fruit"}
    assert set(answer[0]["words"]) <= {"how", "to", "prune", "apple", "tree"}
    texts = [json.dumps({"text": " ".join(WORDS[tag])}).encode() for tag in sorted(WORDS)] * 6
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda content: ask(server, content), texts))
    assert [answer[0]["tag"] for answer in answers] == sorted(WORDS) * 6
    for content in (b"no JSON", b"{}", b'{"text": 3}', b"[]", b""):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask(server, content)


# ---------------------------------------------------------------------- the first hour

N_ROWS, N_TAGS = 240, 12


@pytest.fixture(scope="module")
def first_hour(tmp_path_factory):
    """The rows (name, description, tags), the folder in which the page's commands have run, and their results."""
    data = load_dataset("debtags-sample")
    frequent = np.argsort(-np.asarray(data.Y_train.sum(axis=0)).ravel(), kind="stable")[:N_TAGS].tolist()
    found = {}
    for text, labels in zip(data.texts_train, data.Y_train):
        package, _, description = " ".join(text.split()).partition(": ")
        tags = sorted(data.label_names[label] for label in labels.indices.tolist() if label in frequent)
        if tags and description.isascii():
            found.setdefault(package, (package, description, tags))
    rows = list(found.values())[:N_ROWS]
    folder = tmp_path_factory.mktemp("first-hour")
    names = sorted({tag for *_, tags in rows for tag in tags})
    ids = {name: f"t{number}" for number, name in enumerate(names)}
    write(folder / "packages.csv", [["package", "description", "tags"], *([p, d, ";".join(t)] for p, d, t in rows)])
    write(folder / "wide.csv", [["description", *names], *([d, *(int(n in t) for n in names)] for _, d, t in rows)])
    write(folder / "long.csv", [["package", "description", "tag"], *([p, d, tag] for p, d, t in rows for tag in t)])
    plain = [f'{d} "quoted and caf\u00e9\t{";".join(t)}\n' for _, d, t in rows]
    (folder / "plain.tsv").write_text("".join(plain), encoding="cp1252")
    write(folder / "ids.csv", [["text", "ids"], *([d, ";".join(ids[tag] for tag in t)] for _, d, t in rows)])
    write(folder / "names.tsv", [["id", "name"], *([ids[name], name.replace("::", " ")] for name in names)], "\t")
    messy = [[d, ";".join(tag.upper() if i % 2 else f"{tag} " for tag in t)] for i, (_, d, t) in enumerate(rows)]
    write(folder / "messy.csv", [["text", "tags"], *messy])
    said = {
        (re.search(r"from-\w+", line)[0], line.split()[0]): result for line, result in run_commands(FIRST_HOUR, folder)
    }
    return rows, folder, said


def test_every_shape_of_the_first_hour_teaches_what_it_should(first_hour):
    rows, folder, said = first_hour
    taggers = {path.name: load(path) for path in folder.glob("from-*")}
    wide, long = (taggers[name].suggest([d for _, d, _ in rows[:50]], top=3) for name in ("from-wide", "from-long"))
    assert [[one.tag for one in row] for row in wide] == [[one.tag for one in row] for row in long]
    assert sum(row[0].tag in tags for row, (*_, tags) in zip(wide, rows)) > 40
    assert f"{sum(len(tags) for *_, tags in rows):,} rows" in said["from-long", "train"].stderr
    for name in ("from-long", "from-wide"):
        assert f"Trained on {N_ROWS} rows" in said[name, "train"].stdout
    # Both columns of text are read: the names of packages hold words of their own.
    words = {name: set(tagger.features_.feature_names) for name, tagger in taggers.items()}
    assert words["from-packages"] - words["from-long"]
    assert "caf\u00e9" in words["from-plain"]
    assert len(taggers["from-messy"].tags_) == N_TAGS
    assert re.search(r"t\d+ \(", said["from-ids", "predict"].stdout)
    assert "role program" in said["from-ids", "predict"].stdout


def test_figures_of_the_first_hour_are_those_of_the_results():
    stored = json.loads((ROOT / "benchmarks" / "results" / "first_hour.json").read_text())
    assert len({cell["set"] for cell in stored["cells"]}) == 3
    for cell in stored["cells"]:
        assert f"| {cell['set']} | {cell['shape']} | {cell['rows']:,} | {100 * cell['P@1']:.1f} |" in FIRST_HOUR
