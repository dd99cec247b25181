"""kosmos-rag collection, and what search shows of a collection's preset."""

import json
from pathlib import Path

import pytest

from kosmos_rag.core.config import DatabaseSettings
from tests.commands import MINILM, Run, run_command, set_variables

pytestmark = [pytest.mark.model, pytest.mark.emptied_database]


@pytest.fixture
def kosmos(tmp_path: Path, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, in a folder with documents and a database of its own."""
    monkeypatch.chdir(tmp_path)
    set_variables(monkeypatch, database, CONFIG=MINILM)
    (tmp_path / "sales.txt").write_text("Table: sales\n\nTotal sales: SELECT SUM(amount) FROM sales\n")
    return run_command


def test_collection__from_its_creation_to_its_end(kosmos: Run) -> None:
    result = kosmos("collection", "create", "kb", "--preset", "keyword")
    assert result.stdout == "the collection kb of tenant default has the preset keyword\n"
    assert kosmos("ingest", "sales.txt", "--collection", "kb").exit_code == 0

    listed = json.loads(kosmos("collection", "list", "--json").stdout)["collections"]
    assert [(info["name"], info["preset"], info["chunks"]) for info in listed] == [("kb", "keyword", 2)]
    assert "semantic_weight: 0.0" in kosmos("collection", "show", "kb").stdout
    assert "has no preset" in kosmos("collection", "show", "other").stdout

    explained = kosmos("search", "sum of sales", "--collection", "kb", "--explain").stdout
    assert "signals 1   1.000 + 0.200 sql_keywords = 1.200" in explained
    payload = json.loads(kosmos("search", "sum of sales", "--collection", "kb", "--json").stdout)
    assert payload["intent"] is None
    assert payload["hits"][0]["signals"] == {"sql_keywords": 0.2}

    refused = kosmos("collection", "create", "kb", "--preset", "analytics")
    assert refused.exit_code == 1
    assert "collection set-preset kb" in refused.stderr
    changed = kosmos("collection", "set-preset", "kb", "--preset", "analytics")
    assert changed.stdout.split("; ")[0] == "the collection kb of tenant default has the preset analytics"
    assert kosmos("collection", "delete", "kb").stdout.startswith("1 document removed")
    assert kosmos("collection", "list").stdout == "0 collections in tenant default\n"


def test_create__of_a_preset_that_is_not_there_names_those_that_are(kosmos: Run) -> None:
    refused = kosmos("collection", "create", "kb", "--preset", "analysis")
    assert refused.exit_code == 1
    assert "use adr, analytics, corporate, corporate-enforced, keyword, schema, schema-classic or " in refused.stderr
