"""What to do about a failed job, by its code."""

from kosmos_rag.core.types import JobInfo

_CONVERT = "Convert the file to a format that is read, and upload it again."
_COPY = "Store a copy that can be opened without a password, and upload it again."
_ACCESS = "Give the worker access to the file, then retry."
_PARSER = "Retry. If it fails again, raise the limit under ingestion.sandbox, or convert the file."
_STORAGE = "Free space on the disk of the database. The job then continues on its own."

_REMEDIES = {
    "binary": "Give the file its right extension, or convert it.",
    "corrupt": "Open the file with its program, save it, and upload it again.",
    "crashed": _PARSER,
    "disk_full": _STORAGE,
    "duplicate": "Two files have the same name. Rename one of them.",
    "empty": "The file has no text. Nothing needs to be done.",
    "encrypted": _COPY,
    "garbled": "Print the PDF to a new one, or read it by OCR.",
    "memory": _PARSER,
    "no_permission": _ACCESS,
    "no_text": "The PDF has images only. Read it by OCR, and upload the result.",
    "not_found": "Put the file back, or remove it from its source.",
    "not_isolated": "Run kosmos-rag doctor on the machine of the worker. It names the missing layer.",
    "timeout": _PARSER,
    "too_large": "Split the file, or raise the limit that the reason names.",
    "unavailable": "Retry when the source can be reached again.",
    "unsupported": _CONVERT,
}
_OTHER = "Retry. If it fails again, read the log of the worker."

_KINDS = {
    "document": "Ingest a document",
    "sync": "List a source",
    "permissions": "Read a permission feed",
    "schema": "Read the schema of a database",
    "maintain": "Maintain the indexes",
    "reconcile": "Check the row counts",
    "audit": "Seal the audit log",
}


def remedy(job: JobInfo) -> str:
    """Return what to do about a failed job."""
    return _REMEDIES.get(job.code or "", _OTHER)


def describe_kind(kind: str) -> str:
    """Return what a kind of job does, in words."""
    return _KINDS.get(kind, kind)
