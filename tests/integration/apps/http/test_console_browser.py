"""The console in a browser: answers stream, citations open their source, and nothing is wrong on any page."""

import json
import re
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.protocols import Message
from kosmos_rag.core.types import Filter
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.sync_runs import SyncRuns
from kosmos_rag.worker.handlers import EngineJobRunner
from tests.conftest import Server, clone
from tests.files import write_pdf
from tests.integration.apps.http.browsing import DESKTOP, PHONE
from tests.integration.apps.http.serving import Running, Signer, serving
from tests.integration.evaluation.monitored import store_history
from tests.integration.variants import changed
from tests.integration.worker.working import open_channel

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, FilePayload, Page, Request

pytestmark = pytest.mark.slow

QUESTION = "How many days of paid annual leave do full-time employees receive?"
SENTENCE = "All full-time employees receive 20 days of paid annual leave per year."
LEAVE = f"# Leave\n\n## Annual\n\n{SENTENCE}\n\n" + "Another line of the handbook.\n\n" * 300
GUIDE = """# Travel guide

## Per diem

- The *meals* of a **whole day** are paid
- A ~ref~ `kosmos trip --city "Bern"` books it

| City | Rate | [Source](https://elsewhere.example/rates) |
|---|--:|---|
| Bern | 55 | a very long remark about the rate of this city and of the cities around it |

```sh
kosmos trip --city Bern --from 2026-01-01 --until 2026-01-03 --reason "A conference with a long name"
```

> Approved by the board.
"""
PER_DIEM = "The per diem for travel abroad is 55 euros."
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
WRITTEN = f"## Rockets\n\n- **{SENTENCE[:-1]}** [1].\n- The moon belongs to the company [1].\n\n{HOSTILE} [1]"
MISSING = "/no/such/page"
PAGES = (
    "/",
    "/inspector",
    "/documents",
    "/jobs",
    "/access?reader=anna",
    "/gaps",
    "/evaluations",
    "/evaluations/questions",
    "/monitor",
    "/usage",
    "/webhooks",
    "/health",
)


class Writer:
    """A language model that writes Markdown, slowly where it is asked about the moon."""

    name = "writer"

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> Generator[str]:
        slow = "moon" in messages[-1].text
        for piece in re.findall(r"\S+\s*", WRITTEN):
            yield piece
            time.sleep(0.25 if slow else 0.01)


@pytest.fixture(scope="module")
def served(loaded_settings: Settings, server: Server, template: str, signer: Signer) -> Iterator[Running]:
    """A service in development, with documents, one of them hostile."""
    signals = {"header_match": {"weight": 0.15}, "intro_penalty": {"weight": -0.3}, "word_overlap": {"weight": 0.3}}
    with clone(server, template) as database:
        expected = changed(
            loaded_settings.model_copy(update={"database": database}),
            {
                "service.development.tenant": "acme",
                "service.rates.subject_per_minute": 0,
                "rag.answer.mode": "generative",
                "rag.answer.history_turns": 2,
                "ingestion.keep_originals": True,
            },
        )
        expected = expected.model_copy(
            update={"rag": expected.rag.model_validate(expected.rag.model_dump() | {"signals": signals})}
        )
        with Engine(expected, embedder=HashingEmbedder(), language_model=Writer()) as engine:
            engine.tenant("acme").ingest(
                [
                    SourceDocument(source="leave.md", data=LEAVE.encode()),
                    SourceDocument(source="travel.pdf", data=write_pdf("Travel", "Conferences", PER_DIEM, size=14)),
                    SourceDocument(source="guide.md", data=GUIDE.encode()),
                    SourceDocument(
                        source="bonus.md", data=f"# Bonus {HOSTILE}\n\nThe bonus {HOSTILE} is paid.\n".encode()
                    ),
                ]
            )
            store_history(engine, "acme")
            with serving(engine, signer) as started:
                yield started


def _markdown(name: str, data: bytes) -> "FilePayload":
    return {"name": name, "mimeType": "text/markdown", "buffer": data}


def _is_fault(message: "ConsoleMessage") -> bool:
    return message.type in {"error", "warning"} and not message.location["url"].endswith(MISSING)


@contextmanager
def opened(browser: "Browser", served: Running, **options: Any) -> Iterator["Page"]:
    """Give a page on which nothing goes wrong: no error, no dialog, nothing fetched from elsewhere."""
    wrong: list[str] = []
    context = browser.new_context(base_url=served.url, **{"viewport": DESKTOP, **options})
    page = context.new_page()
    page.set_default_timeout(15_000)

    def refuse(dialog: "Dialog") -> None:
        wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", lambda message: wrong.append(message.text) if _is_fault(message) else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", refuse)
    page.on("request", lambda request: None if request.url.startswith(served.url) else wrong.append(request.url))
    yield page
    context.close()
    assert wrong == []


def _ask(page: "Page", question: str = QUESTION) -> None:
    page.goto("/")
    page.keyboard.press("Escape")
    page.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.press("/")
    page.keyboard.type(question)
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-edit]")


def _turns(page: "Page") -> list[tuple[str, str]]:
    """Return the conversation that a follow-up question sends."""
    turns = json.loads(page.input_value(".follow-up [name=history]"))
    return [(turn["question"], turn["answer"]) for turn in turns]


def test_answer__streams_as_text_with_links_and_leads_to_its_sources(browser: "Browser", served: Running) -> None:
    with opened(browser, served, permissions=["clipboard-read", "clipboard-write"]) as page:
        _ask(page)
        assert page.locator(".answer .text :is(h3, h4) mark.unsupported").inner_text() == "Rockets"
        assert page.inner_text(".answer .text strong") == SENTENCE[:-1]
        assert page.locator(".answer .text").get_by_text("**").count() == 0
        assert "script>alert(1)" in page.inner_text(".answer .text")
        assert page.locator(".answer :is(script, img)").count() == 0
        assert page.locator("main img, main script").count() == 0
        assert "The moon belongs to the company" in page.locator("mark.unsupported").all_inner_texts()
        assert SENTENCE[:-1] not in page.locator("mark.unsupported").all_inner_texts()
        assert page.get_by_text(QUESTION).count() == 1
        assert page.input_value("#question") == ""
        marker = page.locator(".answer .text a.marker").first
        marker.hover()
        assert SENTENCE in page.inner_text("#preview")
        page.keyboard.press("Escape")
        assert page.locator("#preview").is_hidden()
        marker.click()
        page.wait_for_selector("#reader article")
        assert page.inner_text("#reader mark") == SENTENCE
        assert page.locator("#reader mark").is_visible()
        page.keyboard.press("Escape")
        assert page.locator("#reader").is_hidden()
        page.click("[data-copy]")
        page.wait_for_selector("text=Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith(WRITTEN.removesuffix(f"{HOSTILE} [1]"))
        assert "Sources:\n[1] Leave" in copied
        page.click(".rate >> text=No")
        page.fill(".rate input[name=comment]", "It is 25 days.")
        page.click(".rate >> text=Send")
        page.wait_for_selector("text=Thank you.")
        ((question_request, answered),) = _turns(page)
        assert (question_request, answered.partition("<")[0]) == (QUESTION, WRITTEN.partition("<")[0])
        page.fill(".follow-up textarea", "And per month?")
        page.press(".follow-up textarea", "Enter")
        page.wait_for_selector(".answer + .answer [data-edit]")
        assert page.locator(".answer").count() == 2
        assert [question for question, _ in _turns(page)] == [QUESTION, "And per month?"]
        page.goto(page.get_attribute(".answer .text a.marker >> nth=0", "href") or "/")


def test_preview__does_not_cover_the_source_that_is_shown(browser: "Browser", served: Running) -> None:
    with opened(browser, served) as page:
        _ask(page)
        markers = page.locator(".answer .text a.marker")
        markers.first.click()
        page.wait_for_selector("#reader article")
        place = markers.first.bounding_box()
        assert place
        page.mouse.move(place["x"] + 3, place["y"] + 3)
        assert page.locator("#preview").is_hidden(), "its source is shown already"
        markers.last.hover()
        card, panel = page.locator("#preview").bounding_box(), page.locator("#reader").bounding_box()
        assert card
        assert panel
        assert card["x"] + card["width"] < panel["x"]


def test_citation_of_a_pdf__shows_the_page_with_its_lines_marked(browser: "Browser", served: Running) -> None:
    with opened(browser, served) as page:
        _ask(page, "How many euros abroad?")
        with page.expect_response(re.compile("/pages/1$")) as picture:
            page.click(".answer .text a.marker >> nth=0")
        assert picture.value.headers["content-type"] == "image/png"
        page.wait_for_selector("#reader .sheet rect")
        for place in ("#reader ", ""):
            if not place:
                page.goto(page.get_attribute(".answer .text a.marker >> nth=0", "href") or "")
            for number in (2, 3):
                page.click(f"{place}.sheet >> text=Next cited page")
                page.wait_for_selector(f"{place}.sheet >> text=page {number} of 3")
            sheet = page.locator(f"{place}.sheet")
            mark, bounding_box = sheet.locator("rect").bounding_box(), sheet.locator("svg").bounding_box()
            assert mark
            assert bounding_box
            assert 0.3 * bounding_box["width"] < mark["width"] < 0.7 * bounding_box["width"]
            assert mark["y"] - bounding_box["y"] < 0.1 * bounding_box["height"]
            sheet.get_by_label("Enlarge").check()
            enlarged = sheet.locator("svg").bounding_box()
            assert enlarged
            assert round(enlarged["width"] / bounding_box["width"], 1) == 2
            sheet.get_by_text("Previous page").click()
            page.wait_for_selector(f"{place}.sheet >> text=page 2 of 3")
        with page.expect_download() as original:
            page.click("text=Download the original")
        assert original.value.suggested_filename == "travel.pdf"


def _guide(served: Running) -> str:
    """Return the address of the guide, with a cell and a part of an item marked."""
    (info,) = served.service.engine.sync_engine.tenant("acme").documents(filter=Filter(sources=("guide.md",)))
    spans = [(GUIDE.index(words), GUIDE.index(words) + len(words)) for words in ("55", "whole day** are", "from 2026")]
    query = "&".join(f"mark={start}-{end}" for start, end in spans)
    return f"/documents/{info.id}?version=1&line=3&span={spans[0][0]}-{spans[0][1]}&{query}#cited"


def test_document__is_formatted_text_with_exact_marks(browser: "Browser", served: Running) -> None:
    with opened(browser, served) as page:
        page.goto(_guide(served))
        assert page.locator(".document mark").all_inner_texts() == ["whole day", " are", "55", "from 2026"]
        assert page.inner_text(".document td:has(mark)") == "55"
        assert page.inner_text(".document h3") == "Per diem"
        assert page.locator(".document a, .document img").count() == 0
        assert page.get_by_text("##").count() == 0
        assert "Per diem" in page.inner_text(".facts")
        assert page.locator("#cited").is_visible()


def test_answer__can_be_stopped_and_keeps_its_sources(browser: "Browser", served: Running) -> None:
    with opened(browser, served) as page:
        _ask(page)
        followed = ["And on the moon?", "And on that moon?"]
        for question in followed:
            page.fill(".follow-up textarea", question)
            page.press(".follow-up textarea", "Enter")
            page.click(".stop")
            page.wait_for_selector(f".answer:has-text('{question}') >> text=Stopped.")
            assert page.locator(".follow-up textarea").is_visible()
        assert page.locator(".answer h2.question").all_inner_texts() == [QUESTION, *followed]
        page.fill("#question", "How many days of paid annual leave do full-time employees of the moon receive?")
        page.press("#question", "Enter")
        page.wait_for_selector("text=Writing …")
        page.wait_for_selector(".answer .text :is(h3, h4)")
        page.click(".stop")
        page.wait_for_selector("text=Stopped.")
        assert page.locator(".answer [data-passage]").count() >= 1
        assert page.locator(".ask .primary").is_visible()


def test_refusal__says_why_and_shows_the_score_of_each_unit(browser: "Browser", served: Running) -> None:
    with opened(browser, served) as page:
        _ask(page, "Which exchange rate converts the euros of Zurich?")
        page.wait_for_selector(".answer.refused")
        assert page.locator(".units table").is_hidden()
        page.click(".units summary")
        assert "below rag.answer.threshold" in page.inner_text(".units p")
        assert page.locator(".units thead th").all_inner_texts() == [
            "Score",
            "meaning",
            "words",
            "rank",
            "Passage",
            "Unit",
        ]
        rows = [row.locator("td").all_inner_texts() for row in page.locator(".units tbody tr").all()]
        scores = [float(score) for score, *_ in rows]
        assert scores == sorted(scores, reverse=True)
        for score, meaning, words, rank, marker, text in rows:
            assert float(score) == pytest.approx(max(0, float(meaning) + float(words) + float(rank)), abs=0.002)
            assert re.fullmatch(r"\[\d+\]", marker)
            assert text


def test_pages__work_without_scripts(browser: "Browser", served: Running) -> None:
    with opened(browser, served, java_script_enabled=False) as page:
        page.goto("/")
        page.fill("#question", QUESTION)
        page.click(".ask .primary")
        page.wait_for_selector(".sources")
        page.click(".answer .text a.marker >> nth=0")
        assert page.inner_text("mark") == SENTENCE
        page.goto("/documents")
        page.set_input_files("#files", [_markdown("sea.md", b"# Sea\n")])
        page.fill("#readers", "department:hr")
        page.click("#upload .primary")
        page.wait_for_selector("tr.queued >> text=sea.md")
        assert page.url.endswith("/jobs")


def test_inspector__highlights_a_hit_and_shows_hostile_text_as_text(browser: "Browser", served: Running) -> None:
    with opened(browser, served) as page:
        page.goto("/inspector")
        width = "element => element.clientWidth / element.parentElement.clientWidth"
        assert page.locator("#question").evaluate(width) > 0.7, "a question is readable"
        page.fill("#question", f"Is the bonus paid? {HOSTILE}")
        page.press("#question", "Enter")
        page.wait_for_selector(".trace")
        page.hover(".ranking.fused li >> nth=0")
        assert page.locator(".highlighted").count() >= 3
        assert page.locator("main img, main script").count() == 0


def test_uploads__are_followed_together_and_keep_their_readers(browser: "Browser", served: Running) -> None:
    with opened(browser, served) as page:
        polls: list[str] = []
        page.on("request", lambda request: polls.append(request.url) if "/jobs/states" in request.url else None)
        page.goto("/documents")
        names = [f"part-{number}.md" for number in range(4)]
        page.fill("#readers", "department:hr")
        page.set_input_files("#files", [_markdown(name, name.encode()) for name in names])
        page.click("#upload .primary")
        page.wait_for_selector("#uploads li:nth-child(4)")
        page.wait_for_selector("#upload .primary:not([disabled])")
        assert page.input_value("#readers") == "department:hr"
        page.fill("#readers", "")
        page.set_input_files("#files", [_markdown("travel.md", b"# Travel\n\nBy train.\n")])
        page.click("#upload .primary")
        page.wait_for_selector("#uploads li:nth-child(5)")
        page.wait_for_selector("text=waits for a worker")
        _work(served)
        page.wait_for_selector("#uploads li:not(.done)", state="detached")
        assert page.locator("#uploads .done").count() == 5
        assert 1 <= len(polls) <= 12, "one request a second for all of them"
        page.wait_for_selector("table >> text=travel.md")
        page.goto("/jobs")
        assert "travel.md" in page.inner_text("tr.done >> nth=0")


def test_live_parts__say_that_they_are_old_when_the_service_is_away(browser: "Browser", served: Running) -> None:
    context = browser.new_context(base_url=served.url)
    page = context.new_page()
    page.goto("/health")
    page.clock.install()
    page.reload()
    context.set_offline(True)
    page.clock.run_for(11_000)
    page.wait_for_selector(".notice >> text=the service cannot be reached")
    assert "As of" in page.inner_text(".notice")
    context.set_offline(False)
    page.clock.run_for(11_000)
    page.wait_for_selector(".notice", state="detached")
    context.close()


def _work(served: Running) -> None:
    """Do what is in the queue, as a worker does."""
    engine = served.service.engine.sync_engine
    queue = Queue.open(engine.database, engine.settings.worker)
    _, channel = open_channel(queue)
    work = EngineJobRunner(engine)
    while queue.count_unfinished([kinds.DOCUMENT]):
        work.run(queue.claim(8, kinds=[kinds.DOCUMENT], worker="test"), channel)
    SyncRuns(engine.database.worker).finish_completed()


SMALL_TARGETS = """
() => [...document.querySelectorAll("a, button, select, summary, input:not([type=checkbox], [type=radio])")]
  .filter(element => {
    const height = element.getBoundingClientRect().height
    return height > 0 && height < 24 && getComputedStyle(element).display !== "inline"
  })
  .map(element => element.outerHTML.slice(0, 100))
"""
"""What a finger misses: less high than the 24 pixels of WCAG 2.2, and no link within a sentence."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_pages__break_no_rule_of_axe_and_do_not_scroll_sideways(
    browser: "Browser", served: Running, scheme: str, size: dict[str, int]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python").Axe()
    long_name = served.service.engine.sync_engine.tenant("acme", collection=f"vs_{'0' * 32}")
    long_name.ingest(SourceDocument(source="sea.md", data=b"# Sea\n\nThe sea is wide.\n"))
    # axe is put into the page by the test, which its policy would not let a page do.
    with opened(browser, served, viewport=size, color_scheme=scheme, bypass_csp=True) as page:

        def look() -> None:
            result = axe.run(page)
            assert result.violations_count == 0, f"{page.url}\n{result.generate_report()}"
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(wide) == 0, page.url
            assert size == DESKTOP or page.evaluate(SMALL_TARGETS) == [], page.url

        for path in (*PAGES, "/sign-in", MISSING):
            page.goto(path)
            for opened_values in page.locator(".history summary").all():
                opened_values.click()
            look()
        page.goto("/")
        page.locator(".examples button").first.evaluate("button => button.textContent = 'A long example. '.repeat(20)")
        look()
        _ask(page)
        page.click(".units summary")
        look()
        page.click(".answer .text a.marker >> nth=0")
        page.wait_for_selector("#reader article")
        look()
        page.goto(page.get_attribute(".answer .text a.marker >> nth=0", "href") or "")
        look()
        page.goto(_guide(served))
        look()
        page.click("text=show them in the text")
        page.wait_for_selector(".chunk-start")
        look()
        page.goto("/inspector")
        page.fill("#question", QUESTION)
        page.press("#question", "Enter")
        page.wait_for_selector(".trace")
        look()


def test_docs__show_every_operation(browser: "Browser", served: Running) -> None:
    with opened(browser, served) as page:
        page.goto("/docs", wait_until="networkidle")
        document = page.evaluate("fetch('/openapi.json').then((response) => response.json())")
        operations = [(method, path) for path, methods in document["paths"].items() for method in methods]
        assert page.locator(".opblock").count() == len(operations)
        page.locator(".opblock-summary", has_text="/v1/search").click()
        assert page.locator(".opblock.is-open").get_by_text("Try it out").is_visible()


def _record_requests(page: "Page") -> "list[Request]":
    requests: list[Request] = []
    page.on("requestfinished", lambda request: requests.append(request))
    return requests


def test_pages__are_light_and_do_not_shift(browser: "Browser", served: Running) -> None:
    for path in PAGES:
        with opened(browser, served) as page:
            sent_requests = _record_requests(page)
            page.goto(path, wait_until="networkidle")
            assert sum(request.sizes()["responseBodySize"] for request in sent_requests) < 200_000, path
            shifts = """() => new Promise((resolve) => new PerformanceObserver((list) => resolve(list.getEntries()
              .reduce((sum, entry) => sum + entry.value, 0))).observe({type: "layout-shift", buffered: true})
              ?? setTimeout(() => resolve(0), 50))"""
            assert page.evaluate(shifts) < 0.05, path


def test_unknown_addresses__are_a_page(browser: "Browser", served: Running) -> None:
    context = browser.new_context(base_url=served.url)
    page = context.new_page()
    response = page.goto("/no/such/page")
    assert response is not None
    assert response.status == 404
    assert "unsafe" not in response.headers["content-security-policy"]
    assert "There is no such page" in page.inner_text("h1")
    page.click("text=Go to the first page")
    page.wait_for_selector("#question")
    context.close()


def test_signing_in__is_by_a_key_once(browser: "Browser", running: Running) -> None:
    with opened(browser, running) as page:
        page.goto("/documents")
        assert page.url.endswith("/sign-in?next=%2Fdocuments")
        page.fill("#credentials", running.key("mine", "read"))
        page.click("text=Sign in >> nth=-1")
        page.wait_for_selector("text=There are no documents that you may read")
        assert page.evaluate("document.cookie") == ""
        assert page.locator("nav >> text=Inspector").count() == 0
        page.click("text=Sign out")
        page.wait_for_selector("#credentials")
        page.goto("/")
        assert page.url.endswith("/sign-in")
