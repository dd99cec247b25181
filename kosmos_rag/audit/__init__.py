"""The log of retrievals: a result goes in, and out to its reader only then; seals over it show what was changed."""

from kosmos_rag.audit.feedback import Opinion, keep
from kosmos_rag.audit.partitions import Months
from kosmos_rag.audit.recording import Reader, new_id, record, strictest
from kosmos_rag.audit.tenant_audit import TenantAudit

__all__ = ["Months", "Opinion", "Reader", "TenantAudit", "keep", "new_id", "record", "strictest"]
