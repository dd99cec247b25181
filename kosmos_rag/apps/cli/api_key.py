"""kosmos-rag api-key: API keys of the service."""

import uuid
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import (
    console,
    print_json,
    require_not_blank,
)
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.errors import RequestError

KeyArgument = Annotated[str, typer.Argument(help="Id of a key, from `api-key list`.")]

app = typer.Typer(help="Create, list, rotate and revoke API keys of a tenant.")


@app.command("create")
@command
def create(
    name: Annotated[str, typer.Argument(help="Name of the key's holder, for the logs.")],
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="read, ingest, operate, admin; may be repeated; default: read."),
    ] = None,
    principal: Annotated[
        list[str] | None,
        typer.Option(
            "--principal",
            metavar="NAME",
            help="Principal of the holder in addition to everyone, such as department:hr; may be repeated.",
        ),
    ] = None,
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=36500, help="Lifetime in days; default: unlimited.")
    ] = None,
    default_collection: Annotated[
        str | None,
        typer.Option("--default-collection", metavar="NAME", help="Collection of requests that name none."),
    ] = None,
    *,
    common: TenantOptions,
) -> None:
    """Create a key and print it; it cannot be shown again."""
    principals = require_not_blank(principal, "--principal", remedy="name a principal, --principal department:sales")
    expires_at = datetime.now(UTC) + timedelta(days=days) if days else None
    with common.open_tenant() as tenant:
        key_text = tenant.api_keys.create(
            name,
            scopes=scope or ["read"],
            principals=principals,
            expires_at=expires_at,
            default_collection=default_collection,
        )
    if common.as_json:
        print_json({"tenant": common.tenant, "key": key_text})
    else:
        typer.echo(key_text)


@app.command("list")
@command
def list_(*, common: TenantOptions) -> None:
    """List the keys, without their secrets."""
    with common.open_tenant() as tenant:
        infos = tenant.api_keys.infos()
    if common.as_json:
        print_json({"tenant": common.tenant, "keys": [asdict(info) for info in infos]})
        return
    for info in infos:
        state = "revoked" if _is_past(info.revoked_at) else "expired" if _is_past(info.expires_at) else "valid"
        if state == "valid" and info.revoked_at:
            state = "ending"
        principals = "".join(f" {name}" for name in info.principals)
        console().print(f"{info.id}  {state:<8} {','.join(info.scopes):<18} {info.name}{principals}")


def _is_past(time: datetime | None) -> bool:
    return time is not None and time <= datetime.now(UTC)


def _id(key: str) -> uuid.UUID:
    try:
        return uuid.UUID(key)
    except ValueError as error:
        raise RequestError(f"{key!r} is not an id of a key; `kosmos-rag api-key list` shows ids") from error


def _no_valid_key(tenant: str, key: str) -> RequestError:
    return RequestError(f"tenant {tenant} has no valid key {key}; see `kosmos-rag api-key list -t {tenant}`")


@app.command("rotate")
@command
def rotate(
    key: KeyArgument,
    overlap: Annotated[
        float,
        typer.Option("--overlap", metavar="SECONDS", min=0, max=31_536_000, help="How long the old key stays valid."),
    ] = 0,
    *,
    common: TenantOptions,
) -> None:
    """Replace a key by one with the same properties, and print it."""
    key_id = _id(key)
    with common.open_tenant() as tenant:
        key_text = tenant.api_keys.rotate(key_id, overlap=timedelta(seconds=overlap))
    if key_text is None:
        raise _no_valid_key(common.tenant, key)
    if common.as_json:
        print_json({"tenant": common.tenant, "key": key_text, "rotated": str(key_id)})
    else:
        typer.echo(key_text)


@app.command("revoke")
@command
def revoke(key: KeyArgument, *, common: TenantOptions) -> None:
    """Revoke a key: services refuse it within service.key_cache_s seconds."""
    key_id = _id(key)
    with common.open_tenant() as tenant:
        if not tenant.api_keys.revoke(key_id):
            raise _no_valid_key(common.tenant, key)
    if common.as_json:
        print_json({"tenant": common.tenant, "revoked": str(key_id)})
    else:
        console().print(f"revoked {key_id}")
