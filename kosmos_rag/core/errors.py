"""The errors that the kernel raises on purpose, in one tree.

    KosmosError
    ├── ConfigError               a setting is unknown, malformed or impossible
    ├── DatabaseError
    │   ├── DatabaseUnavailable   no connection: server down, wrong password, pool exhausted
    │   │   └── NodeUnavailable   a node of the cluster is down: its tenants wait, the others do not
    │   ├── DatabaseNotReady      connected, but the catalogue does not isolate the tenants
    │   └── StatementFailed       the server refused a statement
    ├── IngestionError            one document could not be ingested; `code` is stable
    │   ├── SourceError           it could not be read
    │   └── ParseError            it was read, and is not a document we can use
    ├── ModelError
    │   ├── InputRefused          the model refuses a text
    │   ├── ModelUnavailable      the model cannot be loaded here
    │   ├── EmbeddingSpaceMismatch  the tenant's vectors were made by another model
    │   └── EmbeddingSpaceChanged   another space has become live since the vectors were made
    ├── RequestError              the caller asked for something that cannot be answered
    ├── ServiceError              the service does not carry out a request
    │   ├── NotFound              it does not exist, or the reader may not know of it
    │   └── LimitReached          the tenant or the reader has used up a limit
    │       └── BudgetReached     that of money
    ├── IndexLocked               another process maintains the tenant's indexes
    └── LeaseLost                 a job is no longer this worker's

The errors of the HTTP service are in `apps/errors.py`, those of a wing in its folder.
A message names the fault, with the value, and then the remedy. It is one line: the CLI prints it unchanged.
"""

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kosmos_rag.core.types.stored import IngestReport


class KosmosError(Exception):
    """Something that kosmos_rag reports on purpose went wrong."""


class ConfigError(KosmosError):
    """A setting is unknown, malformed or impossible in combination with another."""


class DatabaseError(KosmosError):
    """PostgreSQL could not do what was asked."""


class DatabaseUnavailable(DatabaseError):
    """PostgreSQL could not be reached."""


class NodeUnavailable(DatabaseUnavailable):
    """A node of the cluster cannot be reached.

    Tenants on other nodes are not affected.
    """


class DatabaseNotReady(DatabaseError):
    """The database cannot serve: its schema, extension or role is unfit."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


QUERY_CANCELED = "57014"
"""SQLSTATE of a statement that took longer than its limit, or that somebody cancelled."""


class StatementFailed(DatabaseError):
    """PostgreSQL refused a statement; `sqlstate` is its five-character code."""

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        self.sqlstate = sqlstate
        super().__init__(message)

    @property
    def is_cancelled(self) -> bool:
        """Whether the statement took longer than its limit, or somebody cancelled it."""
        return self.sqlstate == QUERY_CANCELED


DISK_FULL = "disk_full"
"""Code of a document that a full disk had no room for: its job waits, and the failure is not counted as an attempt."""

RETRY_WITH_BACKOFF = frozenset(
    {"crashed", "timeout", "memory", "not_isolated", "unavailable", "storage", "internal", "preset_changed", DISK_FULL}
)
"""Codes of failures that may pass: the source or the worker failed, not the document itself."""


class IngestionError(KosmosError):
    """One document could not be ingested.

    `code` is stable and meant for programs, the message for people. Codes of its own: `unknown_language`,
    `no_department`, `storage`, `disk_full`, `text_refused`, `lease_lost`, `internal`; `preset_changed` and
    `preset_missing` where the collection no longer has the preset that the document was to be ingested under.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)

    @property
    def retryable(self) -> bool:
        """Whether a retry may succeed.

        Load on the machine can slow or kill parsers.
        """
        return self.code in RETRY_WITH_BACKOFF


GONE = "gone"
"""Code of a document that was removed from its source after it was listed: the next pass no longer has it."""


class IngestInterrupted(KeyboardInterrupt):
    """The user has interrupted an `ingest` call. What was published stays."""

    def __init__(self, report: "IngestReport", *, total: int) -> None:
        super().__init__(f"interrupted: {report.seen} of {total} documents are done; ingest them again to continue")
        self.report = report


def concerns_all_tenants(error: BaseException) -> bool:
    """Return whether the next tenant would wait for a connection too."""
    return isinstance(error, DatabaseUnavailable) and not isinstance(error, NodeUnavailable)


def is_disk_full(error: BaseException) -> bool:
    """Return whether the server's disk is full, or one of this machine."""
    if isinstance(error, OSError):
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    if isinstance(error, StatementFailed):
        return error.sqlstate == "53100"
    return isinstance(error, IngestionError) and error.code == DISK_FULL


class SourceError(IngestionError):
    """A document could not be read from its source.

    Codes: `gone`, `not_found`, `no_permission`, `too_large`, `not_a_file`, `unreadable`, `empty_folder`, `duplicate`,
    `refused`, `unavailable`.
    """


class ParseError(IngestionError):
    """The bytes are not a usable document."""


class ModelError(KosmosError):
    """A model could not do what was asked of it."""

    def __init__(self, message: str, *, public: str | None = None) -> None:
        super().__init__(message)
        self.public = public
        """The message for readers, where the other one names a server and quotes its reply; None for the same."""


class InputRefused(ModelError):
    """The model refuses a text, and takes others."""


class ModelUnavailable(ModelError):
    """The model cannot be loaded on this machine."""


class EmbeddingSpaceMismatch(ModelError):
    """The tenant's vectors are of a model that is not configured."""


class EmbeddingSpaceChanged(ModelError):
    """Another embedding space became live during ingestion.

    Nothing was written: embed the documents for it too.
    """


class RequestError(KosmosError):
    """The request is invalid: empty question, k of zero, malformed tenant name."""


class ServiceError(KosmosError):
    """The service refuses a request.

    The message is for the client.
    """


class NotFound(ServiceError):
    """The resource does not exist, or the reader may not see it.

    One message for both.
    """


class LimitReached(ServiceError):
    """The tenant or the reader has used up a limit.

    After `retry_after_s` its next period begins.
    """

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class BudgetReached(LimitReached):
    """The tenant or the reader has used up its budget."""


class IndexLocked(KosmosError):
    """Another process builds, tunes or merges the indexes of this tenant."""


class LeaseLost(KosmosError):
    """The job's lease expired, or the job was cancelled.

    Nothing of its result was written.
    """


def reader_message(error: BaseException) -> str:
    """Return what readers may know of a failed model.

    Names and replies of servers are for the log.
    """
    return getattr(error, "public", None) or first_line(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type.

    For errors of other libraries; ours have one line.
    """
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
