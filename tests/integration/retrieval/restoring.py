"""Dump a database, and put it back under the connections of running processes."""

import os
import subprocess
from pathlib import Path

import psycopg
import pytest

from kosmos_rag.storage import embedded

NEEDS_PROGRAMS = pytest.mark.skipif(
    bool(os.environ.get("KOSMOS_TEST_DATABASE_URL") or os.environ.get("KOSMOS_TEST_DOCKER")),
    reason="pg_dump has to be of the server's version: that of the embedded one is at hand",
)


def _run(program: str, *arguments: str) -> None:
    utils = embedded._package().utils
    binary = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION] / program
    subprocess.run([str(binary), *arguments], capture_output=True, text=True, check=True)


def dump(admin_url: str, file: Path) -> None:
    """Write a dump."""
    _run("pg_dump", "--format=custom", f"--file={file}", admin_url)


def restore(admin_url: str, file: Path) -> None:
    """Put the whole schema back."""
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA kosmos CASCADE")
    _run("pg_restore", f"--dbname={admin_url}", "--exit-on-error", str(file))
