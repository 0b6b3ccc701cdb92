"""Pages of the documentation do what they show: their Python and that of docstrings runs, their commands exist."""

import doctest
import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import click
import numpy as np
import pytest
import scipy.sparse as sp
from commands import ok

from tagwise import LEML, BinaryRelevance, Cascade, Tagger, TextFeatures
from tagwise.cli.main import VERBS
from tagwise.data import load_dataset

ROOT = Path(__file__).parents[2]
WRITTEN = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "start").glob("*.md")),
    *sorted((ROOT / "docs" / "papers").glob("*.md")),
]
PAGES = [path for path in WRITTEN if "```python" in path.read_text(encoding="utf-8")]
SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if ">>>" in path.read_text(encoding="utf-8"))


def blocks(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


class Vectors:
    """Stands for a language model."""

    def fit(self, texts, y=None):
        return self

    def transform(self, texts):
        return np.array([[len(text), text.count("a"), text.count("e")] for text in texts], dtype=np.float32)


@pytest.fixture(scope="module")
def sample():
    """A small part of the bundled sample: 12 frequent tags, and the words of their texts."""
    data = load_dataset("debtags-sample")
    frequent = np.sort(np.argsort(-np.asarray(data.Y_train.sum(axis=0)).ravel())[20:32])
    rows = np.flatnonzero(np.diff(data.Y_train[:, frequent].indptr))[:400]
    texts = [data.texts_train[row] for row in rows]
    names = [data.label_names[label] for label in frequent]
    Y = sp.csr_matrix(data.Y_train[rows][:, frequent])
    return texts, names, Y


@pytest.fixture
def given(sample, tmp_path, monkeypatch):
    """Names that pages take for granted: matrices, texts, tags, fitted models, and files in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAGWISE_DATA", "")
    texts, names, Y = sample
    features = TextFeatures().fit(texts)
    X = features.transform(texts)
    tags = [[names[label] for label in row.indices] for row in Y]
    E = np.random.default_rng(0).normal(size=(len(texts), 8)).astype(np.float32)
    Path("records.csv").write_text(
        "title,abstract,subjects\n"
        + "".join(f"chess {n},a board game,games\ngarden {n},how to prune,fruit;garden\n" for n in range(40)),
        encoding="utf-8",
    )
    Path("subjects.tsv").write_text("p101\tchess\np102\tcard games\n", encoding="utf-8")
    Path("feedback.jsonl").write_text(
        '{"text": "a chess board", "accepted": ["games"], "rejected": []}\n', encoding="utf-8"
    )
    return {
        "X": X[:300],
        "Y": Y[:300],
        "E": E[:300],
        "E_new": E[300:],
        "texts": texts[:300],
        "tags": tags[:300],
        **{f"X_{rows}": X[300:] for rows in ("new", "test", "validation")},
        **{f"Y_{rows}": Y[300:] for rows in ("new", "test", "validation")},
        **{f"{rows}_texts": texts[300:] for rows in ("new", "test", "other")},
        **{f"{rows}_tags": tags[300:] for rows in ("test", "other")},
        "N": sp.csr_matrix((Y.shape[1], X.shape[1]), dtype=np.float32),
        "words": features.get_feature_names_out().tolist(),
        "features": features,
        "Vectors": Vectors,
        "model": LEML(rank=8).fit(X[:300], Y[:300]),
        "cascade": Cascade().fit(X[:300], Y[:300]),
        "tagger": Tagger().fit(texts[:300], tags[:300]),
        "LEML": LEML,
        "BinaryRelevance": BinaryRelevance,
        "np": np,
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_python_of_pages_runs(path, given):
    given["tagger"].save("packages")
    ok("sample", "packages.jsonl", "--test", "others.jsonl")
    for code in blocks(path):
        if "serve_forever" in code:  # tests/end_to_end/test_walkthroughs.py talks to it
            continue
        exec(compile(code, path.name, "exec"), given)


@pytest.mark.slow
def test_the_answer_of_the_server_that_a_page_shows_is_a_real_one(tmp_path, monkeypatch):
    from starlette.testclient import TestClient

    from tagwise.serving import create_app

    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8").partition("## Ask")[2]
    asked = json.loads(re.search(r"--json '(.*?)'", page)[1])
    shown = json.loads(re.search(r"^```json\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)[1])
    monkeypatch.chdir(tmp_path)
    ok("sample", "packages.jsonl")
    ok("train", "packages.jsonl", "--out", "packages")
    with TestClient(create_app({"packages": "packages"}), base_url="http://localhost") as client:
        found = client.post("/v1/taggers/packages/suggest", json=asked).json()
    assert found.keys() == shown.keys()
    assert found["tagger"] == shown["tagger"]
    assert len(found["suggestions"]) == len(shown["suggestions"])
    # Other versions of numpy and other processors round in other ways.
    for one, other in zip(found["suggestions"], shown["suggestions"], strict=True):
        assert (one["tag"], one["name"]) == (other["tag"], other["name"])
        assert one["probability"] == pytest.approx(other["probability"], abs=0.02)
        assert one["score"] == pytest.approx(other["score"], abs=0.02)
        assert [word["word"] for word in one["words"]] == [word["word"] for word in other["words"]]
        shares = [word["share"] for word in other["words"]]
        assert [word["share"] for word in one["words"]] == pytest.approx(shares, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_examples_of_docstrings_run(path):
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert not doctest.testmod(import_module(name), optionflags=flags).failed


def shown_commands(path):
    """Commands of indented lines and blocks of shell, as lists of arguments, without pipes and redirections."""
    text = path.read_text(encoding="utf-8")
    shell = "\n".join(re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    lines = re.findall(r"^    (tagwise .*)$", text, flags=re.MULTILINE) + re.findall(
        r"^(tagwise .*)$", shell, flags=re.MULTILINE
    )
    for line in lines:
        words = shlex.split(line, comments=True)
        yield words[1 : next((place for place, word in enumerate(words) if word in ("|", "<", ">")), None)]


def test_commands_of_pages_exist():
    shown = [(path, *words) for path in WRITTEN for words in shown_commands(path)]
    assert len(shown) > 40
    for path, verb, *arguments in shown:
        if verb.startswith("-"):
            continue
        assert verb in VERBS, f"{path.name} shows tagwise {verb}"
        command = import_module(f"tagwise.cli.{verb}").command
        # The command keeps its option of help, once made.
        context = click.Context(command, info_name=verb, help_option_names=["-h", "--help"])
        command.make_parser(context).parse_args([argument for argument in arguments if argument != "\\"])


def test_every_example_of_the_gallery_ends_in_a_picture():
    examples = sorted((ROOT / "docs" / "examples").glob("*.py"))
    assert len(examples) == 8
    for path in examples:
        code = path.read_text(encoding="utf-8")
        compile(code, path.name, "exec")
        assert "plt.subplots" in code
        assert "debtags-sample" in code, path.name
