"""Read the parts of a mail, also malformed ones.

RFC 5322, and RFC 2045 to 2049.
"""

import binascii
import quopri
import re
from contextlib import suppress
from email import message_from_bytes
from email.message import Message
from email.policy import Compat32

from kosmos_rag.core.errors import ParseError
from kosmos_rag.parsing.clean import clean_title
from kosmos_rag.parsing.text.decode import Decoded, decode, decode_bytes, decode_text

_ENCODING = "Content-Transfer-Encoding"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BLANK_START = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:>?From [^\n]*\n)?")
_HEAD_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_FIELD_LINE = re.compile(rb"[!-9;-~]+[ \t]*:|[ \t]")
_SPACE_BEFORE_COLON = re.compile(rb"^([!-9;-~]+)[ \t]+:", re.MULTILINE)
_KNOWN_FIELD = re.compile(
    rb"(?:from|to|cc|bcc|subject|date|received|reply-to|message-id|mime-version|content-[a-z-]+|x-[\w-]+):",
    re.IGNORECASE,
)
_ENCODED_WORD = re.compile(r"=\?([^?*\s]+)(?:\*[^?\s]*)?\?([bBqQ])\?([^?]*)\?=")
_FOLD = re.compile(r"\r?\n[ \t]*")
_BASE64_LINE = re.compile(rb"[A-Za-z0-9+/]*={0,2}[ \t\r]*")
_BOUNDARY = re.compile(r"^--(\S[^\n]{0,68}?)[ \t]*\r?\nContent-[A-Za-z-]+:", re.MULTILINE)
_QUOTES = re.compile(r">*")


class _RawHeaders(Compat32):
    """Keeps headers undecoded; bytes beyond ASCII are surrogates in them."""

    def header_fetch_parse(self, name: str, value: str) -> str:  # noqa: ARG002 — the name of the overridden one
        """Return the value unchanged."""
        return value


_POLICY = _RawHeaders()


def read_message(data: bytes) -> Message:
    """Read a mail.

    Blank lines or an envelope line may precede it, and its head may have lines that are no fields.
    """
    if data.startswith(_WIDE_MARKS):
        data = decode(data).encode()
    data = data[_BLANK_START.match(data).end() :]  # type: ignore[union-attr]  # it matches nothing too
    end = _HEAD_END.search(data)
    head = data[: end.start()] if end else data
    return message_from_bytes(_repair(head) + data[len(head) :], policy=_POLICY)


def _repair(head: bytes) -> bytes:
    """Remove invalid lines between fields, and spaces before colons."""
    if head.startswith(b"--"):  # the first part of a mail whose own header is lost
        return b"\n" + head
    lines = _SPACE_BEFORE_COLON.sub(rb"\1:", head).splitlines(keepends=True)
    field_lines = [number for number, line in enumerate(lines) if _KNOWN_FIELD.match(line)]
    last = field_lines[-1] if field_lines else 0
    return b"".join(line for number, line in enumerate(lines) if number > last or _FIELD_LINE.match(line))


def header(message: Message, name: str) -> str:
    """Return a header as one line of text; empty without one."""
    return clean_title(decode_words(str(message.get(name, "")))) or ""


def decode_words(value: str) -> str:
    """Decode the encoded words of a header (RFC 2047).

    A character may be split between two of them.
    """
    value = _FOLD.sub(" ", _readable(value))
    parts: list[str] = []
    pending, charset, at = b"", "", 0
    for word in _ENCODED_WORD.finditer(value):
        between = value[at : word.start()]
        if pending and (between.strip() or word[1].lower() != charset):
            parts.append(decode_bytes(pending, charset))
            pending = b""
        if between.strip() or at == 0:
            parts.append(between)
        charset = word[1].lower()
        pending += _decode_word(word[2], word[3])
        at = word.end()
    parts.append(decode_bytes(pending, charset) if pending else "")
    return "".join([*parts, value[at:]])


def _readable(value: str) -> str:
    """Decode non-ASCII bytes of a header without a declared encoding."""
    raw = value.encode("utf-8", "surrogateescape")
    return value if raw.isascii() else decode_bytes(raw)


def _decode_word(kind: str, text: str) -> bytes:
    if kind in "bB":
        return _decode_base64(text.encode("utf-8", "replace"))
    return quopri.decodestring(text.encode("utf-8", "replace"), header=True)


def filename(part: Message) -> str | None:
    """Return the name of an attachment as its sender gave it."""
    with suppress(LookupError, TypeError, ValueError):
        return clean_title(decode_words(part.get_filename() or ""))
    return None


def content_type(part: Message) -> str:
    """Return the type of a part, in lower case."""
    return part.get_content_type()


def disposition(part: Message) -> str:
    """Return `attachment`, `inline` or nothing."""
    return part.get_content_disposition() or ""


def parameter(part: Message, name: str) -> str:
    """Return a parameter of a part's type in lower case.

    The result is empty without one.
    """
    with suppress(LookupError, TypeError, ValueError):
        value = part.get_param(name, "")
        return str(value[2] if isinstance(value, tuple) else value).strip().lower()
    return ""


def part_bytes(part: Message) -> bytes:
    """Return the decoded content of a part that is no multipart."""
    raw = _raw_bytes(part)
    encoding = str(part.get(_ENCODING, "")).split(";")[0].strip().strip("\"'").lower()
    if encoding == "base64":
        return _decode_base64(raw)
    if encoding.replace("-", "") == "quotedprintable":
        return quopri.decodestring(raw)
    if encoding in {"x-uuencode", "uuencode", "uue", "x-uue"}:
        return _decode_uu(raw)
    return raw


def _raw_bytes(part: Message) -> bytes:
    """Return the content of a part without decoding it.

    Without a transfer encoding, the library decodes none.
    """
    encodings = part.get_all(_ENCODING, [])
    del part[_ENCODING]
    raw = part.get_payload(decode=True)
    for encoding in encodings:
        part[_ENCODING] = encoding
    return raw if isinstance(raw, bytes) else b""


def part_text(part: Message) -> Decoded | None:
    """Return the text of a part, or None if blank or binary."""
    try:
        return decode_text(part_bytes(part), parameter(part, "charset") or None)
    except ParseError:
        return None


def read_inner_message(part: Message) -> Message | None:
    """Return the mail in a part of the type message/rfc822.

    The result is None without one.
    """
    payload = part.get_payload()
    inner = payload[0] if isinstance(payload, list) and payload else None
    if not isinstance(inner, Message):
        return None
    text = inner.get_payload()
    if not inner.keys() and isinstance(text, str):  # encoded, which RFC 2046 forbids
        part.set_payload(text)
        return read_message(part_bytes(part))
    return inner


def recover_parts(part: Message, text: str) -> Message | None:
    """Read a text as a multipart that its header does not declare.

    The result is None if the text has no parts.
    """
    boundary = _BOUNDARY.search(text)
    if boundary is None or '"' in boundary[1]:
        return None
    head = f'Content-Type: multipart/mixed; boundary="{boundary[1]}"\n\n'
    multipart = message_from_bytes(head.encode("utf-8", "surrogateescape") + _raw_bytes(part), policy=_POLICY)
    return multipart if multipart.is_multipart() else None


def unflow(text: str, *, delete_spaces: bool) -> str:
    """Join the lines that `format=flowed` breaks (RFC 3676)."""
    lines: list[str] = []
    previous = None
    for line in text.split("\n"):
        depth = len(_QUOTES.match(line)[0])  # type: ignore[index]  # it matches nothing too
        content = line[depth:].removeprefix(" ")
        if previous == depth:
            lines[-1] = (lines[-1][:-1] if delete_spaces else lines[-1]) + content
        else:
            lines.append(f"{'>' * depth} {content}" if depth else content)
        previous = depth if content.endswith(" ") and content != "-- " else None
    return "\n".join(lines)


def _decode_base64(raw: bytes) -> bytes:
    """Decode the lines that are base64, and keep the lines after them.

    The end may be incomplete.
    """
    lines = raw.split(b"\n")
    count = next((number for number, line in enumerate(lines) if not _BASE64_LINE.fullmatch(line)), len(lines))
    characters = b"".join(b"".join(line.split()) for line in lines[:count]).rstrip(b"=")
    complete = characters[: len(characters) - (len(characters) % 4 == 1)]
    try:
        decoded = binascii.a2b_base64(complete + b"=" * (-len(complete) % 4))
    except binascii.Error:
        return raw
    rest = b"\n".join(lines[count:])
    return b"\n\n".join(part for part in (decoded, rest) if part)


def _decode_uu(raw: bytes) -> bytes:
    decoded = []
    for line in raw.splitlines():
        if line.startswith(b"begin ") or line in {b"end", b""}:
            continue
        with suppress(binascii.Error):
            decoded.append(binascii.a2b_uu(line))
    return b"".join(decoded)
