"""Checks of the installation, for `kosmos-rag doctor`.

Each failed check has a remedy.
"""

import importlib.metadata
import shlex
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from kosmos_rag.core.config import EMBEDDED, RagSettings, RerankingSettings, Settings
from kosmos_rag.core.errors import (
    ConfigError,
    DatabaseError,
    KosmosError,
    ModelUnavailable,
    ParseError,
    concerns_all_tenants,
)
from kosmos_rag.core.text.counts import count
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.engine.job_kinds import NO_WINGS, WingJobs
from kosmos_rag.ingestion.permissions import list_unreadable
from kosmos_rag.ingestion.sources.listing import ChangeSource
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.models.catalogue import find_listed
from kosmos_rag.models.configured import ConfiguredModel, list_configured_models
from kosmos_rag.models.download import require_local_models
from kosmos_rag.models.embedding.server import ServerEmbedder
from kosmos_rag.models.hub import find_local, resolve
from kosmos_rag.models.onnx import choose_backend
from kosmos_rag.models.packaged import MINILM_INT8
from kosmos_rag.models.reranking.server import ServerReranker
from kosmos_rag.parsing.sandbox.fork_server import probe_isolation
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.sync_runs import SyncRuns
from kosmos_rag.storage.replicas import ReplicaPool
from kosmos_rag.storage.tenants import tenant as tenant_ref

_MIN_FREE_BYTES = 1024**3
_MAX_CLOCK_S = 30.0
"""Seconds that two clocks may differ, as for the tokens of sign-in."""
_READ_ONLY = (
    "the server takes no changes; name the primary in database.worker_url, and replicas in database.replica_urls. "
    "Where it is the primary, its provider refuses changes, for example because its disk is full"
)
_UNREAD_S = 600.0
"""Age of changes that no worker has read, from which on there is a warning."""
_PAIRS = 20
"""Pairs of near-duplicates that are named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """The result of a check."""

    name: str
    ok: bool
    detail: str


def diagnose(settings: Settings, tenant: str | None = None, wings: WingJobs = NO_WINGS) -> list[Check]:
    """Run all checks, without loading a model. Failed checks do not raise.

    With a tenant, its near-duplicate documents are named. A model that is not on this machine costs one request to the
    hub, and a model behind a server one to that.

    Args:
        wings: What wings add, with their warnings.
    """
    return [
        *_database(settings, tenant, wings),
        *(_run_check(model.use, partial(_model, model, settings)) for model in list_configured_models(settings.rag)),
        *_servers(settings.rag),
        *_prefixes(settings.rag),
        *_answers(settings),
        _run_check("backend", lambda: _backend(settings)),
        _run_check("parser", lambda: _parser(settings)),
        _run_check("disk", lambda: _disk(settings)),
    ]


def _run_check(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name=name, ok=True, detail=check())
    except KosmosError as error:
        return _fail(name, error)


def _fail(name: str, error: KosmosError) -> Check:
    return Check(name=name, ok=False, detail=" ".join(str(error).split()))


def _database(settings: Settings, tenant: str | None, wings: WingJobs) -> Iterator[Check]:
    try:
        database = Database(settings.database)
    except KosmosError as error:
        yield _fail("database", error)
        return
    try:
        if settings.database.admin_url is not None:
            yield _run_check("role that migrates", database.describe_administrator)
        yield from _check_pool("role that reads", lambda: database.app)
        yield from (_check_replica(replica, settings) for replica in database.measure_replicas())
        writer = list(_check_pool("role that writes", lambda: database.worker, writes=True))
        yield from writer
        # A node that is down leaves the jobs, the sources and their changes to read.
        if all(check.ok for check in writer if check.name == writer[0].name):
            yield from _read_as_writer(database, settings, tenant, wings)
    finally:
        database.close()


def _read_as_writer(database: Database, settings: Settings, tenant: str | None, wings: WingJobs) -> Iterator[Check]:
    """Check jobs and sources of all tenants, as the role that writes."""
    yield _run_check("worker", lambda: _worker(database, settings))
    yield _run_check("clock", lambda: _clock(database, settings))
    yield from _dead_jobs(database, settings)
    yield from _warn_of_tenants(database, settings, kinds.PERMISSIONS, _list_unreadable)
    yield from _refused_sources(database, settings)
    yield from _unread_changes(database, settings)
    for kind in wings.kinds:
        if kind.list_warnings is not None:
            yield from _warn_of_tenants(database, settings, kind.name, kind.list_warnings)
    for task in wings.maintenance:
        if task.list_warnings is not None:
            yield from _warn_of_tenants(database, settings, kinds.MAINTAIN, task.list_warnings)
    if tenant is not None:
        yield _run_check("near-duplicates", lambda: _near_duplicates(database.worker, tenant))


def _check_pool(name: str, open_pool: Callable[[], ConnectionPool], *, writes: bool = False) -> Iterator[Check]:
    try:
        state = open_pool().inspect()
    except KosmosError as error:
        yield _fail(name, error)
        return
    summary = (
        f"{state.role} on PostgreSQL {state.server_version // 10000}, pgvector {state.vector_version}, "
        f"revision {state.revision}, row-level security in force"
    )
    if writes and state.read_only:
        yield Check(name=name, ok=False, detail=_READ_ONLY)
    elif not state.problems:
        yield Check(name=name, ok=True, detail=summary)
    for warning in state.warnings:
        yield Check(name=name, ok=True, detail=f"warning: {warning}")
    for problem in state.problems:
        yield Check(name=name, ok=False, detail=problem)
    for node in state.nodes:
        reached = f"{node.address} is reached by the coordinator as {state.role}"
        remedy = f"{node.address} cannot be reached by the coordinator as {state.role}; start it, or look at its log"
        yield Check(name=f"node {node.id}", ok=node.available, detail=reached if node.available else remedy)


def _check_replica(replica: ReplicaPool, settings: Settings) -> Check:
    name, most = f"replica {replica.address}", settings.database.replica_max_lag_s
    if replica.is_unmeasured:
        return Check(name=name, ok=True, detail="warning: it is more than ten seconds behind the primary")
    if replica.lag_s is None:
        return Check(name=name, ok=False, detail="it cannot be reached, or is no replica of the server of database.url")
    behind = f"{replica.lag_s:.1f} s behind the primary"
    return Check(
        name=name,
        ok=replica.lag_s <= most,
        detail=behind if replica.lag_s <= most else f"{behind}; searches leave it above database.replica_max_lag_s",
    )


def _worker(database: Database, settings: Settings) -> str:
    if unclaimed := Queue.open(database, settings.worker).count_unclaimed():
        raise ConfigError(f"no worker runs, and due jobs wait for one: {unclaimed:,}; start kosmos-rag worker")
    return "no job waits for a worker"


def _clock(database: Database, settings: Settings) -> str:
    before = datetime.now(UTC)
    server = Queue.open(database, settings.worker).read_server_time()
    return compare_clocks(server, before, datetime.now(UTC))


def compare_clocks(server: datetime, before: datetime, after: datetime) -> str:
    """Return how far the clock of this machine is from the server's.

    Args:
        server: Time of the server.
        before: Time of this machine before the server was asked.
        after: Time of this machine after that.

    Raises:
        ConfigError: They are further apart than those of two machines may be.
    """
    ahead_s = max((before - server).total_seconds(), 0.0) - max((server - after).total_seconds(), 0.0)
    if abs(ahead_s) > _MAX_CLOCK_S:
        direction = "ahead of" if ahead_s > 0 else "behind"
        raise ConfigError(
            f"the clock of this machine is {abs(ahead_s):,.0f} s {direction} that of the database; set both by NTP: "
            "tokens of sign-in, signatures and expiries compare times"
        )
    return "as that of the database"


def _dead_jobs(database: Database, settings: Settings) -> Iterator[Check]:
    """Name the tenants whose jobs have failed permanently."""
    try:
        for tenant, jobs, code in Queue.open(database, settings.worker).count_dead():
            remedy = f"`kosmos-rag jobs list -t {shlex.quote(tenant)} --state dead` shows them"
            detail = f"warning: {count(jobs, 'dead job')}, most often because of {code}; {remedy}"
            yield Check(name=f"tenant {tenant}", ok=True, detail=detail)
    except KosmosError as error:
        yield _fail("dead jobs", error)


_ListWarnings = Callable[[psycopg.Connection, uuid.UUID, Settings], Iterable[str]]


def _warn_of_tenants(
    database: Database, settings: Settings, kind: str, list_warnings: _ListWarnings
) -> Iterator[Check]:
    """Yield the warnings of all tenants with jobs of a kind."""
    try:
        owners = Queue.open(database, settings.worker).list_tenants([kind])
    except KosmosError as error:
        yield _fail(f"jobs of kind {kind}", error)
        return
    for owner in owners:
        try:
            with database.worker.transaction(owner.id, [EVERYONE]) as connection:
                warnings = list(list_warnings(connection, owner.id, settings))
        except KosmosError as error:
            yield _fail(f"tenant {owner.name}", error)
            if concerns_all_tenants(error):
                return
            continue  # the node of another tenant may answer
        for warning in warnings:
            yield Check(name=f"tenant {owner.name}", ok=True, detail=f"warning: {' '.join(warning.split())}")


def _refused_sources(database: Database, settings: Settings) -> Iterator[Check]:
    """Name the sources that refused the credentials of their last pass, and passes that fail."""
    try:
        for owner in Queue.open(database, settings.worker).list_tenants(kinds.PASSES):
            for failure in SyncRuns(database.worker).list_refused(owner):
                detail = " ".join(f"source {failure.source}: {failure.message}".split())
                yield Check(name=f"tenant {owner.name}", ok=False, detail=detail)
    except KosmosError as error:
        yield _fail("sources", error)


def _unread_changes(database: Database, settings: Settings) -> Iterator[Check]:
    """Name the sources whose changes no worker reads."""
    try:
        for owner, _, _, payload in Queue.open(database, settings.worker).list_followed_syncs():
            yield from _check_backlog(f"tenant {owner.name}", payload["spec"], settings)
    except KosmosError as error:
        yield _fail("changes of sources", error)


def _check_backlog(name: str, spec: Mapping[str, Any], settings: Settings) -> Iterator[Check]:
    source_name = spec.get("name")
    remedy = "start kosmos-rag worker where the variables of the source are set"
    try:
        source = create_source(spec, settings.ingestion)
        backlog = source.measure_backlog() if isinstance(source, ChangeSource) else None
    except KosmosError as error:
        yield Check(name=name, ok=False, detail=" ".join(f"changes of source {source_name}: {error}".split()))
        return
    if backlog is not None and backlog.is_full:
        detail = f"the outbox of source {source_name} is full, and the next pass compares all documents; {remedy}"
        yield Check(name=name, ok=False, detail=detail)
    elif backlog is not None and backlog.oldest_s > _UNREAD_S:
        age = f"no worker has read the outbox of source {source_name} for {backlog.oldest_s / 60:.0f} minutes"
        yield Check(name=name, ok=False, detail=f"{age}, and it grows; {remedy}")


def _list_unreadable(connection: psycopg.Connection, tenant_id: uuid.UUID, _: Settings) -> Iterator[str]:
    """Name the documents that nobody may read."""
    for entry in list_unreadable(connection, tenant_id):
        yield entry.describe()


def _near_duplicates(worker: ConnectionPool, name: str) -> str:
    from kosmos_rag.engine.near_duplicates import find_near_duplicates

    pairs = find_near_duplicates(worker, tenant_ref(name).id)
    lines = [f"{pair.first} and {pair.second} ({pair.resemblance:.2f})" for pair in pairs[:_PAIRS]]
    more = [f"and {len(pairs) - _PAIRS} more pairs"] if len(pairs) > _PAIRS else []
    return "; ".join([*lines, *more]) or f"none of {name}"


def _model(configured: ConfiguredModel, settings: Settings) -> str:
    """Return where a model is.

    Raises ModelUnavailable: ingestion would fail, or questions be answered without reranking.
    """
    name, remedy = configured.name, configured.remedy
    if name != MINILM_INT8:
        require_local_models()
    try:
        location = find_local(name, settings.models)
        if location is None:
            resolve(name, settings.models)
    except ModelUnavailable as error:
        raise ModelUnavailable(f"{error}; fetch it with kosmos-rag models pull, or {remedy}") from error
    if location is None:
        return f"{name} is not on this machine; the first use downloads it from the hub, or kosmos-rag models pull now"
    return f"{name} in {location}" if Path(location).is_dir() else f"{name} in the local cache"


def _server(embedder: ServerEmbedder) -> str:
    """Embed a word. Raises ModelError, ConfigError."""
    with closing(embedder):
        embedder.embed_query("word")
    return f"{embedder.name} of {embedder.dimensions} dimensions answers at its address"


def _servers(rag: RagSettings) -> Iterator[Check]:
    """Send a word to each model server that is configured."""
    target = rag.next_embedding.embedding
    if rag.embedding.url is not None:
        yield _run_check("embedding server", lambda: _server(ServerEmbedder(rag.embedding)))
    if target is not None and target.url is not None:
        section = "rag.next_embedding"
        yield _run_check("next embedding server", lambda: _server(ServerEmbedder(target, section=section)))
    if rag.reranking.enabled and rag.reranking.url is not None:
        yield _run_check("reranking server", lambda: _reranking_server(rag.reranking))


def _prefixes(rag: RagSettings) -> Iterator[Check]:
    """Compare the prefixes of known models with what these were trained with."""
    for section, settings in (("rag.embedding", rag.embedding), ("rag.next_embedding", rag.next_embedding.embedding)):
        listed = None if settings is None else find_listed(settings.model, "embedding")
        if settings is None or listed is None:
            continue
        prefixes = {"query_prefix": listed.query_prefix, "passage_prefix": listed.passage_prefix}
        differences = {key: text for key, text in prefixes.items() if getattr(settings, key) != text}
        if differences:
            keys = " and ".join(f"{section}.{key} to {text!r}" for key, text in differences.items())
            detail = f"{listed.name} needs other prefixes: set {keys}, and embed stored documents again"
            yield Check(name="prefixes", ok=False, detail=detail)


def _answers(settings: Settings) -> Iterator[Check]:
    """Say that a language model writes no answers where the mode is extractive."""
    if settings.language_model.url is not None and settings.rag.answer.mode == "extractive":
        detail = "they are quoted; set rag.answer.mode: generative to let the model of language_model.url write them"
        yield Check(name="answers", ok=True, detail=detail)


def _reranking_server(settings: RerankingSettings) -> str:
    with closing(ServerReranker(settings)) as reranker:
        reranker.score("word", ["word"])
    return f"{reranker.name} answers at its address"


def _backend(settings: Settings) -> str:
    names = {model.name for model in list_configured_models(settings.rag)}
    if not names:
        return "none: all models are behind servers"
    if names == {MINILM_INT8}:
        packages, backend = ["onnxruntime", "tokenizers"], "onnx"
    else:
        packages, backend = ["sentence-transformers", "torch"], choose_backend(settings.models)
        if backend == "onnx":
            packages += ["optimum-onnx", "onnxruntime"]
    versions = []
    for package in packages:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError as error:
            extra = "kosmos-rag[onnx]" if "onnx" in package else "kosmos-rag[local]"
            raise ModelUnavailable(f"package {package} is missing; pip install '{extra}'") from error
    return f"{backend}: " + ", ".join(versions)


def _parser(settings: Settings) -> str:
    isolation = probe_isolation()
    if not isolation.complete:
        required = settings.ingestion.parsing.require_isolation
        raise ParseError("not_isolated", isolation.remedy() if required else f"{isolation.describe()}; docs/parsing.md")
    return isolation.describe()


def _disk(settings: Settings) -> str:
    folder = settings.database.resolved_data_dir if settings.database.url == EMBEDDED else Path.cwd()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < _MIN_FREE_BYTES:
        raise DatabaseError(f"{free / 1024**2:.0f} MB free at {folder}; make room, or move database.data_dir")
    return f"{free / 1024**3:.0f} GB free at {folder}"
