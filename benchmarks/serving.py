"""Requests per second and latencies of `tagwise serve` beside Annif's own server, in one run; needs TAGWISE_DATA.

    TAGWISE_DATA=... python benchmarks/serving.py [--quick] [--workers 1 2] [--models FOLDER] [--pages-only]

Both learn from the training texts of debtags: tagwise by its defaults, Annif by its Omikuji backend with a stemmer of
English. Each server gets the same texts of the test set, one after the other over every connection: single ones and 32
at a time. tagwise is asked by Annif's API, with the very same bytes, and by its own. Clients are those of wrk where it
is installed, else coroutines of this process; they run on the same machine, and take their part of its cores. Both
servers are up and take turns, of which the fastest counts. CPU time is that of the server's processes alone. Annif is
installed into an environment of its own, outside the repository. Writes results/serving.json, and from it
results/serving.md and a table of docs/serving.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from annif import Annif
from machine import description
from pages import replace_between, store
from serving_page import BEGIN, END, page, table

from tagwise import Tagger
from tagwise.data import load_dataset
from tagwise.serving.annif import tag_of

RESULTS = Path(__file__).parent / "results"
DOCUMENT = Path(__file__).parents[1] / "docs" / "serving.md"
DATASET = "debtags"
NAME = "debtags"
CONNECTIONS = (1, 16, 64)
TEXTS = (1, 32)
TOP = 10
ASKED_TEXTS = 2048
# For a server to load its model and answer.
LONGEST_START = 300
_TICKS = os.sysconf("SC_CLK_TCK")

# Who is asked, by which API.
ASKED = (("annif", "annif"), ("tagwise", "annif"), ("tagwise", "own"))

FORM, JSON = "application/x-www-form-urlencoded", "application/json"


def rows_of(part: str, most: int | None) -> tuple[list[str], list[list[str]]]:
    """Texts and tags of the training or the test rows."""
    data = load_dataset(DATASET)
    texts, Y = getattr(data, f"texts_{part}"), getattr(data, f"Y_{part}")
    tags = [[data.label_names[label] for label in Y.indices[a:b]] for a, b in zip(Y.indptr, Y.indptr[1:])]
    return texts[:most], tags[:most]


# ---------------------------------------------------------------------- servers


class Server:
    """A process that serves, with those that it starts."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self._process = subprocess.Popen(command, start_new_session=True, **options)

    def wait_for(self, address: str) -> None:
        """Until it answers there."""
        last = time.monotonic() + LONGEST_START
        while time.monotonic() < last:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with code {self._process.returncode} before it answered")
            try:
                with urllib.request.urlopen(address, timeout=10):
                    return
            except (OSError, urllib.error.HTTPError):
                time.sleep(0.1)
        raise RuntimeError(f"{address} does not answer")

    def usage(self) -> tuple[float, int]:
        """CPU seconds so far, and bytes of memory; pages that processes share count once."""
        seconds, size = 0.0, 0
        for entry in Path("/proc").iterdir():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if not entry.name.isdigit() or int(fields[3]) != self._process.pid:
                    continue
                seconds += (int(fields[11]) + int(fields[12])) / _TICKS
                lines = (entry / "smaps_rollup").read_text().splitlines()
                size += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
            except (OSError, IndexError, ValueError):
                continue
        return seconds, size

    def settle(self) -> None:
        """Wait until it has done what clients asked for that have gone since."""
        for _ in range(LONGEST_START):
            before = self.usage()[0]
            time.sleep(0.5)
            if self.usage()[0] - before < 0.05:
                return

    def stop(self) -> None:
        """End it and wait."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@contextmanager
def serving(command: Sequence[str], ready: str, **options: Any) -> Iterator[Server]:
    """A server that answers, until the end of the block."""
    server = Server(command, **options)
    try:
        server.wait_for(ready)
        yield server
    finally:
        server.stop()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


# ---------------------------------------------------------------------- clients

WRK = """
local bodies, requests, place = {}, {}, 0
for line in io.lines(os.getenv("BODIES")) do bodies[#bodies + 1] = line end
wrk.method = "POST"
wrk.headers["Content-Type"] = os.getenv("BODY_TYPE")
function request()
  place = place % #bodies + 1
  requests[place] = requests[place] or wrk.format(nil, nil, nil, bodies[place])
  return requests[place]
end
function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format('\\nFIGURES {"requests": %d, "seconds": %f, "p50": %f, "p95": %f, "p99": %f, "failed": %d}\\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, latency:percentile(99) / 1e3,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


def asked_by_wrk(wrk: str, address: str, bodies: list[bytes], kind: str, connections: int, seconds: float) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        script, lines = Path(folder, "requests.lua"), Path(folder, "bodies")
        script.write_text(WRK)
        lines.write_bytes(b"\n".join(bodies))
        limits = ["-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "60s"]
        done = subprocess.run(
            [wrk, *limits, "-s", str(script), address],
            env={**os.environ, "BODIES": str(lines), "BODY_TYPE": kind},
            capture_output=True,
            text=True,
            check=True,
        )
    return json.loads(done.stdout.rpartition("FIGURES ")[2])


def asked_by_coroutines(address: str, bodies: list[bytes], kind: str, connections: int, seconds: float) -> dict:
    """As wrk does: every connection sends its next request when it has the answer to the last."""
    where = urlsplit(address)
    path = f"{where.path}?{where.query}" if where.query else where.path
    head = f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: {kind}\r\nContent-Length: "
    requests = cycle([f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies])
    times: list[float] = []
    failed = 0

    async def client(end: float) -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        while (start := time.perf_counter()) < end:
            writer.write(next(requests))
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answer.partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            times.append(time.perf_counter() - start)
            failed += not answer.startswith(b"http/1.1 200")
        writer.close()

    async def all_clients() -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(client(end) for _ in range(connections)))

    start = time.perf_counter()
    asyncio.run(all_clients())
    took = time.perf_counter() - start
    times.sort()
    percentiles = {f"p{p}": 1e3 * times[min(len(times) - 1, len(times) * p // 100)] for p in (50, 95, 99)}
    return {"requests": len(times), "seconds": took, **percentiles, "failed": failed}


def asked(address: str, bodies: list[bytes], kind: str, connections: int, seconds: float) -> dict[str, Any]:
    wrk = shutil.which("wrk")
    if wrk is None:
        return asked_by_coroutines(address, bodies, kind, connections, seconds)
    return asked_by_wrk(wrk, address, bodies, kind, connections, seconds)


# ---------------------------------------------------------------------- what is asked


def requests_by(api: str, base: str, texts: Sequence[str], size: int) -> tuple[str, list[bytes], str]:
    """Address, bodies and their type, for ``size`` texts per request."""
    parts = [texts[start : start + size] for start in range(0, len(texts) - size + 1, size)]
    if api == "own":
        bodies = [json.dumps({"text": part[0]} if size == 1 else {"texts": part}) for part in parts]
        bodies = [f'{body[:-1]}, "top": {TOP}}}' for body in bodies]
        return f"{base}/v1/taggers/{NAME}/suggest", [body.encode() for body in bodies], JSON
    if size == 1:
        forms = [urlencode({"text": part[0], "limit": TOP}).encode() for part in parts]
        return f"{base}/v1/projects/{NAME}/suggest", forms, FORM
    documents = [json.dumps({"documents": [{"text": text} for text in part]}).encode() for part in parts]
    return f"{base}/v1/projects/{NAME}/suggest-batch?limit={TOP}", documents, JSON


def precision(base: str, texts: Sequence[str], tags: Sequence[Sequence[str]]) -> dict[str, float]:
    """P@1 and P@5 of what Annif's API answers."""
    address, bodies, kind = requests_by("annif", base, texts, 32)
    hits = {1: 0, 5: 0}
    for number, body in enumerate(bodies):
        request = urllib.request.Request(address, body, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=300) as answer:
            rows = json.load(answer)
        for row, right in zip(rows, islice(tags, 32 * number, None)):
            found = [tag_of(one["uri"]) in right for one in row["results"]]
            for k in hits:
                hits[k] += sum(found[:k])
    return {f"P@{k}": count / (k * 32 * len(bodies)) for k, count in hits.items()}


def measured(server: Server, base: str, api: str, texts: Sequence[str], cell: tuple[int, int, float]) -> dict:
    """One line of the table: texts per request, connections, seconds; twice as many for several texts."""
    size, connections, seconds = cell
    address, bodies, kind = requests_by(api, base, texts, size)
    before = server.usage()[0]
    found = asked(address, bodies, kind, connections, seconds if size == 1 else 2 * seconds)
    cpu = server.usage()[0] - before
    server.settle()
    return {
        "api": api,
        "texts": size,
        "connections": connections,
        "requests_per_second": found["requests"] / found["seconds"],
        **{name: found[name] for name in ("p50", "p95", "p99")},
        "cpu_ms": 1e3 * cpu / max(1, found["requests"]),
        "failed": found["failed"],
    }


# ---------------------------------------------------------------------- run


def trained_tagwise(folder: Path, texts: list[str], tags: list[list[str]]) -> Path:
    if not folder.exists():
        Tagger(n_jobs=-1).fit(texts, tags).save(folder)
    return folder


def trained_annif(folder: Path, texts: list[str], tags: list[list[str]]) -> Annif:
    done = folder / "done"
    annif = Annif(folder)
    if not done.exists():
        corpus = annif.corpus("training.tsv", texts, tags)
        learnt = annif.learn_sentences(corpus)
        settings = {"backend": "omikuji", "analyzer": "snowball(english)"}
        annif.set_up(sorted({tag for row in tags for tag in row}), {NAME: settings})
        annif.run("train", NAME, corpus)
        done.write_text("sentences learnt" if learnt else "sentences fetched")
    return annif


@contextmanager
def tagwise_server(folder: Path, workers: int) -> Iterator[tuple[Server, str]]:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "tagwise", "serve", f"{NAME}={folder}", "--port", str(port)]
    with serving([*command, "--workers", str(workers)], f"{base}/readyz") as server:
        yield server, base


@contextmanager
def annif_server(annif: Annif, workers: int) -> Iterator[tuple[Server, str]]:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    command = annif.server(port, workers)
    with serving(command, f"{base}/v1/projects", cwd=annif.folder, env=annif.environment) as server:
        yield server, base


def run(report: dict[str, Any], options: argparse.Namespace, path: Path, models: Path) -> None:
    """Both servers are up, and are asked in turn for every line of the table, so that both meet the same machine."""
    rows = rows_of("train", 2000 if options.quick else None)
    test_texts, test_tags = rows_of("test", ASKED_TEXTS)
    tagger, annif = trained_tagwise(models / NAME, *rows), trained_annif(models / "annif", *rows)
    report |= {
        "machine": description(),
        "versions": {one: annif.version(one) for one in ("annif", "omikuji")},
        "sentences_learnt": (annif.folder / "done").read_text() == "sentences learnt",
        "client": "wrk" if shutil.which("wrk") else "coroutines",
        "seconds": options.seconds,
        "turns": options.turns,
        "rows": len(rows[0]),
        "tags": len({tag for row in rows[1] for tag in row}),
        "load": [],
        "servers": [],
    }
    for workers in options.workers:
        with annif_server(annif, workers) as peer, tagwise_server(tagger, workers) as own:
            both = {"annif": peer, "tagwise": own}
            found: dict[str, Any] = {}
            for name, (_, base) in both.items():
                found[name] = {
                    "server": name,
                    "workers": workers,
                    **precision(base, test_texts, test_tags),
                    "cells": [],
                }
            for size, connections in product(TEXTS, CONNECTIONS):
                cell = (size, connections, options.seconds)
                turns: dict[tuple[str, str], list[dict]] = {pair: [] for pair in ASKED}
                for _ in range(options.turns):
                    for name, api in ASKED:
                        turns[name, api].append(measured(*both[name], api, test_texts, cell))
                report["load"].append(os.getloadavg()[0])
                for (name, _), cells in turns.items():
                    found[name]["cells"].append(max(cells, key=lambda one: one["requests_per_second"]))
                    print(workers, name, json.dumps(found[name]["cells"][-1]), file=sys.stderr, flush=True)
            for name, (server, _) in both.items():
                report["servers"].append({**found[name], "bytes": server.usage()[1]})
        store(path, report)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of a turn")
    parser.add_argument("--turns", type=int, default=3, help="of which the fastest counts")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="processes of a server")
    parser.add_argument(
        "--models", type=Path, metavar="FOLDER", help="keep the models, and train only what is not there"
    )
    parser.add_argument("--quick", action="store_true", help="little training, to see that all of it runs")
    parser.add_argument("--pages-only", action="store_true", help="make the page from the stored JSON")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of all files that are written")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seconds, options.turns = min(options.seconds, 1.0), 1
        options.out = options.out or Path(tempfile.mkdtemp(prefix="tagwise-serving-"))
    path = (options.out or RESULTS) / "serving.json"
    report = json.loads(path.read_text()) if path.exists() else {}
    if not options.pages_only:
        with tempfile.TemporaryDirectory(prefix="tagwise-serving-") as scratch:
            run(report, options, path, options.models or Path(scratch))
    path.with_suffix(".md").write_text(page(report), encoding="utf-8")
    if options.out is None:
        replace_between(DOCUMENT, BEGIN, END, table(report))
    print(page(report))


if __name__ == "__main__":
    main()
