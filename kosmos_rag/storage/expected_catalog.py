"""Policies, privileges and functions that the migrations create.

The preflight compares them with the database.

Tables are grouped as in the baseline migration. A migrated database that differs from this module is refused, so a
revision that changes a policy, a grant or a function changes this module too.
"""

import re
from hashlib import sha256
from typing import NamedTuple

from kosmos_rag.storage.provision import APP, OWNER, WORKER

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
    | {"api_keys", "experiments", "vector_stores", "vector_store_files", "file_batches"}
)
"""Tables of which kosmos_app reads all rows of the tenant."""
WORKER_ONLY = frozenset(
    {"uploads", "idempotency_keys", "evaluations", "evaluation_results", "experiment_results", "feedback"}
    | {"monitor_runs", "index_events", "permission_feeds", "document_permissions"}
)
"""Tables that kosmos_app has no grant to read."""
ACROSS_TENANTS = frozenset({"jobs", "sync_runs"})
"""The queue: a worker chooses between the jobs of all tenants."""
APPEND_ONLY = frozenset({"audit_events", "audit_passages"})
"""The audit log: kosmos_app appends, kosmos_worker reads."""
CHAINS = frozenset({"audit_seals", "erasures"})
"""Chains of hashes: kosmos_worker appends and reads."""
SAMPLES, VERSION = "monitor_samples", "alembic_version"
TABLES = WITH_ACL | WITHOUT_ACL | WORKER_ONLY | ACROSS_TENANTS | APPEND_ONLY | CHAINS | {SAMPLES, VERSION}

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

    A partition has none of its parent: no query reads past the parent.
    """
    base = base_name(table)
    if partition:
        expire = Policy("owner_expire", "*", OWNER, using=_EXPIRED)
        return frozenset({expire} if table.endswith("_default") else ())
    app_read = Policy("app_read", "r", APP, using=_READABLE if base in WITH_ACL else _TENANT)
    app_append = Policy("app_append", "a", APP, check=_TENANT)
    worker_all = Policy("worker_all", "*", WORKER, using=_TENANT, check=_TENANT)
    worker_queue = Policy("worker_queue", "*", WORKER, using="true", check="true")
    worker_read = Policy("worker_read", "r", WORKER, using=_TENANT)
    worker_append = Policy("worker_append", "a", WORKER, check=_TENANT)
    if base in ACROSS_TENANTS:
        return frozenset({app_read, worker_queue})
    if base in APPEND_ONLY:
        return frozenset({app_append, worker_read})
    if base in CHAINS:
        return frozenset({worker_append, worker_read})
    if base == SAMPLES:
        return frozenset({app_append, worker_all})
    return frozenset(() if base == VERSION else {app_read, worker_all})


def list_privileges(role: str, table: str) -> frozenset[str]:
    """Return the privileges of kosmos_app or kosmos_worker on a table.

    A partition of the log has none of its own.
    """
    if base_name(table) not in APPEND_ONLY:
        table = base_name(table)
    if table == VERSION:
        return frozenset({"SELECT"})
    if role == APP:
        readable = table in (WITH_ACL | WITHOUT_ACL | ACROSS_TENANTS) - WORKER_ONLY
        return frozenset({"SELECT"} if readable else {"INSERT"} if table in {*APPEND_ONLY, SAMPLES} else ())
    if table in APPEND_ONLY:
        return frozenset({"SELECT"})
    if table in CHAINS:
        return frozenset({"SELECT", "INSERT"})
    return frozenset() if base_name(table) in APPEND_ONLY else frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})


CONTEXT_FUNCTIONS = frozenset({"current_tenant", "current_principals", "set_tenant_context"})
"""Functions that tenant and principals depend on. A revision that changes one of them is listed in `BREAKING`."""

EXPIRY_FUNCTION = "audit_expired_before()"
"""Retention replaces its constant; its body is compared with EXPIRY_BODY."""
EXPIRY_BODY = re.compile(r"RETURN (?:NULL|'[^']*')::timestamp with time zone")

FUNCTIONS = {
    "audit_expired_before()": "bdae444fd94fffb3742512170620bd9abbf7760e05adbe4bbec256394bd8ce94",
    "claim_jobs(integer, text[], text, double precision)": (
        "7ee62d747ab7c50c85f988c5cd741cbbcf5d599d35b697ed02b1fd1e11dcbe57"
    ),
    "current_principals()": "614c5e6a8456d4ceb3a8ff646fa9515202ea95d775f6cae69b0050c0be5ed02e",
    "current_tenant()": "576fb7a4dc0d9e407635e96419693abe8cf5cb7244fc01cd39dd12b4f224d3e3",
    "hash_fields(jsonb)": "d554ed715a0dee4624b6678af6474a94f37811a92ba295e3f4e77d18a275622e",
    "located_passages(uuid, uuid[])": "99cf8a07bf27a75c9143e679a93d66c77b20719050bd12b9f0b68c14b2b86ad2",
    "matches_filter(kosmos.documents, text, jsonb, text[], text[])": (
        "8900eb6e8a54f757d0552fc9600113b2c0ea1d66900720ce273a1b21249a0c68"
    ),
    "new_job_id()": "8281513a0e5695549f9c3b60d395f1fc6ed5d03b3a497d49db0037aae1acb77b",
    "passages(uuid, uuid[])": "abfae45bb895e947eba2bddfc4b5bdf120f8642997635d6031a748c79e2e9434",
    "passages_of_reader(uuid, text[], text, uuid[])": (
        "d0ccef52e51aac936e2d844639e789033e33cb4f906b891388cc4b643a0b8f5a"
    ),
    "search_state(uuid, text, text[], double precision[])": (
        "4e64d3ce3d0214e7533e8c740d3f30f69e0050334599c47ae1aa89d7ac6aaa46"
    ),
    "search_state_of_reader(uuid, text[], text, text[], double precision[])": (
        "b5967c6edc3b22aa2e66f6d6429598d1e5ec8e1181cf0c71e5c810b603e46ac8"
    ),
    "set_tenant_context(uuid, text[])": "158239c494848fe473a41858b78ecb9da4ba0e14b90b7d25dfb1393d244794f7",
    "set_vector_search(integer, integer)": "0f54b2eefdef703d86df0753b6b8af0d940d901355316782da4674759951550a",
    "visible_principals(text[])": "11b134d1731c6bcb8500198325daf15b5bf47a58f7f803095c25ab63395baf96",
}
"""SHA-256 of the definition of each function, by signature: its attributes and its body."""


def is_migrated(signature: str, definition: str, body: str | None) -> bool:
    """Return whether a function is the one of the migrations.

    Args:
        signature: its name with the types of its parameters.
        definition: its attributes and its source, as the statement `schema_functions` returns them.
        body: the expression of a function that was written as RETURN, which has no source; None for the others.
    """
    constant = body is not None and signature == EXPIRY_FUNCTION and EXPIRY_BODY.fullmatch(body)
    return (body is None or bool(constant)) and sha256(definition.encode()).hexdigest() == FUNCTIONS.get(signature)
