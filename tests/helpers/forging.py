"""Changes that someone makes to a model folder or a checkpoint who knows the format."""

import numpy as np
import scipy.sparse as sp


def forgeries(content, where="", *, extra=True):
    """(what was changed, the changed copy) of nested dicts: each entry missing, more, or of another type or shape.

    Of lists of dicts the first is changed. ``extra`` adds entries that belong nowhere.
    """
    if isinstance(content, dict):
        if extra:
            yield f"{where}: an entry more", {**content, "surprise": 1}
        for name, inner in content.items():
            yield f"{where}.{name} missing", {key: value for key, value in content.items() if key != name}
            for what, forged in forgeries(inner, f"{where}.{name}", extra=extra):
                yield what, {**content, name: forged}
    elif isinstance(content, list) and content and isinstance(content[0], dict):
        for what, forged in forgeries(content[0], f"{where}.0", extra=extra):
            yield what, [forged, *content[1:]]
    elif sp.issparse(content) or isinstance(content, np.ndarray):
        yield from ((f"{where} {what}", forged) for what, forged in forged_arrays(content))
    else:
        yield f"{where} an object", {"surprise": 1}


def forged_arrays(array):
    """(what was changed, an array or matrix in the place of another)."""
    yield "of another shape", sp.csr_matrix((1, 1)) if sp.issparse(array) else np.zeros((2, 3, 5), array.dtype)
    if sp.issparse(array):
        yield "dense", array.toarray()
    else:
        yield "sparse", sp.csr_matrix(array.reshape(len(array), -1) if array.ndim else [[1.0]], dtype=np.float64)
        yield "a number", np.ones((), array.dtype)
        yield "of another type", np.zeros(array.shape, np.int16 if array.dtype.kind == "f" else np.float32)
        if array.ndim:
            yield "with a dimension more", array[None]
            yield "with an entry more", np.concatenate([array, array[:1]])
    if array.dtype.kind == "f" and array.size:
        holes = array.copy()
        (holes.data if sp.issparse(holes) else holes.reshape(-1))[:1] = np.nan
        yield "with NaN", holes


def changed(value, path, new):
    """A copy of nested dicts with the entry at a path of keys replaced."""
    key, *rest = path
    return {**value, key: changed(value[key], rest, new) if rest else new}
