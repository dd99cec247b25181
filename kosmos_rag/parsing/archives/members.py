"""Read the members of archives within limits.

They are ZIP, 7-Zip, tar, and files that gzip, bzip2 or xz compress.
"""

import bz2
import gzip
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from posixpath import basename
from typing import IO, Any, NamedTuple

from kosmos_rag.core.errors import ParseError
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.archives.screening import refuse_size, screen
from kosmos_rag.parsing.archives.seven_zip import SIGNATURE, read_seven_zip
from kosmos_rag.parsing.text.decode import decode_text

ZIP = b"PK"
_TAR = (257, b"ustar")
_COMPRESSED: Mapping[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_IS_UTF8 = 0x800
"""Flag of a member whose name is UTF-8."""
_LAST_LATIN = "\u024f"
_ALL = re.compile("")
"""Members may be archives: Office files are, and the parser of each member screens it."""
_HIDDEN = re.compile(r"(?:.*/)?(?:\.|__MACOSX/|Thumbs\.db$|desktop\.ini$)", re.DOTALL)
"""Files that programs leave, and that people do not see."""


class Member(NamedTuple):
    """A file of an archive."""

    name: str
    """Its path in the archive."""
    data: bytes


def is_tar(data: bytes) -> bool:
    """Return whether data are a tar archive."""
    return data.startswith(_TAR[1], _TAR[0])


def is_compressed(data: bytes) -> bool:
    """Return whether data are compressed by gzip, bzip2 or xz."""
    return data.startswith(tuple(_COMPRESSED))


def decompress(data: bytes, name: str) -> bytes:
    """Return what gzip, bzip2 or xz has compressed.

    Args:
        name: what the file is, for messages.

    Raises:
        ParseError: `too_large` or `corrupt`.
    """
    open_file = next(opener for signature, opener in _COMPRESSED.items() if data.startswith(signature))
    try:
        with open_file(BytesIO(data)) as file:
            content: bytes = file.read(bounds.MAX_ARCHIVE_BYTES + 1)
    except (EOFError, OSError, lzma.LZMAError, ValueError) as error:
        raise ParseError("corrupt", f"the {name} cannot be unpacked ({error}); pack it again") from error
    refuse_size(name, len(content))
    return content


def read_members(data: bytes, name: str) -> Iterator[Member]:
    """Yield the visible files of an archive by their names.

    Args:
        data: ZIP, 7-Zip, or tar.
        name: what the file is, for messages.

    Raises:
        ParseError: `too_large`, `encrypted` or `corrupt`; `unsupported` for 7-Zip without the extra.
    """
    if data.startswith(SIGNATURE):
        files = sorted(read_seven_zip(data, name))
        yield from (Member(path, content) for path, content in files if not _HIDDEN.match(path))
    else:
        yield from _read_zip(data, name) if data.startswith(ZIP) else _read_tar(data, name)


def _read_zip(data: bytes, name: str) -> Iterator[Member]:
    screen(data, name, not_read=_ALL)
    with zipfile.ZipFile(BytesIO(data)) as archive:
        names = _decode_names(archive.infolist())
        for member in sorted(archive.infolist(), key=lambda member: names[member]):
            if not member.is_dir() and not _HIDDEN.match(names[member]):
                yield Member(names[member], archive.read(member))


def _decode_names(members: Sequence[zipfile.ZipInfo]) -> dict[zipfile.ZipInfo, str]:
    """Return the names of the members of a ZIP.

    A program that does not say that they are UTF-8 writes them in the encoding of its system.
    """
    unmarked = [member for member in members if not member.flag_bits & _IS_UTF8 and not member.filename.isascii()]
    decoded = _decode_joined(b"\n".join(member.filename.encode("cp437") for member in unmarked)).split("\n")
    all_names = {member: member.filename for member in members}
    return all_names | dict(zip(unmarked, decoded, strict=True)) if len(decoded) == len(unmarked) else all_names


def _decode_joined(names: bytes) -> str:
    """Decode names as UTF-8, as another encoding that is certain, or as code page 437.

    Latin letters of another encoding are not certain: too few bytes show it.
    """
    with suppress(ParseError):
        decoded = decode_text(names)
        has_latin = any("\x80" <= character <= _LAST_LATIN for character in decoded.text)
        if decoded.encoding == "utf-8" or (decoded.certain and not has_latin):
            return decoded.text
    return names.decode("cp437")


def _read_tar(data: bytes, name: str) -> Iterator[Member]:
    try:
        with tarfile.open(fileobj=BytesIO(data), mode="r:") as archive:
            # `tar c .` writes `./` before each name.
            members = {member.name.removeprefix("./"): member for member in _list_tar(archive, name)}
            for path, member in sorted(members.items()):
                file: IO[bytes] | None = None if _HIDDEN.match(path) else archive.extractfile(member)
                if file is not None:
                    yield Member(path, file.read())
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise ParseError("corrupt", f"the {name} cannot be read ({error}); pack it again") from error


def _list_tar(archive: tarfile.TarFile, name: str) -> Iterator[tarfile.TarInfo]:
    total = 0
    for number, member in enumerate(archive):
        if number >= bounds.MAX_ARCHIVE_MEMBERS:
            raise ParseError("too_large", f"the {name} has more than {bounds.MAX_ARCHIVE_MEMBERS:,} members; split it")
        if member.isreg():
            total += member.size
            refuse_size(name, total)
            yield member


def strip_extension(name: str) -> str:
    """Return the name of a compressed file without the extension of the compression."""
    return re.sub(r"\.(?:gz|bz2|xz)$", "", basename(name), flags=re.IGNORECASE)
