"""Connections to uvicorn with limits that no application can set: on headers, and on clients that do not read."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tagwise.serving.problems import problem_response

__all__ = ["Connection"]

SECONDS = 10.0
"""For the headers of a request to arrive, from its first byte; for the first request, from the connection."""
MOST_BYTES = 1 << 16
LEAST_READ = 1 << 16
"""Bytes of its answer that a client must read in that time, if so many are left."""


class Connection(HttpToolsProtocol):
    """Ends with status 408, 431 or 400 where the headers of a request come too slowly, are too large or are none.

    It is cut where the client does not read its answer, which would stay in memory for as long as the client likes.
    """

    _is_awaited, _n_bytes = True, 0
    _timer: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The client has connected."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(SECONDS, self._end, 408, _late())

    def data_received(self, data: bytes) -> None:
        """Some bytes came, of headers or of a body."""
        super().data_received(data)
        if not self._is_awaited:
            return
        self._n_bytes += len(data)
        if self._n_bytes > MOST_BYTES:
            self._end(431, f"The headers of the request did not fit in {MOST_BYTES:,} bytes.")
        elif self._timer is None:
            self._timer = self.loop.call_later(SECONDS, self._end, 408, _late())

    def on_message_begin(self) -> None:
        """A request starts."""
        self._is_awaited, self._n_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        self._stop_waiting()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """What came is not HTTP."""
        self._end(400, "These bytes are no request of HTTP/1.1.")

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More of an answer is left than the system takes."""
        super().pause_writing()
        self._watch_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client has read nearly all."""
        self._stop_watching()
        super().resume_writing()

    def _watch_reading(self, left: int) -> None:
        def look() -> None:
            now = self.transport.get_write_buffer_size()
            if now > left - LEAST_READ:
                self.transport.abort()
            else:
                self._watch_reading(now)

        self._reading = self.loop.call_later(SECONDS, look)

    def _stop_watching(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _stop_waiting(self) -> None:
        self._is_awaited = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, status: int, sentence: str) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # else these bytes would be in the midst of an answer
            answer = problem_response(status, sentence, {"Connection": "close"})
            lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
            lines += [f"{name.decode()}: {value.decode()}" for name, value in answer.raw_headers]
            self.transport.write("\r\n".join([*lines, "", ""]).encode() + bytes(answer.body))
        self.transport.close()


def _late() -> str:
    return f"The headers of the request did not arrive within {SECONDS:g} seconds."
