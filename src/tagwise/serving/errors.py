"""Errors as ``application/problem+json`` (RFC 9457): all errors that a request can end with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from tagwise.data.records import kind_of
from tagwise.exceptions import TagwiseError
from tagwise.serving.batches import BusyError

__all__ = ["UNEXPECTED", "Route", "documented", "handle_errors", "problem", "unavailable"]

MEDIA_TYPE = "application/problem+json"

UNEXPECTED = "Internal server error; see the server's log."
"""Message of an internal server error."""

_MEANINGS = {
    400: "The body cannot be read.",
    401: "The key is missing or wrong.",
    403: "The request comes from a page of another address, or feedback is switched off.",
    404: "There is no such tagger.",
    413: "The body is too large.",
    415: "The body is of another type.",
    421: "The request is addressed to another name.",
    422: "A field is missing or has a value that cannot be used.",
    429: "The key has made too many requests in this minute.",
    503: "No model is loaded, or too many requests wait; try again.",
    507: "The answer could not be stored; nothing was kept.",
}
_SCHEMA = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "The fault in a sentence, and the remedy."},
    },
    "required": ["title", "status", "detail"],
}
# Annif answers 400 where FastAPI says 422.
_ANNIF = "/v1/projects"


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """The response that says what is wrong."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    # A sentence may quote halves of surrogate pairs, which have no bytes in UTF-8.
    content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    return Response(content, status, None if headers is None else dict(headers), MEDIA_TYPE)


def unavailable(sentence: str) -> HTTPException:
    """The error for a request that may be retried shortly."""
    return HTTPException(503, sentence, {"Retry-After": "5"})


class Route(APIRoute):
    """A route whose docstring is its summary in the description of the API."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.summary = self.description.removesuffix(".")


def documented(*statuses: int, example: Any = None) -> dict[int | str, dict[str, Any]]:
    """Responses for OpenAPI: these statuses, and an example of a successful answer."""
    found: dict[int | str, dict[str, Any]] = {}
    if example is not None:
        found[200] = {"description": "The answer.", "content": {"application/json": {"example": example}}}
    for status in sorted({*statuses, 401, 413, 421, 429}):
        found[status] = {"description": _MEANINGS[status], "content": {MEDIA_TYPE: {"schema": _SCHEMA}}}
    return found


def handle_errors(app: FastAPI) -> None:
    """Answer every error of a request by such a response."""

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> Response:
        return problem(503, f"{error}; try again in a second.", {"Retry-After": "1"})

    @app.exception_handler(TagwiseError)
    async def refused(request: Request, error: TagwiseError) -> Response:
        return problem(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        faults = error.errors()
        first = faults[0]
        if first["type"] == "json_invalid":
            place = first["loc"][-1]
            return problem(400, f"The body is not valid JSON: {first['ctx']['error']} (character {place}).")
        if first["loc"] == ("body",) and isinstance(first.get("input"), bytes):
            found = request.headers.get("content-type") or "none"
            return problem(415, f"The body must be JSON, with Content-Type: application/json; found {found}.")
        more = f" {len(faults)} fields are wrong." if len(faults) > 1 else ""
        status = 400 if request.url.path.startswith(_ANNIF) else 422
        return problem(status, _sentence(first) + more)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        detail = str(error.detail)
        if error.status_code == 400 and error.__cause__ is not None:
            detail = f"The body cannot be read: {error.__cause__}."
        elif error.status_code == 404 and detail == HTTPStatus.NOT_FOUND.phrase:
            detail = "There is nothing at this address; /openapi.json describes the API."
        elif error.status_code == 405:
            detail = f"Method not allowed; use {(error.headers or {}).get('Allow', 'GET')}."
        return problem(error.status_code, detail, error.headers)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        return problem(500, UNEXPECTED)  # the guard logs it


def _sentence(fault: dict[str, Any]) -> str:
    """One of pydantic's errors, with the field and an excerpt of the value."""
    name = ""
    for part in fault["loc"][1:]:
        name += f"[{part}]" if isinstance(part, int) else f"{'.' if name else ''}{part[:60]}"
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    given = fault.get("input")
    short = isinstance(given, (int, float, str)) and not isinstance(given, bool) and len(repr(given)) <= 40
    found = "" if fault["type"] == "missing" else f"; found {repr(given) if short else kind_of(given)}"
    return f"{name or 'The body'}: {fault['msg'][0].lower()}{fault['msg'][1:]}{found}."
