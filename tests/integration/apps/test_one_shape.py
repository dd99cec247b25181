"""One question by the library, the command line, HTTP, MCP and the client: one JSON shape of the result."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.apps.cli.app import app
from kosmos_rag.apps.client import Client
from kosmos_rag.core.errors import RequestError
from kosmos_rag.engine import engine as engine_module
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.apps.mcp import running as mcp

pytestmark = pytest.mark.emptied_database

LEAVE = b"# Leave\n\n## Annual\n\nAll full-time employees receive 20 days of paid annual leave per year.\n"
TRAVEL = b"# Expenses\n\n## Travel\n\nTravel expenses are paid back within 14 days of the receipt.\n"
QUESTION = "How many days of paid annual leave do full-time employees receive?"
CALLS = {"search": ("search",), "context": ("ask", "--context"), "answer": ("ask",)}
OPTIONS = {"k": 1, "cursor": "*", "group_by": "document", "facets": ["source"], "mmr": 0.5}
OPTIONS_OF_COMMAND = ("-k", "1", "--cursor", "*", "--group-by", "document", "--facet", "source", "--mmr", "0.5")
MEASURED = {"milliseconds", "timings_ms", "cached"}
"""Members that differ from call to call."""


def _same(values: Any) -> Any:
    """Return values without what is measured anew by each call, and without what a cursor says of its reader."""
    if isinstance(values, list):
        return [_same(value) for value in values]
    if isinstance(values, dict):
        output = {name: _same(value) for name, value in values.items() if name not in MEASURED}
        return output | {name: bool(value) for name, value in output.items() if name == "next_cursor"}
    return values


@pytest.fixture
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"))


@pytest.fixture
def running(settings: Settings, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A service over two documents; the command line opens an engine of its own over the same database."""
    mine = with_tokens(settings, signer)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Engine(mine, embedder=HashingEmbedder()) as engine, serving(engine, signer) as started:
        documents = [SourceDocument(source="leave.md", data=LEAVE), SourceDocument(source="travel.md", data=TRAVEL)]
        engine.tenant("acme").ingest(documents)
        opened = classmethod(lambda cls, _: cls(mine, embedder=HashingEmbedder()))
        monkeypatch.setattr(engine_module.Engine, "open", opened)
        yield started


def _by_command_line(call: str, *more: str) -> dict[str, Any]:
    command, *options = CALLS[call]
    arguments = [command, QUESTION, *options, *more, "-t", "acme", "--json"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def _by_http(running: Running, call: str, *, explain: bool, **options: Any) -> dict[str, Any]:
    with running.client(scope="admin") as client:
        answered = client.post(f"/v1/{call}", json={"question": QUESTION, "explain": explain, **options})
    assert answered.status_code == 200, answered.text
    return dict(answered.json())


def test_several_questions__have_one_shape_by_all_five(running: Running, signer: Signer) -> None:
    engine, questions = running.service.engine.sync_engine, [QUESTION, "When are travel expenses paid back?"]
    record = engine.tenant("acme").search(questions)
    full, public = _same(record.to_dict()), _same(record.to_dict(explain=False))
    arguments = ["search", questions[0], "--also", questions[1], "-t", "acme", "--json"]
    assert _same(json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)) == full
    with Client(running.url, signer.token(scope="admin")) as client:
        assert _same(client.search(questions, explain=True).to_dict()) == full
        with pytest.raises(RequestError, match="question"):
            client.search([])
        with pytest.raises(RequestError, match="question"):
            client.context(questions)  # type: ignore[arg-type]
    with running.client(scope="admin") as http:
        assert _same(http.post("/v1/search", json={"question": questions}).json()) == public
    with mcp.serving(engine, signer) as server:
        assert _same(mcp.read_data(server.call("search", {"question": questions}))) == public | {"truncated": False}


@pytest.mark.parametrize(
    ("call", "options", "of_command"),
    [*((call, {}, ()) for call in CALLS), ("search", OPTIONS, OPTIONS_OF_COMMAND)],
    ids=[*CALLS, "search with options"],
)
def test_result__has_one_shape_by_all_five(
    running: Running, signer: Signer, call: str, options: dict[str, Any], of_command: tuple[str, ...]
) -> None:
    engine = running.service.engine.sync_engine
    record = getattr(engine.tenant("acme"), call)(QUESTION, **options)
    assert bool(options) == bool(getattr(record, "next_cursor", None))
    with Client(running.url, signer.token(scope="admin")) as client:
        explained = getattr(client, call)(QUESTION, explain=True, **options)
        plain = getattr(client, call)(QUESTION, **options)
    full = _same(record.to_dict())
    assert _same(_by_command_line(call, *of_command)) == full
    assert _same(_by_http(running, call, explain=True, **options)) == full
    assert _same(explained.to_dict()) == full
    assert type(record).from_dict(record.to_dict()) == record

    public = _same(record.to_dict(explain=False))
    assert public.keys() < full.keys() or call == "context"
    assert _same(_by_http(running, call, explain=False, **options)) == public
    assert _same(plain.to_dict(explain=False)) == public
    with mcp.serving(engine, signer) as server:
        assert _same(mcp.read_data(server.call(call, {"question": QUESTION, **options}))) == public | {
            "truncated": False
        }
