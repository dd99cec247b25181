"""Each test starts in an empty folder, without any KOSMOS_ variable."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("KOSMOS_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
