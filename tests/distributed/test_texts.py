"""Text files on a cluster make the tagger that one machine makes of all of them together."""

import contextlib
import gzip
import json
import os
import re
import signal
import threading
import warnings

import numpy as np
import pytest
from commands import some_rows
from dask.distributed import Client, LocalCluster
from systems import needs_signals

from tagwise import LEML, Cascade, Tagger, TextFeatures
from tagwise.data import load_dataset
from tagwise.data.columns import Dialect
from tagwise.data.tables import read_table
from tagwise.distributed import fit_tagger, read_files, texts
from tagwise.exceptions import ClusterError, InvalidInputError, ParseError, TagwiseWarning
from tagwise.text import choice
from tagwise.text.tags import split_texts

# How many of the rows each file has.
SIZES = [0, 90, 1, 0, 300, 7]


@pytest.fixture(scope="module")
def sample():
    """Rows of the bundled sample, with the tags that were looked at in some."""
    data = load_dataset("debtags-sample")
    chance = np.random.default_rng(0)
    rows = []
    for text, tags in zip(data.texts_train[: sum(SIZES)], _lists(data)):
        known = sorted({*tags, *chance.choice(data.label_names, 40)}) if chance.random() < 0.7 else None
        rows.append({"text": text, "tags": tags, "known": known})
    return rows


def _lists(data):
    Y = data.Y_train
    return [[data.label_names[label] for label in Y.indices[a:b]] for a, b in zip(Y.indptr, Y.indptr[1:])]


def write(folder, rows, sizes=SIZES):
    """The rows in files of these sizes, and in one; all but the first of the last file are packed."""
    folder.mkdir(exist_ok=True)
    start = 0
    for number, size in enumerate(sizes):
        lines = "".join(json.dumps(row) + "\n" for row in rows[start : start + size])
        with gzip.open(folder / f"part-{number:02}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write(lines)
        start += size
    (folder / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:start]))
    return folder


def same(tagger, other):
    """Whether two taggers are the same but for the seconds they took."""
    assert tagger.tags_ == other.tags_
    assert tagger.features_.feature_names == other.features_.feature_names
    assert tagger.features_.idf_.tobytes() == other.features_.idf_.tobytes()
    assert tagger.choice_ == other.choice_
    mine, theirs = ({**one.training_, "seconds": 0} for one in (tagger, other))
    np.testing.assert_equal(mine, theirs)
    return True


def both(client, folder, make, **fields):
    """A tagger of the files on the cluster and one of all rows here, with what each had to say."""
    table = read_table(folder / "all.jsonl", **fields)
    taggers, sentences = (make(), make()), []
    for tagger, fit in zip(
        taggers,
        (
            lambda tagger: fit_tagger(tagger, f"{folder}/part-*.jsonl.gz", client=client, **fields),
            lambda tagger: tagger.fit(table.texts, table.tags, table.known),
        ),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit(tagger)
        sentences.append(sorted(str(one.message) for one in caught if issubclass(one.category, TagwiseWarning)))
    assert sentences[0] == sentences[1]
    return taggers


def test_a_tagger_of_files_is_that_of_all_rows(client, sample, tmp_path):
    folder = write(tmp_path / "parts", sample)
    mine, local = both(client, folder, lambda: Tagger(LEML(rank=20, max_iter=3)))
    assert same(mine, local)
    asked = [row["text"] for row in sample[:50]]
    np.testing.assert_allclose(mine.decision_function(asked), local.decision_function(asked), atol=1e-5)
    assert [[one.tag for one in row] for row in mine.suggest(asked)] == [
        [one.tag for one in row] for row in local.suggest(asked)
    ]
    mine.save(tmp_path / "tagger")


def test_known_tags_names_and_features_that_are_chosen(client, sample, tmp_path, monkeypatch):
    """All that a tagger may ask of its rows: known tags, names of tags, new tags, features that are compared."""
    monkeypatch.setattr(choice, "_SAMPLE", 60)
    folder = write(tmp_path / "parts", sample)
    tags = sorted({tag for row in sample for tag in row["tags"]})
    vocabulary = {tag: [tag.partition("::")[2], tag.partition("::")[0], "something else"] for tag in tags}
    vocabulary |= {"new::zebra-crossing": "zebra crossing", "new::library": ["a shared library", "library"]}

    def make():
        return Tagger(Cascade(rank=5), vocabulary=vocabulary, features="auto", normalise_tags=True)

    mine, local = both(client, folder, make, known="known")
    assert same(mine, local)
    assert mine.training_["known_pairs"] < mine.training_["rows"] * mine.training_["tags"]
    assert "zebra" in mine.features_.feature_names
    asked = [row["text"] for row in sample[:20]]
    np.testing.assert_allclose(mine.decision_function(asked), local.decision_function(asked), atol=1e-3)


def test_other_features(client, sample, tmp_path):
    folder = write(tmp_path / "parts", sample[:60], [10, 0, 50])
    features = TextFeatures(bigrams=True, characters=True, max_features=50, max_df=0.8, sublinear_tf=False)
    assert same(*both(client, folder, lambda: Tagger("binary-relevance", features=features)))


def test_tags_that_are_written_in_several_ways(client, tmp_path):
    rows = some_rows(40)
    for number, row in enumerate(rows):
        row["tags"] = [tag.upper() if number % 3 == 0 else tag for tag in row.pop("labels")] + ["pets"] * (number % 2)
    folder = write(tmp_path / "parts", rows, [13, 13, 14])
    for normalise in (True, False):
        mine, local = both(client, folder, lambda: Tagger("binary-relevance", normalise_tags=normalise))  # noqa: B023
        assert same(mine, local)
        assert len(mine.tags_) == (4 if normalise else 8)


def test_all_is_known_after_all(client, tmp_path):
    """A mask that hides nothing is none."""
    rows = [{**row, "known": sorted({"pets", "drinks", "food", "garden"})} for row in some_rows(20)]
    mine, local = both(client, write(tmp_path / "parts", rows, [9, 11]), lambda: Tagger("leml"), known="known")
    assert same(mine, local)
    assert mine.training_["known_pairs"] is None


def test_validation_rows_are_those_of_the_whole_table(client, sample, tmp_path):
    """Also where texts repeat in other files, so that validation rows with such a text are trained on."""
    rows = sample[:80] + [{**row, "tags": ["other"]} for row in sample[20:60]]
    folder = write(tmp_path / "parts", rows, [50, 0, 5, 65])
    drawn = []
    for table in (
        read_files(f"{folder}/part-*", client=client, known="known"),
        read_table(folder / "all.jsonl", known="known"),
    ):
        with pytest.warns(TagwiseWarning, match="picked for validation with a text that training rows have too"):
            drawn.append([table.part(numbers) for numbers in split_texts(table.texts, table.tags, 0.3, 7)])
    for found, whole in zip(*drawn, strict=True):
        assert (list(found.texts), found.tags, found.known) == (whole.texts, whole.tags, whole.known)


def test_rows_come_in_the_order_that_they_are_asked_for(client, sample, tmp_path):
    folder = write(tmp_path / "parts", sample)
    table = read_files([folder / f"part-{number:02}.jsonl.gz" for number in range(len(SIZES))], client=client)
    numbers = np.random.default_rng(3).permutation(sum(SIZES))[:70]
    assert list(table.part(numbers).texts) == [sample[number]["text"] for number in numbers]


def test_what_was_read_is_told_as_of_one_file(client, tmp_path):
    rows = [{"text": row["text"], "tags": [*row["labels"], *row["labels"]]} for row in some_rows(20)]
    rows[3]["tags"] = ["a", ""]
    rows[15] = {"text": " ", "tags": []}
    folder = write(tmp_path / "parts", rows, [10, 0, 10])
    table = read_files(f"{folder}/part-*", Dialect(skip_faulty=True), client=client)
    whole = read_table(folder / "all.jsonl", skip_faulty=True)
    assert table.counts == whole.counts
    assert [re.sub(r"\S+\.jsonl\S*, line \d+", "…", note) for note in table.notes] == [
        re.sub(r"\S+\.jsonl\S*, line \d+", "…", note) for note in whole.notes
    ]
    assert table.account == "3 files: 19 rows read, 1 refused: 20 lines."
    assert table.guess.endswith("guessed column `text` for texts, column `tags` for tags.")


def test_files_of_every_format(client, tmp_path):
    """Columns and separators are those of all rows together, however few the first file has."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = some_rows(12)
    cut = (rows[:1], [], rows[1:])
    assert len(rows[0]["labels"]) == 1
    for number, part in enumerate(cut):
        lines = [f"{row['text']},{'|'.join(row['labels'])}" for row in part]
        (tmp_path / f"{number}.csv").write_text("\n".join(["body,keywords", *lines]) + "\n")
        tabs = [f"{row['text']}\t<http://a/{'> <http://a/'.join(row['labels'])}>" for row in part]
        with gzip.open(tmp_path / f"{number}.tsv.gz", "wt") as file:
            file.write("".join(line + "\n" for line in tabs))
        wide = [f"{row['text']},{int('pets' in row['labels'])},{int('food' in row['labels']) or ''}" for row in part]
        (tmp_path / f"wide-{number}.csv").write_text("\n".join(["text,pets,food", *wide]) + "\n")
        schema = pyarrow.schema([("text", pyarrow.string()), ("labels", pyarrow.list_(pyarrow.string()))])
        fields = [{name: row[name] for name in ("text", "labels")} for row in part]
        parquet.write_table(pyarrow.Table.from_pylist(fields, schema), tmp_path / f"{number}.parquet")
    texts_and_tags = [(row["text"], row["labels"]) for row in rows]
    for pattern, prefix in (("?.csv", ""), ("?.parquet", ""), ("?.tsv.gz", "http://a/")):
        table = read_files(tmp_path / pattern, client=client)
        found = table.part(np.arange(table.n_rows))
        expected = [(text, [prefix + tag for tag in tags]) for text, tags in texts_and_tags]
        assert list(zip(found.texts, found.tags, strict=True)) == expected, pattern
    table = read_files(tmp_path / "wide-*.csv", client=client)
    found = table.part(np.arange(table.n_rows))
    assert found.tags == [[tag for tag in ("pets", "food") if tag in row["labels"]] for row in rows]
    assert found.known == [None if "food" in row["labels"] else ["pets"] for row in rows]


def test_a_file_that_a_worker_does_not_see(tmp_path):
    files, _ = texts.open_files(write(tmp_path / "parts", some_rows(4), [4]) / "part-00.jsonl.gz", Dialect())
    os.remove(files[0].path)
    fault = texts.tags_of_file(files[0])
    assert isinstance(fault, InvalidInputError)
    assert "a worker does not find this file. Put the files where all workers see them under the same path" in str(
        fault
    )


@pytest.mark.parametrize("faulty", ["{", '{"text": "x", "labels": 3}', '{"text": "", "labels": []}'])
def test_the_first_faulty_file_is_told_as_if_it_were_read_here(client, tmp_path, faulty, monkeypatch):
    folder = write(tmp_path / "parts", some_rows(12), [4, 4, 4])
    monkeypatch.chdir(folder)
    for number in (1, 2):
        with gzip.open(f"part-{number:02}.jsonl.gz", "at") as file:
            file.write(faulty + "\n")
    with pytest.raises(ParseError) as local:
        read_table("part-01.jsonl.gz")
    with pytest.raises(ParseError) as told:
        read_files("part-*.gz", client=client)
    assert str(told.value) == str(local.value)
    assert "part-01.jsonl.gz, line 5" in str(told.value)


def test_what_is_refused(client, tmp_path):
    folder = write(tmp_path / "parts", some_rows(4), [2, 2])
    (folder / "b.csv").write_text("text,tags\nx,y\n")
    (folder / "X.npz").touch()
    refused = {
        "none matches it as a pattern": f"{folder}/other-*",
        "give files of one format": f"{folder}/*[lv]*",
        "is named twice": [f"{folder}/all.jsonl", f"{folder}/al*"],
        "not standard input": "-",
        "holds a matrix": f"{folder}/X.npz",
    }
    for words, files in refused.items():
        with pytest.raises(InvalidInputError, match=words):
            read_files(files, client=client)
    for field in ("id", "group_by"):
        with pytest.raises(InvalidInputError, match="workers read apart"):
            read_files(f"{folder}/part-*", client=client, **{field: "id"})
    rows = [{"text": f"text {number // 2}", "tags": ["a", "b"][number % 2]} for number in range(20)]
    (folder / "per-tag.csv").write_text("text,tags\n" + "".join(f"{row['text']},{row['tags']}\n" for row in rows))
    with pytest.raises(InvalidInputError, match=r'rows that belong together may be in different files.*group_by= ""'):
        read_files(f"{folder}/per-tag.csv", client=client)
    with pytest.raises(InvalidInputError, match="none of 2 files holds a row"):
        read_files(f"{write(tmp_path / 'empty', [], [0, 0])}/part-*", client=client)
    untagged = write(tmp_path / "untagged", [{"text": "a cat", "tags": []}] * 4, [2, 2])
    with pytest.raises(InvalidInputError, match="no tag in any of the 4 rows"):
        fit_tagger(Tagger("leml"), f"{untagged}/part-*", client=client)
    rows = [{"text": "one", "tags": ["a"]}, {"text": "two", "tags": ["b"]}]
    rare = write(tmp_path / "rare", rows, [1, 1])
    with pytest.raises(InvalidInputError, match="no word that is in at least min_df=2 of the 2 texts"):
        fit_tagger(Tagger("leml"), f"{rare}/part-*", client=client)


# --- workers that die


@pytest.fixture
def doomed():
    """A cluster of its own, whose workers die."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield client


@needs_signals
@pytest.mark.slow
def test_workers_that_are_killed_cost_time_and_nothing_else(doomed, tmp_path):
    data = load_dataset("debtags-sample")
    rows = [{"text": text, "tags": tags} for text, tags in zip(data.texts_train, _lists(data))]
    folder = write(tmp_path / "parts", rows, [500] * 9 + [375])

    def fitted():
        return fit_tagger(Tagger(LEML(rank=20, max_iter=4)), f"{folder}/part-*", client=doomed).model_

    expected, ended = fitted(), threading.Event()

    def kill():
        for _ in range(3):
            if ended.wait(3):
                return
            with contextlib.suppress(Exception):  # a worker that is about to start
                os.kill(next(iter(doomed.run(os.getpid).values())), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        found = fitted()
    finally:
        ended.set()
        killer.join()
    assert found.feature_factors_.tobytes() == expected.feature_factors_.tobytes()
    assert found.label_factors_.tobytes() == expected.label_factors_.tobytes()


@needs_signals
@pytest.mark.slow
def test_a_file_that_kills_every_worker_is_given_up_in_a_sentence(doomed, tmp_path):
    folder = write(tmp_path / "parts", some_rows(4), [2, 2])
    tagger = Tagger("leml").fit(["a cat", "a cat", "a dog", "a dog"], [["cat"], ["cat"], ["dog"], ["dog"]])
    files, _ = texts.open_files(f"{folder}/part-*", Dialect(), with_tags=False)
    with pytest.raises(ClusterError, match="The step answer_file failed: 4 workers died"):
        texts.write_each(_die, [(file, "nowhere") for file in files], tagger, client=doomed)


def _die(tagger, file, target):
    os.kill(os.getpid(), signal.SIGKILL)
