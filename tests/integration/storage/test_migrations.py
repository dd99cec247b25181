"""The migrations: up, down and up again over data, and equal to migrations/schema.sql."""

import hashlib
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, DatabaseNotReady, StatementFailed
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import migrate as migrate_module
from kosmos_rag.storage.expected_catalog import TABLES, VERSION, WITH_ACL
from kosmos_rag.storage.migrate import BREAKING, REVISION, head, script_location
from kosmos_rag.storage.provision import provision
from kosmos_rag.storage.setup import set_up
from tests.commands import run_command, set_variables
from tests.integration.variants import changed
from tests.revisions import add_revision
from tests.waiting import eventually

pytestmark = pytest.mark.changes_catalogue


def _tables(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'kosmos'").fetchall()
    return {row[0] for row in rows}


def test_head__is_the_revision_of_the_code() -> None:
    assert head() == REVISION


# A published revision is never edited: databases that ran it would differ from those that run it tomorrow.
PUBLISHED = {
    "0100_baseline.py": "cbd636cbe11928812bd05b6577be9f9665b7ea1c7e4a22045684815e5fc43e33",
    "0101_states.py": "3134f1c0214cd69a1e2890862a50cd7c70a4256c3f0428a5825f97237d3618ce",
    "0102_known_items.py": "4550a603677ca312a1f2be893d790a6b1611fbb70e7a938d4eef94489c53b828",
    "0103_collection_changes.py": "21acfa002b0e29667c1e7502ffd3ab595acf4281291aceda596203a59b206bb5",
    "0104_backup_role.py": "d41a98b8662b7dfe2733f9285f85fcab5702b2d316cc9b681252a4e2f9f01044",
    "0105_usage.py": "b1b5563bb909f1ceb8baad98150d5e28598453d0bf4ab626b7eb6b45d74e3b0d",
    "0106_events.py": "884f30e278c060993740aa56eac9941d0a9855ac271a04bd2bee3982a1ef7860",
    "0107_webhooks.py": "0353ab41492729c968d81471ae137de0ca4b5f8e7a4c5f2f0e836a5ae30ffbfe",
    "0108_scim.py": "9acdb490c84823f89c76f6655e3fc031de1ffcbd730b84069ca016d8d1b3eaf9",
    "0109_operate_scope.py": "af101fe131bdf2180d98e01159f1546ed27b1130118ad80a88cc65094ddd8c6b",
    "0110_unanswered_questions.py": "77e6c63a41ccc24d87528d0afd5d01c369bc9198e816a5f286927cad0d108ff5",
    "0111_judged_questions.py": "495298262a49305897c197dce86d2b83952d31cf62d9957b8088b2f8cca9fc13",
    "0112_withdrawn_judgements.py": "86cc79e01ebe35b06671672ae87c4e304387ec2af82714d101bed22d014ccb07",
    "0113_answer_samples.py": "485fce3141f1a5619168f7c976445ae9f626130a0357d0e481c46974fc680281",
    "0114_space_for_updates.py": "86713a59cd21352f37385be4104539a2cd08b437179ff4295ef1e1b356fc5e4b",
    "0115_index_of_parts.py": "9dc2db4fe953d838c93453b52b99231d57b0a7cc7f243c23d4b6ef743ca4127c",
}


def test_published_revisions__are_never_edited() -> None:
    result = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (script_location() / "versions").glob("*.py")
    }
    edited = sorted(name for name, sha256 in PUBLISHED.items() if result.get(name) != sha256)
    assert not edited, f"published revisions were edited or removed: {edited}; restore them, and write a new revision"
    unlisted = {name: result[name] for name in sorted(result.keys() - PUBLISHED.keys())}
    assert not unlisted, f"revisions without a checksum: {unlisted}; once they are published, add them to PUBLISHED"


def test_migrate__up_down_and_up_again_over_data(database: DatabaseSettings, settings: Settings) -> None:
    def ingest() -> int:
        with Engine(settings, embedder=HashingEmbedder()) as engine:
            scope = engine.tenant("acme")
            scope.ingest([SourceDocument(source="a", data=b"Some words about churn.")])
            return scope.search("churn").returned

    assert ingest() == 1
    result = set_up(database, "base")
    assert (result.before, result.after) == (REVISION, None)
    assert _tables(database.admin_url or "") == {"alembic_version"}
    result = set_up(database)
    assert (result.before, result.after) == (None, REVISION)
    assert ingest() == 1
    again = set_up(database)
    assert again.before == again.after == REVISION


def test_migrate__marks_the_stored_parts_of_files(database: DatabaseSettings, settings: Settings) -> None:
    parsing = settings.ingestion.parsing.model_copy(update={"text_mb": 1})
    ingestion = settings.ingestion.model_copy(update={"parsing": parsing})
    table = b"order,customer\n" + b"".join(b"%d,customer%s\n" % (row, b" " * 2_000) for row in range(600))
    others = [SourceDocument(source=name, data=b"about chairs") for name in ("a.csv", "orders.csv.bak#part-1")]
    with Engine(settings.model_copy(update={"ingestion": ingestion}), embedder=HashingEmbedder()) as engine:
        for collection in ("default", "sales"):
            scope = engine.tenant("acme", collection=collection)
            assert scope.ingest([SourceDocument(source="orders.csv", data=table), *others]).failed == ()
    before = _file_ids(database.admin_url or "")
    assert len([file_id for file_id in before.values() if file_id is not None]) == 6
    set_up(database, "0114")
    set_up(database)
    assert _file_ids(database.admin_url or "") == before


def _file_ids(url: str) -> dict[UUID, UUID | None]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT id, file_id FROM kosmos.documents").fetchall())


QUESTIONS = ("churn", "revenue of the year", "w1 w5 w9", "w2", "secret churn")


Answers = list[tuple[UUID, float, float, float]]
"""Ids and scores: fused, of the dense retriever, of the lexical one."""


def _answers(settings: Settings) -> Answers:
    """All that two readers find."""
    chunk_ids = []
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        for principals in (["everyone"], ["board", "everyone"]):
            scope = engine.tenant("acme", principals=principals)
            for question in QUESTIONS:
                for hit in scope.search(question, 100).hits:
                    retrievers = (hit.dense_score or math.inf, hit.lexical_score or math.inf)
                    chunk_ids.append((hit.chunk_id, hit.score, *retrievers))
    return chunk_ids


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
    return changed(settings, {"indexes.unsegmented_chunks": 30, "indexes.vector_min_chunks": 30})


def _unprotected(url: str) -> set[str]:
    """Tables whose row-level security is not both enabled and forced."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'kosmos'::regnamespace AND relkind = 'r' "
            "AND NOT (relrowsecurity AND relforcerowsecurity)"
        ).fetchall()
    return {name for (name,) in rows} - {"alembic_version"}


@pytest.fixture
def later_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A revision after the newest: what an upgrade of tomorrow finds."""
    return add_revision(tmp_path, monkeypatch)


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
    result = set_up(database)
    assert (result.before, result.after) == (REVISION, later_revision)
    assert _oldest_code(url) == max(BREAKING, default=None)
    # This revision only adds: code of the one before serves from it.
    assert _answers(indexed) == before
    result = set_up(database, REVISION)
    assert (result.before, result.after) == (later_revision, REVISION)
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
    assert _oldest_code(url) == max(BREAKING, default=None)
    monkeypatch.setattr(migrate_module, "BREAKING", (later_revision,))
    assert set_up(database).after == later_revision
    assert _oldest_code(url) == later_revision
    with pytest.raises(DatabaseNotReady, match=f"needs code of {later_revision} or newer"):
        _answers(settings)
    monkeypatch.setattr(migrate_module, "BREAKING", BREAKING)
    assert set_up(database, REVISION).after == REVISION
    assert _oldest_code(url) == max(BREAKING, default=None)
    assert _answers(settings) == []


@contextmanager
def _used_table(url: str) -> Iterator[None]:
    """Use a table until the block ends, as a backup does."""
    with psycopg.connect(url) as backup:
        backup.execute("LOCK TABLE kosmos.documents IN ACCESS SHARE MODE")
        yield


def _is_waited_for(url: str) -> bool:
    query = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'kosmos.documents'::regclass AND NOT granted)"
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchone() == (True,)


def test_upgrade__that_waits_for_a_table_lets_questions_pass(database: DatabaseSettings, later_revision: str) -> None:
    url = database.admin_url or ""
    with ThreadPoolExecutor(1) as pool:
        with _used_table(url):
            upgrade = pool.submit(set_up, database)
            eventually(lambda: _is_waited_for(url))
            with psycopg.connect(url, options="-c statement_timeout=30s") as reader:
                reader.execute("SELECT count(*) FROM kosmos.documents")
            assert not upgrade.done()
        assert upgrade.result().after == later_revision


def test_upgrade__that_waits_for_a_table_in_vain_changes_nothing(
    database: DatabaseSettings, later_revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate_module, "_ATTEMPTS", 1)
    with _used_table(database.admin_url or ""), pytest.raises(StatementFailed, match="other transactions used the"):
        set_up(database)
    assert set_up(database).before == REVISION


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


def test_downgrade__takes_the_scope_operate_from_keys(database: DatabaseSettings, settings: Settings) -> None:
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        keys = engine.tenant("acme").api_keys
        for name, scopes in (("both", ("read", "operate")), ("one", ("operate",)), ("other", ("admin",))):
            keys.create(name, scopes=scopes)
    set_up(database, "0108")
    set_up(database)
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        infos = engine.tenant("acme").api_keys.infos()
    assert {info.name: info.scopes for info in infos} == {"both": ("read",), "other": ("admin",)}


_CATALOGUE = """
SELECT c.relname, a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage,
                                       a.attcollation, a.attgenerated, a.attidentity,
                                       pg_get_expr(d.adbin, d.adrelid))
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped AND {own}
 UNION ALL
SELECT c.relname, o.conname, pg_get_constraintdef(o.oid)
  FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid WHERE {own}
 UNION ALL
SELECT c.relname, i.indexrelid::regclass::text, concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisvalid)
  FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE {own}
 UNION ALL
SELECT c.relname, '', concat_ws(' ', c.reloptions, pg_get_partkeydef(c.oid))
  FROM pg_class c WHERE c.relkind IN ('r', 'p') AND {own}
""".format(own="c.relnamespace = 'kosmos'::regnamespace AND NOT c.relispartition AND c.relname <> 'alembic_version'")


def _catalogue(url: str) -> set[tuple[str, ...]]:
    """The tables with their columns, constraints, indexes and options; but what is of a partition."""
    with psycopg.connect(url) as connection:
        return set(connection.execute(_CATALOGUE.encode()).fetchall())


def test_migrations__add_up_to_the_schema(database: DatabaseSettings, empty_database: DatabaseSettings) -> None:
    url = empty_database.admin_url or ""
    provision(url)
    with psycopg.connect(url) as connection:
        connection.execute((script_location() / "schema.sql").read_bytes())
    assert _catalogue(database.admin_url or "") ^ _catalogue(url) == set()
    assert {name for name, column, _ in _catalogue(url) if column == "tenant_id"} == TABLES - {VERSION}
    assert {name for name, column, _ in _catalogue(url) if column == "acl"} == WITH_ACL


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "ALTER TABLE kosmos.tenants ADD COLUMN extra integer NOT NULL DEFAULT 1",
            "ALTER TABLE kosmos.tenants DROP extra, ADD extra integer NOT NULL GENERATED ALWAYS AS (1) STORED",
        ),
        (
            "ALTER TABLE kosmos.tenants ADD COLUMN extra integer NOT NULL GENERATED ALWAYS AS IDENTITY",
            "ALTER TABLE kosmos.tenants ALTER COLUMN extra SET GENERATED BY DEFAULT",
        ),
        (
            "CREATE INDEX extra ON kosmos.tenants (tenant_id, name)",
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'kosmos.extra'::regclass",
        ),
    ],
)
def test_catalogue__tells_them_apart(database: DatabaseSettings, before: str, after: str) -> None:
    url = database.admin_url or ""
    states = []
    for change in (before, after):
        with psycopg.connect(url) as connection:
            connection.execute(change.encode())
        states.append(_catalogue(url))
    assert states[0] != states[1]


def test_objects__belong_to_the_owner(database: DatabaseSettings) -> None:
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


@pytest.mark.parametrize("revision", ["0101", "base"])
def test_downgrade__by_command_needs_a_word(
    revision: str, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dropped tables with their data at once."""
    set_variables(monkeypatch, database)
    refused = run_command("migrate", revision)
    assert (refused.exit_code, "drops the tables of newer revisions" in refused.stderr) == (1, True), refused.stderr
    assert run_command("migrate").stdout == f"already at revision {REVISION}\n"
    assert run_command("migrate", revision, "--yes").stdout.startswith(f"migrated from {REVISION} to ")


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


@pytest.mark.parametrize("revision", ["0001", "0014", "0024"])
def test_migrate__over_a_database_from_before_the_baseline_says_what_to_do(
    revision: str, database: DatabaseSettings
) -> None:
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute("UPDATE kosmos.alembic_version SET version_num = %s", [revision])
        # As the oldest line left it.
        connection.execute("DROP TABLE kosmos.files CASCADE")
    expected = (
        rf"^revision {revision} is older than release 0\.1\.0 and cannot be migrated; keep a backup, create a new"
    )
    for target in ("head", "base"):
        with pytest.raises(DatabaseNotReady, match=expected):
            set_up(database, target)


def test_provision__works_in_two_processes_at_once(empty_database: DatabaseSettings) -> None:
    program = """
import sys
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.provision import provision
from kosmos_rag.storage.setup import set_up
set_up(DatabaseSettings(url=sys.argv[1], admin_url=sys.argv[2]))
"""
    command = [sys.executable, "-c", program, empty_database.url, empty_database.admin_url or ""]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
