"""kosmos-rag api-key: keys to the service."""

import uuid
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import (
    console,
    not_blank,
    print_json,
)
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.apps.auth.api_keys import ApiKeys
    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.storage.tenants import TenantRef

KeyArgument = Annotated[str, typer.Argument(help="Its id, as `key list` shows it.")]

app = typer.Typer(help="Make, list, rotate and revoke a tenant's keys to the service.")


def _keys(engine: "Engine") -> "ApiKeys":
    from kosmos_rag.apps.auth.api_keys import ApiKeys

    return ApiKeys(engine.parts.database)


def _named(tenant: str) -> "TenantRef":
    from kosmos_rag.storage.tenants import tenant as named

    return named(tenant)


@app.command("create")
@command
def create(
    name: Annotated[str, typer.Argument(help="Whose it is, for people and for the log.")],
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="read, ingest or admin; may be repeated; else read.")
    ] = None,
    principal: Annotated[
        list[str] | None,
        typer.Option("--principal", metavar="NAME", help="What its holder is beside everyone: department:hr."),
    ] = None,
    days: Annotated[int | None, typer.Option("--days", min=1, max=36500, help="Days that it is good for.")] = None,
    *,
    common: TenantOptions,
) -> None:
    """Make a key and print it: it is shown this once."""
    held = not_blank(principal, "--principal", remedy="name a principal, --principal department:sales")
    expires_at = datetime.now(UTC) + timedelta(days=days) if days else None
    with common.open_engine() as engine:
        made = _keys(engine).create(
            _named(common.tenant), name, scopes=scope or ["read"], principals=held, expires_at=expires_at
        )
    if common.as_json:
        print_json({"tenant": common.tenant, "key": made})
    else:
        typer.echo(made)


@app.command("list")
@command
def list_(*, common: TenantOptions) -> None:
    """List keys, without their secrets."""
    with common.open_engine() as engine:
        infos = _keys(engine).infos(_named(common.tenant))
    if common.as_json:
        print_json({"tenant": common.tenant, "keys": [asdict(info) for info in infos]})
        return
    for info in infos:
        state = "revoked" if _past(info.revoked_at) else "expired" if _past(info.expires_at) else "good"
        if state == "good" and info.revoked_at:
            state = "ending"
        held = "".join(f" {name}" for name in info.principals)
        console().print(f"{info.id}  {state:<8} {','.join(info.scopes):<18} {info.name}{held}")


def _past(time: datetime | None) -> bool:
    return time is not None and time <= datetime.now(UTC)


def _id(key: str) -> uuid.UUID:
    try:
        return uuid.UUID(key)
    except ValueError as error:
        raise RequestError(f"{key!r} is no id of a key; `kosmos-rag api-key list` shows them") from error


def _no_good_key(tenant: str, key: str) -> RequestError:
    return RequestError(f"tenant {tenant} has no good key {key}; see `kosmos-rag api-key list -t {tenant}`")


@app.command("rotate")
@command
def rotate(
    key: KeyArgument,
    overlap: Annotated[
        float,
        typer.Option("--overlap", metavar="SECONDS", min=0, max=31_536_000, help="So long is the old one still good."),
    ] = 0,
    *,
    common: TenantOptions,
) -> None:
    """Make a key of the same name, scopes and principals, and print it this once; the old one ends."""
    key_id = _id(key)
    with common.open_engine() as engine:
        made = _keys(engine).rotate(_named(common.tenant), key_id, overlap=timedelta(seconds=overlap))
    if made is None:
        raise _no_good_key(common.tenant, key)
    if common.as_json:
        print_json({"tenant": common.tenant, "key": made, "rotated": str(key_id)})
    else:
        typer.echo(made)


@app.command("revoke")
@command
def revoke(key: KeyArgument, *, common: TenantOptions) -> None:
    """Make a key useless, from the next request on."""
    key_id = _id(key)
    with common.open_engine() as engine:
        if not _keys(engine).revoke(_named(common.tenant), key_id):
            raise _no_good_key(common.tenant, key)
    if common.as_json:
        print_json({"tenant": common.tenant, "revoked": str(key_id)})
    else:
        console().print(f"revoked {key_id}")
