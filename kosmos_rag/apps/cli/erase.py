"""kosmos-rag erase and kosmos-rag tenant.

They remove stored data of a person, of documents, or of a whole tenant.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json, table
from kosmos_rag.apps.cli.options import CommonOptions, TenantOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.types import ErasureReport
    from kosmos_rag.engine.engine import Engine

tenant_app = typer.Typer(help="Erase a tenant with all its data.", no_args_is_help=True)

YesOption = Annotated[bool, typer.Option("--yes", help="Erase. Without it, the command shows what it would erase.")]
PurgeOption = Annotated[
    bool,
    typer.Option(
        "--purge",
        help="Then rewrite the files of the database, under exclusive locks, so that they keep no erased row.",
    ),
]


@command
def erase(
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="NAME", help="Feedback and samples of this reader.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="GLOB", help="Documents by source: * is any text, ? a character."),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata", metavar="KEY=VALUE", help="Documents by a value of their metadata.")
    ] = None,
    yes: YesOption = False,
    purge: PurgeOption = False,
    *,
    common: TenantOptions,
) -> None:
    """Erase documents, or all data about a reader, and record the erasure."""
    pair = None if metadata is None else _pair(metadata)
    with common.open_engine() as engine:
        if yes and purge:  # before anything is erased
            engine.require_purge()
        report = engine.tenant(common.tenant).erase(subject=subject, source=source, metadata=pair, preview=not yes)
        _finish(engine, report, purge=purge, as_json=common.as_json)


@tenant_app.command("delete")
@command
def delete(
    name: Annotated[str, typer.Argument(help="Name of the tenant.")],
    yes: YesOption = False,
    purge: PurgeOption = False,
    *,
    common: CommonOptions,
) -> None:
    """Erase a tenant with all its rows.

    Its audit log stays until its retention ends.
    """
    with common.open_engine() as engine:
        if yes and purge:  # before anything is erased
            engine.require_purge()
        report = engine.tenant(name).erase_all(preview=not yes)
        _finish(engine, report, purge=purge, as_json=common.as_json)


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (key and separator and value):
        raise RequestError(f"--metadata {text!r} is not KEY=VALUE; write --metadata employee=4711")
    return key, value


def _finish(engine: "Engine", report: "ErasureReport", *, purge: bool, as_json: bool) -> None:
    purged = purge and report.number is not None
    if purged:
        engine.purge_files()
    if as_json:
        print_json(report.to_dict() | {"purged": purged})
    else:
        _print(report, purged=purged)


def _print(report: "ErasureReport", *, purged: bool) -> None:
    out = console()
    rows = table("table", "rows", right={"rows"})
    for name, count in report.erased.items():
        rows.add_row(name, f"{count:,}")
    if report.erased:
        out.print(rows)
    for retained in report.retained:
        out.print(
            f"retained: {retained.rows:,} rows of {retained.table}, "
            f"until {retained.until}, the end of the audit retention"
        )
    for warning in report.warnings:
        out.print(f"warning: {warning}")
    total = f"{sum(report.erased.values()):,} rows of tenant {report.tenant}"
    if report.number is None:
        out.print(f"{total} would be erased by {report.kind} {report.selector}; --yes erases them")
        return
    out.print(f"{total} erased; record {report.number}, sha256 {report.sha256}")
    out.print("the files of the database were rewritten" if purged else _PURGE)


_PURGE = "files of the database keep erased rows until the server writes over them; --purge rewrites the files"
