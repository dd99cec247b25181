"""Commands on a distributed database, through the coordinator and on the nodes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kosmos_rag.apps.cli.app import app
from kosmos_rag.core.config import DatabaseSettings

pytestmark = pytest.mark.model


@pytest.mark.parametrize("use_nodes", ["false", "true"], ids=["through the coordinator", "on the nodes"])
def test_commands__ask_audit_and_monitor(
    cluster: DatabaseSettings, name: str, use_nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOSMOS_CONFIG", str(Path(__file__).parents[2] / "examples" / "minilm.yaml"))
    for key in ("url", "worker_url", "admin_url"):
        monkeypatch.setenv(f"KOSMOS_DATABASE__{key.upper()}", getattr(cluster, key) or "")
    monkeypatch.setenv("KOSMOS_DATABASE__USE_NODES", use_nodes)
    monkeypatch.setenv("KOSMOS_RAG__AUDIT__ENABLED", "true")
    (tmp_path / "leave.md").write_text("# Leave\n\nEmployees have thirty days of leave a year.\n")

    def run(*arguments: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        output: dict[str, Any] = json.loads(result.stdout)
        return output

    run("ingest", "leave.md", "--tenant", name)
    answer = run("ask", "How many days of leave do employees have?", "--tenant", name)
    assert "thirty days of leave" in json.dumps(answer)
    assert "leave" in json.dumps(run("audit", "list", "--tenant", name))
    run("audit", "seal", "--tenant", name)
    run("audit", "verify", "--tenant", name)
    assert run("monitor", "run", "--tenant", name)["tenant"] == name
    status = run("cluster", "status", "--tenant", name)
    assert status["tenant"]["node"] in {node["id"] for node in status["nodes"]}
