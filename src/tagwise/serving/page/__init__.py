"""The page at ``/``: files that are served as they are."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tagwise.serving.problems import Problem

__all__ = ["page_routes"]

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def page_routes() -> APIRouter:
    """The routes of the page and of its parts, all of them in memory: no path of a request is one of the disk."""
    found = {part.name: part.read_bytes() for part in files(__name__).iterdir() if _kind(part.name) in _TYPES}
    # The colours and the type of the reports.
    found["look.css"] = files("tagwise.reports").joinpath("look.css").read_bytes()
    marks = {name: f'"{hashlib.sha256(content).hexdigest()[:16]}"' for name, content in found.items()}
    router = APIRouter(include_in_schema=False)

    def answer(name: str, request: Request) -> Response:
        if name not in found:
            raise Problem(404, f"The page has no part {name[:100]!r}.")
        headers = {"ETag": marks[name], "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == marks[name]:
            return Response(status_code=304, headers=headers)
        return Response(found[name], headers=headers, media_type=_TYPES[_kind(name)])

    @router.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return answer("index.html", request)

    @router.api_route("/page/{name}", methods=["GET", "HEAD"])
    async def part(name: str, request: Request) -> Response:
        return answer(name, request)

    return router


def _kind(name: str) -> str:
    return name.rpartition(".")[2]
