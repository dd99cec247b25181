"""Links, canonical address and rules of web pages, and the entries of sitemaps."""

import gzip
import zlib
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit, urlunsplit

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import SourceError

_HTML = ("text/html", "application/xhtml+xml")
_MAX_LINKS = 5000
_MAX_SITEMAP_BYTES = 50 * 1024 * 1024
"""The limit of the protocol of sitemaps."""
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True, slots=True)
class WebPageContent:
    """What a page says about itself and others."""

    links: tuple[str, ...]
    canonical: str
    is_indexed: bool
    """Whether the page may be indexed."""
    has_password: bool = False
    """Whether it has a field for a password."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sitemap:
    """The addresses in a sitemap."""

    pages: tuple[str, ...]
    sitemaps: tuple[str, ...]


def normalize_url(url: str) -> str:
    """Return a URL without fragment and standard port, with host and scheme in lower case."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    if parts.port and parts.port != _PORTS.get(parts.scheme.lower()):
        host = f"{host}:{parts.port}"
    return urlunsplit((parts.scheme.lower(), host, parts.path or "/", parts.query, ""))


def read_page(body: bytes, url: str, *, media_type: str) -> WebPageContent:
    """Return links and rules of a page; of other files only their address.

    Args:
        url: its address, to which its links are relative.
        media_type: what the server says that it is.
    """
    if media_type not in _HTML:
        return WebPageContent(links=(), canonical=url, is_indexed=True)
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(body)
    base_node = tree.css_first("base[href]")
    base = _join(url, base_node.attributes.get("href")) or url if base_node else url
    rules = {
        rule.strip()
        for node in tree.css('meta[name="robots" i]')
        for rule in (node.attributes.get("content") or "").lower().split(",")
    }
    canonical_node = tree.css_first('link[rel="canonical"][href]')
    canonical = _join(base, canonical_node.attributes.get("href")) if canonical_node else None
    links: dict[str, None] = {}
    if not rules & {"nofollow", "none"}:
        for node in tree.css("a[href]")[:_MAX_LINKS]:
            if "nofollow" not in (node.attributes.get("rel") or "").split():
                links[_join(base, node.attributes.get("href")) or ""] = None
    links.pop("", None)
    return WebPageContent(
        links=tuple(links),
        canonical=canonical or url,
        is_indexed=not rules & {"noindex", "none"},
        has_password=tree.css_first('input[type="password" i]') is not None,
    )


def read_sitemap(body: bytes, url: str) -> Sitemap:
    """Return the addresses in a sitemap, in XML, as text or compressed.

    Raises SourceError.

    Args:
        body: the file.
        url: its address, for messages.
    """
    from defusedxml import DefusedXmlException, ElementTree

    try:
        if body[:2] == b"\x1f\x8b":
            body = _decompress(body, url)
        if not body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
            lines = body.decode("utf-8-sig", "replace").splitlines()
            return Sitemap(pages=tuple(filter(_is_web, map(str.strip, lines))), sitemaps=())
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, DefusedXmlException, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SourceError(
            "unreadable", f"the sitemap {url} is malformed: {one_line(str(error))}; correct it"
        ) from error
    locations = [
        (element.tag.rpartition("}")[2], (child.text or "").strip())
        for element in root
        for child in element
        if child.tag.rpartition("}")[2] == "loc"
    ]
    return Sitemap(
        pages=tuple(text for tag, text in locations if tag == "url" and _is_web(text)),
        sitemaps=tuple(text for tag, text in locations if tag == "sitemap" and _is_web(text)),
    )


def _decompress(body: bytes, url: str) -> bytes:
    decompressor = zlib.decompressobj(wbits=31)
    text = decompressor.decompress(body, _MAX_SITEMAP_BYTES)
    if decompressor.unconsumed_tail:
        raise SourceError("too_large", f"the sitemap {url} has more than {_MAX_SITEMAP_BYTES:,} bytes; split it")
    return text


def _join(base: str, href: str | None) -> str | None:
    try:
        joined = urljoin(base, (href or "").strip())
        return normalize_url(joined) if _is_web(joined) else None
    except ValueError:
        return None


def _is_web(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))
