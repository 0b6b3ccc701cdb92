"""py.typed works: a type checker sees the types of the public names in a program of somebody else."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PROGRAM = """\
from tagwise import LEML, Cascade, Tagger, load
from tagwise.baselines import SLEEC
from tagwise.data import Dataset, hide_labels, load_dataset, read_table
from tagwise.exceptions import TagwiseError
from tagwise.inspection import explain_labels
from tagwise.metrics import precision_at_k

data: Dataset = load_dataset("debtags-sample")
known = hide_labels(data.Y_train, 0.3, random_state=0)
model: LEML = LEML(rank=10).fit(data.X_train, data.Y_train, observed=known)
labels, scores = model.predict_topk(data.X_test, k=5)
print(precision_at_k(data.Y_test, labels, k=[1, 5]), scores.shape, explain_labels(model, data.X_test, labels).explained)
rows = read_table("rows.csv")
tagger: Tagger = Tagger(Cascade()).fit(rows.texts, rows.tags, rows.known)
try:
    for suggestion in tagger.suggest(["a text"], top=3)[0]:
        tag: str = suggestion.tag
        probability: float | None = suggestion.probability
        print(tag, probability)
except TagwiseError as error:
    print(error)
SLEEC().fit(data.X_train, data.Y_train).save("folder")
load("folder")
"""

MISTAKES = """\
from tagwise import Tagger
from tagwise.data import hide_labels

Tagger().suggest(["a text"], top="three")
Tagger().suggest()
hide_labels()
"""


def check(path):
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--cache-dir",
            ROOT / ".mypy_cache" / "user",
            path.name,
        ],
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.slow  # and part of `make lint`
@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_a_program_of_somebody_else_is_checked(tmp_path):
    program, mistakes = tmp_path / "program.py", tmp_path / "mistakes.py"
    program.write_text(PROGRAM, encoding="utf-8")
    mistakes.write_text(MISTAKES, encoding="utf-8")
    found = check(program)
    assert found.returncode == 0, found.stdout + found.stderr
    found = check(mistakes)
    lines = [line for line in found.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[1] for line in lines] == ["4", "5", "6"], found.stdout
