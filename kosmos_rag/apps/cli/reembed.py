"""kosmos-rag reembed: migrate a tenant to another embedding model.

Queries are answered meanwhile.
"""

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
from kosmos_rag.apps.cli.wings import compare_spaces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kosmos_rag.core.types import SpaceInfo, SpaceQuality
    from kosmos_rag.engine.spaces import Progress
    from kosmos_rag.engine.tenant import Tenant

app = typer.Typer(help="Migrate a tenant to the model of rag.next_embedding, or back, without downtime.")


class BackfillEngine(StrEnum):
    """Where the backfill runs."""

    local = "local"
    ray = "ray"


@app.command("status")
@command
def status(*, common: TenantOptions) -> None:
    """Show the embedding spaces, and how many chunks each has embedded."""
    _run(lambda tenant, _: tenant.spaces.status(), common)


@app.command("start")
@command
def start(
    chunks_per_second: Annotated[
        float | None, typer.Option("--chunks-per-second", metavar="N", help="Rate limit.")
    ] = None,
    engine: Annotated[
        BackfillEngine, typer.Option(help="This process, or the workers of a Ray cluster.")
    ] = BackfillEngine.local,
    *,
    common: TenantOptions,
) -> None:
    """Embed all chunks with the other model into a second space.

    Continue after an interruption.
    """
    _run(
        lambda tenant, report: tenant.spaces.start(
            chunks_per_second=chunks_per_second, engine=engine.value, on_progress=report
        ),
        common,
    )


@app.command("cutover")
@command
def cutover(
    questions: Annotated[
        Path | None, typer.Option("--questions", metavar="FILE", help="Compare both models with this question file.")
    ] = None,
    force: Annotated[
        str | None,
        typer.Option("--force", metavar="REASON", help="Reason to cut over although recall or quality is too low."),
    ] = None,
    *,
    common: TenantOptions,
) -> None:
    """Answer queries from the space of the other model.

    The space must be complete and good enough.
    """
    with common.open_engine() as running, progress(visible=not common.as_json) as report:
        tenant = running.tenant(common.tenant)
        measure = None if questions is None else compare_spaces(tenant, questions, report)
        quality = tenant.spaces.cutover(measure=measure, force=force, on_progress=report)
    if common.as_json:
        print_json({"tenant": common.tenant, "quality": quality.to_dict()})
    else:
        _print_quality(quality)


@app.command("rollback")
@command
def rollback(*, common: TenantOptions) -> None:
    """Answer queries from the space that was live before."""
    _run(lambda tenant, _: tenant.spaces.rollback(), common)


@app.command("drop")
@command
def drop(
    space: Annotated[str, typer.Argument(metavar="SPACE", help="Model or id of a space that is not live.")],
    *,
    common: TenantOptions,
) -> None:
    """Drop a space that is not live.

    Deletes its vectors and its index; continues after an interruption.
    """
    _run(lambda tenant, report: tenant.spaces.drop(space, report), common)


def _run(
    action: "Callable[[Tenant, Progress | None], Sequence[SpaceInfo]]",
    common: TenantOptions,
) -> None:
    with common.open_tenant() as tenant, progress(visible=not common.as_json) as report:
        spaces = action(tenant, report)
    if common.as_json:
        print_json({"tenant": common.tenant, "spaces": [info.to_dict() for info in spaces]})
    else:
        _print(spaces)


def _print(spaces: "Sequence[SpaceInfo]") -> None:
    if not spaces:
        console().print("no documents, and so no embedding spaces")
        return
    right = ("dimensions", "embedded", "chunks", "truncated", "recall@10")
    columns = ("model", "dimensions", "state", "live", "embedded", "chunks", "truncated", "index", "recall@10", "id")
    rows = table(*columns, right=right)
    for info in spaces:
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
    out.print(f"queries are answered by {quality.model}, {quality.live_model} before")
    if quality.recall_at_10 is not None:
        out.print(f"  recall@10 of its index {quality.recall_at_10}, target {quality.recall_target}")
    if quality.ndcg_at_10 is not None:
        before = f"{quality.live_ndcg_at_10:.3f} before"
        out.print(f"  nDCG@10 over {quality.questions} questions {quality.ndcg_at_10:.3f}, {before}")
    if quality.forced is not None:
        out.print(f"  forced: {quality.forced}")
