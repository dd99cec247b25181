"""Records of erasures: what was erased, what is retained and until when."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from kosmos_rag.core.types.serialize import Serializable


class ErasureKind(StrEnum):
    """What an erasure selects by."""

    TENANT = "tenant"
    SUBJECT = "subject"
    SOURCE = "source"
    METADATA = "metadata"


@dataclass(frozen=True, kw_only=True, slots=True)
class RetainedRows(Serializable):
    """Rows of the audit log that are immutable until their retention ends."""

    table: str
    rows: int
    until: date
    """First day on which all of them are past `worker.keep_audit_months`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasureReport(Serializable):
    """What an erasure removed, or would remove."""

    tenant: str
    kind: ErasureKind
    selector: str
    """What was erased, as requested; the stored record has its SHA-256 only."""
    at: datetime
    erased: Mapping[str, int]
    """Rows by table, without tables that had none."""
    retained: tuple[RetainedRows, ...]
    warnings: tuple[str, ...]
    number: int | None
    """Number of the stored record; None for a preview, which changes nothing."""
    sha256: str | None
    """Hash of the record and of the tenant's record before it."""
