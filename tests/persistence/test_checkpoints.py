"""Checkpoint folders: what they hold, refuse and survive, without any model."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import load
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError, TagwiseWarning
from tagwise.persistence import Checkpoint, ModelRecord, checkpoints, read_model, write_model
from tagwise.persistence.checkpoints import fit_identity
from tagwise.persistence.fit_state import State, array, count

X = sp.csr_matrix(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))
Y = sp.csr_matrix(np.array([[1.0], [0.0], [1.0]], dtype=np.float32))


def identity(class_name="LEML", data=None, **parameters):
    given = {"X": X, "Y": Y, "observed": None} | (data or {})
    return fit_identity(class_name, {"reg": 1.0, "loss": "squared", **parameters}, given)


@dataclass
class Counting(State):
    """A fit whose state is a number and an array."""

    done: int = count(1, "most")
    sums: np.ndarray = array("d", dtype=float)


def counting(done):
    return Counting(done, np.full(3, float(done)))


def history(rounds):
    return [{"iteration": i, "objective": 1.0 / i, "seconds": float(i)} for i in range(1, rounds + 1)]


def run(checkpoint, rounds, fit=None):
    """So many rounds of a fit; returns its opened checkpoint."""
    opened = checkpoint.open(fit or identity())
    for done in range(1, rounds + 1):
        opened.save(counting(done), history(done))
    return opened


def resumed(opened, stage="rounds", check=None, **known):
    return opened.resume(Counting, stage, check, {"d": 3, "most": 100} | known)


def rounds_in(checkpoint):
    state = resumed(checkpoint.open(identity()))
    return None if state is None else state.done


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "made" / "checkpoint")


# ---------------------------------------------------------------------- writing and reading


def test_a_state_comes_back_as_it_was(checkpoint):
    run(checkpoint, 2)
    opened = checkpoint.open(identity())
    state = resumed(opened)
    np.testing.assert_array_equal(state.sums, [2.0, 2.0, 2.0])
    state.sums += 1  # a fit continues in place
    assert state.done == 2
    assert opened.history == history(2)
    assert resumed(opened, "another stage") is None


def test_a_new_folder_holds_nothing_to_go_on_from(checkpoint):
    assert not checkpoint.exists()
    opened = checkpoint.open(identity())
    assert resumed(opened) is None
    assert opened.history == []
    assert not checkpoint.exists()
    run(checkpoint, 1)
    assert checkpoint.exists()


@pytest.mark.parametrize(("every", "rounds", "kept"), [(1, 3, 3), (2, 3, 2), (3, 2, None), (2, 4, 4)])
def test_every_so_many_rounds(tmp_path, every, rounds, kept):
    checkpoint = Checkpoint(tmp_path / "c", every=every)
    run(checkpoint, rounds)
    assert rounds_in(checkpoint) == kept


def test_every_so_many_seconds(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    checkpoint = Checkpoint(tmp_path / "c", every=None, seconds=10)
    opened = checkpoint.open(identity())
    opened.save(counting(1), history(1))
    now[0] += 9
    opened.save(counting(2), history(2))
    assert rounds_in(checkpoint) is None
    now[0] += 1
    opened.save(counting(3), history(3))
    now[0] += 9
    opened.save(counting(4), history(4))
    assert rounds_in(checkpoint) == 3


def test_a_finished_stage_takes_the_place_of_its_rounds_and_stays(checkpoint):
    opened = run(checkpoint, 2)
    opened.finish_stage("first", counting(7), history(2))
    opened.save(counting(1), history(3))
    again = checkpoint.open(identity())
    assert resumed(again, "first").done == 7
    assert resumed(again).done == 1
    again.finish_stage("second", counting(8), history(3))
    once_more = checkpoint.open(identity())
    assert resumed(once_more, "first").done == 7
    assert resumed(once_more) is None


def test_a_failed_fit_without_a_state_leaves_nothing(checkpoint):
    def fail(opened):
        with pytest.raises(KeyboardInterrupt), opened:
            raise KeyboardInterrupt

    fail(checkpoint.open(identity()))
    assert not checkpoint.folder.exists()
    fail(run(checkpoint, 1))
    assert rounds_in(checkpoint) == 1
    fail(checkpoint.open(identity()))
    assert rounds_in(checkpoint) == 1


@pytest.mark.parametrize("bad", [{"every": 0}, {"every": -1}, {"seconds": 0}, {"every": None}, {"seconds": -1.0}])
def test_bad_schedules(tmp_path, bad):
    with pytest.raises(InvalidInputError, match=r"every|seconds"):
        Checkpoint(tmp_path, **bad)


def test_bad_types(tmp_path):
    with pytest.raises(InvalidTypeError, match="every"):
        Checkpoint(tmp_path, every=1.5)
    with pytest.raises(InvalidTypeError, match="path"):
        Checkpoint(3)


# ---------------------------------------------------------------------- another fit


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (lambda: identity(reg=2.0), "reg is 2.0 and was 1.0"),
        (lambda: identity(loss="logistic"), "loss is 'logistic' and was 'squared'"),
        (lambda: identity("REML"), "the model is REML and was LEML"),
        (lambda: identity(weight=np.ones(2)), "weight has other values"),
        (lambda: identity(data={"X": X[:2]}), "X has shape 2×2 and had 3×2"),
        (lambda: identity(data={"X": X.toarray()}), "X is dense and was csr"),
        (lambda: identity(data={"X": X.astype(np.float32)}), "X is float32 and was float64"),
        (lambda: identity(data={"X": X * 1.5}), "X has other values"),
        (lambda: identity(data={"Y": sp.csr_matrix(1 - Y.toarray())}), "Y has other values"),
        (lambda: identity(data={"observed": Y}), "observed is given and was not"),
        (lambda: identity(data={"feature_factors_": np.ones(2)}), "feature_factors_ is given and was not"),
        (lambda: identity(reg=2.0, loss="logistic"), "loss is .* and was .*; reg is 2.0 and was 1.0"),
    ],
)
def test_another_fit_is_refused_and_the_sentence_says_why(checkpoint, other, sentence):
    run(checkpoint, 1)
    with pytest.raises(InvalidInputError, match=sentence) as caught:
        checkpoint.open(other())
    assert str(checkpoint.folder) in str(caught.value)
    assert rounds_in(checkpoint) == 1


def test_another_version_is_refused(checkpoint, monkeypatch):
    run(checkpoint, 1)
    monkeypatch.setattr("tagwise.persistence.checkpoints.__version__", "99.0")
    with pytest.raises(InvalidInputError, match=r"tagwise has version 99\.0 and had"):
        checkpoint.open(identity())


def test_what_is_equal_is_the_same_fit(checkpoint):
    run(checkpoint, 1, identity(reg=1, tol=float("nan"), weight=np.array([1.0, np.nan])))
    assert resumed(checkpoint.open(identity(reg=1.0, tol=float("nan"), weight=np.array([1.0, np.nan]))))


def test_a_fit_that_left_no_state_blocks_nobody(checkpoint):
    checkpoint.open(identity())
    checkpoint.open(identity(reg=2.0))
    run(checkpoint, 1, identity(reg=2.0))
    with pytest.raises(InvalidInputError, match=r"reg is 1\.0 and was 2\.0"):
        checkpoint.open(identity())


# ---------------------------------------------------------------------- damage


def every_file(checkpoint):
    return sorted(path for path in checkpoint.folder.iterdir() if path.is_file())


def test_every_damaged_byte_is_noticed(checkpoint):
    run(checkpoint, 1)
    rng = np.random.default_rng(0)
    for path in every_file(checkpoint):
        whole = path.read_bytes()
        for position in rng.choice(len(whole), 40, replace=False):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
            with pytest.raises(ModelFormatError, match=r"checkpoint cannot be used.*discard"):
                checkpoint.open(identity())
            assert checkpoint.exists()
        path.write_bytes(whole)
    assert rounds_in(checkpoint) == 1


def test_cut_off_and_missing_files(checkpoint):
    run(checkpoint, 1)
    for path in every_file(checkpoint):
        whole = path.read_bytes()
        for kept in (0, 1, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:kept])
            with pytest.raises(ModelFormatError, match="checkpoint cannot be used"):
                checkpoint.open(identity())
        path.write_bytes(whole)
    (payload,) = checkpoint.folder.glob("*.safetensors")
    payload.unlink()
    with pytest.raises(ModelFormatError, match="missing"):
        checkpoint.open(identity())


def forge(checkpoint, change):
    """Rewrite the checkpoint with right digests, as someone could who knows the format."""
    record = read_model(checkpoint.folder)
    parts = {"parameters": record.parameters, "tensors": record.tensors, "values": record.values}
    change(parts)
    write_model(checkpoint.folder, ModelRecord("Checkpoint", **parts))


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts["values"].pop("history"),
        lambda parts: parts["values"].update(more=1),
        lambda parts: parts["values"].update(states=[]),
        lambda parts: parts["values"].update(states={"rounds": 3}),
        lambda parts: parts["values"].update(states={"other": {}}),
        lambda parts: parts["values"].update(history={}),
        lambda parts: parts["values"].update(history=[1]),
        lambda parts: parts["values"].update(history=[{"iteration": 2, "objective": 1.0, "seconds": 1.0}]),
        lambda parts: parts["values"].update(history=[{"iteration": 1, "objective": "x", "seconds": 1.0}]),
        lambda parts: parts["values"].update(history=[{"iteration": 1, "objective": 1.0}]),
        lambda parts: parts["parameters"].pop("class"),
        lambda parts: parts["parameters"].update({"class": 3}),
        lambda parts: parts["parameters"].update(data=[]),
        lambda parts: parts["parameters"].update(more=1),
        lambda parts: parts["tensors"].update({"nobody.W": np.ones(2)}),
    ],
)
def test_forged_content(checkpoint, change):
    run(checkpoint, 1)
    forge(checkpoint, change)
    with pytest.raises(ModelFormatError, match="checkpoint cannot be used"):
        checkpoint.open(identity())


@pytest.mark.parametrize("entry", [3, [], "text", {}, {"kind": "csr"}, {"kind": "csr", "shape": [1, "a"]}])
def test_forged_descriptions_of_data_are_another_fit(checkpoint, entry):
    run(checkpoint, 1)
    forge(checkpoint, lambda parts: parts["parameters"]["data"].update(X=entry))
    with pytest.raises(InvalidInputError, match="another fit: X"):
        checkpoint.open(identity())


def test_a_state_that_does_not_fit_is_refused(checkpoint):
    run(checkpoint, 2)
    opened = checkpoint.open(identity())
    for wrong in [{"d": 2}, {"most": 1}]:
        with pytest.raises(ModelFormatError, match=r"checkpoint cannot be used.*does not fit LEML.*discard"):
            resumed(opened, **wrong)

    def refuse(state):
        raise ValueError(f"no fit of this data has {state.done} rounds")

    with pytest.raises(ModelFormatError, match="no fit of this data has 2 rounds"):
        resumed(opened, check=refuse)


# ---------------------------------------------------------------------- other content, full disks, the end


def test_a_model_is_neither_taken_for_a_checkpoint_nor_replaced(tmp_path, make_record, identical):
    record = make_record()
    write_model(tmp_path / "model", record)
    checkpoint = Checkpoint(tmp_path / "model")
    with pytest.raises(InvalidInputError, match=r"holds a finished model of class LEML.*choose another folder"):
        checkpoint.open(identity())
    with pytest.raises(InvalidInputError, match="nothing was removed"):
        checkpoint.discard()
    assert checkpoint.exists()
    assert identical(read_model(tmp_path / "model"), record)


def test_a_checkpoint_is_no_model(checkpoint):
    run(checkpoint, 1)
    with pytest.raises(ModelFormatError, match="Checkpoint"):
        load(checkpoint.folder)


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(InvalidInputError, match=r"notes\.txt"):
        checkpoint.open(identity())
    with pytest.raises(InvalidInputError, match=r"notes\.txt"):
        checkpoint.discard()
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_discard(checkpoint):
    checkpoint.discard()
    run(checkpoint, 1)
    checkpoint.discard()
    assert not checkpoint.folder.exists()
    run(checkpoint, 1)
    (checkpoint.folder / "notes.txt").write_text("mine")
    checkpoint.discard()
    assert os.listdir(checkpoint.folder) == ["notes.txt"]


def test_a_damaged_checkpoint_can_be_discarded(checkpoint):
    run(checkpoint, 1)
    manifest = checkpoint.folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    with pytest.raises(ModelFormatError):
        checkpoint.open(identity())
    checkpoint.discard()
    assert not checkpoint.folder.exists()
    assert rounds_in(checkpoint) is None


def test_a_folder_that_cannot_be_written_fails_before_the_fit(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="checkpoint could not be written"):
        Checkpoint(tmp_path / "file" / "checkpoint").open(identity())


def test_a_full_disk_costs_the_checkpoint_and_not_the_fit(checkpoint, monkeypatch):
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
