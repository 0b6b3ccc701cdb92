"""Checkpoint folders: what they hold, refuse and survive, without any model."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML, load
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError, TagwiseWarning
from tagwise.fields import Fields, dense, value
from tagwise.progress import FitProgress
from tagwise.store import Checkpoint, ModelRecord, checkpoints, read_model, write_model
from tagwise.store.checkpoints import fit_identity
from tagwise.validation import check_integer

X = sp.csr_matrix(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]], dtype=np.float32))
Y = sp.csr_matrix(np.array([[1.0], [0.0], [1.0]], dtype=np.float32))
COUNTING = Fields(sums=dense("d", numbers="float64", meaning="Sums."), done=value(check_integer, "Rounds."))


def identity(class_name="LEML", data=None, **parameters):
    given = {"X": X, "Y": Y, "observed": None} | (data or {})
    return fit_identity(class_name, {"reg": 1.0, "loss": "squared", **parameters}, given)


def counting(done):
    """The state of a fit after so many rounds."""
    return {"sums": np.full(3, float(done)), "done": done}


def history(rounds):
    return [{"iteration": i, "objective": 1.0 / i, "seconds": float(i)} for i in range(1, rounds + 1)]


def run(checkpoint, rounds, fit=None):
    """So many rounds of a fit; returns its opened checkpoint."""
    opened = checkpoint.open(fit or identity())
    for done in range(1, rounds + 1):
        opened.save(counting(done), history(done))
    return opened


def resumed(opened, d=3):
    return FitProgress("fit", 10, journal=opened).resume(COUNTING, np.float64, d=d)


def rounds_in(checkpoint):
    kept = resumed(checkpoint.open(identity()))
    return None if kept is None else kept["done"]


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "made" / "checkpoint")


# ---------------------------------------------------------------------- writing and reading


def test_a_state_comes_back_as_it_was(checkpoint):
    assert not checkpoint.exists()
    assert resumed(checkpoint.open(identity())) is None
    assert not checkpoint.exists()
    run(checkpoint, 2)
    assert checkpoint.exists()
    run(checkpoint, 2)
    opened = checkpoint.open(identity())
    kept = resumed(opened)
    np.testing.assert_array_equal(kept["sums"], [2.0, 2.0, 2.0])
    kept["sums"] += 1  # a fit continues in place
    assert kept["done"] == 2
    assert opened.history == history(2)


@pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")
def test_models_and_lists_of_arrays_come_back(checkpoint):
    model = LEML(rank=1, max_iter=1).fit(X, Y)
    parts = [{"W": np.ones((2, 1))}, {"W": np.zeros((2, 2)), "S": X}]
    checkpoint.open(identity()).save({"model_": model, "parts": parts}, [], now=True)
    kept = checkpoint.open(identity()).kept
    np.testing.assert_array_equal(kept["model_"].feature_factors_, model.feature_factors_)
    np.testing.assert_array_equal(kept["parts"][1]["W"], parts[1]["W"])
    assert (kept["parts"][1]["S"] != X).nnz == 0


def test_every_so_many_rounds_and_seconds(tmp_path, monkeypatch):
    for place, (every, rounds, kept) in enumerate([(1, 3, 3), (2, 3, 2), (3, 2, None), (2, 4, 4)]):
        checkpoint = Checkpoint(tmp_path / str(place), every=every)
        run(checkpoint, rounds)
        assert rounds_in(checkpoint) == kept
    now = [100.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    checkpoint = Checkpoint(tmp_path / "seconds", every=None, seconds=10)
    opened = checkpoint.open(identity())
    for done, (passed, kept) in enumerate([(0, None), (9, None), (1, 3), (9, 3)], start=1):
        now[0] += passed
        opened.save(counting(done), history(done))
        assert rounds_in(checkpoint) == kept


def test_what_is_dropped_goes_and_a_stage_that_ends_is_written_at_once(tmp_path):
    checkpoint = Checkpoint(tmp_path / "c", every=100)
    progress = FitProgress("fit", 10, journal=checkpoint.open(identity()))
    progress.keep(**counting(1))
    progress.step(1.0)
    assert not checkpoint.exists()
    progress.keep("sums", now=True, stage=2)
    assert set(checkpoint.open(identity()).kept) == {"done", "stage"}


def test_a_failed_fit_without_a_state_leaves_nothing(checkpoint):
    for rounds, left in ((0, None), (1, 1), (0, 1)):
        opened = run(checkpoint, rounds)
        with pytest.raises(KeyboardInterrupt), opened:
            raise KeyboardInterrupt
        assert checkpoint.folder.exists() == (left is not None)
        if left:
            assert rounds_in(checkpoint) == left


def test_bad_schedules(tmp_path):
    for bad in ({"every": 0}, {"every": -1}, {"seconds": 0}, {"every": None}, {"seconds": -1.0}, {"every": 1.5}):
        with pytest.raises((InvalidInputError, InvalidTypeError), match=r"every|seconds"):
            Checkpoint(tmp_path, **bad)
    with pytest.raises(InvalidTypeError, match="path"):
        Checkpoint(3)


# ---------------------------------------------------------------------- another fit


def test_another_fit_is_refused_and_the_sentence_says_why(checkpoint, monkeypatch):
    others = [
        (identity(weight=np.ones(2)), "weight is an array of float64, 2 and was None"),
        (identity(data={"X": X.toarray()}), "X is an array of float32, 3×2 and was CSR"),
        (identity(data={"X": X.astype(np.float64)}), "X is CSR of float64, 3×2 and was CSR of float32"),
        (identity(data={"X": X * 1.5}), "X has other values"),
        (identity(data={"observed": Y}), "observed is CSR of float32, 3×1 and was None"),
        (identity(reg=2.0, loss="logistic"), "reg is 2.0 and was 1.0; loss is .* and was .*"),
    ]
    run(checkpoint, 1)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "__version__", "99.0")
        others.append((identity(), r"tagwise_version is '99\.0' and was"))
    for other, sentence in others:
        with pytest.raises(InvalidInputError, match=sentence) as caught:
            checkpoint.open(other)
        assert str(checkpoint.folder) in str(caught.value)
    assert rounds_in(checkpoint) == 1


def test_what_is_equal_is_the_same_fit(checkpoint):
    run(checkpoint, 1, identity(reg=1, tol=float("nan"), weight=np.array([1.0, np.nan])))
    assert resumed(checkpoint.open(identity(reg=1.0, tol=float("nan"), weight=np.array([1.0, np.nan]))))


# ---------------------------------------------------------------------- damage


def test_damaged_bytes_and_files_cut_off_are_noticed(checkpoint):
    run(checkpoint, 1)
    rng = np.random.default_rng(0)
    for path in sorted(checkpoint.folder.iterdir()):
        whole = path.read_bytes()
        cut_off = [whole[:kept] for kept in (0, 1, len(whole) // 2, len(whole) - 1)]
        flipped = [bytearray(whole) for _ in range(40)]
        for place, content in zip(rng.choice(len(whole), 40, replace=False), flipped):
            content[place] ^= 1
        for content in (*cut_off, *flipped):
            path.write_bytes(content)
            with pytest.raises(ModelFormatError, match=r"checkpoint cannot be used.*discard"):
                checkpoint.open(identity())
            assert checkpoint.exists()
        path.write_bytes(whole)
    assert rounds_in(checkpoint) == 1


def test_forged_content(checkpoint):
    """Rewritten with right digests, as someone could who knows the format."""
    run(checkpoint, 1)
    round_, whole = history(1)[0], read_model(checkpoint.folder)
    histories = [{}, [1], [round_ | {"iteration": 2}], [round_ | {"objective": "x"}], [{"iteration": 1}]]
    changes = [
        *({"values": {"history": wrong}} for wrong in histories[1:]),
        {"values": {"history": ...}},
        {"values": {"kept": []}},
        {"values": {"more": 1}},
        {"parameters": {"class": ...}},
        {"parameters": {"data": []}},
        {"parameters": {"more": 1}},
    ]
    for change in changes:
        parts = {"parameters": whole.parameters, "values": whole.values}
        for name, wrong in change.items():
            merged = {**parts[name], **wrong}
            parts[name] = {key: content for key, content in merged.items() if content is not ...}
        write_model(checkpoint.folder, ModelRecord("Checkpoint", tensors=whole.tensors, **parts))
        with pytest.raises(ModelFormatError, match="checkpoint cannot be used"):
            checkpoint.open(identity())
    for entry in (3, [], "text", {}, {"kind": "csr"}):
        data = {**whole.parameters["data"], "X": entry}
        forged = ModelRecord("Checkpoint", {**whole.parameters, "data": data}, whole.tensors, whole.values)
        write_model(checkpoint.folder, forged)
        with pytest.raises(InvalidInputError, match="another fit: X"):
            checkpoint.open(identity())


def test_a_state_that_does_not_fit_is_refused(checkpoint):
    run(checkpoint, 2)
    opened = checkpoint.open(identity())
    with pytest.raises(ModelFormatError, match=r"checkpoint cannot be used.*does not fit LEML.*discard"):
        resumed(opened, d=2)
    with pytest.raises(ModelFormatError, match="no fit of this data has 2 rounds"), opened:
        raise ValueError("no fit of this data has 2 rounds")


# ---------------------------------------------------------------------- other content, full disks, the end


def test_models_and_other_files_are_neither_taken_nor_replaced(tmp_path, make_record, identical):
    record = make_record()
    write_model(tmp_path / "model", record)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("mine")
    for name, refusal, kept in (
        ("model", r"holds a finished model of class LEML.*choose another folder", "nothing was removed"),
        ("notes", r"notes\.txt", r"notes\.txt"),
    ):
        checkpoint = Checkpoint(tmp_path / name)
        with pytest.raises(InvalidInputError, match=refusal):
            checkpoint.open(identity())
        with pytest.raises(InvalidInputError, match=kept):
            checkpoint.discard()
    assert identical(read_model(tmp_path / "model"), record)
    assert os.listdir(tmp_path / "notes") == ["notes.txt"]


def test_discard(checkpoint):
    checkpoint.discard()
    run(checkpoint, 1)
    with pytest.raises(ModelFormatError, match="Checkpoint"):
        load(checkpoint.folder)
    manifest = checkpoint.folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    with pytest.raises(ModelFormatError):
        checkpoint.open(identity())
    checkpoint.discard()
    assert not checkpoint.folder.exists()
    run(checkpoint, 1)
    (checkpoint.folder / "notes.txt").write_text("mine")
    checkpoint.discard()
    assert os.listdir(checkpoint.folder) == ["notes.txt"]


def test_a_full_disk_costs_the_checkpoint_and_not_the_fit(checkpoint, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidInputError, match=r"cannot be made, since .* is a file"):
        Checkpoint(tmp_path / "file" / "checkpoint").open(identity())
    opened = run(checkpoint, 1)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "write_model", full)
        with pytest.warns(TagwiseWarning, match=r"No space left on device.*the fit continues"):
            opened.save(counting(2), history(2))
    assert rounds_in(checkpoint) == 1
    opened.save(counting(3), history(3))
    assert rounds_in(checkpoint) == 3
