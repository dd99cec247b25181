"""The pages of docs/ that the code writes."""

import pytest

from tests.written_pages import DOCS, PAGES, read_security_tests


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
