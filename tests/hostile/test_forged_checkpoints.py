"""Checkpoints that someone has changed who knows the format: refused in a sentence, whatever was changed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from comparison import assert_same_bits
from interrupted_fits import CASES, X, Y, interrupt_fit, maker

from tagwise.exceptions import ModelFormatError
from tagwise.models import binary_relevance
from tagwise.persistence import Checkpoint, ModelRecord, read_model, write_model

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def _several_batches(monkeypatch):
    monkeypatch.setattr(binary_relevance, "_MOST_LABELS", 4)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoint"


STATES = [name for name in CASES if name != "LEML-closed"]


def forged(folder, change):
    """The checkpoint with a change and right digests; undone on leaving."""
    record = read_model(folder)
    tensors, values = dict(record.tensors), dict(record.values)
    values["states"] = {stage: dict(state) for stage, state in values["states"].items()}
    change(tensors, values["states"])
    return record, ModelRecord("Checkpoint", record.parameters, tensors, values)


def changes_of(folder):
    """Every array missing, of another shape, with NaN; every value of another kind."""
    record = read_model(folder)
    for name, tensor in record.tensors.items():
        yield f"no {name}", lambda tensors, states, name=name: tensors.pop(name)
        wrong = sp.csr_matrix((1, 1)) if sp.issparse(tensor) else np.zeros((2, 3, 5), dtype=tensor.dtype)
        yield f"{name} of another shape", lambda tensors, states, name=name, wrong=wrong: tensors.update({name: wrong})
        if tensor.dtype.kind == "f":
            if not tensor.size:  # which has no place for one
                continue
            holes = tensor.copy()
            (holes.data if sp.issparse(holes) else holes.reshape(-1))[:1] = np.nan
            yield f"NaN in {name}", lambda tensors, states, name=name, holes=holes: tensors.update({name: holes})
    for stage, state in record.values["states"].items():
        for key in state:
            yield f"{key} a text", lambda tensors, states, at=(stage, key): states[at[0]].update({at[1]: "text"})
            yield f"no {key}", lambda tensors, states, at=(stage, key): states[at[0]].pop(at[1])


@pytest.mark.parametrize("name", STATES)
def test_forged_states_are_refused(name, folder):
    make, data = maker(name)
    if name.startswith("Cascade"):
        make().fit(*data, checkpoint=Checkpoint(folder))  # both of its stages are there when it is over
    else:
        interrupt_fit(make(), 1, data, Checkpoint(folder))
    for what, change in changes_of(folder):
        whole, broken = forged(folder, change)
        write_model(folder, broken)
        with pytest.raises(ModelFormatError, match=r"checkpoint cannot be used.*discard"):
            assert not make().fit(*data, checkpoint=Checkpoint(folder)), f"taken: {what}"
        write_model(folder, whole)
    assert_same_bits(make().fit(*data), make().fit(*data, checkpoint=Checkpoint(folder)))


def test_supports_that_no_label_can_have_are_refused(folder):
    make, data = maker("REML-support")
    interrupt_fit(make(), 1, data, Checkpoint(folder))
    full = sp.csr_matrix(np.ones((X.shape[1], Y.shape[1])))
    write_model(folder, forged(folder, lambda tensors, states: tensors.update({"rounds.sparse": full}))[1])
    with pytest.raises(ModelFormatError, match="more entries in a column than the label can have"):
        make().fit(*data, checkpoint=Checkpoint(folder))


def test_trees_that_lead_nowhere_are_refused(folder):
    make, data = maker("FastXML")
    interrupt_fit(make(), 1, data, Checkpoint(folder))

    def circle(tensors, states):
        children = tensors["rounds.forests.0.children"].copy()
        children[:] = 0
        tensors["rounds.forests.0.children"] = children

    write_model(folder, forged(folder, circle)[1])
    with pytest.raises(ModelFormatError, match="its own ancestor"):
        make().fit(*data, checkpoint=Checkpoint(folder))
