"""Decode bytes to text.

By byte order mark, declaration, UTF-8, then the most likely legacy encoding.
"""

import codecs
import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from unicodedata import category

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.types import Note
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.clean import clean
from kosmos_rag.parsing.text.legacy import detect_legacy

_MARKS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
_SUPERSETS = {
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "iso2022_jp": "iso2022_jp_ext",
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
}
"""What the WHATWG Encoding Standard reads a label as, where the codec of that name knows less."""
_DECLARATIONS = (
    re.compile(rb"\A\s*<\?xml[^>]*?\sencoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE),
    re.compile(rb"charset(?:\s*=\s*[\"']?|\s+[\"'])\s*([\w.:-]+)", re.IGNORECASE),
    re.compile(rb"\A(?:[^\n]*\n)?[^\n]*coding[:=][ \t]*([\w.-]+)"),
)
"""XML, HTML and CSS; then the first two lines of source code (PEP 263)."""
_NO_TEXT = frozenset(
    codecs.lookup(name).name
    for name in (
        *("base64", "bz2", "hex", "idna", "punycode", "quopri", "raw_unicode_escape", "rot13", "undefined"),
        *("unicode_escape", "uu", "zlib"),
    )
) | {"x-user-defined"}
"""Codecs that are no encoding of a text."""
_SPARSE = 1_000
"""A declared encoding is believed where it fails for less than one of so many characters, and text with one NUL in more
bytes is text with a defect; with more NULs it is binary data."""
_UTF16 = ("utf-16-be", "utf-16-le")
_LETTER_BYTES = bytes(range(9, 128))
_WIDE_SHARE = 20
"""Of the bytes of UTF-16 more than one in so many is no letter of ASCII."""

_CONTROL_BYTES = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_ESCAPED = re.compile(r"[\udc80-\udcff]")
_STATEFUL = {b"\x1b": (b"\x1b$", b"\x1b("), b"~": (b"~{",)}
"""How ISO-2022 and HZ, whose bytes are ASCII, begin to write in another script."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoded:
    """A text, and what its encoding is or was guessed to be."""

    text: str
    encoding: str
    certain: bool = True

    @property
    def notes(self) -> tuple[Note, ...]:
        """A note if the encoding was guessed and is uncertain."""
        if self.certain:
            return ()
        message = (
            f"the encoding is not declared, and was guessed: {self.encoding}; "
            "save the file in UTF-8 if letters are wrong"
        )
        return (Note(code="encoding_uncertain", message=message),)


def decode(data: bytes) -> str:
    """Decode a text file of unknown encoding and clean it.

    The result is never blank.

    Raises:
        ParseError: `empty` for nothing but white space, `binary` for data that is not text.
    """
    return decode_text(data).text


def decode_text(data: bytes, label: str | None = None) -> Decoded:
    """Decode and clean a text; see `decode`.

    Args:
        label: The encoding that its transport declares, such as the `charset` of a mail.
    """
    decoded = _decode(data, label)
    text = clean(decoded.text)
    if not text or text.isspace():
        raise ParseError("empty", f"no text in {len(data)} bytes; give a document that has some")
    return Decoded(text=text, encoding=decoded.encoding, certain=decoded.certain)


def decode_bytes(data: bytes, label: str | None = None) -> str:
    """Decode a few bytes, such as a header, by their declared encoding.

    Never fails.
    """
    declared = _decode_declared(data, find_codec(label)) if label else None
    if declared is not None:
        return declared.text
    try:
        return _decode(data, None).text
    except ParseError:
        return data.decode("latin-1")


def find_marked_encoding(data: bytes) -> str | None:
    """Return UTF-16 or UTF-32 where a byte order mark names it; None for other encodings."""
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "utf-8")
    return None if encoding == "utf-8" else encoding


def find_codec(label: str | None) -> str | None:
    """Return the codec of a label, or None for an unknown one.

    Labels are read as browsers read them, else as Python does.
    """
    if not label:
        return None
    require_extra("parsing", "a text that names its encoding", "webencodings", error=partial(ParseError, "unsupported"))
    import webencodings

    web_encoding = webencodings.lookup(label)
    name = label.strip().lower().removeprefix("x-") if web_encoding is None else web_encoding.codec_info.name
    try:
        codec = codecs.lookup(name)
        codec.decode(b"")
    except (LookupError, UnicodeError, ValueError, TypeError):
        return None
    encoding = _SUPERSETS.get(codec.name, codec.name)
    return None if encoding in _NO_TEXT else encoding


def has_escapes(data: bytes) -> bool:
    """Return whether ASCII data may be in ISO-2022 or HZ.

    These write other scripts between escapes.
    """
    # A single byte, which few texts have, is found far faster than two.
    return any(first in data and any(escape in data for escape in escapes) for first, escapes in _STATEFUL.items())


def _decode(data: bytes, label: str | None) -> Decoded:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decode_marked(data[len(mark) :], encoding)
    if b"\0" in data:
        wide = _decode_wide(data)
        if wide is not None:
            return wide
        data = _remove_sparse_nuls(data)
    codec = find_codec(label) or _find_declared_codec(data)
    if codec == "utf-8" or (codec and _is_utf8_with_letters(data)):
        codec = None
    return _decode_stateful(data) or _decode_declared(data, codec) or _decode_utf8(data) or _decode_legacy(data)


def _decode_marked(data: bytes, encoding: str) -> Decoded:
    if encoding == "utf-8":
        return _decode_utf8(data) or _decode_legacy(data)
    return Decoded(text=data.decode(encoding, "replace"), encoding=encoding)


def _decode_wide(data: bytes) -> Decoded | None:
    """Decode UTF-32 or UTF-16 without a byte order mark.

    The pattern of the bytes identifies them.
    """
    if len(data) % 2 or len(data.translate(None, _LETTER_BYTES)) * _WIDE_SHARE < len(data):
        return None
    big_endian_first = data[0::2].count(0) > data[1::2].count(0)
    names = ["utf-32-be", "utf-32-le", *(_UTF16 if big_endian_first else reversed(_UTF16))]
    for encoding in names:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if _is_prose(text[: bounds.LEGACY_SAMPLE_CHARS]):
            return Decoded(text=text, encoding=encoding)
    return None


def _is_prose(text: str) -> bool:
    """Return whether most characters are of one script.

    All must be assigned. Punctuation of the script counts.
    """
    if any(category(character) in {"Cc", "Cn", "Co"} and character not in "\t\n\r\f\ufeff" for character in text):
        return False
    blocks = Counter("east" if "\u3000" <= character <= "\ud7ff" else ord(character) >> 8 for character in text)
    return sum(count for _, count in blocks.most_common(2)) * 10 >= len(text) * 9


def _remove_sparse_nuls(data: bytes) -> bytes:
    nuls = data.count(0)
    if nuls * _SPARSE >= len(data) or _CONTROL_BYTES.search(data):
        raise ParseError(
            "binary",
            f"looks like binary data, not text; {nuls} of its {len(data)} bytes are NUL; "
            "give a PDF, DOCX, HTML, Markdown or text file",
        )
    return data.replace(b"\0", b"")


def _find_declared_codec(data: bytes) -> str | None:
    """Return the codec that the data declares near its start.

    XML, HTML, CSS and source code have such declarations.
    """
    head = data[: bounds.MAX_DECLARATION_BYTES]
    matches = (pattern.search(head) for pattern in _DECLARATIONS)
    declared_codecs = (find_codec(match[1].decode("latin-1")) for match in matches if match)
    return next((codec for codec in declared_codecs if codec), None)


def _is_utf8_with_letters(data: bytes) -> bool:
    """Return whether data is UTF-8 beyond ASCII.

    Text in another encoding hardly ever is by chance.
    """
    if data.isascii():
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decode_declared(data: bytes, codec: str | None) -> Decoded | None:
    if codec is None or codec.startswith(("utf-16", "utf-32")):  # of bytes without NUL: a declaration that lies
        return None
    text = data.decode(codec, "replace")
    if text.count("\ufffd") * _SPARSE > len(text):
        return None
    return Decoded(text=text, encoding=codec)


def _decode_stateful(data: bytes) -> Decoded | None:
    """Decode ISO-2022 or HZ."""
    if not data.isascii() or not has_escapes(data):
        return None
    for encoding in ("iso2022_jp_ext", "iso2022_kr", "hz"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if not text.isascii() and "\x1b" not in text:
            return Decoded(text=text, encoding=encoding)
    return None


def _decode_utf8(data: bytes) -> Decoded | None:
    try:
        return Decoded(text=data.decode("utf-8"), encoding="utf-8")
    except UnicodeDecodeError:
        pass
    try:
        paired = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    # CESU-8 writes a character beyond the basic plane as two surrogates; UTF-16 makes one of them again.
    text = paired.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return Decoded(text=text, encoding="utf-8")


def _decode_legacy(data: bytes) -> Decoded:
    sample = _sample(data)
    if _is_mostly_utf8(sample):
        text = data.decode("utf-8", "surrogateescape")
        return Decoded(text=_ESCAPED.sub(lambda match: _western(match[0]), text), encoding="utf-8")
    encoding, certain = detect_legacy(sample)
    # Beyond the sample there may be characters that only the larger encoding has.
    encoding = _SUPERSETS.get(codecs.lookup(encoding).name, encoding)
    return Decoded(text=data.decode(encoding, "replace"), encoding=encoding, certain=certain)


def _sample(data: bytes) -> bytes:
    """Return a sample that shows the encoding.

    From shortly before the first byte that is not ASCII.
    """
    match = _NOT_ASCII.search(data)
    first = match.start() if match else 0
    sample = data[max(0, first - bounds.LEGACY_SAMPLE_CHARS) : first + bounds.SAMPLE_CHARS]
    if first + bounds.SAMPLE_CHARS >= len(data):
        return sample
    # No encoding has a space or a line end inside a character, so the cut there divides none.
    cut = max(sample.rfind(b" ", bounds.LEGACY_SAMPLE_CHARS), sample.rfind(b"\n", bounds.LEGACY_SAMPLE_CHARS))
    return sample[:cut] if cut > 0 else sample


def _is_mostly_utf8(sample: bytes) -> bool:
    """Return whether most non-ASCII characters are valid UTF-8.

    Legacy text hardly ever is by chance.
    """
    text = sample.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    return sum(not character.isascii() for character in text) - broken > broken


def _western(escaped: str) -> str:
    return escaped.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
