"""Read the members of 7-Zip archives within limits (extra `sevenzip`)."""

import lzma
from collections.abc import Sequence
from functools import partial
from io import BytesIO

from kosmos_rag.core.errors import ParseError, first_line
from kosmos_rag.core.extras import require_extra
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.archives.screening import check_path, refuse_size

SIGNATURE = b"7z\xbc\xaf\x27\x1c"


def read_seven_zip(data: bytes, name: str) -> Sequence[tuple[str, bytes]]:
    """Return the files of an archive with their paths.

    Args:
        data: a 7-Zip archive.
        name: what the file is, for messages.

    Raises:
        ParseError: `unsupported` without the extra or for an unknown method; `too_large`, `encrypted` or `corrupt`.
    """
    require_extra("sevenzip", "a 7-Zip archive", "py7zr", error=partial(ParseError, "unsupported"))
    import py7zr
    from py7zr.exceptions import ArchiveError

    try:
        return _read(data, name)
    except py7zr.PasswordRequired as error:
        raise ParseError("encrypted", f"the {name} has a password; pack it without one") from error
    except py7zr.UnsupportedCompressionMethodError as error:
        raise ParseError("unsupported", f"the {name} has a method that is not read; pack it with LZMA") from error
    except py7zr.DecompressionBombError as error:  # the header said less
        refuse_size(name, bounds.MAX_ARCHIVE_BYTES + 1)
        raise AssertionError from error
    except (ArchiveError, lzma.LZMAError, EOFError, OSError, ValueError, LookupError, TypeError) as error:
        # A broken header makes the reader fail in many ways.
        raise ParseError("corrupt", f"the {name} cannot be read ({first_line(error)}); pack it again") from error


def _read(data: bytes, name: str) -> Sequence[tuple[str, bytes]]:
    import py7zr

    with py7zr.SevenZipFile(BytesIO(data), max_extract_size=bounds.MAX_ARCHIVE_BYTES) as archive:
        if archive.needs_password():
            raise py7zr.PasswordRequired(name)
        members = [member for member in archive.list() if member.is_file]
        if len(members) > bounds.MAX_ARCHIVE_MEMBERS:
            raise ParseError("too_large", f"the {name} has more than {bounds.MAX_ARCHIVE_MEMBERS:,} members; split it")
        refuse_size(name, sum(member.uncompressed for member in members))
        for member in members:
            check_path(member.filename, name)
        files = py7zr.io.BytesIOFactory(bounds.MAX_ARCHIVE_BYTES + 1)
        archive.extract(targets=[member.filename for member in members], factory=files)
    return [(path, file.read()) for path, file in files.products.items()]
