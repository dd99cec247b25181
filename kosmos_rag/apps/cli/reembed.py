"""kosmos-rag embed: move a tenant to another embedding model, while its questions are answered."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import (
    console,
    print_json,
    progress,
    table,
)
from kosmos_rag.apps.cli.options import TenantOptions, command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kosmos_rag.core.types import SpaceInfo, SpaceQuality
    from kosmos_rag.engine.tenant import Tenant
    from kosmos_rag.indexing.reembedding.migration import Progress

app = typer.Typer(help="Move a tenant to the model of rag.next_embedding, or back, without downtime.")


class Engine(StrEnum):
    """Who embeds."""

    local = "local"
    ray = "ray"


@app.command("status")
@command
def status(*, common: TenantOptions) -> None:
    """Show the embedding spaces, and how far each has come."""
    _run(lambda scope, _: scope.spaces.status(), common)


@app.command("start")
@command
def start(
    chunks_per_second: Annotated[
        float | None, typer.Option("--chunks-per-second", metavar="N", help="Embed no faster than this.")
    ] = None,
    engine: Annotated[Engine, typer.Option(help="This process, or the workers of a Ray cluster.")] = Engine.local,
    *,
    common: TenantOptions,
) -> None:
    """Embed all chunks by the other model, beside the live space. Go on with it where it was interrupted."""
    _run(
        lambda scope, tell: scope.spaces.start(
            chunks_per_second=chunks_per_second, engine=engine.value, on_progress=tell
        ),
        common,
    )


@app.command("switch")
@command
def switch(
    questions: Annotated[
        Path | None, typer.Option("--questions", metavar="FILE", help="Compare both models by this evaluation set.")
    ] = None,
    force: Annotated[
        str | None, typer.Option("--force", metavar="REASON", help="Switch whatever is measured, and say why.")
    ] = None,
    *,
    common: TenantOptions,
) -> None:
    """Answer questions from the other model's space, if it is complete and measured to be good enough."""
    with common.open_engine() as running, progress(shown=not common.as_json) as tell:
        quality = running.tenant(common.tenant).spaces.switch(questions=questions, force=force, on_progress=tell)
    if common.as_json:
        print_json({"tenant": common.tenant, "switched": asdict(quality)})
    else:
        _print_quality(quality)


@app.command("rollback")
@command
def rollback(*, common: TenantOptions) -> None:
    """Answer questions from the space that was live before."""
    _run(lambda scope, _: scope.spaces.rollback(), common)


@app.command("drop")
@command
def drop(
    space: Annotated[str, typer.Argument(metavar="SPACE", help="Model or id of a space that is not live.")],
    *,
    common: TenantOptions,
) -> None:
    """Remove a space that is not live, with its vectors and its index. What was interrupted goes on."""
    _run(lambda scope, tell: scope.spaces.drop(space, tell), common)


def _run(
    action: "Callable[[Tenant, Progress | None], Sequence[SpaceInfo]]",
    common: TenantOptions,
) -> None:
    with common.open_tenant() as owner, progress(shown=not common.as_json) as tell:
        found = action(owner, tell)
    if common.as_json:
        print_json({"tenant": common.tenant, "spaces": [asdict(info) for info in found]})
    else:
        _print(found)


def _print(found: "Sequence[SpaceInfo]") -> None:
    if not found:
        console().print("no documents, and so no embedding spaces")
        return
    right = ("dimensions", "embedded", "chunks", "truncated", "recall@10")
    columns = ("model", "dimensions", "state", "live", "embedded", "chunks", "truncated", "index", "recall@10", "id")
    rows = table(*columns, right=right)
    for info in found:
        rows.add_row(
            info.model,
            str(info.dimensions),
            info.state,
            "live" if info.live else "",
            f"{info.embedded:,}",
            f"{info.chunks:,}",
            f"{info.truncated_tokens:,}",
            info.index or "",
            "" if info.recall_at_10 is None else str(info.recall_at_10),
            str(info.id),
        )
    console().print(rows)


def _print_quality(quality: "SpaceQuality") -> None:
    out = console()
    out.print(f"questions are answered by {quality.model}, {quality.live_model} before")
    if quality.recall_at_10 is not None:
        out.print(f"  recall@10 of its index {quality.recall_at_10}, target {quality.recall_target}")
    if quality.ndcg_at_10 is not None:
        before = f"{quality.live_ndcg_at_10:.3f} before"
        out.print(f"  nDCG@10 over {quality.questions} questions {quality.ndcg_at_10:.3f}, {before}")
    if quality.forced is not None:
        out.print(f"  forced: {quality.forced}")
