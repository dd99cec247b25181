"""kosmos-rag mcp: documents as tools of agents."""

import json
from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import not_blank
from kosmos_rag.apps.cli.options import CommonOptions, command
from kosmos_rag.core.errors import RequestError


@command
def mcp(
    http: Annotated[bool, typer.Option("--http", help="Serve by HTTP, with tokens and keys; else over stdio.")] = False,
    tenant: Annotated[
        str | None, typer.Option("--tenant", "-t", help="Over stdio: whose documents; else mcp.tenant.")
    ] = None,
    principal: Annotated[
        list[str] | None,
        typer.Option("--principal", metavar="NAME", help="Over stdio: what the reader holds; else mcp.principals."),
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help="Over stdio: who that is, for the audit log; else mcp.subject.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="By HTTP: address to listen on; else service.host.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=1, max=65535, help="By HTTP: else service.port.")
    ] = None,
    *,
    common: CommonOptions,
) -> None:
    """Serve tools of the Model Context Protocol: search, answer, get_document, ground_schema."""
    who = {"tenant": tenant, "principals": not_blank(principal, "--principal") or None, "subject": subject}
    where = {"host": host, "port": port}
    if http and any(value is not None for value in who.values()):
        raise RequestError("--tenant, --principal and --subject are for stdio; by HTTP tokens and keys say who asks")
    if not http and any(value is not None for value in where.values()):
        raise RequestError("--host and --port are for HTTP; add --http")
    chosen = [f"mcp.{name}={json.dumps(value)}" for name, value in who.items() if value is not None]
    chosen += [f"service.{name}={json.dumps(value)}" for name, value in where.items() if value is not None]
    settings = common.load_settings(*chosen)
    from kosmos_rag.core.extras import needed

    needed("mcp", "fastapi", "uvicorn", "limits", extra="mcp")
    if not http:
        from kosmos_rag.apps.mcp.stdio import serve as serve_reader

        serve_reader(settings)
        return
    from kosmos_rag.apps.mcp.http import PATH
    from kosmos_rag.apps.mcp.http import serve as serve_until_stopped

    typer.echo(
        f"serving on http://{settings.service.host}:{settings.service.port}{PATH} once the models are there",
        err=True,
    )
    serve_until_stopped(settings)
