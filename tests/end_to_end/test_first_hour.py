"""docs/first-hour.md does what it says: its commands run on the bundled sample, written in the shapes that it shows."""

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from commands import run

from tagwise import load
from tagwise.data import load_dataset

PAGE = (Path(__file__).parents[2] / "docs" / "first-hour.md").read_text(encoding="utf-8")
N_ROWS, N_TAGS = 240, 12


@pytest.fixture(scope="module")
def rows():
    """Packages with names, descriptions and their frequent tags; each has one."""
    data = load_dataset("debtags-sample")
    frequent = np.argsort(-np.asarray(data.Y_train.sum(axis=0)).ravel(), kind="stable")[:N_TAGS]
    names = {int(label): data.label_names[label] for label in frequent}
    found = {}
    for row, text in enumerate(data.texts_train):
        package, _, description = " ".join(text.split()).partition(": ")
        tags = [
            names[label] for label in data.Y_train.indices[slice(*data.Y_train.indptr[row : row + 2])] if label in names
        ]
        if tags and description.isascii() and package not in found:
            found[package] = (description, sorted(tags))
    return [(package, *rest) for package, rest in list(found.items())[:N_ROWS]]


def write(path, lines, delimiter=",", **options):
    with path.open("w", newline="", encoding=options.pop("encoding", "utf-8")) as stream:
        csv.writer(stream, delimiter=delimiter, lineterminator="\n", **options).writerows(lines)


@pytest.fixture(scope="module")
def answered(tmp_path_factory, rows):
    """The folder in which all commands of the page have run, and what each of them said, by what it wrote."""
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
    said = {}
    commands = re.findall(r"^    tagwise (.*)$", PAGE, flags=re.MULTILINE)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for line in commands:
            result = run(*shlex.split(line))
            assert result.returncode == 0, f"{line}\n{result.stderr}"
            said[re.search(r"from-\w+", line)[0], line.split()[0]] = result
    return folder, said


def suggested(folder, rows):
    found = load(folder).suggest([description for _, description, _ in rows[:50]], top=3)
    return [[(one.tag, round(one.score, 5)) for one in row] for row in found]


def test_a_wide_and_a_long_table_teach_the_same(answered, rows):
    folder, _ = answered
    wide, long = suggested(folder / "from-wide", rows), suggested(folder / "from-long", rows)
    assert wide == long
    assert sum(row[0][0] in tags for row, (*_, tags) in zip(wide, rows)) > 40


def test_what_was_found_is_said(answered, rows):
    _, said = answered
    n_lines = sum(len(tags) for *_, tags in rows)
    assert f"{n_lines:,} rows" in said["from-long", "train"].stderr
    assert f"Trained on {N_ROWS} rows" in said["from-long", "train"].stdout
    assert f"Trained on {N_ROWS} rows" in said["from-wide", "train"].stdout


def test_both_columns_of_text_are_read(answered):
    folder, _ = answered
    words = {name: set(load(folder / name).features_.feature_names) for name in ("from-packages", "from-long")}
    # Packages that belong together share the beginning of their names, which descriptions need not have.
    assert words["from-packages"] - words["from-long"]


def test_tags_that_differ_in_case_and_blanks_become_one(answered):
    folder, _ = answered
    assert len(load(folder / "from-messy").tags_) == N_TAGS


def test_names_stand_beside_ids(answered):
    _, said = answered
    lines = said["from-ids", "predict"].stdout
    assert re.search(r"t\d+", lines)
    assert "role program" in lines


def test_quotes_and_other_encodings_are_text(answered):
    folder, _ = answered
    tagger = load(folder / "from-plain")
    assert tagger.training_["rows"] == N_ROWS
    assert "caf\u00e9" in tagger.features_.feature_names


def test_figures_of_the_page_are_those_of_the_results():
    stored = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "first_hour.json").read_text())
    for cell in stored["cells"]:
        assert f"| {cell['set']} | {cell['shape']} | {cell['rows']:,} | {100 * cell['P@1']:.1f} |" in PAGE
    by_set = {}
    for cell in stored["cells"]:
        by_set.setdefault(cell["set"], []).append(cell["P@1"])
    assert len(by_set) == 3
