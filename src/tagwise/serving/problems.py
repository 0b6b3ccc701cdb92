"""Errors as ``application/problem+json`` (RFC 9457), with the sentences that the command line has."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from tagwise.data.records import kind_of
from tagwise.exceptions import TagwiseError
from tagwise.progress import counted
from tagwise.serving.batches import BusyError

__all__ = [
    "MEDIA_TYPE",
    "UNEXPECTED",
    "Problem",
    "documented",
    "handle_problems",
    "problem_response",
    "sentence_of",
]

MEDIA_TYPE = "application/problem+json"

UNEXPECTED: tuple[int, str, dict[str, str]] = (500, "Something went wrong in the server; its log says where.", {})

_MEANINGS = {
    400: "The body is not JSON, or not text in UTF-8.",
    401: "The key is missing or wrong.",
    403: "The request comes from a page of another address, or feedback is switched off.",
    404: "There is no such tagger.",
    408: "The body took too long to arrive.",
    413: "The body is too large.",
    415: "The body is of another type.",
    421: "The request is addressed to another name.",
    422: "A field is missing or has a value that cannot be used.",
    429: "The key has made too many requests in this minute.",
    503: "No model is loaded, or too many requests wait; try again.",
    507: "The answer could not be stored; nothing was kept.",
}


class Problem(Exception):
    """Ends a request with a status and a sentence."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers
        self.title: str | None = None
        """In place of the name that HTTP has for the status."""


def problem_response(
    status: int, detail: str, headers: dict[str, str] | None = None, title: str | None = None
) -> Response:
    """The response that says what is wrong."""
    body = {"type": "about:blank", "title": title or HTTPStatus(status).phrase, "status": status, "detail": detail}
    # What was found may hold halves of surrogate pairs, which have no bytes in UTF-8.
    return Response(json.dumps(body, ensure_ascii=False).encode(errors="replace"), status, headers, MEDIA_TYPE)


def documented(*statuses: int, example: Any = None) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says about these statuses, and an example of what is answered if all is well."""
    schema = {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "A sentence that says what was found and what to do."},
        },
        "required": ["title", "status", "detail"],
    }
    found: dict[int | str, dict[str, Any]] = {}
    if example is not None:
        found[200] = {"description": "The answer.", "content": {"application/json": {"example": example}}}
    for status in sorted({*statuses, 401, 408, 413, 421, 429}):
        found[status] = {"description": _MEANINGS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
    return found


def handle_problems(app: FastAPI) -> None:
    """Let every error of a request become such a response."""

    @app.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        return problem_response(error.status, error.detail, error.headers, error.title)

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> Response:
        return problem_response(503, f"{error}; try again in a second.", {"Retry-After": "1"})

    @app.exception_handler(TagwiseError)
    async def refused(request: Request, error: TagwiseError) -> Response:
        return problem_response(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        faults = error.errors()
        first = faults[0]
        if first["type"] == "json_invalid":
            place = first["loc"][-1]
            return problem_response(400, f"The body is not valid JSON: {first['ctx']['error']} (character {place}).")
        if first["loc"] == ("body",) and isinstance(first.get("input"), bytes):
            found = request.headers.get("content-type") or "none"
            return problem_response(415, f"The body must be JSON, with Content-Type: application/json; found {found}.")
        more = f" There is more to mend: {len(faults)} faults." if len(faults) > 1 else ""
        return problem_response(422, sentence_of(first) + more)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers) if error.headers else {}
        detail = str(error.detail)
        if error.status_code == 400 and isinstance(error.__cause__, UnicodeDecodeError):
            detail = f"The body is not text in UTF-8: byte {error.__cause__.start + 1:,} cannot be read."
        elif error.status_code == 400 and isinstance(error.__cause__, RecursionError):
            detail = "The JSON of the body is nested too deeply."
        elif error.status_code == 400 and isinstance(error.__cause__, ValueError):
            detail = f"The body is not valid JSON: {error.__cause__}."
        elif error.status_code == 404 and detail == HTTPStatus.NOT_FOUND.phrase:
            detail = "There is nothing at this address; /openapi.json describes what there is."
        elif error.status_code == 405:
            detail = f"{request.method} is not possible at this address; use {headers.get('Allow', 'another method')}."
        return problem_response(error.status_code, detail, headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return problem_response(*UNEXPECTED)  # the guard logs it


# What a field must be, by the type of pydantic's error.
_MUST_BE = {
    "string_type": "a string",
    "list_type": "a list",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "model_type": "a JSON object",
    "model_attributes_type": "a JSON object",
    "dict_type": "a JSON object",
}


def sentence_of(fault: dict[str, Any]) -> str:
    """One of pydantic's errors as a sentence that names the field, what was found and what to do."""
    kind, given, limits = fault["type"], fault.get("input"), fault.get("ctx", {})
    name = _field(fault["loc"])
    if kind in _MUST_BE:
        return f"{name} must be {_MUST_BE[kind]}; found {_shown(given)}."
    if kind == "missing":
        return f"{name} is missing; /openapi.json has an example."
    if kind == "extra_forbidden":
        return f"{name} is not a field of this request; /openapi.json lists them. Remove it, or mend its name."
    if kind in ("greater_than_equal", "less_than_equal"):
        side, limit = ("least", limits["ge"]) if "ge" in limits else ("most", limits["le"])
        # Numbers of an address or a form are text.
        found = f"{given:.40}" if isinstance(given, str) else _shown(given)
        return f"{name} must be at {side} {limit:g}; found {found}."
    if kind in ("string_too_short", "too_short"):
        return f"{name} must not be empty."
    if kind in ("string_too_long", "too_long"):
        unit = "character" if kind == "string_too_long" else "entry"
        there, most = len(given or ""), limits["max_length"]
        many = counted(there, unit) if unit == "character" else f"{there:,} entries"
        return f"{name} has {many}; at most {most:,} are allowed."
    if kind == "value_error":
        return str(limits.get("error", fault["msg"]))
    return f"{name}: {fault['msg']}."


def _field(place: tuple[str | int, ...]) -> str:
    """Where in a request: ``texts[3]``."""
    name = ""
    for part in place[1:]:
        name += f"[{part}]" if isinstance(part, int) else f"{'.' if name else ''}{part[:60]}"
    return name or "The body"


def _shown(value: Any) -> str:
    """What was found, in a few characters."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value!r:.40}"
    return f"{value!r:.40}" if isinstance(value, str) and len(value) <= 30 else kind_of(value)
