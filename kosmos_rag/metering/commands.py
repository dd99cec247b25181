"""kosmos-rag usage: what a tenant has used and what it cost."""

from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json, table
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.metering.records import UsageReport


@command
def usage(
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Beginning; default: the first day of this month.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="End; default: now.")] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="INTERVAL", help="Rows by hour, day or month; default: one sum.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="NAME", help="Rows by collection, subject (reader or key) or model; repeatable."),
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="NAME", help="Of one reader only, or of a key: key:NAME.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    *,
    common: TenantOptions,
) -> None:
    """Show what a tenant has used, and what it cost."""
    from kosmos_rag.metering.store import UsageStore
    from kosmos_rag.metering.tables import write_csv
    from kosmos_rag.metering.times import parse_time

    if as_csv and common.as_json:
        raise RequestError("--csv and --json are given; use one of them")
    begin, end, names = parse_time("--since", since), parse_time("--until", until), by or ()
    with common.open_tenant() as tenant:
        report = UsageStore(tenant).read(since=begin, until=end, every=every, by=names, subject=subject)
    if as_csv:
        typer.echo(write_csv(report, names, every=every), nl=False)
    elif common.as_json:
        print_json(report.to_dict())
    else:
        _print(report, names, every)


app = usage


def _print(report: "UsageReport", by: "list[str] | tuple[str, ...]", every: str | None) -> None:
    from kosmos_rag.metering.records import format_limit
    from kosmos_rag.metering.tables import format_cell, list_columns

    columns = list_columns(by, every=every)
    rows = table(*columns, right={"amount", "cost"})
    for amount in report.amounts:
        rows.add_row(*(format_cell(amount, column) for column in columns))
    nothing = f"tenant {report.tenant} has used nothing from {report.since:%Y-%m-%d %H:%M} UTC on"
    console().print(rows if report.amounts else nothing)
    for limit in report.limits:
        who = "tenant" if limit.subject is None else limit.subject
        share = f"{100 * limit.total / limit.amount:.0f} %" if limit.amount else "all"
        console().print(f"limit of {who}: {format_limit(limit, report.currency)}, {share}")
    if report.cost:
        console().print(f"cost: {report.cost:.2f} {report.currency}")
