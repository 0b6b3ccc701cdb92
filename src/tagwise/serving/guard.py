"""Checks of every request before routing: key, host name and size. Also counts requests.

FastAPI's dependencies were tried: they guard neither addresses without a route nor /openapi.json. Starlette's
TrustedHostMiddleware knows no IP addresses.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import logging
import math
import time
import traceback
from collections import deque

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tagwise.progress import counted
from tagwise.serving.errors import UNEXPECTED, problem
from tagwise.serving.monitoring import Monitoring
from tagwise.serving.options import ServingOptions

__all__ = ["Guard", "is_open"]

log = logging.getLogger("tagwise.serving")

# Many clients read an answer only after sending everything: up to this many times the limit is read and discarded.
_READ_AND_DROPPED = 16

# The page loads nothing from elsewhere, runs no inline script and is not framed.
_HEADERS = Headers(
    {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
).raw


class Guard:
    """Pure ASGI, around the whole application."""

    def __init__(self, app: ASGIApp, options: ServingOptions, monitoring: Monitoring) -> None:
        self._app, self._options, self._monitoring = app, options, monitoring
        self._requests: dict[str, deque[float]] = {key: deque() for key in options.keys}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, started = 0, time.perf_counter()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        headers = Headers(scope=scope)
        try:
            answer = self._refusal(scope["method"], scope["path"], headers) or self._app
            await answer(scope, self._limited(headers, receive), send_with_headers)
        except Exception as error:
            self._report(scope, error)
            if not status:
                await problem(500, UNEXPECTED)(scope, receive, send_with_headers)
        finally:
            if status:
                tagger, kind = self._counted_as(scope)
                self._monitoring.requests.labels(tagger, kind, str(status)).inc()
                self._monitoring.seconds.labels(tagger, kind).observe(time.perf_counter() - started)

    def _counted_as(self, scope: Scope) -> tuple[str, str]:
        """The tagger and the kind of a request, without made-up names."""
        given = scope.get("path_params", {}).values()
        tagger = next((name for name in given if name in self._options.taggers), "")
        return tagger, getattr(scope.get("endpoint"), "__name__", "none")

    def _report(self, scope: Scope, error: Exception) -> None:
        """Log an unexpected error, without its message unless texts may be logged: it may hold texts."""
        message = f": {error!r}" if self._options.log_texts else ""
        places = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
        log.error("%s ended with %s%s\n%s", self._counted_as(scope)[1], type(error).__name__, message, places)

    def _refusal(self, method: str, path: str, headers: Headers) -> Response | None:
        options, name = self._options, _host_name(headers.get("host", ""))
        if options.hosts is not None and name not in options.hosts and not _is_address(name):
            sentence = f"This server does not answer to the name {name!r:.100}; start it with --allow-host {name:.100}."
            return problem(421, sentence)
        if method == "POST" and _is_foreign(headers, options.hosts or ()):
            sentence = "This request comes from a page of another address; only pages of this server may send it."
            return problem(403, sentence)
        if not options.keys or is_open(path):
            return None
        given = _given_key(headers)
        found = [key for key in options.keys if hmac.compare_digest(key.encode(), given)]  # all: time tells nothing
        if not found:
            sentence = "A key is needed: send the header Authorization: Bearer KEY."
            if given:
                sentence = "The key is wrong; ask the operator of this server for one."
            return problem(401, sentence, {"WWW-Authenticate": "Bearer"})
        wait = self._seconds_to_wait(found[0]) if options.most_per_minute else 0
        if wait:
            sentence = f"This key may make {options.most_per_minute:,} requests per minute; try again in "
            return problem(429, f"{sentence}{counted(wait, 'second')}.", {"Retry-After": str(wait)})
        return None

    def _seconds_to_wait(self, key: str) -> int:
        """Admit a request of a key and return 0, or return the seconds to wait."""
        recent, now = self._requests[key], time.monotonic()
        while recent and recent[0] <= now - 60:
            recent.popleft()
        if len(recent) >= self._options.most_per_minute:
            return math.ceil(recent[0] + 60 - now)
        recent.append(now)
        return 0

    def _limited(self, headers: Headers, receive: Receive) -> Receive:
        """Receive a body of limited size; larger ones end the request with status 413."""
        most, size = self._options.most_bytes, 0
        sentence = f"The body has more than {most:,} bytes; send less at a time."
        too_large = HTTPException(413, sentence, {"Connection": "close"})
        announced = headers.get("content-length", "")

        async def limited() -> Message:
            nonlocal size
            if "expect" in headers and announced.isdecimal() and int(announced) > most:
                raise too_large  # the client has sent nothing yet: it waits to hear whether it may
            message = await receive()
            size += len(message.get("body", b""))
            if size <= most:
                return message
            while message.get("more_body") and size <= _READ_AND_DROPPED * most:
                message = await receive()
                size += len(message.get("body", b""))
            raise too_large

        return limited


def is_open(path: str) -> bool:
    """Whether a path needs no key: the page, which asks for one itself, and the health checks."""
    return path in ("/", "/healthz", "/readyz") or path.startswith("/page/")


def _host_name(host: str) -> str:
    """The name that a request is addressed to, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] or host


def _is_foreign(headers: Headers, names: tuple[str, ...]) -> bool:
    """Whether the request comes from a page of another server, according to the browser.

    Browsers send forms and texts to any address, whoever owns the page; only the answer is withheld from it. Clients
    that are not browsers have neither header.
    """
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "").strip().lower()
    if site in ("same-origin", "none") or not (site or origin):
        return False
    place = origin.partition("://")[2]
    name, host = _host_name(place), headers.get("host", "").strip().lower()
    # A proxy may pass the name on without the port.
    return not (place and (name in names or (not site and host in (place, name))))


def _is_address(name: str) -> bool:
    """Whether the host name cannot be rebound: ``localhost`` or an IP address.

    Otherwise a foreign page in a browser could query this server under its own name (DNS rebinding).
    """
    if name in ("", "localhost"):  # clients without the header are not browsers
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _given_key(headers: Headers) -> bytes:
    """A key, as a bearer token or as a password, for clients such as Annif that only accept a URL."""
    if key := headers.get("x-api-key", "").strip():
        return key.encode("latin-1")
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip().encode("latin-1")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(token.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return b""
