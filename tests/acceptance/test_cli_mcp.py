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
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from typer.testing import CliRunner, Result

from kosmos_rag import Engine, Settings
from kosmos_rag.cli.app import app
from kosmos_rag.config import DatabaseSettings
from kosmos_rag.embedding import SentenceTransformerEmbedder
from tests.integration.mcp_server.conftest import fill

Run = Callable[..., Result]
ROOT = Path(__file__).parents[2]
QUESTION = "How many days of paid annual leave do employees receive?"


@pytest.fixture
def variables(tmp_path: Path, database: DatabaseSettings) -> Iterator[dict[str, str]]:
    """The environment of a process over this test's database, which is this process's own as well."""
    urls = {"URL": database.url, "WORKER_URL": database.worker_url, "ADMIN_URL": database.admin_url}
    made = {f"KOSMOS_DATABASE__{name}": url or "" for name, url in urls.items()}
    made["KOSMOS_CONFIG"] = str(ROOT / "examples" / "minilm.yaml")
    patch = pytest.MonkeyPatch()
    patch.chdir(tmp_path)
    for name, value in made.items():
        patch.setenv(name, value)
    yield made
    patch.undo()


@pytest.fixture
def filled(variables: dict[str, str], minilm: SentenceTransformerEmbedder) -> Iterator[Engine]:
    """An engine of this process over two tenants' documents, embedded by the real model."""
    settings = Settings.load(overrides={"rag.audit.enabled": True})
    with Engine(settings, embedder=minilm) as engine:
        fill(engine)
        yield engine


def _command(*arguments: str) -> list[str]:
    return ["-m", "kosmos_rag.cli", "mcp", "--set", "rag.audit.enabled=true", *arguments]


@pytest.mark.model
def test_stdio__serves_the_reader_that_environment_and_options_name(
    filled: Engine, variables: dict[str, str], tmp_path: Path
) -> None:
    """Logs of every level go to standard error: what is no message of the protocol would come as an exception."""
    strangers: list[Any] = []
    who = {
        "KOSMOS_MCP__TENANT": "acme",
        "KOSMOS_MCP__PRINCIPALS": '["everyone", "department:hr"]',
        "HF_HUB_OFFLINE": "1",
    }
    server = StdioServerParameters(
        command=sys.executable,
        args=_command("--subject", "ada", "--set", "observability.log_level=DEBUG"),
        env=variables | who,
    )

    async def noticed(message: Any) -> None:
        if isinstance(message, Exception):
            strangers.append(message)

    async def ask() -> list[Any]:
        with (tmp_path / "log").open("w") as log:
            async with Client(stdio_client(server, errlog=log), message_handler=noticed) as client:
                found = await client.call_tool("search", {"question": QUESTION})
                cited = found.structured_content["passages"][0]["citation"]
                asked = {"document_id": cited["document_id"], "offset": cited["lines"][0]}
                read = await client.call_tool("get_document", asked)
                told = await client.call_tool("answer", {"question": QUESTION})
                wrong = await client.call_tool("search", {"question": ""})
                return [found.structured_content, read.structured_content, told.structured_content, wrong]

    found, read, told, wrong = asyncio.run(ask())
    assert {one["citation"]["source"] for one in found["passages"]} == {"leave.md", "secret.md"}
    assert "20 days" in read["text"]
    assert "20 days" in told["text"]
    assert not told["refused"]
    assert wrong.is_error
    assert strangers == []
    assert "DEBUG" in (tmp_path / "log").read_text()
    records = filled.tenant("acme").audit.find()
    assert [(record.subject, str(record.kind)) for record in records] == [
        ("ada", "answer"),
        ("ada", "retrieve"),
        ("ada", "retrieve"),
    ]
    assert records[0].principals == ("everyone", "department:hr")


@pytest.mark.slow
@pytest.mark.model
def test_http__serves_until_it_is_told_to_stop(filled: Engine, variables: dict[str, str]) -> None:
    key = CliRunner().invoke(app, ["key", "create", "agent", "--tenant", "globex"]).stdout.strip()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
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
                found = await client.call_tool("search", {"question": QUESTION})
            assert found.structured_content is not None
            return found.structured_content

        found = asyncio.run(ask())
        assert [one["citation"]["source"] for one in found["passages"]] == ["theirs.md"]
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0, log
    assert "POST /mcp 200" in log
    assert key.rpartition(".")[2] not in log


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 405
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
    refused = CliRunner().invoke(app, ["mcp", *arguments], catch_exceptions=False)
    assert refused.exit_code == 1
    assert message in refused.stderr
    assert refused.stdout == ""


def test_extra__is_named_where_it_is_missing(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from kosmos_rag.service import extra

    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "mcp" else name)
    refused = CliRunner().invoke(app, ["mcp"], catch_exceptions=False)
    assert refused.exit_code == 1
    assert "pip install 'kosmos-rag[mcp]'" in refused.stderr


def test_documentation__says_how_a_client_names_the_reader(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "mcp.md").read_text()
    (desktop,) = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL))
    server = desktop["mcpServers"]["handbook"]
    assert server["args"] == ["mcp"]
    for name, value in (server["env"] | {"KOSMOS_CONFIG": variables["KOSMOS_CONFIG"]}).items():
        monkeypatch.setenv(name, value)
    given = Settings.load().mcp
    assert (given.tenant, given.principals, given.subject) == ("acme", ("everyone", "department:hr"), "ada")
