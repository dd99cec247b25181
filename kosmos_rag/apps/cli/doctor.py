"""kosmos-rag doctor: checks of the installation.

Each failed check says what to do.
"""

import importlib.metadata
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from kosmos_rag.apps.cli.common import print_json
from kosmos_rag.apps.cli.options import CommonOptions, command
from kosmos_rag.core.config import EMBEDDED, RagSettings, Settings
from kosmos_rag.core.errors import DatabaseError, KosmosError, ModelUnavailable, ParseError
from kosmos_rag.ingestion.sandbox.fork_server import probe_isolation
from kosmos_rag.models.hub import LOCAL_ALTERNATIVE, is_cached, locate
from kosmos_rag.storage.pool import ConnectionPool, Database

_MIN_FREE_BYTES = 1024**3


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """The result of a check."""

    name: str
    ok: bool
    detail: str


def diagnose(settings: Settings) -> list[Check]:
    """Run all checks, without loading a model. Failed checks do not raise."""
    return [
        *_database(settings),
        *(_run_check(kind, partial(_model, name, settings)) for kind, name in _models(settings.rag)),
        _run_check("backend", lambda: _backend(settings)),
        _run_check("parser", lambda: _parser(settings)),
        _run_check("disk", lambda: _disk(settings)),
    ]


def _run_check(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name=name, ok=True, detail=check())
    except KosmosError as error:
        return Check(name=name, ok=False, detail=" ".join(str(error).split()))


def _database(settings: Settings) -> Iterator[Check]:
    try:
        database = Database(settings.database)
    except KosmosError as error:
        yield Check(name="database", ok=False, detail=" ".join(str(error).split()))
        return
    try:
        yield from _check_pool("role that reads", lambda: database.app)
        yield from _check_pool("role that writes", lambda: database.worker)
    finally:
        database.close()


def _check_pool(name: str, open_pool: Callable[[], ConnectionPool]) -> Iterator[Check]:
    try:
        state = open_pool().inspect()
    except KosmosError as error:
        yield Check(name=name, ok=False, detail=" ".join(str(error).split()))
        return
    summary = (
        f"{state.role} on PostgreSQL {state.server_version // 10000}, pgvector {state.vector_version}, "
        f"revision {state.revision}, row-level security in force"
    )
    if not state.problems:
        yield Check(name=name, ok=True, detail=summary)
    for problem in state.problems:
        yield Check(name=name, ok=False, detail=problem)


def _models(rag: RagSettings) -> Iterator[tuple[str, str]]:
    yield "embedding model", rag.embedding.model
    if rag.next_embedding.model is not None:
        yield "next embedding model", rag.next_embedding.model
    if rag.reranking.enabled:
        yield "reranking model", rag.reranking.model


def _model(name: str, settings: Settings) -> str:
    location = locate(name)
    if Path(location).is_dir():
        return f"{name} in {location}"
    if is_cached(location, settings.models.cache_dir):
        return f"{name} in the local cache"
    if settings.models.offline:
        raise ModelUnavailable(f"{name!r} is not in the local cache, and models.offline is true; {LOCAL_ALTERNATIVE}")
    return f"{name} is not in the local cache and will be downloaded from the hub on first use"


def _backend(settings: Settings) -> str:
    packages = ["sentence-transformers", "torch"]
    if settings.models.backend == "onnx":
        packages += ["optimum-onnx", "onnxruntime"]
    versions = []
    for package in packages:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError as error:
            extra = "kosmos-rag[onnx]" if "onnx" in package else "kosmos-rag"
            raise ModelUnavailable(f"package {package} is missing; pip install '{extra}'") from error
    return f"{settings.models.backend}: " + ", ".join(versions)


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


@command
def doctor(*, common: CommonOptions) -> None:
    """Check database, extension, roles, revision, models, isolation of parsers, disk.

    Exits with 1 for a problem.
    """
    settings = common.load_settings()
    checks = diagnose(settings)
    healthy = all(check.ok for check in checks)
    if common.as_json:
        versions = [{"check": check.name, "ok": check.ok, "detail": check.detail} for check in checks]
        print_json({"ok": healthy, "checks": versions})
    else:
        for check in checks:
            typer.echo(f"{'ok     ' if check.ok else 'PROBLEM'}  {check.name}: {check.detail}")
    if not healthy:
        raise typer.Exit(1)
