"""Links between the pages of the documentation lead to files and headings that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


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


def test_index__lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    unlisted = [page.name for page in (ROOT / "docs").glob("*.md") if f"({page.name})" not in index]
    assert unlisted == ["README.md"]


def test_site__has_every_page_in_its_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f": {page.name}\n" not in navigation] == []
