"""kosmos-rag audit: the audit log of a tenant, and its seals."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import (
    LimitOption,
    console,
    cut,
    print_json,
    print_truncated,
    source_names,
    table,
)
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.text.counts import count

if TYPE_CHECKING:
    from kosmos_rag.core.types import AuditRecord, AuditReport, DocumentAccess

app = typer.Typer(
    help="Show and verify the audit log of a tenant: questions, answers, and the passages that readers got."
)

SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="From this day or time on; UTC without a time zone.")
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before this day or time.")]


@app.command("list")
@command
def list_(
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="NAME", help="Only questions of this subject.")
    ] = None,
    outcome: Annotated[
        list[str] | None, typer.Option("--outcome", help="Only this outcome: hits, none or refused; may be repeated.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="ID", help="Only retrievals before this one: the next page.")
    ] = None,
    limit: LimitOption = 20,
    *,
    common: TenantOptions,
) -> None:
    """List retrievals, the newest first."""
    from kosmos_rag.core.types import AuditOutcome

    outcomes = [str(value) for value in AuditOutcome]
    if unknown := [name for name in outcome or () if name not in outcomes]:
        raise RequestError(f"--outcome {unknown[0]!r} is not an outcome; use one of {', '.join(outcomes)}")
    first, last, cursor = _time("--since", since), _time("--until", until), _id(before)
    with common.open_tenant() as owner:
        events = owner.audit.find(
            since=first,
            until=last,
            subject=subject,
            outcomes=[AuditOutcome(name) for name in outcome] if outcome else None,
            before=cursor,
            limit=limit + 1,
        )
    records, truncated = cut(events, limit)
    if common.as_json:
        retrievals = [record.to_dict() for record in records]
        following = str(records[-1].id) if truncated else None
        print_json({"tenant": common.tenant, "retrievals": retrievals, "next": following})
        return
    _print_records(records)
    if truncated:
        print_truncated(limit, f"--before {records[-1].id}")


@app.command("show")
@command
def show(
    record: Annotated[str, typer.Argument(metavar="ID", help="Id of a retrieval.")], *, common: TenantOptions
) -> None:
    """Show a retrieval with its passages."""
    record_id = _id(record)
    assert record_id is not None, "the argument is required"
    with common.open_tenant() as owner:
        audit_record = owner.audit.get(record_id)
    if audit_record is None:
        raise RequestError(
            f"the log of tenant {common.tenant} has no retrieval {record}; "
            f"`kosmos-rag audit list -t {common.tenant}` lists them"
        )
    if common.as_json:
        print_json(audit_record.to_dict())
    else:
        _print_record(audit_record)


@app.command("who-saw")
@command
def who_saw(
    document: Annotated[str, typer.Argument(metavar="DOCUMENT", help="Path, source name or id of a document.")],
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 1000,
    *,
    common: TenantOptions,
) -> None:
    """List who received passages of a document, the newest first.

    The document may be deleted.
    """
    first, last = _time("--since", since), _time("--until", until)
    with common.open_tenant() as owner:
        who_saw = partial(owner.audit.list_document_access, since=first, until=last, limit=limit + 1)
        records, truncated = cut(next(filter(None, map(who_saw, _names(document))), []), limit)
    if common.as_json:
        sightings = [sighting.to_dict() for sighting in records]
        values = {"tenant": common.tenant, "document": document, "sightings": sightings, "truncated": truncated}
        print_json(values)
        return
    _print_sightings(document, records)
    if truncated:
        print_truncated(limit)


@app.command("failed")
@command
def list_failed(
    since: SinceOption = None, until: UntilOption = None, limit: LimitOption = 100, *, common: TenantOptions
) -> None:
    """List questions without hits, refused or rated down, the most frequent first."""
    first, last = _time("--since", since), _time("--until", until)
    with common.open_tenant() as owner:
        questions = owner.audit.list_failed_questions(since=first, until=last, limit=limit + 1)
    records, truncated = cut(questions, limit)
    if common.as_json:
        values = [question.to_dict() for question in records]
        print_json({"tenant": common.tenant, "questions": values, "truncated": truncated})
        return
    rows = table("times", "refused", "disliked", "subjects", "last", "question", "comment")
    for record in records:
        counts = (str(count) for count in (record.times, record.refused, record.disliked, record.subjects))
        text = record.question or f"sha256 {record.question_sha256}"
        rows.add_row(*counts, _format_time(record.last_at), text, next(iter(record.comments), ""))
    console().print(rows if records else "no question failed")
    if truncated:
        print_truncated(limit)


@app.command("seal")
@command
def seal(*, common: TenantOptions) -> None:
    """Seal new records and rotate the partitions of the log.

    Workers do this regularly.
    """
    with common.open_tenant() as owner:
        seals = owner.audit.seal()
    if common.as_json:
        print_json({"tenant": common.tenant, "seals": seals})
    else:
        console().print(f"{seals} new seals in the log of tenant {common.tenant}")


@app.command("verify")
@command
def verify(*, common: TenantOptions) -> None:
    """Verify all seals; exits with 1 where one does not match."""
    with common.open_tenant() as owner:
        report = owner.audit.verify()
    if common.as_json:
        print_json({"tenant": common.tenant, "intact": report.intact, **report.to_dict()})
    elif report.intact:
        console().print(_summary(report))
    if not report.intact:
        if not common.as_json:
            more = f"; {report.failing - 1} more seals are invalid" if report.failing > 1 else ""
            typer.echo(f"error: the log of tenant {common.tenant} is invalid: {report.problem}{more}", err=True)
        raise typer.Exit(1)


def _summary(report: "AuditReport") -> str:
    summary = f"{report.seals} seals over {report.rows} records are valid, {report.unsealed} records are not sealed yet"
    expired = f"; the records of {report.expired} seals are past retention" if report.expired else ""
    last = f"\nlast seal {report.head}" if report.head else ""
    if report.erasures:
        last += f"\nthe records of {count(report.erasures, 'erasure')} are valid\nlast erasure {report.erasure_head}"
    return summary + expired + last


def _time(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise RequestError(
            f"{option} {text!r} is not a day or time; write 2026-11-01 or 2026-11-01T08:00+01:00"
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _id(text: str | None) -> uuid.UUID | None:
    try:
        return None if text is None else uuid.UUID(text)
    except ValueError as error:
        raise RequestError(f"{text!r} is not an id of a retrieval; `kosmos-rag audit list` shows ids") from error


def _names(document: str) -> "list[str | uuid.UUID]":
    """Return the possible keys of a document.

    They are its id, or its source name and the name of its path.
    """
    try:
        return [uuid.UUID(document)]
    except ValueError:
        return [*source_names(document)]


def _format_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _print_records(records: "Sequence[AuditRecord]") -> None:
    rows = table("id", "at (UTC)", "subject", "kind", "outcome", "passages", "question")
    for record in records:
        passages = str(sum(passage.shown for passage in record.passages))
        question = record.question or f"sha256 {record.question_sha256[:16]}"
        cells = (str(record.id), _format_time(record.at), record.subject or "-", record.kind, record.outcome, passages)
        rows.add_row(*cells, question)
    console().print(rows if records else "nothing in the log")


def _print_record(record: "AuditRecord") -> None:
    out = console()
    for name, value in record.to_dict().items():
        if name != "passages" and value is not None:
            out.print(f"{name:<16} {value}")
    for passage in record.passages:
        suffix = "" if passage.shown else "  (not in the context)"
        out.print(f"{passage.rank:>4}  {passage.score:.4f}  {one_line(passage.source)} v{passage.version}{suffix}")


def _print_sightings(document: str, records: "Sequence[DocumentAccess]") -> None:
    rows = table("at (UTC)", "subject", "principals", "version", "rank", "kind", "retrieval", "question")
    for record in records:
        reader = (_format_time(record.at), record.subject or "-", ", ".join(record.principals))
        rows.add_row(
            *reader,
            str(record.version),
            str(record.rank),
            record.kind,
            str(record.retrieval_id),
            record.question or "",
        )
    console().print(rows if records else f"nobody in the log received passages of {document}")
