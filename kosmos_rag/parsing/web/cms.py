"""Read the content of a signed CMS message (RFC 5652).

S/MIME sends it as `smime.p7m`.
"""

from collections.abc import Iterator
from enum import IntEnum

from kosmos_rag.parsing import bounds

_SIGNED_DATA = bytes.fromhex("2a864886f70d010702")


class _Tag(IntEnum):
    """The first byte of an element in BER."""

    OBJECT_IDENTIFIER = 0x06
    SEQUENCE = 0x30
    CONTEXT_0 = 0xA0


_OCTETS = (0x04, 0x24)
"""An octet string, whole or in pieces."""


def extract_signed_content(data: bytes) -> bytes | None:
    """Return the content of signed data; None for other messages.

    Such as encrypted ones. Raises ValueError if the data is no CMS message.
    """
    content_info = list(_elements(_only(data, _Tag.SEQUENCE)))
    if len(content_info) < 2 or content_info[0] != (_Tag.OBJECT_IDENTIFIER, _SIGNED_DATA):
        return None
    signed_data = list(_elements(_only(content_info[1][1], _Tag.SEQUENCE)))
    # The version, the digest algorithms, the content; then certificates and signatures.
    content_elements = list(_elements(signed_data[2][1])) if len(signed_data) > 2 else []
    contents = [value for tag, value in content_elements if tag == _Tag.CONTEXT_0]
    if not contents:
        raise ValueError("the signature is detached")
    return b"".join(_octets(contents[0]))


def _only(data: bytes, tag: int) -> bytes:
    first = next(_elements(data), None)
    if first is None or first[0] != tag:
        raise ValueError("no CMS message")
    return first[1]


def _octets(data: bytes) -> Iterator[bytes]:
    for number, (tag, value) in enumerate(_elements(data)):
        if number > bounds.MAX_SIGNED_PIECES or tag not in _OCTETS:
            raise ValueError("the content is no octet string")
        if tag == _OCTETS[0]:
            yield value
        else:
            yield from (piece for _, piece in _elements(value))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and value of each element in BER.

    An element of indefinite length ends at two zeros.
    """
    at = 0
    while at < len(data) and data[at : at + 2] != b"\0\0":
        tag, start, length = _header(data, at)
        end = _end_of_contents(data, start) if length is None else start + length
        if end > len(data):
            raise ValueError("an element ends beyond the data")
        yield tag, data[start:end]
        at = end + (2 if length is None else 0)


def _header(data: bytes, at: int) -> tuple[int, int, int | None]:
    """Return tag, start of the value and its length.

    The length is None for an indefinite one.
    """
    if len(data) < at + 2 or data[at] & 0x1F == 0x1F:
        raise ValueError("no element in BER")
    tag, length = data[at], data[at + 1]
    if length < 0x80:
        return tag, at + 2, length
    if length == 0x80:
        return tag, at + 2, None
    start = at + 2 + (length & 0x7F)
    return tag, start, int.from_bytes(data[at + 2 : start], "big")


def _end_of_contents(data: bytes, at: int) -> int:
    """Return the offset of the end of an indefinite element.

    Two zeros end it.
    """
    depth = 1
    while at < len(data):
        if data[at : at + 2] == b"\0\0":
            depth -= 1
            if depth == 0:
                return at
            at += 2
            continue
        _, start, length = _header(data, at)
        depth += length is None
        at = start if length is None else start + length
    raise ValueError("an element has no end")
