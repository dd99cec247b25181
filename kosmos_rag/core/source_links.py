"""Links to the lines of a document where its source has a web page for it."""

from collections.abc import Mapping
from typing import Any

LINK, LINK_LINES = "link", "link_lines"
"""Metadata of a source: the address of the page, and the form of the fragment that names lines of it."""


def build_link(metadata: Mapping[str, Any], first: int, last: int) -> str | None:
    """Return the address of lines of a document; None without a web page.

    Args:
        metadata: metadata of the document.
        first: first line, from 1.
        last: last line.
    """
    link = metadata.get(LINK)
    if not isinstance(link, str) or not link.startswith(("https://", "http://")):
        return None
    lines = metadata.get(LINK_LINES)
    if not isinstance(lines, str):
        return link
    return link + lines.replace("{start}", str(first)).replace("{end}", str(last))
