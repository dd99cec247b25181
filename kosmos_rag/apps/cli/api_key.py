"""kosmos-rag key: keys to the service."""

import uuid
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import (
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
        raise RequestError(f"{key!r} is no id of a key; `kosmos-rag key list` shows them") from error


def _no_good_key(tenant: str, key: str) -> RequestError:
    return RequestError(f"tenant {tenant} has no good key {key}; see `kosmos-rag key list -t {tenant}`")


@app.command("rotate")
def rotate(
    key: KeyArgument,
    overlap: Annotated[
        float,
        typer.Option("--overlap", metavar="SECONDS", min=0, max=31_536_000, help="So long is the old one still good."),
    ] = 0,
    tenant: TenantOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key of the same name, scopes and principals, and print it this once; the old one ends."""
    with reported(as_json=as_json):
        key_id = _id(key)
        with opened(config, set_) as engine:
            made = _keys(engine).rotate(_named(tenant), key_id, overlap=timedelta(seconds=overlap))
        if made is None:
            raise _no_good_key(tenant, key)
    if as_json:
        print_json({"tenant": tenant, "key": made, "rotated": str(key_id)})
    else:
        typer.echo(made)


@app.command("revoke")
def revoke(
    key: KeyArgument,
    tenant: TenantOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key useless, from the next request on."""
    with reported(as_json=as_json):
        key_id = _id(key)
        with opened(config, set_) as engine:
            if not _keys(engine).revoke(_named(tenant), key_id):
                raise _no_good_key(tenant, key)
    if as_json:
        print_json({"tenant": tenant, "revoked": str(key_id)})
    else:
        console().print(f"revoked {key_id}")
