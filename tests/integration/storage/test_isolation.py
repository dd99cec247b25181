"""Tenants and readers are kept apart: random worlds, each compared with an oracle in plain Python."""

import random
import threading
import uuid
from dataclasses import dataclass

import psycopg
import pytest

from kosmos_rag import Engine, Filter, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import StatementFailed
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import changed

WORDS = [
    "churn",
    "revenue",
    "refund",
    "trial",
    "cohort",
    "ledger",
    "invoice",
    "quota",
    "margin",
    "outage",
    "lead",
    "seat",
    "plan",
    "usage",
    "credit",
]
DEPARTMENTS = ("finance", "support", "legal")
WORLDS = 200


@dataclass(frozen=True, kw_only=True)
class World:
    """Who has which documents, and who may read them."""

    documents: dict[str, list[SourceDocument]]

    @classmethod
    def random(cls, seed: int) -> "World":
        """A world of 2 to 4 tenants with up to 8 documents each."""
        dice = random.Random(seed)
        documents: dict[str, list[SourceDocument]] = {}
        for number in range(dice.randint(2, 4)):
            name = f"w{seed}-t{number}"
            documents[name] = [
                SourceDocument(
                    source=f"doc-{index}",  # the same names in every tenant, on purpose
                    data=f"{name} secret: {' '.join(dice.choices(WORDS, k=12))}".encode(),
                    metadata={"kind": dice.choice(["memo", "policy"])},
                    acl=tuple(dice.sample([*DEPARTMENTS, EVERYONE], k=dice.randint(1, 2))),
                )
                for index in range(dice.randint(0, 8))
            ]
        return cls(documents=documents)

    def readable(self, name: str, principals: tuple[str, ...], kind: str | None) -> set[str]:
        """The oracle: texts that this reader may find."""
        return {
            document.data.decode()
            for document in self.documents[name]
            if set(document.acl) & set(principals) and kind in {None, document.metadata["kind"]}
        }


@pytest.mark.emptied_database
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, WORLDS), marks=pytest.mark.slow)], ids=["quick", "the rest"]
)
def test_random_worlds__show_each_reader_exactly_what_is_theirs(engine: Engine, seeds: range) -> None:
    """No query shows a row of another tenant or a row that the reader may not read, in random data sets."""
    for seed in seeds:
        world = World.random(seed)
        for name, documents in world.documents.items():
            engine.tenant(name).ingest(documents)
        dice = random.Random(-seed)
        for name in world.documents:
            principals = tuple(dice.sample([*DEPARTMENTS, EVERYONE], k=dice.randint(1, 3)))
            kind = dice.choice([None, "memo", "policy"])
            _compare(engine, world, name, principals, kind, question=" ".join(dice.choices(WORDS, k=3)))


def _compare(
    engine: Engine, world: World, name: str, principals: tuple[str, ...], kind: str | None, question: str
) -> None:
    scope = engine.tenant(name, principals=principals)
    expected = world.readable(name, principals, kind)
    result = scope.search(question, 50, Filter(where={"metadata.kind": kind}) if kind else None)
    texts = {hit.text for hit in result.hits}
    assert texts <= expected, f"forbidden: {texts - expected}"
    # Dense without a threshold reaches every chunk that may be read, so nothing may be missing either.
    assert texts == expected
    context = scope.context(question, 50, Filter(where={"metadata.kind": kind}) if kind else None)
    assert {passage.text for passage in context.passages} <= expected
    assert {d.title for d in scope.documents()} == {
        d.source for d in world.documents[name] if set(d.acl) & set(principals)
    }


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Every chunk within reach: no similarity threshold."""
    return changed(settings, {"rag.retrieval.similarity_threshold": -1.0})


TABLES = (
    "tenants",
    "documents",
    "document_versions",
    "chunks",
    "embeddings",
    "embedding_spaces",
    "collection_statistics",
    "acl_statistics",
    "lexemes",
)


@pytest.fixture
def two_tenants(engine: Engine, tenant_name: str) -> Engine:
    """Tenants `a` and `b` with a document each."""
    for name in ("a", "b"):
        engine.tenant(f"{tenant_name}-{name}").ingest([SourceDocument(source="doc", data=f"words of {name}".encode())])
    return engine


@pytest.mark.parametrize("role", ["url", "worker_url"])
@pytest.mark.parametrize("table", TABLES)
def test_table__shows_nothing_without_a_tenant_and_one_tenant_with_it(
    role: str, table: str, two_tenants: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    """A table shows no row without a tenant, and only the rows of the tenant with one."""
    with psycopg.connect(getattr(database, role)) as connection:
        count = f"SELECT count(*), count(DISTINCT tenant_id) FROM kosmos.{table}".encode()
        assert connection.execute(count).fetchone() == (0, 0)
        connection.execute("SELECT kosmos.set_tenant_context(%s, %s)", (tenant(f"{tenant_name}-a").id, [EVERYONE]))
        rows, tenants = connection.execute(count).fetchone() or (0, 0)
        assert rows > 0
        assert tenants == 1
        connection.commit()
        assert connection.execute(count).fetchone() == (0, 0), "the tenant must not outlive its transaction"


@pytest.mark.parametrize(
    "table",
    ["documents", "document_versions", "chunks", "embeddings", "unsegmented_terms", "acl_statistics", "lexemes"],
)
def test_table__hides_rows_from_a_reader_without_the_principal(
    table: str, two_tenants: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    count = f"SELECT count(*) FROM kosmos.{table}".encode()
    with psycopg.connect(database.url) as connection:
        # The same connection showed them to the reader before.
        for principals, hidden in (([EVERYONE, "finance"], False), (["finance"], True), ([], True)):
            values = (tenant(f"{tenant_name}-a").id, principals)
            connection.execute("SELECT kosmos.set_tenant_context(%s, %s)", values)
            assert (connection.execute(count).fetchone() == (0,)) is hidden
            connection.commit()


@pytest.mark.parametrize("table", TABLES)
def test_app_role__may_not_write(table: str, two_tenants: Engine, database: DatabaseSettings, tenant_name: str) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute("SELECT kosmos.set_tenant_context(%s, %s)", (tenant(f"{tenant_name}-a").id, [EVERYONE]))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"DELETE FROM kosmos.{table}".encode())


def test_worker_role__may_not_write_into_another_tenant(
    two_tenants: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    assert database.worker_url
    with psycopg.connect(database.worker_url) as connection:
        connection.execute("SELECT kosmos.set_tenant_context(%s, %s)", (tenant(f"{tenant_name}-a").id, [EVERYONE]))
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute(
                "INSERT INTO kosmos.lexemes (tenant_id, lexeme, id, chunks) VALUES (%s, 'planted', 999, 1)",
                (tenant(f"{tenant_name}-b").id,),
            )


def test_deletion__leaves_the_same_source_of_another_tenant(two_tenants: Engine, tenant_name: str) -> None:
    assert two_tenants.tenant(f"{tenant_name}-a").delete("doc") == 1
    assert two_tenants.tenant(f"{tenant_name}-a").documents() == []
    assert [d.source for d in two_tenants.tenant(f"{tenant_name}-b").documents()] == ["doc"]


@pytest.mark.emptied_database
def test_pool__never_mixes_tenants(settings: Settings, database: DatabaseSettings) -> None:
    small = settings.model_copy(update={"database": database.model_copy(update={"pool_size": 3})})
    names = [f"t{number}" for number in range(10)]
    mixed: list[str] = []
    with Engine(small, embedder=HashingEmbedder()) as engine:
        for name in names:
            engine.tenant(name).ingest([SourceDocument(source="doc", data=f"secret of {name}".encode())])

        def ask(seed: int) -> None:
            dice = random.Random(seed)
            for _ in range(30):
                name = dice.choice(names)
                result = engine.tenant(name).search("secret", 5)
                mixed.extend(hit.text for hit in result.hits if hit.text != f"secret of {name}")
                if dice.random() < 0.2:
                    with pytest.raises(StatementFailed), engine.database.app.transaction(uuid.uuid4(), []) as c:
                        c.execute("SELECT 1 / 0").fetchone()

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert mixed == []
