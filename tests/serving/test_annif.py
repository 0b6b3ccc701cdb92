"""Annif's REST API: its paths, fields, shapes and statuses. ``test_annif_itself.py`` has Annif as the client."""

import asyncio
import base64
import json
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagwise import Tagger, __version__
from tagwise.serving import create_app
from tagwise.serving.annif import tag_of, uri_of
from tagwise.store.folder import MANIFEST_NAME

ADDRESS = "http://www.yso.fi/onto/yso/p1"
VOCABULARY = {ADDRESS: "Haustiere", "trinken": "drinks"}
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A tagger with a tag that is an address, one with a name, and one that is neither; it has no probabilities."""
    texts = ["a cat and a dog", "a dog barks", "red wine and cheese", "white wine"] * 5
    tags = [[ADDRESS], [ADDRESS], ["Käse & Brot", "trinken"], ["trinken"]] * 5
    folder = tmp_path_factory.mktemp("named") / "named"
    Tagger("binary-relevance", vocabulary=VOCABULARY).fit(texts, tags).save(folder)
    return folder


@pytest.fixture(scope="module")
def feedback(tmp_path_factory):
    return tmp_path_factory.mktemp("feedback") / "feedback.jsonl"


@pytest.fixture(scope="module")
def client(two, named, feedback, client_of):
    with client_of({"packages": two["packages"], "named": str(named)}, feedback=str(feedback)) as client:
        yield client


def batch(client, documents, query=""):
    return client.post(f"/v1/projects/named/suggest-batch{query}", json={"documents": documents})


def test_information(client):
    answer = client.get("/v1/")
    assert set(answer.json()) == {"title", "version"}
    assert answer.json()["version"] == __version__


def test_projects_have_the_fields_of_annif(client, named):
    projects = client.get("/v1/projects").json()["projects"]
    assert [one["project_id"] for one in projects] == ["packages", "named"]
    project = client.get("/v1/projects/named").json()
    assert project == projects[1]
    saved = datetime.fromtimestamp((named / MANIFEST_NAME).stat().st_mtime, timezone.utc)
    assert project == {
        "project_id": "named",
        "name": "named",
        "language": "und",
        "backend": {"backend_id": "tagwise"},
        "vocab": {"vocab_id": "named", "languages": ["und"], "size": 3, "loaded": True},
        "vocab_language": "und",
        "is_trained": True,
        "modification_time": saved.isoformat(),
    }
    assert client.get("/v1/vocabs").json()["vocabs"] == [one["vocab"] for one in projects]


def test_a_project_whose_folder_does_not_load(client_of, problem, tmp_path):
    with client_of({"broken": str(tmp_path)}) as client:
        project = client.get("/v1/projects/broken").json()
        assert project["vocab"] == {"vocab_id": "broken", "languages": [], "size": None, "loaded": False}
        assert (project["is_trained"], project["modification_time"]) == (False, None)
        for form in ({"text": "a dog"}, {"text": "a dog", "limit": "0"}):
            problem(client.post("/v1/projects/broken/suggest", data=form), 503, "manifest.json")


def test_suggestions_are_those_of_the_tagger(client, tagger):
    text = tagger.features_.feature_names[100] + " a game for the web"
    answer = client.post("/v1/projects/packages/suggest", data={"text": text, "limit": "4"}).json()
    (expected,) = tagger.suggest([text], top=4)
    assert answer == {
        "results": [
            {"uri": uri_of(one.tag), "label": one.tag, "notation": None, "score": one.probability} for one in expected
        ]
    }


def test_labels_are_names_and_addresses_stay(client):
    answer = client.post("/v1/projects/named/suggest", data={"text": "dog wine"}).json()
    assert {one["uri"]: one["label"] for one in answer["results"]} == {
        ADDRESS: "Haustiere",
        "urn:tagwise:trinken": "drinks",
        "urn:tagwise:K%C3%A4se%20%26%20Brot": "Käse & Brot",
    }
    scores = [one["score"] for one in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)  # of a model that knows no probabilities


def test_limit_and_threshold(client):
    def ask(**more):
        answer = client.post("/v1/projects/named/suggest", data={"text": "a dog", **more})
        assert answer.status_code == 200, answer.text
        return answer.json()["results"]

    everything = ask()
    assert len(everything) == 3
    assert ask(limit="2") == everything[:2]
    assert ask(limit="0") == []
    assert ask(limit="1000000") == everything
    border = everything[1]["score"]
    assert ask(threshold=repr(border)) == everything[:2]
    assert ask(threshold=repr(border + 1e-9)) == everything[:1]
    assert ask(threshold="1") == []
    assert ask(language="fi", project="elsewhere", metadata_title="A title") == everything


def test_a_batch_answers_each_document(client):
    documents = [{"text": "a dog", "document_id": "1", "metadata": {"title": "A"}}, {"text": "wine"}]
    answer = batch(client, documents, "?limit=2&threshold=0.01&language=en").json()
    assert [one["document_id"] for one in answer] == ["1", None]
    for document, found in zip(documents, answer):
        alone = client.post("/v1/projects/named/suggest", data={"text": document["text"], "limit": 2}).json()
        assert found["results"] == alone["results"]
    assert batch(client, []).json() == []
    assert batch(client, [{"text": "a"}], "?limit=0").json() == [{"results": [], "document_id": None}]
    assert len(batch(client, [{"text": "a"}] * 32).json()) == 32


def test_learn_stores_subjects_as_accepted_tags(client, feedback):
    before = feedback.read_text().count("\n")
    documents = [
        {
            "text": "ein Hund",
            "subjects": [
                {"uri": ADDRESS, "label": "ignored"},
                {"uri": "urn:tagwise:K%C3%A4se%20%26%20Brot"},
                {"uri": ADDRESS},
            ],
        },
        {"text": "nothing is known"},
        {"text": "nothing is known", "subjects": []},
        {"subjects": [{"uri": ADDRESS}]},
        {"text": "wine", "subjects": [{"uri": "urn:tagwise:new"}], "metadata": {"title": "A"}},
    ]
    answer = client.post("/v1/projects/named/learn", json=documents)
    assert (answer.status_code, answer.content) == (204, b"")
    records = [json.loads(line) for line in feedback.read_text().splitlines()[before:]]
    assert [(one["tagger"], one["text"], one["accepted"]) for one in records] == [
        ("named", "ein Hund", [ADDRESS, "Käse & Brot"]),
        ("named", "wine", ["new"]),
    ]
    assert not any("rejected" in one for one in records)
    assert client.post("/v1/projects/named/learn", json=[]).status_code == 204


def test_learning_that_is_switched_off(named, client_of, problem):
    with client_of({"named": str(named)}) as client:
        for documents in ([], [{"text": "a", "subjects": [{"uri": ADDRESS}]}]):
            problem(client.post("/v1/projects/named/learn", json=documents), 403, "--feedback")


def test_an_unknown_project(client, problem):
    for method, path, sent in (
        ("get", "", {}),
        ("post", "/suggest", {"data": {"text": "a"}}),
        ("post", "/suggest-batch", {"json": {"documents": []}}),
        ("post", "/learn", {"json": []}),
    ):
        problem(client.request(method, f"/v1/projects/nobody{path}", **sent), 404, "nobody", "packages, named")


def test_bodies_that_cannot_be_used(client, feedback, problem):
    """Their status is 400, as Annif's is, where the API of tagwise says 422."""
    before = feedback.read_bytes()
    for body, *parts in (
        (b"", "text"),
        (b"limit=2", "text", "field required"),
        (b"text=a&limit=-1", "limit", "-1"),
        (b"text=a&limit=", "limit"),
        (b"text=a&limit=many", "limit", "valid integer", "many"),
        (b"text=a&threshold=1.5", "threshold", "1.5"),
        (b"text=a&threshold=nan", "threshold"),
        (b"text=%ff", "UTF-8"),
        (b"text=\xff", "UTF-8"),
        (b"text=a" + b"&a=b" * 1000, "1,000 fields"),
    ):
        answer = client.post("/v1/projects/named/suggest", content=body, headers={"content-type": FORM})
        problem(answer, 400, *parts)
    for path, body, *parts in (
        ("suggest-batch", b"", "required"),
        ("suggest-batch", b'{"documents": [', "JSON"),
        ("suggest-batch", b'{"documents": [{"text": "\xff"}]}', "cannot be read"),
        ("suggest-batch", b"[]", "object"),
        ("suggest-batch", b"{}", "documents", "required"),
        ("suggest-batch", b'{"documents": [{"document_id": "1"}]}', "documents[0].text", "required"),
        ("suggest-batch", b'{"documents": [{"text": 1}]}', "documents[0].text", "string"),
        ("suggest-batch", json.dumps({"documents": [{"text": "a"}] * 33}).encode(), "33", "32"),
        ("suggest-batch?limit=-1", b'{"documents": []}', "limit", "-1"),
        ("suggest-batch?threshold=a", b'{"documents": []}', "threshold", "number"),
        ("learn", b"{}", "list"),
        ("learn", b'[{"text": "a", "subjects": [{"label": "b"}]}]', "[0].subjects[0].uri", "required"),
        ("learn", b'[{"text": "a", "subjects": [{"uri": "urn:tagwise:"}]}]', "urn:tagwise:"),
    ):
        answer = client.post(f"/v1/projects/named/{path}", content=body, headers={"content-type": "application/json"})
        problem(answer, 400, *parts)
    for path in ("suggest", "suggest-batch", "learn"):
        problem(client.post(f"/v1/projects/named/{path}", files={"text": ("a.txt", b"a")}), 415, "multipart/form-data")
    assert feedback.read_bytes() == before
    typed = {"content-type": f"{FORM}; charset=UTF-8"}
    assert client.post("/v1/projects/named/suggest", content=b"text=ein+Hund", headers=typed).status_code == 200


def test_a_client_that_goes_away_is_no_error_of_the_server(two, caplog):
    incoming = [{"type": "http.request", "body": b"text=", "more_body": True}, {"type": "http.disconnect"}]
    sent = []

    async def receive():
        return incoming.pop(0)

    async def send(message):
        sent.append(message)

    headers = [(b"content-type", FORM.encode()), (b"content-length", b"500")]
    scope = {"type": "http", "method": "POST", "path": "/v1/projects/packages/suggest", "headers": headers}
    asyncio.run(create_app(two)({**scope, "query_string": b""}, receive, send))
    assert sent[0]["status"] == 400
    assert not caplog.records


def test_a_key_may_be_the_password_of_an_address(named, client_of):
    """Annif's ``http`` backend sends no headers, but ``http://anybody:KEY@host/…`` is an address like any other."""
    key = "0123456789abcdef"
    with client_of({"named": str(named)}, keys=(key,)) as client:

        def status(credentials):
            encoded = base64.b64encode(credentials.encode()).decode()
            return client.get("/v1/projects", headers={"authorization": f"Basic {encoded}"}).status_code

        assert status(f"anybody:{key}") == status(f":{key}") == 200
        assert status(key) == status(f"{key}:") == status("anybody:wrong") == 401
        assert client.get("/v1/projects", headers={"authorization": "Basic %%%"}).status_code == 401
        assert client.get("/v1/projects", auth=("anybody", key)).status_code == 200


def test_openapi_describes_the_bodies(client):
    paths = client.get("/openapi.json").json()["paths"]
    form = paths["/v1/projects/{project_id}/suggest"]["post"]["requestBody"]["content"][FORM]["schema"]
    assert form["required"] == ["text"]
    assert set(form["properties"]) == {"text", "limit", "threshold", "language"}
    operation = paths["/v1/projects/{project_id}/suggest-batch"]["post"]
    assert {one["name"]: one["in"] for one in operation["parameters"]} == {
        "project_id": "path",
        "limit": "query",
        "threshold": "query",
        "language": "query",
    }
    assert set(operation["responses"]["400"]["content"]) == {"application/problem+json"}


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_every_tag_has_an_address_of_its_own(tag):
    assert tag_of(uri_of(tag)) == tag
    assert uri_of(tag).isascii() or uri_of(tag) == tag


def test_addresses():
    for tag, uri in (
        ("web::server", "urn:tagwise:web::server"),
        ("a b/c%", "urn:tagwise:a%20b%2Fc%25"),
        ("https://example.org/ä?b#c", "https://example.org/ä?b#c"),
        ("URN:ISBN:1", "URN:ISBN:1"),
        ("urn:tagwise:a", "urn:tagwise:urn:tagwise:a"),
        ("http://a b", "urn:tagwise:http:%2F%2Fa%20b"),
        ("http://", "urn:tagwise:http:%2F%2F"),
        ("http://a>", "urn:tagwise:http:%2F%2Fa%3E"),
    ):
        assert uri_of(tag) == uri
        assert tag_of(uri) == tag
