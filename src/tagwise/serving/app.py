"""The ASGI application: all routes behind one guard."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import TypeAdapter
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from tagwise._version import __version__
from tagwise.serving.annif import annif_router_of
from tagwise.serving.api import router_of
from tagwise.serving.errors import handle_errors
from tagwise.serving.guard import Guard, is_open
from tagwise.serving.options import ServingOptions
from tagwise.serving.service import Service

__all__ = ["ENVIRONMENT", "OPTIONS", "create_app", "from_environment"]

ENVIRONMENT = "TAGWISE_SERVING_OPTIONS"
"""The variable that names the file in which worker processes find their options."""

OPTIONS = TypeAdapter(ServingOptions)
"""Writes and reads that file."""


def create_app(taggers: dict[str, str] | ServingOptions, **options: object) -> ASGIApp:
    """The application for any ASGI server.

    Unlike ``tagwise serve``, which without keys binds only to this machine and answers only to ``localhost``,
    it answers every request, under any host name: give ``keys``, or else ``hosts``.

    Parameters
    ----------
    taggers : dict of str to path, or ServingOptions
        Names to serve under → folders of taggers.
    **options
        Fields of :class:`ServingOptions`; by default there are no ``keys``, and any ``Host`` is answered to.
    """
    chosen = taggers if isinstance(taggers, ServingOptions) else ServingOptions(taggers, **options)  # type: ignore[arg-type]
    service = Service(chosen)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="tagwise",
        version=__version__,
        summary="Suggests a few tags out of very many, and learns from accepted and rejected tags.",
        lifespan=life,
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    if chosen.keys:
        _describe_keys(app)
    handle_errors(app)
    app.include_router(router_of(service))
    app.include_router(annif_router_of(service))
    page = StaticFiles(packages=[("tagwise.serving", "page"), ("tagwise.reports", "look")])
    app.mount("/page", page)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)

    return Guard(app, chosen, service.monitoring)


def _describe_keys(app: FastAPI) -> None:
    """Describe authentication in the OpenAPI description."""
    generated = app.openapi

    def openapi() -> dict[str, Any]:
        document = generated()
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": "One of the keys of --key-file."},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same key."},
        }
        document["security"] = [{"bearer": []}, {"header": []}]
        for path, operations in document["paths"].items():
            if is_open(path):
                for operation in operations.values():
                    operation["security"] = []
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def from_environment() -> ASGIApp:
    """The application of a worker process, which ends when the process that started it does."""
    path = Path(os.environ[ENVIRONMENT])
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        # A parent that is killed can neither stop its workers, which would keep its port, nor remove what they share.
        if parent is not None:
            parent.join()
            shutil.rmtree(path.parent, ignore_errors=True)
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    return create_app(OPTIONS.validate_json(path.read_bytes()))
