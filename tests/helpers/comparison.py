"""Comparing fitted models, for every test that needs it."""

import numpy as np
import scipy.sparse as sp


def fitted_arrays(model):
    """Name, as a folder has it, → fitted array; those of models within the model too."""
    arrays = {name: getattr(model, name) for name in model._fields().arrays()}
    for within in model._fields().models():
        arrays |= {f"{within}.{name}": array for name, array in fitted_arrays(getattr(model, within)).items()}
    return arrays


def assert_same_model(one, two):
    others = fitted_arrays(two)
    for name, value in fitted_arrays(one).items():
        other = others[name]
        if sp.issparse(value):
            value, other = value.toarray(), other.toarray()
        np.testing.assert_array_equal(value, other, err_msg=name)


def assert_same_bits(one, two):
    """Fitted arrays, objective and values of two models; only the seconds of their histories may differ."""
    others = fitted_arrays(two)
    for name, ours in fitted_arrays(one).items():
        theirs = others[name]
        parts = ("data", "indices", "indptr") if sp.issparse(ours) else ("",)
        for part in parts:
            left, right = (getattr(array, part) if part else array for array in (ours, theirs))
            assert (left.dtype, left.shape) == (right.dtype, right.shape), name
            assert left.tobytes() == right.tobytes(), name
    assert one.objective_.tobytes() == two.objective_.tobytes()
    assert one.n_iter_ == two.n_iter_
    for name, field in one._fields().items():
        if field.form == "value":
            assert getattr(one, name) == getattr(two, name), name
