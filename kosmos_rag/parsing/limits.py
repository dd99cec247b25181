"""Limits of the output of a parser."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import Note, ParsedDocument
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.clean import clean_title


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLimits:
    """Size above which a parsed document is refused."""

    text_bytes: int = sys.maxsize
    """Of the text in UTF-8."""
    pages: int = sys.maxsize

    def check(self, document: ParsedDocument) -> None:
        """Check text, pages, headings and tables of a document.

        Raises ParseError `too_large`.
        """
        self.check_pages(len(document.pages))
        self.check_text(len(document.text.encode()))
        if len(document.headings) > bounds.MAX_HEADINGS:
            raise _too_large(
                f"{len(document.headings)} headings, at most {bounds.MAX_HEADINGS} are kept", "split the file"
            )
        if len(document.tables) > bounds.MAX_TABLES:
            raise _too_large(f"{len(document.tables)} tables, at most {bounds.MAX_TABLES} are kept", "split the file")

    def check_pages(self, pages: int) -> None:
        """Raise ParseError `too_large` for more pages."""
        if pages > self.pages:
            raise _too_large(
                f"{pages} pages, more than ingestion.parsing.pages allows ({self.pages})",
                "split the file or raise the limit",
            )

    def check_text(self, size: int) -> None:
        """Raise ParseError `too_large` for more bytes of text."""
        if size > self.text_bytes:
            raise _too_large(
                f"{size} bytes of text or more, ingestion.parsing.text_mb allows {self.text_bytes}",
                "split the file or raise the limit",
            )


def bound_notes(notes: Sequence[Note]) -> tuple[Note, ...]:
    """Return the first notes, cleaned.

    If there are more, the last one has their number.
    """
    result = [Note(code=note.code, message=clean_title(note.message) or note.code) for note in dict.fromkeys(notes)]
    if len(result) > bounds.MAX_NOTES:
        more = len(result) - bounds.MAX_NOTES + 1
        result[bounds.MAX_NOTES - 1 :] = [Note(code="more", message=f"{more} more notes")]
    return tuple(result)


UNLIMITED = OutputLimits()


def _too_large(size: str, remedy: str) -> ParseError:
    return ParseError("too_large", f"the file has {size}; {remedy}")
