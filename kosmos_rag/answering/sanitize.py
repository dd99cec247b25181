"""What a language model writes, made safe to show while it comes: nothing in it loads, links or hides.

Documents can make a model write an image whose address carries what it has read (EchoLeak, CVE-2025-32711). No image
and no HTML is let through; a link only where its host is allowed and the address stands in the evidence; and no
character that is not seen.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

REMOVED = "(link removed)"

_THINK, _THOUGHT = "<think>", "</think>"
# No construct below holds white space, nor a stop of Chinese or Japanese: words can be cleaned one by one.
_ENDS = r"\s。！？，、；"  # noqa: RUF001
_END_OF_WORD = re.compile(f".*[{_ENDS}]", re.DOTALL)
_LONGEST_WORD = 10_000

_PLAIN = re.compile(r"[\t\n\x20-\x7e]*")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs"})
_SMUGGLING = range(0xE0100, 0xE01F0)
"""Variation selectors that no font has: any text can be hidden in them."""

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
_AROUND = ".,;:!?)]}>\"'*_`|"


def cleaned(pieces: Iterable[str], *, evidence: str, link_hosts: Sequence[str]) -> Iterator[str]:
    """Yield a text that comes in pieces without what must not be shown; how it is cut makes no difference.

    Reasoning between `<think>` and `</think>` at the beginning is left out. What Markdown, HTML or a browser would make
    an image, a link or a tag of is broken by a space or removed.
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
    """Return a text without characters that are not seen: controls but tab and line end, zero width, bidi marks."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        char
        for char in text
        if char in "\n\t" or (unicodedata.category(char) not in _INVISIBLE and ord(char) not in _SMUGGLING)
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
    """Read on to the end of the reasoning, and return what stands behind it in the same piece."""
    for piece in chain([begun], coming):
        begun = begun[-len(_THOUGHT) :] + piece
        _, ended, rest = begun.partition(_THOUGHT)
        if ended:
            return rest.lstrip()
    return ""


def _clean(text: str, evidence: str, link_hosts: Sequence[str]) -> str:
    def kept_or_removed(found: re.Match[str]) -> str:
        address = found[0].rstrip(_AROUND)
        allowed = _allowed(address, link_hosts) and _stands(address, evidence)
        return (address if allowed else REMOVED) + found[0][len(address) :]

    text = _ADDRESS.sub(kept_or_removed, _ENTITY.sub("& ", text)).replace(f"({REMOVED})", REMOVED)
    # Last, for what took the place of an address must not make a link either.
    return _TAG.sub("< ", text).replace("![", "! [").replace("](", "] (").replace("]:", "] :")


def _allowed(address: str, link_hosts: Sequence[str]) -> bool:
    found = _HOST.fullmatch(address)
    if found is None:
        return False
    host = found[1].lower()
    return any(host.endswith(of[1:]) if of.startswith("*.") else host == of for of in link_hosts)


def _stands(address: str, evidence: str) -> bool:
    return re.search(rf"(?<![\w./-]){re.escape(address)}(?![\w/?#&=%-])", evidence) is not None
