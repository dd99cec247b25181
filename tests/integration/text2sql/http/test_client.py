"""The calls of the client for schemas."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.apps.client import Client
from kosmos_rag.apps.errors import NotPermitted
from kosmos_rag.core import errors
from kosmos_rag.text2sql.catalog.sources import from_json
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.linking.result import NO_SCHEMA
from tests.integration.apps.http.serving import Running

ROOT = Path(__file__).parents[4]


@pytest.fixture
def connect(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Client]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    opened: list[Client] = []

    def connected(**claims: Any) -> Client:
        opened.append(Client(running.url, running.token(**claims)))
        return opened[-1]

    yield connected
    for client in opened:
        client.close()


def test_schema__is_grounded_for_its_readers(
    running: Running, tenant_name: str, connect: Callable[..., Client]
) -> None:
    running.tenant().collections.create("schema", preset="schema")
    grounding = SchemaGrounding(running.tenant(collection="schema"))
    grounding.build(from_json(ROOT / "examples" / "schema" / "programs.json"))
    question = "What is the success count for the forest fire program"
    answer, response = grounding.ask(question), connect().ground_schema(question)
    assert (response.prompt, response.join_hints, response.database) == (
        answer.prompt,
        answer.join_hints,
        answer.database,
    )
    assert [ref.name for ref in response.schema_refs] == [ref.name for ref in answer.schema_refs]
    assert response.docs[0].scores is None
    assert connect(scope="admin").ground_schema(question, explain=True).docs[0].scores["fused"] > 0
    with pytest.raises(NotPermitted):
        connect().ground_schema(question, explain=True)
    assert connect(tenant="globex").ground_schema(question).tables == ()
    with pytest.raises(errors.RequestError, match="no database 'shop'"):
        connect().ground_schema(question, database="shop")
    assert [ambiguity.kind for ambiguity in response.ambiguities].count("variant") == 1
    assert [recipe.slug for recipe in response.recipes] == [recipe.slug for recipe in answer.recipes]
    assert connect(tenant="globex").ground_schema(question).warnings == (NO_SCHEMA,)
    with pytest.raises(errors.NotFound, match="not enabled"):
        connect().query_schema("SELECT name FROM programs", database="programs")
    with pytest.raises(errors.NotFound, match="not enabled"):
        connect().ask_schema(question)
