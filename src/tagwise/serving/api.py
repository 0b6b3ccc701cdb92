"""The API of tagwise itself, version 1: suggestions, feedback, and what is served."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException

from tagwise.serving.errors import documented
from tagwise.serving.feedback import Tally
from tagwise.serving.service import Service
from tagwise.serving.taggers import Loaded, ServedTagger
from tagwise.text.features import places_of
from tagwise.text.suggestion import Request, Suggestion

__all__ = ["json_response", "router_of"]

MOST_PLACES = 200
"""Places of one word in an answer. A browser lights up thousands of words without a pause, but not more."""

# Tags and words of an answer that take no longer to write than a thread takes to start.
_FEW = 2000

TaggerName = Annotated[str, Path(description="The name of a tagger.", examples=["packages"])]
Tags = Annotated[list[Annotated[str, Field(min_length=1, max_length=1000)]], Field(max_length=1000)]


class SuggestRequest(BaseModel):
    """One text, or several."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"text": "a fast web server with plugins", "top": 5, "explain": 3}]},
    )

    text: str | None = Field(None, description="One text.")
    texts: list[str] | None = Field(None, description="Up to 256 texts, in place of text.", min_length=1)
    top: int = Field(5, ge=1, le=100, description="At most so many tags per text.")
    threshold: float | None = Field(None, ge=0, le=1, description="Only tags of at least this probability.")
    explain: int = Field(0, ge=0, le=20, description="So many words per tag that speak for it.")
    places: bool = Field(
        False,
        description="Also say where in the text these words are: starts and ends, in characters, of the first "
        f"{MOST_PLACES} of each.",
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> SuggestRequest:
        if (self.text is None) == (self.texts is None):
            found = "both" if self.texts else "neither"
            raise ValueError(f"Give either text or texts; found {found}.")
        return self


class FeedbackRequest(BaseModel):
    """Answers on the tags of a text."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"text": "a fast web server", "accepted": ["web::server"], "rejected": ["game::arcade"]}]
        },
    )

    text: str | None = Field(None, description="The text.")
    id: str | None = Field(None, max_length=1000, description="Of a row that training knows, beside or without text.")
    accepted: Tags = Field(default_factory=list, description="Tags that are right.")
    rejected: Tags = Field(default_factory=list, description="Tags that are wrong.")
    withdrawn: Tags = Field(default_factory=list, description="Tags whose earlier answers no longer count.")

    @model_validator(mode="after")
    def _of_something(self) -> FeedbackRequest:
        if self.text is None and self.id is None:
            raise ValueError("Give text, id or both, so that it is known what the answer is about.")
        accepted, rejected, withdrawn = set(self.accepted), set(self.rejected), set(self.withdrawn)
        if not (accepted or rejected or withdrawn):
            raise ValueError("accepted, rejected and withdrawn are all empty; name at least one tag.")
        if twice := (accepted & rejected) | (accepted & withdrawn) | (rejected & withdrawn):
            raise ValueError(f"{min(twice)!r:.60} is in two of accepted, rejected and withdrawn; leave it in one.")
        return self


_SUGGESTED = {
    "tagger": "packages",
    "version": "3f2a9c01b7de",
    "suggestions": [
        {
            "tag": "web::server",
            "name": "Web server",
            "probability": 0.93,
            "score": 0.43,
            "words": [{"word": "web", "share": 0.6}],
        }
    ],
}
_QUEUED = {
    "number": 1,
    "id": "a-1",
    "text": "a fast web server",
    "asked": ["web::server", "works-with::db"],
    "accepted": ["web::server"],
    "rejected": [],
}
_DESCRIBED = {
    "name": "packages",
    "ready": True,
    "error": None,
    "version": "3f2a9c01b7de",
    "loaded_at": "2026-01-31T12:00:00+00:00",
    "model": "cascade",
    "tags": 579,
    "rows": 24240,
    "explainable": True,
    "probabilities": True,
    "new_tags": True,
}


def router_of(service: Service) -> APIRouter:
    """The routes of the API."""
    router = APIRouter()
    add_tagger_routes(router, service)
    add_feedback_routes(router, service)
    add_operation_routes(router, service)
    return router


def add_tagger_routes(router: APIRouter, service: Service) -> None:
    """Suggestions, and what is served."""

    @router.post(
        "/v1/taggers/{name}/suggest",
        tags=["taggers"],
        summary="Suggest tags for one text or several",
        responses=documented(400, 403, 404, 415, 422, 503, example=_SUGGESTED),
    )
    async def suggest(name: TaggerName, request: SuggestRequest) -> Response:
        texts = request.texts or [request.text or ""]
        asked = Request(request.top, explain=request.explain, min_probability=request.threshold)
        loaded, found = await service.tagger(name).ask(texts, asked)
        if len(texts) * request.top * (1 + request.explain) > _FEW or request.places:
            body = await asyncio.to_thread(_suggested, name, request, found, loaded)  # others are answered meanwhile
        else:
            body = _suggested(name, request, found, loaded)
        return Response(body, media_type="application/json")

    @router.get(
        "/v1/taggers",
        tags=["taggers"],
        summary="What is served",
        responses=documented(example={"taggers": [_DESCRIBED]}),
    )
    async def taggers() -> Response:
        return json_response({"taggers": [_described(one) for one in service.taggers.values()]})

    @router.get(
        "/v1/taggers/{name}",
        tags=["taggers"],
        summary="One of the taggers",
        responses=documented(404, example=_DESCRIBED),
    )
    async def tagger(name: TaggerName) -> Response:
        return json_response(_described(service.tagger(name)))

    @router.get(
        "/v1/taggers/{name}/tags",
        tags=["taggers"],
        summary="Search the tags",
        responses=documented(404, 422, 503, example={"tags": [{"tag": "web::server", "name": "Web server"}]}),
    )
    async def tags(
        name: TaggerName,
        q: Annotated[str, Query(max_length=200, description="Part of a tag or of its name.")] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> Response:
        loaded = service.tagger(name).ready()
        found = await asyncio.to_thread(lambda: loaded.search.find(q, limit))
        return json_response({"tags": [{"tag": tag, "name": loaded.names.get(tag)} for tag in found]})

    @router.post(
        "/v1/taggers/{name}/reload",
        tags=["taggers"],
        summary="Load what the folder holds now; other processes do so within a second or two",
        responses=documented(403, 404, 503, example=_DESCRIBED),
    )
    async def reload(name: TaggerName) -> Response:
        served = service.tagger(name)
        if not await served.reload():
            sentence = f"The model does not load, and the old one stays: {served.error}"
            raise HTTPException(503, sentence, {"Retry-After": "5"})
        return json_response(_described(served))


def add_feedback_routes(router: APIRouter, service: Service) -> None:
    """Answers, and the texts to work through."""

    @router.post(
        "/v1/taggers/{name}/feedback",
        status_code=204,
        tags=["taggers"],
        summary="Say which tags are right and which are wrong",
        response_class=Response,
        responses=documented(400, 403, 404, 415, 422, 503, 507),
    )
    async def feedback(name: TaggerName, request: FeedbackRequest) -> Response:
        given = {key: value for key, value in request.model_dump().items() if value not in (None, [])}
        await service.keep(service.tagger(name), given)
        return Response(status_code=204)

    @router.get(
        "/v1/taggers/{name}/feedback",
        tags=["taggers"],
        summary="How much was answered so far",
        responses=documented(404, 503, example={"kept": True, "texts": 12, "accepted": 30, "rejected": 9}),
    )
    async def answered(name: TaggerName) -> Response:
        served = service.tagger(name)
        counts = await service.look(lambda tally: tally.counts(served.name))
        return json_response({"kept": service.feedback is not None, **counts})

    @router.get(
        "/v1/taggers/{name}/queue",
        tags=["taggers"],
        summary="How far the texts to work through are done",
        responses=documented(404, 503, example={"texts": 200, "answered": 12, "next": 13}),
    )
    async def queue(name: TaggerName) -> Response:
        served, texts = service.tagger(name), service.queue

        def left(tally: Tally) -> list[int]:
            return [place for place, one in enumerate(texts, 1) if not tally.on(served.name, one.key)]

        waiting = await service.look(left)
        done = {"answered": len(texts) - len(waiting), "next": waiting[0] if waiting else None}
        return json_response({"texts": len(texts), **done})

    @router.get(
        "/v1/taggers/{name}/queue/{number}",
        tags=["taggers"],
        summary="One of the texts to work through, with the answers on it",
        responses=documented(404, 422, 503, example=_QUEUED),
    )
    async def queued(name: TaggerName, number: Annotated[int, Path(description="From 1.")]) -> Response:
        served, one = service.tagger(name), service.queued(number)
        answers = await service.look(lambda tally: dict(tally.on(served.name, one.key) or {}))
        given = {
            "accepted": [tag for tag, right in answers.items() if right],
            "rejected": [tag for tag, right in answers.items() if not right],
        }
        return json_response({"number": number, "id": one.id, "text": one.text, "asked": list(one.asked), **given})


def add_operation_routes(router: APIRouter, service: Service) -> None:
    """Whether the server lives, is ready, and what it has counted."""

    @router.head("/healthz", include_in_schema=False)
    @router.get(
        "/healthz",
        tags=["operation"],
        summary="Whether the server lives",
        responses=documented(example={"status": "ok"}),
    )
    async def healthz() -> Response:
        return json_response({"status": "ok"})

    @router.head("/readyz", include_in_schema=False)
    @router.get(
        "/readyz",
        tags=["operation"],
        summary="Whether all taggers are loaded",
        responses={
            **documented(example={"ready": True, "taggers": [_DESCRIBED]}),
            503: {"description": "Some tagger is not loaded."},
        },
    )
    async def readyz() -> Response:
        taggers = [_described(one) for one in service.taggers.values()]
        ready = all(one["ready"] for one in taggers)
        return json_response({"ready": ready, "taggers": taggers}, 200 if ready else 503)

    @router.get(
        "/metrics",
        tags=["operation"],
        summary="Counts for Prometheus",
        response_class=PlainTextResponse,
        responses=documented(),
    )
    async def metrics() -> Response:
        return Response(service.monitoring.page(), media_type=CONTENT_TYPE_LATEST)


def json_response(body: Any, status: int = 200) -> Response:
    """A response with a body in JSON."""
    return Response(_bytes(_json(body)), status, media_type="application/json")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _bytes(text: str) -> bytes:
    # Halves of surrogate pairs, which texts in JSON may hold, have no bytes in UTF-8.
    return text.encode(errors="replace")


def _suggested(name: str, request: SuggestRequest, found: list[list[Suggestion]], loaded: Loaded) -> bytes:
    """The answer to a request, made text by text, so that other threads have their turn in between."""
    head = {"tagger": name, "version": loaded.version}
    rows = []
    for text, suggestions in zip(request.texts or [request.text or ""], found):
        row: dict[str, Any] = {"suggestions": [_shown(one, loaded) for one in suggestions]}
        if request.places and request.explain:
            words = {word["word"] for one in row["suggestions"] for word in one["words"]}
            row["places"] = {word: places[:MOST_PLACES] for word, places in places_of(text, words).items()}
        rows.append(_json(row if request.texts else {**head, **row}))
    return _bytes(f'{_json(head)[:-1]}, "results": [{", ".join(rows)}]}}' if request.texts else rows[0])


def _shown(suggestion: Suggestion, loaded: Loaded) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "tag": suggestion.tag,
        "name": loaded.names.get(suggestion.tag),
        "probability": suggestion.probability,
        "score": suggestion.score,
    }
    if suggestion.why is not None:
        shown["words"] = [{"word": one.word, "share": one.share} for one in suggestion.why]
    return shown


def _described(served: ServedTagger) -> dict[str, Any]:
    loaded = served.loaded
    described: dict[str, Any] = {"name": served.name, "ready": loaded is not None, "error": served.error}
    if loaded is not None:
        tagger = loaded.tagger
        described |= {
            "version": loaded.version,
            "loaded_at": loaded.loaded_at.isoformat(timespec="seconds"),
            "model": tagger.choice_.name,
            "tags": len(tagger.tags_),
            "rows": tagger.training_["rows"],
            "explainable": loaded.explainable,
            "probabilities": loaded.probabilistic,
            "new_tags": tagger.vocabulary is None and isinstance(tagger.tags_[0], str),
        }
    return described
