"""The command line.

Commands import heavy modules inside their functions: --help must be fast.
"""

import sys
from collections.abc import Callable
from io import TextIOWrapper

import typer

from kosmos_rag.apps.cli import (
    access,
    api_key,
    ask,
    audit,
    backup,
    cluster,
    collection,
    config,
    delete,
    doctor,
    documents,
    enqueue,
    erase,
    events,
    index,
    ingest,
    init,
    jobs,
    keyword_context,
    mcp,
    migrate,
    models,
    reembed,
    search,
    serve,
    set_metadata,
    worker,
)
from kosmos_rag.apps.cli.help import HELP_OPTIONS, HelpGroup
from kosmos_rag.apps.cli.wings import load_command_groups
from kosmos_rag.core.version import __version__
from kosmos_rag.parsing.sandbox.limits import clear_dumpable

app = typer.Typer(
    name="kosmos-rag",
    help="Multi-tenant retrieval on PostgreSQL and pgvector: files in, cited context out.",
    no_args_is_help=True,
    cls=HelpGroup,
    context_settings=HELP_OPTIONS,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(show: bool) -> None:
    if show:
        typer.echo(f"kosmos-rag {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
) -> None:
    pass


_COMMANDS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Start": {
        "init": init.init,
        "doctor": doctor.doctor,
        "config": config.app,
        "models": models.app,
    },
    "Documents": {
        "ingest": ingest.ingest,
        "enqueue": enqueue.enqueue,
        "jobs": jobs.app,
        "events": events.app,
        "documents": documents.documents,
        "set-metadata": set_metadata.set_metadata,
        "delete": delete.delete,
        "collection": collection.app,
    },
    "Questions": {
        "search": search.search,
        "ask": ask.ask,
        "keyword-context": keyword_context.keyword_context,
    },
    "Services": {
        "serve": serve.serve,
        "worker": worker.worker,
        "mcp": mcp.mcp,
        "api-key": api_key.app,
    },
    "Database and indexes": {
        "migrate": migrate.migrate,
        "backup": backup.backup,
        "restore": backup.restore,
        "index": index.app,
        "cluster": cluster.app,
        "reembed": reembed.app,
    },
    "Tenants": {
        "tenant": erase.tenant_app,
        "erase": erase.erase,
        "audit": audit.app,
        "access": access.access,
    },
}
"""Commands and groups of commands by name, under the headings of the help."""

for _panel, _name, _group in load_command_groups():
    _COMMANDS.setdefault(_panel, {})[_name] = _group

for _panel, _members in _COMMANDS.items():
    for _name, _member in _members.items():
        if isinstance(_member, typer.Typer):
            app.add_typer(_member, name=_name, cls=HelpGroup, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel)(_member)


def main() -> None:
    """Run the command line.

    Its environment holds URLs and keys, so parser processes must not read its memory. Characters that its output cannot
    encode are escaped.
    """
    clear_dumpable()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    app()
