"""The migrations: up, down and up again over data, and equal to the metadata."""

import hashlib
import math
import random
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, DatabaseNotReady, StatementFailed
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import migrate as migrate_module
from kosmos_rag.storage.migrate import BREAKING, REVISION, head, script_location
from kosmos_rag.storage.setup import set_up
from kosmos_rag.storage.tables import metadata


def _tables(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'kosmos'").fetchall()
    return {row[0] for row in rows}


def test_head_is_the_revision_that_the_code_expects() -> None:
    assert head() == REVISION


# A published revision is never edited: databases that ran it would differ from those that run it tomorrow.
PUBLISHED = {
    "0001_baseline.py": "6ad7a5d93e6b226ea1d8611d845714481e73cac81f9f74797587220f9712eee7",
    "0002_visible_principals.py": "1bd39415fea954243abbe4194dade8c7135ef3684db561ae2aa9d0b26672dffc",
    "0003_permissions.py": "7c8300bfab65b31d138191ab6bef81425551bc3f9ea0a01321fecee75b044f25",
    "0004_erasures.py": "6a3f42b28f8c62796cc84b58de3866312010b44d2b32c98e794caaf191387a29",
    "0005_upload_chunks.py": "3d73ff063189beb3346ae76c49ec4ce503404d70a65c31a2fa4bb6a36d416ff3",
    "0006_default_collections.py": "6c9b8903ed2e0ac7d470a12f4da94462ff69c3e74cab522c9bd57010d7d28fef",
    "0007_document_notes.py": "c809b93832c32ae54400b8d8c0f3a984498888859ebd8145aa4db582ad09a1e3",
    "0008_job_ids.py": "b3d9f7ce36d75d69e5872c9c6a2a62aed3cfea3f1fae9f83ba5e1a00ffde3370",
    "0009_empty_acl_statistics.py": "a51dd093398ef0f31a08a50c135038faf38a1e161ab5d160d75ce47159fa4e2c",
    "0010_table_context.py": "3361c522abb285fb46c4dffd48d476fc06ff5e0bd53f4f64bfc6f66546db2905",
    "0011_cancelled_documents.py": "2a337af1b0499db7e820709e745d841d04a7df989f3f8f1b5639007616fa9bad",
    "0012_files.py": "59778c41bdefa323730837a18d19bfd69f0d93ca2e6d18a36cb761e85e9b45c7",
    "0013_space_prefixes.py": "be3ccfa60cf2e1ef1470a9147ae768dada646be473bcf4924b8f7b2f9f4b9b0f",
    "0014_audited_queries.py": "a44299661d8471822ed1dff0a962a58c94d69583f5eaf0e5acc0d2535f6fe319",
    "0015_lists_of_files.py": "c8c1ad1e08e3093c7e1433f8f59dd549f0283a876f9f09c0927f5bf6465b06e8",
    "0016_originals.py": "1d7f920cddcc9b1568c25edc22706a8fedf087c392731245698f3df8440182fb",
    "0017_public_rows.py": "942e53d56bdf26cde30202cb5d0848ccc5d32d921662718d9431eea47ddd3cb0",
    "0018_kept_plans.py": "93df70e1edc9acf14d3b89f1b59a63c6b162a4debca889a3e222458dfb382703",
    "0019_reasons_of_ratings.py": "776bfb76255abd2e427f5738fc418e29ed370b3a52cc267341d7eb9f34b195f4",
    "0020_places.py": "8fd917eef0b6dd233f40fd25dce5174be61d2f021214a6c00b80048b71473e60",
    "0021_cheaper_filters.py": "4e18e51ca3d9b82f291d55a4c9e6502b3047151aca77f9ce1557749aa6fbef34",
    "0022_filter_terms.py": "7103cbd0dc92cc9511c18d8f66b47c098854e420135e40ccffdcd1570e8d904f",
    "0023_visible_lists.py": "dfe58753867642e16f7eb90bf8fc13f5ebf1a6f615b1c2be3d6dcc8c3847ac32",
    "0024_reads_of_one_statement.py": "cc381b18b03fe068c8f6cf23a734d9de3abf3f64062e524ad78934a7608fa598",
}


def test_published_revisions_are_never_edited() -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (script_location() / "versions").glob("*.py")
    }
    edited = sorted(name for name, sha256 in PUBLISHED.items() if found.get(name) != sha256)
    assert not edited, f"published revisions were edited or removed: {edited}; restore them, and write a new revision"
    unlisted = {name: found[name] for name in sorted(found.keys() - PUBLISHED.keys())}
    assert not unlisted, f"revisions without a checksum: {unlisted}; once they are published, add them to PUBLISHED"


def test_job_ids__keep_their_order_and_their_uploads_when_they_become_uuids(database: DatabaseSettings) -> None:
    set_up(database, "0007")
    row = {"acme": uuid4(), "beta": uuid4()}
    with psycopg.connect(database.admin_url or "") as admin:
        for key, name in enumerate(["acme", "beta", "acme"]):
            admin.execute(
                "INSERT INTO kosmos.jobs (tenant_id, tenant, collection, kind, key, payload, state, priority, run_at,"
                " attempt, lost, requeue, sync_run_ids, created_at)"
                " VALUES (%s, %s, 'default', 'document', %s, '{}', 'queued', 0, now(), 0, 0, false, '{}', now())",
                (row[name], name, str(key)),
            )
        admin.execute(
            "INSERT INTO kosmos.tenants (tenant_id, name, created_at) VALUES (%s, 'acme', now())", (row["acme"],)
        )
        admin.execute("INSERT INTO kosmos.idempotency_keys VALUES (%s, 'k', 'sha', 3, now())", (row["acme"],))
    set_up(database)
    with psycopg.connect(database.admin_url or "") as admin:
        ids = [job_id for (job_id,) in admin.execute("SELECT id FROM kosmos.jobs ORDER BY key").fetchall()]
        assert ids == sorted(ids)
        assert admin.execute("SELECT job_id FROM kosmos.idempotency_keys").fetchone() == (ids[2],)
        (new,) = admin.execute("SELECT kosmos.new_job_id()").fetchone() or ()
        assert new > ids[2]
    set_up(database, "0007")
    with psycopg.connect(database.admin_url or "") as admin:
        claimed = admin.execute("SELECT key FROM kosmos.claim_jobs(10, '{document}', 'w', 60)").fetchall()
        assert sorted(claimed) == [("0",), ("1",), ("2",)]
        query = "SELECT max(id), (SELECT last_value FROM kosmos.jobs_id_seq) FROM kosmos.jobs"
        assert admin.execute(query).fetchone() == (3, 4)
        assert admin.execute("SELECT count(*) FROM kosmos.idempotency_keys").fetchone() == (0,)


def test_migrate__up_down_and_up_again_over_data(database: DatabaseSettings, settings: Settings) -> None:
    def ingest() -> int:
        with Engine(settings, embedder=HashingEmbedder()) as engine:
            scope = engine.tenant("acme")
            scope.ingest([SourceDocument(source="a", data=b"Some words about churn.")])
            return scope.search("churn").returned

    assert ingest() == 1
    done = set_up(database, "base")
    assert (done.before, done.after) == (REVISION, None)
    assert _tables(database.admin_url or "") == {"alembic_version"}
    done = set_up(database)
    assert (done.before, done.after) == (None, REVISION)
    assert ingest() == 1
    again = set_up(database)
    assert again.before == again.after == REVISION


QUESTIONS = ("churn", "revenue of the year", "w1 w5 w9", "w2", "secret churn")


Answers = list[tuple[UUID, float, float, float]]
"""Ids and scores: fused, of the dense retriever, of the lexical one."""


def _answers(settings: Settings) -> Answers:
    """All that two readers find."""
    found = []
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        for principals in (["everyone"], ["board", "everyone"]):
            scope = engine.tenant("acme", principals=principals)
            for question in QUESTIONS:
                for hit in scope.search(question, 100).hits:
                    retrievers = (hit.dense_score or math.inf, hit.lexical_score or math.inf)
                    found.append((hit.chunk_id, hit.score, *retrievers))
    return found


def _fill(settings: Settings) -> None:
    """Documents in a segment with gaps, in the tail, and in a vector index; some for one reader only."""
    dice = random.Random(5)

    def document(number: int) -> SourceDocument:
        words = " ".join(dice.choices([f"w{n}" for n in range(30)], k=dice.randint(5, 80)))
        text = f"{'secret ' * (number % 3)}{'churn' if number % 2 else 'revenue'} {words}"
        readers = ("board",) if number % 7 == 0 else ("everyone",)
        return SourceDocument(source=f"d{number}", data=text.encode(), acl=readers)

    with Engine(settings, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant("acme")
        scope.ingest(document(number) for number in range(40))
        scope.indexes.build()
        scope.delete(["d3", "d4"])
        scope.ingest(document(number) for number in range(35, 60))
        scope.ingest(SourceDocument(source="empty", data=b"the of and"))
        engine.tenant("other").ingest(document(1))
        engine.tenant("left").ingest(document(1))
        engine.tenant("left").delete("d1")
        assert {info.kind for info in scope.indexes.status()} == {"segment", "unsegmented", "ivfflat"}


@pytest.fixture
def indexed(settings: Settings) -> Settings:
    """Settings under which a few chunks are worth an index."""
    indexes = settings.indexes.model_copy(update={"unsegmented_chunks": 30, "vector_min_chunks": 30})
    return settings.model_copy(update={"indexes": indexes})


def _unprotected(url: str) -> set[str]:
    """Tables whose row-level security is not both enabled and forced."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'kosmos'::regnamespace AND relkind = 'r' "
            "AND NOT (relrowsecurity AND relforcerowsecurity)"
        ).fetchall()
    return {name for (name,) in rows} - {"alembic_version"}


REVISION_THAT_ADDS = '''"""Add a column."""

from alembic import op

revision = "{later}"
down_revision = "{newest}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE kosmos.documents ADD COLUMN extra text")


def downgrade() -> None:
    op.execute("ALTER TABLE kosmos.documents DROP COLUMN extra")
'''


@pytest.fixture
def later_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A revision after the newest: what an upgrade of tomorrow finds."""
    folder = shutil.copytree(script_location(), tmp_path / "migrations")
    later = f"{int(REVISION) + 1:04}"
    (folder / "versions" / f"{later}_extra.py").write_text(REVISION_THAT_ADDS.format(later=later, newest=REVISION))
    monkeypatch.setattr(migrate_module, "script_location", lambda: folder)
    return later


def _oldest_code(url: str) -> str | None:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT obj_description('kosmos.alembic_version'::regclass)").fetchone()
    assert row is not None
    return row[0]


def test_upgrade__over_data_and_back_keeps_all_answers(
    database: DatabaseSettings, indexed: Settings, later_revision: str
) -> None:
    url = database.admin_url or ""
    _fill(indexed)
    before = _answers(indexed)
    assert len(before) > 300
    done = set_up(database)
    assert (done.before, done.after) == (REVISION, later_revision)
    assert _oldest_code(url) == max(BREAKING)
    # This revision only adds: code of the one before serves from it.
    assert _answers(indexed) == before
    done = set_up(database, REVISION)
    assert (done.before, done.after) == (later_revision, REVISION)
    assert _unprotected(url) == set()
    assert _answers(indexed) == before
    with Engine(indexed, embedder=HashingEmbedder()) as engine:
        assert {info.due for info in engine.tenant("acme").indexes.status()} == {None}
        engine.tenant("acme").ingest(SourceDocument(source="new", data=b"churn alone"))
        assert engine.tenant("acme").search("churn alone").hits[0].source == "new"


def test_upgrade__that_breaks_older_code_writes_down_which_code_can_serve(
    database: DatabaseSettings, settings: Settings, later_revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = database.admin_url or ""
    assert _oldest_code(url) == max(BREAKING)
    monkeypatch.setattr(migrate_module, "BREAKING", (later_revision,))
    assert set_up(database).after == later_revision
    assert _oldest_code(url) == later_revision
    with pytest.raises(DatabaseNotReady, match=f"needs code of {later_revision} or newer"):
        _answers(settings)
    monkeypatch.setattr(migrate_module, "BREAKING", BREAKING)
    assert set_up(database, REVISION).after == REVISION
    assert _oldest_code(url) == max(BREAKING)
    assert _answers(settings) == []


def test_downgrade__that_fails_leaves_everything_as_it_was(
    database: DatabaseSettings, indexed: Settings, later_revision: str
) -> None:
    url = database.admin_url or ""
    _fill(indexed)
    set_up(database)
    tables, before = _tables(url), _answers(indexed)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE VIEW public.of_extra AS SELECT extra FROM kosmos.documents")
    with pytest.raises(StatementFailed, match="other objects depend on it"):
        set_up(database, "base")
    assert set_up(database).before == later_revision
    assert _unprotected(url) == set()
    assert _tables(url) == tables
    assert _answers(indexed) == before


def test_migrations_add_up_to_the_metadata(database: DatabaseSettings) -> None:
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(database.admin_url or ""), poolclass=NullPool
    )

    def ours(name: str | None, kind: str, parents: dict[str, str | None]) -> bool:
        if kind == "schema":
            return name == "kosmos"
        # What the log's partitions are is said by their parents.
        partition = name is not None and name.startswith(("audit_events_", "audit_passages_"))
        return not (kind == "table" and (name == "alembic_version" or partition))

    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_schemas": True, "include_name": ours, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []


def test_everything_belongs_to_the_owner(database: DatabaseSettings) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        strangers = connection.execute(
            """
            SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'kosmos'::regnamespace
               AND c.relowner <> 'kosmos_owner'::regrole
             UNION ALL
            SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'kosmos'::regnamespace
               AND p.proowner <> 'kosmos_owner'::regrole
            """
        ).fetchall()
    assert strangers == []


def test_migrate__without_an_administrator_says_so(database: DatabaseSettings) -> None:
    with pytest.raises(ConfigError, match=r"database\.admin_url is not set"):
        set_up(database.model_copy(update={"admin_url": None}))


def test_migrate__to_an_unknown_revision_says_so(database: DatabaseSettings) -> None:
    with pytest.raises(DatabaseNotReady, match="cannot migrate to '9999'"):
        set_up(database, "9999")


def test_migrate__over_a_newer_database_says_so(database: DatabaseSettings) -> None:
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute("UPDATE kosmos.alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseNotReady, match=r"revision 9999, unknown to this version; install a newer kosmos-rag"):
        set_up(database)


def test_two_processes_may_provision_at_once(empty_database: DatabaseSettings) -> None:
    command = [sys.executable, "-m", "kosmos_rag.apps.cli", "migrate", "--set", f"database.url={empty_database.url}"]
    command += ["--set", f"database.admin_url={empty_database.admin_url}"]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
