"""``tagwise update`` and ``tagwise labels``: what they say and write, and what they refuse."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from commands import failed, ok, run, some_rows, write_jsonl

from tagwise import Tagger, load

NEW = [{"text": f"rocket moon orbit engine {word}", "labels": ["space"]} for word in ("cat", "wine", "bread", "tree")]
ANSWERS = [
    {"text": "rocket cat dog", "accepted": ["pets"], "rejected": ["garden"]},
    {"text": "wine beer oven", "accepted": ["drinks"], "rejected": ["pets"]},
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("update")
    rows = write_jsonl(folder / "rows.jsonl", some_rows(60))
    write_jsonl(folder / "new.jsonl", NEW)
    write_jsonl(folder / "feedback.jsonl", ANSWERS)
    ok("train", rows, "--out", folder / "tagger", "--model", "binary-relevance", "--updatable", "--quiet")
    return folder


def test_new_rows_are_learnt_into_another_folder(files):
    out = files / "second"
    done = ok("update", files / "tagger", files / "new.jsonl", "--out", out, "--test", files / "rows.jsonl")
    assert "Learnt 4 rows with 4 new features and 1 new tag; 64 in all." in done.stdout
    assert "before" in done.stdout
    assert "after" in done.stdout
    assert "space" in load(out).tags_
    assert "space" not in load(files / "tagger").tags_


def test_feedback_alone_and_json(files):
    out = files / "third"
    given = ("--feedback", files / "feedback.jsonl", "--out", out, "--json", "--quiet")
    done = run("update", files / "tagger", *given)
    found = json.loads(done.stdout)
    assert (found["rows"], found["tags"], found["all_rows"]) == (2, 0, 62)
    assert load(out).model_.kept_observed_.nnz == 4
    assert failed(run("update", files / "tagger", *given), 1, "overwrite")


def test_what_is_refused(files, tmp_path):
    plain = tmp_path / "plain"
    run("train", files / "rows.jsonl", "--out", plain, "--model", "binary-relevance", "--quiet")
    for arguments, code, words in (
        (("update", plain, files / "new.jsonl"), 1, "--updatable"),
        (("update", files / "tagger"), 2, "--feedback"),
        (("update", files / "tagger", files / "absent.jsonl"), 1, "absent.jsonl"),
        (("labels", plain, "--merge", "pets=food"), 1, "--updatable"),
        (("labels", plain), 2, "--remove"),
        (("labels", plain, "--rename", "pets"), 2, "two tags with = between them"),
        (("labels", plain, "--rename", "pets=a", "--rename", "pets=b"), 2, "names 'pets' twice"),
        (("labels", plain, "--remove", "zebras"), 1, "'zebras' is not one of"),
    ):
        assert failed(run(*arguments, "--out", tmp_path / "x"), code, words)
    assert not (tmp_path / "x").exists()


def test_chains_of_merges_end_in_one_tag_in_any_order(files, tmp_path):
    for name, pairs in (("x", ("pets=food", "food=garden")), ("y", ("food=garden", "pets=food"))):
        given = [word for pair in pairs for word in ("--merge", pair)]
        ok("labels", files / "tagger", *given, "--out", tmp_path / name)
    one, other = load(tmp_path / "x"), load(tmp_path / "y")
    assert one.tags_ == other.tags_
    assert not {"pets", "food"} & set(one.tags_)
    assert (one.model_.kept_labels_ != other.model_.kept_labels_).nnz == 0
    for pairs in (("--merge", "pets=food", "--merge", "food=pets"), ("--merge", "pets=pets")):
        assert failed(run("labels", files / "tagger", *pairs, "--out", tmp_path / "z"), 2, "into itself")


def test_models_of_matrices(tmp_path):
    rng = np.random.default_rng(0)
    X = sp.random(80, 12, 0.4, format="csr", random_state=1, dtype=np.float32)
    Y = sp.csr_matrix((X @ rng.standard_normal((12, 5)) > 0.4).astype(np.float32))
    for name, rows in (("a", slice(0, 60)), ("b", slice(60, 80))):
        sp.save_npz(tmp_path / f"X.{name}.npz", X[rows])
        sp.save_npz(tmp_path / f"Y.{name}.npz", Y[rows])
    given = ("--labels", tmp_path / "Y.a.npz", "--out", tmp_path / "m", "--model", "leml", "--set", "rank=3")
    ok("train", tmp_path / "X.a.npz", *given, "--updatable", "--quiet")
    ok("update", tmp_path / "m", tmp_path / "X.b.npz", "--labels", tmp_path / "Y.b.npz", "--out", tmp_path / "m2")
    assert load(tmp_path / "m2").kept_labels_.shape == (80, 5)
    asked = ("--labels", tmp_path / "Y.a.npz", "--out", tmp_path / "k", "--model", "knn", "--updatable")
    assert failed(run("train", tmp_path / "X.a.npz", *asked), 1, "KNN has no parameter 'updatable'")
    both = ("--labels", tmp_path / "Y.b.npz", "--feedback", write_jsonl(tmp_path / "f.jsonl", ANSWERS))
    updated = run("update", tmp_path / "m", tmp_path / "X.b.npz", *both, "--out", tmp_path / "m4")
    assert failed(updated, 2, "--feedback is for texts")
    run("labels", tmp_path / "m2", "--remove", "0", "--rename", "3=three", "--out", tmp_path / "m3")
    assert load(tmp_path / "m3").n_labels_ == 4
    # Ids are those of the folder that is given, however many labels have gone before.
    ok("labels", tmp_path / "m", "--merge", "1=0", "--merge", "4=3", "--remove", "2", "--out", tmp_path / "m5")
    merged, given = load(tmp_path / "m5"), Y[:60].toarray()
    assert merged.label_names_ is None
    united = np.column_stack([given[:, [0, 1]].max(axis=1), given[:, [3, 4]].max(axis=1)])
    np.testing.assert_array_equal(merged.kept_labels_.toarray(), united)


def test_tags_that_are_numbers(tmp_path):
    texts = ["cat dog", "dog tail", "wine beer", "beer glass"] * 5
    Tagger("binary-relevance").fit(texts, [[1], [1], [2], [2]] * 5).save(tmp_path / "t")
    ok("labels", tmp_path / "t", "--rename", "2=7", "--out", tmp_path / "x")
    assert load(tmp_path / "x").tags_ == [1, 7]
    assert failed(
        run("labels", tmp_path / "t", "--rename", "2=two", "--out", tmp_path / "y"), 2, "whole numbers; found 'two'"
    )
