"""benchmarks/serving.py: both clients count alike, requests hold what they should, and the page says how many times."""

import importlib.util
import json
import shutil
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import serving_page

# By its path: the helpers of the tests have a module of this name too.
_found = importlib.util.spec_from_file_location("serving_benchmark", Path(serving_page.__file__).parent / "serving.py")
benchmark = importlib.util.module_from_spec(_found)
_found.loader.exec_module(benchmark)


class Handler(BaseHTTPRequestHandler):
    """Remembers what it was sent, and fails where that is asked for."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.seen.append((self.path, self.headers["content-type"], body))
        self.send_response(500 if b"fail" in body else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.seen = []
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("client", ["wrk", "coroutines"])
def test_clients_send_the_bodies_in_turn_and_count(server, client):
    if client == "coroutines":
        ask = benchmark.asked_by_coroutines
    else:
        wrk = shutil.which("wrk")
        if wrk is None:
            pytest.skip("wrk is not installed")

        def ask(*given):
            return benchmark.asked_by_wrk(wrk, *given)

    bodies = [b"text=a", b"text=b", b"text=fail"]
    found = ask(f"http://127.0.0.1:{server.server_port}/path?limit=1", bodies, benchmark.FORM, 2, 1)
    assert found["requests"] > 0
    assert 0 < found["p50"] <= found["p95"] <= found["p99"]
    assert {(path, kind) for path, kind, _ in server.seen} == {("/path?limit=1", benchmark.FORM)}
    sent = [body for _, _, body in server.seen]
    counts = Counter(sent)
    assert set(counts) <= set(bodies)
    assert max(counts.values()) - min(counts[body] for body in bodies) <= 2
    # Answers that were on their way at the end are not counted.
    assert found["requests"] <= len(sent) <= found["requests"] + 4
    assert abs(found["failed"] - found["requests"] / 3) <= 4


def test_requests_hold_the_texts():
    texts = [f"text {number} & ä" for number in range(65)]
    address, forms, kind = benchmark.requests_by("annif", "http://a", texts, 1)
    assert (address, kind) == ("http://a/v1/projects/debtags/suggest", benchmark.FORM)
    assert [parse_qs(form.decode()) for form in forms] == [{"text": [text], "limit": ["10"]} for text in texts]
    address, bodies, _ = benchmark.requests_by("annif", "http://a", texts, 32)
    assert address.endswith("/suggest-batch?limit=10")
    assert [[one["text"] for one in json.loads(body)["documents"]] for body in bodies] == [texts[:32], texts[32:64]]
    _, bodies, _ = benchmark.requests_by("own", "http://a", texts, 1)
    assert json.loads(bodies[0]) == {"text": texts[0], "top": 10}
    _, bodies, _ = benchmark.requests_by("own", "http://a", texts, 32)
    assert json.loads(bodies[1]) == {"texts": texts[32:64], "top": 10}
