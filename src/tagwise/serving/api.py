"""The API of tagwise itself, version 1: suggestions, feedback, and what is served."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tagwise.serving.errors import Route, documented, unavailable
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
    top: int = Field(5, ge=1, le=100, description="Maximum number of tags per text.")
    threshold: float | None = Field(None, ge=0, le=1, description="Minimum probability of the tags.")
    explain: int = Field(0, ge=0, le=20, description="Number of words per tag that speak for it.")
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
    id: str | None = Field(None, max_length=1000, description="Identifier of a training row, with or without text.")
    accepted: Tags = Field(default_factory=list, description="Tags that are right.")
    rejected: Tags = Field(default_factory=list, description="Tags that are wrong.")
    withdrawn: Tags = Field(default_factory=list, description="Tags whose earlier answers no longer count.")

    @model_validator(mode="after")
    def _of_something(self) -> FeedbackRequest:
        if self.text is None and self.id is None:
            raise ValueError("Give text, id or both, to identify the subject of the answer.")
        accepted, rejected, withdrawn = set(self.accepted), set(self.rejected), set(self.withdrawn)
        if not (accepted or rejected or withdrawn):
            raise ValueError("accepted, rejected and withdrawn are all empty; name at least one tag.")
        if twice := (accepted & rejected) | (accepted & withdrawn) | (rejected & withdrawn):
            raise ValueError(f"{min(twice)!r:.60} is in two of accepted, rejected and withdrawn; leave it in one.")
        return self


_TAG = {"tag": "web::server", "name": "Web server"}
_WORDS = {"words": [{"word": "web", "share": 0.6}]}
_SUGGESTED = {
    "tagger": "packages",
    "version": "3f2a9c01b7de",
    "suggestions": [{**_TAG, "probability": 0.93, "score": 0.43, **_WORDS}],
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
    """The routes of the API; their names are the kinds of requests in /metrics."""
    router, operation = APIRouter(), APIRouter(tags=["operation"], route_class=Route)
    taggers_router = APIRouter(prefix="/v1/taggers", tags=["taggers"], route_class=Route)

    @taggers_router.post("/{name}/suggest", responses=documented(400, 403, 404, 415, 422, 503, example=_SUGGESTED))
    async def suggest(name: TaggerName, request: SuggestRequest) -> Response:
        """Suggest tags for one text or several."""
        texts = request.texts or [request.text or ""]
        asked = Request(request.top, explain=request.explain, min_probability=request.threshold)
        loaded, found = await service.tagger(name).ask(texts, asked)
        if len(texts) * request.top * (1 + request.explain) > _FEW or request.places:
            body = await asyncio.to_thread(_suggested, name, request, found, loaded)  # others are answered meanwhile
        else:
            body = _suggested(name, request, found, loaded)
        return Response(body, media_type="application/json")

    @taggers_router.get("", responses=documented(example={"taggers": [_DESCRIBED]}))
    async def taggers() -> Response:
        """Served taggers."""
        return json_response({"taggers": [_described(one) for one in service.taggers.values()]})

    @taggers_router.get("/{name}", responses=documented(404, example=_DESCRIBED))
    async def tagger(name: TaggerName) -> Response:
        """A tagger."""
        return json_response(_described(service.tagger(name)))

    @taggers_router.get("/{name}/tags", responses=documented(404, 422, 503, example={"tags": [_TAG]}))
    async def tags(
        name: TaggerName,
        q: Annotated[str, Query(max_length=200, description="Part of a tag or of its name.")] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> Response:
        """Search the tags."""
        loaded = service.tagger(name).ready()
        found = await asyncio.to_thread(lambda: loaded.search.find(q, limit))
        return json_response({"tags": [{"tag": tag, "name": loaded.names.get(tag)} for tag in found]})

    @taggers_router.post("/{name}/reload", responses=documented(403, 404, 503, example=_DESCRIBED))
    async def reload(name: TaggerName) -> Response:
        """Load the model that the folder holds now; other processes follow within a second or two."""
        served = service.tagger(name)
        if not await served.reload():
            raise unavailable(f"The model does not load; the old one stays in use: {served.error}")
        return json_response(_described(served))

    stored = documented(400, 403, 404, 415, 422, 503, 507)

    @taggers_router.post("/{name}/feedback", status_code=204, response_class=Response, responses=stored)
    async def feedback(name: TaggerName, request: FeedbackRequest) -> Response:
        """Record right and wrong tags."""
        given = {key: value for key, value in request.model_dump().items() if value not in (None, [])}
        await service.keep(service.tagger(name), given)
        return Response(status_code=204)

    counts = {"kept": True, "texts": 12, "accepted": 30, "rejected": 9}

    @taggers_router.get("/{name}/feedback", responses=documented(404, 503, example=counts))
    async def answered(name: TaggerName) -> Response:
        """Number of answers so far."""
        served = service.tagger(name)
        found = await service.look(lambda tally: tally.counts(served.name))
        return json_response({"kept": service.feedback is not None, **found})

    done = {"texts": 200, "answered": 12, "next": 13}

    @taggers_router.get("/{name}/queue", responses=documented(404, 503, example=done))
    async def queue(name: TaggerName) -> Response:
        """Progress through the texts of the queue."""
        served, texts = service.tagger(name), service.queue

        def left(tally: Tally) -> list[int]:
            return [place for place, one in enumerate(texts, 1) if not tally.on(served.name, one.key)]

        waiting = await service.look(left)
        next_one = waiting[0] if waiting else None
        return json_response({"texts": len(texts), "answered": len(texts) - len(waiting), "next": next_one})

    @taggers_router.get("/{name}/queue/{number}", responses=documented(404, 422, 503, example=_QUEUED))
    async def queued(name: TaggerName, number: Annotated[int, Path(description="From 1.")]) -> Response:
        """A text of the queue, with the answers on it."""
        served, one = service.tagger(name), service.queued(number)
        answers = await service.look(lambda tally: dict(tally.on(served.name, one.key) or {}))
        accepted, rejected = ([tag for tag, right in answers.items() if right is wanted] for wanted in (True, False))
        given = {"number": number, "id": one.id, "text": one.text, "asked": list(one.asked)}
        return json_response({**given, "accepted": accepted, "rejected": rejected})

    @operation.head("/healthz", include_in_schema=False)
    @operation.get("/healthz", responses=documented(example={"status": "ok"}))
    async def healthz() -> Response:
        """Whether the server is alive."""
        return json_response({"status": "ok"})

    unready: dict[int | str, dict[str, Any]] = {503: {"description": "Some tagger is not loaded."}}

    @operation.head("/readyz", include_in_schema=False)
    @operation.get("/readyz", responses=documented(example={"ready": True, "taggers": [_DESCRIBED]}) | unready)
    async def readyz() -> Response:
        """Whether all taggers are loaded."""
        found = [_described(one) for one in service.taggers.values()]
        ready = all(one["ready"] for one in found)
        return json_response({"ready": ready, "taggers": found}, 200 if ready else 503)

    @operation.get("/metrics", response_class=PlainTextResponse, responses=documented())
    async def metrics() -> Response:
        """Counts for Prometheus."""
        return Response(service.monitoring.page(), media_type=CONTENT_TYPE_LATEST)

    router.include_router(taggers_router)
    router.include_router(operation)
    return router


def json_response(body: Any, status: int = 200) -> Response:
    """A response with a body in JSON."""
    return Response(to_json(body).encode(errors="replace"), status, media_type="application/json")


def to_json(value: Any) -> str:
    """A value as JSON; lone surrogates, which texts may hold, must still be replaced, as UTF-8 has none."""
    return json.dumps(value, ensure_ascii=False)


def _suggested(name: str, request: SuggestRequest, found: list[list[Suggestion]], loaded: Loaded) -> bytes:
    """The answer to a request, built text by text, so that other threads get their turn."""
    head = {"tagger": name, "version": loaded.version}
    rows = []
    for text, suggestions in zip(request.texts or [request.text or ""], found):
        row: dict[str, Any] = {"suggestions": [_shown(one, loaded) for one in suggestions]}
        if request.places and request.explain:
            words = {word["word"] for one in row["suggestions"] for word in one["words"]}
            row["places"] = {word: places[:MOST_PLACES] for word, places in places_of(text, words).items()}
        rows.append(to_json(row if request.texts else {**head, **row}))
    answer = f'{to_json(head)[:-1]}, "results": [{", ".join(rows)}]}}' if request.texts else rows[0]
    return answer.encode(errors="replace")


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
