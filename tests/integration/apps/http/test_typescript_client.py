"""The TypeScript client: generated from the OpenAPI document, built, and run by Node against a service."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kosmos_rag import SourceDocument
from tests.integration.apps.http.serving import Running

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).parents[4] / "clients" / "typescript"
PACKAGES = CLIENT / "node_modules"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the client, with the packages of the checkout."""
    if shutil.which("node") is None or not PACKAGES.exists():
        pytest.skip("needs Node and the packages of the client: npm ci --prefix clients/typescript")
    folder = tmp_path / "client"
    shutil.copytree(CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "dist", "openapi.json", "schema.ts"))
    (folder / "node_modules").symlink_to(PACKAGES)
    return folder


def _run(folder: Path, *command: str, **environment: str) -> str:
    result = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=170, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_client__is_generated_typed_and_works_against_the_service(
    running: Running, tenant_name: str, folder: Path
) -> None:
    running.tenant().ingest([SourceDocument(source="leave.md", data=b"There are 20 days of leave a year.\n")])
    document = subprocess.run([sys.executable, "-m", "kosmos_rag.apps.http"], capture_output=True, check=True).stdout
    (folder / "openapi.json").write_bytes(document)
    for script in ("generate", "build"):
        _run(folder, "npm", "run", "--silent", script)
    key = running.key("typescript", "read", "ingest")
    report = _run(folder, "npm", "run", "--silent", "test", KOSMOS_URL=running.url, KOSMOS_KEY=key, NO_PROXY="*")
    assert "fail 0" in report
    assert "pass 5" in report
