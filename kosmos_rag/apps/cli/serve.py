"""kosmos-rag serve: the HTTP service."""

from contextlib import nullcontext
from typing import Annotated

import typer

from kosmos_rag.apps.cli.options import CommonOptions, command


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

    require_extra("service", "fastapi", "uvicorn")
    from kosmos_rag.apps.http.server import serve as serve_until_stopped
    from kosmos_rag.apps.worker.background import run_in_background

    runs_worker = settings.service.development.tenant is not None if worker is None else worker
    address = f"http://{settings.service.host}:{settings.service.port}"
    typer.echo(f"loading the models; then the console is on {address} and the interface on {address}/docs", err=True)
    with run_in_background(settings) if runs_worker else nullcontext():
        serve_until_stopped(settings)
