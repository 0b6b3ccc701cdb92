"""Servers for tests: an application in a thread of this process, and the command as a process of its own."""

import json
import logging
import os
import re
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import uvicorn
from commands import COMMAND

from tagwise import __version__

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
PATIENCE = 120
"""Seconds after which something that never comes is given up; no test waits so long for something that does."""

RECORD = "TAGWISE_RECORD"
"""The variable that names the file in which long runs note what they found (``make serving-runs``)."""


def record(case, outcomes, more=None):
    """Note what a long run without a fault has counted, where that is asked for; scripts/reliability.py shows it."""
    if RECORD not in os.environ:
        return
    path = Path(os.environ[RECORD])
    cases = json.loads(path.read_text())["cases"] if path.exists() else {}
    cases[case] = {"runs": sum(outcomes.values()), "outcomes": outcomes} | ({"more": more} if more else {})
    found = {"version": __version__, "seed": 0, "runs": sum(one["runs"] for one in cases.values())}
    path.write_text(json.dumps({**found, "findings": [], "cases": dict(sorted(cases.items()))}, indent=1) + "\n")


def until(happened, what="it"):
    """Wait for something that will happen soon, however busy the machine is; returns it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = happened()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {PATIENCE} seconds")


@contextmanager
def served(app):
    """The address of an application that is served by a thread."""
    logging.getLogger("uvicorn.access").disabled = True  # pytest listens to it although nobody else does
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        given = {"log_config": None, "access_log": False, "timeout_graceful_shutdown": 5, "timeout_keep_alive": 75}
        server = uvicorn.Server(uvicorn.Config(app, **given))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        until(lambda: server.started or not thread.is_alive(), "the start of the server")
        assert server.started, "the server did not start"
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


class ServerProcess:
    """``tagwise serve`` with these arguments, at a free port."""

    def __init__(self, *arguments, log, env=None):
        self.log = log
        self._stream = open(log, "ab")  # noqa: SIM115
        start = self._stream.tell()
        self.process = subprocess.Popen(
            [*COMMAND, "serve", *map(str, arguments), "--port", "0"],
            stdout=self._stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )

        def address():
            said = re.search(rb"running on (http://\S+)", log.read_bytes()[start:])
            assert said or self.process.poll() is None, log.read_text()
            return said and said[1].decode()

        try:
            self.url = until(address, "the start of the server")
            until(self._is_ready, "the first answer")
        except BaseException:
            self.kill()
            raise

    def _is_ready(self):
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/healthz").status_code == 200

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.kill(signal.SIGINT if self.process.poll() is None else None)

    def kill(self, number=KILL):
        """End it with all its processes."""
        if number is not None:
            with suppress(ProcessLookupError):
                self._send(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self._send(KILL)
            self.process.wait(PATIENCE)
        self._stream.close()

    def _send(self, number):
        if hasattr(os, "killpg"):
            os.killpg(self.process.pid, number)
        else:
            self.process.kill()
