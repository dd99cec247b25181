"""Names of stored files: of their documents and of their uploaders."""

import re
import uuid
from posixpath import split

from kosmos_rag.core.errors import RequestError

FILE_ADMINISTRATOR = "uploader:*"
"""Principal in the acl of every file."""

_SOURCE = re.compile(r"(?P<folder>(?:.*/)?)file-(?P<id>[0-9a-f]{32})-(?P<name>[^/]+)", re.DOTALL)


def uploader_principal(subject: str) -> str:
    """Return the principal of the subject that uploaded a file.

    Raises RequestError for the subject whose principal is that of administrators.
    """
    principal = f"uploader:{subject}"
    if principal == FILE_ADMINISTRATOR:
        raise RequestError(f"no subject may be named {subject!r}, which means every uploader; rename it")
    return principal


def file_name(file_id: uuid.UUID) -> str:
    """Return the id of a file as interfaces and sources write it."""
    return f"file-{file_id.hex}"


def source_of_file(file_id: uuid.UUID, filename: str) -> str:
    """Return the source of the documents that are made from a file.

    The folder and the end of its name stay: departments and types follow from them.
    """
    folder, name = split(filename)
    return f"{folder.rstrip('/')}/{file_name(file_id)}-{name}" if folder else f"{file_name(file_id)}-{name}"


def parse_file_source(source: str, document_id: uuid.UUID) -> tuple[uuid.UUID, str]:
    """Return id and name of the file of a document.

    Of a document without a stored file, they are its own id and its source.
    """
    match = _SOURCE.fullmatch(source)
    return (document_id, source) if match is None else (uuid.UUID(match["id"]), match["folder"] + match["name"])
