"""The API of tagwise itself, version 1: suggestions, feedback, and what is served."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tagwise.serving.batches import Question
from tagwise.serving.feedback import Tally
from tagwise.serving.monitoring import CONTENT_TYPE_LATEST
from tagwise.serving.problems import Problem, documented
from tagwise.serving.service import Service
from tagwise.serving.taggers import Loaded, ServedTagger
from tagwise.text.features import places_of
from tagwise.text.suggestion import Suggestion

__all__ = ["json_response", "router_of"]

MOST_PLACES = 200
"""Of one word that are told. A browser lights up thousands of words without a pause, but not hundreds of thousands."""

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
            raise ValueError(
                "Give either text or texts; found both." if self.texts else "Give text or texts; found neither."
            )
        return self


class FeedbackRequest(BaseModel):
    """What somebody says about the tags of a text."""

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
        given = [set(self.accepted), set(self.rejected), set(self.withdrawn)]
        if not any(given):
            raise ValueError("accepted, rejected and withdrawn are all empty; name at least one tag.")
        twice = (given[0] & given[1]) | (given[0] & given[2]) | (given[1] & given[2])
        if twice:
            raise ValueError(f"{min(twice)!r:.60} is in two of accepted, rejected and withdrawn; leave it in one.")
        return self


def router_of(service: Service) -> APIRouter:
    """The routes of the API."""
    router = APIRouter()
    monitoring = service.monitoring

    @router.post(
        "/v1/taggers/{name}/suggest",
        tags=["taggers"],
        summary="Suggest tags for one text or several",
        responses=documented(400, 403, 404, 415, 422, 503, example=_SUGGESTED),
    )
    async def suggest(name: TaggerName, request: SuggestRequest) -> Response:
        served = service.tagger(name)
        texts = [request.text] if request.text is not None else request.texts or []
        question = Question(request.top, request.threshold, request.explain)
        loaded, found = await service.ask(served, texts, question)
        head = {"tagger": name, "version": loaded.version}
        places = request.places and request.explain > 0
        if not places and len(texts) * request.top * (1 + request.explain) <= _FEW:
            body = _suggested(head, request, found, loaded)
        else:  # others are answered meanwhile
            body = await asyncio.to_thread(_suggested, head, request, found, loaded)
        return Response(body, media_type="application/json")

    @router.post(
        "/v1/taggers/{name}/feedback",
        status_code=204,
        tags=["taggers"],
        summary="Say which tags are right and which are wrong",
        response_class=Response,
        responses=documented(400, 403, 404, 415, 422, 503, 507),
    )
    async def feedback(name: TaggerName, request: FeedbackRequest) -> Response:
        served = service.tagger(name)
        given = {key: value for key, value in request.model_dump().items() if value not in (None, [])}
        await service.keep(served, given)
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
        return json_response({"kept": service.keeps_answers, **counts})

    @router.get(
        "/v1/taggers/{name}/queue",
        tags=["taggers"],
        summary="How far the texts to work through are done",
        responses=documented(404, 503, example={"texts": 200, "answered": 12, "next": 13}),
    )
    async def queue(name: TaggerName) -> Response:
        served, texts = service.tagger(name), service.queue

        def looked(tally: Tally) -> tuple[int, int | None]:
            open_ones = [place for place, one in enumerate(texts, 1) if not tally.on(served.name, one.key)]
            return len(texts) - len(open_ones), next(iter(open_ones), None)

        done, first = await service.look(looked)
        return json_response({"texts": len(texts), "answered": done, "next": first})

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

    all_of_them = documented(example={"taggers": [_DESCRIBED]})

    @router.get("/v1/taggers", tags=["taggers"], summary="What is served", responses=all_of_them)
    async def taggers() -> Response:
        return json_response({"taggers": [_described(one) for one in service.taggers.by_name.values()]})

    one_of_them = documented(404, example=_DESCRIBED)

    @router.get("/v1/taggers/{name}", tags=["taggers"], summary="One of the taggers", responses=one_of_them)
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
        loaded = service.loaded(service.tagger(name))
        found = await asyncio.to_thread(lambda: loaded.search.find(q, limit))
        return json_response({"tags": [{"tag": tag, "name": loaded.names.get(tag)} for tag in found]})

    @router.post(
        "/v1/taggers/{name}/reload",
        tags=["taggers"],
        summary="Load what the folder holds now, in all processes",
        responses=documented(403, 404, 503, example=_DESCRIBED),
    )
    async def reload(name: TaggerName) -> Response:
        served = service.tagger(name)
        if problem := await service.taggers.reload(name):
            raise Problem(503, problem, {"Retry-After": "5"})
        return json_response(_described(served))

    alive = documented(example={"status": "ok"})

    @router.head("/healthz", include_in_schema=False)
    @router.get("/healthz", tags=["operation"], summary="Whether the server lives", responses=alive)
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
        served = service.taggers.by_name.values()
        ready = all(one.loaded is not None for one in served)
        body = {"ready": ready, "taggers": [_described(one) for one in served]}
        return json_response(body, 200 if ready else 503)

    @router.get(
        "/metrics",
        tags=["operation"],
        summary="Counts for Prometheus",
        response_class=PlainTextResponse,
        responses=documented(),
    )
    async def metrics() -> Response:
        return Response(monitoring.page(), media_type=CONTENT_TYPE_LATEST)

    return router


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


def json_response(body: Any, status: int = 200) -> Response:
    """A response with a body in JSON."""
    return Response(_bytes(_json(body)), status, media_type="application/json")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _bytes(text: str) -> bytes:
    # Halves of surrogate pairs, which texts in JSON may hold, have no bytes in UTF-8.
    return text.encode(errors="replace")


def _suggested(head: dict[str, str], request: SuggestRequest, found: list[list[Suggestion]], loaded: Loaded) -> bytes:
    """The answer to a request, made text by text, so that other threads have their turn in between."""
    texts = [request.text] if request.text is not None else request.texts or []
    rows = []
    for text, suggestions in zip(texts, found):
        row: dict[str, Any] = {"suggestions": [_shown(one, loaded) for one in suggestions]}
        if request.places and request.explain:
            words = {word["word"] for one in row["suggestions"] for word in one["words"]}
            row["places"] = {word: places[:MOST_PLACES] for word, places in places_of(text, words).items()}
        rows.append(_json({**head, **row} if request.text is not None else row))
    if request.text is not None:
        return _bytes(rows[0])
    return _bytes(f'{_json(head)[:-1]}, "results": [{", ".join(rows)}]}}')


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
