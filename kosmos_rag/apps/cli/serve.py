"""kosmos-rag serve: the HTTP service."""

import errno
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated

import typer

from kosmos_rag.apps.cli.options import CommonOptions, command
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import ConfigError, KosmosError

log = logging.getLogger("kosmos_rag.worker")


@command
def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on; default: service.host.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=1, max=65535, help="Port to listen on; default: service.port.")
    ] = None,
    worker: Annotated[
        bool | None,
        typer.Option("--worker/--no-worker", help="Run the jobs too; default: with service.development.tenant."),
    ] = None,
    *,
    common: CommonOptions,
) -> None:
    """Run the HTTP service until SIGTERM; /docs describes it.

    In development mode, and with --worker, a worker of this process runs the jobs, so that uploads are ingested.
    """
    changes = [f"service.host={host}"] if host else []
    changes += [f"service.port={port}"] if port else []
    settings = common.load_settings(*changes)
    from kosmos_rag.core.extras import require_extra

    require_extra("service", "kosmos-rag serve", "fastapi", "uvicorn")
    from kosmos_rag.apps.http.server import serve as serve_until_stopped

    runs_worker = settings.service.development.tenant is not None if worker is None else worker
    name = f"[{settings.service.host}]" if ":" in settings.service.host else settings.service.host
    address = f"http://{name}:{settings.service.port}"
    _require_free_port(settings.service.host, settings.service.port)
    typer.echo(f"loading the models; then the console is on {address} and the interface on {address}/docs", err=True)
    with _run_worker(settings) if runs_worker else nullcontext():
        serve_until_stopped(settings, lambda: typer.echo(f"ready: the service answers on {address}", err=True))


def _require_free_port(host: str, port: int) -> None:
    """Raise ConfigError for an address that cannot be listened on, before the models are loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            pass
    except OSError as error:
        reason = (
            "is in use by another program" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        )
        raise ConfigError(f"port {port} of {host} {reason}; end what uses it, or choose another with --port") from error


@contextmanager
def _run_worker(settings: Settings) -> Iterator[None]:
    """Run a worker in a thread during the block; drain it afterwards.

    Jobs run in processes of their own, as those of `run_worker` do. Raises ConfigError and DatabaseError at the start;
    what ends the worker later is logged.
    """
    from kosmos_rag.wings import load_wing_jobs
    from kosmos_rag.worker.supervisor import create_supervisor

    supervisor = create_supervisor(settings, wings=load_wing_jobs())

    def run() -> None:
        try:
            supervisor.run()
        except KosmosError as error:
            log.error("the worker has ended, and jobs wait: %s", error, extra={"action": "worker_failed"})
        except Exception:
            log.exception("the worker has ended, and jobs wait", extra={"action": "worker_failed"})

    thread = threading.Thread(target=run, name="kosmos-rag-worker")
    thread.start()
    try:
        yield
    finally:
        supervisor.stop()
        thread.join()
