"""Comparing fitted models, for every test that needs it."""

import numpy as np
import scipy.sparse as sp


def fitted_arrays(model):
    return {name: getattr(model, name) for name in model._saved_arrays}


def assert_same_model(one, two):
    for name, value in fitted_arrays(one).items():
        other = getattr(two, name)
        if sp.issparse(value):
            value, other = value.toarray(), other.toarray()
        np.testing.assert_array_equal(value, other, err_msg=name)
