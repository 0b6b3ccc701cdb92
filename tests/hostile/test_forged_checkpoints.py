"""Checkpoints that someone has changed who knows the format: refused in a sentence, whatever was changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from comparison import assert_same_bits
from forging import forgeries
from interrupted_fits import X, Y, interrupt_fit, maker

from tagwise.exceptions import ModelFormatError
from tagwise.models import binary_relevance
from tagwise.store import Checkpoint, read_model, write_model

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")
STATES = ["LEML-squared-mask", "LEML-stopping", "LEML-rbf", "REML-admm", "REML-support", "REML-parts-mask"]
STATES += ["Cascade", "BinaryRelevance", "WSABIE", "SLEEC", "FastXML"]


@pytest.fixture(autouse=True)
def _several_batches(monkeypatch):
    monkeypatch.setattr(binary_relevance, "_MOST_LABELS", 4)


@pytest.mark.parametrize("name", STATES)
def test_forged_states_are_refused(name, tmp_path):
    make, data = maker(name)
    checkpoint = Checkpoint(tmp_path)
    if name.startswith("Cascade"):
        make().fit(*data, checkpoint=checkpoint)  # both of its stages are there when it is over
    else:
        interrupt_fit(make(), 1, data, checkpoint)
    whole = read_model(tmp_path)
    own = whole.values["kept"]
    for what, kept in forgeries(own, extra=False):
        # Without a state, and states that a fit may have (a dense S, a tree or a learner more); others cost time alone.
        if not kept or what.endswith(("dense", "sparse", "a number", "with an entry more", "with a dimension more")):
            continue
        write_model(tmp_path, replace(whole, values={**whole.values, "kept": kept}))
        with pytest.raises(ModelFormatError, match=r"checkpoint cannot be used.*discard"):
            assert not make().fit(*data, checkpoint=checkpoint), f"taken: {what}"
    for tensor in whole.tensors:
        write_model(tmp_path, replace(whole, tensors={**whole.tensors, tensor: np.zeros((2, 3, 5))}))
        with pytest.raises(ModelFormatError, match=r"checkpoint cannot be used.*discard"):
            assert not make().fit(*data, checkpoint=checkpoint), f"taken: {tensor} of another shape"
    write_model(tmp_path, whole)
    assert_same_bits(make().fit(*data), make().fit(*data, checkpoint=checkpoint))


def test_content_that_fits_but_that_no_fit_makes_is_refused(tmp_path):
    full = sp.csr_matrix(np.ones((X.shape[1], Y.shape[1])))
    for name, place, wrong in (
        ("REML-support", "S", lambda found: full.astype(found.dtype)),
        ("FastXML", "children", lambda found: np.zeros_like(found)),
    ):
        make, data = maker(name)
        checkpoint = Checkpoint(tmp_path / name)
        interrupt_fit(make(), 1, data, checkpoint)
        whole = read_model(tmp_path / name)
        (place,) = [key for key in whole.values["kept"] if place in key]
        kept = {**whole.values["kept"], place: wrong(whole.values["kept"][place])}
        write_model(tmp_path / name, replace(whole, values={**whole.values, "kept": kept}))
        with pytest.raises(ModelFormatError, match="checkpoint cannot be used"):
            make().fit(*data, checkpoint=checkpoint)
