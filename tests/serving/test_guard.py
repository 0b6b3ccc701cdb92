"""What every request passes first: keys, limits, sizes, bodies that come slowly, in halves or not at all."""

import json
import random
import re
import socket
import time
from contextlib import suppress

import httpx
import pytest
from serving import served

from tagwise.serving import ServingOptions, connections, create_app
from tagwise.serving.options import read_keys
from tagwise.serving.processes import RecentRequests

KEYS = ("k" * 16, "another-key-of-24-letters")


@pytest.fixture(scope="module")
def saved(tagger, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded") / "packages"
    tagger.save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def open_server(saved):
    """Nobody needs a key; bodies are small and must come fast."""
    with served(create_app({"packages": saved}, most_bytes=20_000, body_seconds=1.0, watch_seconds=0)) as url:
        yield url


@pytest.fixture(scope="module")
def keyed_server(saved):
    with served(create_app({"packages": saved}, keys=KEYS, most_per_minute=5, watch_seconds=0)) as url:
        yield url


def problem(response, status, *words):
    """The response says with this status and a sentence with these words what is wrong."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["title"]
    for word in words:
        assert word in body["detail"], body["detail"]
    assert body["detail"][0].isupper() or body["detail"][0].islower()
    assert body["detail"].endswith(".")
    return True


def suggest(url, content=None, **options):
    content = json.dumps({"text": "a web server"}) if content is None else content
    headers = {"Content-Type": "application/json", **options.pop("headers", {})}
    return httpx.post(f"{url}/v1/taggers/packages/suggest", content=content, headers=headers, **options)


def still_answers(url):
    return suggest(url).status_code == 200


# ---------------------------------------------------------------------- keys


def test_a_key_is_needed_and_one_of_several_is_enough(keyed_server):
    assert problem(suggest(keyed_server), 401, "A key is needed", "Authorization: Bearer KEY")
    assert suggest(keyed_server).headers["www-authenticate"] == "Bearer"
    for header in (
        {"Authorization": f"Bearer {KEYS[1]}"},
        {"authorization": f"bearer {KEYS[1]}"},
        {"X-API-Key": KEYS[1]},
    ):
        assert suggest(keyed_server, headers=header).status_code == 200
    for header in (
        {"Authorization": "Bearer " + "x" * 16},
        {"Authorization": f"Bearer {KEYS[0]}x"},
        {"Authorization": f"Bearer {KEYS[0][:-1]}"},
        {"X-API-Key": "ключ".encode()},
    ):
        assert problem(suggest(keyed_server, headers=header), 401, "The key is wrong")
    assert problem(suggest(keyed_server, headers={"Authorization": KEYS[0]}), 401, "A key is needed")
    assert problem(suggest(keyed_server, headers={"Authorization": f"Basic {KEYS[0]}"}), 401, "A key is needed")


@pytest.mark.parametrize("path", ["/v1/taggers", "/metrics", "/openapi.json", "/v1/taggers/packages/tags", "/nothing"])
def test_without_a_key_nothing_is_told(keyed_server, path):
    assert problem(httpx.get(keyed_server + path), 401)


def test_whether_it_lives_is_told_to_everybody(keyed_server):
    assert httpx.get(f"{keyed_server}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{keyed_server}/readyz").status_code == 200
    for path in ("healthz", "readyz"):
        head = httpx.head(f"{keyed_server}/{path}")
        assert (head.status_code, head.content) == (200, b"")


def test_each_key_has_a_limit_of_its_own(keyed_server):
    statuses = [suggest(keyed_server, headers={"X-API-Key": KEYS[0]}) for _ in range(7)]
    assert [one.status_code for one in statuses] == [200] * 5 + [429] * 2
    assert problem(statuses[-1], 429, "5 requests per minute", "try again in")
    assert 1 <= int(statuses[-1].headers["retry-after"]) <= 60
    assert problem(suggest(keyed_server, headers={"X-API-Key": "wrong" * 4}), 401)


def test_the_limit_of_a_key_is_one_for_all_processes(saved, tmp_path):
    given = {"keys": KEYS, "most_per_minute": 7, "watch_seconds": 0, "shared": str(tmp_path)}
    with (
        served(create_app({"packages": saved}, **given)) as one,
        served(create_app({"packages": saved}, **given)) as two,
    ):
        for key in KEYS:
            statuses = [suggest(url, headers={"X-API-Key": key}).status_code for _ in range(5) for url in (one, two)]
            assert statuses == [200] * 7 + [429] * 3


def test_requests_count_for_a_minute(monkeypatch, tmp_path):
    """Against the definition: a request is taken where fewer than so many were, in the minute before it."""
    chance, now = random.Random(0), 0.0
    monkeypatch.setattr("tagwise.serving.processes.time.monotonic", lambda: now)
    counted = [RecentRequests(3, 4, None), RecentRequests(3, 4, str(tmp_path))]
    taken = [[], [], []]
    for _ in range(600):
        now += chance.expovariate(0.4)
        client = chance.randrange(3)
        recent = [one for one in taken[client] if one > now - 60]
        expected = 0 if len(recent) < 4 else recent[0] + 60 - now
        assert [each.wait(client) for each in counted] == pytest.approx([expected] * 2)
        if not expected:
            taken[client].append(now)
    assert 100 < sum(map(len, taken)) < 500


def test_pages_from_elsewhere_cannot_ask_under_a_name_of_theirs(saved):
    """A stranger can make any name of theirs lead to 127.0.0.1, and a browser then takes this server for theirs."""
    with served(create_app({"packages": saved}, hosts=("tags.example",), watch_seconds=0)) as url:
        for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "tags.example.evil"):
            refused = suggest(url, headers={"Host": host})
            assert problem(refused, 421, "does not answer to the name", "--allow-host")
            assert httpx.get(url, headers={"Host": host}).status_code == 421
        for host in ("127.0.0.1", "127.0.0.1:8000", "localhost:1", "[::1]:8000", "192.168.0.7", "Tags.Example:80"):
            assert suggest(url, headers={"Host": host}).status_code == 200


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
    {"Origin": "https://tags.example", "Sec-Fetch-Site": "same-origin"},  # behind a proxy that passes no name on
    {"Origin": "HTTPS://Tags.Example:8443", "Host": "tags.example"},  # behind one that passes the name on
    {"Origin": "https://tags.example", "Host": "127.0.0.1:8000"},  # of a name that is allowed
]


def test_pages_from_elsewhere_may_send_nothing(saved, tmp_path):
    """Browsers send what a page of a stranger tells them to; without keys, nothing else would stop it."""
    kept = tmp_path / "feedback.jsonl"
    options = {"feedback": str(kept), "hosts": ("tags.example",), "watch_seconds": 0}
    with served(create_app({"packages": saved}, **options)) as url:
        base = f"{url}/v1/taggers/packages"
        answer = {"text": "a web server", "accepted": ["x"]}
        for headers in FOREIGN:
            for path, body in (("feedback", answer), ("suggest", {"text": "a"}), ("reload", None)):
                refused = httpx.post(f"{base}/{path}", json=body, headers=headers)
                assert problem(refused, 403, "a page of another address"), (path, headers)
            learnt = httpx.post(f"{url}/v1/projects/packages/learn", json=[], headers=headers)
            assert problem(learnt, 403, "a page of another address")
            assert httpx.get(url, headers=headers).status_code == 200  # links lead here
        assert kept.read_bytes() == b""
        for headers in (*OWN, {"Origin": url}):
            assert httpx.post(f"{base}/feedback", json=answer, headers=headers).status_code == 204, headers
        assert len(kept.read_bytes().splitlines()) == len(OWN) + 1


def test_a_body_without_a_type_is_refused(saved, tmp_path):
    """A page from elsewhere may send such a one without being asked whether it may."""
    kept = tmp_path / "feedback.jsonl"
    with served(create_app({"packages": saved}, feedback=str(kept), watch_seconds=0)) as url:
        content = b'{"text": "a web server", "accepted": ["x"]}'
        refused = httpx.post(f"{url}/v1/taggers/packages/feedback", content=content)
        assert "content-type" not in refused.request.headers
        assert problem(refused, 415, "Content-Type: application/json; found none")
        assert kept.read_bytes() == b""


def test_a_limit_of_keys_needs_keys(saved):
    with pytest.raises(ValueError, match="most_per_minute limits the requests of each key, and there are none"):
        create_app({"packages": saved}, most_per_minute=5)


def test_keys_are_never_shown(saved):
    options = ServingOptions({"packages": saved}, keys=KEYS)
    assert KEYS[0] not in repr(options)


def test_key_files(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(f"# of the web team\n{KEYS[0]}\n\n  {KEYS[1]}  \n")
    assert read_keys(str(path)) == KEYS
    for content, word in (
        ("", "holds no key"),
        ("# nothing\n", "holds no key"),
        ("short\n", "too short"),
        ("with blanks in it, long\n", "holds blanks"),
        (f"{KEYS[0]}\n{KEYS[0]}\n", "twice"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=word) as error:
            read_keys(str(path))
        assert KEYS[0] not in str(error.value)
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(ValueError, match="UTF-8"):
        read_keys(str(path))
    with pytest.raises(ValueError, match=r"--key-file: .*none cannot be read: No such file"):
        read_keys(str(tmp_path / "none"))


# ---------------------------------------------------------------------- bodies


def test_a_body_that_is_too_large_is_refused_and_its_sender_hears_so(open_server):
    large = json.dumps({"text": "x" * 300_000})
    assert problem(suggest(open_server, large), 413, "more than 20,000 bytes")
    parts = (part.encode() for part in [large[:1000], large[1000:]])
    assert problem(suggest(open_server, parts), 413, "more than 20,000 bytes")
    assert still_answers(open_server)


def test_a_body_of_just_the_limit_is_taken(open_server):
    frame = len(json.dumps({"text": ""}))
    assert suggest(open_server, json.dumps({"text": "x" * (20_000 - frame)})).status_code == 200
    assert problem(suggest(open_server, json.dumps({"text": "x" * (20_001 - frame)})), 413)


def test_a_client_that_asks_first_is_told_at_once(open_server):
    with connection(open_server) as raw:
        raw.sendall(head(10_000_000, "Expect: 100-continue"))
        assert received(raw).startswith(b"HTTP/1.1 413")
    with connection(open_server) as raw:
        raw.sendall(head(24, "Expect: 100-continue"))
        assert raw.recv(100).startswith(b"HTTP/1.1 100")
        raw.sendall(b'{"text": "a web server"}')
        assert b"200 OK" in received(raw, b"suggestions")


def connection(url):
    host, port = url.removeprefix("http://").split(":")
    raw = socket.create_connection((host, int(port)), timeout=60)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return raw


def head(length, *more):
    lines = ["POST /v1/taggers/packages/suggest HTTP/1.1", "Host: here", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {length}", *more, "", ""]).encode()


def received(raw, last=b"}"):
    found = b""
    while last not in found and (part := raw.recv(1 << 16)):
        found += part
    return found


def test_a_body_that_comes_too_slowly_ends_with_a_sentence(open_server):
    with connection(open_server) as raw:
        raw.sendall(head(100) + b'{"text": ')
        answer = received(raw)
        assert answer.startswith(b"HTTP/1.1 408"), answer
        assert b"did not arrive within 1 seconds" in answer
        assert raw.recv(100) == b""  # and the connection is closed
    assert still_answers(open_server)


def test_bytes_that_trickle_in_do_not_keep_a_connection(open_server):
    with connection(open_server) as raw:
        raw.sendall(head(10_000))
        raw.settimeout(0.05)
        answer, end = b"", time.monotonic() + 60
        while not answer and time.monotonic() < end:
            raw.sendall(b" ")
            try:
                answer = raw.recv(1 << 16)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408"), answer


@pytest.mark.parametrize("sent", [0, 1, 15])
def test_half_a_body_harms_nobody(open_server, sent, caplog):
    for _ in range(20):
        with connection(open_server) as raw:
            raw.sendall(head(100) + b'{"text": "half of'[:sent])
    assert still_answers(open_server)
    assert "Traceback" not in caplog.text
    assert "ASGI" not in caplog.text


def test_a_client_that_does_not_wait_for_its_answer_harms_nobody(open_server, caplog):
    for _ in range(20):
        with connection(open_server) as raw:
            raw.sendall(head(24) + b'{"text": "a web server"}')
    assert still_answers(open_server)
    assert "Traceback" not in caplog.text


def test_lines_that_are_not_http_harm_nobody(open_server):
    with connection(open_server) as raw:
        raw.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        answer = received(raw)
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n"), answer
        assert b"content-type: application/problem+json" in answer
        assert b"These bytes are no request of HTTP/1.1." in answer
        assert raw.recv(100) == b""
    assert still_answers(open_server)


@pytest.fixture
def impatient_server(saved, monkeypatch):
    monkeypatch.setattr(connections, "SECONDS", 0.5)
    with served(create_app({"packages": saved}, watch_seconds=0)) as url:
        yield url


@pytest.mark.parametrize("sent", [b"", b"GET /heal", b"GET /healthz HTTP/1.1\r\nHost: h", head(3)[:-2]])
def test_headers_that_do_not_come_do_not_keep_a_connection(impatient_server, sent):
    with connection(impatient_server) as raw:
        raw.sendall(sent)
        answer = received(raw)
        assert answer.startswith(b"HTTP/1.1 408"), answer
        assert b"The headers of the request did not arrive within 0.5 seconds." in answer
        assert raw.recv(100) == b""
    assert still_answers(impatient_server)


def test_headers_of_a_second_request_must_come_too(impatient_server):
    with connection(impatient_server) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        assert received(raw).endswith(b'{"status": "ok"}')
        time.sleep(0.7)  # longer than headers may take: nothing was begun
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        assert received(raw).endswith(b'{"status": "ok"}')
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost")
        assert received(raw).startswith(b"HTTP/1.1 408")


def test_a_client_that_does_not_read_its_answer_is_cut(impatient_server):
    """Else an answer of megabytes would be in memory for as long as the client likes."""
    body = json.dumps({"texts": ["a fast web server " * 20] * 256, "top": 100, "explain": 20}).encode()
    with connection(impatient_server) as raw:
        raw.sendall(head(len(body)) + body)
        answer = received(raw, b"content-length")
        time.sleep(2)
        with suppress(ConnectionError):
            while part := raw.recv(1 << 20):  # what the system has taken; then the end, without the rest
                answer += part
        assert len(answer) < int(re.search(rb"content-length: (\d+)", answer)[1])
    # Slow is not too slow.
    with connection(impatient_server) as raw:
        raw.sendall(head(len(body)) + body)
        answer = b""
        while not answer.endswith(b"]}]}"):
            time.sleep(0.02)
            answer += raw.recv(1 << 17)
        content = answer.partition(b"\r\n\r\n")[2]
        assert len(content) == int(re.search(rb"content-length: (\d+)", answer)[1]) > 1 << 21
        assert len(json.loads(content)["results"]) == 256
    assert still_answers(impatient_server)


def test_headers_without_end_are_refused(open_server):
    with connection(open_server) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\n")
        answer = b""
        with suppress(ConnectionError):
            for _ in range(10_000):
                raw.sendall(b"X-Header: " + b"x" * 1000 + b"\r\n")
        with suppress(ConnectionError):
            answer = raw.recv(1 << 16)
        assert not answer or answer.startswith(b"HTTP/1.1 431")
    assert still_answers(open_server)


def test_headers_just_too_large_are_told_so(open_server):
    with connection(open_server) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 65_536)
        answer = received(raw)
        assert answer.startswith(b"HTTP/1.1 431"), answer
        assert b"did not fit in 65,536 bytes" in answer


# ---------------------------------------------------------------------- contents


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b'{"text": "caf\xe9"}', 400, ["not text in UTF-8", "byte 14"]),
        (b'{"text": "a"', 400, ["not valid JSON", "character 12"]),
        (b"text=a", 400, ["not valid JSON"]),
        (b"", 422, ["The body is missing"]),
        (b"[" * 5000, 400, ["JSON"]),
        (b'{"top": ' + b"9" * 5000 + b"}", 400, ["not valid JSON"]),
        (b"[]", 422, ["The body must be a JSON object; found a list"]),
        (b"null", 422, ["The body"]),
        (b"{}", 422, ["Give text or texts; found neither"]),
        (b'{"text": "a", "texts": ["b"]}', 422, ["Give either text or texts; found both"]),
        (b'{"text": 3}', 422, ["text must be a string; found 3"]),
        (b'{"text": ["a"]}', 422, ["text must be a string; found a list"]),
        (b'{"texts": []}', 422, ["texts must not be empty"]),
        (b'{"texts": "a"}', 422, ["texts must be a list; found 'a'"]),
        (b'{"texts": ["a", null]}', 422, ["texts[1] must be a string; found null"]),
        (b'{"text": "a", "top": 0}', 422, ["top must be at least 1; found 0"]),
        (b'{"text": "a", "top": 101}', 422, ["top must be at most 100; found 101"]),
        (b'{"text": "a", "top": 2.5}', 422, ["top must be a whole number; found 2.5"]),
        (b'{"text": "a", "top": "many"}', 422, ["top must be a whole number; found 'many'"]),
        (b'{"text": "a", "threshold": -1}', 422, ["threshold must be at least 0; found -1"]),
        (b'{"text": "a", "threshold": NaN}', 422, ["threshold"]),
        (b'{"text": "a", "threshold": 1e999}', 422, ["threshold"]),
        (b'{"text": "a", "explain": 21}', 422, ["explain must be at most 20; found 21"]),
        (b'{"text": "a", "limit": 3}', 422, ["limit is not a field of this request", "/openapi.json"]),
        (b'{"text": 3, "top": 0}', 422, ["text must be a string; found 3. There is more to mend: 2 faults"]),
        (
            b'{"texts": ["' + b'", "'.join([b"a"] * 257) + b'"]}',
            422,
            ["257 texts", "may hold 256", "send them in parts"],
        ),
    ],
)
def test_what_is_wrong_with_a_body_is_said_in_a_sentence(open_server, content, status, words):
    assert problem(suggest(open_server, content), status, *words)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_must_be_json(open_server, content_type):
    response = suggest(open_server, b'{"text": "a"}', headers={"Content-Type": content_type})
    assert problem(response, 415, "Content-Type: application/json")


@pytest.mark.parametrize("limit", ["0", "1001"])
def test_numbers_of_an_address_are_shown_as_numbers(open_server, limit):
    found = httpx.get(f"{open_server}/v1/taggers/packages/tags", params={"limit": limit})
    assert problem(found, 422, "limit must be at ", f"; found {limit}.")


def test_addresses_that_lead_nowhere(open_server):
    assert problem(httpx.get(f"{open_server}/v2"), 404, "nothing at this address", "/openapi.json")
    assert problem(httpx.get(f"{open_server}/v1/taggers/packages/suggest"), 405, "use POST")
    assert problem(httpx.get(f"{open_server}/v1/taggers/"), 404, "nothing at this address")
    assert problem(httpx.get(f"{open_server}/v1/taggers/books"), 404, "There is no tagger 'books'; there is packages")
    strange = httpx.post(f"{open_server}/v1/taggers/{'x' * 500}%3Cb%3E/suggest", json={"text": "a"})
    assert problem(strange, 404, "There is no tagger")


def test_10_000_texts_and_a_text_of_10_megabytes(saved):
    with served(create_app({"packages": saved}, watch_seconds=0)) as url:
        assert problem(suggest(url, json.dumps({"texts": ["a text"] * 10_000})), 422, "10,000 texts", "may hold 256")
        assert problem(suggest(url, json.dumps({"text": "ten megabytes " * 750_000})), 413, "4,194,304 bytes")
        assert suggest(url, json.dumps({"text": "a fast web server " * 200_000}), timeout=60).status_code == 200
        assert still_answers(url)


def test_every_answer_has_the_headers_that_keep_a_browser_safe(open_server, keyed_server):
    for response in (suggest(open_server), httpx.get(f"{open_server}/nothing"), suggest(keyed_server)):
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
