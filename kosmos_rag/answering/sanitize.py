"""Sanitize the output of a language model while it streams: no images, links, HTML or hidden characters.

Documents can make a model write an image whose URL contains what it has read (EchoLeak, CVE-2025-32711). Images and
HTML are removed. A link stays only where its host is allowed and the evidence contains its URL. Invisible characters
are removed.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

REMOVED = "(link removed)"

_THINK, _THOUGHT = "<think>", "</think>"
# No construct below contains white space or CJK punctuation, so the text can be sanitized word by word.
_ENDS = r"\s。！？，、；"  # noqa: RUF001
_END_OF_WORD = re.compile(f".*[{_ENDS}]", re.DOTALL)
_LONGEST_WORD = 10_000

_PLAIN = re.compile(r"[\t\n\x20-\x7e]*")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs"})
_HIDING = range(0xE0100, 0xE01F0)
"""Variation selectors without glyphs: any text can be encoded in them."""

_ENTITY = re.compile(r"&(?=#?\w{1,40};)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_ADDRESS = re.compile(
    rf"""
      [a-z][a-z0-9+.-]{{0,30}}:[\\/]{{2,}}[^{_ENDS}]*                           # browsers take a backslash for a slash
    | (?<![a-z0-9])(?:https?|ftp|file):[\\/][^{_ENDS}]*                          # nor do they need two
    | (?<![a-z0-9:/])/{{2,}}[\w[][^/?\#.:@{_ENDS}]*(?:[/?\#]|[.:@]+\w)[^{_ENDS}]*
    | (?<![a-z0-9.-])www\.[^{_ENDS}]+
    | (?<![a-z0-9-])(?:mailto|xmpp|javascript|vbscript):[^{_ENDS}]+
    | (?<![a-z0-9-])data:[\w/+.-]*[;,][^{_ENDS}]*
    | (?<![\w.+-])[\w.+-]+@(?:[\w-]+\.)+[^\W\d_]{{2,24}}(?:[/?\#&][^{_ENDS}]*)?
    # Some programs link these, too. At the end of a sentence, a question mark may have a marker behind it.
    | (?<![^\W_])(?<![./-])(?:(?:[^\W_]|-)+\.)+(?:xn--[a-z0-9-]+|[^\W\d_]{{2,24}})(?::\d+)?
      (?:/|[?\#](?!(?:\[\d+\]|[^\w\s])*(?:[{_ENDS}]|\Z)))[^{_ENDS}]*
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
    kept = ""
    for piece in _without_reasoning(pieces):
        kept += visible(piece)
        if found := _END_OF_WORD.match(kept):
            yield _clean(found[0], evidence, link_hosts)
            kept = kept[found.end() :]
        elif len(kept) > _LONGEST_WORD:
            yield _clean(kept, evidence, link_hosts) + " "
            kept = ""
    if kept:
        yield _clean(kept, evidence, link_hosts)


def visible(text: str) -> str:
    """Remove invisible characters: control characters but tab and newline, zero-width and bidi marks."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        char
        for char in text
        if char in "\n\t" or (unicodedata.category(char) not in _INVISIBLE and ord(char) not in _HIDING)
    )


def _without_reasoning(pieces: Iterable[str]) -> Iterator[str]:
    coming = iter(pieces)
    begun = ""
    for piece in coming:
        begun = (begun + piece).lstrip()
        if begun.startswith(_THINK):
            begun = _after_reasoning(begun, coming)
            break
        if not _THINK.startswith(begun):
            break
    yield begun
    yield from coming


def _after_reasoning(begun: str, coming: Iterator[str]) -> str:
    """Skip to the end of the reasoning.

    Return the rest of its last piece.
    """
    for piece in chain([begun], coming):
        begun = begun[-len(_THOUGHT) :] + piece
        _, ended, rest = begun.partition(_THOUGHT)
        if ended:
            return rest.lstrip()
    return ""


def _clean(text: str, evidence: str, link_hosts: Sequence[str]) -> str:
    def kept_or_removed(found: re.Match[str]) -> str:
        address = found[0].rstrip(_PUNCTUATION)
        allowed = _allowed(address, link_hosts) and _contains_whole(address, evidence)
        return (address if allowed else REMOVED) + found[0][len(address) :]

    text = _ADDRESS.sub(kept_or_removed, _ENTITY.sub("& ", text)).replace(f"({REMOVED})", REMOVED)
    # Last: the replacement of a URL must not form a link either.
    return _TAG.sub("< ", text).replace("![", "! [").replace("](", "] (").replace("]:", "] :")


def _allowed(address: str, link_hosts: Sequence[str]) -> bool:
    found = _HOST.fullmatch(address)
    if found is None:
        return False
    host = found[1].lower()
    return any(host.endswith(of[1:]) if of.startswith("*.") else host == of for of in link_hosts)


def _contains_whole(address: str, evidence: str) -> bool:
    return re.search(rf"(?<![\w./-]){re.escape(address)}(?![\w/?#&=%-])", evidence) is not None
