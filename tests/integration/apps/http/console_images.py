"""Take the pictures of docs/console.md: `make console-images`. Needs Chromium, Pillow and the packaged MiniLM.

The sample knowledge base is asked on an embedded PostgreSQL of its own. The runs of the page Monitor are made up.
"""

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Page

from kosmos_rag import Engine, Settings
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from tests.integration.apps.http.browsing import DESKTOP, PHONE, chromium
from tests.integration.apps.http.serving import Running, Signer, serving
from tests.integration.evaluation.monitored import store_history

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
        store_history(engine, "acme")
        with serving(engine, Signer(folder)) as running:
            _add_jobs(running)
            yield running


def _add_jobs(running: Running) -> None:
    """Upload an encrypted file, whose job fails, and one that waits for a worker."""
    files = [("files", (name, b"A text.")) for name in ("contract.pdf", "travel-policy.md")]
    headers = {"sec-fetch-site": "same-origin", "accept": "application/json"}
    httpx.post(f"{running.url}/documents", files=files, headers=headers, trust_env=False).raise_for_status()
    engine = running.service.engine.sync_engine
    queue = Queue.open(engine.database, engine.settings.worker)
    for job in queue.claim(2, kinds=[kinds.DOCUMENT], worker="sample"):
        source = job.payload["document"]["source"]
        if source.endswith(".pdf"):
            error = IngestionError("encrypted", "the file is protected by a password")
            queue.fail(job, error, source=source, retry=False)
        else:
            queue.release([job.token])


def main() -> None:
    """Take every picture, light and dark, at the width of a channel and of a phone."""
    with tempfile.TemporaryDirectory() as folder, sample(Path(folder)) as running, chromium() as browser:
        for scheme in ("light", "dark"):
            for size, viewport in (("desktop", DESKTOP), ("phone", PHONE)):
                context = browser.new_context(base_url=running.url, viewport=viewport, color_scheme=scheme)
                _take(context.new_page(), f"{scheme}-{size}")
                context.close()


def _take(page: Page, suffix: str) -> None:
    page.goto("/")
    page.fill("#question", ASKED)
    page.press("#question", "Enter")
    page.wait_for_selector("[data-edit]")
    link = page.get_attribute(".answer .text a.marker", "href") or ""
    if "desktop" in suffix:
        page.click(".answer .text a.marker")
        page.wait_for_selector("#reader article")
    _keep(page, f"console-ask-{suffix}")
    page.goto(link)
    _keep(page, f"console-source-{suffix}")
    page.goto("/inspector")
    page.select_option("#collection", "")
    page.fill("#question", INSPECTED)
    page.press("#question", "Enter")
    page.wait_for_selector(".trace")
    _keep(page, f"console-inspector-{suffix}", whole=True)
    page.goto("/jobs")
    _keep(page, f"console-jobs-{suffix}")
    page.goto("/monitor")
    _keep(page, f"console-monitor-{suffix}", whole=True)
    page.goto("/health")
    _keep(page, f"console-health-{suffix}", whole=True)


def _keep(page: Page, name: str, *, whole: bool = False) -> None:
    image = Image.open(io.BytesIO(page.screenshot(full_page=whole)))
    # Few colours are on it: with a palette it is a third as large.
    file = IMAGES / f"{name}.png"
    image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    assert file.stat().st_size < _MOST_BYTES, f"{file.name} has {file.stat().st_size:,} bytes"


if __name__ == "__main__":
    main()
