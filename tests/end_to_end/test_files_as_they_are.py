"""Files as people have them, through the command: every shape gives the tagger that the plain one gives."""

import csv
import gzip
import io
import json

import pytest
from commands import failed, ok, run, some_rows, write_jsonl

from tagwise import load

ROWS = some_rows(60, seed=1)
TAGS = sorted({tag for row in ROWS for tag in row["labels"]})
MODEL = ("--model", "binary-relevance")


def table(records, delimiter=",", **settings):
    written = io.StringIO()
    csv.writer(written, delimiter=delimiter, lineterminator="\n", **settings).writerows(records)
    return written.getvalue()


def train(path, out, *more):
    return ok("train", path, "--out", out, *MODEL, *more)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Answers of the tagger of the same rows as JSON lines."""
    folder = tmp_path_factory.mktemp("plain")
    train(write_jsonl(folder / "rows.jsonl", ROWS), folder / "m")
    return answers(folder / "m")


def answers(folder):
    return [
        [(suggestion.tag, round(suggestion.score, 5)) for suggestion in row]
        for row in load(folder).suggest(["a dog with fur", "wine and cheese", "prune the tree"], top=4)
    ]


def halves(text):
    words = text.split()
    return " ".join(words[:3]), " ".join(words[3:])


def several_columns():
    records = [(*halves(row["text"]), row["labels"][0], ";".join(row["labels"][1:])) for row in ROWS]
    content = table([("title", "abstract", "first", "others"), *records])
    options = ["--text", "title", "--text", "abstract", "--tags", "first", "--tags", "others"]
    return "rows.csv", content.encode(), options, "60 rows read, 0 refused, 1 header: 61 lines."


def without_quoting():
    lines = "".join(f'"{row["text"]}\t{";".join(row["labels"])}\n' for row in ROWS)
    return "rows.tsv", f"text\ttags\n{lines}".encode(), [], "60 rows read, 0 refused, 1 header: 61 lines."


def without_header():
    content = table([(row["id"], row["text"], "|".join(row["labels"])) for row in ROWS])
    options = ["--no-header", "--id", "1", "--text", "2", "--tags", "3"]
    return "rows.csv", content.encode("utf-16"), [*options, "--encoding", "utf-16"], "0 refused: 60 lines."


def wide():
    records = [(row["text"], *(int(tag in row["labels"]) for tag in TAGS), row["year"]) for row in ROWS]
    content = table([("text", *TAGS, "year"), *records])
    return "rows.csv", content.encode(), [], "guessed column `text` for texts, 4 columns of 0 and 1 for tags, `drinks`"


def long():
    records = [(row["id"], row["text"], tag) for row in ROWS for tag in row["labels"]]
    content = table([("id", "text", "tag"), *sorted(records, key=lambda record: record[2])])
    return "rows.csv", content.encode(), ["--group-by", "id"], "Put together, they are 60 rows of different 'id'."


def annif():
    lines = "".join(f"{row['text']}\t{' '.join(f'<{tag}>' for tag in row['labels'])}\n" for row in ROWS)
    return "rows.tsv.gz", gzip.compress(lines.encode()), [], "as in Annif's corpora"


def parquet():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow, which reads Parquet, is not installed")
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow, which reads Parquet, is not installed")
    title, abstract = zip(*(halves(row["text"]) for row in ROWS))
    columns = {"title": title, "abstract": abstract, "labels": [row["labels"] for row in ROWS]}
    written = io.BytesIO()
    pq.write_table(pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()}), written)
    options = ["--text", "title", "--text", "abstract", "--tags", "labels"]
    return "rows.parquet", written.getvalue(), options, "60 rows read, 0 refused."


@pytest.mark.parametrize("shape", [several_columns, without_quoting, without_header, wide, long, annif, parquet])
def test_every_shape_of_a_file_trains_the_same_tagger(shape, plain, tmp_path):
    name, content, options, said = shape()
    (tmp_path / name).write_bytes(content)
    result = train(tmp_path / name, tmp_path / "m", *options)
    assert said in result.stderr
    assert answers(tmp_path / "m") == plain
    # The other verbs read the same file alike.
    text_options = options[: options.index("--tags")] if "--tags" in options else options
    evaluated = run("evaluate", tmp_path / "m", tmp_path / name, *options, "--json")
    assert json.loads(evaluated.stdout)["rows"] == 60
    if "--id" in options:
        options = [option for option in options if option not in ("--id", "1")]
    text_options += ["--encoding", "utf-16"] if "utf-16" in options else []
    predicted = ok("predict", tmp_path / "m", tmp_path / name, "--top", "1", "--json", *text_options)
    assert len(predicted.stdout.splitlines()) == 60


def test_faults_are_skipped_and_counted(tmp_path):
    lines = [f"{row['text']}\t{';'.join(row['labels'])}\n" for row in ROWS]
    lines[7] = "no tags\n"
    (tmp_path / "rows.tsv").write_text("text\ttags\n" + "".join(lines))
    refused = run("train", tmp_path / "rows.tsv", "--out", tmp_path / "m")
    assert failed(refused, 1, "line 9: the record has 1 fields, but the header names 2")
    result = train(tmp_path / "rows.tsv", tmp_path / "m", "--skip-faulty", "--json")
    read = json.loads(result.stdout)["read"]
    assert read == {"rows": 59, "refused": 1, "header_lines": 1, "further_lines": 0, "blank_lines": 0, "lines": 61}
    assert "59 rows read, 1 refused, 1 header: 61 lines." in result.stderr
    assert "left out: 1 faulty row; the first: " in result.stderr


def test_options_on_files_are_not_for_matrices(tmp_path):
    (tmp_path / "rows.xmc").write_text("2 2 2\n0 0:1\n1 1:1\n")
    for option in (["--quoting", "none"], ["--no-header"], ["--encoding", "cp1252"], ["--tags-wide"]):
        result = run("train", tmp_path / "rows.xmc", "--out", tmp_path / "m", *option)
        assert failed(result, 1, f"{option[0]} has no meaning for", "which is a matrix")


# ---------------------------------------------------------------------- names of tags


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A tagger whose tags are ids, with a vocabulary."""
    folder = tmp_path_factory.mktemp("named")
    ids = {tag: f"p{number}" for number, tag in enumerate(TAGS)}
    rows = [{"text": row["text"], "tags": [ids[tag] for tag in row["labels"]]} for row in ROWS]
    write_jsonl(folder / "rows.jsonl", rows)
    (folder / "tags.tsv").write_text("".join(f"{ids[tag]}\tthe {tag}\tor {tag}\n" for tag in TAGS))
    train(folder / "rows.jsonl", folder / "m", "--vocabulary", folder / "tags.tsv", "--validation", "0.25")
    return folder


def test_names_are_shown_beside_tags_in_every_output(named):
    model = named / "m"
    assert "p3 (the pets) " in run("predict", model, "a dog with fur").stdout
    (first, *_) = json.loads(run("predict", model, "a dog with fur", "--json").stdout)["suggestions"]
    assert (first["tag"], first["name"]) == ("p3", "the pets")
    assert run("explain", model, "a dog with fur", "--top", "1").stdout.startswith("p3 (the pets): score")
    (explained,) = json.loads(run("explain", model, "a dog", "--tag", "the pets", "--json").stdout)["tags"]
    assert (explained["tag"], explained["name"]) == ("p3", "the pets")
    assert failed(run("explain", model, "a dog", "--tag", "pets"), 1, "Did you mean 'p3 (the pets)'?")
    overview = run("inspect", model).stdout
    assert all(f"({'the ' + tag})" in overview for tag in TAGS)
    assert {entry["name"] for entry in json.loads(run("inspect", model, "--json").stdout)["most_frequent"]} == {
        f"the {tag}" for tag in TAGS
    }
    assert run("inspect", model, "--tag", "the pets").stdout.startswith("p3 (the pets) in ")
    assert load(model).names_["p0"] == "the drinks"


def test_a_vocabulary_in_another_language(named, tmp_path):
    (tmp_path / "tags.csv").write_text("uri,label_en,label_fi\n" + "".join(f"p{n},en{n},fi{n}\n" for n in range(4)))
    train(named / "rows.jsonl", tmp_path / "m", "--vocabulary", tmp_path / "tags.csv", "--language", "fi")
    assert load(tmp_path / "m").names_ == {f"p{number}": f"fi{number}" for number in range(4)}
    wrong = run("train", named / "rows.jsonl", "--out", tmp_path / "n", "--language", "fi")
    assert failed(wrong, 1, "--language is that of the names of a vocabulary")


# ---------------------------------------------------------------------- tags written nearly alike, texts without spaces


def test_tags_written_nearly_alike_are_reported_and_made_one(tmp_path):
    rows = [{"text": row["text"], "tags": list(row["labels"])} for row in ROWS]
    for number, row in enumerate(rows):
        if number % 5 == 0:
            row["tags"] = [tag.title() + " " for tag in row["tags"]]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    result = train(path, tmp_path / "m")
    assert "4 tags written in more than one way, alike but for capitals or blanks, such as " in result.stderr
    assert "(--normalise-tags) makes them one" in result.stderr
    assert len(load(tmp_path / "m").tags_) == 8
    result = train(path, tmp_path / "one", "--normalise-tags")
    assert "more than one way" not in result.stderr
    assert load(tmp_path / "one").tags_ == TAGS
    # The tagger remembers: other rows may write tags as they like.
    evaluated = json.loads(run("evaluate", tmp_path / "one", path, "--json").stdout)
    assert evaluated["unseen_tags"] == {}
    compared = ok("compare", path, *MODEL, "--normalise-tags", "--unlisted", "unknown", "--json")
    assert "more than one way" not in compared.stderr


def test_texts_without_spaces_are_told_of_characters(tmp_path):
    rows = [
        {"text": "猫と犬の生活についての本" + "あいうえお"[n % 5] * 3, "tags": ["a" if n % 2 else "b"]}
        for n in range(20)
    ]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    result = train(path, tmp_path / "m")
    assert "hardly any spaces between words" in result.stderr
    assert "(--characters)" in result.stderr
    assert "--characters" not in train(path, tmp_path / "n", "--characters").stderr
    lonely = [
        {"text": f"word{n} other{n}" if n % 5 == 0 else "a dog", "tags": ["a", "b"][: 1 + n % 2]} for n in range(40)
    ]
    path = write_jsonl(tmp_path / "lonely.jsonl", lonely)
    assert "8 of 40 texts have no word that is a feature: all of them look alike" in train(path, tmp_path / "o").stderr
    evaluated = run("evaluate", tmp_path / "o", path)
    assert "8 rows without a known word: all get the same tags. Train with --characters" in evaluated.stderr
