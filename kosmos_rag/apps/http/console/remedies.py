"""What to do about a failed job, by its code."""

from typing import NamedTuple

from kosmos_rag.core.types import JobInfo
from kosmos_rag.wings import load_wing_jobs

_DEPARTMENT = "Give the document a department, and ingest it again."
_PARSER = "Retry. If it fails again, raise the limit that the message names, or convert the file."


class ErrorCode(NamedTuple):
    """Why a document failed, and what to do about it."""

    cause: str
    remedy: str


ERROR_CODES = {
    "bad_department": ErrorCode(
        "The department of the document is not one of rag.access.departments.",
        _DEPARTMENT,
    ),
    "binary": ErrorCode(
        "The file is a text by its name and contains binary data, or a `.pdf` that is no PDF.",
        "Give the file its right extension, or convert it.",
    ),
    "corrupt": ErrorCode(
        "The file is broken, or harmful: a DOCTYPE, a name that points outside of the archive.",
        "Open the file with its program, save it, and ingest it again.",
    ),
    "crashed": ErrorCode(
        "The parser died. PDFium also does so when it gets no memory.",
        _PARSER,
    ),
    "disk_full": ErrorCode(
        "The disk of the database or of the worker is full.",
        "Free space on that disk. The job then continues.",
    ),
    "duplicate": ErrorCode(
        "A source lists a name twice. The first document is taken.",
        "Two documents have the same name. Rename one of them.",
    ),
    "empty": ErrorCode(
        "The file has only white space.",
        "The file has no text. Nothing needs to be done.",
    ),
    "empty_folder": ErrorCode(
        "A source had documents and has none now. They stay, because a lost mount looks the same.",
        "Mount the folder again, or delete the documents with kosmos-rag delete.",
    ),
    "encrypted": ErrorCode(
        "The file has a password that is not in ingestion.parsing.passwords, or copy protection.",
        "Store a copy without a password, and ingest it again.",
    ),
    "garbled": ErrorCode(
        "The text of the PDF is mostly no letters.",
        "Print the PDF to a new one, or read it by OCR.",
    ),
    "memory": ErrorCode(
        "The parser needs more than ingestion.parsing.memory_mb, or was killed because the machine had no more.",
        _PARSER,
    ),
    "no_department": ErrorCode(
        "The document has no department, and its collection requires one.",
        _DEPARTMENT,
    ),
    "no_permission": ErrorCode(
        "The worker may not read the file.",
        "Give the worker access to the file, then retry.",
    ),
    "no_text": ErrorCode(
        "The PDF has images and no text.",
        "The PDF has only images. Read it by OCR, and ingest it again.",
    ),
    "not_a_file": ErrorCode(
        "The source names a folder or a device.",
        "Name a regular file.",
    ),
    "not_found": ErrorCode(
        "The document no longer exists.",
        "Restore the file, or remove it from its source.",
    ),
    "not_isolated": ErrorCode(
        "The parser could reach too much, and ingestion.parsing.require_isolation is on, or the file is DOC or PPT.",
        "Run kosmos-rag doctor on the machine of the worker. It names the missing layer.",
    ),
    "preset_changed": ErrorCode(
        "The collection has another preset than when the job was enqueued.",
        "Nothing: a worker tries the job again under the new preset.",
    ),
    "preset_missing": ErrorCode(
        "The collection no longer has the preset that it had when the job was enqueued.",
        "Create the collection with its preset again, then retry. Or cancel the job.",
    ),
    "refused": ErrorCode(
        "The source names a host, address, link or file that is not allowed, or a server that cannot be used.",
        "Correct the source or the setting that the message names, such as ingestion.urls.allowed_hosts.",
    ),
    "storage": ErrorCode(
        "The database refused the document.",
        "Read the log of the worker, then retry.",
    ),
    "text_refused": ErrorCode(
        "The embedding server refused a text of the document. Others of its batch are stored.",
        "Shorten or correct the text that the embedding model refuses, as the message says.",
    ),
    "timeout": ErrorCode(
        "The parser needs more than ingestion.parsing.cpu_s or ingestion.parsing.timeout_s.",
        _PARSER,
    ),
    "too_large": ErrorCode(
        "The file has more bytes, text, pages or headings than the limits, or an archive unpacks to too much.",
        "Split the file, or raise the limit that the message names.",
    ),
    "unavailable": ErrorCode(
        "A server is down, slow or busy, or a name has no address.",
        "Retry when the source can be reached again.",
    ),
    "unknown_language": ErrorCode(
        "PostgreSQL has no text search configuration of this name.",
        "Name a text search configuration of the server.",
    ),
    "unreadable": ErrorCode(
        "The document could not be read, or is malformed.",
        "Correct the document, its name or its source, as the message says.",
    ),
    "unsupported": ErrorCode(
        "The format, which the message names, is not supported, or an Office file contains an archive.",
        "Convert the file to a supported format, and ingest it again.",
    ),
}
"""By code; docs/error-codes.md lists them."""
_OTHER = "Retry. If it fails again, read the log of the worker."

_KINDS = {
    "document": "Ingest a document",
    "sync": "List a source",
    "permissions": "Read a permission feed",
    "maintain": "Maintain the indexes",
    "reconcile": "Check the row counts",
    "audit": "Seal the audit log",
}


def remedy(job: JobInfo) -> str:
    """Return what to do about a failed job."""
    error = ERROR_CODES.get(job.code or "")
    return error.remedy if error else _OTHER


def describe_kind(kind: str) -> str:
    """Return what a kind of job does, in words."""
    of_wings = {wing_kind.name: wing_kind.description for wing_kind in load_wing_jobs().kinds}
    return (_KINDS | of_wings).get(kind, kind)
