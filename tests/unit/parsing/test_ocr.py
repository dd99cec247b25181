"""Scanned pages. Those that read some need the extra `ocr`, and are skipped without it."""

import io
import sys
from importlib.util import find_spec

import pypdfium2
import pytest
from fpdf import FPDF

from kosmos_rag.core.config import ParsingSettings, Settings
from kosmos_rag.core.errors import ConfigError, ParseError
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing import parse
from kosmos_rag.parsing.pdf.ocr import require_ocr
from kosmos_rag.parsing.sandbox.client import parse_confined

needs_ocr = pytest.mark.skipif(
    find_spec("rapidocr") is None or find_spec("onnxruntime") is None,
    reason="rapidocr is not installed: pip install 'kosmos-rag[ocr]'",
)
OCR = ParsingSettings(ocr=True, memory_mb=2048, cpu_s=300, timeout_s=300.0)
LINES = ["Notice of Termination", "", "The contract ends on 31 March 2027.", "Four weeks of notice are due."]


def write_pdf(lines: list[str]) -> bytes:
    pdf = FPDF()
    _write(pdf, lines)
    return bytes(pdf.output())


def _write(pdf: FPDF, lines: list[str]) -> None:
    pdf.add_page()
    pdf.set_font("Helvetica", size=14)
    for line in lines:
        pdf.cell(0, 10, line, new_x="LMARGIN", new_y="NEXT")


def scanned(lines: list[str], *, before: list[str] | None = None) -> bytes:
    """A page that is the picture of these lines, perhaps behind one of text."""
    picture = io.BytesIO()
    pypdfium2.PdfDocument(write_pdf(lines))[0].render(scale=2).to_pil().convert("L").save(picture, "JPEG")
    pdf = FPDF()
    if before is not None:
        _write(pdf, before)
    pdf.add_page()
    pdf.image(picture, 0, 0, 210, 297)
    pdf.add_page()  # an empty one
    return bytes(pdf.output())


def document(data: bytes) -> SourceDocument:
    return SourceDocument(source="scan.pdf", data=data)


def test_scanned_page__without_ocr_says_how_to_have_it_read() -> None:
    with pytest.raises(ParseError, match=r"ingestion\.parsing\.ocr") as caught:
        parse(document(scanned(LINES)))
    assert caught.value.code == "no_text"


def test_require_ocr__names_the_package_and_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(ConfigError, match=r"needs rapidocr.*: pip install 'kosmos-rag\[ocr\]'"):
        require_ocr()


def test_ocr__is_refused_with_too_little_memory() -> None:
    with pytest.raises(ConfigError, match="memory_mb to 2048"):
        Settings.load(overrides={"ingestion.parsing.ocr": True})


@needs_ocr
def test_scanned_page__is_read_in_the_limited_process_line_by_line() -> None:
    parsed = parse_confined(document(scanned(LINES, before=["A page of text."])), OCR)
    assert parsed.text[parsed.pages[1] : parsed.pages[2]].split("\n\n") == [
        "Notice of Termination",
        "The contract ends on 31 March 2027.\nFour weeks of notice are due.",
        "",
    ]
    assert parsed.text.startswith("A page of text.\n\n")
    assert not parsed.headings


@needs_ocr
def test_scanned_page__that_takes_more_computing_than_allowed_is_given_up() -> None:
    with pytest.raises(ParseError) as caught:
        parse_confined(document(scanned(LINES)), OCR.model_copy(update={"cpu_s": 1}))
    assert caught.value.code == "timeout"


def pictured(lines: list[str], kind: str, *, pages: int = 1) -> SourceDocument:
    """A picture of these lines."""
    picture = pypdfium2.PdfDocument(write_pdf(lines))[0].render(scale=2).to_pil().convert("RGB")
    out = io.BytesIO()
    more = {"save_all": True, "append_images": [picture] * (pages - 1)} if pages > 1 else {}
    picture.save(out, kind, **more)
    return SourceDocument(source=f"scan.{kind.lower()}", data=out.getvalue())


KINDS = ("PNG", "JPEG", "TIFF", "WEBP")


@pytest.mark.parametrize("kind", KINDS)
def test_picture__without_ocr_is_refused_with_the_command(kind: str) -> None:
    with pytest.raises(ParseError, match=r"ocr = true.*pip install 'kosmos-rag\[ocr\]'") as caught:
        parse(pictured(LINES, kind))
    assert caught.value.code == "unsupported"


@needs_ocr
@pytest.mark.parametrize("kind", KINDS)
def test_picture__is_read_as_a_page(kind: str) -> None:
    parsed = parse(pictured(LINES, kind), ocr=True)
    assert parsed.media_type == f"image/{kind.lower()}"
    assert "The contract ends on 31 March 2027." in parsed.text
    assert parsed.pages == (0,)


@needs_ocr
def test_picture__of_several_pages_has_their_numbers() -> None:
    assert len(parse(pictured(LINES, "TIFF", pages=2), ocr=True).pages) == 2


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"II*\0" + bytes(60)])
def test_picture__that_is_broken_is_corrupt(data: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        parse(SourceDocument(source="a.png", data=data), ocr=True)
    assert caught.value.code == "corrupt"
