"""The pages of docs/ that the code writes, and how much people write."""

import re

import pytest

from tests.written_pages import DOCS, PAGES, read_security_tests

WRITTEN = {*PAGES, "settings.md", "metrics.md", "benchmarks/peers.md"}
RECORDS = {"benchmarks/tuning-log.md"}
"""What was tried, kept like a decision."""


@pytest.mark.parametrize("name", PAGES)
def test_page__is_what_the_code_writes(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run: python -m tests.written_pages"


def test_security_properties__name_each_test_once() -> None:
    files = [(file, tests) for subject in read_security_tests().values() for file, tests in subject.items()]
    tests = [(file, test) for file, names in files for test in names]
    assert len(tests) == len(set(tests)) > 80


def test_routes__have_their_scopes() -> None:
    page = PAGES["routes.md"]()
    assert "| `DELETE /v1/documents/{document_id}` | ingest |" in page
    assert "| `GET /livez` | none |" in page


def test_pages_by_hand__have_at_most_50_000_words() -> None:
    pages = {str(path.relative_to(DOCS)): path for path in DOCS.rglob("*.md") if path.parent.name != "decisions"}
    assert pages.keys() > WRITTEN | RECORDS
    words = {
        name: len(re.findall(r"\S*\w\S*", path.read_text(encoding="utf-8")))  # without the lines of tables
        for name, path in pages.items()
        if name not in WRITTEN | RECORDS
    }
    assert sum(words.values()) <= 50_000, sorted(words.items(), key=lambda item: -item[1])[:10]
