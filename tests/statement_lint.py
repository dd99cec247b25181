"""Check migrations and statements for row-level security and Citus.

The check needs no server. Each rule is for something that was measured to fail, or to leak without failing, on a
distributed server (docs/decisions/0003-row-level-security.md). A finding names the location and the rule.
"""

import re
from collections.abc import Iterator

from kosmos_rag.storage.expected_catalog import ACROSS_TENANTS, TABLES, VERSION
from kosmos_rag.storage.migrate import script_location

_TENANT_TABLES = TABLES - {VERSION}
_OF_ADMINISTRATOR = frozenset({"count_tenants", "sample_tenants"})
"""Statements over all tenants. They run with `row_security = off`: a role that policies bind gets an error."""
_BOUND = r"tenant_id = %\(tenant_id\)s"
_TABLE = re.compile(
    r"\b(?:FROM|JOIN|UPDATE|DELETE FROM|,)\s+kosmos\.(\w+)(?:\s+(?!SET\b|WHERE\b|ON\b)(?:AS\s+)?(\w+))?"
)
_FORBIDDEN = (
    (
        re.compile(r"tenant_id = kosmos\.current_tenant\(\)(?!%%')"),
        "binds no tenant: `= kosmos.current_tenant()` asks every shard",
    ),
    (re.compile(r"\bset_config\("), "uses set_config, which does not reach the workers"),
    (re.compile(r"\bMERGE\b"), "uses MERGE"),
    (re.compile(r"\bCOPY\b"), "uses COPY, which row-level security refuses"),
    (re.compile(r"^SET (?!LOCAL\b|TRANSACTION\b|ROLE\b)"), "sets for the session, which does not reach the workers"),
)
_VOLATILE = re.compile(r"\b(?:now\(\)|clock_timestamp\(\)|current_timestamp)", re.IGNORECASE)
_WRITE = re.compile(r"(?:^|\(\s*)(?:INSERT INTO|UPDATE|DELETE FROM)\s+kosmos\.(\w+)")
_SUBQUERY = re.compile(r"\bFROM \(SELECT.*?OFFSET 0\) \w+", re.DOTALL)
_CHANGES_TENANT = re.compile(r"\bSET\s+(?:(?!\bWHERE\b|\bFROM\b)[^;])*?(?<![.\w])tenant_id\s*=")
_INSERT = re.compile(r"INSERT INTO kosmos\.(\w+)(?: AS \w+)?\s*\(([^)]*)\)")
_DEFAULTS = {
    table: set(re.findall(r"^    (\w+) [^-\n]*\bDEFAULT\b", columns, re.MULTILINE))
    for table, columns in re.findall(
        r"^CREATE TABLE kosmos\.(\w+) \((.*?)^\)",
        (script_location() / "schema.sql").read_text(),
        re.MULTILINE | re.DOTALL,
    )
}
"""Columns with a default by table: it is for older code, and statements of this one bind the value."""
_DDL = (
    (re.compile(r"\bAS RESTRICTIVE\b"), "a RESTRICTIVE policy turns permissive on the shards"),
    (re.compile(r"\bCREATE (?:CONSTRAINT )?TRIGGER\b"), "triggers are refused on distributed tables"),
    (re.compile(r"\bSECURITY DEFINER\b"), "a SECURITY DEFINER function does not run with a distributed table"),
    (
        re.compile(r"\bADD COLUMN (\w+)\b[\s\S]*\bALTER COLUMN \1 SET STORAGE\b"),
        "SET STORAGE is refused on distributed tables; give it with ADD COLUMN",
    ),
    (re.compile(r"\bADD COLUMN\b.*\bIDENTITY\b"), "IDENTITY can only be given at creation"),
    (re.compile(r"\bON DELETE SET (?:NULL|DEFAULT)\b"), "ON DELETE SET would set tenant_id too"),
    (re.compile(r"\bMATERIALIZED VIEW\b"), "a materialised view shows the rows of every tenant"),
    (re.compile(r"\bCREATE POLICY\b[^;\"]*\(\s*SELECT\b"), "a policy with a subquery is refused on distributed tables"),
)


def lint_statement(name: str, sql: str) -> list[str]:
    """Return the faults of a statement.

    A table without its tenant bound, or a write that Citus refuses.

    Args:
        name: Name of the statement, for messages.
        sql: Its text.
    """
    text = "\n".join(line for line in sql.splitlines() if not line.lstrip().startswith("--"))
    findings = [f"{name}: {finding}" for pattern, finding in _FORBIDDEN if pattern.search(text)]
    for table, alias in _TABLE.findall(text):
        if name in _OF_ADMINISTRATOR:
            continue
        if table in _TENANT_TABLES - ACROSS_TENANTS and not re.search(
            (rf"\b{alias}\." if alias else r"(?<![.\w])") + _BOUND, text
        ):
            findings.append(f"{name}: table {table} is read or written without a bound tenant_id of its own")
    findings += [
        f"{name}: passes the whole row {alias}, whose type is another one on a shard; cast ROW({alias}.*)"
        for alias in {alias or table for table, alias in _TABLE.findall(text)}
        if re.search(rf"\bkosmos\.\w+\({alias}\s*[,)]", text)
    ]
    for table, columns in _INSERT.findall(text):
        if left := sorted(_DEFAULTS.get(table, set()) - set(re.findall(r"\w+", columns))):
            findings.append(f"{name}: leaves {', '.join(left)} of {table} to the server; bind the value")
    tables = {table for table, _ in _TABLE.findall(text)} & _TENANT_TABLES
    if tables & ACROSS_TENANTS and tables - ACROSS_TENANTS:
        findings.append(f"{name}: joins the queue, a local table, with distributed ones")
    if set(_WRITE.findall(text)) - ACROSS_TENANTS:
        findings += _lint_write(name, text)
    return findings


def _lint_write(name: str, text: str) -> Iterator[str]:
    if _VOLATILE.search(text):
        yield f"{name}: takes the time from the server; bind it"
    if _CHANGES_TENANT.search(text):
        yield f"{name}: changes tenant_id, which cannot move a row to another shard"
    if re.search(r"\bINSERT INTO kosmos\.\w+(?: AS \w+)? \((?!tenant_id,)", text):
        yield f"{name}: does not insert tenant_id first"
    if re.search(r"INSERT INTO (?:(?!\bVALUES\b).)*unnest\(", text, re.DOTALL) and not re.search(
        r"\b(?:FROM|JOIN) kosmos\.", text
    ):
        yield f"{name}: INSERT … SELECT from unnest alone is run by the coordinator; join the tenant's row"
    if re.match(r"UPDATE\b", text) and re.search(r"\b\w+\.\w+::text\[\]", _SUBQUERY.sub("", text)):
        yield f"{name}: casts a column to an array, which Citus refuses in an UPDATE; cast it in a subquery"


def lint_ddl(name: str, text: str) -> list[str]:
    """Return the faults of a migration's text."""
    return [f"{name}: {finding}" for pattern, finding in _DDL if pattern.search(text)]
