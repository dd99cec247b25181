"""The OpenAPI document, held against the service: by its own examples, and by requests made up from it."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any
from urllib.parse import quote

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Unsatisfiable
from jsonschema import Draft202012Validator
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]

QUICK_EXAMPLES = 2

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def served(settings: Settings, signer: Signer) -> Iterator[Running]:
    """A service with a document, a job and a collection, that counts no rates."""
    limitless = with_tokens(settings, signer, **{"rates.tenant_per_minute": 0, "rates.subject_per_minute": 0})
    with Engine(limitless, embedder=HashingEmbedder()) as engine, serving(engine, signer) as started:
        acme = engine.tenant("acme")
        acme.ingest(SourceDocument(source="leave.md", data=b"# Leave\n\nAll employees get 20 days of annual leave.\n"))
        acme.jobs.enqueue(SourceDocument(source="news.md", data=b"The canteen opens at noon."))
        acme.collections.create("schema", preset="schema")
        yield started


# The pools of the service connect in threads of this process and draw random times of expiry; that is no strategy.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@pytest.mark.parametrize(
    "examples", [QUICK_EXAMPLES, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_requests__made_up_from_the_document_are_answered_as_it_says(served: Running, examples: int) -> None:
    with served.client("") as client:
        document = client.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    headers = {"authorization": f"Bearer {served.signer.token(scope='admin')}"}
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    assert len(operations) == sum(len(methods) for methods in document["paths"].values())
    # The quick run sends malformed requests in the test of hostile values.
    modes = list(GenerationMode) if examples > QUICK_EXAMPLES else [GenerationMode.POSITIVE]
    for operation in operations:
        for mode in modes:

            @hypothesis.settings(
                max_examples=examples,
                derandomize=True,
                database=None,
                deadline=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def made_up(case: schemathesis.Case) -> None:
                case.call_and_validate(served.url, headers=headers, checks=CHECKS)

            # Nothing can be wrong with a request that has no parts.
            with suppress(*([Unsatisfiable] if mode is GenerationMode.NEGATIVE else [])):
                made_up()


HOSTILE = ("\0", "\ud800", "x" * 5000, "\r\nx: y", "%00", 10**30, -1, {"\ud800": 1}, [["\0"]])


def _hostile_requests(document: dict[str, Any]) -> Iterator[tuple[str, str, str | None, frozenset[str]]]:
    """Yield method, path, body and documented status codes of requests with a hostile value at one place each."""
    quoted = [quote(text.encode("utf-8", "surrogatepass"), safe="") for text in HOSTILE if isinstance(text, str)]
    operations = [(path, *operation) for path, methods in document["paths"].items() for operation in methods.items()]
    for path, method, operation in operations:
        filled, statuses = re.sub(r"{[^}]+}", "0" * 32, path), frozenset(operation["responses"])
        names = [entry["name"] for entry in operation.get("parameters", ()) if entry["in"] == "query"]
        for text in quoted:
            yield from ((method, f"{filled}?{name}={text}", None, statuses) for name in names)
            if filled != path:
                yield method, re.sub(r"{[^}]+}", text, path), None, statuses
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None:
            yield method, filled, "[" * 50_000, statuses
            for name, value in product(body["example"], HOSTILE):
                yield method, filled, json.dumps({**body["example"], name: value}), statuses


def test_hostile_values__of_any_field_are_no_internal_error(served: Running) -> None:
    """A NUL, a lone surrogate, a huge number and deeply nested JSON in any field, path or query cause no internal
    error.

    Requests that are made up contain no lone surrogates, and seldom what a database refuses.
    """
    headers = {"authorization": f"Bearer {served.signer.token(scope='admin')}", "content-type": "application/json"}
    failed, request_count = [], 0
    with served.client("") as client:
        for method, path, body, statuses in _hostile_requests(client.get("/openapi.json").json()):
            request_count += 1
            answer = client.request(method, path, content=body, headers=headers)
            if answer.status_code >= 500 or str(answer.status_code) not in statuses:
                failed.append((method, path, body, answer.status_code, answer.text))
    assert failed == []
    assert request_count > 500


def test_every_body_and_answer__has_an_example_that_is_one(running: Running) -> None:
    with running.client("") as client:
        document = client.get("/openapi.json").json()
    without = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for part in (operation.get("requestBody", {}), *operation["responses"].values()):
                for content in part.get("content", {}).values():
                    if "example" not in content:
                        without.append((method, path, part.get("description")))
                        continue
                    schema = {**document, **content["schema"]}
                    assert list(Draft202012Validator(schema).iter_errors(content["example"])) == [], (method, path)
    # No error of ours has these; they are told by the HTTP layer.
    assert {description for _, _, description in without} == {"Bad Request", "Request Timeout"}
