"""Model folders: what is saved comes back, what is forged is refused; and memory stays bounded."""

import contextlib
import re
import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from comparison import assert_same_model

from tagwise import load
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ModelFormatError, TagwiseError
from tagwise.store import read_model, write_model

N_ROWS, N_FEATURES, N_LABELS = 60, 12, 7
# Methods for few labels; the contract gives MSE a small memory_limit, so that it refuses before it works for long.
MAY_REFUSE = {"MDDM", "MSE"}


def test_a_loaded_model_is_the_saved_one(fitted, problem, tmp_path):
    X, _ = problem
    model = fitted
    model.save(tmp_path / "model", label_names=[f"label {j}" for j in range(N_LABELS)])
    again = load(tmp_path / "model")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert again.label_names_ == [f"label {j}" for j in range(N_LABELS)]
    assert again.history_ == model.history_
    assert_same_model(again, model)
    for ours, theirs in zip(again.predict_topk(X, 5), model.predict_topk(X, 5)):
        np.testing.assert_array_equal(ours, theirs)
    assert type(again.predict(X)) is type(model.predict(X))
    again.save(tmp_path / "copy")
    assert load(tmp_path / "copy").label_names_ == again.label_names_
    assert_same_model(again.fit(*problem), model)


@pytest.mark.of_base
def test_saving_refuses_what_it_should(fitted, tmp_path):
    with pytest.raises(InvalidInputError, match="label_names has 2 names"):
        fitted.save(tmp_path / "model", label_names=["a", "b"])
    for bad in (5, "abcdefg", list(range(N_LABELS))):
        with pytest.raises(InvalidTypeError, match="label_names must"):
            fitted.save(tmp_path / "model", label_names=bad)
    fitted.save(tmp_path / "model")
    with pytest.raises((TagwiseError, OSError)):
        fitted.save(tmp_path / "model", overwrite=False)
    fitted.save(tmp_path / "model")
    fitted.set_params(n_jobs="many")
    with pytest.raises(InvalidTypeError):
        fitted.save(tmp_path / "model")
    load(tmp_path / "model")


def rewritten(folder, **changes):
    """The folder's manifest with some fields replaced, made consistent again: what a forger would write."""
    record = read_model(folder)
    values = {**record.values, **changes.get("values", {})}
    parameters = {**record.parameters, **changes.get("parameters", {})}
    tensors = {**record.tensors, **changes.get("tensors", {})}
    write_model(folder, replace(record, values=values, parameters=parameters, tensors=tensors))


FORGERIES = [
    {"values": {"n_labels_": 3 * 10**8}},
    {"values": {"n_labels_": 10**15}},
    {"values": {"n_labels_": True}},
    {"values": {"n_labels_": -1}},
    {"values": {"n_features_in_": 3}},
    {"values": {"output_format": ["csr_matrix", "O"]}},
    {"values": {"output_format": ["csr_matrix", "V1000000"]}},
    {"values": {"output_format": ["list", "<f8"]}},
    {"values": {"output_format": 5}},
    {"values": {"history_": 5}},
    {"values": {"history_": [{}]}},
    {"values": {"feature_names_in_": 5}},
    {"values": {"feature_names_in_": ["a"]}},
    {"values": {"surprise": 1}},
    {"parameters": {"n_jobs": "x"}},
    {"parameters": {"normalize": [1, 2]}},
    {"parameters": {"verbose": {}}},
    {"parameters": {"surprise": 1}},
    {"tensors": {"surprise": np.ones(3)}},
    {"tensors": {"intercept_": np.ones(3)}},
    {"tensors": {"intercept_": np.full(N_LABELS, np.nan)}},
]


@pytest.mark.of_base
def test_forged_folders_are_refused(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    for number, changes in enumerate(FORGERIES):
        shutil.copytree(tmp_path / "model", tmp_path / f"{number}")
        rewritten(tmp_path / f"{number}", **changes)
        tracemalloc.start()
        with pytest.raises(ModelFormatError):
            pytest.fail(f"{changes}: loaded as {load(tmp_path / str(number))}")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10_000_000, changes


def stand_ins(tensor):
    """In the place of a tensor: other dimensions, none, the other storage, another type, values out of range."""
    dense = tensor.toarray() if sp.issparse(tensor) else tensor
    others = {f"{n}-d": np.ones((2,) * n, dense.dtype) for n in (0, 1, 2, 3) if n != dense.ndim}
    others["empty"] = np.zeros((0,) * dense.ndim, dense.dtype)
    others["no rows"] = np.zeros((0, *dense.shape[1:]), dense.dtype)
    others["one too many"] = np.ones((dense.shape[0] + 1, *dense.shape[1:]), dense.dtype)
    others["sparse and empty"] = sp.csr_matrix((0, 0), dtype=dense.dtype)
    others["no columns"] = sp.csr_matrix((dense.shape[0], 0)) if sp.issparse(tensor) else dense[..., :0]
    others["other storage"] = dense if sp.issparse(tensor) else sp.csr_matrix(np.atleast_2d(dense))
    if dense.dtype.kind == "i":
        others |= {"too large": dense + 10**6, "negative": -dense - 10**6, "floats": dense.astype(np.float64)}
    elif dense.dtype.kind == "b":
        others["numbers"] = dense.astype(np.float64)
    elif sp.issparse(tensor):
        if tensor.nnz:
            others["not a number"] = tensor.copy()
            others["not a number"].data[:1] = np.nan
    else:
        others |= {"not a number": np.full_like(dense, np.nan), "whole numbers": np.ones(dense.shape, np.int64)}
    return others


def set_within(model, name, tensor):
    """Set a fitted array of the model, or of a model within it."""
    *within, last = name.split(".")
    for attribute in within:
        model = getattr(model, attribute)
    setattr(model, last, tensor)


def test_stand_ins_for_tensors_are_refused(fitted, tmp_path):
    """By load as a damaged folder, and by save before it writes one."""
    model = fitted
    model.save(tmp_path / "model")
    record = read_model(tmp_path / "model")
    for name, tensor in record.tensors.items():
        for what, other in stand_ins(tensor).items():
            if name == "landmarks_" and what == "other storage":
                continue  # rows of a kernel may be kept in either
            if np.array_equal(np.shape(other), np.shape(tensor)) and 0 in np.shape(tensor):
                continue  # no numbers, as before
            if name == "roots_" and what == "one too many":
                continue  # a forest of one tree more
            write_model(tmp_path / "forged", replace(record, tensors={**record.tensors, name: other}))
            with pytest.raises(ModelFormatError):
                pytest.fail(f"{name}, {what}: loaded as {load(tmp_path / 'forged')}")
            set_within(model, name, other)
            with pytest.raises(ValueError):  # noqa: PT011 - MSE has checks of its own before those of all models
                model.save(tmp_path / "other")
        set_within(model, name, tensor)
    model.save(tmp_path / "other")


def test_sparse_tensors_out_of_order_or_with_entries_twice_are_refused_or_answer(fitted, problem, tmp_path):
    """Kernels that count on sorted and different indices must never meet others."""
    X, _ = problem
    fitted.save(tmp_path / "model")
    record = read_model(tmp_path / "model")
    for name, tensor in record.tensors.items():
        if not sp.issparse(tensor):
            continue
        reverse = np.concatenate([np.arange(b - 1, a - 1, -1) for a, b in zip(tensor.indptr, tensor.indptr[1:])])
        places = {"out of order": (reverse.astype(int), 1), "twice": (np.repeat(np.arange(tensor.nnz), 2), 2)}
        for chosen, factor in places.values():
            forged = sp.csr_matrix(tensor.shape, dtype=tensor.dtype)
            forged.data, forged.indices = tensor.data[chosen], tensor.indices[chosen]
            forged.indptr = factor * tensor.indptr
            write_model(tmp_path / "forged", replace(record, tensors={**record.tensors, name: forged}))
            try:
                model = load(tmp_path / "forged")
            except ModelFormatError:
                continue
            labels, scores = model.predict_topk(X, N_LABELS)
            assert (np.sort(labels, axis=1) == np.arange(N_LABELS)).all()
            assert np.isfinite(scores).all()
            assert np.isfinite(model.decision_function(X)).all()


@pytest.mark.of_base
def test_folders_of_unknown_classes_are_refused(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    record = read_model(tmp_path / "model")
    write_model(tmp_path / "model", replace(record, class_name="Popen"))
    with pytest.raises(ModelFormatError, match="the class 'Popen', which this version of tagwise does not know"):
        load(tmp_path / "model")
    write_model(tmp_path / "model", replace(record, label_names=["one"]))
    with pytest.raises(ModelFormatError, match="1 label names for 7 labels"):
        load(tmp_path / "model")


@pytest.mark.variants_slow
def test_scores_never_need_rows_times_labels_memory(make):
    """20,000 labels for 1,500 rows: a dense n×L would be 120 MB as float32 and 30 MB as booleans; 24 MB are the limit.

    A method that is meant for few labels (``MAY_REFUSE``) may refuse instead, if it names the memory they would take.
    """
    rng = np.random.default_rng(0)
    X = sp.random(1500, 50, 0.1, format="csr", dtype=np.float32, random_state=0)
    Y = sp.csr_matrix(
        (np.ones(6000, np.float32), (np.arange(6000) % 1500, rng.integers(0, 20_000, 6000))), (1500, 20_000)
    )
    Y.data[:] = 1
    model = make(max_iter=1)
    # What is compiled in between would count as memory of the fit.
    few = sp.csr_matrix(np.eye(20, 30, dtype=np.float32))
    for labels in (few, Y[:750]):
        with contextlib.suppress(InvalidInputError):
            rows = X[: labels.shape[0]]
            warm_up = make(max_iter=1).fit(rows, labels)
            warm_up.predict_topk(rows, 5)
            warm_up.predict(rows)
    tracemalloc.start()
    refusal = None
    try:
        model.fit(X, Y)
    except InvalidInputError as error:
        refusal = str(error)
    if refusal is not None:
        tracemalloc.stop()
        assert type(model).__name__ in MAY_REFUSE
        assert re.search(r"memory.* [\d.,]+ [MG]i?B", refusal)
        return
    model.predict_topk(X, 5)
    model.predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24_000_000
