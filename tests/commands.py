"""Commands of kosmos-rag in this process, and the environment that they take their settings from."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kosmos_rag.apps.cli.app import app
from kosmos_rag.core.config import DatabaseSettings

Run = Callable[..., Result]

MINILM = str(Path(__file__).parents[1] / "examples" / "minilm.yaml")
"""Settings with the packaged model."""


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def database_variables(database: DatabaseSettings) -> dict[str, str]:
    """Return the variables that name a database."""
    urls = {"URL": database.url, "WORKER_URL": database.worker_url, "ADMIN_URL": database.admin_url}
    return {f"KOSMOS_DATABASE__{name}": url or "" for name, url in urls.items()}


def set_variables(patch: pytest.MonkeyPatch, database: DatabaseSettings, **others: str) -> None:
    """Let commands use a database.

    Args:
        others: Further variables, without the prefix `KOSMOS_`.
    """
    others = {f"KOSMOS_{name}": value for name, value in others.items()}
    for name, value in (database_variables(database) | others).items():
        patch.setenv(name, value)
