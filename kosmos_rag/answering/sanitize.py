"""Sanitize the output of a language model while it streams.

Documents can make a model write an image whose URL contains what it has read (EchoLeak, CVE-2025-32711). Images and
HTML are removed. A link is kept only if its host is allowed and the evidence contains its URL. Invisible characters
are removed.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

REMOVED = "(link removed)"

_THINK, _THINK_END = "<think>", "</think>"
# No construct below contains white space or CJK punctuation, so the text can be sanitized word by word.
_WORD_ENDS = r"\s。！？，、；"  # noqa: RUF001
_UP_TO_WORD_END = re.compile(f".*[{_WORD_ENDS}]", re.DOTALL)
_MAX_WORD_CHARS = 10_000

_PLAIN = re.compile(r"[\t\n\x20-\x7e]*")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs"})
_STEGANOGRAPHIC = range(0xE0100, 0xE01F0)
"""Variation selectors without glyphs, which can encode any text."""

_ENTITY = re.compile(r"&(?=#?\w{1,40};)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_URL = re.compile(
    rf"""
      [a-z][a-z0-9+.-]{{0,30}}:[\\/]{{2,}}[^{_WORD_ENDS}]*  # browsers read a backslash as a slash
    | (?<![a-z0-9])(?:https?|ftp|file):[\\/][^{_WORD_ENDS}]*                          # nor do they need two
    | (?<![a-z0-9:/])/{{2,}}[\w[][^/?\#.:@{_WORD_ENDS}]*(?:[/?\#]|[.:@]+\w)[^{_WORD_ENDS}]*
    | (?<![a-z0-9.-])www\.[^{_WORD_ENDS}]+
    | (?<![a-z0-9-])(?:mailto|xmpp|javascript|vbscript):[^{_WORD_ENDS}]+
    | (?<![a-z0-9-])data:[\w/+.-]*[;,][^{_WORD_ENDS}]*
    | (?<![\w.+-])[\w.+-]+@(?:[\w-]+\.)+[^\W\d_]{{2,24}}(?:[/?\#&][^{_WORD_ENDS}]*)?
    # Some programs link these, too. At the end of a sentence, a question mark may have a marker behind it.
    | (?<![^\W_])(?<![./-])(?:(?:[^\W_]|-)+\.)+(?:xn--[a-z0-9-]+|[^\W\d_]{{2,24}})(?::\d+)?
      (?:/|[?\#](?!(?:\[\d+\]|[^\w\s])*(?:[{_WORD_ENDS}]|\Z)))[^{_WORD_ENDS}]*
    """,
    re.VERBOSE | re.IGNORECASE,
)
_HOST = re.compile(r"(?:[a-z][a-z0-9+.-]*://|[\w.+-]+@)?([a-z0-9.-]+)(?::\d+)?(?:[/?#]\S*)?", re.IGNORECASE)
_PUNCTUATION = ".,;:!?)]}>\"'*_`|"


def sanitize(pieces: Iterable[str], *, evidence: str, link_hosts: Sequence[str]) -> Iterator[str]:
    """Sanitize a text that arrives in pieces.

    The result does not depend on how it is split. Reasoning between `<think>` and `</think>` at the start is dropped.
    Constructs that Markdown, HTML or a browser would render as image, link or tag are broken by a space or removed.

    Args:
        pieces: The text as the model writes it.
        evidence: The text of the context; a link must occur in it.
        link_hosts: Hosts whose links may stay; `*.example.org` covers all subdomains.
    """
    buffer = ""
    for piece in _strip_reasoning(pieces):
        buffer += strip_invisible(piece)
        if match := _UP_TO_WORD_END.match(buffer):
            yield _clean(match[0], evidence, link_hosts)
            buffer = buffer[match.end() :]
        elif len(buffer) > _MAX_WORD_CHARS:
            yield _clean(buffer, evidence, link_hosts) + " "
            buffer = ""
    if buffer:
        yield _clean(buffer, evidence, link_hosts)


def strip_invisible(text: str) -> str:
    """Remove invisible characters.

    Control characters except tab and newline, zero-width and bidi marks.
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        char
        for char in text
        if char in "\n\t" or (unicodedata.category(char) not in _INVISIBLE and ord(char) not in _STEGANOGRAPHIC)
    )


def _strip_reasoning(pieces: Iterable[str]) -> Iterator[str]:
    iterator = iter(pieces)
    opening = ""
    for piece in iterator:
        opening = (opening + piece).lstrip()
        if opening.startswith(_THINK):
            opening = _skip_reasoning(opening, iterator)
            break
        if not _THINK.startswith(opening):
            break
    yield opening
    yield from iterator


def _skip_reasoning(opening: str, iterator: Iterator[str]) -> str:
    """Skip to the end of the reasoning.

    Returns the remainder of its last piece.
    """
    buffer = ""
    for piece in chain([opening], iterator):
        buffer = buffer[-len(_THINK_END) :] + piece
        _, end_tag, remainder = buffer.partition(_THINK_END)
        if end_tag:
            return remainder.lstrip()
    return ""


def _clean(text: str, evidence: str, link_hosts: Sequence[str]) -> str:
    def replace_url(match: re.Match[str]) -> str:
        url = match[0].rstrip(_PUNCTUATION)
        allowed = _is_allowed(url, link_hosts) and _contains_url(url, evidence)
        return (url if allowed else REMOVED) + match[0][len(url) :]

    text = _URL.sub(replace_url, _ENTITY.sub("& ", text)).replace(f"({REMOVED})", REMOVED)
    # Last: the replacement of a URL must not form a link either.
    return _TAG.sub("< ", text).replace("![", "! [").replace("](", "] (").replace("]:", "] :")


def _is_allowed(url: str, link_hosts: Sequence[str]) -> bool:
    match = _HOST.fullmatch(url)
    if match is None:
        return False
    host = match[1].lower()
    return any(host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern for pattern in link_hosts)


def _contains_url(url: str, evidence: str) -> bool:
    return re.search(rf"(?<![\w./-]){re.escape(url)}(?![\w/?#&=%-])", evidence) is not None
