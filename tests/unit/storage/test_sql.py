"""The loader of named statements, and what every statement must look like."""

import ast
from pathlib import Path

import pytest

from kosmos_rag.storage.functions import load_functions
from kosmos_rag.storage.migrate import script_location
from tests.statement_lint import lint_ddl, lint_statement
from tests.statements import PACKAGE, STATEMENTS, TEXTS


def test_statements__have_one_name_each() -> None:
    assert len(TEXTS) == sum(len(statements.texts) for statements in STATEMENTS.values())


def test_statements__are_all_used() -> None:
    for package, statements in STATEMENTS.items():
        assert _list_used(package) == set(statements.texts), package


def _list_used(package: Path) -> set[str]:
    """Return the statements that the modules of a package name; of the kernel, those of all without their own."""
    others = [other for other in STATEMENTS if other != package] if package.name == "storage" else []
    files = PACKAGE.rglob("*.py") if package.name == "storage" else package.rglob("*.py")
    return {
        node.args[0].value
        for file in files
        if not any(file.is_relative_to(other) for other in others)
        for text in [file.read_text()]
        if "statement(" in text or "rows(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"statement", "rows"}
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }


def test_statements__keep_the_rules_of_row_level_security_and_citus() -> None:
    assert [finding for name, text in TEXTS.items() for finding in lint_statement(name, text)] == []


def test_migrations__keep_the_rules_of_row_level_security_and_citus() -> None:
    files = sorted(script_location().glob("versions/*.py"))
    assert files
    assert [finding for file in files for finding in lint_ddl(file.name, file.read_text())] == []


def test_functions__keep_the_rules_of_row_level_security_and_citus() -> None:
    assert [finding for name, text in load_functions().items() for finding in lint_ddl(name, text)] == []


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("SELECT c.id FROM kosmos.chunks c", "chunks is read or written without a bound tenant_id"),
        (
            "SELECT 1 FROM kosmos.chunks c JOIN kosmos.documents d USING (id) WHERE c.tenant_id = %(tenant_id)s",
            "documents is read or written without a bound tenant_id",
        ),
        ("SELECT 1 FROM kosmos.chunks c WHERE c.tenant_id = kosmos.current_tenant()", "asks every shard"),
        ("UPDATE kosmos.documents SET title = 'x'", "documents is read or written without"),
        ("DELETE FROM kosmos.documents d WHERE d.id = 1", "documents is read or written without"),
        (
            "UPDATE kosmos.documents SET updated_at = now() WHERE tenant_id = %(tenant_id)s",
            "takes the time from the server",
        ),
        ("INSERT INTO kosmos.chunks (id, tenant_id) VALUES (1, 2)", "does not insert tenant_id first"),
        (
            "INSERT INTO kosmos.chunks (tenant_id, id) SELECT %(tenant_id)s, u FROM unnest(%(ids)s) u",
            "is run by the coordinator",
        ),
        (
            "UPDATE kosmos.chunks c SET acl = u.acl::text[] FROM x u WHERE c.tenant_id = %(tenant_id)s",
            "cast it in a subquery",
        ),
        ("SELECT set_config('kosmos.tenant', %(tenant_id)s, true)", "does not reach the workers"),
        ("SET kosmos.tenant = 'x'", "sets for the session"),
        (
            "SELECT 1 FROM kosmos.documents d WHERE d.tenant_id = %(tenant_id)s AND kosmos.matches_filter(d, 'x')",
            "passes the whole row d",
        ),
        ("UPDATE kosmos.chunks SET text = 'x', tenant_id = 'y' WHERE tenant_id = %(tenant_id)s", "changes tenant_id"),
        (
            "WITH gone AS (DELETE FROM kosmos.chunks c WHERE c.tenant_id = %(tenant_id)s AND c.at < now()) SELECT 1",
            "takes the time from the server",
        ),
        (
            "SELECT 1 FROM kosmos.uploads u JOIN kosmos.jobs j ON true WHERE u.tenant_id = %(tenant_id)s",
            "joins the queue",
        ),
        (
            "INSERT INTO kosmos.uploads AS u (tenant_id, id, data, created_at) VALUES (%(tenant_id)s, 1, 2, 3)",
            "leaves number of uploads to the server",
        ),
    ],
)
def test_lint_statement__finds(statement: str, finding: str) -> None:
    assert any(finding in result for result in lint_statement("it", statement))


@pytest.mark.parametrize(
    ("ddl", "finding"),
    [
        ("CREATE POLICY p ON t AS RESTRICTIVE USING (true)", "RESTRICTIVE"),
        ("CREATE TRIGGER t AFTER INSERT ON x", "triggers"),
        ("CREATE FUNCTION f() RETURNS int SECURITY DEFINER", "SECURITY DEFINER"),
        ("FOREIGN KEY (a, b) REFERENCES x ON DELETE SET NULL", "ON DELETE SET"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "materialised view"),
        ("CREATE POLICY p ON t FOR SELECT USING (a IN (SELECT b FROM c))", "subquery"),
        ("ALTER TABLE t ADD COLUMN b bytea\nALTER TABLE t ALTER COLUMN b SET STORAGE EXTERNAL", "SET STORAGE"),
        ("ALTER TABLE t ADD COLUMN n bigint GENERATED ALWAYS AS IDENTITY", "IDENTITY"),
    ],
)
def test_lint_ddl__finds(ddl: str, finding: str) -> None:
    assert any(finding in result for result in lint_ddl("it", ddl))


def test_python__has_no_sql() -> None:
    """What is executed is a named statement, or one composed by psycopg.sql where an identifier has to be put in."""
    executed = [
        (file, node.args[0])
        for file in PACKAGE.rglob("*.py")
        if file.parent.name != "sources"  # the databases of others
        for text in [file.read_text()]
        if ".execute" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"execute", "executemany"}
        and node.args
    ]
    assert len(executed) > 20
    literal = [
        f"{file.relative_to(PACKAGE)}:{part.lineno}"
        for file, argument in executed
        for part in ast.walk(argument)
        if isinstance(part, ast.JoinedStr | ast.BinOp)
        or (isinstance(part, ast.Constant) and not _is_name_or_composed(argument, part))
    ]
    assert literal == []


def _is_name_or_composed(argument: ast.expr, part: ast.Constant) -> bool:
    calls = [node for node in ast.walk(argument) if isinstance(node, ast.Call) and part in node.args]
    return bool(calls) and ast.unparse(calls[-1].func) in {"statement", "sql.SQL", "sql.Identifier", "sql.Literal"}
