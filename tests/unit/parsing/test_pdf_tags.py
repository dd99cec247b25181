"""Headings that a tagged PDF names itself."""

import pytest

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import bounds, parse
from tests.reliability.hostile_pdf import pdf

TEXTS = ("The charges of a year.", "They are due in March.", "Who pays them")


def tagged(*kinds: str, texts: tuple[str, ...] = TEXTS) -> ParsedDocument:
    """Parse a page with a line for each text, each a marked content of its kind."""
    lines = (
        f"/{kind} <</MCID {at}>> BDC BT /F 9 Tf 10 {180 - 11 * at} Td ({text}) Tj ET EMC"
        for at, (kind, text) in enumerate(zip(kinds, texts, strict=True))
    )
    content = "\n".join(lines).encode()
    parts = b" ".join(b"%d 0 R" % (10 + at) for at in range(len(kinds)))
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R /MarkInfo << /Marked true >> /StructTreeRoot 7 0 R >>",
        3: b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R /StructParents 0 "
        b"/Resources << /Font << /F 5 0 R >> >> >>",
        4: b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        7: b"<< /Type /StructTreeRoot /K 8 0 R /ParentTree 9 0 R /RoleMap << /Chapter /H1 >> >>",
        8: b"<< /Type /StructElem /S /Document /P 7 0 R /K [%s] >>" % parts,
        9: b"<< /Nums [0 [%s]] >>" % parts,
    }
    elements = {
        10 + at: b"<< /Type /StructElem /S /%s /P 8 0 R /Pg 3 0 R /K %d >>" % (kind.encode(), at)
        for at, kind in enumerate(kinds)
    }
    return parse(SourceDocument(source="a.pdf", data=pdf(objects | elements)))


@pytest.mark.parametrize(("kind", "level"), [("H2", 2), ("H", 1), ("Title", 1), ("Chapter", 1)])
def test_parse_pdf__a_tagged_heading_looks_like_text(kind: str, level: int) -> None:
    parsed = tagged(kind, "P", "P")
    assert [(heading.level, heading.title) for heading in parsed.headings] == [(level, TEXTS[0])]
    assert parsed.text == f"{TEXTS[0]}\n\n{TEXTS[1]}\n{TEXTS[2]}"


def test_parse_pdf__a_tagged_heading_is_last_on_its_page() -> None:
    assert [heading.title for heading in tagged("P", "P", "H1").headings] == [TEXTS[2]]


def test_parse_pdf__tagged_headings_one_below_the_other_are_no_list() -> None:
    parsed = tagged("H1", "H2", "H3", "H4", "P", texts=("A river", "Its banks", "Its fish", "Its depth", "It is deep."))
    assert [heading.level for heading in parsed.headings] == [1, 2, 3, 4]


def test_parse_pdf__a_paragraph_tagged_as_a_heading_is_none() -> None:
    texts = tuple(f"The text of line {number} is about all that has been said of it," for number in range(9))
    assert tagged(*["H1"] * 9, texts=texts).headings == ()


def test_parse_pdf__of_many_elements_is_read_without_its_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tagged("H2", "P", "P").headings
    monkeypatch.setattr(bounds, "MAX_PAGE_TAGS", 5)  # the document, and three elements with a content each: 7
    assert tagged("H2", "P", "P").headings == ()
