"""Distribute the schema on a Citus cluster: the statements, and their order.

The rows of a tenant are on one node, so a statement with its tenant bound is one task. The queue, which workers read
for all tenants, stays on the coordinator. docs/scale.md has the reasons and the measurements.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import LiteralString, NamedTuple

import psycopg
from psycopg import sql

from kosmos_rag.core.errors import DatabaseNotReady, RequestError
from kosmos_rag.storage.errors import connect_administrator
from kosmos_rag.storage.expected_catalog import ACROSS_TENANTS, TABLES, VERSION
from kosmos_rag.storage.functions import POLICY_FUNCTIONS
from kosmos_rag.storage.migrate import SCHEMA
from kosmos_rag.storage.provision import APP, WORKER
from kosmos_rag.storage.sql import statement

ANCHOR = "tenants"
"""The table that all distributed tables are colocated with."""

LOCAL = ACROSS_TENANTS | {VERSION}
"""Tables of the coordinator, unknown to Citus: it would refuse what the statements of the queue compute."""

DISTRIBUTED = TABLES - LOCAL
"""Tables distributed by tenant."""

FUNCTIONS_OF_POLICIES = tuple(f"{SCHEMA}.{name}()" for name in POLICY_FUNCTIONS)
"""They are distributed before the tables."""

NODE_FUNCTIONS = (
    "kosmos.visible_principals(text[])",
    "kosmos.hash_fields(jsonb)",
    "kosmos.matches_filter(kosmos.documents,text,jsonb,text[],text[])",
    "kosmos.set_tenant_context(uuid,text[])",
    "kosmos.set_vector_search(integer,integer)",
    "kosmos.prepare_on_shard(text,oid,text)",
    "kosmos.run_on_shard(text,oid,text[])",
    "kosmos.search_state_of_shard(oid,uuid,text,text[],double precision[])",
    "kosmos.search_state(uuid,text,text[],double precision[])",
    "kosmos.search_state_of_reader(uuid,text[],text,text[],double precision[])",
    "kosmos.located_passages(uuid,uuid[])",
    "kosmos.passages_of_reader(uuid,text[],text,uuid[])",
)
"""Functions that nodes run; one has a row type as parameter, so they are distributed after the tables."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CitusState:
    """State of Citus: tables by name, and functions by signature."""

    tables: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    left_behind: frozenset[str] = frozenset()
    """Distributed tables of which the coordinator still has the rows from before."""
    shards: int | None = None
    """Shards of each table; None where none is distributed."""


class Reference(NamedTuple):
    """A foreign key between tables of the schema."""

    name: str
    table: str
    target: str
    definition: LiteralString
    """As PostgreSQL prints it."""

    @property
    def identifiers(self) -> tuple[sql.Identifier, sql.Identifier]:
        """Table and name, as ALTER TABLE takes them."""
        return sql.Identifier(SCHEMA, self.table), sql.Identifier(self.name)


def plan(connection: psycopg.Connection, shards: int | None = None) -> list[sql.Composed]:
    """Return the missing statements in order, without running them.

    Without Citus it is the plan for an empty cluster.

    Args:
        connection: of an administrator.
        shards: shards of each table; None for the number that Citus takes, or that the tables have.

    Raises:
        DatabaseNotReady: the schema is missing, or the foreign key that is dropped meanwhile.
        RequestError: the tables have another number of shards.
    """
    if connection.execute(statement("schema_exists")).fetchone() != (True,):
        raise DatabaseNotReady(["the database has no kosmos schema yet; run `kosmos-rag migrate`"])
    state = _read_state(connection)
    if shards is not None and state.shards not in (None, shards):
        raise RequestError(
            f"the tables are distributed in {state.shards} shards, and their number stays; omit --shards, and give "
            "large tenants a shard of their own by `kosmos-rag cluster isolate`"
        )
    references = [Reference(*row) for row in connection.execute(statement("references"))]
    if not any(reference.table == ANCHOR for reference in references):
        # Dropped by hand, it would not come back, and nobody would notice.
        raise DatabaseNotReady(
            [f"the foreign key {ANCHOR}_live_space_fkey is missing; restore it as migrations/schema.sql has it"]
        )
    tables = _order_tables(references)
    steps = [
        *_functions(FUNCTIONS_OF_POLICIES, state),
        *_tables(tables, references, state, shards),
        *_functions(NODE_FUNCTIONS, state),
        *_truncations(tables, state),
    ]
    return [*_MODES, *steps, _GRANT] if steps else []


def distribute(admin_conninfo: str, shards: int | None = None) -> list[str]:
    """Run the missing statements in one transaction, and return them.

    Args:
        admin_conninfo: connection string of a superuser of the coordinator.
        shards: see `plan`.

    Raises:
        DatabaseNotReady: Citus, its nodes or the rights of the administrator are missing.
        RequestError: the tables have another number of shards.
    """
    with connect_administrator(admin_conninfo) as connection:
        connection.execute(statement("lock_provisioning"))
        require_cluster(connection)
        steps = plan(connection, shards)
        for step in steps:
            connection.execute(step)
        return render(connection, steps)


def has_workers(admin_conninfo: str) -> bool:
    """Return whether the server is a coordinator with workers."""
    with connect_administrator(admin_conninfo) as connection:
        row = connection.execute(statement("citus_nodes")).fetchone()
        if row is None or not row[0]:
            return False
        row = connection.execute(statement("cluster")).fetchone()
        return row is not None and row[1] > 0


def preview(admin_conninfo: str, shards: int | None = None) -> list[str]:
    """Return the statements that `distribute` would run; needs no Citus.

    Args:
        shards: see `plan`.

    Raises what `plan` raises.
    """
    with connect_administrator(admin_conninfo) as connection:
        return render(connection, plan(connection, shards))


def render(connection: psycopg.Connection, steps: list[sql.Composed]) -> list[str]:
    """Return statements as text."""
    return [step.as_string(connection) for step in steps]


def require_cluster(connection: psycopg.Connection) -> None:
    """Raise DatabaseNotReady without Citus, its nodes or the rights of a superuser."""
    row = connection.execute(statement("citus_nodes")).fetchone()
    assert row is not None
    installed, superuser = row
    if not installed:
        raise DatabaseNotReady(
            ["the extension `citus` is missing from this database; run CREATE EXTENSION citus on each node first"]
        )
    if not superuser:
        raise DatabaseNotReady(["the role of database.admin_url is no superuser; distributing tables needs one"])
    row = connection.execute(statement("cluster")).fetchone()
    assert row is not None
    coordinators, workers = row
    if not coordinators:
        raise DatabaseNotReady(
            ["the coordinator is not among the nodes of Citus; run SELECT citus_set_coordinator_host('its name')"]
        )
    if not workers:
        raise DatabaseNotReady(["Citus has no worker; run SELECT citus_add_node('its name', 5432) for each"])


def _read_state(connection: psycopg.Connection) -> CitusState:
    row = connection.execute(statement("citus_nodes")).fetchone()
    if row is None or not row[0]:
        return CitusState()
    tables = connection.execute(statement("citus_tables")).fetchall()
    return CitusState(
        tables=frozenset(name for name, _ in tables),
        functions=frozenset(name for (name,) in connection.execute(statement("citus_functions"))),
        left_behind=frozenset(name for name, own_bytes in tables if own_bytes),
        shards=_count_shards(connection),
    )


def _count_shards(connection: psycopg.Connection) -> int | None:
    row = connection.execute(statement("shard_count"), {"table": f"{SCHEMA}.{ANCHOR}"}).fetchone()
    return None if row is None else int(row[0])


# One connection to a worker after the other: functions, tables and references of one transaction may not overtake.
_MODES = (
    sql.SQL("SET LOCAL citus.multi_shard_modify_mode = {}").format(sql.Literal("sequential")),
    sql.SQL("SET LOCAL citus.shard_replication_factor = {}").format(sql.Literal(1)),
)


# A schema from before the extension comes to the nodes without its privileges.
_GRANT = sql.SQL("GRANT USAGE ON SCHEMA {} TO {}, {}").format(*map(sql.Identifier, (SCHEMA, APP, WORKER)))


def _functions(signatures: tuple[str, ...], state: CitusState) -> Iterator[sql.Composed]:
    for signature in signatures:
        if signature not in state.functions:
            yield sql.SQL("SELECT create_distributed_function({}::regprocedure)").format(sql.Literal(signature))


def _order_tables(references: list[Reference]) -> list[str]:
    """Return the distributed tables: the anchor first, and each after those that it refers to."""
    order = TopologicalSorter[str](dict.fromkeys(sorted(DISTRIBUTED), ()))
    for reference in references:
        if reference.table in DISTRIBUTED - {ANCHOR}:
            order.add(reference.table, reference.target)
    return sorted(order.static_order(), key=lambda table: table != ANCHOR)


def _tables(
    tables: list[str], references: list[Reference], state: CitusState, shards: int | None
) -> Iterator[sql.Composed]:
    # The anchor is distributed before the tables that it refers to.
    dropped = [reference for reference in references if reference.table == ANCHOR and ANCHOR not in state.tables]
    for reference in dropped:
        yield sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(*reference.identifiers)
    for table in tables:
        if table not in state.tables:
            colocated = "none" if table == ANCHOR else f"{SCHEMA}.{ANCHOR}"
            count: sql.Composable = sql.SQL("")
            if table == ANCHOR and shards is not None:
                count = sql.SQL(", shard_count => {}").format(sql.Literal(shards))
            yield sql.SQL("SELECT create_distributed_table({}, 'tenant_id', colocate_with => {}{})").format(
                sql.Literal(f"{SCHEMA}.{table}"), sql.Literal(colocated), count
            )
    for reference in dropped:
        yield sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(
            *reference.identifiers, sql.SQL(reference.definition)
        )


def _truncations(tables: list[str], state: CitusState) -> Iterator[sql.Composed]:
    """Yield what removes the coordinator's copy of distributed rows.

    No deletion would reach it.
    """
    for table in tables:
        if table not in state.tables or table in state.left_behind:
            yield sql.SQL("SELECT truncate_local_data_after_distributing_table({})").format(
                sql.Literal(f"{SCHEMA}.{table}")
            )
