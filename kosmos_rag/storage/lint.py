"""The rules that keep the schema and the statements fit for row-level security and for Citus, checked without either.

Each rule stands for something that was measured to fail, or to leak without failing, on a distributed server
(docs/decisions/0003-row-level-security.md). A finding names the place and the rule.
"""

import re
from collections.abc import Iterator

from sqlalchemy import ForeignKeyConstraint, Identity, MetaData, PrimaryKeyConstraint, Table, UniqueConstraint

_TENANT = "tenant_id"
QUEUE = frozenset({"jobs", "runs"})
"""Tables that workers read for all tenants at once. On a distributed server they are local ones of the coordinator."""
_BOUND = r"tenant_id = %\(tenant_id\)s"
_TABLE = re.compile(
    r"\b(?:FROM|JOIN|UPDATE|DELETE FROM|,)\s+kosmos\.(\w+)(?:\s+(?!SET\b|WHERE\b|ON\b)(?:AS\s+)?(\w+))?"
)
_FORBIDDEN = (
    (re.compile(r"tenant_id = kosmos\.tenant\(\)(?!%%')"), "binds no tenant: `= kosmos.tenant()` asks every shard"),
    (re.compile(r"\bset_config\("), "uses set_config, which does not reach the workers"),
    (re.compile(r"\bMERGE\b"), "uses MERGE"),
    (re.compile(r"\bCOPY\b"), "uses COPY, which row-level security refuses"),
)
_VOLATILE = re.compile(r"\b(?:now\(\)|clock_timestamp\(\)|current_timestamp)", re.IGNORECASE)
_WRITE = re.compile(r"^(?:INSERT INTO|UPDATE|DELETE FROM)\s+kosmos\.(\w+)")
_DDL = (
    (re.compile(r"\bAS RESTRICTIVE\b"), "a RESTRICTIVE policy turns permissive on the shards"),
    (re.compile(r"\bCREATE (?:CONSTRAINT )?TRIGGER\b"), "triggers are refused on distributed tables"),
    (re.compile(r"\bSECURITY DEFINER\b"), "a SECURITY DEFINER function does not run beside a distributed table"),
    (re.compile(r"\bADD COLUMN\b.*\bIDENTITY\b"), "IDENTITY can only be given at creation"),
    (re.compile(r"\bON DELETE SET (?:NULL|DEFAULT)\b"), "ON DELETE SET would set tenant_id too"),
    (re.compile(r"\bMATERIALIZED VIEW\b"), "a materialised view shows the rows of every tenant"),
)


def lint_metadata(metadata: MetaData) -> list[str]:
    """Return what is wrong with the tables: keys without the tenant, references that lose it."""
    return [finding for table in metadata.sorted_tables for finding in _lint_table(table)]


def _lint_table(table: Table) -> Iterator[str]:
    if _TENANT not in table.columns:
        yield f"{table.name}: has no column tenant_id"
        return
    if table.columns[_TENANT].nullable:
        yield f"{table.name}: tenant_id may be null"
    for column in table.columns:
        if column.server_default is not None and not isinstance(column.server_default, Identity):
            yield f"{table.name}.{column.name}: has a default on the server; bind the value"
    for constraint in table.constraints:
        if isinstance(constraint, ForeignKeyConstraint):
            yield from _lint_reference(table, constraint)
    for names in _unique_keys(table):
        if names[:1] != [_TENANT]:
            yield f"{table.name}: key {names} does not begin with tenant_id"


def _unique_keys(table: Table) -> Iterator[list[str]]:
    for constraint in table.constraints:
        if isinstance(constraint, PrimaryKeyConstraint | UniqueConstraint):
            yield [column.name for column in constraint.columns]
    for index in table.indexes:
        if index.unique:
            yield [column.name for column in index.columns]


def _lint_reference(table: Table, constraint: ForeignKeyConstraint) -> Iterator[str]:
    pairs = [(element.parent.name, element.column.name) for element in constraint.elements]
    if (_TENANT, _TENANT) not in pairs:
        yield f"{table.name}: foreign key {pairs} does not carry tenant_id"
    if constraint.ondelete not in {None, "CASCADE", "RESTRICT"}:
        yield f"{table.name}: foreign key {pairs} has ON DELETE {constraint.ondelete}"
    if constraint.onupdate is not None:
        yield f"{table.name}: foreign key {pairs} has ON UPDATE {constraint.onupdate}"


def lint_statement(name: str, sql: str, tenant_tables: set[str]) -> list[str]:
    """Return what is wrong with one statement: a table without its tenant bound, a write that Citus refuses."""
    text = "\n".join(line for line in sql.splitlines() if not line.lstrip().startswith("--"))
    findings = [f"{name}: {why}" for pattern, why in _FORBIDDEN if pattern.search(text)]
    for table, alias in _TABLE.findall(text):
        if table in tenant_tables - QUEUE and not re.search(
            (rf"\b{alias}\." if alias else r"(?<![.\w])") + _BOUND, text
        ):
            findings.append(f"{name}: table {table} is read or written without a bound tenant_id of its own")
    if (written := _WRITE.match(text)) and written[1] not in QUEUE:
        findings += _lint_write(name, text)
    return findings


def _lint_write(name: str, text: str) -> Iterator[str]:
    if _VOLATILE.search(text):
        yield f"{name}: takes the time from the server; bind it"
    if re.match(r"INSERT INTO kosmos\.\w+ \(", text) and not re.match(r"INSERT INTO kosmos\.\w+ \(tenant_id,", text):
        yield f"{name}: does not insert tenant_id first"
    if text.startswith("INSERT") and "unnest(" in text and not re.search(r"\b(?:RETURNING|ON CONFLICT)\b", text):
        yield f"{name}: INSERT … SELECT unnest without RETURNING or ON CONFLICT becomes a COPY"


def lint_ddl(name: str, text: str) -> list[str]:
    """Return what is wrong with the text of a migration."""
    return [f"{name}: {why}" for pattern, why in _DDL if pattern.search(text)]
