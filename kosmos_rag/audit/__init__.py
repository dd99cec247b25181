"""The log of retrievals: a result goes in, and out to its reader only then; seals over it show what was changed."""

from kosmos_rag.audit.recording import Reader, record, stricter
from kosmos_rag.audit.tenant_audit import TenantAudit

__all__ = ["Reader", "TenantAudit", "record", "stricter"]
