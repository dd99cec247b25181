"""One tenant as one reader sees it."""

from kosmos_rag.scope.tenant_scope import TenantScope

__all__ = ["TenantScope"]
