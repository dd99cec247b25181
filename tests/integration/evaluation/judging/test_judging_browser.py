"""The page of judged questions in a browser: a candidate is accepted and opened again, at each width."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.browsing import DESKTOP, PHONE
from tests.integration.apps.http.serving import Running, Signer, serving
from tests.integration.variants import changed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

QUESTION = "When does the canteen of the headquarters open on a Friday before a holiday?"


@pytest.fixture
def served(settings: Settings, signer: Signer) -> Iterator[Running]:
    development = changed(settings, {"service.development.tenant": "acme"})
    with Engine(development, embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").ingest(
            SourceDocument(source="office/canteen.md", data=b"# Canteen\n\n## Hours\n\nThe canteen opens at noon.\n")
        )
        for subject, rating in (("ada", "up"), ("bob", "click")):
            reader = engine.tenant("acme", subject=subject, principals=[EVERYONE])
            reader.feedback(rating, question=QUESTION, chunk_id=reader.search(QUESTION).hits[0].chunk_id)
        engine.tenant("acme", subject="eve").feedback("down", question="Who plays the violin?", reason="not_covered")
        with serving(engine, signer) as started:
            yield started


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_candidate__is_accepted_and_opened_again(
    browser: "Browser", served: Running, viewport: object, scheme: str
) -> None:
    context = browser.new_context(base_url=served.url, viewport=viewport, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto("/evaluations")
    page.get_by_text("Judge questions of readers").click()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_label(f"Accept: {QUESTION}").click()
    accepted = page.locator("section[aria-labelledby=accepted]")
    accepted.get_by_text(QUESTION).wait_for()
    page.get_by_label("Reject: Who plays the violin?").click()
    page.locator("section[aria-labelledby=rejected]").get_by_text("Who plays the violin?").wait_for()
    page.get_by_label(f"Reopen: {QUESTION}").click()
    page.locator("section[aria-labelledby=open]").get_by_text(QUESTION).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    context.close()
    assert faults == []
