"""kosmos-rag keyword-context."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kosmos_rag.apps.cli.app import app


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["keyword-context", *arguments], catch_exceptions=False)


@pytest.mark.parametrize("ranking", ["bm25", "classic"])
def test_context__prints_the_paragraphs_and_nothing_else(schema_docs: Path, ranking: str) -> None:
    result = _run("show total sales by region", "--file", str(schema_docs), "-k", "1", "--ranking", ranking)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "3. Sales by Region:\n   SELECT region, SUM(amount) as total_revenue\n"
        "   FROM sales GROUP BY region ORDER BY total_revenue DESC;\n"
    )


def test_context__says_where_nothing_matches_beside_the_output(schema_docs: Path) -> None:
    result = _run("unheard", "-f", str(schema_docs))
    assert result.exit_code == 0
    assert result.stdout.startswith("Table: sales\n")
    assert "no paragraph matches" in result.stderr


def test_context__as_json_has_context_and_matches(schema_docs: Path) -> None:
    result = _run("monthly sales", "-f", str(schema_docs), "-k", "2", "--json")
    payload = json.loads(result.stdout)
    assert payload.keys() == {"query", "context", "matches"}
    assert payload["matches"][0].keys() == {"text", "score", "source", "line_start", "line_end"}
    assert payload["context"] == "\n\n".join(match["text"] for match in payload["matches"])


@pytest.mark.parametrize(("query", "file", "message"), [(" ", None, "query is empty"), ("a", "no", "does not exist")])
def test_context__reports_an_error_in_one_line(schema_docs: Path, query: str, file: str | None, message: str) -> None:
    result = _run(query, "--file", file or str(schema_docs))
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_context__is_the_fallback_where_the_file_is_missing(tmp_path: Path) -> None:
    result = _run("sales", "--file", str(tmp_path / "missing.txt"), "--fallback", "Ask an analyst.")
    assert (result.exit_code, result.stdout) == (0, "Ask an analyst.\n")
    assert "this is the fallback" in result.stderr
