"""What to do about a failed job, by its code."""

from kosmos_rag.core.types import JobInfo
from kosmos_rag.wings import load_wing_jobs

_DEPARTMENT = "Give the document a department, and ingest it again."
_PARSER = "Retry. If it fails again, raise the limit that the message names, or convert the file."

# docs/parsing.md and docs/sources.md have the same codes and remedies; a test compares them.
_REMEDIES = {
    "bad_department": _DEPARTMENT,
    "binary": "Give the file its right extension, or convert it.",
    "corrupt": "Open the file with its program, save it, and ingest it again.",
    "crashed": _PARSER,
    "disk_full": "Free space on that disk. The job then continues.",
    "duplicate": "Two documents have the same name. Rename one of them.",
    "empty": "The file has no text. Nothing needs to be done.",
    "empty_folder": "Mount the folder again, or delete the documents with kosmos-rag delete.",
    "encrypted": "Store a copy without a password, and ingest it again.",
    "garbled": "Print the PDF to a new one, or read it by OCR.",
    "memory": _PARSER,
    "no_department": _DEPARTMENT,
    "no_permission": "Give the worker access to the file, then retry.",
    "no_text": "The PDF has only images. Read it by OCR, and ingest it again.",
    "not_a_file": "Name a regular file.",
    "not_found": "Restore the file, or remove it from its source.",
    "not_isolated": "Run kosmos-rag doctor on the machine of the worker. It names the missing layer.",
    "refused": "Add the host to ingestion.urls.allowed_hosts, or correct the URL.",
    "storage": "Read the log of the worker, then retry.",
    "text_refused": "Shorten or correct the text that the embedding model refuses, as the message says.",
    "timeout": _PARSER,
    "too_large": "Split the file, or raise the limit that the message names.",
    "unavailable": "Retry when the source can be reached again.",
    "unknown_language": "Name a text search configuration of the server.",
    "unreadable": "Correct the document, its name or its source, as the message says.",
    "unsupported": "Convert the file to a supported format, and ingest it again.",
}
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
    return _REMEDIES.get(job.code or "", _OTHER)


def describe_kind(kind: str) -> str:
    """Return what a kind of job does, in words."""
    of_wings = {wing_kind.name: wing_kind.description for wing_kind in load_wing_jobs().kinds}
    return (_KINDS | of_wings).get(kind, kind)
