"""The whole life of an installation on servers as providers give them: no superuser, and roles of their own.

Each provider's roles are built on an embedded server from its public documentation. Nothing here runs at a provider.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import embedded
from kosmos_rag.storage.backup import back_up, restore
from kosmos_rag.storage.expected_catalog import TABLES, VERSION
from kosmos_rag.storage.migrate import REVISION
from kosmos_rag.storage.provision import APP, WORKER
from kosmos_rag.storage.setup import set_up
from tests.integration.operations.filled_tenants import fill, read_hits
from tests.revisions import add_revision

# Two servers for each: not in every run.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(os.environ.get("KOSMOS_TEST_DATABASE_URL") or os.environ.get("KOSMOS_TEST_DOCKER")),
        reason="each provider is an embedded server with other roles",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """What a customer of a provider gets."""

    attributes: str
    """Attributes of the role that the customer connects as."""
    roles: tuple[str, ...] = ()
    """Statements that make the provider's roles and the membership of the customer's role in them."""
    extension: tuple[str, ...] = ("CREATE EXTENSION vector",)
    """Statements that install pgvector: of the provider, whose own extension lets customers run them."""


NO_BYPASS, BYPASS = "CREATEROLE CREATEDB", "CREATEROLE CREATEDB BYPASSRLS REPLICATION"
PROVIDERS = {
    # docs.aws.amazon.com/AmazonRDS/latest/UserGuide/Appendix.PostgreSQL.CommonDBATasks.Roles.rds_superuser.html
    "RDS": Provider(
        attributes=NO_BYPASS,
        roles=(
            "CREATE ROLE rds_superuser NOLOGIN",
            "CREATE ROLE rds_password NOLOGIN",
            "GRANT pg_monitor, pg_signal_backend, pg_checkpoint, rds_password TO rds_superuser WITH ADMIN OPTION",
            "GRANT rds_superuser TO customer",
        ),
    ),
    # docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/Appendix.PostgreSQL.CommonDBATasks.Roles.html
    "Aurora": Provider(
        attributes=NO_BYPASS,
        roles=(
            "CREATE ROLE rds_superuser NOLOGIN",
            "GRANT pg_monitor, pg_signal_backend TO rds_superuser WITH ADMIN OPTION",
            "GRANT rds_superuser TO customer",
        ),
    ),
    # learn.microsoft.com/azure/postgresql/flexible-server/how-to-create-users
    "Azure": Provider(
        attributes=NO_BYPASS,
        roles=(
            "CREATE ROLE azure_pg_admin NOLOGIN",
            "GRANT azure_pg_admin, pg_read_all_settings, pg_read_all_stats, pg_stat_scan_tables TO customer",
        ),
    ),
    # cloud.google.com/sql/docs/postgres/users
    "Cloud SQL": Provider(
        attributes=NO_BYPASS,
        roles=(
            "CREATE ROLE cloudsqlsuperuser NOLOGIN CREATEROLE CREATEDB",
            "GRANT pg_monitor, pg_signal_backend TO cloudsqlsuperuser",
            "GRANT cloudsqlsuperuser TO customer",
        ),
    ),
    # cloud.google.com/alloydb/docs/database-users/about
    "AlloyDB": Provider(
        attributes=NO_BYPASS,
        roles=(
            "CREATE ROLE alloydbsuperuser NOLOGIN CREATEROLE CREATEDB",
            "GRANT pg_monitor TO alloydbsuperuser",
            "GRANT alloydbsuperuser TO customer",
        ),
    ),
    # neon.com/docs/manage/roles
    "Neon": Provider(
        attributes=BYPASS,
        roles=(
            "CREATE ROLE neon_superuser NOLOGIN CREATEROLE CREATEDB BYPASSRLS REPLICATION",
            "GRANT pg_read_all_data, pg_write_all_data, pg_monitor TO neon_superuser",
            "GRANT neon_superuser TO customer",
        ),
    ),
    # supabase.com/docs/guides/database/postgres/roles-superuser: extensions have a schema of their own, and the
    # provider watches statements by event triggers.
    "Supabase": Provider(
        attributes=BYPASS,
        roles=(
            "CREATE ROLE anon NOLOGIN",
            "CREATE ROLE authenticated NOLOGIN",
            "CREATE ROLE service_role NOLOGIN BYPASSRLS",
            "GRANT anon, authenticated, service_role TO customer WITH ADMIN OPTION",
            "GRANT pg_monitor, pg_read_all_data TO customer",
        ),
        extension=(
            "CREATE SCHEMA extensions",
            "CREATE EXTENSION vector SCHEMA extensions",
            "GRANT USAGE ON SCHEMA extensions TO PUBLIC",
            'ALTER DATABASE kosmos SET search_path = "$user", public, extensions',
            "ALTER DEFAULT PRIVILEGES FOR ROLE customer IN SCHEMA public GRANT ALL ON TABLES TO anon, authenticated",
            "CREATE FUNCTION public.watch() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
            "CREATE EVENT TRIGGER pgrst_ddl_watch ON ddl_command_end EXECUTE FUNCTION public.watch()",
        ),
    ),
    "own superuser": Provider(attributes="SUPERUSER", extension=()),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A server of a provider."""

    settings: DatabaseSettings
    provider: str
    """The address of the provider's superuser."""

    def read_digests(self) -> dict[str, str]:
        """Return a digest of all rows of each table."""
        with psycopg.connect(self.provider) as connection:
            return {
                table: str(
                    connection.execute(
                        f"SELECT count(*), md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM kosmos.{table} AS t"
                    ).fetchone()
                )
                for table in TABLES - {VERSION}
            }


def _start(folder: Path, provider: Provider) -> Server:
    server = embedded.start(folder)
    with psycopg.connect(server.conninfo("postgres", "postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE customer LOGIN {provider.attributes}")
        for statement in provider.roles:
            connection.execute(statement)
        connection.execute("CREATE DATABASE kosmos OWNER customer")
    with psycopg.connect(server.conninfo("postgres", "kosmos"), autocommit=True) as connection:
        for statement in provider.extension:
            connection.execute(statement)
    settings = DatabaseSettings(
        url=server.conninfo(APP, "kosmos"),
        worker_url=server.conninfo(WORKER, "kosmos"),
        admin_url=server.conninfo("customer", "kosmos"),
    )
    return Server(settings=settings, provider=server.conninfo("postgres", "kosmos"))


@pytest.mark.parametrize("name", PROVIDERS)
def test_provider__has_the_whole_life(
    name: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Migrate, ingest, search, index, check, upgrade and go back, back up, restore elsewhere, erase."""
    source, target = (_start(tmp_path / folder, PROVIDERS[name]) for folder in ("source", "target"))
    filled = settings.model_copy(update={"database": source.settings})
    details = [check.detail for check in diagnose(filled) if check.name == "role that migrates"]
    missing = "the server has no role kosmos_owner, kosmos_app, kosmos_worker, kosmos_backup; run `kosmos-rag migrate`"
    assert details == [missing]
    assert set_up(source.settings, "0100").after == "0100"
    assert set_up(source.settings).after == REVISION
    fill(filled)
    hits = read_hits(filled, "everyone")
    assert [len(sources) for sources in hits.values()] == [20, 4]
    _assert_is_healthy(filled)

    with monkeypatch.context() as patch:
        assert set_up(source.settings, later := add_revision(tmp_path, patch)).after == later
        assert read_hits(filled, "everyone") == hits
        assert set_up(source.settings, REVISION).after == REVISION

    file = tmp_path / "kosmos.dump"
    assert back_up(source.settings, file).revision == REVISION
    restoration = restore(target.settings, file, verify=True)
    assert (restoration.tenants, len(restoration.tenant_sample)) == (2, 2)
    assert target.read_digests() == source.read_digests()
    restored = settings.model_copy(update={"database": target.settings})
    assert read_hits(restored, "everyone") == hits
    _assert_is_healthy(restored)
    with pytest.raises(RequestError, match="the database has 2 tenants"):
        restore(target.settings, file)

    with Engine(restored, embedder=HashingEmbedder()) as engine:
        assert engine.tenant("acme").erase_all().erased["documents"] == 30
    assert [len(sources) for sources in read_hits(restored, "everyone").values()] == [0, 4]


def _assert_is_healthy(settings: Settings) -> None:
    checks = [check for check in diagnose(settings) if check.name.startswith("role")]
    assert checks
    assert [check.detail for check in checks if not check.ok] == []
