"""Annif's REST API, version 1, for programs that talk to Annif: every tagger is one of its projects.

Paths, fields, statuses and the shapes of answers are those of Annif 1.4; its own tests against a running server are in
``tests/serving/test_annif_itself.py``. Fields without a counterpart in tagwise have fixed values: the language of a
project is ``und``, the code for undetermined, and any requested ``language`` is accepted; ``notation`` is null;
``metadata`` is ignored.

A subject is a tag under an address (:func:`uri_of`); its score is the probability of the tag.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, unquote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tagwise._version import __version__
from tagwise.serving.api import json_response
from tagwise.serving.errors import Route, documented
from tagwise.serving.service import Service
from tagwise.serving.taggers import Loaded, ServedTagger
from tagwise.text.suggestion import Request as Asked
from tagwise.text.suggestion import Suggestion

__all__ = ["URN", "annif_router_of", "tag_of", "uri_of"]

URN = "urn:tagwise:"
"""Prefix of the addresses of tags that are not addresses themselves."""

MOST_DOCUMENTS = 32
MOST_RESULTS = 1000

_FORM = "application/x-www-form-urlencoded"
_LANGUAGE = "und"
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*://|urn:[a-z0-9][a-z0-9-]*:)[^\s<>\"]+", re.IGNORECASE)


@lru_cache(1 << 16)
def uri_of(tag: str) -> str:
    """The address of a tag: itself if it is one (``https://…``, ``urn:…``), else ``urn:tagwise:`` and the tag.

    In the latter, all but letters and digits of ASCII and ``-._~:`` is written as ``%`` and the digits of its UTF-8.

    Examples
    --------
    >>> uri_of("web::server"), uri_of("böse Tiere"), uri_of("http://www.yso.fi/onto/yso/p1265")
    ('urn:tagwise:web::server', 'urn:tagwise:b%C3%B6se%20Tiere', 'http://www.yso.fi/onto/yso/p1265')
    """
    if _ADDRESS.fullmatch(tag) and not tag.startswith(URN):
        return tag
    return URN + quote(tag, safe=":", errors="replace")


def tag_of(uri: str) -> str:
    """The tag that has an address; the inverse of :func:`uri_of`."""
    return unquote(uri.removeprefix(URN)) if uri.startswith(URN) else uri


class _Choice(BaseModel):
    limit: int = Field(10, ge=0, description=f"Maximum number of subjects, up to {MOST_RESULTS:,}.")
    threshold: float = Field(0.0, ge=0, le=1, description="Minimum score of the subjects.")
    language: str | None = Field(None, description="Of labels; accepted and not used.")


class _Text(_Choice):
    text: str = Field(description="The text.", examples=["a fast web server with plugins"])


class Document(BaseModel):
    text: str = Field(examples=["a fast web server with plugins"])
    document_id: str | None = Field(None, examples=["doc-1"])
    metadata: dict[str, str] = Field(default_factory=dict)


class Documents(BaseModel):
    documents: list[Document] = Field(max_length=MOST_DOCUMENTS)


class Subject(BaseModel):
    uri: str = Field(min_length=1, max_length=10_000, examples=["urn:tagwise:web::server"])
    label: str | None = None


class IndexedDocument(BaseModel):
    text: str | None = Field(None, examples=["a fast web server with plugins"])
    subjects: list[Subject] | None = Field(None, max_length=1000)
    metadata: dict[str, str] = Field(default_factory=dict)


_RESULT = {"uri": "urn:tagwise:web::server", "label": "web::server", "notation": None, "score": 0.93}
_PROJECT = {
    "project_id": "packages",
    "name": "packages",
    "language": _LANGUAGE,
    "backend": {"backend_id": "tagwise"},
    "vocab": {"vocab_id": "packages", "languages": [_LANGUAGE], "size": 579, "loaded": True},
    "vocab_language": _LANGUAGE,
    "is_trained": True,
    "modification_time": "2026-01-31T12:00:00+00:00",
}


def annif_router_of(service: Service) -> APIRouter:
    """The routes of Annif's API."""
    router = APIRouter(prefix="/v1", tags=["Annif's API"], route_class=Route)
    about = {"title": "tagwise, by Annif's REST API", "version": __version__}
    refused = 400, 403, 404, 415, 422, 503

    @router.get("/", responses=documented(example=about))
    async def information() -> Response:
        """Name and version of the server."""
        return json_response(about)

    @router.get("/vocabs", responses=documented(example={"vocabs": [_PROJECT["vocab"]]}))
    async def vocabularies() -> Response:
        """The tags of each tagger as a vocabulary."""
        return json_response({"vocabs": [_described(one)["vocab"] for one in service.taggers.values()]})

    @router.get("/projects", responses=documented(example={"projects": [_PROJECT]}))
    async def projects() -> Response:
        """The taggers."""
        return json_response({"projects": [_described(one) for one in service.taggers.values()]})

    @router.get("/projects/{project_id}", responses=documented(404, example=_PROJECT))
    async def project(project_id: str) -> Response:
        """A tagger."""
        return json_response(_described(service.tagger(project_id)))

    async def suggested(project_id: str, texts: list[str], choice: _Choice) -> list[dict[str, Any]]:
        served, top = service.tagger(project_id), min(choice.limit, MOST_RESULTS)
        if not texts or not top:
            served.ready()
            return [{"results": []} for _ in texts]
        # Thresholds are applied here, so that requests with different ones are answered together.
        loaded, found = await served.ask(texts, Asked(top))
        return [{"results": _results(row, loaded, choice.threshold)} for row in found]

    @router.post(
        "/projects/{project_id}/suggest",
        responses=documented(*refused, example={"results": [_RESULT]}),
        openapi_extra={"requestBody": {"required": True, "content": {_FORM: {"schema": _Text.model_json_schema()}}}},
    )
    async def suggest(project_id: str, asked: Annotated[_Text, Depends(_form)]) -> Response:
        """Suggest tags for a text."""
        return json_response((await suggested(project_id, [asked.text], asked))[0])

    answers = documented(*refused, example=[{"results": [_RESULT], "document_id": "doc-1"}])

    @router.post("/projects/{project_id}/suggest-batch", responses=answers)
    async def suggest_batch(project_id: str, body: Documents, choice: Annotated[_Choice, Query()]) -> Response:
        """Suggest tags for up to 32 texts."""
        rows = await suggested(project_id, [one.text for one in body.documents], choice)
        return json_response([{**row, "document_id": one.document_id} for one, row in zip(body.documents, rows)])

    stored = documented(*refused, 507)

    @router.post("/projects/{project_id}/learn", status_code=204, response_class=Response, responses=stored)
    async def learn(project_id: str, documents: list[IndexedDocument]) -> Response:
        """Record the right tags as accepted; all others stay unknown."""
        served = service.tagger(project_id)
        answers = [
            {"text": one.text, "accepted": list(dict.fromkeys(_tag(subject.uri) for subject in one.subjects))}
            for one in documents
            if one.text is not None and one.subjects
        ]
        await service.keep(served, *answers)
        return Response(status_code=204)

    return router


async def _form(request: Request) -> _Text:
    """The fields of a form. FastAPI's own parser needs python-multipart, for file uploads that do not occur here."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != _FORM:
        raise HTTPException(415, f"The body is {given[:100] or 'of no type'!r}; send {_FORM}.")
    try:
        body = (await request.body()).decode()
        return _Text.model_validate(dict(parse_qsl(body, True, errors="strict", max_num_fields=1000)))
    except UnicodeDecodeError:
        raise HTTPException(400, "The body is not text in UTF-8.") from None
    except ClientDisconnect:  # no error of the server, to be logged as one
        raise HTTPException(400, "The body ended too early.") from None
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from None
    except ValueError:
        raise HTTPException(400, "The form has more than 1,000 fields.") from None


def _described(served: ServedTagger) -> dict[str, Any]:
    loaded = served.loaded
    vocabulary = {
        "vocab_id": served.name,
        "languages": [] if loaded is None else [_LANGUAGE],
        "size": None if loaded is None else len(loaded.tagger.tags_),
        "loaded": loaded is not None,
    }
    return {
        "project_id": served.name,
        "name": served.name,
        "language": _LANGUAGE,
        "backend": {"backend_id": "tagwise"},
        "vocab": vocabulary,
        "vocab_language": _LANGUAGE,
        "is_trained": loaded is not None,
        "modification_time": None if loaded is None else loaded.saved_at.isoformat(),
    }


def _results(row: list[Suggestion], loaded: Loaded, threshold: float) -> list[dict[str, Any]]:
    """Subjects with their probabilities, the best first.

    Without probabilities, 1 / (1 + e⁻ˢ) of the score s: in the same order, and 0.5 at the border.
    """
    found = [
        (one.tag, (1 + math.tanh(one.score / 2)) / 2 if one.probability is None else one.probability) for one in row
    ]
    return [
        {"uri": uri_of(tag), "label": loaded.names.get(tag, tag), "notation": None, "score": score}
        for tag, score in sorted(found, key=lambda one: -one[1])
        if score >= threshold
    ]


def _tag(uri: str) -> str:
    if not (tag := tag_of(uri)):
        raise HTTPException(400, f"uri: {uri!r} is the address of no tag.")
    return tag
