"""Small taggers, fitted once, and clients of applications that serve them."""

from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from tagwise import Tagger
from tagwise.data import load_dataset
from tagwise.serving import create_app


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


@pytest.fixture(scope="session")
def two(tagger, other_tagger, tmp_path_factory):
    """Folders of both, which no test changes."""
    folder = tmp_path_factory.mktemp("two")
    tagger.save(folder / "packages")
    other_tagger.save(folder / "plain")
    return {"packages": str(folder / "packages"), "plain": str(folder / "plain")}


@pytest.fixture(scope="session")
def client_of():
    """Makes clients of applications in this process."""

    @contextmanager
    def client(taggers, **options):
        with TestClient(create_app(taggers, **{"watch_seconds": 0, **options})) as found:
            yield found

    return client


@pytest.fixture(scope="session")
def problem():
    """Checks that a response says with this status, in a sentence with these words, what is wrong."""

    def check(response, status, *words):
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        body = response.json()
        assert (body["status"], body["type"]) == (status, "about:blank")
        assert body["title"]
        for word in words:
            assert word in body["detail"], body["detail"]
        assert body["detail"].endswith(".")

    return check
