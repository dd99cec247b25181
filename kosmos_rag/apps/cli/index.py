"""kosmos-rag index: look after the indexes of a tenant."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import (
    ConfigOption,
    JsonOption,
    SetOption,
    TenantOption,
    console,
    opened,
    plain,
    print_json,
    reported,
    table,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kosmos_rag.core.types import IndexInfo
    from kosmos_rag.engine.tenant import Tenant

app = typer.Typer(help="Look after a tenant's indexes: what there is, what is due, and building it.")


@app.command("status")
def status(
    tenant: TenantOption = "default", config: ConfigOption = None, set_: SetOption = None, as_json: JsonOption = False
) -> None:
    """Show the indexes, how they are, and what is due."""
    _run(lambda scope, _: scope.indexes.status(), tenant, config, set_, as_json=as_json)


@app.command("build")
def build(
    tenant: TenantOption = "default", config: ConfigOption = None, set_: SetOption = None, as_json: JsonOption = False
) -> None:
    """Build what is due. Safe to run at any time, beside questions and ingestion; run it by the clock."""
    _run(lambda scope, tell: scope.indexes.build(tell), tenant, config, set_, as_json=as_json)


@app.command("tune")
def tune(
    tenant: TenantOption = "default", config: ConfigOption = None, set_: SetOption = None, as_json: JsonOption = False
) -> None:
    """Measure the vector index, and search it as far as indexes.recall_target asks."""
    _run(lambda scope, tell: scope.indexes.tune(tell), tenant, config, set_, as_json=as_json)


@app.command("rebuild")
def rebuild(
    tenant: TenantOption = "default", config: ConfigOption = None, set_: SetOption = None, as_json: JsonOption = False
) -> None:
    """Build all indexes again, whether due or not; the old ones serve until the new are ready."""
    _run(lambda scope, tell: scope.indexes.rebuild(tell), tenant, config, set_, as_json=as_json)


@app.command("log")
def log(
    tenant: TenantOption = "default",
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many steps, the latest first.")] = 20,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what was done to the vector indexes, and why."""
    with reported(as_json=as_json), opened(config, set_) as engine:
        steps = engine.tenant(tenant).indexes.log(limit)
    if as_json:
        print_json({"tenant": tenant, "steps": [plain(step) for step in steps]})
        return
    shown = table("at", "action", "before", "after", "reason")
    for step in steps:
        shown.add_row(f"{step.at:%Y-%m-%d %H:%M:%S}", step.action, _how(step.before), _how(step.after), step.reason)
    console().print(shown if steps else "nothing was done to vector indexes")


def _how(index: Mapping[str, Any]) -> str:
    named = {name: index[name] for name in ("kind", "probes", "ef_search", "recall_at_10") if name in index}
    kind = named.pop("kind", "")
    return " ".join([kind, *(f"{name} {value}" for name, value in named.items())]).strip()


def _run(
    action: "Callable[[Tenant, Callable[[str], None] | None], Sequence[IndexInfo]]",
    tenant: str,
    config: "Path | None",
    set_: list[str] | None,
    *,
    as_json: bool,
) -> None:
    with reported(as_json=as_json), opened(config, set_) as engine:
        found = action(engine.tenant(tenant), None if as_json else lambda step: typer.echo(f"{step} …", err=True))
    if as_json:
        print_json({"tenant": tenant, "indexes": [asdict(info) for info in found]})
    else:
        _print(found)


def _print(found: "Sequence[IndexInfo]") -> None:
    if not found:
        console().print("no documents, and so no indexes")
        return
    columns = ("index", "of", "state", "rows", "now", "MB", "search_query", "recall@10", "p50 ms", "due")
    rows = table(*columns, right={"rows", "now", "MB", "recall@10", "p50 ms"})
    for info in found:
        rows.add_row(*_row(info))
    console().print(rows)


def _row(info: "IndexInfo") -> list[str]:
    def measured(name: str) -> str:
        value: Any = info.health.get(name)
        return "" if value is None else str(value)

    searched = next((f"{name} {info.settings[name]}" for name in ("probes", "ef_search") if name in info.settings), "")
    return [
        info.kind,
        info.collection or "vectors",
        info.state,
        f"{info.rows:,}",
        f"{info.rows_now:,}",
        f"{info.bytes / 1e6:.1f}" if info.bytes else "",
        searched,
        measured("recall_at_10"),
        measured("p50_ms"),
        info.due or "",
    ]
