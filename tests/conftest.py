"""One server for all processes of the run, and on it a migrated database for each, whose tests have a tenant each.

A test that asks for `tenant_name` shares the database and the engine of its process, and so proves that tenants are
apart. A test that does not names its tenants itself, looks at all of them, or changes what is global (migrations,
roles, the queue, metrics): it has a clone of the migrated template. A test with `emptied_database` changes nothing but
rows: it has the one database of its process that is emptied before each. With `own_database` a test has a clone,
whatever else it asks for. With `changes_catalogue` each engine checks the catalogue of its clone.

The server: KOSMOS_TEST_DATABASE_URL (an administrator's), else a pgvector container with KOSMOS_TEST_DOCKER=1, else
the embedded one. With KOSMOS_TEST_PGBOUNCER=1 the roles that serve reach the embedded server by way of PgBouncer in
transaction mode; tests marked `direct_connection` are skipped.
"""

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit, urlunsplit

# Before NumPy is imported, whose threads read this then. The processes of a run share the cores: threads of one product
# or one inference that wait for each other's cores double its cost.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil
import psycopg
import pytest
from filelock import FileLock
from psycopg import sql
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models import onnx
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.hub import resolve
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import embedded
from kosmos_rag.storage.expected_catalog import TABLES, VERSION
from kosmos_rag.storage.migrate import migrate
from kosmos_rag.storage.provision import APP, WORKER, create_database, provision
from tests.catalogue_checks import check_catalogue_once, rely_on_first_check
from tests.certificates import read_certificates_once
from tests.pgbouncer import find_pgbouncer, running_pgbouncer
from tests.property_examples import register_profiles

PASSWORD = "kosmos-test"
MEMORY = Path("/dev/shm")
PGBOUNCER = os.environ.get("KOSMOS_TEST_PGBOUNCER") == "1"

register_profiles()

# Millions of objects are created while the test modules are imported, and all of them stay: collections in between
# would take half of that time, and later ones would look at all of them again.
gc.disable()

TESTS = Path(__file__).parent
LONGEST_FIRST = (
    "acceptance/test_benchmarks_quick.py",
    "integration/indexing/ann/test_vector_index.py",
    "reliability/test_worker.py",
    "integration/engine/test_departments.py",
    "unit/models/embedding/test_models.py",
    "acceptance/test_examples.py",
    "simulation/test_simulation.py",
    "integration/indexing/ann/test_interrupted_builds.py",
    "unit/retrieval/ranking/test_cross_encoder.py",
    "unit/parsing/test_hostile.py",
    "integration/indexing/ann/test_complete_answers.py",
    "integration/retrieval/test_lexical_exactness.py",
    "integration/evaluation/monitor/test_monitor.py",
    "unit/test_site.py",
    "unit/parsing/sandbox/test_isolation.py",
    "reliability/test_hostile_files.py",
    "acceptance/test_analytics.py",
    "acceptance/text2sql/test_schema.py",
    "integration/storage/test_isolation.py",
    "integration/retrieval/test_index_plans.py",
    "acceptance/test_cli_serve.py",
    "integration/storage/test_migrations.py",
    "integration/storage/test_embedded.py",
    "integration/indexing/test_segments_crashes.py",
    "acceptance/test_cli.py",
    "integration/apps/http/test_connections.py",
    "acceptance/test_cli_mcp.py",
    "acceptance/test_cli_index.py",
    "integration/indexing/test_segments.py",
    "unit/parsing/sandbox/test_parse_confined.py",
    "integration/engine/test_erasure.py",
    "integration/storage/audit/test_recording.py",
    "integration/retrieval/test_result_cache.py",
    "integration/apps/http/test_load.py",
    "integration/apps/http/test_access.py",
)
"""The modules that take longest, in falling order. `--dist loadfile` gives whole modules to the processes in turn."""

OF_PYTORCH = (
    "unit/models/embedding/test_models.py",
    "unit/retrieval/ranking/test_cross_encoder.py",
    "integration/apps/integrations/test_documentation.py",
    "integration/apps/integrations/test_haystack.py",
    "integration/apps/integrations/test_haystack_store.py",
)
"""The modules that import PyTorch, and what comes with it: up to six seconds of a process."""

# Distributed tables need a server of their own: `make test-citus`.
collect_ignore_glob = (
    [] if os.environ.get("KOSMOS_TEST_CITUS_BIN") or os.environ.get("KOSMOS_TEST_CITUS_URL") else ["citus/*"]
)

# Before anything imports a model library: no test may ask a hub.
os.environ["HF_HUB_OFFLINE"] = "1"
for name in list(os.environ):
    if name.startswith("KOSMOS_") and not name.startswith("KOSMOS_TEST_"):
        del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest modules first: one that starts last would keep one process busy while the others have ended."""
    # A wing may be removed, and the folders of its tests with it.
    names = (*LONGEST_FIRST, *OF_PYTORCH)
    if missing := [name for name in names if (TESTS / name).parent.is_dir() and not (TESTS / name).is_file()]:
        raise pytest.UsageError(f"tests/conftest.py names modules that are absent: {', '.join(missing)}")
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
    if PGBOUNCER:
        _skip_direct_connection(items)


class ModuleScheduling(LoadFileScheduling):
    """Gives whole modules to the processes, and those that import PyTorch to one of them."""

    def _split_scope(self, nodeid: str) -> str:
        module: str = super()._split_scope(nodeid)
        return "PyTorch" if module.removeprefix(f"{TESTS.name}/") in OF_PYTORCH else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ModuleScheduling | None:
    """Replace what `--dist loadfile` names."""
    return ModuleScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def _skip_direct_connection(items: list[pytest.Item]) -> None:
    """Skip the tests that no pooler in transaction mode can serve, with their reasons."""
    if find_pgbouncer() is None:
        raise pytest.UsageError("KOSMOS_TEST_PGBOUNCER is set, and pgbouncer is not installed")
    for item in items:
        if (marker := item.get_closest_marker("direct_connection")) is not None:
            item.add_marker(pytest.mark.skip(reason=f"not by way of PgBouncer: {marker.args[0]}"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect garbage from now on, but not what the imports left.

    With the thresholds of Python, collections take a fifteenth of the processor time of ordinary tests, and most of
    that of a test that parses the whole package.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
    if any(item.get_closest_marker("model") for item in session.items):
        _export_minilm()


def _export_minilm() -> None:
    """Export the model for ONNX Runtime, where that has not been done.

    It takes seconds of all cores, on a busy machine minutes: before the time limit of a test begins.
    """
    settings = _minilm_settings()
    if onnx.choose_backend(settings.models) == "torch":
        return
    location = resolve(settings.rag.embedding.model, settings.models)
    key = onnx._export_key("SentenceTransformer", location, "full")
    if not (settings.models.resolved_cache_dir / "onnx" / key).is_dir():
        # In a process of its own: an export imports PyTorch, which stays in memory.
        command = [sys.executable, "-c", "from tests.conftest import load_minilm; load_minilm()"]
        subprocess.run(command, cwd=TESTS.parent, check=False)  # the tests of the model say what failed


@pytest.fixture(scope="session", autouse=True)
def _certificates() -> Iterator[None]:
    """Have the certificates of authorities read once a process."""
    with read_certificates_once():
        yield


@pytest.fixture(scope="session", autouse=True)
def _catalogues() -> Iterator[None]:
    """Check once a process and role the catalogue of databases that are copies of one template."""
    with rely_on_first_check():
        yield


@dataclass(frozen=True, kw_only=True)
class Server:
    """A PostgreSQL server, by its administrator's address."""

    admin: str
    folder: Path | None = None
    """Of an embedded server, which the processes of a run share; None for another."""
    pooler_port: int | None = None
    """Of a PgBouncer in front of the server; None without one."""

    def url(self, database: str, role: str | None = None) -> str:
        """The address of one database, as the administrator or as one of our roles."""
        if role is not None and self.pooler_port is not None:
            return f"postgresql://{role}:{PASSWORD}@127.0.0.1:{self.pooler_port}/{database}?sslmode=disable"
        parts = urlsplit(self.admin)
        host = parts.netloc.rpartition("@")[2]
        user = parts.netloc.rpartition("@")[0] if role is None else f"{role}:{PASSWORD}"
        return urlunsplit((parts.scheme, f"{user}@{host}", f"/{database}", parts.query, ""))

    def settings(self, database: str) -> DatabaseSettings:
        """Settings for one database with all three roles."""
        return DatabaseSettings(
            url=self.url(database, APP), worker_url=self.url(database, WORKER), admin_url=self.url(database)
        )


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of this run."""
    if url := os.environ.get("KOSMOS_TEST_DATABASE_URL"):
        yield Server(admin=url)
    elif os.environ.get("KOSMOS_TEST_DOCKER") == "1":
        from testcontainers.postgres import PostgresContainer

        with PostgresContainer("pgvector/pgvector:pg17", driver=None) as container:
            yield Server(admin=container.get_connection_url())
    else:
        folder = _folder(tmp_path_factory)
        with pytest.MonkeyPatch.context() as patch:
            # As on a machine with little memory: each connection would map a gigabyte of buffers that no test fills.
            patch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=0))
            patch.setattr(embedded, "_configure", partial(_configure, embedded._configure))
            running = embedded.start(folder / "data")
        with _pooler(running, tmp_path_factory) as port:
            yield Server(admin=running.conninfo("postgres", "postgres"), folder=folder, pooler_port=port)


@contextmanager
def _pooler(running: embedded.EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int | None]:
    """Run a PgBouncer of this process in front of a server, if KOSMOS_TEST_PGBOUNCER says so; gives its port."""
    if not PGBOUNCER:
        yield None
        return
    with running_pgbouncer(
        tmp_path_factory.mktemp("pgbouncer"),
        {
            "auth_type": "trust",  # as the server itself, whose socket nobody else may open
            "auth_user": "postgres",
            "auth_query": "SELECT rolname, rolpassword FROM pg_authid WHERE rolname = $1",
        },
        server=f"host={running.socket_dir} port={running.port}",
        url="postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable",
        user=running.data_dir.stat().st_uid,
    ) as port:
        yield port


def _configure(configure: Callable[[Path], None], data_dir: Path) -> None:
    """Configure a server for tests, before it starts."""
    configure(data_dir)
    configuration = data_dir / "postgresql.conf"
    text = configuration.read_text()
    # Databases come and go: the run would wait for the disk. Killed processes lose nothing by this. All processes of
    # the run connect to this server.
    added = "fsync = off\nmax_wal_size = '256MB'\nmax_connections = 400\n"
    if added not in text:
        configuration.write_text(text + added)


def _run_id() -> int:
    """The id of the process that started the run: of its processes the parent."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the processes of this run share.

    In memory, where there is room: a database is three hundred files, which takes a disk 300 ms.
    """
    folder = MEMORY / f"pytest-kosmos-{_run_id()}"
    if not folder.is_dir() and not (os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 * 2**30):
        base = tmp_path_factory.getbasetemp()
        folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "postgres"
    folder.mkdir(exist_ok=True)
    return folder


def pytest_sessionstart() -> None:
    """Have the server removed at the end, and those that killed runs left."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    for left in MEMORY.glob("pytest-kosmos-*"):
        if not psutil.pid_exists(int(left.name.rpartition("-")[2])):
            _remove_server(left)
    # What is registered first is done last: the processes that use the server have ended by then.
    atexit.register(_remove_server, MEMORY / f"pytest-kosmos-{_run_id()}")


def _remove_server(folder: Path) -> None:
    """Stop the server of a folder if the last of its users was killed, and remove its data."""
    with suppress(OSError, ValueError, psutil.Error):
        server = psutil.Process(int((folder / "data" / "postmaster.pid").read_text().split()[0]))
        if server.name() == "postgres":
            server.send_signal(signal.SIGQUIT)
            server.wait(10)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def template(server: Server) -> Iterator[str]:
    """The name of a migrated database that the tests' own are cloned from."""
    if server.folder is None:
        name = f"kosmos_template_{uuid.uuid4().hex[:8]}"
        _create_template(server, name)
        yield name
        _drop(server, name)
        return
    created = server.folder / "template"
    with FileLock(server.folder / "template.lock"):
        if not created.exists():
            _create_template(server, "kosmos_template")
            created.touch()
    yield "kosmos_template"


def _create_template(server: Server, name: str) -> None:
    with psycopg.connect(server.admin, autocommit=True) as connection:
        # Roles belong to the whole server, which several processes of a run may share.
        connection.execute("SELECT pg_advisory_lock(hashtext('kosmos tests'))")
        create_database(server.admin, name)
        provision(server.url(name))
        for role in (APP, WORKER):
            connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(PASSWORD)))
    migrate(server.url(name))


@contextmanager
def clone(server: Server, template: str, *, changes_catalogue: bool = False) -> Iterator[DatabaseSettings]:
    """Clone a database for the time of a block.

    Args:
        changes_catalogue: Whether each engine must check the catalogue; else the first one of the process does.
    """
    name = f"kosmos_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.admin, autocommit=True) as connection:
        end_sessions(connection, template)
        connection.execute(
            # Copying files takes half of what logging each of their pages takes.
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        connection.execute(  # settings by role and database are not cloned
            sql.SQL("ALTER ROLE {} IN DATABASE {} SET plan_cache_mode = force_custom_plan").format(
                sql.Identifier(APP), sql.Identifier(name)
            )
        )
    settings = server.settings(name)
    with nullcontext() if changes_catalogue else check_catalogue_once(settings):
        yield settings
    _drop(server, name)


def end_sessions(admin: psycopg.Connection, database: str) -> None:
    """End the sessions in a database that is to be copied; a pooler keeps them."""
    admin.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", [database])


@pytest.fixture
def tenant_name() -> str:
    """A tenant that no other test has."""
    return f"t-{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def shared_database(server: Server, template: str) -> Iterator[DatabaseSettings]:
    """The migrated database of this process, with the tenants of many tests."""
    with clone(server, template) as settings:
        yield settings


@pytest.fixture(scope="module")
def module_database(request: pytest.FixtureRequest, server: Server, template: str) -> Iterator[DatabaseSettings]:
    """A database of a module's own."""
    with clone(server, template, changes_catalogue=_changes_catalogue(request)) as settings:
        yield settings


@pytest.fixture(scope="session")
def scratch_database(server: Server, template: str) -> Iterator[DatabaseSettings]:
    """The database of this process whose rows a test may remove."""
    with clone(server, template) as settings:
        yield settings


@pytest.fixture
def emptied_database(scratch_database: DatabaseSettings) -> DatabaseSettings:
    """A database without rows and without work of earlier tests, for a test that changes nothing but rows."""
    with psycopg.connect(scratch_database.admin_url or "") as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'"
        )
        # Without the triggers of foreign keys, which rows that are all removed do not need; in one round trip.
        removals = "".join(f'DELETE FROM kosmos."{table}";' for table in sorted(TABLES - {VERSION}))
        connection.execute(f"SET LOCAL session_replication_role = replica; {removals}".encode())
    return scratch_database


def _changes_catalogue(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("changes_catalogue") is not None


def shares_database(request: pytest.FixtureRequest) -> bool:
    """Return whether a test shares the database of its process."""
    return "tenant_name" in request.fixturenames and request.node.get_closest_marker("own_database") is None


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[DatabaseSettings]:
    """The database of this process for a test with a tenant of its own; else an empty one."""
    if shares_database(request):
        yield request.getfixturevalue("shared_database")
    elif request.node.get_closest_marker("emptied_database") and not request.node.get_closest_marker("own_database"):
        yield request.getfixturevalue("emptied_database")
    else:
        server, template = request.getfixturevalue("server"), request.getfixturevalue("template")
        with clone(server, template, changes_catalogue=_changes_catalogue(request)) as settings:
            yield settings


@pytest.fixture
def empty_database(server: Server) -> Iterator[DatabaseSettings]:
    """A database without our schema."""
    name = f"kosmos_empty_{uuid.uuid4().hex[:12]}"
    create_database(server.admin, name)
    yield server.settings(name)
    _drop(server, name)


def _drop(server: Server, name: str) -> None:
    with psycopg.connect(server.admin, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def loaded_settings() -> Settings:
    """The settings of the repository: no reranker, small chunks."""
    return Settings.load(
        overrides={
            "rag.reranking.enabled": False,
            "rag.chunking.strategy": "paragraph",
            "rag.chunking.min_size": 100,
        }
    )


@pytest.fixture
def settings(loaded_settings: Settings, database: DatabaseSettings) -> Settings:
    """Settings over this test's database."""
    return loaded_settings.model_copy(update={"database": database})


@pytest.fixture(scope="session")
def shared_settings(loaded_settings: Settings, shared_database: DatabaseSettings) -> Settings:
    """Settings over the database of this process, for engines of modules whose tests have a tenant each."""
    return loaded_settings.model_copy(update={"database": shared_database})


@pytest.fixture(scope="session")
def shared_engine(shared_settings: Settings) -> Iterator[Engine]:
    """The engine over the database of this process."""
    with Engine(shared_settings, embedder=HashingEmbedder()) as opened:
        yield opened


@pytest.fixture
def engine(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Engine]:
    """An engine over this test's database with vectors made of words: for tests that are not about models."""
    if shares_database(request) and settings == request.getfixturevalue("shared_engine").settings:
        yield request.getfixturevalue("shared_engine")
    else:
        with Engine(settings, embedder=HashingEmbedder()) as opened:
            yield opened


@pytest.fixture(scope="session")
def minilm() -> SentenceTransformerEmbedder:
    """The real all-MiniLM-L6-v2, loaded once."""
    settings = _minilm_settings()
    return SentenceTransformerEmbedder(settings.rag.embedding, settings.models)


def load_minilm() -> None:
    """Load the model, and export it if that has not been done."""
    settings = _minilm_settings()
    SentenceTransformerEmbedder(settings.rag.embedding, settings.models).embed_query("a question")


def _minilm_settings() -> Settings:
    return Settings.load(
        overrides={"rag.embedding.model": "packaged:all-MiniLM-L6-v2", "rag.embedding.dimensions": 384}
    )


@pytest.fixture(scope="session")
def knowledge_base() -> Path:
    """The sample documents."""
    return Path(__file__).parents[1] / "examples" / "knowledge_base"


@pytest.fixture(scope="session")
def datasets() -> Path:
    """The evaluation sets; tests that need them are skipped where they are not at hand."""
    folder = Path(os.environ.get("KOSMOS_TEST_DATASETS", Path(__file__).parents[2] / "shared" / "datasets"))
    if not (folder / "cranfield" / "corpus.jsonl").is_file():
        pytest.skip(f"no evaluation sets in {folder}; set KOSMOS_TEST_DATASETS to their folder")
    return folder
