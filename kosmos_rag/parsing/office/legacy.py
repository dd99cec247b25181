"""Recognise Office files from the time before 2007, which only LibreOffice converts."""

from collections.abc import Set
from typing import NamedTuple

from kosmos_rag.core.errors import ParseError
from kosmos_rag.parsing.office.compound import list_root_streams
from kosmos_rag.parsing.office.encrypted import PACKAGE


class LegacyFormat(NamedTuple):
    """A format that LibreOffice converts to one that is parsed."""

    stream: str
    """The stream of the compound file that identifies it."""
    name: str
    extension: str
    target: str
    """Extension of what it is converted to."""
    package: str
    """Of Debian, with the part of LibreOffice that converts it."""


_FORMATS = (
    LegacyFormat("WordDocument", "legacy Word document (DOC)", "doc", "docx", "libreoffice-writer-nogui"),
    LegacyFormat(
        "PowerPoint Document", "legacy PowerPoint presentation (PPT)", "ppt", "pptx", "libreoffice-impress-nogui"
    ),
)


def find_legacy_format(data: bytes) -> LegacyFormat | None:
    """Return the format of a DOC or PPT without password; None for other files."""
    streams = list_root_streams(data)
    return None if PACKAGE in streams else choose_legacy_format(streams)


def choose_legacy_format(streams: Set[str]) -> LegacyFormat | None:
    """Return the format of a file with these streams, if it is a DOC or PPT."""
    return next((legacy for legacy in _FORMATS if legacy.stream in streams), None)


def legacy_error(legacy: LegacyFormat) -> ParseError:
    """Return the error of a file that is not converted."""
    return ParseError(
        "unsupported",
        f"{legacy.name}: install LibreOffice (apt-get install {legacy.package}) and set "
        f"ingestion.parsing.libreoffice to true, or save the file as {legacy.target.upper()}",
    )
