"""kosmos-rag serve: the HTTP service."""

from typing import Annotated

import typer

from kosmos_rag.apps.cli.options import CommonOptions, command


@command
def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on; default: service.host.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=1, max=65535, help="Port to listen on; default: service.port.")
    ] = None,
    *,
    common: CommonOptions,
) -> None:
    """Run the HTTP service until SIGTERM; /openapi.json describes it."""
    changes = [f"service.host={host}"] if host else []
    changes += [f"service.port={port}"] if port else []
    settings = common.load_settings(*changes)
    from kosmos_rag.core.extras import needed

    needed("fastapi", "uvicorn", "limits")
    from kosmos_rag.apps.http.server import serve as serve_until_stopped

    typer.echo(
        f"serving on http://{settings.service.host}:{settings.service.port} once the models are loaded", err=True
    )
    serve_until_stopped(settings)
