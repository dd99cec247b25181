"""Write the pages that other parsers read of PDF files, as JSON.

    python pdf_pages.py PARSER FILE…

The script runs in the environment of the other parsers. Each page has its text; tables are in Markdown.
"""

import io
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def read_markitdown(file: Path) -> Iterator[str]:
    """Yield the pages, each converted alone: markitdown does not mark them."""
    import pypdfium2
    from markitdown import MarkItDown

    converter = MarkItDown()
    document = pypdfium2.PdfDocument(file)
    for number in range(len(document)):
        page = pypdfium2.PdfDocument.new()
        page.import_pages(document, [number])
        buffer = io.BytesIO()
        page.save(buffer)
        buffer.seek(0)
        yield converter.convert_stream(buffer, file_extension=".pdf").text_content


def read_pdfplumber(file: Path) -> Iterator[str]:
    """Yield the text of each page, then its tables."""
    import pdfplumber

    with pdfplumber.open(file) as document:
        for page in document.pages:
            tables = [
                "\n".join("|" + "|".join((cell or "").replace("\n", " ") for cell in row) + "|" for row in table)
                for table in page.extract_tables()
            ]
            yield "\n\n".join([page.extract_text() or "", *tables])


def read_pymupdf4llm(file: Path) -> Iterator[str]:
    """Yield the pages as Markdown."""
    import pymupdf4llm

    for chunk in pymupdf4llm.to_markdown(file, page_chunks=True, show_progress=False):
        yield chunk["text"]


_PARSERS = {"markitdown": read_markitdown, "pdfplumber": read_pdfplumber, "pymupdf4llm": read_pymupdf4llm}


def main() -> None:
    """Print the pages of each file, and the processor time."""
    read = _PARSERS[sys.argv[1]]
    stdout, sys.stdout = sys.stdout, sys.stderr
    begin = time.process_time()
    pages = {}
    for name in sys.argv[2:]:
        try:
            pages[Path(name).name] = list(read(Path(name)))
        except Exception as exc:  # noqa: BLE001 - a parser may fail in any way; its pages are then empty
            print(f"{name}: {exc!r}")
    json.dump({"pages": pages, "seconds": time.process_time() - begin}, stdout)


if __name__ == "__main__":
    main()
