"""Commands on a distributed database, through the coordinator and on the nodes."""

import json
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.config import DatabaseSettings
from tests.commands import MINILM, run_command, set_variables

pytestmark = pytest.mark.model


@pytest.mark.parametrize("use_nodes", ["false", "true"], ids=["through the coordinator", "on the nodes"])
def test_commands__ask_audit_and_monitor(
    cluster: DatabaseSettings, name: str, use_nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    set_variables(monkeypatch, cluster, CONFIG=MINILM, DATABASE__USE_NODES=use_nodes, RAG__AUDIT__ENABLED="true")
    (tmp_path / "leave.md").write_text("# Leave\n\nEmployees have thirty days of leave a year.\n")

    def run(*arguments: str) -> dict[str, Any]:
        result = run_command(*arguments, "--json")
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
