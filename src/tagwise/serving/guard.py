"""What every request passes first: who asks, how often, how much, and how long the body takes to arrive.

It also counts every request with the status of its answer, and is the last to hear of an error that nobody expected.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import logging
import math
import time
import traceback
from typing import TypeAlias

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tagwise.progress import counted
from tagwise.serving.monitoring import Monitoring
from tagwise.serving.options import ServingOptions
from tagwise.serving.problems import UNEXPECTED, problem_response
from tagwise.serving.processes import RecentRequests

__all__ = ["Guard", "is_open"]

log = logging.getLogger("tagwise.serving")

# What anybody may read: whether the server lives, and the page, which asks for a key itself.
_OPEN = frozenset({"/", "/healthz", "/readyz"})
_OPEN_PREFIX = "/page/"
# Many clients look for an answer only when all is sent. So many times the limit is read and thrown away for them.
_READ_AND_DROPPED = 16
_CLOSE = {"Connection": "close"}

# The page loads nothing from elsewhere, runs no inline script and is not framed.
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]

# Status, sentence and headers of an answer that ends a request.
Refusal: TypeAlias = tuple[int, str, dict[str, str]]


class _GoneError(Exception):
    """The client has gone before its body had arrived."""


class Guard:
    """Pure ASGI: the body is read here, within its limits, and passed on whole."""

    def __init__(self, app: ASGIApp, options: ServingOptions, monitoring: Monitoring) -> None:
        self._app, self._options, self._monitoring = app, options, monitoring
        self._keys = [key.encode() for key in options.keys]
        most = options.most_per_minute
        self._recent = RecentRequests(len(self._keys), most, options.shared) if self._keys and most else None

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

        try:
            headers = dict(scope["headers"])
            body, refusal = b"", self._refusal(scope["method"], scope["path"], headers)
            if refusal is None:
                body, refusal = await self._body(headers, receive)
                started = time.perf_counter()
            if refusal is None:
                await self._app(scope, _replaying(body, receive), send_with_headers)
            else:
                await problem_response(*refusal)(scope, receive, send_with_headers)
        except _GoneError:
            return
        except Exception as error:
            self._report(scope, error)
            if not status:
                await problem_response(*UNEXPECTED)(scope, receive, send_with_headers)
        finally:
            if status:
                self._monitoring.count(*self._counted_as(scope), status, time.perf_counter() - started)

    def _counted_as(self, scope: Scope) -> tuple[str, str]:
        """The tagger and the kind of a request; names that strangers make up are not among them."""
        given = scope.get("path_params", {}).values()
        tagger = next((name for name in given if name in self._options.taggers), "")
        return tagger, getattr(scope.get("endpoint"), "__name__", "none")

    def _report(self, scope: Scope, error: Exception) -> None:
        """Log an error that nobody expected; its message may hold texts, and is left out unless texts are logged."""
        message = f": {error!r}" if self._options.log_texts else ""
        places = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
        log.error("%s ended with %s%s\n%s", self._counted_as(scope)[1], type(error).__name__, message, places)

    def _refusal(self, method: str, path: str, headers: dict[bytes, bytes]) -> Refusal | None:
        host = headers.get(b"host", b"")
        name = _host_name(host)
        if self._options.hosts is not None and name not in self._options.hosts and not _is_address(name):
            sentence = f"This server does not answer to the name {name!r:.100}; start it with --allow-host {name:.100}."
            return 421, sentence, {}
        if method == "POST" and _is_foreign(headers, host, self._options.hosts or ()):
            sentence = "This request comes from a page of another address; only pages of this server may send it."
            return 403, sentence, {}
        if not self._keys or is_open(path):
            return None
        given = headers.get(b"x-api-key", b"").strip()
        if not given:
            given = _given_key(headers.get(b"authorization", b""))
        found = None
        for number, key in enumerate(self._keys):  # all of them, so that the time does not tell which
            if hmac.compare_digest(key, given):
                found = number
        if found is None:
            sentence = "A key is needed: send the header Authorization: Bearer KEY."
            if given:
                sentence = "The key is wrong; ask whoever runs this server for one."
            return 401, sentence, {"WWW-Authenticate": "Bearer"}
        wait = 0 if self._recent is None else math.ceil(self._recent.wait(found))
        if wait:
            most = self._options.most_per_minute
            sentence = f"This key may make {most:,} requests per minute; try again in {counted(wait, 'second')}."
            return 429, sentence, {"Retry-After": str(wait)}
        return None

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> tuple[bytes, Refusal | None]:
        """The body, or why there is none; raises _GoneError where the client has gone."""
        limit = self._options
        too_large: Refusal = (413, f"The body has more than {limit.most_bytes:,} bytes; send less at a time.", _CLOSE)
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit.most_bytes and b"expect" in headers:
            return b"", too_large  # the client has sent nothing yet: it waits to hear whether it may
        with anyio.move_on_after(limit.body_seconds):
            body = await _whole_body(receive, limit.most_bytes)
            return (b"", too_large) if body is None else (body, None)
        sentence = f"The body did not arrive within {limit.body_seconds:g} seconds; send it faster, or in parts."
        return b"", (408, sentence, _CLOSE)


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in _OPEN or path.startswith(_OPEN_PREFIX)


def _host_name(header: bytes) -> str:
    """The name that a request is addressed to, without its port."""
    host = header.decode("latin-1").strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] or host


def _is_foreign(headers: dict[bytes, bytes], host: bytes, names: tuple[str, ...]) -> bool:
    """Whether a browser says that the request is made by a page of another server.

    Browsers send forms and texts to any address, whoever owns the page; only the answer is withheld from it. Clients
    that are not browsers have neither header.
    """
    site, origin = headers.get(b"sec-fetch-site", b""), headers.get(b"origin", b"").strip().lower()
    if site in (b"same-origin", b"none"):
        return False
    place = origin.partition(b"://")[2]
    if place and _host_name(place) in names:
        return False
    # A proxy may pass the name on without the port.
    own = host.strip().lower()
    same = place == own or (place != b"" and _host_name(place) == own.decode("latin-1"))
    return bool(site) or (bool(origin) and not same)


def _is_address(name: str) -> bool:
    """Whether it leads to the same machine for everybody: no stranger can make a name of theirs lead here.

    A page from elsewhere that is open in a browser could otherwise ask this server, under a name of its own.
    """
    if name in ("", "localhost"):  # clients without the header are not browsers
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _given_key(authorization: bytes) -> bytes:
    """The token of a bearer, or a password: for clients, such as Annif, of which only the address can be chosen."""
    scheme, _, token = authorization.partition(b" ")
    if scheme.lower() == b"bearer":
        return token.strip()
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(token.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return b""


async def _whole_body(receive: Receive, most: int) -> bytes | None:
    """The body; None where it has more bytes than that."""
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= _READ_AND_DROPPED * most:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        part = message.get("body", b"")
        size += len(part)
        if size <= most:
            parts.append(part)
        else:
            parts.clear()
        more = message.get("more_body", False)
    return b"".join(parts) if size <= most else None


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Gives the body once, then whatever comes."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replayed
