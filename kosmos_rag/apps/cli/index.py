"""kosmos-rag index: look after the indexes of a tenant."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import (
    console,
    plain,
    print_json,
    table,
)
from kosmos_rag.apps.cli.options import TenantOptions, command

if TYPE_CHECKING:
    from kosmos_rag.core.types import IndexInfo
    from kosmos_rag.engine.tenant import Tenant

app = typer.Typer(help="Look after a tenant's indexes: what there is, what is due, and building it.")


@app.command("status")
@command
def status(*, common: TenantOptions) -> None:
    """Show the indexes, how they are, and what is due."""
    _run(lambda scope, _: scope.indexes.status(), common)


@app.command("build")
@command
def build(*, common: TenantOptions) -> None:
    """Build what is due. Safe to run at any time, beside questions and ingestion; run it by the clock."""
    _run(lambda scope, tell: scope.indexes.build(tell), common)


@app.command("tune")
@command
def tune(*, common: TenantOptions) -> None:
    """Measure the vector index, and search it as far as indexes.recall_target asks."""
    _run(lambda scope, tell: scope.indexes.tune(tell), common)


@app.command("rebuild")
@command
def rebuild(*, common: TenantOptions) -> None:
    """Build all indexes again, whether due or not; the old ones serve until the new are ready."""
    _run(lambda scope, tell: scope.indexes.rebuild(tell), common)


@app.command("log")
@command
def log(
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many steps, the latest first.")] = 20,
    *,
    common: TenantOptions,
) -> None:
    """Show what was done to the vector indexes, and why."""
    with common.open_tenant() as owner:
        steps = owner.indexes.log(limit)
    if common.as_json:
        print_json({"tenant": common.tenant, "steps": [plain(step) for step in steps]})
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
    common: TenantOptions,
) -> None:
    with common.open_tenant() as owner:
        found = action(owner, None if common.as_json else lambda step: typer.echo(f"{step} …", err=True))
    if common.as_json:
        print_json({"tenant": common.tenant, "indexes": [asdict(info) for info in found]})
    else:
        _print(found)


def _print(found: "Sequence[IndexInfo]") -> None:
    if not found:
        console().print("no documents, and so no indexes")
        return
    columns = ("index", "of", "state", "rows", "now", "MB", "searched", "recall@10", "p50 ms", "due")
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
