"""The log of retrievals: a result goes in, and out to its reader only then; seals over it show what was changed."""

from kosmos_rag.audit.partitions import Months
from kosmos_rag.audit.recording import Reader, record, strictest
from kosmos_rag.audit.tenant_audit import TenantAudit

__all__ = ["Months", "Reader", "TenantAudit", "record", "strictest"]
