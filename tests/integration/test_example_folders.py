"""The examples by use, on the database of this process: a FastAPI service, text-to-SQL, evaluation in CI."""

import os
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
import yaml
from starlette.testclient import TestClient

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.commands import run_command, set_variables
from tests.integration.variants import changed
from tests.unit.models.llm.chat_server import running as chat_running
from tests.unit.models.llm.chat_server import writes

EXAMPLES = Path(__file__).parents[2] / "examples"


def _load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the module of an example."""
    folder, module = name.split("/")
    monkeypatch.syspath_prepend(str(EXAMPLES / folder))
    monkeypatch.delitem(sys.modules, module, raising=False)
    loaded = import_module(module)
    monkeypatch.delitem(sys.modules, module)
    return loaded


def test_fastapi_service__answers_as_the_user(
    engine: Engine, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = engine.tenant(tenant_name)
    tenant.ingest([EXAMPLES / "knowledge_base"])
    example = _load("fastapi_service/app", monkeypatch)
    monkeypatch.setattr(Engine, "open", lambda *_: engine)
    monkeypatch.setattr(Engine, "close", lambda _: None)
    opened = Engine.tenant
    monkeypatch.setattr(Engine, "tenant", lambda self, _, **options: opened(self, tenant_name, **options))
    with TestClient(example.app) as client:
        ada = {"Authorization": "Bearer token-of-ada"}
        answer = client.get("/ask", params={"question": "How is churn calculated?"}, headers=ada)
        assert answer.status_code == 200, answer.text
        assert answer.json().keys() == {"text", "refused", "citations"}
        assert answer.json()["text"]
        assert client.get("/ask", params={"question": " "}, headers=ada).status_code == 422
        assert (
            client.get("/ask", params={"question": "churn"}, headers={"Authorization": "Bearer no"}).status_code == 401
        )


@pytest.fixture
def shop(database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The shop of the example, in the database of the test, and its address."""
    admin = database.admin_url
    assert admin is not None
    with psycopg.connect(admin, autocommit=True, options="-c lock_timeout=5s") as connection:
        connection.execute((EXAMPLES / "text_to_sql" / "shop.sql").read_bytes())
        monkeypatch.setenv("SHOP_URL", _as_reader(admin))
        yield
        connection.execute("DROP OWNED BY shop_reader; DROP ROLE shop_reader")


def _as_reader(url: str) -> str:
    """Return the address for the role of the example."""
    before, _, host = url.partition("//")
    return f"{before}//shop_reader:reader@{host.rpartition('@')[2]}"


@pytest.mark.usefixtures("shop")
def test_text_to_sql__answers_with_rows(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = _load("text_to_sql/ask", monkeypatch)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    query = (
        "SELECT p.category, sum(o.amount) AS revenue FROM shop.products AS p "
        "JOIN shop.orders AS o ON o.product_id = p.id GROUP BY p.category ORDER BY p.category"
    )
    with chat_running() as chat:
        chat.replies = [writes("DELETE FROM shop.orders"), writes(f"```sql\n{query}\n```")]
        enabled = {"text2sql.databases": {"acme/schema/shop": "SHOP_URL"}, "language_model.url": chat.url()}
        with Engine(changed(settings, enabled), embedder=HashingEmbedder()) as engine:
            tenant = engine.tenant("acme", collection="schema")
            grounding = example.store_schema(tenant, os.environ["SHOP_URL"])
            example.store_schema(tenant, os.environ["SHOP_URL"])
            example.show(example.ask(tenant, grounding, "What is the revenue of each product category?"))
    out = capsys.readouterr().out
    assert "-- refused: " in out
    assert "category | revenue\nfurniture | 550.00\nlight | 80.00\nfrom " in out
    assert "schema_model:shop.shop.orders" in out


def test_workflow__fails_below_the_targets(
    tmp_path: Path, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = yaml.safe_load((EXAMPLES / "evaluation_ci" / "workflow.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["evaluate"]["steps"] if "run" in step]
    commands = [shlex.split(step)[1:] for step in steps if step.startswith("kosmos-rag ")]
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    set_variables(monkeypatch, database)
    for name, value in workflow["env"].items():
        monkeypatch.setenv(name, value)
    words = HashingEmbedder(dimensions=384)
    monkeypatch.setattr("kosmos_rag.models.embedding.registry.SentenceTransformerEmbedder", lambda *_, **__: words)
    # Vectors made of words do not find everything.
    monkeypatch.setenv("KOSMOS_EVALUATION__TARGETS", '{"R@10": 1.0, "R@1": 1.0}')
    codes = {tuple(command[:2]): run_command(*command).exit_code for command in commands}
    assert codes == {
        ("ingest", "examples/knowledge_base"): 0, ("eval", "run"): 0, ("eval", "gate"): 1, ("eval", "report"): 0,
    }  # fmt: skip
    monkeypatch.setenv("KOSMOS_EVALUATION__TARGETS", '{"R@10": 0.2}')
    assert run_command("eval", "gate", "--tenant", "ci").exit_code == 0
    assert (tmp_path / "report.html").stat().st_size > 10_000
