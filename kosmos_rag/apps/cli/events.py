"""kosmos-rag events: record the events of a tenant, and list them."""

from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json, table
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.config.display import one_line

app = typer.Typer(help="Record events of documents and sources, and list them.")


@app.command("start")
@command
def start(*, common: TenantOptions) -> None:
    """Record the events of a tenant from now on."""
    with common.open_tenant() as owner:
        owner.events.start()
    _report(common, "recorded from now on", recording=True)


@app.command("stop")
@command
def stop(*, common: TenantOptions) -> None:
    """Record no more events of a tenant."""
    with common.open_tenant() as owner:
        owner.events.stop()
    _report(common, "not recorded any more", recording=False)


@app.command("list")
@command
def list_(
    after: Annotated[int | None, typer.Option("--after", min=0, help="Only events after this sequence number.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of rows.")] = 20,
    *,
    common: TenantOptions,
) -> None:
    """List events, the oldest first."""
    with common.open_tenant() as owner:
        events, position = owner.events.read(after, limit)
    if common.as_json:
        print_json({"events": [event.to_dict() for event in events], "next": position})
        return
    rows = table("sequence", "type", "collection", "document or source", "at", right={"sequence"})
    for event in events:
        subject = one_line(str(event.data.get("source") or event.data.get("document_id") or ""))
        rows.add_row(str(event.sequence), event.type, event.collection, subject, event.at.isoformat(timespec="seconds"))
    console().print(rows)


def _report(common: TenantOptions, text: str, *, recording: bool) -> None:
    if common.as_json:
        print_json({"tenant": common.tenant, "recording": recording})
    else:
        console().print(f"events of tenant {common.tenant} are {text}")
