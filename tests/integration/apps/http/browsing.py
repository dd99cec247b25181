"""A browser for the console, where there is one."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ViewportSize

_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
DESKTOP: "ViewportSize" = {"width": 1360, "height": 900}
PHONE: "ViewportSize" = {"width": 360, "height": 740}


def executable() -> str | None:
    """Return the path of Chromium: of $CHROMIUM, or the one that is installed."""
    value = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    return value if value and Path(value).exists() else None


@contextmanager
def chromium() -> Iterator["Browser"]:
    """Give a browser with an empty profile; a test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    path = executable()
    if path is None:
        pytest.skip("needs Chromium: install it, or name it in CHROMIUM")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield browser
        browser.close()
