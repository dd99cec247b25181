"""Links between the pages of the documentation lead to files and headings that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]


def _anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links__lead_to_files_and_headings(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("folder", ["", "how-to/", "benchmarks/", "decisions/"])
def test_index__lists_every_page(folder: str) -> None:
    index = ROOT / "docs" / ("" if folder == "benchmarks/" else folder) / "README.md"
    prefix = "" if index.parent.name in folder or not folder else folder
    pages = [page.name for page in (ROOT / "docs" / folder).glob("*.md") if page != index]
    assert [name for name in pages if f"({prefix}{name})" not in index.read_text()] == []


def test_site__has_every_page_in_its_navigation() -> None:
    docs = ROOT / "docs"
    navigation = re.findall(r"- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    decisions = {page for page in pages if re.match(r"decisions/\d", page)}  # the hook adds these
    assert sorted(page for page in navigation if not page.startswith("reference/")) == sorted(pages - decisions)
