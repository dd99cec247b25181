"""What administrators do with a whole database, from its settings and without an engine."""

from kosmos_rag.storage.backup import back_up, restore
from kosmos_rag.storage.cluster import CitusCluster, ShardMove
from kosmos_rag.storage.database import resolve_addresses
from kosmos_rag.storage.embedded import check_folder
from kosmos_rag.storage.setup import distribute_tables, set_up
from kosmos_rag.storage.tenants import tenant as tenant_ref

__all__ = [
    "CitusCluster",
    "ShardMove",
    "back_up",
    "check_folder",
    "distribute_tables",
    "resolve_addresses",
    "restore",
    "set_up",
    "tenant_ref",
]
