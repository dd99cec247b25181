"""The sandbox as ingestion uses it, and what is left of it when its owner ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kosmos_rag import Engine, SourceDocument
from tests.unit.parsing.sandbox.zygotes import is_alive, until

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys, os, signal
from kosmos_rag.core.config import ParsingSettings
from kosmos_rag.parsing.sandbox import fork_server
from kosmos_rag.parsing.sandbox.client import parse_confined
from kosmos_rag.core.types import SourceDocument

print(parse_confined(SourceDocument(source="a.txt", data=b"words"), ParsingSettings()).text, end=" ")
print(fork_server.current()._process.pid, flush=True)
sys.stdin.read()
"""
KINDS = ("net", "user")
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the zygote hides its entries in /proc from all but root")


def start_owner() -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", SCRIPT]
    secrets = {"DATABASE_PASSWORD": "secret-word", "KOSMOS_DATABASE__URL": "postgresql://u:secret-word@h/d"}
    environment = os.environ | secrets
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=ROOT)


def find_zygote(owner: "subprocess.Popen[str]") -> int:
    assert owner.stdout is not None
    text, pid = owner.stdout.readline().split()
    assert text == "words"
    return int(pid)


def test_ingest__a_file_that_cannot_be_parsed_fails_alone(engine: Engine, tenant_name: str) -> None:
    documents = [
        SourceDocument(source="good.txt", data=b"The weather report of Monday."),
        SourceDocument(source="long.txt", data=b"word " * 5_000_000),
        SourceDocument(source="table.csv", data=b"name,city\nAda,London\n"),
    ]
    engine.tenant(tenant_name).ingest(documents[:1])
    report = engine.tenant(tenant_name).ingest(documents)
    assert [(failure.source, failure.code) for failure in report.failed] == [("long.txt", "too_large")]
    assert (report.new, report.unchanged) == (1, 1)


@needs_proc
@needs_root
def test_zygote__knows_no_secret_and_ends_with_its_owner() -> None:
    with start_owner() as owner:
        zygote = find_zygote(owner)
        environment = Path(f"/proc/{zygote}/environ").read_text()
        _, errors = owner.communicate("", timeout=60)
    assert "PYTHONPATH" in environment
    assert "secret-word" not in environment
    assert errors == ""
    assert owner.returncode == 0
    assert not is_alive(zygote)


@needs_proc
@pytest.mark.parametrize("sent_signal", [signal.SIGKILL, signal.SIGTERM])
def test_zygote__ends_when_its_owner_is_killed(sent_signal: signal.Signals) -> None:
    with start_owner() as owner:
        zygote = find_zygote(owner)
        owner.send_signal(sent_signal)
        owner.wait(60)
        until(lambda: None if is_alive(zygote) else True)


@needs_proc
@needs_root
def test_zygote__has_namespaces_of_its_own_where_the_kernel_allows_that() -> None:
    allowed = subprocess.run(["unshare", "--user", "--net", "true"], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip("this kernel lets no ordinary user make a namespace")
    with start_owner() as owner:
        zygote = find_zygote(owner)
        zygote_namespaces, owner_namespaces = (
            [Path(f"/proc/{pid}/ns/{kind}").readlink() for kind in KINDS] for pid in (zygote, owner.pid)
        )
        owner.communicate("", timeout=60)
    assert not set(zygote_namespaces) & set(owner_namespaces)
