"""One question by the library, the command line, HTTP, MCP and the client: one JSON shape of the result."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.apps.cli.app import app
from kosmos_rag.apps.client import Client
from kosmos_rag.engine import engine as engine_module
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.apps.mcp import running as mcp

LEAVE = b"# Leave\n\n## Annual\n\nAll full-time employees receive 20 days of paid annual leave per year.\n"
TRAVEL = b"# Expenses\n\n## Travel\n\nTravel expenses are paid back within 14 days of the receipt.\n"
QUESTION = "How many days of paid annual leave do full-time employees receive?"
CALLS = {"search": ("search",), "context": ("ask", "--context"), "answer": ("ask",)}
MEASURED = {"milliseconds", "timings_ms", "cached"}
"""Members that differ from call to call."""


def _same(values: Any) -> Any:
    """Return values without what is measured anew by each call."""
    if isinstance(values, list):
        return [_same(one) for one in values]
    if isinstance(values, dict):
        return {name: _same(one) for name, one in values.items() if name not in MEASURED}
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


def _by_command_line(call: str) -> dict[str, Any]:
    command, *options = CALLS[call]
    done = CliRunner().invoke(app, [command, QUESTION, *options, "-t", "acme", "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def _by_http(running: Running, call: str, *, explain: bool) -> dict[str, Any]:
    with running.client(scope="admin") as client:
        answered = client.post(f"/v1/{call}", json={"question": QUESTION, "explain": explain})
    assert answered.status_code == 200, answered.text
    return dict(answered.json())


@pytest.mark.parametrize("call", CALLS)
def test_result__has_one_shape_by_all_five(running: Running, signer: Signer, call: str) -> None:
    engine = running.service.engine
    record = getattr(engine.tenant("acme"), call)(QUESTION)
    with Client(running.url, signer.token(scope="admin")) as client:
        explained = getattr(client, call)(QUESTION, explain=True)
        plain = getattr(client, call)(QUESTION)
    full = _same(record.to_dict())
    assert _same(_by_command_line(call)) == full
    assert _same(_by_http(running, call, explain=True)) == full
    assert _same(explained.to_dict()) == full
    assert type(record).from_dict(record.to_dict()) == record

    public = _same(record.to_dict(explain=False))
    assert public.keys() < full.keys() or call == "context"
    assert _same(_by_http(running, call, explain=False)) == public
    assert _same(plain.to_dict(explain=False)) == public
    with mcp.serving(engine._engine, signer) as server:
        assert _same(mcp.data_of(server.call(call, {"question": QUESTION}))) == public
