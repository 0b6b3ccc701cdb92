"""Small taggers, fitted once."""

import pytest

from tagwise import Tagger
from tagwise.data import load_dataset


@pytest.fixture(scope="session")
def rows():
    """Texts and tags."""
    data = load_dataset("debtags-sample")
    Y, names = data.Y_train, data.label_names
    return data.texts_train, [[names[label] for label in Y.indices[a:b]] for a, b in zip(Y.indptr, Y.indptr[1:])]


@pytest.fixture(scope="session")
def tagger(rows):
    """A tagger as people train it."""
    return Tagger(n_jobs=1).fit(*rows)


@pytest.fixture(scope="session")
def other_tagger(rows):
    """Another one, whose scores are not probabilities."""
    texts, tags = rows
    return Tagger("binary-relevance", n_jobs=1).fit(texts[:300], tags[:300])


@pytest.fixture
def folder(tagger, tmp_path):
    """The first one, saved; a test may do with it what it likes."""
    tagger.save(tmp_path / "packages")
    return tmp_path / "packages"
