"""Policies and privileges that the migrations create.

The preflight compares them with the database.

Tables are grouped as in the baseline migration. A migrated database that differs from this module is refused, so a
revision that changes a policy or a grant changes this module too.
"""

import re
from typing import NamedTuple

from kosmos_rag.storage.provision import APP, BACKUP, OWNER, WORKER

_TENANT = "(tenant_id = kosmos.current_tenant())"
_READABLE = (
    "((tenant_id = kosmos.current_tenant()) AND ((('everyone'::text = ANY (acl))"
    " AND (current_setting('kosmos.everyone'::text, true) = 'on'::text)) OR (acl && kosmos.current_principals())))"
)
_EXPIRED = "(at < kosmos.audit_expired_before())"

WITH_ACL = frozenset(
    {"documents", "document_versions", "chunks", "embeddings", "lexemes", "acl_statistics", "unsegmented_terms"}
    | {"document_permissions", "files", "filter_terms"}
)
"""Tables whose rows carry the principals that may read them."""
WITHOUT_ACL = frozenset(
    {"tenants", "embedding_spaces", "collection_presets", "collection_statistics", "indexes", "segments", "postings"}
    | {"collection_changes", "scim_resources", "scim_members"}
    | {"api_keys", "experiments", "vector_stores", "vector_store_files", "file_batches"}
)
"""Tables of which kosmos_app reads all rows of the tenant."""
WORKER_ONLY = frozenset(
    {"uploads", "idempotency_keys", "evaluations", "evaluation_results", "experiment_results", "feedback"}
    | {"monitor_runs", "index_events", "permission_feeds", "document_permissions", "event_streams", "events"}
    | {"webhook_subscribers", "webhook_dead_letters", "unanswered_questions"}
    | {"judged_questions", "answer_samples"}
)
"""Tables that kosmos_app has no grant to read."""
ACROSS_TENANTS = frozenset({"jobs", "sync_runs"})
"""The queue: a worker chooses between the jobs of all tenants. On a cluster, local tables of the coordinator."""
APPEND_ONLY = frozenset({"audit_events", "audit_passages"})
"""The audit log: kosmos_app appends, kosmos_worker reads."""
CHAINS = frozenset({"audit_seals", "erasures"})
"""Chains of hashes: kosmos_worker appends and reads."""
SAMPLES, USAGE, VERSION = "monitor_samples", "usage", "alembic_version"
TABLES = WITH_ACL | WITHOUT_ACL | WORKER_ONLY | ACROSS_TENANTS | APPEND_ONLY | CHAINS | {SAMPLES, USAGE, VERSION}

_PARTITION = re.compile(r"_(?:default|\d+(?:_\d+)*)$")


class Policy(NamedTuple):
    """A row-level security policy.

    All are permissive, because a restrictive one turns permissive on distributed tables.
    """

    name: str
    command: str
    """As in pg_policy.polcmd."""
    role: str
    using: str | None = None
    check: str | None = None
    permissive: bool = True


def base_name(table: str) -> str:
    """Return the table name of a partition or shard."""
    return _PARTITION.sub("", table)


def list_policies(table: str, *, partition: bool) -> frozenset[Policy]:
    """Return the policies of a table.

    A partition has none of its parent for the roles that serve: no query reads past the parent.
    """
    base = base_name(table)
    if base == VERSION:
        return frozenset()
    # pg_dump reads each partition, and not its parent.
    backup_read = Policy("backup_read", "r", BACKUP, using="true")
    if partition:
        expire = Policy("owner_expire", "*", OWNER, using=_EXPIRED)
        return frozenset({backup_read, expire} if table.endswith("_default") else {backup_read})
    return frozenset({backup_read, *_list_serving_policies(base)})


def _list_serving_policies(base: str) -> set[Policy]:
    app_read = Policy("app_read", "r", APP, using=_READABLE if base in WITH_ACL else _TENANT)
    app_append = Policy("app_append", "a", APP, check=_TENANT)
    worker_all = Policy("worker_all", "*", WORKER, using=_TENANT, check=_TENANT)
    worker_queue = Policy("worker_queue", "*", WORKER, using="true", check="true")
    worker_read = Policy("worker_read", "r", WORKER, using=_TENANT)
    worker_append = Policy("worker_append", "a", WORKER, check=_TENANT)
    if base in ACROSS_TENANTS:
        return {app_read, worker_queue}
    if base in APPEND_ONLY:
        return {app_append, worker_read}
    if base in CHAINS:
        return {worker_append, worker_read}
    if base == SAMPLES:
        return {app_append, worker_all}
    if base == USAGE:
        return {app_append, app_read, worker_all}
    return {app_read, worker_all}


def list_privileges(role: str, table: str) -> frozenset[str]:
    """Return the privileges of kosmos_app or kosmos_worker on a table.

    A partition of the log has none of its own.
    """
    if base_name(table) not in APPEND_ONLY:
        table = base_name(table)
    if table == VERSION:
        return frozenset({"SELECT"})
    if role == APP:
        readable = table in (WITH_ACL | WITHOUT_ACL | ACROSS_TENANTS | {USAGE}) - WORKER_ONLY
        appended = table in APPEND_ONLY | {SAMPLES, USAGE}
        return frozenset(["SELECT"] * readable + ["INSERT"] * appended)
    if table in APPEND_ONLY:
        return frozenset({"SELECT"})
    if table in CHAINS:
        return frozenset({"SELECT", "INSERT"})
    return frozenset() if base_name(table) in APPEND_ONLY else frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
