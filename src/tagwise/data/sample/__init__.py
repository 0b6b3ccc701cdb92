"""``debtags-sample``: Debian package descriptions and their debtags, bundled with tagwise (see SOURCE.md)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from tagwise.data.dataset import Dataset
from tagwise.data.folder import read_labelled_texts, read_texts
from tagwise.data.formats import LabelledRows
from tagwise.metrics import propensity_constants
from tagwise.text.features import TextFeatures

__all__ = ["load_sample"]

_HERE = Path(__file__).parent
_NAME = "debtags-sample"


def load_sample() -> Dataset:
    """Load the bundled sample, with TF-IDF features fitted on its training texts."""
    train_texts, train = read_labelled_texts(_HERE / "train.jsonl.gz")
    test_texts, test = read_labelled_texts(_HERE / "test.jsonl.gz")
    label_names = train.label_names or []
    features = TextFeatures()
    propensity_a, propensity_b = propensity_constants(_NAME)
    return Dataset(
        name=_NAME,
        X_train=features.fit_transform(train_texts),
        Y_train=train.Y,
        X_test=features.transform(test_texts),
        Y_test=_in_columns_of(label_names, test),
        feature_names=features.feature_names,
        label_names=label_names,
        propensity_a=propensity_a,
        propensity_b=propensity_b,
        read_texts_train=partial(read_texts, _HERE / "train.jsonl.gz", len(train_texts)),
        read_texts_test=partial(read_texts, _HERE / "test.jsonl.gz", len(test_texts)),
    )


def _in_columns_of(label_names: list[str], rows: LabelledRows) -> sp.csr_matrix:
    """Labels of rows that know only some of the names; both lists of names are sorted, so order is kept."""
    position = {name: column for column, name in enumerate(label_names)}
    columns = np.array([position[name] for name in rows.label_names or []], dtype=rows.Y.indices.dtype)
    return sp.csr_matrix((rows.Y.data, columns[rows.Y.indices], rows.Y.indptr), shape=(rows.n_rows, len(label_names)))
