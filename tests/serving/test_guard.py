"""Before a request is answered: keys, limits, names, pages from elsewhere, sizes, and bodies that are none."""

import json
import socket

import pytest
from serving import served

from tagwise.serving import ServingOptions, create_app, guard
from tagwise.serving.options import read_keys

KEYS = ("k" * 16, "another-key-of-24-letters")
SUGGEST = "/v1/taggers/packages/suggest"
TEXT = {"text": "a web server"}


@pytest.fixture(scope="module")
def client(two, client_of):
    """Nobody needs a key, and bodies are small."""
    with client_of(two, most_bytes=20_000) as client:
        yield client


def test_a_key_is_needed_and_one_of_several_is_enough(two, client_of, problem):
    with client_of(two, keys=KEYS) as client:
        for header in (
            {"Authorization": f"Bearer {KEYS[1]}"},
            {"authorization": f"bearer {KEYS[1]}"},
            {"X-API-Key": KEYS[1]},
        ):
            assert client.post(SUGGEST, json=TEXT, headers=header).status_code == 200
        for header in (
            {"Authorization": "Bearer " + "x" * 16},
            {"Authorization": f"Bearer {KEYS[0]}x"},
            {"Authorization": f"Bearer {KEYS[0][:-1]}"},
            {"X-API-Key": "ключ".encode()},
        ):
            problem(client.post(SUGGEST, json=TEXT, headers=header), 401, "The key is wrong")
        for header in ({}, {"Authorization": KEYS[0]}, {"Authorization": f"Basic {KEYS[0]}"}):
            refused = client.post(SUGGEST, json=TEXT, headers=header)
            problem(refused, 401, "A key is needed", "Authorization: Bearer KEY")
            assert refused.headers["www-authenticate"] == "Bearer"
        for path in ("/v1/taggers", "/metrics", "/openapi.json", "/v1/taggers/packages/tags", "/nothing"):
            problem(client.get(path), 401)
        for path in ("/healthz", "/readyz"):
            assert client.get(path).status_code == 200
            assert (client.head(path).status_code, client.head(path).content) == (200, b"")
    assert KEYS[0] not in repr(ServingOptions(two, keys=KEYS))


def test_each_key_has_a_limit_of_its_own_for_a_minute(two, client_of, problem, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(guard.time, "monotonic", lambda: now)
    with client_of(two, keys=KEYS, most_per_minute=3) as client:

        def asked(key):
            return client.get("/v1/taggers", headers={"X-API-Key": key})

        for key in KEYS:
            assert [asked(key).status_code for _ in range(4)] == [200] * 3 + [429]
            now += 20
        refused = asked(KEYS[0])
        problem(refused, 429, "3 requests per minute; try again in 20 seconds")
        assert refused.headers["retry-after"] == "20"
        now += 20
        assert [asked(key).status_code for key in KEYS] == [200, 429]
        problem(asked("wrong" * 4), 401)
    with pytest.raises(ValueError, match="most_per_minute limits the requests of each key, but there are no keys"):
        create_app(two, most_per_minute=5)


def test_key_files(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(f"# of the web team\n{KEYS[0]}\n\n  {KEYS[1]}  \n")
    assert read_keys(str(path)) == KEYS
    for content, word in (
        (b"", "holds no key"),
        (b"# nothing\n", "holds no key"),
        (b"short\n", "too short"),
        (b"with blanks in it, long\n", "holds blanks"),
        (f"{KEYS[0]}\n{KEYS[0]}\n".encode(), "twice"),
        (b"\xff" * 20, "UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=word) as error:
            read_keys(str(path))
        assert KEYS[0] not in str(error.value)
    with pytest.raises(ValueError, match=r"--key-file: .*none cannot be read: No such file"):
        read_keys(str(tmp_path / "none"))


def test_pages_from_elsewhere_cannot_ask_under_a_name_of_theirs(two, client_of, problem):
    """A stranger can make any name of theirs lead to 127.0.0.1, and a browser then takes this server for theirs."""
    with client_of(two, hosts=("tags.example",)) as client:
        for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "tags.example.evil"):
            refused = client.post(SUGGEST, json=TEXT, headers={"Host": host})
            problem(refused, 421, "does not answer to the name", "--allow-host")
            assert client.get("/", headers={"Host": host}).status_code == 421
        for host in ("127.0.0.1", "127.0.0.1:8000", "localhost:1", "[::1]:8000", "192.168.0.7", "Tags.Example:80"):
            assert client.post(SUGGEST, json=TEXT, headers={"Host": host}).status_code == 200


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
]
OWN = [
    {},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://127.0.0.1:8000"},
    {"Origin": "https://tags.example", "Sec-Fetch-Site": "same-origin"},  # behind a proxy that passes no name on
    {"Origin": "HTTPS://Tags.Example:8443", "Host": "tags.example"},  # behind one that passes the name on
    {"Origin": "https://tags.example"},  # of a name that is allowed
]


def test_pages_from_elsewhere_may_send_nothing(two, client_of, problem, tmp_path):
    """Browsers send what a page of a stranger tells them to; without keys, nothing else would stop it."""
    kept = tmp_path / "feedback.jsonl"
    answer = {"text": "a web server", "accepted": ["x"]}
    with client_of(two, feedback=str(kept), hosts=("tags.example",)) as client:
        for headers in FOREIGN:
            headers = {"Host": "127.0.0.1:8000", **headers}
            for path, body in (
                ("/v1/taggers/packages/feedback", answer),
                (SUGGEST, TEXT),
                ("/v1/taggers/packages/reload", None),
                ("/v1/projects/packages/learn", []),
            ):
                problem(client.post(path, json=body, headers=headers), 403, "a page of another address")
            assert client.get("/", headers=headers).status_code == 200  # links lead here
        # A page from elsewhere may send a body without a type without being asked whether it may.
        untyped = client.post(
            "/v1/taggers/packages/feedback", content=json.dumps(answer), headers={"Host": "tags.example"}
        )
        problem(untyped, 415, "Content-Type: application/json; found none")
        assert kept.read_bytes() == b""
        for headers in OWN:
            headers = {"Host": "127.0.0.1:8000", **headers}
            assert client.post("/v1/taggers/packages/feedback", json=answer, headers=headers).status_code == 204
        assert len(kept.read_bytes().splitlines()) == len(OWN)


def test_bodies_have_a_limit(two, client, client_of, problem):
    frame = len(json.dumps({"text": ""}))
    headers = {"Content-Type": "application/json"}
    for size, status in ((20_000, 200), (20_001, 413), (300_000, 413)):
        content = json.dumps({"text": "x" * (size - frame)})
        for sent in (content, iter([content[:1000].encode(), content[1000:].encode()])):
            assert client.post(SUGGEST, content=sent, headers=headers).status_code == status
    problem(client.post(SUGGEST, content=content, headers=headers), 413, "more than 20,000 bytes")
    with client_of(two) as usual:
        problem(usual.post(SUGGEST, json={"texts": ["a text"] * 10_000}), 422, "10,000", "may hold 256")
        problem(usual.post(SUGGEST, json={"text": "ten megabytes " * 750_000}), 413, "4,194,304 bytes")
        assert usual.post(SUGGEST, json={"text": "a fast web server " * 200_000}).status_code == 200


BODIES = [
    (b'{"text": "caf\xe9"}', 400, "utf-8"),
    (b'{"text": "a"', 400, "not valid JSON"),
    (b"text=a", 400, "not valid JSON"),
    (b"[" * 5000, 400, "The body cannot be read"),
    (b'{"top": ' + b"9" * 5000 + b"}", 400, "The body cannot be read"),
    (b"", 422, "The body: field required"),
    (b"[]", 422, "The body: input should be"),
    (b"null", 422, "The body"),
    (b"{}", 422, "Give either text or texts; found neither"),
    (b'{"text": "a", "texts": ["b"]}', 422, "Give either text or texts; found both"),
    (b'{"text": 3}', 422, "text: input should be a valid string; found 3"),
    (b'{"text": ["a"]}', 422, "text: input should be a valid string; found a list"),
    (b'{"texts": []}', 422, "texts: list should have at least 1 item"),
    (b'{"texts": ["a", null]}', 422, "texts[1]: input should be a valid string; found null"),
    (b'{"text": "a", "top": 0}', 422, "top: input should be greater than or equal to 1; found 0"),
    (b'{"text": "a", "top": 2.5}', 422, "found 2.5"),
    (b'{"text": "a", "top": "many"}', 422, "found 'many'"),
    (b'{"text": "a", "threshold": NaN}', 422, "threshold"),
    (b'{"text": "a", "threshold": 1e999}', 422, "threshold"),
    (b'{"text": "a", "limit": 3}', 422, "limit: extra inputs are not permitted"),
    (b'{"text": 3, "top": 0}', 422, "2 fields are wrong"),
    (json.dumps({"texts": ["a"] * 257}).encode(), 422, "257 texts, but one request may hold 256"),
]


def test_a_body_that_cannot_be_used_is_explained_in_a_sentence(client, problem):
    for content, status, words in BODIES:
        answer = client.post(SUGGEST, content=content, headers={"Content-Type": "application/json"})
        problem(answer, status, words)
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post(SUGGEST, content=b'{"text": "a"}', headers={"Content-Type": content_type})
        problem(answer, 415, "Content-Type: application/json")
    problem(client.get("/v1/taggers/packages/tags?limit=1001"), 422, "limit: input", "found '1001'")


def test_addresses_that_lead_nowhere(client, problem):
    problem(client.get("/v2"), 404, "nothing at this address", "/openapi.json")
    problem(client.get(SUGGEST), 405, "use POST")
    problem(client.get("/v1/taggers/"), 404, "nothing at this address")
    problem(client.get("/v1/taggers/books"), 404, "There is no tagger 'books'; there is packages, plain")
    problem(client.post(f"/v1/taggers/{'x' * 500}%3Cb%3E/suggest", json=TEXT), 404, "There is no tagger")
    for path in ("", "/nothing", "/v1/taggers"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


# ---------------------------------------------------------------------- over a socket


def test_clients_that_break_off_ask_first_or_send_no_http_harm_nobody(two, caplog):
    def head(length, *more):
        lines = [f"POST {SUGGEST} HTTP/1.1", "Host: here", "Content-Type: application/json"]
        return "\r\n".join([*lines, f"Content-Length: {length}", *more, "", ""]).encode()

    def received(raw, last=b"}"):
        found = b""
        while last not in found and (part := raw.recv(1 << 16)):
            found += part
        return found

    body = b'{"text": "a web server"}'
    with served(create_app(two, most_bytes=20_000, watch_seconds=0)) as url:
        host, port = url.removeprefix("http://").split(":")

        def connection():
            return socket.create_connection((host, int(port)), timeout=60)

        for sent in (b"", head(100), head(100) + b'{"text": "half', head(24) + body, b"\x16\x03\x01 hello\r\n\r\n"):
            for _ in range(5):
                with connection() as raw:
                    raw.sendall(sent)
        with connection() as raw:
            raw.sendall(head(10_000_000, "Expect: 100-continue"))
            assert received(raw).startswith(b"HTTP/1.1 413")
        with connection() as raw:
            raw.sendall(head(300_000) + b"x" * 300_000)
            assert received(raw).startswith(b"HTTP/1.1 413")
        with connection() as raw:
            raw.sendall(head(24, "Expect: 100-continue"))
            assert raw.recv(100).startswith(b"HTTP/1.1 100")
            raw.sendall(body)
            assert b"200 OK" in received(raw, b"suggestions")
    assert "Traceback" not in caplog.text
    assert "ASGI" not in caplog.text
