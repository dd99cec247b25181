"""Turn bytes into text: byte order mark, then UTF-8, then the legacy encoding that fits best."""

import codecs
import re

from kosmos_rag.core.errors import ParseError
from kosmos_rag.ingestion.parsing.clean import clean

_WIDE_MARKS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LEGACY = (
    *(f"cp{page}" for page in (1250, 1251, 1252, 1253, 1254, 1255, 1256, 1257, 1258, 866, 874, 932, 949)),
    *("iso8859_2", "iso8859_5", "iso8859_7", "koi8_r", "koi8_u", "mac_roman", "big5", "euc_jp", "gb18030"),
)
"""The legacy encodings of the WHATWG Encoding Standard, without those that another one contains."""
_WESTERN = "cp1252"
_LABELS = {codecs.lookup(encoding).name: encoding for encoding in _LEGACY} | {
    "iso8859-1": _WESTERN,
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
}
"""The encoding that the standard reads a declared one as."""
_DECLARATION = re.compile(rb"charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)
_MAX_DECLARATION_OFFSET = 1_024
_SAMPLE = 65_536
_CONTEXT = 1_024
_SPARSE_NULS = 1_000
"""Text with one NUL in more bytes than this is text with a defect; with more NULs it is binary data."""

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0e-\x1f]")
_CONTROL_BYTES = re.compile(rb"[\x01-\x08\x0e-\x1f]")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_ESCAPED = re.compile(r"[\udc80-\udcff]")


def decode(data: bytes) -> str:
    """Decode a text file of unknown encoding and clean it.

    The result is never blank.

    Raises:
        ParseError: `empty` for nothing but white space, `binary` for data that is not text.
    """
    text = clean(_decode(data))
    if not text or text.isspace():
        raise ParseError("empty", f"no text in {len(data)} bytes; give a document that has some")
    return text


def _decode(data: bytes) -> str:
    for mark, encoding in _WIDE_MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\0" in data:
        wide = _unmarked_utf16(data)
        if wide is not None:
            return wide
        data = _without_sparse_nuls(data)
    return _decode_bytes(data)


def _unmarked_utf16(data: bytes) -> str | None:
    """Decode UTF-16 without a byte order mark.

    NULs are in the same byte of the pairs, and there are no control characters.
    """
    if len(data) % 2:
        return None
    first, second = data[0::2].count(0), data[1::2].count(0)
    rarer, more = sorted((first, second))
    if rarer * 10 > more or more * 20 < len(data):
        return None
    try:
        text = data.decode("utf-16-be" if first > second else "utf-16-le")
    except UnicodeDecodeError:
        return None
    return None if _CONTROL_CHARACTERS.search(text) else text


def _without_sparse_nuls(data: bytes) -> bytes:
    nuls = data.count(0)
    if nuls * _SPARSE_NULS >= len(data) or _CONTROL_BYTES.search(data):
        raise ParseError(
            "binary",
            f"looks like binary data, not text; {nuls} of its {len(data)} bytes are NUL; "
            "give a PDF, DOCX, HTML, Markdown or text file",
        )
    return data.replace(b"\0", b"")


def _decode_bytes(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        paired = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return _decode_legacy(data)
    # CESU-8 writes a character beyond the basic plane as two surrogates; UTF-16 makes one of them again.
    return paired.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")


def _decode_legacy(data: bytes) -> str:
    sample = _sample(data)
    if _is_mostly_utf8(sample):
        text = data.decode("utf-8", "surrogateescape")
        return _ESCAPED.sub(lambda match: _western(match[0]), text)
    encoding = _declared_encoding(data) or _likely_encoding(sample) or "utf-8"
    return data.decode(encoding, "replace")


def _sample(data: bytes) -> bytes:
    """Return a sample that shows the encoding.

    From shortly before the first byte that is not ASCII.
    """
    match = _NOT_ASCII.search(data)
    first = match.start() if match else 0
    sample = data[max(0, first - _CONTEXT) : first + _SAMPLE]
    if first + _SAMPLE >= len(data):
        return sample
    # No encoding has a space or a line end inside a character, so the cut there divides none.
    cut = max(sample.rfind(b" ", _CONTEXT), sample.rfind(b"\n", _CONTEXT))
    return sample[:cut] if cut > 0 else sample


def _is_mostly_utf8(sample: bytes) -> bool:
    """Return whether most non-ASCII characters are valid UTF-8.

    Legacy text hardly ever is by chance.
    """
    text = sample.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    return sum(not character.isascii() for character in text) - broken > broken


def _western(escaped: str) -> str:
    return escaped.encode("utf-8", "surrogateescape").decode(_WESTERN, "replace")


def _declared_encoding(data: bytes) -> str | None:
    """Return the legacy encoding that HTML declares near its start."""
    match = _DECLARATION.search(data[:_MAX_DECLARATION_OFFSET])
    if match is None:
        return None
    try:
        return _LABELS.get(codecs.lookup(match[1].decode("ascii")).name)
    except LookupError:
        return None


def _likely_encoding(sample: bytes) -> str | None:
    """Return the encoding that decodes the sample best; None without one."""
    from charset_normalizer import from_bytes

    # Western text often reads as clean in the code pages of its neighbours; by far the most of it is cp1252.
    western = from_bytes(sample, cp_isolation=[_WESTERN]).best()
    best = from_bytes(sample, cp_isolation=list(_LEGACY)).best()
    if western and (best is None or western.chaos <= best.chaos):
        return _WESTERN
    return best.encoding if best else None
