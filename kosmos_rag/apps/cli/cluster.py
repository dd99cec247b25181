"""kosmos-rag cluster: the nodes of Citus, and the tenants on them."""

from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json, table
from kosmos_rag.apps.cli.options import CommonOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.config import Settings
    from kosmos_rag.engine.administration import ShardMove

app = typer.Typer(help="Show the nodes of a Citus cluster; move and isolate tenants.")

_Tenant = Annotated[str, typer.Option("--tenant", "-t", help="Name of the tenant.")]
_Limit = Annotated[
    float, typer.Option("--limit-s", min=1, help="Time limit in seconds. Writes wait no longer than this.")
]


@app.command("status")
@command
def status(
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Show its node and shard too.")] = None,
    *,
    common: CommonOptions,
) -> None:
    """Show the nodes that hold tenants, and where a tenant is."""
    admin = _administrator(common.load_settings())
    from kosmos_rag.engine.administration import CitusCluster, tenant_ref

    nodes = CitusCluster(admin).list_nodes()
    placement = None if tenant is None else CitusCluster(admin).find_tenant(tenant_ref(tenant))
    if common.as_json:
        where = {} if placement is None else {"tenant": placement.to_dict()}
        print_json({"nodes": [node.to_dict() for node in nodes], **where})
        return
    rows = table("node", "address", "state", "shards", "MB", right={"node", "shards", "MB"})
    for node in nodes:
        size = "" if node.bytes is None else f"{node.bytes / 1e6:,.0f}"
        rows.add_row(str(node.id), node.address, "up" if node.available else "DOWN", str(node.shards), size)
    console().print(rows)
    if placement is not None:
        alone = ", which no other tenant shares" if placement.isolated else ""
        typer.echo(f"{tenant} is on node {placement.node} in shard {placement.shard}{alone}")


@app.command("move")
@command
def move(
    tenant: _Tenant,
    to: Annotated[int, typer.Option("--to", metavar="NODE", help="Number of the node, as in `cluster status`.")],
    limit_s: _Limit = 60.0,
    *,
    common: CommonOptions,
) -> None:
    """Move the shard of a tenant to another node.

    All tenants in it move. Questions continue. Writes to these tenants, and others that begin meanwhile, wait for it.
    """
    admin = _administrator(common.load_settings())
    from kosmos_rag.engine.administration import CitusCluster, tenant_ref

    shard_move = CitusCluster(admin).move_tenant(tenant_ref(tenant), to, limit_s=limit_s)
    _print(shard_move, f"{tenant} is on node {shard_move.target} now, and was on node {shard_move.source}", common)


@app.command("isolate")
@command
def isolate(tenant: _Tenant, limit_s: _Limit = 60.0, *, common: CommonOptions) -> None:
    """Give a tenant a shard of its own.

    It can be moved alone then. Questions continue. Writes to the tenants of its old shard wait until it is done.
    """
    admin = _administrator(common.load_settings())
    from kosmos_rag.engine.administration import CitusCluster, tenant_ref

    shard_move = CitusCluster(admin).isolate_tenant(tenant_ref(tenant), limit_s=limit_s)
    _print(shard_move, f"{tenant} has the shard {shard_move.shard} to itself now", common)


def _print(move: "ShardMove", sentence: str, common: CommonOptions) -> None:
    if common.as_json:
        print_json(move.to_dict())
    else:
        typer.echo(f"{sentence}; writes waited for up to {move.seconds:.1f} s")


def _administrator(settings: "Settings") -> str:
    from kosmos_rag.engine.administration import resolve_addresses

    admin = resolve_addresses(settings.database).admin
    if admin is None:
        raise RequestError("database.admin_url is not set, and a cluster is managed by a superuser of the coordinator")
    return admin
