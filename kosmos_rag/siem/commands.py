"""kosmos-rag siem: events for a SIEM."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json
from kosmos_rag.apps.cli.options import TenantOptions, command

app = typer.Typer(help="Send audit and security events to a SIEM, as OCSF.")

TargetOption = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="TARGET",
        help="A file, tcp://HOST:PORT or tls://HOST:PORT (syslog), or http://HOST:4318/v1/logs.",
    ),
]


@app.command("export")
@command
def export(
    to: TargetOption,
    state: Annotated[Path, typer.Option("--state", metavar="FILE", help="File that keeps the position of the export.")],
    *,
    common: TenantOptions,
) -> None:
    """Send the sealed audit records and the erasures that the target does not have."""
    from kosmos_rag.siem.export import export_audit
    from kosmos_rag.siem.targets import open_target

    target = open_target(to)
    with common.open_tenant() as owner:
        report = export_audit(owner, target, state)
        is_audited = owner.settings.rag.audit.enabled
    if common.as_json:
        print_json({"tenant": common.tenant, "events": report.exported, "refused": report.refused})
    else:
        console().print(f"{report.exported} events of tenant {common.tenant} exported, {report.refused} refused")
        if not report.exported and not is_audited:
            console().print("rag.audit.enabled is false: only collections with a preset that sets it have records")
        elif not report.exported:
            console().print("only sealed records are exported: a worker seals them, or kosmos-rag audit seal")


@app.command("convert-log")
@command
def convert_log(to: TargetOption) -> None:
    """Send sign-ins and refused requests from a service's log, JSON lines on standard input."""
    from kosmos_rag.siem.ocsf import convert_log_line, has_requests
    from kosmos_rag.siem.stream import EventStream
    from kosmos_rag.siem.targets import open_target

    with _ignore_stops(), EventStream(open_target(to, keep_open=True)) as stream:
        lacks_requests = None
        for line in sys.stdin.buffer:
            if lacks_requests is not False:
                lacks_requests = not has_requests(line)
            stream.add(list(convert_log_line(line)))
        report = stream.close()
    console().print(f"{report.exported} events sent, {report.refused} refused, {report.dropped} dropped")
    if lacks_requests:
        console().print("the log has no requests: set observability.log_format: json and observability.log_level: INFO")
    if report.dropped:
        raise typer.Exit(1)


@contextmanager
def _ignore_stops() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM.

    They reach both ends of a pipe. The service writes more until it ends, and the end of the input ends the command.
    """
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
