"""kosmos-rag audit: who asked what and saw which passages, and whether the log is as it was sealed."""

import uuid
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import (
    LimitOption,
    console,
    plain,
    print_json,
    shown,
    table,
)
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.types import AuditRecord, AuditReport, DocumentAccess

app = typer.Typer(help="The log of retrievals: who asked what, who saw what, what found nothing, and whether it holds.")

SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="From this day or time on; UTC where no zone is given.")
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before this day or time.")]


@app.command("list")
@command
def list_(
    subject: Annotated[str | None, typer.Option("--subject", metavar="NAME", help="Only what this one asked.")] = None,
    outcome: Annotated[
        list[str] | None, typer.Option("--outcome", help="Only hits, none or refused; may be repeated.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="ID", help="Only those older than this one: the next page.")
    ] = None,
    limit: LimitOption = 20,
    *,
    common: TenantOptions,
) -> None:
    """List retrievals, the newest first."""
    from kosmos_rag.core.types import AuditOutcome

    known = [str(known) for known in AuditOutcome]
    if wrong := [name for name in outcome or () if name not in known]:
        raise RequestError(f"--outcome {wrong[0]!r} is none; use one of {', '.join(known)}")
    first, last, cursor = _time("--since", since), _time("--until", until), _id(before)
    with common.open_tenant() as owner:
        found = owner.audit.find(
            since=first,
            until=last,
            subject=subject,
            outcomes=[AuditOutcome(name) for name in outcome] if outcome else None,
            before=cursor,
            limit=limit,
        )
    if common.as_json:
        print_json({"tenant": common.tenant, "retrievals": [plain(record) for record in found]})
    else:
        _print_records(found)


@app.command("show")
@command
def show(
    record: Annotated[str, typer.Argument(metavar="ID", help="Id of a retrieval.")], *, common: TenantOptions
) -> None:
    """Show one retrieval with the passages that it gave out."""
    wanted = _id(record)
    assert wanted is not None, "the argument is required"
    with common.open_tenant() as owner:
        found = owner.audit.get(wanted)
    if found is None:
        raise RequestError(
            f"the log of tenant {common.tenant} has no retrieval {record}; "
            f"`kosmos-rag audit list -t {common.tenant}` lists them"
        )
    if common.as_json:
        print_json(plain(found))
    else:
        _print_record(found)


@app.command("who-saw")
@command
def who_saw(
    document: Annotated[
        str, typer.Argument(metavar="DOCUMENT", help="A path, a name as `documents` shows it, or an id.")
    ],
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 1000,
    *,
    common: TenantOptions,
) -> None:
    """List who was given passages of a document, one that is gone too, the newest first."""
    first, last = _time("--since", since), _time("--until", until)
    with common.open_tenant() as owner:
        who_saw = partial(owner.audit.list_document_access, since=first, until=last, limit=limit)
        found = next(filter(None, map(who_saw, _names(document))), [])
    if common.as_json:
        print_json(
            {"tenant": common.tenant, "document": document, "sightings": [plain(sighting) for sighting in found]}
        )
    else:
        _print_sightings(document, found)


@app.command("failed")
@command
def failed(
    since: SinceOption = None, until: UntilOption = None, limit: LimitOption = 100, *, common: TenantOptions
) -> None:
    """List questions that found nothing, were refused or rated down, the most frequent first."""
    first, last = _time("--since", since), _time("--until", until)
    with common.open_tenant() as owner:
        found = owner.audit.list_failed_questions(since=first, until=last, limit=limit)
    if common.as_json:
        print_json({"tenant": common.tenant, "questions": [plain(question) for question in found]})
        return
    rows = table("times", "refused", "disliked", "subjects", "last", "question", "comment")
    for one in found:
        counts = (str(count) for count in (one.times, one.refused, one.disliked, one.subjects))
        told = one.question or f"sha256 {one.question_sha256}"
        rows.add_row(*counts, _minute(one.last_at), told, next(iter(one.comments), ""))
    console().print(rows if found else "no question failed")


@app.command("seal")
@command
def seal(*, common: TenantOptions) -> None:
    """Seal what is not sealed and look after the months of the log: by the clock, where no worker does."""
    with common.open_tenant() as owner:
        made = owner.audit.seal()
    if common.as_json:
        print_json({"tenant": common.tenant, "seals": made})
    else:
        console().print(f"{made} seals made over the log of tenant {common.tenant}")


@app.command("verify")
@command
def verify(*, common: TenantOptions) -> None:
    """Recompute the seals, and exit with 1 where one does not hold."""
    with common.open_tenant() as owner:
        report = owner.audit.verify()
    if common.as_json:
        print_json({"tenant": common.tenant, "intact": report.intact, **asdict(report)})
    elif report.intact:
        console().print(_summary(report))
    if not report.intact:
        if not common.as_json:
            others = f"; {report.failing - 1} more seals do not hold" if report.failing > 1 else ""
            typer.echo(f"error: the log of tenant {common.tenant} does not hold: {report.problem}{others}", err=True)
        raise typer.Exit(1)


def _summary(report: "AuditReport") -> str:
    told = f"{report.seals} seals hold over {report.rows} records, {report.unsealed} records are not sealed yet"
    expired = f"; the records of {report.expired} seals are past retention" if report.expired else ""
    last = f"\nlast seal {report.head}" if report.head else ""
    if report.erasures:
        last += f"\n{report.erasures} records of erasures hold\nlast erasure {report.erasure_head}"
    return told + expired + last


def _time(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise RequestError(
            f"{option} {text!r} is no day or time; write 2026-11-01 or 2026-11-01T08:00+01:00"
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _id(text: str | None) -> uuid.UUID | None:
    try:
        return None if text is None else uuid.UUID(text)
    except ValueError as error:
        raise RequestError(f"{text!r} is no id of a retrieval; `kosmos-rag audit list` shows them") from error


def _names(document: str) -> "list[str | uuid.UUID]":
    """Return what an argument may name: a document by its id, by its source, by the path that its source is of."""
    from kosmos_rag.ingestion.sources.files import name_of

    try:
        return [uuid.UUID(document)]
    except ValueError:
        return [document, name_of(Path(document))]


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _print_records(found: "Sequence[AuditRecord]") -> None:
    rows = table("id", "at (UTC)", "subject", "kind", "outcome", "passages", "question")
    for record in found:
        passages = str(sum(passage.shown for passage in record.passages))
        question = record.question or f"sha256 {record.question_sha256[:16]}"
        told = (str(record.id), _minute(record.at), record.subject or "-", record.kind, record.outcome, passages)
        rows.add_row(*told, question)
    console().print(rows if found else "nothing in the log")


def _print_record(record: "AuditRecord") -> None:
    out = console()
    for name, value in plain(record).items():
        if name != "passages" and value is not None:
            out.print(f"{name:<16} {value}")
    for passage in record.passages:
        kept = "" if passage.shown else "  (not in the context)"
        out.print(f"{passage.rank:>4}  {passage.score:.4f}  {shown(passage.source)} v{passage.version}{kept}")


def _print_sightings(document: str, found: "Sequence[DocumentAccess]") -> None:
    rows = table("at (UTC)", "subject", "principals", "version", "rank", "kind", "retrieval", "question")
    for one in found:
        reader = (_minute(one.at), one.subject or "-", ", ".join(one.principals))
        rows.add_row(*reader, str(one.version), str(one.rank), one.kind, str(one.retrieval_id), one.question or "")
    console().print(rows if found else f"the log has nobody who was given passages of {document}")
