"""Take the pictures of docs/console.md: `make console-images`. Needs Chromium, Pillow and the packaged MiniLM.

The sample knowledge base is asked on an embedded PostgreSQL of its own.
"""

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from kosmos_rag import Engine, Settings
from tests.integration.apps.http.browsing import DESKTOP, chromium
from tests.integration.apps.http.serving import Running, Signer, serving

ROOT = Path(__file__).parents[4]
IMAGES = ROOT / "docs" / "images"
ASKED = "How is churn calculated?"
INSPECTED = "Which customers count as churned, and from which day?"
_MOST_BYTES = 300_000


@contextmanager
def sample(folder: Path) -> Iterator[Running]:
    """Serve the sample knowledge base, by its preset."""
    settings = Settings.load(
        ROOT / "examples" / "minilm.yaml",
        overrides={
            "database.data_dir": str(folder / "data"),
            "service.development.tenant": "acme",
            "rag.signals": {"header_match": {"weight": 0.15}, "word_overlap": {"weight": 0.3}},
        },
    )
    with Engine.open(settings) as engine:
        engine.warm_up()
        engine.tenant("acme").collections.create("analytics", preset="analytics")
        sources = sorted((ROOT / "examples" / "knowledge_base").glob("*.md"))
        engine.tenant("acme", collection="analytics").ingest(sources)
        engine.tenant("acme").search(INSPECTED)
        with serving(engine, Signer(folder)) as running:
            yield running


def main() -> None:
    """Take the pictures at the width of a desktop."""
    with tempfile.TemporaryDirectory() as folder, sample(Path(folder)) as running, chromium() as browser:
        context = browser.new_context(base_url=running.url, viewport=DESKTOP, color_scheme="light")
        _take(context.new_page(), "light-desktop")
        context.close()


def _take(page: Page, suffix: str) -> None:
    page.goto("/")
    page.fill("#question", ASKED)
    page.press("#question", "Enter")
    page.wait_for_selector("[data-edit]")
    page.click(".answer .text a.marker")
    page.wait_for_selector("#reader article")
    _keep(page, f"console-ask-{suffix}")
    page.goto("/inspector")
    page.select_option("#collection", "")
    page.fill("#question", INSPECTED)
    page.press("#question", "Enter")
    page.wait_for_selector(".trace")
    _keep(page, f"console-inspector-{suffix}", whole=True)


def _keep(page: Page, name: str, *, whole: bool = False) -> None:
    image = Image.open(io.BytesIO(page.screenshot(full_page=whole)))
    # Few colours are on it: with a palette it is a third as large.
    file = IMAGES / f"{name}.png"
    image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    assert file.stat().st_size < _MOST_BYTES, f"{file.name} has {file.stat().st_size:,} bytes"


if __name__ == "__main__":
    main()
