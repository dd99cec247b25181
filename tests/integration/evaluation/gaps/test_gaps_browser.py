"""The page of gaps in a browser: a gap leads to the upload of its collection, and nothing is wrong at any width."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.evaluation.gaps.gaps import Gaps, check_unanswered
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.browsing import DESKTOP, PHONE
from tests.integration.apps.http.serving import Running, Signer, serving
from tests.integration.variants import changed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

PARKING = "How do I get a parking permit for the garage of the headquarters?"
PERMIT = b"# Parking\n\nYou get a parking permit for the garage of the headquarters at the reception desk.\n"
LEAVE = "Who grants parental leave?"


@pytest.fixture
def served(settings: Settings, signer: Signer) -> Iterator[Running]:
    overrides = {"service.development.tenant": "acme", "gaps.record": True}
    with Engine(changed(settings, overrides), embedder=HashingEmbedder()) as engine:
        for collection in ("office", "hr"):
            document = SourceDocument(source=f"{collection}.md", data=b"Churn is the share that leaves.")
            engine.tenant("acme", collection=collection).ingest(document)
        for subject in ("ada", "bob", "eve"):
            for collection, question in (("office", PARKING), ("hr", LEAVE)):
                reader = engine.tenant("acme", collection=collection, subject=subject, principals=[EVERYONE])
                reader.answer(question)
        assert engine.background.drain(10)
        Gaps(engine.tenant("acme")).group()
        with serving(engine, signer) as started:
            yield started


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_gap__leads_to_the_upload_and_closes(
    browser: "Browser", served: Running, viewport: object, scheme: str
) -> None:
    engine = served.service.engine.sync_engine
    context = browser.new_context(base_url=served.url, viewport=viewport, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto("/gaps")
    assert page.locator("tbody tr").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_label("Upload documents about garage").click()
    page.wait_for_url("**/documents?collection=*#upload")
    assert page.input_value("#into") == "office"
    engine.tenant("acme", collection="office").ingest(SourceDocument(source="parking.md", data=PERMIT))
    check_unanswered(engine, engine.tenant("acme"))
    page.goto("/gaps")
    assert PARKING in page.inner_text("section[aria-labelledby=closed]")
    assert PARKING not in page.inner_text("section[aria-labelledby=open]")
    context.close()
    assert faults == []
