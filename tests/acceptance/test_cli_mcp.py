"""kosmos-rag mcp: a process that the SDK's own client starts, or reaches by HTTP."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.commands import MINILM, database_variables, run_command, set_variables
from tests.integration.apps.mcp.conftest import fill

ROOT = Path(__file__).parents[2]
QUESTION = "How many days of paid annual leave do employees receive?"

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def variables(tmp_path: Path, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a process over this test's database, which is this process's own as well."""
    monkeypatch.chdir(tmp_path)
    set_variables(monkeypatch, database, CONFIG=MINILM)
    return {"KOSMOS_CONFIG": MINILM, **database_variables(database)}


WHO = {
    "KOSMOS_MCP__TENANT": "acme",
    "KOSMOS_MCP__PRINCIPALS": '["everyone", "department:hr"]',
    "HF_HUB_OFFLINE": "1",
}


@contextmanager
def _filled(embedder: Embedder) -> Iterator[Engine]:
    """An engine of this process over two tenants' documents."""
    with Engine(Settings.load(overrides={"rag.audit.enabled": True}), embedder=embedder) as engine:
        fill(engine)
        yield engine


def _command(*arguments: str) -> list[str]:
    return ["-m", "kosmos_rag", "mcp", "--set", "rag.audit.enabled=true", *arguments]


def _of_words(*arguments: str) -> list[str]:
    return [str(Path(__file__).with_name("mcp_of_words.py")), *_command(*arguments)[2:]]


def test_stdio__serves_the_reader_that_environment_and_options_name(variables: dict[str, str], tmp_path: Path) -> None:
    with _filled(HashingEmbedder()) as engine:
        _is_served(engine, _of_words, variables, tmp_path)


@pytest.mark.slow
@pytest.mark.model
def test_stdio__serves_with_the_real_model(
    variables: dict[str, str], minilm: SentenceTransformerEmbedder, tmp_path: Path
) -> None:
    with _filled(minilm) as engine:
        _is_served(engine, _command, variables, tmp_path)


def _is_served(engine: Engine, command: Callable[..., list[str]], variables: dict[str, str], tmp_path: Path) -> None:
    """Logs of every level go to standard error: what is no message of the protocol would come as an exception."""
    strangers: list[Any] = []
    all_logs = ("--set", "observability.log_level=DEBUG", "--set", "observability.log_texts=true")
    server = StdioServerParameters(
        command=sys.executable,
        args=command("--subject", "ada", *all_logs),
        env=variables | WHO,
    )

    async def noticed(message: Any) -> None:
        if isinstance(message, Exception):
            strangers.append(message)

    async def ask() -> list[Any]:
        with (tmp_path / "log").open("w") as log:
            async with Client(stdio_client(server, errlog=log), message_handler=noticed) as client:
                outcome = await client.call_tool("search", {"question": QUESTION})
                cited = outcome.structured_content["hits"][0]
                requests = {"document_id": cited["document_id"], "offset": cited["lines"][0]}
                read = await client.call_tool("get_document", requests)
                result = await client.call_tool("answer", {"question": QUESTION})
                wrong = await client.call_tool("search", {"question": ""})
                return [outcome.structured_content, read.structured_content, result.structured_content, wrong]

    outcome, read, result, wrong = asyncio.run(ask())
    assert {hit["source"] for hit in outcome["hits"]} == {"leave.md", "secret.md"}
    assert "20 days" in read["text"]
    assert "20 days" in result["text"]
    assert not result["refused"]
    assert wrong.is_error
    assert strangers == []
    assert "DEBUG" in (tmp_path / "log").read_text()
    records = engine.tenant("acme").audit.find()
    assert [(record.subject, str(record.kind)) for record in records] == [
        ("ada", "answer"),
        ("ada", "search"),
        ("ada", "search"),
    ]
    assert records[0].principals == ("everyone", "department:hr")


def test_stdio__ends_well_at_a_signal(variables: dict[str, str]) -> None:
    """A client that only signals leaves standard input open, and so does a person at a terminal."""
    greeting = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    command = [sys.executable, *_of_words()]
    environment = os.environ | variables | WHO
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(greeting).encode() + b"\n")
        process.stdin.flush()
        assert b"kosmos-rag" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.model
def test_http__serves_until_it_is_told_to_stop(variables: dict[str, str], minilm: SentenceTransformerEmbedder) -> None:
    with _filled(minilm):
        _serves_until_it_is_told_to_stop()


def _serves_until_it_is_told_to_stop() -> None:
    key = run_command("api-key", "create", "agent", "--tenant", "acme-other").stdout.strip()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    command = [sys.executable, *_command("--http", "--port", str(port), "--set", "observability.log_level=INFO")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ.copy()) as process:
        began = time.monotonic()
        while not _answers(url):
            assert process.poll() is None
            assert time.monotonic() - began < 90
            time.sleep(0.2)

        async def ask() -> dict[str, Any]:
            headers = {"authorization": f"Bearer {key}"}
            async with (
                httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                outcome = await client.call_tool("search", {"question": QUESTION})
            assert outcome.structured_content is not None
            return outcome.structured_content

        outcome = asyncio.run(ask())
        assert [hit["source"] for hit in outcome["hits"]] == ["theirs.md"]
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0, log
    assert "POST /mcp 200" in log
    assert key.rpartition(".")[2] not in log


def _answers(url: str) -> bool:
    try:
        return httpx.get(url.replace("/mcp", "/readyz"), trust_env=False, verify=False).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--http", "--tenant", "acme"), "are for stdio"),
        (("--http", "--principal", "everyone"), "are for stdio"),
        (("--port", "8000"), "add --http"),
        (("--principal", ""), "--principal is empty"),
        (("--tenant", "Not A Name"), "tenant name 'Not A Name' is malformed"),
        (("--set", "mcp.principals=[]"), "mcp.principals"),
    ],
)
def test_options__that_do_not_fit_are_refused(
    variables: dict[str, str], arguments: tuple[str, ...], message: str
) -> None:
    refused = run_command("mcp", *arguments)
    assert refused.exit_code == 1
    assert message in refused.stderr
    assert refused.stdout == ""


def test_extra__is_named_where_it_is_missing(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from kosmos_rag.core import extras as extra

    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "mcp" else name)
    refused = run_command("mcp")
    assert refused.exit_code == 1
    assert "pip install 'kosmos-rag[mcp]'" in refused.stderr


def test_documentation__says_how_a_client_names_the_reader(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "mcp.md").read_text()
    desktop, _ = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL))
    server = desktop["mcpServers"]["handbook"]
    assert server["args"] == ["mcp"]
    for name, value in (server["env"] | {"KOSMOS_CONFIG": variables["KOSMOS_CONFIG"]}).items():
        monkeypatch.setenv(name, value)
    loaded = Settings.load().mcp
    assert (loaded.tenant, loaded.principals, loaded.subject) == ("acme", ("everyone", "department:hr"), "ada")
