"""kosmos-rag siem: events for a SIEM."""

import json
import sys
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
    state: Annotated[Path, typer.Option("--state", metavar="FILE", help="Where the export keeps its position.")],
    *,
    common: TenantOptions,
) -> None:
    """Send the sealed audit records and the erasures that the target does not have."""
    from kosmos_rag.siem.export import export_audit
    from kosmos_rag.siem.targets import open_target

    target = open_target(to)
    with common.open_tenant() as owner:
        count = export_audit(owner, target, state)
    if common.as_json:
        print_json({"tenant": common.tenant, "events": count})
    else:
        console().print(f"{count} events of tenant {common.tenant} exported")


@app.command("convert-log")
@command
def convert_log(to: TargetOption) -> None:
    """Send sign-ins and refused requests from a service's log, JSON lines on standard input."""
    from kosmos_rag.siem.ocsf import convert_log_entry
    from kosmos_rag.siem.targets import open_target

    target, count = open_target(to), 0
    for line in sys.stdin:
        if events := list(convert_log_entry(_parse(line))):
            target.write(events)
            count += len(events)
    console().print(f"{count} events sent")


def _parse(line: str) -> dict[str, object]:
    """Return the entry of a line; an empty one for a line of something else."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) and "time" in entry else {}
