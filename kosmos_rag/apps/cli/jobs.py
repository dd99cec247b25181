"""kosmos-rag jobs: list, show, retry and cancel jobs."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import (
    console,
    cut,
    print_json,
    print_truncated,
    table,
)
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.types import JobInfo, RunInfo

app = typer.Typer(help="List, show, retry and cancel the jobs of a tenant.")


def _parse_job_id(text: str) -> uuid.UUID:
    """Return the id of a job. Raises BadParameter for other text."""
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not an id of a job; `kosmos-rag jobs list` shows ids") from error


IdArguments = Annotated[list[uuid.UUID], typer.Argument(metavar="JOB...", help="Ids of jobs.", parser=_parse_job_id)]
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of rows, the newest first.")
]


@app.command("list")
@command
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only jobs in this state, such as dead; may be repeated.")
    ] = None,
    before: Annotated[
        uuid.UUID | None,
        typer.Option("--before", metavar="JOB", help="Only jobs older than this one.", parser=_parse_job_id),
    ] = None,
    limit: LimitOption = 20,
    *,
    common: TenantOptions,
) -> None:
    """List jobs, the newest first."""
    from kosmos_rag.core.types import JobState

    names = [str(value) for value in JobState]
    if unknown := [name for name in state or () if name not in names]:
        raise RequestError(f"--state {unknown[0]!r} is not a state of a job; use one of {', '.join(names)}")
    with common.open_tenant() as owner:
        states = [JobState(name) for name in state] if state else None
        rows, truncated = cut(owner.jobs.find(states=states, before=before, limit=limit + 1), limit)
        unclaimed = owner.jobs.count_unclaimed()
    if common.as_json:
        following = str(rows[-1].id) if truncated else None
        print_json({"jobs": [info.to_dict() for info in rows], "next": following, "unclaimed": unclaimed})
        return
    _print_jobs(rows)
    if unclaimed:
        console().print(f"no worker runs, and due jobs wait for one: {unclaimed:,}; start it with kosmos-rag worker")
    if truncated:
        print_truncated(limit, f"--before {rows[-1].id}")


@app.command("show")
@command
def show(
    job: Annotated[uuid.UUID, typer.Argument(metavar="JOB", help="Id of a job.", parser=_parse_job_id)],
    *,
    common: TenantOptions,
) -> None:
    """Show a job with all its fields."""
    with common.open_tenant() as owner:
        rows = owner.jobs.find(ids=[job])
    if not rows:
        raise RequestError(
            f"tenant {common.tenant} has no job {job}; `kosmos-rag jobs list -t {common.tenant}` lists its jobs"
        )
    if common.as_json:
        print_json(rows[0].to_dict())
    else:
        for name, value in rows[0].to_dict().items():
            if value is not None:
                console().print(f"{name:<12} {value}")


@app.command("retry")
@command
def retry(
    jobs: Annotated[
        list[uuid.UUID] | None, typer.Argument(metavar="[JOB...]", help="Ids of jobs.", parser=_parse_job_id)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All dead jobs of the tenant.")] = False,
    *,
    common: TenantOptions,
) -> None:
    """Queue dead and cancelled jobs again."""
    if bool(jobs) == all_:
        raise RequestError("name the jobs to retry, or use --all without an id")
    with common.open_tenant() as owner:
        job_ids = owner.jobs.retry(None if all_ else jobs)
    _print_ids("queued again", job_ids, as_json=common.as_json)


@app.command("cancel")
@command
def cancel(jobs: IdArguments, *, common: TenantOptions) -> None:
    """Cancel jobs; results of running ones are not written."""
    with common.open_tenant() as owner:
        job_ids = owner.jobs.cancel(jobs)
    _print_ids("cancelled", job_ids, as_json=common.as_json)


@app.command("runs")
@command
def runs(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only this run, with its failures.")] = None,
    limit: LimitOption = 20,
    *,
    common: TenantOptions,
) -> None:
    """List the sync runs of sources.

    seen = new + changed + unchanged + removed + failed + cancelled.
    """
    with common.open_tenant() as owner:
        rows, truncated = cut(owner.jobs.runs(run_id=_parse_run_id(run), limit=limit + 1), limit)
        unreadable = [] if run else owner.list_unreadable()
    if run is not None and not rows:
        raise RequestError(
            f"tenant {common.tenant} has no run {run}; `kosmos-rag jobs runs -t {common.tenant}` lists them"
        )
    if common.as_json:
        warnings = [entry.to_dict() for entry in unreadable]
        print_json({"runs": [info.to_dict() for info in rows], "truncated": truncated, "unreadable": warnings})
        return
    _print_runs(rows, failures=run is not None)
    for entry in unreadable:
        console().print(one_line(entry.describe()), style="yellow")
    if truncated:
        print_truncated(limit)


def _parse_run_id(text: str | None) -> uuid.UUID | None:
    try:
        return None if text is None else uuid.UUID(text)
    except ValueError as error:
        raise RequestError(f"{text!r} is not an id of a run; `kosmos-rag jobs runs` lists them") from error


def _print_ids(label: str, ids: Sequence[uuid.UUID], *, as_json: bool) -> None:
    if as_json:
        print_json({"jobs": list(ids)})
    else:
        console().print(f"{label}: {', '.join(map(str, ids)) or 'none'}")


def _print_jobs(rows: "Sequence[JobInfo]") -> None:
    output = table("job", "state", "kind", "collection", "attempt", "subject", "error")
    for info in rows:
        error = f"[{info.code}] {info.error}" if info.code else ""
        cells = (str(info.id), str(info.state), info.kind, info.collection, str(info.attempt), _subject(info), error)
        output.add_row(*cells)
    console().print(output)


def _subject(info: "JobInfo") -> str:
    subject = info.payload.get("entry") or info.payload.get("document") or info.payload.get("spec") or {}
    return one_line(str(subject.get("source") or subject.get("path") or subject.get("kind") or ""))


def _print_runs(rows: "Sequence[RunInfo]", *, failures: bool) -> None:
    columns = ("seen", "new", "changed", "unchanged", "removed", "failed", "cancelled", "chunks")
    output = table("run", "state", "source", *columns, "started", right=columns)
    for info in rows:
        source = one_line(str(info.source.get("path") or info.source.get("kind") or ""))
        counts = (str(getattr(info, name)) for name in columns)
        output.add_row(str(info.id), info.state, source, *counts, info.started_at.isoformat(timespec="seconds"))
    console().print(output)
    if failures:
        for info in rows:
            for failure in info.failures:
                console().print(f"  failed [{failure.code}] {one_line(failure.source)}: {failure.message}")
            if info.failed > len(info.failures):
                console().print(f"  and {info.failed - len(info.failures)} more, whose errors are not kept here")
