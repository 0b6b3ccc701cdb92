"""The description of the API is true: whatever a client makes of it, the answer is one that it documents."""

import re

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import record, served

from tagwise.serving import create_app

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def schema(tagger, other_tagger, tmp_path_factory):
    folder = tmp_path_factory.mktemp("described")
    tagger.save(folder / "packages")
    other_tagger.save(folder / "plain")
    queue = folder / "queue.jsonl"
    queue.write_text('{"text": "a fast web server"}\n{"text": "a game"}\n')
    taggers = {name: str(folder / name) for name in ("packages", "plain")}
    options = {"feedback": str(folder / "feedback.jsonl"), "queue": str(queue), "watch_seconds": 0}
    with served(create_app(taggers, **options)) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


def operations(schema):
    return [found.ok() for found in schema.get_all_operations()]


def examples_of(schema, count):
    """So many requests for each operation, half of them as described and half not; returns how many were sent."""
    sent = 0
    for operation in operations(schema):
        cases = st.one_of(
            operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
            operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
        )
        named = st.sampled_from(["packages", "plain", None])

        @given(case=cases, name=named)
        @settings(
            max_examples=count,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def send(case, name):
            nonlocal sent
            # Names that are made up reach nothing but the sentence that there is no such tagger.
            for parameter in ("name", "project_id"):
                if name is not None and parameter in (case.path_parameters or {}):
                    case.path_parameters[parameter] = name
            response = case.call()
            case.validate_response(response, checks=CHECKS)
            if response.status_code >= 400:
                assert response.headers["content-type"] == ["application/problem+json"]
                assert response.json()["detail"].endswith((".", "…"))
            sent += 1

        send()
    return sent


def test_the_description_has_examples_and_sentences(schema):
    document = schema.raw_schema
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            for status, response in operation["responses"].items():
                assert response["description"], (path, status)
    bodies = document["components"]["schemas"]
    assert bodies["SuggestRequest"]["examples"]
    assert bodies["FeedbackRequest"]["examples"]


def test_the_description_says_how_a_key_is_sent(schema, tmp_path):
    assert "security" not in schema.raw_schema
    assert "securitySchemes" not in schema.raw_schema["components"]
    key = "a-key-of-16-letters-or-more"
    with served(create_app({"packages": str(tmp_path)}, keys=(key,), watch_seconds=0)) as url:
        document = httpx.get(f"{url}/openapi.json", headers={"X-API-Key": key}).json()
        schemes = document["components"]["securitySchemes"]
        assert [*schemes] == [name for one in document["security"] for name in one]
        assert schemes["bearer"]["scheme"] == "bearer"
        assert schemes["header"]["name"] == "X-API-Key"
        # What is said to need no key needs none, and all else does.
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                answer = httpx.request(method, url + path.replace("{number}", "1"))
                assert (answer.status_code == 401) is (operation.get("security") != []), path


def is_like(answer, example):
    """Whether an answer has the fields of an example; in examples, OpenAPI leaves out those that are null."""
    if isinstance(answer, dict):
        named = {name for name, value in answer.items() if value is not None}
        return named <= set(example) <= set(answer) and all(is_like(answer[name], example[name]) for name in named)
    if isinstance(answer, list):
        return isinstance(example, list) and (not answer or not example or is_like(answer[0], example[0]))
    return not isinstance(example, (dict, list))


def test_examples_are_like_the_answers(schema):
    """Every example of a request is sent; the answer has the fields of the example of an answer."""
    document, checked = schema.raw_schema, 0
    base = schema.location.removesuffix("/openapi.json")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            example = (
                operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("example")
            )
            if "200" in operation["responses"] and path != "/metrics":
                assert example, (method, path)
            if example is None:
                continue
            address = re.sub(r"\{(name|project_id)\}", "packages", path).replace("{number}", "1")
            body = operation.get("requestBody", {}).get("content", {})
            text = "a fast web server with plugins"
            options = {}
            if "application/x-www-form-urlencoded" in body:
                options = {"data": {"text": text}}
            elif path.endswith("-batch"):
                options = {"json": {"documents": [{"text": text, "document_id": "doc-1"}]}}
            elif body:
                options = {"json": document["components"]["schemas"]["SuggestRequest"]["examples"][0]}
            answer = httpx.request(method, base + address, timeout=60, **options)
            assert answer.status_code == 200, answer.text
            assert is_like(answer.json(), example), (method, path, answer.json())
            checked += 1
    assert checked >= 13


def test_answers_are_documented(schema):
    assert examples_of(schema, 8) >= 8


@pytest.mark.slow
def test_answers_to_1_000_examples_are_documented(schema):
    count = -(-1000 // len(operations(schema)))
    sent = examples_of(schema, 2 * count)
    assert sent >= 1000
    record(f"examples of the {len(operations(schema))} operations of the API", {"documented answers": sent})
