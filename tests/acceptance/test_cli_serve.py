"""kosmos-rag serve and key: a service from the command line, from its start to SIGTERM."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.commands import MINILM, Run, run_command, set_variables
from tests.ports import find_free_port

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def kosmos(tmp_path: Path, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, in a folder with a document."""
    monkeypatch.chdir(tmp_path)
    set_variables(monkeypatch, database, CONFIG=MINILM)
    (tmp_path / "leave.md").write_text("# Leave\n\nAll employees get 20 days of paid annual leave per year.\n")
    return run_command


def _started(command: list[str]) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, verify=False).status_code == 200
    except httpx.HTTPError:
        return False


def test_serve__answers_until_it_is_told_to_stop(kosmos: Run) -> None:
    with Engine(Settings.load(os.environ["KOSMOS_CONFIG"]), embedder=HashingEmbedder()) as engine:
        engine.tenant("default").ingest(Path("leave.md"))
    key = kosmos("api-key", "create", "test", "--scope", "read").stdout.strip()
    port, health_port = find_free_port(), find_free_port()
    # The command line itself, with an embedder that needs no model: the next test serves with one.
    command = [sys.executable, "-m", "benchmarks.service_quick", "serve", "--port", str(port)]
    command += ["--set", f"service.health_port={health_port}", "--set", "observability.log_format=json"]
    command += ["--set", "observability.log_level=INFO"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    ) as process:
        url = f"http://127.0.0.1:{port}"
        began = time.monotonic()
        while not _answers(f"{url}/readyz"):
            assert process.poll() is None
            assert time.monotonic() - began < 90
            time.sleep(0.2)
        trace = "0af7651916cd43dd8448eb211c80319c"
        headers = {
            "authorization": f"Bearer {key}",
            "x-request-id": "mine",
            "traceparent": f"00-{trace}-b7ad6b7169203331-01",
        }
        response = httpx.post(f"{url}/v1/search", json={"question": "leave"}, headers=headers, trust_env=False)
        assert response.json()["hits"][0]["title"] == "Leave"
        assert response.headers["x-trace-id"] == trace
        metrics = httpx.get(f"http://127.0.0.1:{health_port}/metrics", trust_env=False).text
        assert 'kosmos_http_requests_total{method="POST",route="/v1/search",status="200"} 1.0' in metrics
        assert 'kosmos_retrieval_stage_seconds_count{stage="total"} 1.0' in metrics
        accepts = {"accept": "application/openmetrics-text; version=1.0.0"}
        result = httpx.get(f"http://127.0.0.1:{health_port}/metrics", headers=accepts, trust_env=False).text
        assert f'# {{trace_id="{trace}"}}' in result
        assert not _answers(f"{url}/metrics")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0, log
    assert f"ready: the service answers on {url}" in log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line["message"].startswith("POST /v1/search 200")]
    assert (line["request_id"], line["trace_id"], line["action"]) == ("mine", trace, "request")
    assert key.rpartition(".")[2] not in log


def test_serve__on_a_port_in_use_ends_before_the_models_are_loaded(kosmos: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = kosmos("serve", "--port", str(port))
    assert result.exit_code != 0
    assert f"port {port} of 127.0.0.1 is in use by another program; end what uses it" in result.stderr
    assert "loading the models" not in result.stderr


@pytest.mark.model
def test_serve__in_development_ingests_uploads_with_a_worker_of_its_own(kosmos: Run) -> None:
    port = find_free_port()
    command = [sys.executable, "-m", "kosmos_rag", "serve", "--port", str(port)]
    command += ["--set", "service.development.tenant=default", "--set", "worker.poll_s=0.2"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    ) as process:
        url = f"http://127.0.0.1:{port}"
        began = time.monotonic()
        while not _answers(f"{url}/readyz"):
            assert process.poll() is None
            assert time.monotonic() - began < 90
            time.sleep(0.2)
        with httpx.Client(base_url=url, trust_env=False) as client:
            content = Path("leave.md").read_bytes()
            job = client.post("/v1/documents", params={"source": "leave.md"}, content=content).json()
            while client.get(f"/v1/jobs/{job['id']}").json()["state"] != "done":
                assert time.monotonic() - began < 120
                time.sleep(0.2)
            payload = client.post("/v1/search", json={"question": "leave"}).json()
        assert payload["hits"][0]["title"] == "Leave"
        children = psutil.Process(process.pid).children(recursive=True)
        assert children, "jobs run in processes of their own"
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=40)
    assert process.returncode == 0, log
    assert f"{url}/docs" in log
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_keys__are_made_listed_rotated_and_revoked(kosmos: Run) -> None:
    assert kosmos("api-key", "list").stdout == ""
    outcome = json.loads(kosmos("api-key", "create", "ci", "--scope", "ingest", "--days", "1", "--json").stdout)["key"]
    (key,) = json.loads(kosmos("api-key", "list", "--json").stdout)["keys"]
    assert (key["name"], key["scopes"]) == ("ci", ["ingest"])
    assert outcome.rpartition(".")[2] not in kosmos("api-key", "list").stdout
    rotated = json.loads(kosmos("api-key", "rotate", key["id"], "--overlap", "3600", "--json").stdout)
    assert (rotated["key"].split(".")[:2], rotated["rotated"]) == (["kosmos", "default"], key["id"])
    assert [line.split()[1] for line in kosmos("api-key", "list").stdout.splitlines()] == ["ending", "valid"]
    assert kosmos("api-key", "revoke", key["id"]).stdout == f"revoked {key['id']}\n"
    assert "revoked" in kosmos("api-key", "list").stdout
    again = kosmos("api-key", "revoke", key["id"])
    assert again.exit_code == 1
    assert "has no valid key" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "ci", "--scope", "write"), "the scope of the key is 'write'; use read, ingest, operate, admin"),
        (("create", " "), "the name of the key is ' '"),
        (("create", "ci", "--principal", ""), "--principal is empty"),
        (("revoke", "x"), "'x' is not an id of a key"),
        (("rotate", "00000000-0000-4000-8000-000000000001"), "tenant default has no valid key"),
    ],
)
def test_keys__say_what_is_wrong_with_an_argument(kosmos: Run, arguments: tuple[str, ...], message: str) -> None:
    refused = kosmos("api-key", *arguments)
    assert refused.exit_code == 1
    assert message in refused.stderr


def test_serve__says_which_extra_is_missing(kosmos: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from kosmos_rag.core import extras as extra

    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "fastapi" else name)
    refused = kosmos("serve")
    assert refused.exit_code == 1
    assert "pip install 'kosmos-rag[service]'" in refused.stderr
