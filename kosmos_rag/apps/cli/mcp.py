"""kosmos-rag mcp: the MCP server."""

import json
from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import require_not_blank
from kosmos_rag.apps.cli.options import CommonOptions, command
from kosmos_rag.core.errors import RequestError


@command
def mcp(
    http: Annotated[
        bool, typer.Option("--http", help="Serve over HTTP, with tokens and keys; default: stdio.")
    ] = False,
    tenant: Annotated[
        str | None, typer.Option("--tenant", "-t", help="With stdio: the tenant; default: mcp.tenant.")
    ] = None,
    principal: Annotated[
        list[str] | None,
        typer.Option(
            "--principal", metavar="NAME", help="With stdio: a principal of the reader; default: mcp.principals."
        ),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option("--subject", help="With stdio: the reader's name in the audit log; default: mcp.subject."),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="With --http: address to listen on; default: service.host.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", "-p", min=1, max=65535, help="With --http: port to listen on; default: service.port."),
    ] = None,
    *,
    common: CommonOptions,
) -> None:
    """Serve documents to agents by the Model Context Protocol."""
    identity = {"tenant": tenant, "principals": require_not_blank(principal, "--principal") or None, "subject": subject}
    address = {"host": host, "port": port}
    if http and any(value is not None for value in identity.values()):
        raise RequestError(
            "--tenant, --principal and --subject are for stdio; over HTTP tokens and keys identify the reader"
        )
    if not http and any(value is not None for value in address.values()):
        raise RequestError("--host and --port are for HTTP; add --http")
    changes = [f"mcp.{name}={json.dumps(value)}" for name, value in identity.items() if value is not None]
    changes += [f"service.{name}={json.dumps(value)}" for name, value in address.items() if value is not None]
    settings = common.load_settings(*changes)
    from kosmos_rag.core.extras import require_extra

    require_extra("mcp", "kosmos-rag mcp", "mcp", "fastapi", "uvicorn")
    if not http:
        from kosmos_rag.apps.mcp.stdio import serve as serve_reader

        serve_reader(settings)
        return
    from kosmos_rag.apps.mcp.http import PATH
    from kosmos_rag.apps.mcp.http import serve as serve_until_stopped

    typer.echo(
        f"serving on http://{settings.service.host}:{settings.service.port}{PATH} once the models are loaded",
        err=True,
    )
    serve_until_stopped(settings)
