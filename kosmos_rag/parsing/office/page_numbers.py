"""Remove page numbers from the headers and footers of documents."""

import re

from kosmos_rag.parsing.tables.table import collapse_whitespace

PAGE_NUMBER = "\ufdd0"
"""Replaces a page number until its word is removed; not a character of any text."""
_SIGNS = r"[\s|/·•–—-]"  # noqa: RUF001
_LETTER = r"[^\W\d_]"
_WORD = rf"\b(?:(?<!\b{_LETTER} ){_LETTER}(?: {_LETTER})++\b|{_LETTER}+\.?)"
"""Some templates of Word have spaces between the letters: `P a g e`."""
_NUMBERS = rf"{PAGE_NUMBER}\w*+(?:[^\d\t\n{PAGE_NUMBER}]*+{PAGE_NUMBER}\w*+)*+"
_WITH_SIGNS = re.compile(
    rf"(?<!{_SIGNS}){_SIGNS}*+(?:{_WORD}[ :|]*{_NUMBERS}|{_NUMBERS}(?: *\| *{_WORD}$)?){_SIGNS}*", re.MULTILINE
)
"""`Page 3 of 5`, with the signs around it."""


def remove_page_numbers(text: str) -> str:
    """Return a text in one line; nothing where only signs are left of it."""
    rest = _WITH_SIGNS.sub(" ", text)
    return collapse_whitespace(rest) if rest == text or re.search(r"\w", rest) else ""
