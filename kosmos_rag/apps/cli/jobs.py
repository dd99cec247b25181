"""kosmos-rag jobs: look at the queue, try again, call off."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import (
    console,
    plain,
    print_json,
    shown,
    table,
)
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.types import JobInfo, RunInfo

app = typer.Typer(help="Look at the jobs of a tenant, try failed ones again, call off those that wait or run.")

_HIGHEST = 2**63 - 1
"""Of numbers of jobs."""
IdArguments = Annotated[list[int], typer.Argument(metavar="JOB...", max=_HIGHEST, help="Numbers of jobs.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many, the newest first.")]


@app.command("list")
@command
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only those in this state, such as dead; may be repeated.")
    ] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="JOB", max=_HIGHEST, help="Only those older than this one.")
    ] = None,
    limit: LimitOption = 20,
    *,
    common: TenantOptions,
) -> None:
    """List jobs, the newest first."""
    from kosmos_rag.core.types import JobState

    known = [str(known) for known in JobState]
    if wrong := [name for name in state or () if name not in known]:
        raise RequestError(f"--state {wrong[0]!r} is no state of a job; use one of {', '.join(known)}")
    with common.open_tenant() as owner:
        states = [JobState(name) for name in state] if state else None
        found = owner.jobs.find(states=states, before=before, limit=limit)
    if common.as_json:
        print_json({"jobs": [plain(info) for info in found]})
    else:
        _print_jobs(found)


@app.command("show")
@command
def show(
    job: Annotated[int, typer.Argument(metavar="JOB", max=_HIGHEST, help="Number of a job.")], *, common: TenantOptions
) -> None:
    """Show all that is known of a job."""
    with common.open_tenant() as owner:
        found = owner.jobs.find(ids=[job])
    if not found:
        raise RequestError(
            f"tenant {common.tenant} has no job {job}; `kosmos-rag jobs list -t {common.tenant}` shows those it has"
        )
    if common.as_json:
        print_json(plain(found[0]))
    else:
        for name, value in plain(found[0]).items():
            if value is not None:
                console().print(f"{name:<12} {value}")


@app.command("retry")
@command
def retry(
    jobs: Annotated[list[int] | None, typer.Argument(metavar="[JOB...]", max=_HIGHEST, help="Numbers of jobs.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All dead and cancelled ones of the tenant.")] = False,
    *,
    common: TenantOptions,
) -> None:
    """Put dead and cancelled jobs back into the queue."""
    if bool(jobs) == all_:
        raise RequestError("name the jobs to try again, or give --all and no number")
    with common.open_tenant() as owner:
        done = owner.jobs.retry(None if all_ else jobs)
    _tell("queued again", done, as_json=common.as_json)


@app.command("cancel")
@command
def cancel(jobs: IdArguments, *, common: TenantOptions) -> None:
    """Call jobs off, those too that run: their result is not written."""
    with common.open_tenant() as owner:
        done = owner.jobs.cancel(jobs)
    _tell("cancelled", done, as_json=common.as_json)


@app.command("runs")
@command
def runs(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only this one, with its failures.")] = None,
    limit: LimitOption = 20,
    *,
    common: TenantOptions,
) -> None:
    """List the passes over sources: seen = new + changed + unchanged + removed + failed."""
    with common.open_tenant() as owner:
        found = owner.jobs.runs(run_id=_run_id(run), limit=limit)
    if run is not None and not found:
        raise RequestError(
            f"tenant {common.tenant} has no run {run}; `kosmos-rag jobs runs -t {common.tenant}` lists them"
        )
    if common.as_json:
        print_json({"runs": [plain(info) for info in found]})
    else:
        _print_runs(found, failures=run is not None)


def _run_id(text: str | None) -> uuid.UUID | None:
    try:
        return None if text is None else uuid.UUID(text)
    except ValueError as error:
        raise RequestError(f"{text!r} is no id of a run; `kosmos-rag jobs runs` lists them") from error


def _tell(what: str, ids: Sequence[int], *, as_json: bool) -> None:
    if as_json:
        print_json({"jobs": list(ids)})
    else:
        console().print(f"{what}: {', '.join(map(str, ids)) or 'none'}")


def _print_jobs(found: "Sequence[JobInfo]") -> None:
    rows = table("job", "state", "kind", "collection", "attempt", "what", "error")
    for info in found:
        error = f"[{info.code}] {info.error}" if info.code else ""
        cells = (str(info.id), str(info.state), info.kind, info.collection, str(info.attempt), _what(info), error)
        rows.add_row(*cells)
    console().print(rows)


def _what(info: "JobInfo") -> str:
    told = info.payload.get("entry") or info.payload.get("document") or info.payload.get("spec") or {}
    return shown(str(told.get("source") or told.get("path") or told.get("kind") or ""))


def _print_runs(found: "Sequence[RunInfo]", *, failures: bool) -> None:
    columns = ("seen", "new", "changed", "unchanged", "removed", "failed", "chunks")
    rows = table("run", "state", "source", *columns, "started", right=columns)
    for info in found:
        source = shown(str(info.source.get("path") or info.source.get("kind") or ""))
        counts = (str(getattr(info, name)) for name in columns)
        rows.add_row(str(info.id), info.state, source, *counts, info.started_at.isoformat(timespec="seconds"))
    console().print(rows)
    if failures:
        for info in found:
            for failure in info.failures:
                console().print(f"  failed [{failure.code}] {shown(failure.source)}: {failure.message}")
