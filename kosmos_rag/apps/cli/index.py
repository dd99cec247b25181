"""kosmos-rag index: status, maintenance and log of a tenant's indexes."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import (
    console,
    cut,
    print_json,
    print_truncated,
    table,
)
from kosmos_rag.apps.cli.options import TenantOptions, command

if TYPE_CHECKING:
    from kosmos_rag.core.types import IndexInfo
    from kosmos_rag.engine.tenant import Tenant

app = typer.Typer(help="Show and maintain the indexes of a tenant.")


@app.command("status")
@command
def status(*, common: TenantOptions) -> None:
    """Show the indexes and their due maintenance."""
    _run(lambda tenant, _: tenant.indexes.status(), common)


@app.command("build")
@command
def build(*, common: TenantOptions) -> None:
    """Run all due maintenance; safe while queries and ingestion run."""
    _run(lambda tenant, report: tenant.indexes.build(report), common)


@app.command("tune")
@command
def tune(*, common: TenantOptions) -> None:
    """Tune the search setting of the vector index to indexes.recall_target."""
    _run(lambda tenant, report: tenant.indexes.tune(report), common)


@app.command("rebuild")
@command
def rebuild(*, common: TenantOptions) -> None:
    """Rebuild all indexes.

    Queries use the old ones until the new ones are ready.
    """
    _run(lambda tenant, report: tenant.indexes.rebuild(report), common)


@app.command("warm")
@command
def warm(*, common: TenantOptions) -> None:
    """Read the indexes into memory, by searches for stored words."""
    with common.open_tenant() as owner:
        report = owner.indexes.warm(common.on_step)
    if common.as_json:
        print_json({"tenant": common.tenant, **report.to_dict()})
    elif report.searches:
        console().print(f"{report.searches} searches: the first {report.first_ms} ms, the last {report.last_ms} ms")
    else:
        console().print("no documents, and so no indexes")


@app.command("log")
@command
def log(
    limit: Annotated[int, typer.Option("--limit", min=1, help="Number of events, the newest first.")] = 20,
    *,
    common: TenantOptions,
) -> None:
    """Show the changes to the vector indexes with their reasons."""
    with common.open_tenant() as owner:
        events, truncated = cut(owner.indexes.log(limit + 1), limit)
    if common.as_json:
        print_json({"tenant": common.tenant, "events": [event.to_dict() for event in events], "truncated": truncated})
        return
    rows = table("at", "action", "before", "after", "reason")
    for event in events:
        before, after = _settings(event.before), _settings(event.after)
        rows.add_row(f"{event.at:%Y-%m-%d %H:%M:%S}", event.action, before, after, event.reason)
    console().print(rows if events else "no vector index was changed")
    if truncated:
        print_truncated(limit)


def _settings(index: Mapping[str, Any]) -> str:
    fields = {name: index[name] for name in ("kind", "probes", "ef_search", "recall_at_10") if name in index}
    kind = fields.pop("kind", "")
    return " ".join([kind, *(f"{name} {value}" for name, value in fields.items())]).strip()


def _run(
    action: "Callable[[Tenant, Callable[[str], None] | None], Sequence[IndexInfo]]",
    common: TenantOptions,
) -> None:
    with common.open_tenant() as owner:
        infos = action(owner, common.on_step)
    if common.as_json:
        print_json({"tenant": common.tenant, "indexes": [info.to_dict() for info in infos]})
    else:
        _print(infos)


def _print(infos: "Sequence[IndexInfo]") -> None:
    if not infos:
        console().print("no documents, and so no indexes")
        return
    columns = ("index", "of", "state", "rows", "now", "MB", "searched", "recall@10", "p50 ms", "due")
    rows = table(*columns, right={"rows", "now", "MB", "recall@10", "p50 ms"})
    for info in infos:
        rows.add_row(*_row(info))
    console().print(rows)


def _row(info: "IndexInfo") -> list[str]:
    def health_value(name: str) -> str:
        value: Any = info.health.get(name)
        return "" if value is None else str(value)

    search_setting = next(
        (f"{name} {info.settings[name]}" for name in ("probes", "ef_search") if name in info.settings), ""
    )
    if info.kind == "known items":
        search_setting = "; ".join(
            f"{language}: {health['dense']:.2f} by vectors, {health['lexical']:.2f} by words"
            for language, health in info.health.items()
        )
    return [
        info.kind,
        info.collection or "vectors",
        info.state,
        f"{info.rows:,}",
        f"{info.rows_now:,}",
        f"{info.bytes / 1e6:.1f}" if info.bytes else "",
        search_setting,
        health_value("recall_at_10"),
        health_value("p50_ms"),
        info.due or "",
    ]
