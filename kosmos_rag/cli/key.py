"""kosmos-rag key: keys to the service."""

import uuid
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.cli.common import (
    ConfigOption,
    JsonOption,
    SetOption,
    TenantOption,
    console,
    not_blank,
    opened,
    print_json,
    reported,
)
from kosmos_rag.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.engine import Engine
    from kosmos_rag.service.keys import ApiKeys
    from kosmos_rag.storage.tenancy import Tenant

app = typer.Typer(help="Make, list and revoke a tenant's keys to the service.")


def _keys(engine: "Engine") -> "ApiKeys":
    from kosmos_rag.service.keys import ApiKeys

    return ApiKeys(engine.parts.database)


def _named(tenant: str) -> "Tenant":
    from kosmos_rag.storage.tenancy import tenant as named

    return named(tenant)


@app.command("create")
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
    tenant: TenantOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it: it is shown this once."""
    with reported(as_json=as_json):
        held = not_blank(principal, "--principal", remedy="name a principal, --principal department:sales")
        expires_at = datetime.now(UTC) + timedelta(days=days) if days else None
        with opened(config, set_) as engine:
            made = _keys(engine).create(
                _named(tenant), name, scopes=scope or ["read"], principals=held, expires_at=expires_at
            )
    if as_json:
        print_json({"tenant": tenant, "key": made})
    else:
        typer.echo(made)


@app.command("list")
def list_(
    tenant: TenantOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """List keys, without their secrets."""
    with reported(as_json=as_json), opened(config, set_) as engine:
        infos = _keys(engine).infos(_named(tenant))
    if as_json:
        print_json({"tenant": tenant, "keys": [asdict(info) for info in infos]})
        return
    for info in infos:
        state = "revoked" if info.revoked_at else "expired" if _past(info.expires_at) else "good"
        held = "".join(f" {name}" for name in info.principals)
        console().print(f"{info.id}  {state:<8} {','.join(info.scopes):<18} {info.name}{held}")


def _past(expires_at: datetime | None) -> bool:
    return expires_at is not None and expires_at <= datetime.now(UTC)


@app.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(help="Its id, as `key list` shows it.")],
    tenant: TenantOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key useless, from the next request on. To rotate one, make another first."""
    with reported(as_json=as_json):
        try:
            key_id = uuid.UUID(key)
        except ValueError as error:
            raise RequestError(f"{key!r} is no id of a key; `kosmos-rag key list` shows them") from error
        with opened(config, set_) as engine:
            if not _keys(engine).revoke(_named(tenant), key_id):
                raise RequestError(f"tenant {tenant} has no good key {key}; see `kosmos-rag key list -t {tenant}`")
    if as_json:
        print_json({"tenant": tenant, "revoked": str(key_id)})
    else:
        console().print(f"revoked {key_id}")
